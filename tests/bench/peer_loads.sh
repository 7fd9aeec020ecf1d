#!/bin/bash
# Checks that files from `infcgi convert` load in llama.cpp b11434 and compute correctly: `make peer-loads`. Converts
# every SafeTensors folder of tests/golden/models, runs it in llama.cpp on the golden prompts and prints its largest
# error (tests/bench/peer_loads.c), next to that of the file from llama.cpp's own converter.
#
#   PEER_SRC=folder PEER_BUILD=folder   as for tests/bench/tokenizer.sh
#   MODELS=folder                       instead of tests/golden/models
#   ONLY='name...'                      instead of all folders
#
# Fails if llama.cpp's own file is much more accurate than ours, or loads and ours does not.
set -euo pipefail
cd "$(dirname "$0")/../.."
models=${MODELS:-tests/golden/models}
infcgi=build/${V:-release}/infcgi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
[ -n "${PEER_SRC:-}" ] || peer=$(bash tests/bench/peer_lib.sh)
source=${PEER_SRC:-${peer:-}/source}
build=${PEER_BUILD:-${peer:-}/build}
gcc -std=c17 -D_GNU_SOURCE -O2 -I"$source/include" -I"$source/ggml/include" -c -o "$work/peer.o" tests/bench/peer_loads.c
g++ -fopenmp -o "$work/peer_loads" "$work/peer.o" "$build/src/libllama.a" "$build/ggml/src/libggml.a" \
    "$build/ggml/src/libggml-cpu.a" "$build/ggml/src/libggml-base.a" -lpthread -ldl -lm

# llama.cpp loads no model without a tokenizer, and the folders have none: use the bytes, and `ab`.
python3 - >"$work/tokenizer.json" <<'EOF'
import json
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [b for b in range(256) if b not in plain]
vocab = {chr(b) if b in plain else chr(256 + others.index(b)): b for b in range(256)} | {"ab": 287}
added = [{"id": i, "content": f"<|{i}|>", "special": True} for i in range(256, 287)]
print(json.dumps({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                  "model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]}}))
EOF

# Prints the error, or why there is none. An assertion of llama.cpp ends the program.
run() { # MODEL EXPECT
    [ -f "$1" ] || { echo -; return; }
    GGML_NO_BACKTRACE=1 "$work/peer_loads" "$1" "$2" 2>"$work/said" ||
        { grep -m 1 -oE 'GGML_ASSERT.*|error loading model.*' "$work/said" || echo fails; } |
        sed 's/.*error loading model[^:]*: //; s/|/\\|/g'
}
is_number() { [[ $1 =~ ^[0-9.]+e[-+][0-9]+$ ]]; }

n_failed=0
printf '| folder | converted by infcgi | by llama.cpp | |\n|---|---|---|---|\n'
for folder in $(if [ -n "${ONLY:-}" ]; then printf "$models/%s.hf\n" $ONLY; else ls -d "$models"/*.hf; fi); do
    case $folder in *.draft.hf) continue ;; esac # a head, no model
    name=$(basename "$folder" .hf)
    rm -rf "$work/model"
    cp -r "$folder" "$work/model"
    cp "$work/tokenizer.json" "$work/model"
    "$infcgi" convert "$work/model" "$work/model.gguf" --force >/dev/null
    ours=$(run "$work/model.gguf" "$models/$name.expect.gguf" 2>/dev/null)
    theirs=$(run "$models/$name.gguf" "$models/$name.expect.gguf" 2>/dev/null)
    verdict=
    if is_number "$theirs" && { ! is_number "$ours" || awk "BEGIN { exit !($ours > 1.1 * $theirs + 1e-3) }"; }; then
        verdict=FAILED
        n_failed=$((n_failed + 1))
    fi
    printf '| %s | %s | %s | %s |\n' "$name" "$ours" "$theirs" "$verdict"
done
echo "$n_failed failed"
[ "$n_failed" -eq 0 ]
