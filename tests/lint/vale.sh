#!/bin/bash
# Checks the words and the length of sentences of pages and headers with Vale. Silent if there are no findings.
#   vale.sh [FILE...]    default: all pages, and the headers of engine, fcgi and opencl
# The words are those of tests/lint/words. tests/lint/vale-exceptions lists findings that stay, one `file: text` per line.
# Vale comes from Go's module proxy: go install; it is built once, in build/vale.
set -eu
cd "$(dirname "$0")/../.."
version=v3.21.0
out=build/vale
vale=$out/bin/vale
if [ ! -x $vale ]; then
    command -v go >/dev/null || { echo "vale.sh: expected go (Debian: golang-go), found none" >&2; exit 69; }
    mkdir -p $out/bin
    echo "  GO vale $version" >&2
    GOBIN="$PWD/$out/bin" go install "github.com/vale-cli/vale/v3/cmd/vale@$version"
fi
rules=$out/styles/infcgi
mkdir -p $rules
cat >$out/.vale.ini <<END
StylesPath = styles
MinAlertLevel = warning
[formats]
h = c
[*.{md,c,h}]
BasedOnStyles = infcgi
END
cat >$rules/Length.yml <<'END'
extends: occurrence
message: a sentence of more than 30 words
level: warning
scope: sentence
max: 30
token: '\b[\w''-]+\b'
END
{
    printf 'extends: existence\nmessage: "not a word of ours: %%s (tests/lint/words)"\nlevel: warning\nignorecase: true\ntokens:\n'
    grep -vE '^(#|-)' tests/lint/words | cut -f1 | sed "s/'/''/g; s/^/  - '/; s/\$/'/"
} >$rules/Words.yml
if [ $# = 0 ]; then
    mapfile -t files < <(git ls-files '*.md' 'engine/*.h' 'fcgi/*.h' 'opencl/*.h')
    set -- "${files[@]}"
fi
# A finding is known by its file and the text of its line, because the number of a line changes.
findings=$($vale --config $out/.vale.ini --output line "$@" | while IFS=: read -r file line _ _ text; do
    printf '%s:%s: %s\t%s\n' "$file" "$line" "$text" "$(sed -n "${line}p" "$file")"
done | awk -F'\t' '
    NR == FNR { if ($0 !~ /^#/) known[$0] = 1; next }
    { file = $1; sub(/:.*/, "", file); text = $2; sub(/^[^:]*:[^:]*: /, "", text) }
    !((file ": " text) in known) { print $1 }' tests/lint/vale-exceptions -)
[ -z "$findings" ] || { printf '%s\n' "$findings"; exit 1; }
