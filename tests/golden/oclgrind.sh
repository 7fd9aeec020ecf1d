#!/bin/bash
# Runs every kernel of opencl/kernels under Oclgrind, which detects races and accesses beyond a buffer: none may occur.
# Also checks that it detects them: kernels without their barriers have some. Last line: N passed, N failed.
#   oclgrind.sh         all of `drivers`
#   oclgrind.sh --few   fewer weight types and no batch of many rows, in a third of the time
set -u
cd "$(dirname "$0")/../.." || exit 1
drivers=build/release/drivers
if ! command -v oclgrind >/dev/null; then
    echo 'oclgrind is not installed (make deps)'
    echo '0 passed, 1 failed'
    exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
said=$(oclgrind --data-races --uniform-writes --log "$log" $drivers Oclgrind "$@")
status=$?
sed '$d' <<<"$said"
[[ $(tail -n 1 <<<"$said") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || { cat "$log"; exit 1; }
passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]}
[ $status = 0 ] || [ "$failed" != 0 ] || failed=1

check() { # NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
    fi
}
head -n 60 "$log"
[ ! -s "$log" ]
check 'Oclgrind reports nothing' $?

FAKE_OPENCL=barrier:none oclgrind --data-races --uniform-writes --max-errors 3 --log "$log" \
    $drivers Oclgrind llama-gqa-tied.gguf >/dev/null
grep -q 'data race' "$log"
check 'Oclgrind sees that barriers are missing' $?
echo "$passed passed, $failed failed"
[ $failed = 0 ]
