#!/bin/bash
# Runs the list of test runners below, one line each, and prints the sum as the last line: `N passed, N failed`.
# Each runner's own last count line has that form. A runner that dies, prints no count or runs nothing counts as a failure.
# A line `skip TEST: WHY` says that a test says nothing here, as figures of the release build do not under ASan.
# What failed is told where its log's end is printed, and by name above the last line.
# A log's lines from one that begins with `Table: ` on are printed behind the runner's line, the count apart.
#   run.sh          those of `make test`
#   run.sh --long   those of `make test-long`
#   run.sh NAME...  only those, of either; the logs lie in build/test/
set -u
cd "$(dirname "$0")/.." || exit 1

# name|how|command. To add a runner, add a line. `beside` others, two at a time, or `alone`: what uses all CPUs
# itself. Tests over HTTP wait for most of their time. The longest come first, but unit: what PoCL compiles for it need not be compiled for its other
# builds, for which it takes longer.
#
# On a bare machine of two CPUs `make test` is to take half an hour at most, compiling included. What finds least for its
# time is in the second list, and all that it runs stands in the first one in another build, on another device, with smaller
# models or with fewer of the same kind:
#   - test cases tagged `long` run in the release build (long contexts, whose kernels ASan sees in short ones), and so do the kernels'
#     checks, whose buffers have guard pages;
#   - tests over HTTP that $in_release names run there: the chat page, run.sh, the benchmark's driver, crowds of clients, models
#     on devices, and what takes many tokens; their C the unit tests have under ASan;
#   - of models that are there in two formats one runs in full, and on devices; of ISAs below the best one thread, of chats under ASan each
#     fifth, of prompts for the same bytes the first 50;
#   - under TSan a model's recurrent states, `states`, run in test-long: engine and sched have the same threads.
# Leaks are looked for at the end of a process, which takes longer than most tests: under ASan a suite is one process, but for
# the cases tagged `fork`, whose tests leave something behind, or compute with PoCL, behind which leaks are not looked for
# (fake_opencl.c).
in_release='
page_test page_answers bench_test turns_test test_run_sh test_the_default_model opencl_layers_test opencl_faults_test
test_choices_share_one_echo test_keys_share_no_cached_prefix test_same_bytes_alone_and_among_others test_two_hundred_large_texts
test_json_object test_json_schema test_tool_choice test_a_long_prompt_tells test_a_custom_tool_is_called test_infill
test_tools_are_shown test_cached_prefix_gives test_a_call_that_is_asked_for test_many_choices_stream test_history_of_calls
test_a_conversation_goes_on_after_kill_9 test_perplexity_is_that test_a_killed_worker
test_a_stream_outlives_a_reload test_a_master_drains_and
chat_test.test_seed chat_test.test_n test_tenants bad_input_test.test_schemas test_slow_requests_are_told test_conversation_with_tools test_sigterm_lets_running_streams_end test_sigterm_with_drain_close test_a_restart_behind_a_held_socket
test_at_every_moment test_nginx_reloads_and_dies test_who_shares_a_prefix_stays test_what_looks_like_an_event
clock_test test_a_system_that_gives_no test_who_waits_hears test_a_row_that_is_no test_what_never_comes test_full_load_takes test_rapid_resets
test_a_connection_goes_on test_thousands_of_silent
'
in_release=$(xargs <<<"$in_release")
export in_release
# shellcheck disable=SC2016
runners='
golden|beside|build/release/golden
unit|beside|build/release/unittests
oclgrind|beside|bash tests/golden/oclgrind.sh
golden-bites|beside|bash tests/golden/golden_test.sh
lint|beside|bash tests/lint/lint.sh && echo "1 passed, 0 failed"
lint-bites|beside|bash tests/lint/lint_test.sh
isa|beside|/usr/bin/python3 tests/isa/isa.py
isa-bites|beside|bash tests/isa/isa_test.sh
unit-asan|beside|CK_FORK=no CK_EXCLUDE_TAGS="long fork" build/asan/unittests
unit-asan-fork|beside|CK_INCLUDE_TAGS=fork CK_EXCLUDE_TAGS=long build/asan/unittests
unit-tsan|beside|CK_EXCLUDE_TAGS="long states" build/tsan/unittests
kernels-arm|beside|bash tests/kernels/qemu_arm.sh
kernels|beside|build/release/checkkern
chat-asan|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/asan/chat_render --every 5 --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
chat|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/release/chat_render --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
calls|beside|/usr/bin/python3 tests/golden/call_oracle.py build/release/chat_render "$(sh tests/golden/tokenizer_vectors.sh)/templates" 20
fuzz-replay|beside|build/asan/fuzz-replay
vectors|beside|build/release/tokenizer_vectors "$(sh tests/golden/tokenizer_vectors.sh)"
same-bytes|alone|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt cpu 50
fidelity|alone|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds
e2e|beside|build/venv/bin/python tests/e2e/run.py --variant release
e2e-asan|beside|build/venv/bin/python tests/e2e/run.py --variant asan --without ${in_release// /,}
soak-tsan|alone|build/venv/bin/python tests/e2e/soak.py --variant tsan --seconds 30
load|alone|/usr/bin/python3 tests/bench/load/load.py --size test --only many-streams,overload,aborts,kills,reloads,restart,soak
'
# shellcheck disable=SC2016
long_runners='
golden-long|beside|build/release/golden --all
rusticl-long|beside|OCL_ICD_VENDORS=/etc/OpenCL/vendors/rusticl.icd RUSTICL_ENABLE=llvmpipe build/release/drivers llvmpipe
kernels-asan|beside|build/asan/checkkern
isa-long|beside|/usr/bin/python3 tests/isa/isa.py --all
fidelity-opencl-long|beside|build/release/fidelity "$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds --backend opencl
greedy-long|beside|build/release/greedy "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt cpu=0.2 +cpu=0.01 opencl=0.2 +opencl=0.01
same-bytes-long|alone|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt
same-bytes-opencl-long|beside|build/release/same_bytes "$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt opencl 8
chat-asan-long|beside|/usr/bin/python3 tests/golden/chat_oracle.py build/asan/chat_render --templates "$(sh tests/golden/tokenizer_vectors.sh)/templates"
unit-asan-long|beside|CK_INCLUDE_TAGS=long build/asan/unittests
unit-tsan-long|beside|CK_INCLUDE_TAGS="long states" build/tsan/unittests
e2e-asan-long|alone|build/venv/bin/python tests/e2e/run.py --variant asan $in_release
soak-tsan-long|alone|build/venv/bin/python tests/e2e/soak.py --variant tsan --seconds 600
many-streams-long|alone|/usr/bin/python3 tests/bench/load/load.py --size bench --only many-streams
load-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test
load-asan-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test --variant asan --only many-streams,throughput,overload,aborts,kills,reloads,restart,soak
load-tsan-long|alone|/usr/bin/python3 tests/bench/load/load.py --size test --variant tsan --only many-streams,throughput,overload,aborts,kills,reloads,restart,soak
'
limit=14400 # s a runner may take; what hangs is told by exit 124 and the end of its log
case ${1:-} in
'') limit=2400 ;;
--long)
    runners=$long_runners
    shift
    ;;
*) runners+=$long_runners ;;
esac
at_once=2 # as many CPUs as the smallest machine has that this is made for

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
failed=$((failed + n_runners - n_counts)) # one that left no count was killed
cat $logs/*.failures 2>/dev/null # again, where one looks first
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
