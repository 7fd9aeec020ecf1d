#!/bin/bash
# Prints a line for each C file that clang-format would change. The version is Debian 12's: others format some lines differently,
# so with another one nothing is checked, and a line on standard error says so.
set -u
cd "$(dirname "$0")/../.." || exit 1
version=$(clang-format --version 2>/dev/null | grep -oE '[0-9]+' | head -n 1)
if [ "$version" != 14 ]; then
    echo "format.sh: expected clang-format 14, found ${version:-none}; the format is not checked" >&2
    exit 0
fi
{ git ls-files -co --exclude-standard engine fcgi opencl tests 2>/dev/null || find engine fcgi opencl tests -type f; } |
    grep '\.[ch]$' | xargs -n 40 -P 2 clang-format --dry-run 2>&1 |
    sed -nE 's/^([^:]+):([0-9]+):[0-9]+: warning: code should be clang-formatted.*/\1:\2: the form is not clang-format'"'"'s; run make format/p' |
    sort -t: -k1,1 -u
