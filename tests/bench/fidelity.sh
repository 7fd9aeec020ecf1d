#!/bin/bash
# Fidelity per weight type, next to llama.cpp b11434: copies of a model in other types, each compared with transformers
# in float32 on the copy's dequantized weights (tests/golden/fidelity.py). Prints a table.
#
#   PEER_SRC=folder PEER_BUILD=folder bash tests/bench/fidelity.sh MODEL.gguf [TYPE...]
#   PEER_SRC, PEER_BUILD   llama.cpp's source and its static build with llama-quantize, as for tests/bench/tokenizer.sh
#   PYTHON=program         with tests/golden/requirements.txt; default build/venv-golden/bin/python, from `make fidelity`
#   THREADS=1              of all programs
#   COPIES=folder          of the copies, which are written if missing
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo 'usage: tests/bench/fidelity.sh MODEL.gguf [TYPE...]' >&2; exit 64; }
model=$1
shift
[ $# -gt 0 ] || set -- Q4_0 Q4_1 Q5_0 Q5_K Q6_K Q8_0 IQ4_XS
python=${PYTHON:-build/venv-golden/bin/python}
threads=${THREADS:-1}
copies=${COPIES:-${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/copies}
source=${PEER_SRC:?the source of llama.cpp}
build=${PEER_BUILD:?the build of llama.cpp}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
make -s build/release/infcgi build/release/fidelity >&2
gcc -std=c17 -D_GNU_SOURCE -O2 -I"$source/include" -I"$source/ggml/include" -c -o "$work/peer.o" tests/bench/fidelity_peer.c
g++ -fopenmp -o "$work/fidelity_peer" "$work/peer.o" "$build/src/libllama.a" "$build/ggml/src/libggml.a" \
    "$build/ggml/src/libggml-cpu.a" "$build/ggml/src/libggml-base.a" -lpthread -ldl -lm

figures() { sed -nE 's/.*mean KL ([^,]+), same arg-max ([0-9.]+ %)$/\1 | \2/p'; }
printf '| %s | infcgi, mean KL | same arg-max | --high-precision, mean KL | same arg-max | llama.cpp, mean KL | same arg-max |\n' \
    "$(basename "$model" .gguf)"
echo '|---|---:|---:|---:|---:|---:|---:|'
mkdir -p "$copies"
for type in "$@"; do
    copy=$copies/$(basename "$model" .gguf)-$type.gguf
    if [ ! -f "$copy" ]; then
        "$build/bin/llama-quantize" --allow-requantize "$model" "$copy.part" "$type" "$threads" >"$copy.log" 2>&1 ||
            { tail -n 5 "$copy.log" >&2; exit 1; }
        mv "$copy.part" "$copy"
    fi
    OMP_NUM_THREADS=$threads "$python" tests/golden/fidelity.py "$copy" "$work/reference" >&2
    ours=$(build/release/fidelity "$copy" "$work/reference" --threads "$threads" | figures)
    high=$(build/release/fidelity "$copy" "$work/reference" --threads "$threads" --high-precision | figures)
    peer=$("$work/fidelity_peer" "$copy" "$work/reference" "$threads" | figures)
    printf '| %s | %s | %s | %s |\n' "$type" "$ours" "$high" "$peer"
    rm "$work/reference"
done
