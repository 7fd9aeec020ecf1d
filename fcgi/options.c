#include "fcgi/tables.h"

#include "engine/backend/backend_layers.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/chat_named.h"
#include "engine/convert/convert_type.h"
#include "engine/kernels/kern.h"
#include "engine/plan/plan_quantize.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/cmd/manual.h"
#include "fcgi/cmd/model/bench_report.h"
#include "fcgi/ground/log.h"
#include "opencl/inventory.h"

#include <stddef.h>
#include <string.h>

/* --- accepted words, from the tables that define them
 * ---------------------------------------------------------------- */

static const char *cpu_name(int i) { return i == 0 ? "auto" : kern_isa_name(i - 1); }

static const char *effort_name(int i) { return i == 0 ? "default" : reasoning_effort_name(i - 1); }

static const char *reasoning_name(int i)
{
    static const char *const names[] = {"auto", "on", "off"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

static const char *pack_cache_name(int i) { return i == 0 ? "off" : NULL; }

static enum err check_backend(const char *value, const char *what, struct err_info *info)
{
    struct backend_parts parts;
    return backend_parts_parse(value, what, 0, &parts, info);
}

static enum err check_layers(const char *value, const char *what, struct err_info *info)
{
    return backend_layers_parse(value, what, NULL, info);
}

static enum err check_speculate(const char *value, const char *what, struct err_info *info)
{
    return engine_draft_parse(value, what, NULL, info);
}

static const char *device_name(int i) { return i == 0 ? "auto" : NULL; }

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum {
    SERVE = CONF_SERVE,
    GENERATE = CONF_GENERATE,
    BENCH = CONF_BENCH,
    INSPECT = CONF_INSPECT,
    CONVERT = CONF_CONVERT,
    TOKENIZE = CONF_TOKENIZE,
    DEVICES = CONF_DEVICES,
    HELP = CONF_HELP,
    CTL = CONF_CTL,
    CHAT = CONF_CHAT,
    PERPLEXITY = CONF_PERPLEXITY,
    ENGINE = SERVE | GENERATE | CHAT,    /* commands whose engine answers */
    MODEL = ENGINE | PERPLEXITY,         /* commands with an engine */
    KERNELS = MODEL | BENCH,             /* options that open a back end */
    READ = KERNELS | INSPECT | TOKENIZE, /* commands that read one model */
    ALL = READ | CONVERT | DEVICES | HELP | CTL,
};
enum { MOST_TOKENS = 1 << 20 }; /* per run of bench */

#define OPTION(name_, brief_, kind_, commands_, field, help_, ...)                                                     \
    {                                                                                                                  \
        .name = name_, .brief = brief_, .kind = kind_, .commands = commands_, .offset = offsetof(struct conf, field),  \
        .help = help_, __VA_ARGS__                                                                                     \
    }

static const struct option options[] = {
    OPTION("model", "-m", OPTION_FILE, READ, model, "GGUF file or SafeTensors folder", .required_by = READ,
           .operand_of = INSPECT | TOKENIZE),
    OPTION(
        "alias", "-a", OPTION_TEXT, SERVE, alias,
        "accepted model names, separated by commas; the API shows the first alphabetically; default: file or folder name "
        "without .gguf"),
    OPTION("tags", NULL, OPTION_TEXT, SERVE, tags, "model tags in /v1/models, separated by commas; no other effect"),
    OPTION("socket", NULL, OPTION_FILE, SERVE, socket, "unix socket to listen on; default: descriptor 0"),
    OPTION("admin-socket", NULL, OPTION_FILE, SERVE, admin_socket,
           "unix socket for `infcgi ctl`, for the server's user and root; default: none"),
    OPTION("socket", NULL, OPTION_FILE, CTL, ctl_socket, "admin socket of the server",
           .fallback = "/run/infcgi-ctl/admin.sock"),
    OPTION("master", NULL, OPTION_FLAG, SERVE, master,
           "hold the socket and run a worker, restarted if it dies, replaced at SIGUSR2"),
    OPTION("config", NULL, OPTION_FILE, READ | CONVERT, config, "file of `name = value` lines, one option each"),
    OPTION("api-key-file", NULL, OPTION_FILE, SERVE, api_key_file, "file of API keys, one per line; SIGHUP reloads it"),
    OPTION("tenants", NULL, OPTION_FILE, SERVE, tenants,
           "file of tenants, keys, shares and limits (docs/ops/tenants.md); SIGHUP reloads it"),
    OPTION("usage-log", NULL, OPTION_FILE, SERVE, usage_log,
           "file for one JSON line per finished request; SIGUSR1 reopens it"),
    OPTION("share-cache", NULL, OPTION_FLAG, SERVE, share_cache,
           "API keys share the prefix cache: faster, but exposes what others asked"),
    OPTION("chat-template", NULL, OPTION_FILE, ENGINE, chat_template,
           "Jinja file or format name; default: the model file's chat template", .words = chat_named_name_at),
    OPTION("tool-format", NULL, OPTION_TEXT, SERVE, tool_format,
           "syntax of the model's tool calls; default: as in its chat template", .words = chat_format_name_at),
    OPTION("threads", "-t", OPTION_INTEGER, MODEL | CONVERT, threads, "worker threads; 0: as many as CPUs",
           .fallback = "0", .max = 256),
    OPTION("ctx-size", "-c", OPTION_INTEGER, ENGINE, ctx_size,
           "longest sequence in tokens; 0: the model's, at most 32768", .fallback = "0", .max = 1 << 30),
    OPTION("ctx-size", "-c", OPTION_INTEGER, PERPLEXITY, window, "tokens per window", .fallback = "512", .min = 4,
           .max = 1 << 20),
    OPTION("file", "-f", OPTION_FILE, PERPLEXITY, text_file, "text", .required_by = PERPLEXITY,
           .operand_of = PERPLEXITY),
    OPTION("chunks", NULL, OPTION_INTEGER, PERPLEXITY, chunks, "maximum windows; 0: all", .fallback = "0",
           .max = 1 << 30),
    OPTION("kv-tokens", NULL, OPTION_INTEGER, ENGINE, kv_tokens,
           "KV cache size in tokens; 0: 32768 or ctx-size, less if memory is short or all layers have a window. "
           "Encoders: about twice batch-size. Models without attention: ctx-size for each sequence, at most 1048576",
           .fallback = "0", .max = 1 << 30),
    OPTION("cache-type-k", "-ctk", OPTION_TEXT, KERNELS, cache_type_k,
           "type of keys in the KV cache; default: the back end's first of these", .words = backend_kv_type_name),
    OPTION("cache-type-v", "-ctv", OPTION_TEXT, KERNELS, cache_type_v, "type of values; likewise",
           .words = backend_kv_type_name),
    OPTION("parallel", "-np", OPTION_INTEGER, SERVE, parallel,
           "sequences computed together, plus one short prompt; 0: 16; encoders: 64", .fallback = "0", .max = 1024),
    OPTION("batch-size", "-b", OPTION_INTEGER, MODEL, batch_size,
           "token rows per step; 0: 512; encoders: at least ctx-size", .fallback = "0", .max = 8192),
    OPTION(
        "queue-max", NULL, OPTION_INTEGER, SERVE, queue_max,
        "queued sequences before 503; one request can fill half; clients within their share get a quarter more; 0: 256",
        .fallback = "0", .max = 100000),
    OPTION("memory-limit", NULL, OPTION_INTEGER, MODEL, memory_limit_mib,
           "memory limit in MiB, checked at start; 0: none", .fallback = "0", .max = 1 << 30),
    OPTION("request-memory", NULL, OPTION_INTEGER, SERVE, request_memory_mib,
           "memory for all requests in MiB; 0: a quarter of the machine's, 256 to 8192", .fallback = "0",
           .max = 1 << 20),
    OPTION("cpu", NULL, OPTION_TEXT, READ | CONVERT, cpu, "instruction set of the kernels", .fallback = "auto",
           .words = cpu_name),
    OPTION("high-precision", NULL, OPTION_FLAG, MODEL, high_precision,
           "16-bit activations everywhere: closer to float32, slower prefill"),
    OPTION("pin", NULL, OPTION_FLAG, MODEL, pin, "pin each worker thread to its own CPU"),
    OPTION("backend", NULL, OPTION_TEXT, KERNELS, backend,
           "back end; several with their layers, counted from 0, the last takes the rest: ref:0-3,cpu",
           .fallback = "cpu", .words = backend_name, .check = check_backend),
    OPTION(
        "device", NULL, OPTION_TEXT, KERNELS | DEVICES, device,
        "OpenCL device, by number or PCI address in `infcgi devices`; several, separated by commas, share the layers; "
        "auto: the best GPU",
        .fallback = "auto", .words = device_name, .check = inventory_check_name),
    OPTION("gpu-layers", "-ngl", OPTION_TEXT, KERNELS, gpu_layers,
           "number of first layers that the device computes, the CPU the rest; auto: as many as its free memory holds",
           .fallback = "all", .nothing = "0", .words = backend_layers_name, .check = check_layers),
    OPTION("pack-cache", NULL, OPTION_FILE, KERNELS, pack_cache,
           "folder that keeps packed weights and OpenCL programs across starts; off: rebuild each time",
           .fallback = "off", .words = pack_cache_name),
    OPTION("log-level", NULL, OPTION_TEXT, SERVE, log_level, "log level; each includes those before it",
           .fallback = "info", .words = log_level_name, .is_live = true),
    OPTION("log-file", NULL, OPTION_FILE, SERVE, log_file,
           "file to append the log to; SIGUSR1 reopens it; default: stderr"),
    OPTION("cache-dir", NULL, OPTION_FILE, SERVE, cache_dir,
           "folder of mode 0700 that keeps the prefix cache across restarts"),
    OPTION("cache-disk-mib", NULL, OPTION_INTEGER, SERVE, cache_disk_mib,
           "size of cache-dir in MiB, least used deleted", .fallback = "8192", .min = 1, .max = 1 << 30),
    OPTION("slot-save-path", NULL, OPTION_FILE, SERVE, slot_save_path,
           "folder of mode 0700 where POST /slots/N?action=save stores slots; default: none"),
    OPTION("slow-log", NULL, OPTION_REAL, SERVE, slow_log_s,
           "log requests that take longer, in seconds, without text; 0: off", .fallback = "0", .max = 86400),
    OPTION("slow-log-file", NULL, OPTION_FILE, SERVE, slow_log_file, "file for these lines; default: the log"),
    OPTION("pooling", NULL, OPTION_TEXT, SERVE, pooling, "pooling of states to an embedding; default: the model file's",
           .words = plan_pooling_name),
    OPTION("quantize", NULL, OPTION_TEXT, KERNELS, quantize, "load-time type of F32, F16 and BF16 weights",
           .fallback = "off", .words = plan_quantize_name),
    OPTION("speculate", NULL, OPTION_TEXT, ENGINE, speculate,
           "sources of draft tokens, separated by commas: repeated text, the model's prediction head, --draft-model; "
           "same answers",
           .fallback = "auto", .words = engine_draft_word, .check = check_speculate),
    OPTION(
        "draft-model", "-md", OPTION_FILE, ENGINE | BENCH, draft_model,
        "smaller model with the same vocabulary, or prediction head, that drafts tokens; GGUF or folder; default: none"),
    OPTION("draft-p-min", NULL, OPTION_REAL, ENGINE, draft_p_min,
           "least probability of a token that the head or the draft model guesses", .fallback = "0", .max = 1),
    OPTION("draft-max", NULL, OPTION_INTEGER, ENGINE, draft_max,
           "draft tokens per sequence and step; 0: 15, with recurrent states 7", .fallback = "0", .max = 31),
    OPTION("max-connections", NULL, OPTION_INTEGER, SERVE, max_connections, "maximum FastCGI connections",
           .fallback = "1024", .min = 2, .max = 65536),
    OPTION("body-limit", NULL, OPTION_INTEGER, SERVE, body_limit_kib, "maximum request body in KiB", .fallback = "4096",
           .min = 1, .max = 1 << 20, .is_live = true),
    OPTION("response-memory", NULL, OPTION_INTEGER, SERVE, response_memory_mib,
           "memory for kept /v1/responses in MiB; 0: none are kept", .fallback = "64", .max = 1 << 20),
    OPTION("drain-timeout", NULL, OPTION_INTEGER, SERVE, drain_s, "seconds for running requests after SIGTERM",
           .fallback = "30", .max = 86400, .is_live = true),
    OPTION("drain-close", NULL, OPTION_FLAG, SERVE, drain_close,
           "close the socket on SIGTERM, for a second engine behind nginx; default: answer 503"),
    OPTION("step-limit", NULL, OPTION_INTEGER, SERVE, step_limit_s,
           "seconds until a step is stuck, if 20 usual steps are shorter; 0: never", .fallback = "10", .max = 86400,
           .is_live = true),
    OPTION("compute-limit", NULL, OPTION_INTEGER, SERVE, compute_limit_s,
           "CPU seconds per request without progress; 0: no limit", .fallback = "10", .max = 86400, .is_live = true),
    OPTION("sse-ping-interval", NULL, OPTION_INTEGER, SERVE, ping_s, "silent seconds before a comment in a stream",
           .fallback = "10", .min = 1, .max = 3600, .is_live = true),
    OPTION("timeout", NULL, OPTION_INTEGER, SERVE, timeout_s, "request deadline in seconds, with queue time; 0: none",
           .fallback = "0", .max = 86400, .is_live = true),
    OPTION("strict-api", NULL, OPTION_FLAG, SERVE, strict_api, "reject unknown fields, and /v1/ requests without model",
           .is_live = true),
    OPTION("n-predict", "-n", OPTION_INTEGER, SERVE, limit_predict,
           "default maximum answer tokens; -1, 0: until the context is full", .fallback = "-1", .min = -1,
           .max = 1 << 30, .is_live = true),
    OPTION("reasoning", "-rea", OPTION_TEXT, SERVE, reasoning,
           "default for thinking, if the model supports it; auto: as in the chat template", .fallback = "auto",
           .words = reasoning_name),
    OPTION("reasoning-format", NULL, OPTION_TEXT, SERVE, reasoning_format,
           "default place of thinking; none: in the text of the answer", .fallback = "auto",
           .words = params_reasoning_format_name),
    OPTION("reasoning-effort", NULL, OPTION_TEXT, SERVE, reasoning_effort,
           "default reasoning_effort; default: as in the chat template", .fallback = "default", .words = effort_name),
    OPTION("chat-template-kwargs", NULL, OPTION_TEXT, SERVE, chat_template_kwargs,
           "chat template variables, a JSON object; a request's override", .check = reasoning_check_kwargs),
    OPTION("reasoning-budget", NULL, OPTION_INTEGER, SERVE, reasoning_budget,
           "default maximum thinking tokens; 0: none; -1: no limit", .fallback = "-1", .min = -1, .max = INT32_MAX,
           .is_live = true),
    OPTION("reasoning-budget-message", NULL, OPTION_TEXT, SERVE, reasoning_budget_message,
           "text that ends thinking at the budget; default: the end mark only"),
    OPTION("seed", "-s", OPTION_INTEGER, SERVE, sampling.seed, "default seed of requests; 0: random each time",
           .fallback = "0", .max = 9e15),
    OPTION("no-prefill-assistant", NULL, OPTION_FLAG, SERVE, no_prefill_assistant,
           "start a new message after a last assistant message; default: continue it", .is_live = true),
    OPTION("no-warmup", NULL, OPTION_FLAG, SERVE, no_warmup,
           "start without a computation that tests the model; the first request takes longer"),
    OPTION("no-slots", NULL, OPTION_FLAG, SERVE, no_slots, "answer GET /slots with 501", .is_live = true),
    OPTION("metrics", NULL, OPTION_FLAG, SERVE, metrics, "add llama-server's metrics to /metrics, under its names",
           .is_live = true),
    OPTION("no-metrics", NULL, OPTION_FLAG, SERVE, no_metrics, "answer /metrics with 501, like llama-server's default",
           .is_live = true),
    OPTION("any-model", NULL, OPTION_FLAG, SERVE, any_model, "accept any model name in requests", .is_live = true),
    OPTION("closed-objects", NULL, OPTION_FLAG, SERVE, closed_objects,
           "generate only members of a JSON Schema, unless it has additionalProperties"),
    OPTION("prompt", "-p", OPTION_TEXT, GENERATE, prompt, "the prompt", .required_by = GENERATE, .may_be_empty = true),
    OPTION("n-predict", "-n", OPTION_INTEGER, GENERATE, n_predict, "maximum tokens; -1: until the context is full",
           .fallback = "128", .min = -1, .max = 1 << 30),
    OPTION("temp", NULL, OPTION_REAL, ENGINE, sampling.temperature,
           "default temperature; 0: greedy; -1: the model's, else 0.8", .fallback = "-1", .min = -1, .max = 2),
    OPTION("top-k", NULL, OPTION_INTEGER, ENGINE, sampling.top_k, "default top_k; 0: off; -1: the model's, else 40",
           .fallback = "-1", .min = -1, .max = INT32_MAX),
    OPTION("top-p", NULL, OPTION_REAL, ENGINE, sampling.top_p, "default top_p; 1: off; -1: the model's, else 0.95",
           .fallback = "-1", .min = -1, .max = 1),
    OPTION("min-p", NULL, OPTION_REAL, ENGINE, sampling.min_p, "default min_p; 0: off; -1: the model's, else 0.05",
           .fallback = "-1", .min = -1, .max = 1),
    OPTION("typical-p", NULL, OPTION_REAL, ENGINE, sampling.typical_p, "default typical_p; 1: off", .fallback = "1",
           .max = 1),
    OPTION("repeat-penalty", NULL, OPTION_REAL, ENGINE, sampling.repeat_penalty,
           "default repeat_penalty; 1: off; below 0.01: the model's, else 1", .fallback = "-1", .min = -1, .max = 10),
    OPTION("repeat-last-n", NULL, OPTION_INTEGER, ENGINE, sampling.repeat_last_n,
           "default repeat_last_n, tokens for penalties; -1: all; -2: the model's, else 64", .fallback = "-2",
           .min = -2, .max = INT32_MAX),
    OPTION("presence-penalty", NULL, OPTION_REAL, ENGINE, sampling.presence_penalty, "default presence_penalty",
           .fallback = "0", .min = -2, .max = 2),
    OPTION("frequency-penalty", NULL, OPTION_REAL, ENGINE, sampling.frequency_penalty, "default frequency_penalty",
           .fallback = "0", .min = -2, .max = 2),
    OPTION("n-predict", "-n", OPTION_INTEGER, CHAT, answer_tokens,
           "maximum answer tokens; -1: until the context is full", .fallback = "-1", .min = -1, .max = 1 << 30),
    OPTION("system", "-sys", OPTION_TEXT, CHAT, system, "system message"),
    OPTION("seed", "-s", OPTION_INTEGER, GENERATE | CHAT, seed, "random seed; 0: another each time", .fallback = "0",
           .max = 9e15),
    OPTION("chat", NULL, OPTION_FLAG, GENERATE, chat, "apply the model's chat template"),
    OPTION("check-config", NULL, OPTION_FLAG, SERVE, check_config, "check options, model file and keys, then exit"),
    OPTION("n-prompt", "-p", OPTION_LIST, BENCH, n_prompt, "prompt tokens to prefill", .fallback = "512",
           .max = MOST_TOKENS),
    OPTION("n-gen", "-n", OPTION_LIST, BENCH, n_gen, "tokens to decode", .fallback = "128", .max = MOST_TOKENS),
    OPTION("n-depth", "-d", OPTION_LIST, BENCH, n_depth, "positions already in the KV cache", .fallback = "0",
           .max = MOST_TOKENS),
    OPTION("n-seqs", "-s", OPTION_LIST, BENCH, n_seqs, "sequences decoded together", .fallback = "1", .min = 1,
           .max = CONF_MAX_BENCH_SEQS),
    OPTION("batch-size", "-b", OPTION_LIST, BENCH, batch_sizes, "rows of a prefill step; 0: 512", .fallback = "0",
           .max = 8192),
    OPTION("threads", "-t", OPTION_LIST, BENCH, thread_counts, "worker threads; 0: as many as CPUs", .fallback = "0",
           .max = 256),
    OPTION("repetitions", "-r", OPTION_INTEGER, BENCH, repetitions, "timed runs, after an untimed one", .fallback = "5",
           .min = 1, .max = CONF_MAX_REPETITIONS),
    OPTION(
        "accept", NULL, OPTION_REAL, BENCH, accept,
        "decode with drafts, by --draft-model or the model's prediction head, each of which comes true with this drawn "
        "probability: for their cost only; -1: without",
        .fallback = "-1", .min = -1, .max = 1),
    OPTION("draft-max", NULL, OPTION_INTEGER, BENCH, draft_max, "drafts of a step with --accept; 0: 3", .fallback = "0",
           .max = 31),
    OPTION("output", "-o", OPTION_TEXT, BENCH, output, "output format", .fallback = "md", .words = bench_format_name),
    OPTION("kv", NULL, OPTION_FLAG, INSPECT, kv, "every metadata key with type and value"),
    OPTION("tensors", NULL, OPTION_FLAG, INSPECT, tensors, "every tensor with type, shape, offset and bytes"),
    OPTION("plan", NULL, OPTION_FLAG, INSPECT, plan,
           "every computing step with buffers, weights, state; bytes and operations per token"),
    OPTION("template", NULL, OPTION_FLAG, INSPECT, template, "the chat template, byte for byte"),
    OPTION("check", NULL, OPTION_FLAG, INSPECT, check,
           "exit 0 silently if the file is whole and usable, else one line and 65"),
    OPTION(
        "verify", NULL, OPTION_FLAG, INSPECT, verify,
        "check, and read all weights: fails on NaN or infinity (`numerical_error`) and if sums differ from a SHA256SUMS "
        "next to the file"),
    OPTION("source", NULL, OPTION_FILE, CONVERT, source, "GGUF file, any part of a split one, or SafeTensors folder",
           .required_by = CONVERT, .operand_of = CONVERT),
    OPTION("target", NULL, OPTION_FILE, CONVERT, target, "GGUF file to write", .required_by = CONVERT,
           .operand_of = CONVERT),
    OPTION("type", NULL, OPTION_TEXT, CONVERT, type, "type of weights; copy: unchanged", .fallback = "copy",
           .words = convert_type_name),
    OPTION("imatrix", NULL, OPTION_FILE, CONVERT, imatrix,
           "importance matrix of llama-imatrix; reduces errors where they matter"),
    OPTION("force", NULL, OPTION_FLAG, CONVERT, force, "overwrite an existing target"),
    OPTION("text", NULL, OPTION_TEXT, TOKENIZE, text, "text; -: standard input", .fallback = "-",
           .operand_of = TOKENIZE, .may_be_empty = true),
    OPTION("ids", NULL, OPTION_FLAG, TOKENIZE, ids, "only the ids, as a JSON array"),
    OPTION("no-bos", NULL, OPTION_FLAG, TOKENIZE, no_bos, "never add BOS or EOS"),
    OPTION("parse-special", NULL, OPTION_FLAG, TOKENIZE, parse_special,
           "parse <|im_start|> and the like as special tokens"),
    OPTION("format", NULL, OPTION_TEXT, HELP, format, "list of commands, or manual, in this format", .fallback = "text",
           .words = manual_format_name),
    OPTION("json", NULL, OPTION_FLAG, DEVICES, json, "all data as JSON"),
    OPTION("json", NULL, OPTION_FLAG, CTL, json, "answers as JSON, one line each"),
    OPTION("json", NULL, OPTION_FLAG, PERPLEXITY, json, "figures as JSON"),
    OPTION("history", NULL, OPTION_FILE, CTL | CHAT, history, "file for typed lines; default: none"),
    OPTION("help", "-h", OPTION_FLAG, ALL, help, "this help"),
    OPTION("version", "-V", OPTION_FLAG, ALL, version, "version and kernels"),
};

_Static_assert(ARRAY_LEN(options) <= CONF_MAX_OPTIONS, "CONF_MAX_OPTIONS must grow");

static bool is_for(const struct option *o, const char *backend)
{
    struct backend_parts parts;
    struct err_info ignored;
    bool is_one = backend_parts_parse(backend, "", 0, &parts, &ignored) == ERR_OK, is_for = !is_one;
    for (int i = 0; is_one && i < parts.n; i++) {
        is_for |= backend_has_option(parts.at[i].backend, o->name);
    }
    return is_for;
}

static const char *backend_of(const struct option *o)
{
    const struct backend *b;
    int i = 0;
    while ((b = backend_at(i)) != NULL && !backend_has_option(b, o->name)) {
        i++;
    }
    return b != NULL ? b->name : "cpu";
}

const struct option_table options_table = {.rows = options,
                                           .n = ARRAY_LEN(options),
                                           .others = options_llama,
                                           .name_commands = commands_names,
                                           .is_for = is_for,
                                           .backend_of = backend_of};
