#!/bin/bash
# Upgrades, removes and purges the packages while their services run, and checks where their logs go. Runs as root in a
# Debian that booted with systemd, without any part of infcgi installed. Needs curl and logrotate.
#   lifecycle.sh DEBS NEWER MODEL   DEBS: folder of the packages; NEWER: the same with a higher version; MODEL: a GGUF file
set -euo pipefail
debs=$1 newer=$2 model=$3
export DEBIAN_FRONTEND=noninteractive
finish() {
    local status=$?
    [ $status = 0 ] || journalctl --no-pager -n 60 -u infcgi.service -u infcgi.socket -u infcgi@second.service || true
}
trap finish EXIT
fail() { echo "lifecycle: expected $1, found: $2" >&2; exit 1; }
step() { echo "--- $*"; }
add() { apt-get install -y -q --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold "$1"/infcgi_*.deb "$1"/infcgi-nginx_*.deb; }
state() { systemctl is-active "$1" || true; }
is() { [ "$(state "$1")" = "$2" ] || fail "$1 to be $2" "$(state "$1")"; }
pid() { systemctl show --property=MainPID --value "$1"; }
ask() { curl -sS --fail --max-time 120 --retry 60 --retry-all-errors --retry-delay 1 -o /dev/null http://127.0.0.1:8080/v1/completions \
    -H 'Content-Type: application/json' -d '{"prompt": [1, 2], "max_tokens": 1}'; }
# Retries until a command succeeds, for at most a minute.
until_ok() { for _ in $(seq 600); do if "$@"; then return 0; fi; sleep 0.1; done; fail "$*" 'not within a minute'; }
has() { grep -q "$1" "$2" 2>/dev/null; }
has_error() { journalctl --no-pager -p err -u infcgi.service -o cat | grep -q "$1"; }

step 'install: nothing starts'
add "$debs"
is infcgi.service inactive
is infcgi.socket inactive
cp "$model" /var/lib/infcgi/model.gguf
echo 'INFCGI_OPTIONS="--threads 1 --usage-log /var/log/infcgi/usage.log"' >>/etc/default/infcgi
printf '[all]\nkey = sk-test\n' >/etc/infcgi/tenants
ln -s ../sites-available/infcgi /etc/nginx/sites-enabled/infcgi
systemctl enable --now infcgi.socket infcgi.service
systemctl reload-or-restart nginx
ask
step 'an instance of several'
printf 'model = /var/lib/infcgi/model.gguf\nthreads = 1\n' >/etc/infcgi/second.conf
systemctl enable --now infcgi@second.socket infcgi@second.service
is infcgi@second.service active

step 'an upgrade restarts what runs'
old=$(pid infcgi.service) second=$(pid infcgi@second.service) socket=$(systemctl show --property=ActiveEnterTimestampMonotonic infcgi.socket)
add "$newer"
is infcgi.service active
is infcgi@second.service active
[ "$(pid infcgi.service)" != "$old" ] || fail 'another process after an upgrade' "$old"
[ "$(pid infcgi@second.service)" != "$second" ] || fail 'another process of the instance' "$second"
[ "$(systemctl show --property=ActiveEnterTimestampMonotonic infcgi.socket)" = "$socket" ] || fail 'the same socket' 'another'
[ "$(systemctl is-enabled infcgi.service)" = enabled ] || fail 'it to be enabled still' "$(systemctl is-enabled infcgi.service)"
ask

step 'what the administrator has stopped stays stopped'
systemctl stop infcgi@second.service infcgi@second.socket
add "$debs"
is infcgi@second.service inactive
is infcgi@second.socket inactive
is infcgi.service active
ask

step 'logs: errors in the journal, a journal of usage that is rotated'
systemctl stop infcgi.service
! has_error model_unreadable || fail 'no error yet' 'one'
mv /var/lib/infcgi/model.gguf /var/lib/infcgi/away.gguf
! systemctl start infcgi.service || fail 'no start without a model' 'one'
until_ok has_error '^error: '
mv /var/lib/infcgi/away.gguf /var/lib/infcgi/model.gguf
systemctl reset-failed infcgi.service
echo 'INFCGI_OPTIONS="--threads 1 --usage-log /var/log/infcgi/usage.log --tenants /etc/infcgi/tenants"' >>/etc/default/infcgi
systemctl start infcgi.service
ask_as() { curl -sS --fail -o /dev/null http://127.0.0.1:8080/v1/completions -H 'Authorization: Bearer sk-test' -H 'Content-Type: application/json' \
    -d '{"prompt": [1, 2], "max_tokens": 1}'; }
ask_as
until_ok has '"tenant":"all"' /var/log/infcgi/usage.log
logrotate --force /etc/logrotate.d/infcgi
until_ok test -e /var/log/infcgi/usage.log
ask_as
until_ok has '"tenant":"all"' /var/log/infcgi/usage.log
[ "$(wc -l </var/log/infcgi/usage.log.1)" = "$(grep -c tenant /var/log/infcgi/usage.log.1)" ] || fail 'whole lines' "$(cat /var/log/infcgi/usage.log.1)"

step '--check-config beside the service'
/usr/bin/infcgi serve --check-config --model /var/lib/infcgi/model.gguf --tenants /etc/infcgi/tenants
is infcgi.service active

step 'remove stops it, and keeps the settings'
systemctl start infcgi@second.socket infcgi@second.service
apt-get remove -y -q infcgi infcgi-nginx
for unit in infcgi.service infcgi.socket infcgi@second.service infcgi@second.socket; do
    case $(state $unit) in inactive | unknown) ;; *) fail "$unit to be stopped" "$(state $unit)" ;; esac
done
! pgrep -x infcgi-master || fail 'no process' 'one'
[ -e /etc/default/infcgi ] && [ -e /var/log/infcgi/usage.log ] || fail 'settings and logs to stay' 'them gone'

step 'purge stops it, and leaves models alone'
rm -f /etc/nginx/sites-enabled/infcgi
add "$debs"
systemctl start infcgi.socket infcgi.service
is infcgi.service active
apt-get purge -y -q infcgi infcgi-nginx
case $(state infcgi.service) in inactive | unknown) ;; *) fail 'the service to be stopped' "$(state infcgi.service)" ;; esac
! pgrep -x infcgi-master || fail 'no process' 'one'
left=$(find /etc /var/log /var/cache /run/infcgi -name '*infcgi*' -not -path '/etc/infcgi/*' -not -path '/var/cache/apt/*' -not -path '/var/log/nginx/*' 2>/dev/null | grep -vE '^/etc/(passwd|group|shadow|gshadow)' || true)
[ -z "$left" ] || [ "$left" = /etc/infcgi ] || fail 'nothing left' "$left"
[ -e /var/lib/infcgi/model.gguf ] || fail 'the model to stay' 'it gone'
echo 'lifecycle: all is well'
