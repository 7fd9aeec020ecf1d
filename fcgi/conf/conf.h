/* What the user asked for: the options of a table (option.h), read from the command line, the environment
 * (INFCGI_<NAME>) and a file; the first of these that names one counts. Threads: read-only after conf_load. */
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

enum { CONF_MAX_OPTIONS = 160, CONF_FROM_BYTES = 64, CONF_OVERRIDES_BYTES = 256 };
enum { CONF_MAX_VALUES = 16, CONF_MAX_BENCH_SEQS = 64, CONF_MAX_REPETITIONS = 100 };

/* The values of an option that takes several. */
struct conf_list {
    int n, at[CONF_MAX_VALUES];
};

struct option;
struct option_table;

/* The values of the options; a string is NULL where neither the user nor the table names one. */
struct conf {
    const struct option_table *options; /* of which these are the values */
    const char *model;
    const char *alias, *tags; /* lists, as model_names.h reads */
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
        no_metrics, help, version, chat;
    struct conf_list n_prompt, n_gen, n_depth, n_seqs, batch_sizes, thread_counts; /* of bench */
    int64_t repetitions;
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
    struct buf file; /* text of --config, which the strings above may point into */
    char overrides
        [CONF_OVERRIDES_BYTES]; /* variables of the environment with other values than the file: "INFCGI_MODEL, INFCGI_THREADS" */
    char from[CONF_MAX_OPTIONS]
             [CONF_FROM_BYTES]; /* who said so, by the row of the table: "command line"; "" = nobody */
};

/* Reads argv[1..argc) after the file and the environment. argv may hold options of `command` alone; the file serves all
 * commands, and what is not the command's own is checked and left unused. Whether what the command needs is there is
 * conf_check's to say. ERR_CONFIG: info names the option, what was expected and what was found. conf_fini frees. */
MUST_CHECK enum err conf_load(struct conf *c, const struct option_table *options, enum conf_command command, int argc,
                              char **argv, struct err_info *info);
void conf_fini(struct conf *c);

/* Of a server: *next becomes *now, which must outlive it, with the values of live options (option.h) that are read anew. *n_changed: so
 * many are others; waiting[0..cap): names of options that are others, too, and are not live, "model, threads". ERR_CONFIG as conf_load:
 * *next is then not to be used. */
MUST_CHECK enum err conf_reread(const struct conf *now, int argc, char **argv, struct conf *next, int *n_changed,
                                char *waiting, size_t cap, struct err_info *info);

/* Writes the names of a server's options that differ, "model, threads", to names[0..cap), and returns how many do. */
int conf_differences(const struct conf *a, const struct conf *b, char *names, size_t cap);

/* ERR_CONFIG: an option that the command cannot do without is missing. */
MUST_CHECK enum err conf_check(const struct conf *c, enum conf_command command, struct err_info *info);

/* Appends the value of an option as one would give it; nothing where there is none. */
void conf_write_value(const struct conf *c, const struct option *o, struct buf *out);

/* The value of the environment variable of an option ("cpu": INFCGI_CPU), or NULL. */
const char *conf_environment(const char *option);

/* Gives a library's own variable a value, unless the user has given it one. Before any thread starts. */
void conf_default_environment(const char *name, const char *value);

/* The environment variable of that very name, which is no option's, or NULL; and giving it a value, before any thread starts. */
const char *conf_variable(const char *name);
void conf_set_variable(const char *name, const char *value);

#endif
