#!/bin/bash
# Runs one engine with its own nginx, in the foreground, until Ctrl-C or SIGTERM: for `make run`.
#   MODEL=path (default: the model of fetch-model.sh)  PORT=8080  HOST=127.0.0.1  V=release  PROGRAM=infcgi
#   BINARY=path of an installed infcgi, instead of the build of V and PROGRAM
#   run.sh [options for `infcgi serve`]
# When ready, prints a line with the address, one with the console's command and, for the default model, one on its
# size. All files are in one temporary folder, which is removed at the end. Exit status: 65 if the file is not a model,
# 69 if the engine lost its back end, 1 for other errors, 0 after a stop.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
port=${PORT:-8080}
host=${HOST:-127.0.0.1}
binary=${BINARY:-$here/../build/${V:-release}/${PROGRAM:-infcgi}}
grace_s=30   # seconds that running answers can continue after a stop request

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

if ! [[ $port =~ ^[0-9]{1,5}$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    fail "PORT=$port is not a port (1 to 65535)"
fi
[ -x "$binary" ] || fail "$binary is not built; run make"
if (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; then
    fail "port $port of $host is in use; stop what listens there, or choose another: make run PORT=$((10#$port + 1))"
fi

model=${MODEL:-}
if [ -z "$model" ]; then
    # Greedy, so that it always answers Paris; at the card's temperature of 0.2 it sometimes answers in French. The
    # penalty ends repetitions in strings of structured answers, and closed objects end their lists of members.
    set -- --temp 0 --frequency-penalty 0.2 --closed-objects "$@"
    model=$("$here/fetch-model.sh") || fail "the default model could not be fetched; give one: make run MODEL=path"
fi

"$binary" inspect --check -- "$model" || exit   # before nginx prints anything

tmp=
engine=
nginx=
stopping=0      # 1: stop requested; 2: requested again
asked_ms=0
gone() { [ -z "$1" ] || ! kill -0 "$1" 2>/dev/null; }

# shellcheck disable=SC2317 # called by a trap
# Stops both, the engine first so that running answers can still leave through nginx. A second signal cuts this short.
stop_all() {
    local tenths=$((grace_s * 10))
    gone "$engine" || kill -TERM "$engine" 2>/dev/null
    while ! gone "$engine" && ((tenths-- > 0 && stopping < 2)); do pause 0.1; done
    gone "$engine" || kill -KILL "$engine" 2>/dev/null
    gone "$nginx" || kill -TERM "$nginx" 2>/dev/null
    tenths=50
    while ! gone "$nginx" && ((tenths-- > 0)); do pause 0.1; done
    gone "$nginx" || kill -KILL "$nginx" 2>/dev/null
    [ -z "$tmp" ] || rm -rf "$tmp"
}
# shellcheck disable=SC2317 # called by a trap
# A signal to the whole process group arrives twice, because make forwards it. So only a later signal counts as the
# second.
asked() {
    local now_ms=$((${EPOCHREALTIME/[.,]/} / 1000))
    if ((stopping == 0)); then
        stopping=1
        asked_ms=$now_ms
    elif ((now_ms - asked_ms > 1000)); then
        stopping=2
    fi
}
trap 'stop_all' EXIT
trap 'asked' INT TERM HUP

tmp=$(mktemp -d "${TMPDIR:-/tmp}/infcgi.XXXXXX") || exit 1
# No process writes to this FIFO, so a read with a timeout sleeps without starting a program.
mkfifo "$tmp/silence" && exec 9<>"$tmp/silence" || exit 1
pause() { read -r -t "$1" -u 9; }

# Separate sessions: Ctrl-C reaches only this script, which then stops them in order.
setsid spawn-fcgi -n -s "$tmp/infcgi.sock" -M 0660 -- "$binary" serve --master --model "$model" --admin-socket "$tmp/admin.sock" "$@" </dev/null 9>&- &
engine=$!

engine_ended() {
    wait "$engine"
    local status=$?
    engine=
    ((stopping > 0)) && exit 0
    # The engine has already reported errors in the model or an option.
    case $status in
    64 | 65 | 78) exit $status ;;
    69) fail "the engine lost its back end, as its log says; start it again" 69 ;;
    esac
    fail "the engine ended with status $status"
}
nginx_ended() {
    wait "$nginx"
    nginx=
    ((stopping > 0)) && exit 0
    fail "nginx ended; is port $port of $host in use?"
}

sh "$here/conf.sh" "$tmp" "$host:$port" || exit 1
setsid nginx -p "$tmp" -c "$tmp/nginx.conf" -e stderr </dev/null 9>&- &
nginx=$!

shown=
show() { # shows a line that is overwritten, only on a terminal
    [ -t 2 ] && printf '\r%-60s\r%s' '' "$1" >&2 && shown=$1
}
base=http://$host:$port
until [ "$(curl -s -m 5 -o "$tmp/health" -w '%{http_code}' "$base/health")" = 200 ]; do
    ((stopping > 0)) && exit 0
    gone "$engine" && engine_ended
    gone "$nginx" && nginx_ended
    progress=$(sed -n 's/.*"progress": *\([0-9.]*\).*/\1/p' "$tmp/health" 2>/dev/null)
    [ -z "$progress" ] || show "loading the model: $(awk -v p="$progress" 'BEGIN { printf "%d", p * 100 }') %"
    pause 0.05
done
gone "$nginx" && nginx_ended   # then another server answered
[ -z "$shown" ] || show ''

# Still escaped as in JSON: a name can contain quotes and newlines.
name=$(sed -n 's/.*"model": *"\(\([^"\\]\|\\.\)*\)".*/\1/p' "$tmp/health")
[ -n "$name" ] || name=unknown
echo "infcgi ready: $base/v1 (model $name)"
echo "Its console: $binary ctl --socket $tmp/admin.sock"
[ -n "${MODEL:-}" ] || echo "This model is a tiny one, for trying out; a better one: make run MODEL=path/to/model.gguf"

# Poll, because `wait -n` of bash 5.2 misses children that ended before the call.
while ((stopping == 0)); do
    gone "$engine" && engine_ended
    gone "$nginx" && nginx_ended
    pause 0.2
done
exit 0
