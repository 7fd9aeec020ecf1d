#!/bin/bash
# Runs the test runners listed below and prints one line for each. The last line is the sum, `N passed, N failed`.
# Each runner ends its output with a line of the same form. A runner fails if it dies, prints no such line or ran nothing.
# A line `skip TEST: WHY` in a log names a test that does not apply: figures of the release build, for example, under ASan.
# The end of a failed runner's log is printed. What failed is listed again before the last line.
# Lines of a log from `Table: ` on are printed after the runner's line.
#   run.sh          the runners of `make test`
#   run.sh --long   the runners of `make test-long`
#   run.sh NAME...  the named runners of either list
# Logs are written to build/test/.
set -u
cd "$(dirname "$0")/.." || exit 1

# To add a runner, add a line `name|how|command`. `beside`: two such runners run at a time. `alone`: nothing runs next to
# it, because it uses all CPUs. Long runners come first. `golden` comes before the other runners that use PoCL: they find
# in PoCL's cache what golden compiled. Tests over HTTP wait for most of their time.
#
# `make test` must end within 30 minutes on a bare machine with two CPUs, compiling included. The second list,
# `make test-long`, has what finds the fewest faults for its time. A test may move there if `make test` still runs its code
# in another build, on another device, with smaller models or with fewer cases of the same kind:
#   - Unit tests run under ASan, and in the release build in test-long. Those tagged `long` run in test-long in both:
#     long contexts, crowds of requests, many programs of a device.
#   - Under TSan the unit tests of whole models (`model`, `states`) run in test-long. The scheduler's tests have the same
#     threads, and soak-tsan runs the whole process. Under ASan some of the whole models draft, and none of them
#     on a back end with its own thread; same-draft runs them all in the release build.
#   - The kernels' checks run in the release build, where guard pages enclose their buffers. On ARM an
#     ISA runs only its own kernels. With sanitizers the x86 ISAs above avx2 are built in test-long only, because they
#     compile for three minutes.
#   - Each test over HTTP runs in one build, as its mark says (tests/e2e/harness.py: in_release, in_long), a few of them
#     with fewer rounds (has_time). test-long runs all of them in both builds.
#   - Golden models: some of them, of all kinds, run on a device, with slower ISAs, in shards, in parts and behind a remote
#     back end. oclgrind runs all kernels of the device. A model in two formats runs in full in one of them, a slower ISA
#     runs with one thread, and a device runs models of many weight types without high precision.
#   - Fewer cases: each second chat and under ASan each tenth, 32 prompts of same_bytes, 60 runs of same_draft, the bounds
#     of one KV type, no overload and no soak of the release build, under Oclgrind fewer weight types and no batch of many
#     rows, and fewer calls of OpenCL that fail.
# LeakSanitizer takes longer than most tests, and looks for leaks when a process ends. So under ASan a suite is one process.
# Tests tagged `fork` have a process each: they leave state in their process, or compute with PoCL, after which the search
# for leaks is off (fake_opencl.c).
# shellcheck disable=SC2016
runners='
golden|beside|build/release/golden
e2e-asan|beside|build/venv/bin/python tests/e2e/run.py --variant asan --mark none
unit-asan|beside|CK_FORK=no CK_EXCLUDE_TAGS="long fork" build/asan/unittests
unit-tsan|beside|CK_EXCLUDE_TAGS="long states model" build/tsan/unittests
e2e|beside|build/venv/bin/python tests/e2e/run.py --variant release --mark release
unit-asan-fork|beside|CK_INCLUDE_TAGS=fork CK_EXCLUDE_TAGS=long build/asan/unittests
kernels-arm|beside|bash tests/kernels/qemu_arm.sh
oclgrind|beside|bash tests/golden/oclgrind.sh --few
chat-asan|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/asan/chat_render --every 10 --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
chat|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/release/chat_render --every 2 --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
isa|beside|/usr/bin/python3 tests/isa/isa.py
kernels|beside|build/release/checkkern
lint-bites|beside|bash tests/lint/lint_test.sh
lint|beside|bash tests/lint/lint.sh && echo "1 passed, 0 failed"
release|beside|bash tests/deb/release_test.sh
same-draft|beside|build/release/same_draft --runs 60
bench-peer-bites|beside|/usr/bin/python3 tests/bench/peer_test.py
isa-bites|beside|bash tests/isa/isa_test.sh
calls|beside|/usr/bin/python3 tests/golden/call_oracle.py build/release/chat_render "$(sh tests/golden/tokenizer_vectors.sh)/templates" 20
golden-bites|beside|bash tests/golden/golden_test.sh
vectors|beside|build/release/tokenizer_vectors "$(sh tests/golden/tokenizer_vectors.sh)"
fuzz-replay|beside|build/asan/fuzz-replay
same-bytes|alone|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt cpu 32
fidelity|alone|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds -ctk i16
soak-tsan|alone|build/venv/bin/python tests/e2e/soak.py --variant tsan --seconds 30
load|alone|/usr/bin/python3 tests/bench/load/load.py --size test --only many-streams,aborts,kills,reloads,restart
'
# shellcheck disable=SC2016
long_runners='
golden-long|beside|build/release/golden --all
isa-long|beside|/usr/bin/python3 tests/isa/isa.py --all
unit|beside|build/release/unittests
oclgrind-long|beside|bash tests/golden/oclgrind.sh
rusticl-long|beside|OCL_ICD_VENDORS=/etc/OpenCL/vendors/rusticl.icd RUSTICL_ENABLE=llvmpipe build/release/drivers llvmpipe
kernels-asan|beside|build/asan/checkkern
kernels-arm-long|beside|bash tests/kernels/qemu_arm.sh --all
fidelity-long|alone|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds
fidelity-opencl-long|beside|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds --backend opencl
greedy-long|beside|build/release/greedy "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt cpu=0.2 +cpu=0.01 opencl=0.2 +opencl=0.01
same-bytes-long|alone|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt
same-draft-long|beside|build/release/same_draft
same-draft-opencl-long|beside|build/release/same_draft --backend opencl --runs 60
same-bytes-opencl-long|beside|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt opencl 8
chat-asan-long|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/asan/chat_render --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
unit-asan-long|beside|CK_INCLUDE_TAGS=long build/asan/unittests
unit-tsan-long|beside|CK_INCLUDE_TAGS="long states model" build/tsan/unittests
e2e-long|beside|build/venv/bin/python tests/e2e/run.py --variant release
e2e-asan-long|alone|build/venv/bin/python tests/e2e/run.py --variant asan --mark release,long
soak-tsan-long|alone|build/venv/bin/python tests/e2e/soak.py --variant tsan --seconds 600
many-streams-long|alone|/usr/bin/python3 tests/bench/load/load.py --size bench --only many-streams
load-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test
load-asan-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test --variant asan --only many-streams,throughput,overload,aborts,kills,reloads,restart,soak
load-tsan-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test --variant tsan --only many-streams,throughput,overload,aborts,kills,reloads,restart,soak
'
limit=14400 # seconds per runner; a runner that hangs shows as exit 124 and the end of its log
case ${1:-} in
'') limit=2400 ;;
--long)
    runners=$long_runners
    shift
    ;;
*) runners+=$long_runners ;;
esac
at_once=2 # CPUs of the smallest supported machine

logs=build/test
mkdir -p $logs
rm -f $logs/*.count $logs/*.failures

# run NAME COMMAND: prints its line, and on failure the end of its log; leaves "passed failed" in NAME.count
run() {
    local log=$logs/$1.log start=$SECONDS status count p=0 f=0 why='' skipped text table cpu TIMEFORMAT='%0U %0S'
    cpu=$({ time timeout --kill-after=30 "$limit" bash -c "$2" >"$log" 2>&1 </dev/null; } 2>&1; echo $?)
    status=${cpu##*$'\n'}
    cpu=${cpu%%$'\n'*}
    count=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    [[ $count =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]] && p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
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
    text=$(printf '%-12s %6d ok %4d failed %5d s %5d CPU s%s' "$1" "$p" "$f" $((SECONDS - start)) $((${cpu/ / + })) "$why")
    table=$(sed -n '/^Table: /,$p' "$log" | sed '/^[0-9]* passed, [0-9]* failed/d')
    [ -z "$table" ] || text+=$'\n'$table
    [ "$f" = 0 ] || text+=$(printf '\n--- the end of %s\n' "$log"; sed '/^Table: /,$d' "$log" | tail -n 60; printf '\n---')
    printf '%s\n' "$text"
    [ "$f" = 0 ] || grep -aE -A 10 '^FAIL|:[FE]:' "$log" | head -n 40 | sed "s/^/$1: /" >"$logs/$1.failures"
    echo "$p $f" >"$logs/$1.count"
}

n_runners=0
while IFS='|' read -r name how command; do
    [ -n "$name" ] || continue
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    n_runners=$((n_runners + 1))
    if [ "$how" = alone ]; then
        wait
        run "$name" "$command"
    else
        while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do wait -n; done
        run "$name" "$command" &
    fi
done <<<"$runners"
wait

passed=0
failed=0
n_counts=0
for count in "$logs"/*.count; do
    [ -e "$count" ] || continue
    read -r p f <"$count"
    passed=$((passed + p)) failed=$((failed + f)) n_counts=$((n_counts + 1))
done
failed=$((failed + n_runners - n_counts)) # a runner without a count was killed
cat $logs/*.failures 2>/dev/null # again, at the end, where readers look first
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
