#!/bin/bash
# Runs the ARM kernels under qemu, on CPUs of different ages: each must offer exactly its ISAs, and checkkern must pass
# for the highest one, so no kernel runs on a CPU with more than it requires. Prints the totals as the last line.
#   qemu_arm.sh         only the kernels that an ISA has of its own: others are those of the ISA below
#   qemu_arm.sh --all   all operations on each CPU
set -u
cd "$(dirname "$0")/../.." || exit 1
checkkern=build/arm64/checkkern

# qemu's name of a CPU|its ISAs, ascending|how the names of the highest one's own kernels begin
cpus='
cortex-a72|ref neon|
neoverse-n1|ref neon dotprod|matmul_
max|ref neon dotprod i8mm|matmul_u8
'

passed=0
failed=0
while IFS='|' read -r cpu isas own; do
    [ -n "$cpu" ] || continue
    offered=$(qemu-aarch64 -cpu "$cpu" $checkkern --op add |
        awk '/^ok/ && !/planted/ { printf "%s%s", between, $3; between = " " }')
    if [ "$offered" = "$isas" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $cpu: expected ISAs $isas, found $offered"
    fi
    echo "$cpu: $offered"
    [ "${1:-}" != --all ] || own=
    out=$(qemu-aarch64 -cpu "$cpu" $checkkern --isa "${isas##* }" ${own:+--op "$own"})
    status=$?
    echo "$out"
    if [[ $(tail -n 1 <<<"$out") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    else
        failed=$((failed + 1))
        echo "FAILED $cpu: checkkern ended with status $status"
    fi
done <<<"$cpus"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
