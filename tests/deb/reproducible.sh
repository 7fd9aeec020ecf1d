#!/bin/bash
# Builds the Debian packages again, in another folder, time zone and language, with other permissions and without a
# compiler's cache, and compares them with the existing ones, byte for byte. Last line: N passed, N failed.
#   reproducible.sh DEBS PAGE   DEBS: output of nginx/deb.sh; PAGE: output of nginx/page.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
debs=$1
page=$2
again=build/deb-again/in/another/place
mkdir -p "$(dirname $again)"
(
    umask 077
    export CCACHE_DISABLE=1 TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 USER=somebody
    bash nginx/deb.sh "$again" "$page"
) >build/deb-again.log 2>&1 || { tail -n 20 build/deb-again.log >&2; exit 1; }

passed=0
failed=0
for deb in "$debs"/*.deb; do
    if cmp "$deb" "$again/${deb##*/}"; then
        passed=$((passed + 1))
        sha256sum "$deb"
    else
        failed=$((failed + 1))
    fi
done
[ $failed = 0 ] && rm -rf build/deb-again
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -ge 4 ]
