#!/bin/bash
# Makes releases in copies of the tree, with a `make` that only records its targets, and checks the changes. Last line:
# N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/tree
passed=0
failed=0
check() { # NAME COMMAND...: the command succeeds
    local name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "release: $name"
        tail -n 3 "$work/said"
    fi
}
mkdir "$work/bin"
printf '#!/bin/sh\necho "$@" >>"%s/made"\n' "$work" >"$work/bin/make"
chmod +x "$work/bin/make"
files='fcgi/wire/server.h docs/openapi.yaml nginx/release.sh nginx/debian/control nginx/debian/changelog'

tree() { # CHANGELOG VERSION: a clean tree of that version
    local file
    rm -rf "$copy" "$work/made"
    for file in $files; do install -D "$file" "$copy/$file"; done
    printf '%b' "$1" >"$copy/CHANGELOG.md"
    sed -i "s/^#define SERVER_VERSION .*/#define SERVER_VERSION \"$2\"/" "$copy/fcgi/wire/server.h"
    printf 'infcgi (%s-1) unstable; urgency=medium\n\n  * Older.\n\n -- M <m@x>  Wed, 25 Nov 2026 12:00:00 +0000\n' "$2" \
        >"$copy/nginx/debian/changelog"
    git -C "$copy" init -q && git -C "$copy" add -A && git -C "$copy" -c user.name=t -c user.email=t@x commit -qm t
}
release() { (PATH=$work/bin:$PATH && bash "$copy/nginx/release.sh" "$@"); }
refuses() { # PATTERN VERSION: the script fails with that message and changes nothing
    if release "$2" 2>"$work/error"; then return 1; fi
    cat "$work/error"
    grep -q "$1" "$work/error" && [ -z "$(git -C "$copy" status --porcelain)" ] && ! [ -e "$work/made" ]
}
has() { grep -qE "$1" "$copy/$2"; }
text_is() { [ "$(cat "$copy/CHANGELOG.md")" = "$(printf '%b' "$1")" ] || { cat "$copy/CHANGELOG.md"; return 1; }; }
day=$(date -u +%Y-%m-%d)

tree '# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.9.0 (2026-01-01)\n\n- Old.\n' 1.9.0
check 'a version is released' release 1.10.0
check 'the changelog has it' text_is "# Changelog\n\n## Unreleased\n\n## 1.10.0 ($day)\n\n- New.\n\n## 1.9.0 (2026-01-01)\n\n- Old.\n"
check 'the program has it' has '^#define SERVER_VERSION "1\.10\.0"' fcgi/wire/server.h
check 'the OpenAPI document has it' has '^  version: 1\.10\.0$' docs/openapi.yaml
check 'the package has it, and the one before' test "$(grep -c '^infcgi (1\.\(10\|9\)\.0-1)' "$copy/nginx/debian/changelog")" = 2
! command -v dpkg-parsechangelog >/dev/null || check 'Debian reads the changelog' test "$(dpkg-parsechangelog -l "$copy/nginx/debian/changelog" -S Version 2>&1)" = 1.10.0-1
check 'nothing else changed' test "$(git -C "$copy" status --porcelain | wc -l)" = 4
check 'packages are built last' test "$(tail -n 1 "$work/made")" = deb

tree '## Unreleased\n\n## 0.1.0\n\n- All.\n' 0.1.0
check 'a version without a date is released' release 0.1.0
check 'it gets its date' text_is "## Unreleased\n\n## 0.1.0 ($day)\n\n- All.\n"
check 'its package gets the date of today' has " $(LC_ALL=C date -u '+%d %b %Y') " nginx/debian/changelog
check 'and one entry' test "$(grep -c '^infcgi (' "$copy/nginx/debian/changelog")" = 1

tree '## Unreleased\n\n- New.\n\n## 0.1.0\n' 0.1.0
check 'lines under Unreleased are not lost' refuses 'expected nothing under Unreleased' 0.1.0
tree '## Unreleased\n\n## 0.1.0 (2026-01-01)\n' 0.1.0
check 'no version twice' refuses 'expected a version above 0.1.0, which is released' 0.1.0
check 'no lower version' refuses 'expected a version above 0.1.0, found 0.0.9' 0.0.9
check 'no version' refuses 'expected VERSION=x.y.z' ''
check 'no word' refuses 'expected VERSION=x.y.z' '1.0.0;x'
tree '# Changelog\n\n## 0.1.0\n' 0.1.0
check 'Unreleased is missing' refuses "expected one line '## Unreleased'" 0.2.0
tree '## Unreleased\n' 0.1.0
echo '/* change */' >>"$copy/fcgi/wire/server.h"
check 'no changed tree' test "$(release 0.2.0 2>&1 | grep -c 'expected a clean tree')" = 1

echo "$passed passed, $failed failed"
[ $failed = 0 ]
