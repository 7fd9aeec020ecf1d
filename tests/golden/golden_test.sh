#!/bin/bash
# Checks that golden detects errors: removes each model from a list in turn, and all of a family, adds one, and gives a
# model the expected results of another. Also checks that same_draft detects states that advance by rejected drafts. Last
# line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 1
golden=build/release/golden
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
passed=0
failed=0

check() { # NAME PATTERN OPTION...: golden must fail with a line that matches; no pattern: must pass
    local said status
    said=$($golden "${@:3}" "$copy")
    status=$?
    if [ -z "$2" ] && [ $status = 0 ] || { [ -n "$2" ] && [ $status != 0 ] && grep -qE "^FAILED.*$2" <<<"$said"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "golden did not see: $1"
    fi
}

for path in tests/golden/models/*; do touch "$copy/${path##*/}"; done
check 'nothing to see' '' -n
for path in tests/golden/models/*.hf tests/golden/models/*.gguf; do
    name=${path##*/}
    case $name in *.expect.gguf | *.draft.gguf | *.draft.hf) continue ;; esac # no models
    rm "$copy/$name"
    check "no $name" "there is no $name\$" -n
    touch "$copy/$name"
done
rm "$copy"/qwen3-*.gguf # other families' names begin with qwen3 too
check 'no GGUF of a family' 'no GGUF model of the family qwen3$' -n
touch "$copy/llama-new.gguf"
check 'a model that is in no list' 'golden_models.h has no llama-new.gguf$' -n

rm "$copy"/*
cp -r tests/golden/models/llama-mistral-window.hf "$copy"
check 'no expected results' 'llama-mistral-window.hf: '
cp tests/golden/models/qwen2-one-head.expect.gguf "$copy/llama-mistral-window.expect.gguf"
check 'other logits' 'llama-mistral-window.hf on ref/-: last logits'
if $golden --backend ref "$copy" | grep -qE '^llama +SafeTensors +llama-mistral-window +FAILED +-( |$)'; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo 'golden has errors of a back end that it did not run'
fi
if build/release/same_draft --broken --runs 14 | grep '^  with speculation, turn' >/dev/null; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo 'same_draft did not see wrong states'
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
