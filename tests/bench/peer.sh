#!/bin/bash
# Speed of infcgi and other programs on this machine: `make bench-peer`. docs/benchmarks.md describes the measurements.
#
#   PEERS='...'    programs to compare with: llama.cpp ik_llama.cpp openvino (default: llama.cpp)
#   MODELS='...'   names (smollm2 gemma3 qwen; default: all three), shapes with random weights (synth:qwen3-30b-a3b, of
#                  tests/bench/synth.py; synth:llama-8b:8 has 8 layers), or paths of GGUF files
#   TYPES='...'    copies in these types, instead of the models' own (Q4_0 Q5_0 Q5_K Q6_K Q8_0 IQ4_XS; or: all)
#   ONLY='...'     only these groups of tests: shallow deep q8_0 streams start
#   ROUNDS=5       rounds; in each, every program runs each test once
#   THREADS=2      threads of all
#   PEER_BIN=dir   a folder with llama.cpp's programs, instead of building them; dir:dir: the second if the first crashes
#   IK_BIN=dir     the same of ik_llama.cpp; IK_SRC=dir: its sources, instead of cloning them
#   OV_BIN=dir     a folder with a python3 that has OpenVINO GenAI
#   OUT=file       also writes the result there
#   CSV=file       adds the result to this file, in the form of docs/benchmarks/peer.csv; MACHINE=name is its first column
#   SETTINGS=file  the peers' best settings; if missing, they are measured and written
set -euo pipefail
cd "$(dirname "$0")/../.."
infcgi=build/${V:-release}/infcgi
if ! make -q --no-print-directory V="${V:-release}" "$infcgi" "build/${V:-release}/checkkern"; then
    echo "error: $infcgi and checkkern are older than their sources: make bench-peer builds them first" >&2
    exit 66
fi

types=${TYPES:-}
[ "$types" != all ] || types='Q4_0 Q5_0 Q5_K Q6_K Q8_0 IQ4_XS'
only=${ONLY:-}
[ -z "$types" ] || only=${only:-shallow}
default='smollm2 gemma3 qwen'
[ -z "$types" ] || default='smollm2 qwen'

quantize() { # OPTION...: llama.cpp's, of the caller's first folder or of the cache
    local folder=${PEER_BIN:-$(bash tests/bench/peer_build.sh llama.cpp)}
    "${folder%%:*}/llama-quantize" "$@"
}

models=()
for m in ${MODELS:-$default}; do
    case $m in
    synth:*) file=$(bash tests/bench/models.sh "$m") ;;
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
            quantize --allow-requantize "$file" "$copy.part" "$t" "$(nproc)" >"$copy.log" 2>&1 ||
                { tail -n 5 "$copy.log" >&2; exit 1; }
            mv "$copy.part" "$copy"
        fi
        models+=("$copy")
    done
done

command='make bench-peer'
for name in PEERS MODELS TYPES ONLY ROUNDS THREADS PEER_BIN IK_BIN IK_SRC OV_BIN SETTINGS; do
    [ -z "${!name:-}" ] || command+=" $name='$(for w in ${!name}; do basename "$w"; done | xargs)'"
done
exec python3 tests/bench/peer.py --infcgi "$infcgi" --checkkern "build/${V:-release}/checkkern" --peers "${PEERS:-}" \
    --rounds "${ROUNDS:-5}" --threads "${THREADS:-2}" --only "$only" --out "${OUT:-}" --csv "${CSV:-}" --machine "${MACHINE:-}" \
    --settings "${SETTINGS:-}" --command "$command" "${models[@]}"
