#!/bin/bash
# Streams over HTTP: infcgi behind nginx and llama-server, alternately: `make bench-http`. See docs/benchmarks.md.
#
#   MODEL=file     the model of both (default: that of nginx/fetch-model.sh)
#   PEER_BIN=dir   a folder with llama-server; without it only infcgi is measured
#   TESTS='...'    STREAMSxWORDSxTOKENS, separated by commas
#   ROUNDS=5       rounds; in each, either server runs each test once
#   THREADS=2      threads of both
#   PARALLEL=16    parallel sequences of both
#   CONTEXT=2048   tokens per sequence, of both
#   ARGS='...'     further options of infcgi serve
#   SCHEMA=1       runs each test also with answers constrained by a JSON Schema
#   PEER_ARGS='..' further options of llama-server
#   OUT=file CSV=file   the table, and every row
set -euo pipefail
cd "$(dirname "$0")/../.."
threads=${THREADS:-2}
parallel=${PARALLEL:-16}
context=${CONTEXT:-2048}
infcgi=build/${V:-release}/infcgi
model=${MODEL:-$(bash nginx/fetch-model.sh)}
[ -x "$infcgi" ] || { echo "error: $infcgi is not built; run make" >&2; exit 66; }
[ -f "$model" ] || { echo "error: $model is not there" >&2; exit 66; }
if [ -n "${PEER_BIN:-}" ] && [ ! -x "$PEER_BIN/llama-server" ]; then
    echo "error: $PEER_BIN/llama-server is not there" >&2
    exit 66
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/infcgi-http.XXXXXX")
started=()
# shellcheck disable=SC2317 # called by a trap
stop_all() {
    for pid in "${started[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$tmp"
}
trap stop_all EXIT
trap 'exit 130' INT TERM HUP

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_for() { # NAME PID URL LOG
    for _ in $(seq 3000); do # 5 minutes
        kill -0 "$2" 2>/dev/null || { tail -n 20 "$4" >&2; echo "error: $1 ended before it was ready" >&2; exit 1; }
        [ "$(curl -s -m 5 -o "$tmp/answer" -w '%{http_code}' "$3/health")" != 200 ] || return 0
        sleep 0.1
    done
    echo "error: $1 is not ready after 5 minutes" >&2
    exit 1
}

describe() { python3 -c 'import sys; sys.path.insert(0, "tests/bench"); import machine; print(getattr(machine, sys.argv[1])(sys.argv[2]))' "$@"; }

port=$(free_port)
# shellcheck disable=SC2086 # lists of options
V=${V:-release} MODEL=$model PORT=$port bash nginx/run.sh --threads "$threads" --parallel "$parallel" --ctx-size "$context" \
    --kv-tokens "$((parallel * context))" ${ARGS:-} >"$tmp/infcgi.log" 2>&1 &
started+=($!)
wait_for infcgi $! "http://127.0.0.1:$port" "$tmp/infcgi.log"
servers=("infcgi=http://127.0.0.1:$port")
about=(--about "$(describe our_version "$infcgi"), behind nginx, --threads $threads --parallel $parallel --ctx-size $context ${ARGS:-}")

if [ -n "${PEER_BIN:-}" ]; then
    port=$(free_port)
    # shellcheck disable=SC2086 # lists of options
    "$PEER_BIN/llama-server" -m "$model" -t "$threads" -tb "$threads" -np "$parallel" -c "$((parallel * context))" \
        --host 127.0.0.1 --port "$port" ${PEER_ARGS:-} >"$tmp/peer.log" 2>&1 &
    started+=($!)
    wait_for llama-server $! "http://127.0.0.1:$port" "$tmp/peer.log"
    servers+=("llama.cpp=http://127.0.0.1:$port")
    about+=(--about "$(describe peer_version "$PEER_BIN"), llama-server -t $threads -np $parallel -c $((parallel * context)) ${PEER_ARGS:-}")
fi

python3 tests/bench/http_load.py --rounds "${ROUNDS:-5}" ${TESTS:+--tests "$TESTS"} ${OUT:+--out "$OUT"} ${CSV:+--csv "$CSV"} ${SCHEMA:+--schema} \
    "${about[@]}" "${servers[@]}"
