#!/bin/bash
# Runs the list of test runners below, one line each, and prints the sum as the last line: `N passed, N failed`.
# Each runner's own last count line has that form. A runner that dies, prints no count or runs nothing counts as a failure.
# A line `skip TEST: WHY` says that a test says nothing here, as figures of the release build do not under ASan.
#   run.sh [NAME...]   only those; the logs lie in build/test/
set -u
cd "$(dirname "$0")/.." || exit 1

# name|command. To add a runner, add a line.
runners='
lint|bash tests/lint/lint.sh && echo "1 passed, 0 failed"
lint-bites|bash tests/lint/lint_test.sh
unit|build/release/unittests
kernels|build/release/checkkern
kernels-arm|bash tests/kernels/qemu_arm.sh
golden|build/release/golden
same-bytes|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt
fidelity|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds
vectors|build/release/tokenizer_vectors "$(sh tests/golden/tokenizer_vectors.sh)"
chat|/usr/bin/python3 tests/golden/chat_oracle.py build/release/chat_render --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
e2e|build/venv/bin/python tests/e2e/run.py --variant release
unit-asan|build/asan/unittests
kernels-asan|build/asan/checkkern
chat-asan|/usr/bin/python3 tests/golden/chat_oracle.py build/asan/chat_render --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
e2e-asan|build/venv/bin/python tests/e2e/run.py --variant asan
'

logs=build/test
mkdir -p $logs
passed=0
failed=0
while IFS='|' read -r name command; do
    [ -n "$name" ] || continue
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    log=$logs/$name.log
    start=$SECONDS
    bash -c "$command" >"$log" 2>&1 </dev/null
    status=$?
    count=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=0
    f=0
    [[ $count =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]] && p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
    why=
    if [ -z "$count" ]; then
        why=" (no count, exit $status)"
        f=1
    elif [ "$((p + f))" = 0 ]; then
        why=' (ran nothing)'
        f=1
    elif [ $status != 0 ] && [ "$f" = 0 ]; then
        why=" (exit $status)"
        f=1
    fi
    skipped=$(grep -acE '^skip ' "$log")
    [ "$skipped" = 0 ] || why="$why ($skipped skipped, as the log says)"
    printf '%-12s %6d ok %4d failed %5d s%s\n' "$name" "$p" "$f" $((SECONDS - start)) "$why"
    if [ "$f" != 0 ]; then
        echo "--- the end of $log"
        tail -n 60 "$log"
        echo "---"
    fi
    passed=$((passed + p))
    failed=$((failed + f))
done <<<"$runners"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
