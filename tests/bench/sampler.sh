#!/bin/bash
# Measures the time of sampling a token, in ms of one thread: each sampler by kind of row.
#
#   bash tests/bench/sampler.sh [ENTRIES]     entries of the vocabulary; default 262144 (Gemma's)
set -euo pipefail
cd "$(dirname "$0")/../.."
make -s -j"$(nproc)" build/release/infcgi >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -std=c17 -D_GNU_SOURCE -O2 -I. -c -o "$work/speed.o" tests/bench/sampler_speed.c
# shellcheck disable=SC2046 # object files without spaces
gcc -o "$work/sampler_speed" "$work/speed.o" $(find build/release/engine -name '*.o') -ljansson -lpcre2-8 -lutf8proc -lpthread -lm
"$work/sampler_speed" "$@"
