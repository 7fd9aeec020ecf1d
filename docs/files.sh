#!/bin/bash
# Prints the sources of a folder: one line for each, with the first sentence of its header, or of the .c if it has no header.
#   files.sh FOLDER    for example: docs/files.sh engine/kv
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
folder=${1:?expected a folder of sources, for example engine/kv}
folder=${folder%/}
[ -d "$folder" ] || { echo "files.sh: expected a folder of sources, found $folder" >&2; exit 1; }

for stem in $(find "$folder" -maxdepth 1 -type f | grep -E '\.([ch]|clh?)$' | sed -E 's|.*/||; s/\.[ch]$//' | sort -u); do
    file=$folder/$stem.h
    [ -f "$file" ] || file=$folder/$stem.c
    [ -f "$file" ] || file=$folder/$stem # OpenCL C keeps its ending
    awk -v stem="$stem" 'BEGIN { RS = "\\*/" }
        NR == 1 && /^[ \n]*\/\*/ {
            sub(/^[ \n]*\/\* */, ""); gsub(/\n \* ?/, " "); gsub(/[ \n]+/, " "); sub(/ $/, "")
            if (match($0, /[a-z0-9)`"\]]\. /)) $0 = substr($0, 1, RSTART)
            sub(/\.$/, ""); printf "%-24s %s\n", stem, $0
        }' "$file"
done
