/* The user's configuration: the options of a table (option.h), read from the command line, the environment
 * (INFCGI_<NAME>) and a file. The first of these sources that sets an option wins. Threads: read-only after
 * conf_load. */
#ifndef INFCGI_FCGI_CONF_H
#define INFCGI_FCGI_CONF_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* The commands; fcgi/commands.c has their table. */
enum conf_command {
    CONF_SERVE = 1,
    CONF_GENERATE = 2,
    CONF_BENCH = 4,
    CONF_INSPECT = 8,
    CONF_CONVERT = 16,
    CONF_TOKENIZE = 32,
    CONF_DEVICES = 64,
    CONF_CTL = 128,
    CONF_PERPLEXITY = 256,
    CONF_CHAT = 512,
    CONF_HELP = 1024 /* the last */
};

enum { CONF_MAX_OPTIONS = 160, CONF_FROM_BYTES = 64, CONF_NAMES_BYTES = 256 };
enum { CONF_MAX_VALUES = 16, CONF_MAX_BENCH_SEQS = 64, CONF_MAX_REPETITIONS = 100 };

/* The values of a list option. */
struct conf_list {
    int n, at[CONF_MAX_VALUES];
};

struct option;
struct option_table;

/* What conf_load reads. argv[1..argc) can hold only options of the command. */
struct conf_given {
    const struct option_table *options; /* the table that the values belong to */
    enum conf_command command;
    int argc;
    char **argv;
};

/* The values of the options. A string is NULL if neither the user nor the table sets it. */
struct conf {
    struct conf_given given;
    const char *model;
    const char *alias, *tags; /* lists in the form of model_names.h */
    const char *socket;
    const char *api_key_file;
    const char *tenants;
    const char *usage_log;
    const char *cpu;
    bool high_precision;
    bool pin;
    const char *backend;
    const char *device;
    const char *gpu_layers;
    const char *pooling;
    const char *tool_format;
    const char *speculate;
    const char *draft_model;
    double draft_p_min;
    const char *cache_type_k, *cache_type_v;
    const char *config;
    const char *chat_template;
    const char *pack_cache;
    const char *cache_dir;
    const char *slot_save_path;
    const char *quantize;
    const char *prompt;
    int64_t threads, ctx_size, kv_tokens, parallel, batch_size, queue_max, memory_limit_mib, request_memory_mib,
        draft_max;
    int64_t max_connections, body_limit_kib, response_memory_mib, drain_s, step_limit_s, compute_limit_s, ping_s,
        timeout_s;
    int64_t cache_disk_mib;
    int64_t n_predict, seed;
    int64_t limit_predict; /* of serve */
    int64_t reasoning_budget;
    const char *reasoning_budget_message;
    const char *reasoning, *reasoning_format, *reasoning_effort, *chat_template_kwargs;
    struct engine_sampling sampling;
    bool check_config, master;
    bool drain_close, strict_api, any_model, closed_objects, share_cache, no_slots, no_prefill_assistant, metrics,
        no_metrics, no_warmup, help, version, chat;
    struct conf_list n_prompt, n_gen, n_depth, n_seqs, batch_sizes, thread_counts; /* of bench */
    int64_t repetitions;
    double accept;
    const char *output;
    bool kv, tensors, plan, template, check, verify; /* of inspect */
    const char *source, *target, *type, *imatrix;    /* of convert */
    bool force;
    const char *text; /* of tokenize */
    bool ids, no_bos, parse_special;
    const char *format;       /* of help */
    bool json;                /* of devices, ctl, perplexity */
    const char *admin_socket; /* of serve */
    double slow_log_s;
    const char *slow_log_file;
    const char *log_level, *log_file;
    const char *ctl_socket, *history; /* of ctl; of ctl and chat */
    const char *text_file;            /* of perplexity */
    int64_t window, chunks;
    const char *system; /* of chat */
    int64_t answer_tokens;
    struct buf file;                              /* text of --config; the strings above can point into it */
    char overrides[CONF_NAMES_BYTES];             /* "INFCGI_MODEL, INFCGI_THREADS": variables that override the file */
    char from[CONF_MAX_OPTIONS][CONF_FROM_BYTES]; /* source of each value, by table row: "command line"; "": not set */
};

/* Reads the file, then the environment, then the arguments. The file serves all commands: options of other commands are
 * checked and ignored. conf_check checks that required options are present. ERR_CONFIG: info names the option, the
 * expected and the found value. conf_fini frees *c. */
MUST_CHECK enum err conf_load(struct conf *c, const struct conf_given *given, struct err_info *info);
void conf_fini(struct conf *c);

/* What rereading found. */
struct conf_changes {
    int n_live;                     /* live options that changed */
    char waiting[CONF_NAMES_BYTES]; /* changed options that are not live, "model, threads" */
};

/* Rereads the live options (option.h) of a server: *next is a copy of *now with new values. *now must outlive *next.
 * ERR_CONFIG as conf_load; then *next must not be used. */
MUST_CHECK enum err conf_reread(const struct conf *now, struct conf *next, struct conf_changes *changes,
                                struct err_info *info);

/* Writes the names of a server's options that differ, "model, threads", to names[0..cap). */
void conf_differences(const struct conf *a, const struct conf *b, char *names, size_t cap);

/* Checks that all options that the command requires are set. ERR_CONFIG: one is missing. */
MUST_CHECK enum err conf_check(const struct conf *c, struct err_info *info);

/* Appends the value of an option in command-line form, or nothing if the option has no value. */
void conf_write_value(const struct conf *c, const struct option *o, struct buf *out);

/* Returns the value of the option's environment variable ("cpu": INFCGI_CPU), or NULL. */
const char *conf_environment(const char *option);

/* Sets a library's own environment variable unless the user has set it. Call before any thread starts. */
void conf_default_environment(const char *name, const char *value);

/* Returns the environment variable of exactly that name, which is no option's, or NULL. conf_set_variable sets it; call
 * it before any thread starts. */
const char *conf_variable(const char *name);
void conf_set_variable(const char *name, const char *value);

#endif
