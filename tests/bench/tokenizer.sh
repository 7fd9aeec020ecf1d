#!/bin/bash
# Speed of tokenizing, compared with llama.cpp b11434: one table for each model file.
#
#   bash tests/bench/tokenizer.sh MODEL.gguf...
#   PEER_SRC=folder PEER_BUILD=folder   llama.cpp's source and its static build, instead of fetching and building it once
#
# The texts are this repository's pages and sources, words of the vocabulary that are not ASCII, and runs of characters.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo 'usage: tests/bench/tokenizer.sh MODEL.gguf...' >&2; exit 64; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
[ -n "${PEER_SRC:-}" ] || peer=$(bash tests/bench/peer_lib.sh)
source=${PEER_SRC:-${peer:-}/source}
build=${PEER_BUILD:-${peer:-}/build}

make -s -j"$(nproc)" build/release/infcgi >&2
find docs -name '*.md' -print0 | sort -z | xargs -0 cat README.md CONTRIBUTING.md CHANGELOG.md LICENSE >"$work/english"
find engine fcgi tests -name '*.[ch]' ! -name '*_vectors.h' -print0 | sort -z | xargs -0 cat >"$work/code"
gcc -std=c17 -D_GNU_SOURCE -O2 -I. -c -o "$work/speed.o" tests/bench/tokenizer_speed.c
gcc -std=c17 -D_GNU_SOURCE -O2 -I"$source/include" -I"$source/ggml/include" -c -o "$work/peer.o" tests/bench/tokenizer_peer.c
# shellcheck disable=SC2046 # object files without spaces
gcc -o "$work/tokenizer_speed" "$work/speed.o" $(find build/release/engine -name '*.o') -ljansson -lpcre2-8 -lutf8proc -lpthread -lm
g++ -fopenmp -o "$work/tokenizer_peer" "$work/peer.o" "$build/src/libllama.a" "$build/ggml/src/libggml.a" \
    "$build/ggml/src/libggml-cpu.a" "$build/ggml/src/libggml-base.a" -lpthread -ldl -lm
for model in "$@"; do
    "$work/tokenizer_speed" "$model" "$work/english" "$work/code" "$work" >"$work/ours.tsv"
    "$work/tokenizer_peer" "$model" "$work" >"$work/peer.tsv"
    printf '\n%s\n\n| text | bytes | tokens | infcgi, MB/s | llama.cpp, MB/s | ratio | ids |\n|---|---:|---:|---:|---:|---:|---|\n' \
        "$(basename "$model")"
    paste "$work/ours.tsv" "$work/peer.tsv" |
        awk -F '\t' '{ printf "| %s | %d | %d | %.1f | %.2f | %.0f | %s |\n", $1, $2, $3, $4, $5, $4 / $5, $6 }'
done
