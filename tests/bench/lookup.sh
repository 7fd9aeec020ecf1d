#!/bin/bash
# Measures drafts by prompt lookup (docs/internals/scheduler.md): decodes with and without them, alternately, for a
# requested edit, for the same edit begun in the text (small models do not follow the request, but continue a copy), for
# greedy free text, and for sampled free text. Exits with 1 if the answers differ.
#
#   MODEL=path     a GGUF file; required
#   ROUNDS=5       rounds; prints the median of each side and the spread
#   THREADS=2
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${MODEL:?set MODEL to a GGUF file}"
infcgi=build/${V:-release}/infcgi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

edit='Copy this Python file. Rename the variable best to top everywhere and change nothing else.

def load_orders(path, limit):
    orders = []
    with open(path) as f:
        for line in f:
            parts = line.strip().split(",")
            if len(parts) < 4:
                continue
            order = {"id": parts[0], "name": parts[1], "price": float(parts[2]), "count": int(parts[3])}
            orders.append(order)
            if len(orders) >= limit:
                break
    return orders


def total_price(orders):
    total = 0.0
    for order in orders:
        total += order["price"] * order["count"]
    return total


def most_expensive(orders):
    best = None
    for order in orders:
        if best is None or order["price"] > best["price"]:
            best = order
    return best


def print_report(orders):
    print("number of orders:", len(orders))
    print("total price:", total_price(orders))
    best = most_expensive(orders)
    if best is not None:
        print("most expensive:", best["name"], best["price"])'
begun="${edit#*$'\n\n'}"$'\n\n# The same file. The variable best is now called top, nothing else has changed.\n\n'
begun+=$'def load_orders(path, limit):\n    orders = []\n'
story='Tell me what happened to you on the strangest day of last summer.'

# Prints the tokens per second after the first token; writes the text to FILE.
decode() { # FILE MODE OPTIONS...
    local file=$1 mode=$2
    shift 2
    "$infcgi" generate --model "$MODEL" --threads "${THREADS:-2}" --seed 7 --speculate "$mode" "$@" \
        >"$file" 2>"$work/said"
    sed -nE 's/.* then ([0-9.]+) tokens\/s.*/\1/p' "$work/said"
}

measure() { # NAME OPTIONS...
    local name=$1 round
    shift
    : >"$work/off" && : >"$work/auto"
    for ((round = 0; round < ${ROUNDS:-5}; round++)); do
        decode "$work/text-off" off "$@" >>"$work/off"
        decode "$work/text-auto" auto "$@" >>"$work/auto"
        cmp "$work/text-off" "$work/text-auto" || exit 1
    done
    paste "$work/off" "$work/auto" | awk -v name="$name" -v came="$(sed -nE 's/.*; ([0-9]+ of [0-9]+) drafted.*/\1/p' "$work/said")" '
        function median(v, n) { return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
        function sort(v, n,    i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        }
        { off[NR] = $1; auto[NR] = $2; ratio[NR] = $2 / $1 }
        END {
            sort(off, NR); sort(auto, NR); sort(ratio, NR)
            printf "| %s | %.1f | %.1f | %.2f | %.2f to %.2f | %s |\n", name, median(off, NR), median(auto, NR), \
                median(ratio, NR), ratio[1], ratio[NR], came
        }'
}

echo "| text | tokens/s, off | auto | ratio, median | least to most | guesses that came true |"
echo "|---|---|---|---|---|---|"
measure "edit" --chat --temp 0 --n-predict 300 --prompt "$edit"
measure "edit, begun" --temp 0 --n-predict 260 --prompt "$begun"
measure "free, greedy" --chat --temp 0 --n-predict 256 --prompt "$story"
measure "free, temperature 1" --chat --temp 1 --n-predict 256 --prompt "$story"
