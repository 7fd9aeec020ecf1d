#!/bin/bash
# Tests the packages in copies of a bare Debian without a network. autopkgtest runs nginx/debian/tests in one. In two
# more the same test follows all of docs/ops/install.md, from `apt install` to `apt purge`, in a chroot and with systemd
# running. In the last one lifecycle.sh upgrades, removes and purges them while services run. Needs root. Last line: N
# passed, N failed.
#   deb_test.sh DEBS [CODENAME]   DEBS: output of nginx/deb.sh. CODENAME: bookworm, for which these packages are, or trixie,
#                                 in which they are built first, with warnings as errors. Bare systems are kept in
#                                 build/deb-test.
set -euo pipefail
cd "$(dirname "$0")/../.."
debs=$PWD/$1
codename=${2:-bookworm}
work=$PWD/build/deb-test
[ "$codename" = bookworm ] || work=$work-$codename
tree=$(echo "$debs"/infcgi-*/)
[ -d "$tree/debian" ] || { echo "error: deb-test: expected a tree in $debs, which make deb lays there" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo 'error: deb-test: expected root, as chroot and mount need it' >&2; exit 1; }
mkdir -p "$work"

# A mirror from this machine's apt configuration.
if ! [ -e "$work/base.ok" ]; then
    rm -rf "$work/base"
    mirror=$(apt-get indextargets --format 'deb $(REPO_URI) CODENAME main' 'Created-By: Packages' 'Origin: Debian' 'Codename: bookworm' | sort -u | head -n 1)
    [ -n "$mirror" ] || { echo 'error: deb-test: apt knows no mirror of Debian 12 (bookworm)' >&2; exit 1; }
    echo "  a bare Debian, $codename"
    mmdebstrap --quiet --variant=apt --include=ca-certificates "$codename" "$work/base" "${mirror/CODENAME/$codename}"
    # Without a service manager packages must not start their daemons.
    printf '#!/bin/sh\nexit 101\n' >"$work/base/usr/sbin/policy-rc.d"
    chmod 755 "$work/base/usr/sbin/policy-rc.d"
    touch "$work/base.ok"
fi

# inside ROOT [--net] COMMAND...: with its own processes, mounts and, without --net, network, which end with the
# command.
inside() {
    local root=$1 net=--net
    shift
    if [ "$1" = --net ]; then net='' && shift; fi
    # shellcheck disable=SC2016,SC2086 # for the inner shell; a word or none
    unshare --mount --pid --fork --kill-child $net bash -c '
        root=$1 && shift
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/run"
        mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"
        [ -z "$(ip link show lo | grep "state DOWN")" ] || ip link set lo up
        exec "$@"' - "$root" "$@"
}

# Another Debian than the one of `make deb` builds its own packages, from the same tree.
if [ "$codename" != bookworm ]; then
    echo '  its packages'
    rm -rf "$work/builder" && cp -a "$work/base" "$work/builder" && mkdir "$work/builder/build"
    cp -r "$tree" "$work/builder/build/infcgi"
    rm -rf "$work/builder/build/infcgi/build" "$work/builder/build/infcgi/debian/infcgi"* && cp -r "$tree"/nginx/debian/. "$work/builder/build/infcgi/debian"
    cp /etc/resolv.conf "$work/builder/etc/resolv.conf"
    inside "$work/builder" --net chroot "$work/builder" sh -c '
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q && apt-get install -y -q --no-install-recommends build-essential && cd /build/infcgi &&
        apt-get build-dep -y -q --no-install-recommends ./ && CI=1 dpkg-buildpackage --build=binary --no-sign' >"$work/build.log" 2>&1 ||
        { tail -n 30 "$work/build.log" >&2; exit 1; }
    debs=$work/builder/build
    tree=$debs/infcgi
fi

# The same packages with a higher version, for an upgrade.
newer=$work/newer
rm -rf "$newer" && mkdir "$newer"
for package in "$debs"/infcgi_*.deb "$debs"/infcgi-nginx_*.deb; do
    rm -rf "$work/unpacked" && dpkg-deb -R "$package" "$work/unpacked"
    sed -i -E '/^Version:/s/$/+newer/' "$work/unpacked/DEBIAN/control"
    name=$(basename "$package")
    dpkg-deb --root-owner-group -b "$work/unpacked" "$newer/${name%%_*}_newer.deb" >/dev/null
done

# The packages' dependencies are fetched now, without installing them.
rm -rf "$work/base/tmp/debs" && mkdir "$work/base/tmp/debs" && cp "$debs"/*.deb "$work/base/tmp/debs"
cp /etc/resolv.conf "$work/base/etc/resolv.conf"
inside "$work/base" --net chroot "$work/base" sh -c '
    apt-get update -q && cd /tmp/debs &&
    apt-get install -y -q --download-only ./infcgi_*.deb ./infcgi-nginx_*.deb &&
    apt-get install -y -q --download-only --no-install-recommends ./infcgi_*.deb ./infcgi-nginx_*.deb ./infcgi-gpu_*.deb \
        apparmor apt-utils curl logrotate spawn-fcgi systemd-sysv dbus &&
    apt-get install -y -q --simulate ./infcgi*.deb' >"$work/fetch.log" 2>&1 || { tail -n 20 "$work/fetch.log" >&2; exit 1; }

passed=0
failed=0
try() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "  $name: passed"
    else
        failed=$((failed + 1))
        echo "  $name: failed"
        tail -n 40 "$work/$name.log"
    fi
}
fresh() { rm -rf "${work:?}/root" && cp -a "$work/base" "$work/root"; }

fresh
try autopkgtest inside "$work/root" autopkgtest --no-built-binaries "$debs"/infcgi_*.deb "$debs"/infcgi-nginx_*.deb "$debs"/infcgi-gpu_*.deb \
    "$tree" -- chroot "$work/root"

# A copy with the files for the page's test, and additional packages.
fresh_for_page() { # PACKAGE...
    fresh
    mkdir -p "$work/root/opt/smoke/tree/docs/ops" "$work/root/opt/smoke/tree/tests/golden/models"
    cp docs/ops/install.md "$work/root/opt/smoke/tree/docs/ops"
    cp tests/golden/models/llama-yarn.gguf "$work/root/opt/smoke/tree/tests/golden/models"
    cp nginx/debian/tests/smoke "$work/root/opt/smoke"
    inside "$work/root" chroot "$work/root" apt-get install -y -q --no-install-recommends "$@"
}

in_chroot() {
    fresh_for_page curl spawn-fcgi
    inside "$work/root" chroot "$work/root" sh -c 'cd /opt/smoke/tree && exec bash ../smoke /tmp/debs'
}
try install-page in_chroot

# The test is a service of a Debian that boots; the machine powers off when the test ends.
booted() { # COMMAND...: in /opt/smoke/tree
    local units=$work/root/etc/systemd/system
    fresh_for_page curl logrotate systemd-sysv dbus
    rm "$work/root/usr/sbin/policy-rc.d"
    cp tests/deb/lifecycle.sh "$work/root/opt/smoke"
    cp -r "$newer" "$work/root/opt/smoke/newer"
    mv "$work/root/tmp/debs" "$work/root/opt/smoke/debs"   # the service has its own /tmp
    printf '%s\n' '[Service]' Type=oneshot WorkingDirectory=/opt/smoke/tree StandardOutput=file:/opt/smoke/log StandardError=inherit \
        "ExecStart=/bin/bash $*" \
        "ExecStopPost=/bin/sh -c 'echo $\$EXIT_STATUS >/opt/smoke/status; systemctl --no-block poweroff'" >"$units/smoke.service"
    mkdir -p "$units/multi-user.target.wants"
    ln -s ../smoke.service "$units/multi-user.target.wants/smoke.service"
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout 600 systemd-nspawn --quiet --directory="$work/root" --private-network --register=no --keep-unit --boot </dev/null || true
    cat "$work/root/opt/smoke/log"
    [ "$(cat "$work/root/opt/smoke/status")" = 0 ]
}
if systemd-nspawn --quiet --directory="$work/base" --private-network --register=no --keep-unit --pipe true >"$work/nspawn.log" 2>&1; then
    try install-page-systemd booted ../smoke /opt/smoke/debs
    try lifecycle booted ../lifecycle.sh /opt/smoke/debs /opt/smoke/newer tests/golden/models/llama-yarn.gguf
else
    echo 'skip install-page-systemd lifecycle: systemd-nspawn cannot start a system on this machine:' "$(tail -n 1 "$work/nspawn.log")"
fi

rm -rf "${work:?}/root"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
