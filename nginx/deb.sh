#!/bin/bash
# Builds the Debian packages: copies the tree's files, nginx/debian as debian/ and the chat page's libraries to
# FOLDER/infcgi-VERSION and runs dpkg-buildpackage there, without network. Leaves the packages in FOLDER.
#   deb.sh FOLDER PAGE   FOLDER: emptied first; PAGE: output of nginx/page.sh
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
out=$1
page=$2
if ! [ -e "$page/.ok" ]; then
    echo "error: deb: expected the chat page's libraries in $page/lib, which are not there: make page says why" >&2
    exit 1
fi
version=$(sed -nE '1s/^infcgi \((.+)-[^-]+\).*/\1/p' "$tree/nginx/debian/changelog")
source=$out/infcgi-$version
rm -rf "$out"
mkdir -p "$source"
# A tree without git is a release, in which only build/ is generated.
{ git -C "$tree" ls-files -z 2>/dev/null || (cd "$tree" && find . \( -name build -o -name .git \) -prune -o -type f -print0); } |
    tar -C "$tree" --null -T - -cf - | tar -C "$source" --no-same-owner -xf -
cp -r "$source/nginx/debian" "$source/debian"
mkdir -p "$source/debian/page"
cp -r "$page/lib" "$page/.ok" "$source/debian/page"
cd "$source"
# The package must not inherit flags and variables of an enclosing make.
env -u MAKEFLAGS -u MAKELEVEL -u V dpkg-buildpackage --build=binary --no-sign
