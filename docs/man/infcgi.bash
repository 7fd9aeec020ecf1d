# Made by `make docs`.
_infcgi() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' files=''
    [ "$cur" != = ] || cur=''
    [ "$prev" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}
    case "${COMP_WORDS[1]} $prev" in
    'serve --model' | 'serve -m' | 'generate --model' | 'generate -m' | 'chat --model' | 'chat -m' | 'perplexity --model' | 'perplexity -m' | 'bench --model' | 'bench -m' | 'inspect --model' | 'inspect -m' | 'tokenize --model' | 'tokenize -m') files=1 ;;
    'serve --alias' | 'serve -a') ;;
    'serve --tags') ;;
    'serve --socket') files=1 ;;
    'serve --admin-socket') files=1 ;;
    'ctl --socket') files=1 ;;
    'serve --config' | 'generate --config' | 'chat --config' | 'perplexity --config' | 'bench --config' | 'inspect --config' | 'convert --config' | 'tokenize --config') files=1 ;;
    'serve --api-key-file') files=1 ;;
    'serve --tenants') files=1 ;;
    'serve --usage-log') files=1 ;;
    'serve --chat-template' | 'generate --chat-template' | 'chat --chat-template') files=1 words='chatglm3 chatglm4 chatml command-r deepseek deepseek-r1 deepseek2 deepseek3 gemma gpt-oss granite kimi-k2 llama2 llama3 llama4 minicpm mistral-v1 mistral-v3 mistral-v3-tekken mistral-v7 mistral-v7-tekken openchat phi3 phi4 qwen2.5 seed_oss smollm2 solar-open vicuna vicuna-orca zephyr' ;;
    'serve --tool-format') words='hermes generic gpt-oss deepseek-v3.2 deepseek kimi-k2 minimax-m2 mistral gemma4 lfm2 granite3 llama4 llama3 seed-oss apertus cohere2moe command-r7b nemotron-v2' ;;
    'serve --threads' | 'serve -t' | 'generate --threads' | 'generate -t' | 'chat --threads' | 'chat -t' | 'perplexity --threads' | 'perplexity -t' | 'convert --threads' | 'convert -t') ;;
    'serve --ctx-size' | 'serve -c' | 'generate --ctx-size' | 'generate -c' | 'chat --ctx-size' | 'chat -c') ;;
    'perplexity --ctx-size' | 'perplexity -c') ;;
    'perplexity --file' | 'perplexity -f') files=1 ;;
    'perplexity --chunks') ;;
    'serve --kv-tokens' | 'generate --kv-tokens' | 'chat --kv-tokens') ;;
    'serve --cache-type-k' | 'serve -ctk' | 'generate --cache-type-k' | 'generate -ctk' | 'chat --cache-type-k' | 'chat -ctk' | 'perplexity --cache-type-k' | 'perplexity -ctk' | 'bench --cache-type-k' | 'bench -ctk') words='i16 f16 bf16 q8_0 q4_0 f32' ;;
    'serve --cache-type-v' | 'serve -ctv' | 'generate --cache-type-v' | 'generate -ctv' | 'chat --cache-type-v' | 'chat -ctv' | 'perplexity --cache-type-v' | 'perplexity -ctv' | 'bench --cache-type-v' | 'bench -ctv') words='i16 f16 bf16 q8_0 q4_0 f32' ;;
    'serve --parallel' | 'serve -np') ;;
    'serve --batch-size' | 'serve -b' | 'generate --batch-size' | 'generate -b' | 'chat --batch-size' | 'chat -b' | 'perplexity --batch-size' | 'perplexity -b') ;;
    'serve --queue-max') ;;
    'serve --memory-limit' | 'generate --memory-limit' | 'chat --memory-limit' | 'perplexity --memory-limit') ;;
    'serve --request-memory') ;;
    'serve --cpu' | 'generate --cpu' | 'chat --cpu' | 'perplexity --cpu' | 'bench --cpu' | 'inspect --cpu' | 'convert --cpu' | 'tokenize --cpu') words='auto ref avx2 avxvnni avx512 amx' ;;
    'serve --backend' | 'generate --backend' | 'chat --backend' | 'perplexity --backend' | 'bench --backend') words='cpu ref opencl' ;;
    'serve --device' | 'generate --device' | 'chat --device' | 'perplexity --device' | 'bench --device' | 'devices --device') words='auto' ;;
    'serve --gpu-layers' | 'serve -ngl' | 'generate --gpu-layers' | 'generate -ngl' | 'chat --gpu-layers' | 'chat -ngl' | 'perplexity --gpu-layers' | 'perplexity -ngl' | 'bench --gpu-layers' | 'bench -ngl') words='auto all' ;;
    'serve --pack-cache' | 'generate --pack-cache' | 'chat --pack-cache' | 'perplexity --pack-cache' | 'bench --pack-cache') files=1 words='off' ;;
    'serve --log-level') words='error warn info' ;;
    'serve --log-file') files=1 ;;
    'serve --cache-dir') files=1 ;;
    'serve --cache-disk-mib') ;;
    'serve --slot-save-path') files=1 ;;
    'serve --slow-log') ;;
    'serve --slow-log-file') files=1 ;;
    'serve --pooling') words='mean cls last rank none' ;;
    'serve --quantize' | 'generate --quantize' | 'chat --quantize' | 'perplexity --quantize' | 'bench --quantize') words='off q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0' ;;
    'serve --speculate' | 'generate --speculate' | 'chat --speculate') words='auto no-head off lookup head model none draft-mtp draft-eagle3 draft-simple ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache' ;;
    'serve --draft-model' | 'serve -md' | 'generate --draft-model' | 'generate -md' | 'chat --draft-model' | 'chat -md' | 'bench --draft-model' | 'bench -md') files=1 ;;
    'serve --draft-p-min' | 'generate --draft-p-min' | 'chat --draft-p-min') ;;
    'serve --draft-max' | 'generate --draft-max' | 'chat --draft-max') ;;
    'serve --max-connections') ;;
    'serve --body-limit') ;;
    'serve --response-memory') ;;
    'serve --drain-timeout') ;;
    'serve --step-limit') ;;
    'serve --compute-limit') ;;
    'serve --sse-ping-interval') ;;
    'serve --timeout') ;;
    'serve --n-predict' | 'serve -n') ;;
    'serve --reasoning' | 'serve -rea') words='auto on off' ;;
    'serve --reasoning-format') words='auto deepseek none' ;;
    'serve --reasoning-effort') words='default none minimal low medium high xhigh max' ;;
    'serve --chat-template-kwargs') ;;
    'serve --reasoning-budget') ;;
    'serve --reasoning-budget-message') ;;
    'serve --seed' | 'serve -s') ;;
    'generate --prompt' | 'generate -p') ;;
    'generate --n-predict' | 'generate -n') ;;
    'serve --temp' | 'generate --temp' | 'chat --temp') ;;
    'serve --top-k' | 'generate --top-k' | 'chat --top-k') ;;
    'serve --top-p' | 'generate --top-p' | 'chat --top-p') ;;
    'serve --min-p' | 'generate --min-p' | 'chat --min-p') ;;
    'serve --typical-p' | 'generate --typical-p' | 'chat --typical-p') ;;
    'serve --repeat-penalty' | 'generate --repeat-penalty' | 'chat --repeat-penalty') ;;
    'serve --repeat-last-n' | 'generate --repeat-last-n' | 'chat --repeat-last-n') ;;
    'serve --presence-penalty' | 'generate --presence-penalty' | 'chat --presence-penalty') ;;
    'serve --frequency-penalty' | 'generate --frequency-penalty' | 'chat --frequency-penalty') ;;
    'chat --n-predict' | 'chat -n') ;;
    'chat --system' | 'chat -sys') ;;
    'generate --seed' | 'generate -s' | 'chat --seed' | 'chat -s') ;;
    'bench --n-prompt' | 'bench -p') ;;
    'bench --n-gen' | 'bench -n') ;;
    'bench --n-depth' | 'bench -d') ;;
    'bench --n-seqs' | 'bench -s') ;;
    'bench --batch-size' | 'bench -b') ;;
    'bench --threads' | 'bench -t') ;;
    'bench --repetitions' | 'bench -r') ;;
    'bench --accept') ;;
    'bench --draft-max') ;;
    'bench --output' | 'bench -o') words='md csv json' ;;
    'convert --source') files=1 ;;
    'convert --target') files=1 ;;
    'convert --type') words='copy f32 f16 bf16 q8_0 q6_k q5_k_m q5_k q5_1 q5_0 q4_k_m q4_k q4_1 q4_0' ;;
    'convert --imatrix') files=1 ;;
    'tokenize --text') ;;
    'help --format') words='text md man bash api' ;;
    'chat --history' | 'ctl --history') files=1 ;;
    *)
        case ${COMP_WORDS[1]} in
        serve) words='--model --alias --tags --socket --admin-socket --master --config --api-key-file --tenants --usage-log --share-cache --chat-template --tool-format --threads --ctx-size --kv-tokens --cache-type-k --cache-type-v --parallel --batch-size --queue-max --memory-limit --request-memory --cpu --high-precision --pin --backend --device --gpu-layers --pack-cache --log-level --log-file --cache-dir --cache-disk-mib --slot-save-path --slow-log --slow-log-file --pooling --quantize --speculate --draft-model --draft-p-min --draft-max --max-connections --body-limit --response-memory --drain-timeout --drain-close --step-limit --compute-limit --sse-ping-interval --timeout --strict-api --n-predict --reasoning --reasoning-format --reasoning-effort --chat-template-kwargs --reasoning-budget --reasoning-budget-message --seed --no-prefill-assistant --no-warmup --no-slots --metrics --no-metrics --any-model --closed-objects --temp --top-k --top-p --min-p --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --check-config --help --version ' ;;
        generate) words='--model --config --chat-template --threads --ctx-size --kv-tokens --cache-type-k --cache-type-v --batch-size --memory-limit --cpu --high-precision --pin --backend --device --gpu-layers --pack-cache --quantize --speculate --draft-model --draft-p-min --draft-max --prompt --n-predict --temp --top-k --top-p --min-p --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --seed --chat --help --version ' ;;
        chat) words='--model --config --chat-template --threads --ctx-size --kv-tokens --cache-type-k --cache-type-v --batch-size --memory-limit --cpu --high-precision --pin --backend --device --gpu-layers --pack-cache --quantize --speculate --draft-model --draft-p-min --draft-max --temp --top-k --top-p --min-p --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --n-predict --system --seed --history --help --version ' ;;
        perplexity) words='--model --config --threads --ctx-size --file --chunks --cache-type-k --cache-type-v --batch-size --memory-limit --cpu --high-precision --pin --backend --device --gpu-layers --pack-cache --quantize --json --help --version ' files=1 ;;
        bench) words='--model --config --cache-type-k --cache-type-v --cpu --backend --device --gpu-layers --pack-cache --quantize --draft-model --n-prompt --n-gen --n-depth --n-seqs --batch-size --threads --repetitions --accept --draft-max --output --help --version ' ;;
        inspect) words='--model --config --cpu --kv --tensors --plan --template --check --verify --help --version ' files=1 ;;
        convert) words='--config --threads --cpu --source --target --type --imatrix --force --help --version ' files=1 ;;
        tokenize) words='--model --config --cpu --text --ids --no-bos --parse-special --help --version ' files=1 ;;
        devices) words='--device --json --help --version ' ;;
        ctl) words='--socket --json --history --help --version status requests cancel tenants kv cache model drain reload loglevel log config devices memory threads kernels bench version help top pci quit ' ;;
        help) words='--format --help --version ' ;;
        esac
        ;;
    esac
    [ "$COMP_CWORD" != 1 ] || words='serve generate chat perplexity bench inspect convert tokenize devices ctl help'
    mapfile -t COMPREPLY < <(
        compgen -W "$words" -- "$cur"
        [ -z "$files" ] || compgen -f -- "$cur"
    )
}
complete -o filenames -F _infcgi infcgi
