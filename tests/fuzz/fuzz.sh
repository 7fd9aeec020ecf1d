#!/bin/bash
# Runs libFuzzer on one target, from its corpus and from the finds of earlier runs on this machine: for `make fuzz`.
#   fuzz.sh TARGET SECONDS [libFuzzer options]
# Failing inputs are in build/fuzz/finds/TARGET/. After the fix an input moves to the corpus, named after its cause.
set -eu
cd "$(dirname "$0")/../.."
target=$1
seconds=$2
shift 2
found=build/fuzz/found/$target
finds=build/fuzz/finds/$target
mkdir -p "$found" "$finds"
[ ! -e "tests/fuzz/$target.dict" ] || set -- "-dict=tests/fuzz/$target.dict" "$@"
# An input that takes 20 s or 2 GiB is a find too: the limits of the readers are well below.
exec build/fuzz/fuzz "--target=$target" "-max_total_time=$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 \
    "-artifact_prefix=$finds/" -print_final_stats=1 "$@" "$found" "tests/fuzz/corpus/$target"
