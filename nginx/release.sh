#!/bin/bash
# Sets the version in the tree, dates the changelogs, renews what is generated from the version, and builds the packages.
# docs/howto/release.md has the steps before and after.
#   release.sh VERSION   for example 0.2.0: above the version of fcgi/wire/server.h, or that version while CHANGELOG.md gives it no date
# The tree must be clean. Nothing is committed; after an error, `git checkout .` undoes the edits.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-}
fail() {
    echo "error: release: $1" >&2
    exit "${2:-1}"
}

[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || fail "expected VERSION=x.y.z, found '$version'" 64
[ -z "$(git status --porcelain)" ] || fail 'expected a clean tree, found changes; commit them (git status lists them)'
current=$(sed -nE 's/^#define SERVER_VERSION "(.*)"/\1/p' fcgi/wire/server.h)
[ "$(grep -cx '## Unreleased' CHANGELOG.md)" = 1 ] || fail "CHANGELOG.md: expected one line '## Unreleased'"
unreleased=$(awk '/^## / { inside = $0 == "## Unreleased"; next } inside && NF' CHANGELOG.md)
lower=$(printf '%s\n' "$version" "$current" | sort -V | head -n 1)
if [ "$version" = "$current" ]; then
    grep -qxF "## $version" CHANGELOG.md || fail "expected a version above $current, which is released, found $version"
    [ -z "$unreleased" ] || fail "CHANGELOG.md: expected nothing under Unreleased, found lines; move them to $version"
elif [ "$lower" = "$version" ]; then
    fail "expected a version above $current, found $version"
fi

edit() { # FILE COMMAND...: the command's output becomes the file's text
    local file=$1 text
    shift
    text=$("$@" "$file" && echo .) || fail "$file: the edit failed"
    printf '%s' "${text%.}" >"$file"
}
day=$(date -u +%Y-%m-%d)
if [ "$version" = "$current" ]; then
    edit CHANGELOG.md sed "s/^## $version\$/## $version ($day)/"
else
    edit CHANGELOG.md sed "s/^## Unreleased\$/## Unreleased\n\n## $version ($day)/"
fi
edit fcgi/wire/server.h sed -E "s/^(#define SERVER_VERSION )\".*\"/\1\"$version\"/"
edit docs/openapi.yaml sed -E "0,/^  version: .*/s//  version: $version/"
# One entry per version of the package. Its date becomes the date of every file in the packages.
entry() {
    printf 'infcgi (%s-1) unstable; urgency=medium\n\n  * What changed is in CHANGELOG.md.\n\n -- %s  %s\n' "$version" \
        "$(sed -n 's/^Maintainer: //p' nginx/debian/control)" "$(LC_ALL=C date -u -R)"
    awk -v same="infcgi ($version-1)" '/^infcgi / { skip = index($0, same) == 1 } !skip && !begun { print ""; begun = 1 } !skip' "$1"
}
edit nginx/debian/changelog entry

make -s -j"$(nproc)" docs
make -s lint
make deb
cat <<TEXT
infcgi $version is built. Next: git commit -am 'release: $version' && git tag -a v$version -m 'infcgi $version'
TEXT
