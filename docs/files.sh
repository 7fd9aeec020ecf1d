#!/bin/bash
# Writes the lists of files in docs/internals: between `<!-- files FOLDER -->` and `<!-- /files -->` a row for each source of
# the folder with the first sentence of its header, or of the .c where there is none.
#   files.sh            renews the lists
#   files.sh --check    prints a line for each page that is stale and each folder that no page lists; changes nothing
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
check=${1:-}

# The first sentence of the comment that a file begins with.
sentence() {
    awk 'BEGIN { RS = "\\*/" }
         NR == 1 && /^[ \n]*\/\*/ {
             sub(/^[ \n]*\/\* */, ""); gsub(/\n \* ?/, " "); gsub(/[ \n]+/, " "); sub(/ $/, "")
             if (match($0, /[a-z0-9)`"\]]\. /)) $0 = substr($0, 1, RSTART)
             sub(/\.$/, ""); gsub(/\|/, "\\|"); print
         }' "$1"
}

sources() { { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find "$@" -type f; } | grep -E '\.([ch]|clh?)$'; }

table() { # FOLDER
    local stem file
    printf '| file | what |\n|---|---|\n'
    for stem in $(sources "$1" | grep -E "^$1/[^/]+\$" | sed -E 's|.*/||; s/\.[ch]$//' | sort -u); do
        file=$1/$stem.h
        [ -f "$file" ] || file=$1/$stem.c
        [ -f "$file" ] || file=$1/$stem # OpenCL C keeps its ending
        printf '| `%s` | %s |\n' "$stem" "$(sentence "$file")"
    done
}

listed=
for page in docs/internals/*.md; do
    new=$(while IFS= read -r line; do
        [[ $line == '<!-- /files -->' ]] && inside=
        [ -n "${inside:-}" ] || printf '%s\n' "$line"
        if [[ $line =~ ^'<!-- files '([a-z0-9/_]+)' -->'$ ]]; then
            table "${BASH_REMATCH[1]}"
            inside=1
        fi
    done <"$page")
    listed+=" $(sed -nE 's/^<!-- files ([a-z0-9/_]+) -->$/\1/p' "$page" | tr '\n' ' ')"
    [ "$new" = "$(cat "$page")" ] && continue
    if [ -n "$check" ]; then
        echo "$page:1: the list of files is stale; run make docs"
    else
        printf '%s\n' "$new" >"$page"
    fi
done
for folder in $(sources engine fcgi opencl | sed 's|/[^/]*$||' | sort -u); do
    [[ " $listed " == *" $folder "* ]] || echo "docs/internals:1: no page lists the files of $folder"
done
exit 0
