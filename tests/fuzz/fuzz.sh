#!/bin/bash
# Runs libFuzzer on one target, from its corpus and from what earlier runs here found: what `make fuzz` calls.
#   fuzz.sh TARGET SECONDS [libFuzzer options]
# An input that fails lies in build/fuzz/finds/TARGET/; once its cause is mended it goes into the corpus, named by it.
set -eu
cd "$(dirname "$0")/../.."
target=$1
seconds=$2
shift 2
found=build/fuzz/found/$target
finds=build/fuzz/finds/$target
mkdir -p "$found" "$finds"
[ ! -e "tests/fuzz/$target.dict" ] || set -- "-dict=tests/fuzz/$target.dict" "$@"
# An input that takes 20 s or 2 GiB is a find, too: the limits of what reads it are well below.
exec build/fuzz/fuzz "--target=$target" "-max_total_time=$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 \
    "-artifact_prefix=$finds/" -print_final_stats=1 "$@" "$found" "tests/fuzz/corpus/$target"
