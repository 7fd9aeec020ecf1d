#!/bin/bash
# Writes the pages that tables of the program determine: the table in ops/options.md, the man page, completion for bash, openapi.yaml
# and openapi.json. Draws speed.svg from benchmarks/peer.csv, and writes the table of models.md from known-models.csv.
#   make.sh PROGRAM [FOLDER]   PROGRAM: infcgi; FOLDER: where to write, instead of this one
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=$1
to=${2:-$here}
mkdir -p "$to/ops" "$to/man"
"$program" help --format man >"$to/man/infcgi.1"
"$program" help --format bash >"$to/man/infcgi.bash"
table=$("$program" help --format md)
page=$(awk -v table="${table//\\/\\\\}" '
    /^<!-- made by `make docs`: end/ { inside = 0 }
    !inside
    /^<!-- made by `make docs`: begin/ { inside = 1; print table }' "$here/ops/options.md")
printf '%s\n' "$page" >"$to/ops/options.md"
/usr/bin/python3 "$here/chart.py" "$here/benchmarks/peer.csv" "$to/speed.svg"
page=$(/usr/bin/python3 "$here/known_models.py" "$here/known-models.csv" "$here/models.md")
printf '%s\n' "$page" >"$to/models.md"
/usr/bin/python3 "$here/openapi.py" "$program" "$to"
