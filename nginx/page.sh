#!/bin/bash
# Lays out the chat page as nginx serves it into FOLDER: links to html/, and lib/ with the two libraries that render
# Markdown and their licences. The libraries come from npm by version and SHA-512. If they are not available, a message
# says so and the page shows plain text.
#   page.sh FOLDER
# Writes FOLDER/.ok if everything is there. Exit status 0 in both cases.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
# name|version|chosen licence|SHA-512 of the package|module in it|name here. To update one: docs/adr/0009-markdown.md.
libraries='
marked|18.2.1|MIT|8a2e1bc424c2aaac294fce9765680936cf999c021992c98b19831589603b3c321760878da35c7a703757dc93a2a7d34cfdc23aa7ccf9ec5c6588009ba13aee30|lib/marked.esm.js|marked.js
dompurify|3.4.18|Apache-2.0|a1f7b7c08fee366ebc1c89c005814962a431470d4468a02335dac554aaa3518f9466eaef35dd8bfc7b907b4f7bb3fe118af5a26723fab53edaa13f1ab637e1c2|dist/purify.es.mjs|purify.js
'

part=$(mktemp -d "${TMPDIR:-/tmp}/infcgi-page.XXXXXX")
trap 'rm -rf "$part"' EXIT
mkdir "$part/lib"

# Puts one library into $part/lib, or sets $why.
fetch() {
    local name=$1 version=$2 licence=$3 sum=$4 module=$5 to=$6 package=$part/$1-$2.tgz
    command -v npm >/dev/null || { why='npm is not installed'; return 1; }
    (cd "$part" && npm pack --silent --ignore-scripts --fetch-retries=1 --fetch-timeout=20000 "$name@$version") >"$part/log" 2>&1 ||
        { why="npm cannot fetch $name $version: $(grep -v '^$' "$part/log" | head -n 1)"; return 1; }
    [ "$(sha512sum <"$package")" = "$sum  -" ] || { why="$name $version has another SHA-512 than $sum"; return 1; }
    if ! { mkdir "$part/$name" && tar -xzf "$package" -C "$part/$name" --strip-components=1 --no-same-owner &&
        cp "$part/$name/$module" "$part/lib/$to"; }; then
        why="$name $version cannot be unpacked"
        return 1
    fi
    { printf '%s %s, as distributed under %s; its file LICENSE:\n\n' "$name" "$version" "$licence"; cat "$part/$name/LICENSE"; printf '\n\n'; } >>"$part/lib/licenses.txt"
}

mkdir -p "$out"
find "$out" -mindepth 1 -maxdepth 1 ! -name lib -exec rm -rf {} +
ln -s -r "$here"/html/* "$out"
why=
while IFS='|' read -r name version licence sum module to; do
    [ -z "$name" ] || fetch "$name" "$version" "$licence" "$sum" "$module" "$to" </dev/null || break
done <<<"$libraries"
rm -rf "${out:?}/lib"
if [ -n "$why" ]; then
    echo "note: the chat page shows plain text, no Markdown: $why" >&2
    exit 0
fi
chmod 644 "$part"/lib/*
cp -r "$part/lib" "$out/lib"
touch "$out/.ok"
