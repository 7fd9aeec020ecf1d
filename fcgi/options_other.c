/* [llama.cpp tools/server/README.md, common/arg.cpp] */
#include "fcgi/options_other.h"

#include "engine/base/mem.h"

#include <string.h>

static const char nginx[] = "nginx listens; `listen` in its configuration says where (docs/ops/install.md)";
static const char tls[] = "nginx does TLS; `ssl_certificate` and `ssl_certificate_key` in its configuration";
static const char keys[] = "keys are in a file, as other users can read command lines: --api-key-file FILE";
static const char fetch[] = "models are not fetched; download the file and give it as --model FILE";
static const char media[] = "models read text alone";
static const char adapters[] = "adapters are not applied; merge them into the model's file";
static const char tools[] = "the server runs no tools";
static const char one_model[] = "one process serves one model; nginx can choose among several (docs/ops)";

#define SAME(name, other)  {name, other, NULL, OPTION_OTHER_NOTHING}
#define FLAG(name)         {name, NULL, NULL, OPTION_OTHER_NOTHING}
#define VALUE(name)        {name, NULL, NULL, OPTION_OTHER_VALUE}
#define SWITCH(name)       {name, NULL, NULL, OPTION_OTHER_SWITCH}
#define REFUSED(name, why) {name, NULL, why, OPTION_OTHER_NOTHING}

static const struct option_other others[] = {
    SAME("--predict", "n-predict"),
    SAME("--chat-template-file", "chat-template"),
    SAME("--n-gpu-layers", "gpu-layers"),
    SAME("-dev", "device"),
    SAME("--draft", "draft-max"),
    SAME("--draft-n", "draft-max"),
    SAME("--spec-draft-n-max", "draft-max"),
    SAME("--temperature", "temp"),
    /* what is always so, or has nothing to act on */
    FLAG("--jinja"),
    SWITCH("--flash-attn"),
    SWITCH("-fa"),
    VALUE("--ubatch-size"),
    VALUE("-ub"),
    VALUE("--threads-batch"),
    VALUE("-tb"),
    VALUE("--threads-http"),
    FLAG("--cont-batching"),
    FLAG("-cb"),
    FLAG("--kv-unified"),
    FLAG("-kvu"),
    FLAG("--slots"),
    FLAG("--props"),
    FLAG("--webui"),
    FLAG("--no-webui"),
    FLAG("--ui"),
    FLAG("--no-ui"),
    FLAG("--mmap"),
    FLAG("--no-mmap"),
    FLAG("--mlock"),
    FLAG("--warmup"),
    FLAG("--no-warmup"),
    FLAG("--no-context-shift"),
    FLAG("--embedding"),
    FLAG("--embeddings"),
    FLAG("--reranking"),
    FLAG("--rerank"),
    FLAG("--offline"),
    FLAG("--cache-prompt"),
    FLAG("--prefill-assistant"),
    VALUE("--cache-reuse"),
    VALUE("--cache-ram"),
    VALUE("-cram"),
    VALUE("--slot-prompt-similarity"),
    VALUE("-sps"),
    VALUE("--numa"),
    FLAG("--no-mmproj"),
    FLAG("--log-disable"),
    VALUE("--log-verbosity"),
    VALUE("-lv"),
    FLAG("--verbose"),
    FLAG("-v"),
    SWITCH("--fit"),
    SWITCH("-fit"),
    /* what somebody else does, or nobody */
    REFUSED("--host", nginx),
    REFUSED("--port", nginx),
    REFUSED("--path", nginx),
    REFUSED("--api-prefix", nginx),
    REFUSED("--ssl-key-file", tls),
    REFUSED("--ssl-cert-file", tls),
    REFUSED("--api-key", keys),
    REFUSED("--hf-repo", fetch),
    REFUSED("-hf", fetch),
    REFUSED("-hfr", fetch),
    REFUSED("--hf-file", fetch),
    REFUSED("-hff", fetch),
    REFUSED("--model-url", fetch),
    REFUSED("-mu", fetch),
    REFUSED("--docker-repo", fetch),
    REFUSED("--mmproj", media),
    REFUSED("-mm", media),
    REFUSED("--mmproj-url", media),
    REFUSED("--media-path", media),
    REFUSED("--lora", adapters),
    REFUSED("--lora-scaled", adapters),
    REFUSED("--control-vector", adapters),
    REFUSED("--tools", tools),
    REFUSED("--model-draft", "there is no draft model; where text repeats, tokens are guessed without one (--speculate)"),
    REFUSED("-md", "there is no draft model; where text repeats, tokens are guessed without one (--speculate)"),
    REFUSED("--models-dir", one_model),
    REFUSED("--models-preset", one_model),
    REFUSED("--models-max", one_model),
    REFUSED("--slot-save-path", "slots are not saved; prefixes are found again by themselves while they are in the KV cache"),
    REFUSED("--context-shift", "a sequence ends where the context is full; --ctx-size says how long it may be"),
    REFUSED("--sleep-idle-seconds", "the model stays loaded; socket activation of systemd starts the server when it is asked"),
};

const struct option_other *option_other_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(others) ? &others[i] : NULL; }

const struct option_other *option_other_find(const char *argument)
{
    size_t n = strcspn(argument, "=");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strlen(others[i].name) == n && strncmp(argument, others[i].name, n) == 0) {
            return &others[i];
        }
    }
    return NULL;
}
