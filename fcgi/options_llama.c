/* [llama.cpp tools/server/README.md, common/arg.cpp] */
#include "fcgi/tables.h"

const struct option_other options_llama[] = {
    {.names = "--predict", .same_as = "n-predict"},
    {.names = "--chat-template-file", .same_as = "chat-template"},
    {.names = "--n-gpu-layers", .same_as = "gpu-layers"},
    {.names = "-dev", .same_as = "device"},
    {.names = "--draft --draft-n --spec-draft-n-max", .same_as = "draft-max"},
    {.names = "--model-draft --spec-draft-model", .same_as = "draft-model"},
    {.names = "--spec-draft-p-min", .same_as = "draft-p-min"},
    {.names = "--spec-type", .same_as = "speculate"},
    {.names = "--temperature", .same_as = "temp"},
    {.names = "-to", .same_as = "timeout"},
    {.names = "--typical", .same_as = "typical-p"},
    /* always on in infcgi, or without counterpart */
    {.names = "--jinja --cont-batching -cb --kv-unified -kvu --slots --props --webui --no-webui --ui --no-ui --mmap "
              "--no-mmap --mlock --warmup --no-context-shift --embedding --embeddings --reranking "
              "--rerank --offline --cache-prompt --prefill-assistant --no-mmproj --log-disable --verbose -v "
              "--no-jinja --no-cont-batching -nocb --no-kv-unified -no-kvu --swa-full --kv-offload -kvo --repack "
              "--no-repack -nr --no-host --op-offload --no-op-offload --perf --no-perf --escape -e --no-escape "
              "--cache-idle-slots --no-cache-idle-slots --mmproj-auto --no-mmproj-auto --mmproj-offload "
              "--no-mmproj-offload --models-autoload --no-models-autoload --no-skip-chat-parsing --no-agent -no-ag "
              "--no-ui-mcp-proxy --no-webui-mcp-proxy --no-log-jsonl --log-verbose --log-prefix --no-log-prefix "
              "--log-timestamps --no-log-timestamps --spec-default"},
    {.names = "--flash-attn -fa --fit -fit --log-colors", .takes = OPTION_OTHER_SWITCH},
    {.names = "--ubatch-size -ub --threads-batch -tb --threads-http --cache-reuse --cache-ram -cram "
              "--slot-prompt-similarity -sps --numa --log-verbosity -lv --verbosity --keep --ctx-checkpoints -ctxcp "
              "--swa-checkpoints --checkpoint-min-step -cms --defrag-thold -dt --prio --prio-batch --poll "
              "--poll-batch --cpu-strict --cpu-strict-batch --load-mode -lm --lazy-mode -lzm --fit-target -fitt "
              "--fit-ctx -fitc --draft-min --draft-n-min --spec-draft-n-min",
     .takes = OPTION_OTHER_VALUE},
    /* done by other programs, or not supported */
    {.names = "--host --port --path --api-prefix --reuse-port --cors-origins --cors-methods --cors-headers "
              "--cors-credentials",
     .hint = "nginx listens; set `listen` in its configuration (docs/ops/install.md)"},
    {.names = "--ssl-key-file --ssl-cert-file",
     .hint = "nginx does TLS; set `ssl_certificate` and `ssl_certificate_key` there"},
    {.names = "--api-key", .hint = "command lines are visible to other users; use --api-key-file FILE"},
    {.names = "--hf-repo -hf -hfr --hf-file -hff --model-url -mu --docker-repo -dr --hf-token -hft --hf-repo-draft "
              "-hfd -hfrd --spec-draft-hf",
     .hint = "infcgi downloads no models; download the file and use --model FILE"},
    {.names = "--mmproj -mm --mmproj-url --media-path -mmu --image-min-tokens --image-max-tokens",
     .hint = "models read only text"},
    {.names = "--lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range "
              "--lora-init-without-apply",
     .hint = "adapters are not supported; merge them into the model"},
    {.names = "--tools --mcp-servers-config --mcp-servers-json --agent -ag", .hint = "the server runs no tools"},
    {.names = "--models-dir --models-preset --models-max",
     .hint = "one process serves one model; nginx can choose among several (docs/ops)"},
    {.names = "--context-shift", .hint = "a sequence ends when the context is full; see --ctx-size"},
    {.names = "--grammar --grammar-file --json-schema -j --json-schema-file -jf --logit-bias -l --ignore-eos "
              "--samplers --sampler-seq --sampling-seq --reverse-prompt -r --no-cache-prompt",
     .hint = "set it per request (docs/api.md)"},
    {.names = "--embd-normalize", .hint = "embeddings have length 1"},
    {.names = "--mirostat --mirostat-lr --mirostat-ent --dry-multiplier --dry-base --dry-allowed-length "
              "--dry-penalty-last-n --dry-sequence-breaker --xtc-probability --xtc-threshold --top-n-sigma "
              "--top-nsigma --dynatemp-range --dynatemp-exp --adaptive-target --adaptive-decay",
     .hint = "unsupported sampler; use --top-k, --top-p, --min-p, --typical-p or penalties"},
    {.names = "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
              "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv",
     .hint = "the model file sets it"},
    {.names = "--override-tensor -ot --cpu-moe -cmoe --n-cpu-moe -ncmoe --no-kv-offload -nkvo",
     .hint = "whole layers and their KV cache are placed on a device; see --gpu-layers"},
    {.names = "--split-mode -sm --tensor-split -ts --main-gpu -mg",
     .hint = "devices of --device share the layers by their free memory"},
    {.names = "--rpc", .hint = "remote devices are not supported"},
    {.names = "--check-tensors", .hint = "use infcgi inspect --verify FILE"},
    {.names = "--list-devices", .hint = "use infcgi devices"},
    {.names = "--cpu-mask -C --cpu-range -Cr --cpu-mask-batch -Cb --cpu-range-batch -Crb",
     .hint = "use taskset or systemd's CPUAffinity; --pin pins each thread to one CPU"},
    {.names = "--reasoning-preserve", .hint = "use --chat-template-kwargs '{\"preserve_reasoning\": true}'"},
    {.names = "--no-reasoning-preserve", .hint = "use --chat-template-kwargs '{\"preserve_reasoning\": false}'"},
    {.names = "--skip-chat-parsing",
     .hint = "use --reasoning-format none; calls are parsed only if a request has tools"},
    {.names = "--log-jsonl --log-prompts-dir",
     .hint = "the log is lines on stderr without request texts; see --log-file"},
    {.names = "--sleep-idle-seconds", .hint = "the model stays loaded; see systemd's socket activation"},
    {0},
};
