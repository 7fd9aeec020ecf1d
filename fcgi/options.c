#include "fcgi/options.h"

#include "engine/backend/backend_layers.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/chat_named.h"
#include "engine/convert/convert_type.h"
#include "engine/kernels/kern.h"
#include "engine/plan/plan_quantize.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/cmd/bench_report.h"
#include "fcgi/cmd/manual.h"
#include "fcgi/commands.h"
#include "fcgi/ground/log.h"
#include "opencl/inventory.h"

#include <stddef.h>
#include <string.h>

/* --- accepted words, from the tables that define them
 * ---------------------------------------------------------------- */

static const char *cpu_name(int i) { return i == 0 ? "auto" : kern_isa_name(i - 1); }

static const char *speculate_name(int i) { return i == 0 ? "auto" : i == 1 ? "off" : NULL; }
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
        "names of the model, separated by commas, all accepted; the API shows the first in alphabetical order; default: the name "
        "of the file or folder, without .gguf"),
    OPTION("tags", NULL, OPTION_TEXT, SERVE, tags,
           "tags of the model in /v1/models, separated by commas; no other effect"),
    OPTION("socket", NULL, OPTION_FILE, SERVE, socket, "unix socket to listen on; default: the socket on descriptor 0"),
    OPTION("admin-socket", NULL, OPTION_FILE, SERVE, admin_socket,
           "unix socket for `infcgi ctl`, for the server's user and root alone; default: none"),
    OPTION("socket", NULL, OPTION_FILE, CTL, ctl_socket, "the server's admin socket, as it was told to listen",
           .fallback = "/run/infcgi-ctl/admin.sock"),
    OPTION(
        "master", NULL, OPTION_FLAG, SERVE, master,
        "hold the socket and let another process serve, which is started again when it dies, and replaced at SIGUSR2"),
    OPTION("config", NULL, OPTION_FILE, READ | CONVERT, config, "file of lines `name = value`, one option each"),
    OPTION("api-key-file", NULL, OPTION_FILE, SERVE, api_key_file,
           "file of API keys, one a line; SIGHUP reads it again"),
    OPTION("tenants", NULL, OPTION_FILE, SERVE, tenants,
           "file of tenants, their keys, parts and limits (docs/ops/tenants.md); SIGHUP reads it again"),
    OPTION("usage-log", NULL, OPTION_FILE, SERVE, usage_log,
           "file for a line of JSON about each request, at its end; SIGUSR1 opens it anew"),
    OPTION("share-cache", NULL, OPTION_FLAG, SERVE, share_cache,
           "API keys share the prefix cache: faster, but one can find out what another asked"),
    OPTION("chat-template", NULL, OPTION_FILE, ENGINE, chat_template,
           "a Jinja file, or a format by name, instead of the model file's chat template", .words = chat_named_name_at),
    OPTION("tool-format", NULL, OPTION_TEXT, SERVE, tool_format,
           "how the model writes calls of tools; default: as its chat template does", .words = chat_format_name_at),
    OPTION("threads", "-t", OPTION_INTEGER, MODEL | CONVERT, threads, "worker threads; 0: as many as CPUs",
           .fallback = "0", .max = 256),
    OPTION("ctx-size", "-c", OPTION_INTEGER, ENGINE, ctx_size,
           "longest sequence in tokens; 0: the model's, at most 32768", .fallback = "0", .max = 1 << 30),
    OPTION("ctx-size", "-c", OPTION_INTEGER, PERPLEXITY, window, "tokens of a window", .fallback = "512", .min = 4,
           .max = 1 << 20),
    OPTION("file", "-f", OPTION_FILE, PERPLEXITY, text_file, "the text", .required_by = PERPLEXITY,
           .operand_of = PERPLEXITY),
    OPTION("chunks", NULL, OPTION_INTEGER, PERPLEXITY, chunks, "windows at most; 0: all", .fallback = "0",
           .max = 1 << 30),
    OPTION(
        "kv-tokens", NULL, OPTION_INTEGER, ENGINE, kv_tokens,
        "tokens the KV cache holds in all; 0: 32768 or ctx-size, or as many less as memory is short of; encoders: "
        "twice batch-size and a little; where all layers have a window, it and batch-size stand for ctx-size; where only some have, "
        "these hold the windows of parallel sequences, and as many of prefixes",
        .fallback = "0", .max = 1 << 30),
    OPTION("cache-type-k", "-ctk", OPTION_TEXT, KERNELS, cache_type_k,
           "type of the keys in the KV cache; default: the first of these that the back end has",
           .words = backend_kv_type_name),
    OPTION("cache-type-v", "-ctv", OPTION_TEXT, KERNELS, cache_type_v, "type of the values; likewise",
           .words = backend_kv_type_name),
    OPTION("parallel", "-np", OPTION_INTEGER, SERVE, parallel,
           "sequences computed at once, and one short prompt beyond them; 0: 16; encoders: 64", .fallback = "0",
           .max = 1024),
    OPTION("batch-size", "-b", OPTION_INTEGER, MODEL, batch_size,
           "token rows in one step; 0: 512; encoders: at least ctx-size, as a text is computed in one piece",
           .fallback = "0", .max = 8192),
    OPTION(
        "queue-max", NULL, OPTION_INTEGER, SERVE, queue_max,
        "waiting sequences before 503, of requests of many at most half; a quarter more for clients within their part; 0: 256",
        .fallback = "0", .max = 100000),
    OPTION("memory-limit", NULL, OPTION_INTEGER, MODEL, memory_limit_mib,
           "refuse to start above so many MiB; 0: no limit", .fallback = "0", .max = 1 << 30),
    OPTION("request-memory", NULL, OPTION_INTEGER, SERVE, request_memory_mib,
           "MiB that all requests together may hold; 0: a quarter of the machine's memory, 256 to 8192",
           .fallback = "0", .max = 1 << 20),
    OPTION("cpu", NULL, OPTION_TEXT, READ | CONVERT, cpu, "instruction set of the kernels", .fallback = "auto",
           .words = cpu_name),
    OPTION("high-precision", NULL, OPTION_FLAG, MODEL, high_precision,
           "16-bit activations everywhere: nearer to float32, slower prefill"),
    OPTION("pin", NULL, OPTION_FLAG, MODEL, pin, "keep each worker thread on a CPU of its own"),
    OPTION("backend", NULL, OPTION_TEXT, KERNELS, backend,
           "what computes; of several back ends each with its layers, counted from 0, and the last with the rest: "
           "ref:0-3,cpu",
           .fallback = "cpu", .words = backend_name, .check = check_backend),
    OPTION("device", NULL, OPTION_TEXT, KERNELS | DEVICES, device,
           "OpenCL device, by its number or PCI address as `infcgi devices` lists them; several with commas share the "
           "layers of the model; auto: the best GPU",
           .fallback = "auto", .words = device_name, .check = inventory_check_name),
    OPTION("gpu-layers", "-ngl", OPTION_TEXT, KERNELS, gpu_layers,
           "layers of the model, from the first on, that the device computes, the CPU the rest: a number; auto: as "
           "many as its free memory has room for",
           .fallback = "all", .nothing = "0", .words = backend_layers_name, .check = check_layers),
    OPTION("pack-cache", NULL, OPTION_FILE, KERNELS, pack_cache,
           "folder where packed weights and OpenCL programs are kept for the next start; off: made at every start",
           .fallback = "off", .words = pack_cache_name),
    OPTION("log-level", NULL, OPTION_TEXT, SERVE, log_level, "what is logged: each has those before it, too",
           .fallback = "info", .words = log_level_name, .is_live = true),
    OPTION("log-file", NULL, OPTION_FILE, SERVE, log_file,
           "file that the log is added to, opened again at SIGUSR1; default: stderr"),
    OPTION("cache-dir", NULL, OPTION_FILE, SERVE, cache_dir,
           "folder, of mode 0700, where the prefix cache outlives the process: a conversation goes on after a restart"),
    OPTION("cache-disk-mib", NULL, OPTION_INTEGER, SERVE, cache_disk_mib,
           "MiB that it may take there; the least used goes", .fallback = "8192", .min = 1, .max = 1 << 30),
    OPTION(
        "slot-save-path", NULL, OPTION_FILE, SERVE, slot_save_path,
        "folder, of mode 0700, where POST /slots/N?action=save writes the tokens of a slot; default: slots are not saved"),
    OPTION("slow-log", NULL, OPTION_REAL, SERVE, slow_log_s,
           "seconds beyond which a request is told of in a line with its stages, without its text; 0: none is",
           .fallback = "0", .max = 86400),
    OPTION("slow-log-file", NULL, OPTION_FILE, SERVE, slow_log_file, "where these lines are added; default: the log"),
    OPTION("pooling", NULL, OPTION_TEXT, SERVE, pooling,
           "how states become an embedding; default: as the model file says", .words = plan_pooling_name),
    OPTION("quantize", NULL, OPTION_TEXT, KERNELS, quantize, "type that F32, F16 and BF16 weights become at load",
           .fallback = "off", .words = plan_quantize_name),
    OPTION("speculate", NULL, OPTION_TEXT, ENGINE, speculate,
           "guess tokens ahead where text repeats; answers are the same", .fallback = "auto", .words = speculate_name),
    OPTION("draft-max", NULL, OPTION_INTEGER, ENGINE, draft_max,
           "tokens of a sequence guessed ahead in one step; 0: 15", .fallback = "0", .max = 31),
    OPTION("max-connections", NULL, OPTION_INTEGER, SERVE, max_connections, "FastCGI connections served at once",
           .fallback = "1024", .min = 2, .max = 65536),
    OPTION("body-limit", NULL, OPTION_INTEGER, SERVE, body_limit_kib, "largest request body in KiB", .fallback = "4096",
           .min = 1, .max = 1 << 20, .is_live = true),
    OPTION("response-memory", NULL, OPTION_INTEGER, SERVE, response_memory_mib,
           "MiB that responses kept for /v1/responses may hold; 0: none is kept", .fallback = "64", .max = 1 << 20),
    OPTION("drain-timeout", NULL, OPTION_INTEGER, SERVE, drain_s, "seconds running requests get after SIGTERM",
           .fallback = "30", .max = 86400, .is_live = true),
    OPTION("drain-close", NULL, OPTION_FLAG, SERVE, drain_close,
           "close the socket at once after SIGTERM, for a second engine behind nginx; default: answer 503"),
    OPTION("step-limit", NULL, OPTION_INTEGER, SERVE, step_limit_s,
           "seconds after which a step is stuck, if twenty usual ones take no longer; 0: none ever is",
           .fallback = "10", .max = 86400, .is_live = true),
    OPTION("compute-limit", NULL, OPTION_INTEGER, SERVE, compute_limit_s,
           "CPU seconds a request may compute without progress; 0: no limit", .fallback = "10", .max = 86400,
           .is_live = true),
    OPTION("sse-ping-interval", NULL, OPTION_INTEGER, SERVE, ping_s, "seconds of silence before a comment in a stream",
           .fallback = "10", .min = 1, .max = 3600, .is_live = true),
    OPTION("timeout", NULL, OPTION_INTEGER, SERVE, timeout_s, "seconds a request may take, queue included; 0: no limit",
           .fallback = "0", .max = 86400, .is_live = true),
    OPTION("strict-api", NULL, OPTION_FLAG, SERVE, strict_api,
           "refuse unknown fields, and /v1/ requests without a model", .is_live = true),
    OPTION("n-predict", "-n", OPTION_INTEGER, SERVE, limit_predict,
           "tokens of an answer at most where a request does not say; -1, 0: as many as the context holds",
           .fallback = "-1", .min = -1, .max = 1 << 30, .is_live = true),
    OPTION("reasoning", "-rea", OPTION_TEXT, SERVE, reasoning,
           "whether models that may think do, where a request does not say; auto: as the chat template does",
           .fallback = "auto", .words = reasoning_name),
    OPTION("reasoning-format", NULL, OPTION_TEXT, SERVE, reasoning_format,
           "where thinking goes where a request does not say; none: it stays in the text of the answer",
           .fallback = "auto", .words = params_reasoning_format_name),
    OPTION("reasoning-effort", NULL, OPTION_TEXT, SERVE, reasoning_effort,
           "reasoning_effort of requests that name none; default: as the chat template does", .fallback = "default",
           .words = effort_name),
    OPTION("chat-template-kwargs", NULL, OPTION_TEXT, SERVE, chat_template_kwargs,
           "further variables of the chat template, a JSON object; a request's go before",
           .check = reasoning_check_kwargs),
    OPTION(
        "reasoning-budget", NULL, OPTION_INTEGER, SERVE, reasoning_budget,
        "tokens of thinking at most where a request does not say; 0: thinking ends at once; -1: as many as the model likes",
        .fallback = "-1", .min = -1, .max = INT32_MAX, .is_live = true),
    OPTION("reasoning-budget-message", NULL, OPTION_TEXT, SERVE, reasoning_budget_message,
           "what thinking ends with when they are spent; default: nothing but the mark of its end"),
    OPTION("seed", "-s", OPTION_INTEGER, SERVE, sampling.seed,
           "seed of requests that name none; 0: another one each time", .fallback = "0", .max = 9e15),
    OPTION("no-prefill-assistant", NULL, OPTION_FLAG, SERVE, no_prefill_assistant,
           "a last message of the assistant is followed by a new one; default: the answer goes on with it",
           .is_live = true),
    OPTION("no-slots", NULL, OPTION_FLAG, SERVE, no_slots, "GET /slots is answered 501", .is_live = true),
    OPTION("metrics", NULL, OPTION_FLAG, SERVE, metrics, "/metrics has what llama-server's has, under its names, too",
           .is_live = true),
    OPTION("no-metrics", NULL, OPTION_FLAG, SERVE, no_metrics,
           "/metrics is answered 501, as by llama-server without --metrics", .is_live = true),
    OPTION("any-model", NULL, OPTION_FLAG, SERVE, any_model, "answer for any model that a request names",
           .is_live = true),
    OPTION("closed-objects", NULL, OPTION_FLAG, SERVE, closed_objects,
           "generate only members that a JSON Schema names, unless it has additionalProperties"),
    OPTION("prompt", "-p", OPTION_TEXT, GENERATE, prompt, "the prompt", .required_by = GENERATE, .may_be_empty = true),
    OPTION("n-predict", "-n", OPTION_INTEGER, GENERATE, n_predict, "tokens at most; -1: until the context is full",
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
           "default repeat_penalty; 1: none; below 0.01: the model's, else 1", .fallback = "-1", .min = -1, .max = 10),
    OPTION("repeat-last-n", NULL, OPTION_INTEGER, ENGINE, sampling.repeat_last_n,
           "default repeat_last_n, tokens that penalties consider; -1: all; -2: the model's, else 64", .fallback = "-2",
           .min = -2, .max = INT32_MAX),
    OPTION("presence-penalty", NULL, OPTION_REAL, ENGINE, sampling.presence_penalty, "default presence_penalty",
           .fallback = "0", .min = -2, .max = 2),
    OPTION("frequency-penalty", NULL, OPTION_REAL, ENGINE, sampling.frequency_penalty, "default frequency_penalty",
           .fallback = "0", .min = -2, .max = 2),
    OPTION("n-predict", "-n", OPTION_INTEGER, CHAT, answer_tokens,
           "tokens of an answer at most; -1: until the context is full", .fallback = "-1", .min = -1, .max = 1 << 30),
    OPTION("system", "-sys", OPTION_TEXT, CHAT, system, "what the model is told before the conversation"),
    OPTION("seed", "-s", OPTION_INTEGER, GENERATE | CHAT, seed, "seed of the random numbers; 0: another one each time",
           .fallback = "0", .max = 9e15),
    OPTION("chat", NULL, OPTION_FLAG, GENERATE, chat, "wrap the prompt in the model's chat template"),
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
    OPTION("repetitions", "-r", OPTION_INTEGER, BENCH, repetitions, "timed runs, after one that is not",
           .fallback = "5", .min = 1, .max = CONF_MAX_REPETITIONS),
    OPTION("output", "-o", OPTION_TEXT, BENCH, output, "how rows are written", .fallback = "md",
           .words = bench_format_name),
    OPTION("kv", NULL, OPTION_FLAG, INSPECT, kv, "every metadata key with type and value"),
    OPTION("tensors", NULL, OPTION_FLAG, INSPECT, tensors, "every tensor with type, shape, offset and bytes"),
    OPTION("plan", NULL, OPTION_FLAG, INSPECT, plan,
           "every step the model is computed in, with buffers, weights and state; bytes and operations a token"),
    OPTION("template", NULL, OPTION_FLAG, INSPECT, template, "the chat template, byte for byte"),
    OPTION("check", NULL, OPTION_FLAG, INSPECT, check,
           "say nothing and exit 0 when the file is whole and can be served, else one line and exit 65"),
    OPTION(
        "verify", NULL, OPTION_FLAG, INSPECT, verify,
        "the same, and read every weight: one that is NaN or infinite is an error too (`numerical_error`), and so is a "
        "file with another sum than the SHA256SUMS beside it says"),
    OPTION("source", NULL, OPTION_FILE, CONVERT, source, "GGUF file, any part of a split one, or SafeTensors folder",
           .required_by = CONVERT, .operand_of = CONVERT),
    OPTION("target", NULL, OPTION_FILE, CONVERT, target, "GGUF file to write", .required_by = CONVERT,
           .operand_of = CONVERT),
    OPTION("type", NULL, OPTION_TEXT, CONVERT, type, "type of the weights; copy: as they are", .fallback = "copy",
           .words = convert_type_name),
    OPTION("imatrix", NULL, OPTION_FILE, CONVERT, imatrix,
           "importance matrix of llama-imatrix: errors are kept small where they matter"),
    OPTION("force", NULL, OPTION_FLAG, CONVERT, force, "replace the target if it is there"),
    OPTION("text", NULL, OPTION_TEXT, TOKENIZE, text, "what to tokenise; -: standard input", .fallback = "-",
           .operand_of = TOKENIZE, .may_be_empty = true),
    OPTION("ids", NULL, OPTION_FLAG, TOKENIZE, ids, "the ids alone, as a JSON array"),
    OPTION("no-bos", NULL, OPTION_FLAG, TOKENIZE, no_bos, "add no BOS or EOS, whatever the model asks for"),
    OPTION("parse-special", NULL, OPTION_FLAG, TOKENIZE, parse_special,
           "take <|im_start|> and the like in the text for the tokens they name"),
    OPTION("format", NULL, OPTION_TEXT, HELP, format, "a list of commands, or the manual of all, as one of these",
           .fallback = "text", .words = manual_format_name),
    OPTION("json", NULL, OPTION_FLAG, DEVICES, json, "the same and all else that is known, as JSON"),
    OPTION("json", NULL, OPTION_FLAG, CTL, json, "answers as JSON, one line each"),
    OPTION("json", NULL, OPTION_FLAG, PERPLEXITY, json, "figures as JSON"),
    OPTION("history", NULL, OPTION_FILE, CTL | CHAT, history,
           "file that keeps the lines that were typed; default: none"),
    OPTION("help", "-h", OPTION_FLAG, ALL, help, "this list"),
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
