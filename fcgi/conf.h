/* Options of the program: one table gives parsing, bounds, environment variables, configuration file keys and --help.
 * Precedence: command line, environment (INFCGI_<NAME>), file, default. Threads: read-only after conf_load. */
#ifndef INFCGI_FCGI_CONF_H
#define INFCGI_FCGI_CONF_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The commands whose options these are; the others have few, and tables of their own. */
enum conf_command { CONF_SERVE = 1, CONF_GENERATE = 2 };

/* "serve", "generate". */
const char *conf_command_name(enum conf_command command);

struct conf {
    const char *model;
    const char *alias;
    const char *socket;
    const char *api_key_file;
    const char *cpu;
    bool high_precision;
    bool pin;
    const char *backend;
    const char *pooling;
    const char *speculate;
    const char *cache_type_k, *cache_type_v;
    const char *config;
    const char *chat_template;
    const char *pack_cache;
    const char *quantize;
    const char *prompt;
    int64_t threads, ctx_size, kv_tokens, parallel, batch_size, queue_max, memory_limit_mib, request_memory_mib, draft_max;
    int64_t max_connections, body_limit_kib, drain_s, ping_s, timeout_s;
    int64_t n_predict, seed;
    double temperature, top_p, min_p; /* negative: not set */
    int64_t top_k;
    bool check_config, drain_close, strict_api, share_cache, help, version, chat;
    struct buf file; /* text of --config, which the strings above may point into */
};

/* Reads argv[1..argc) after the file and the environment. argv may hold options of `command` alone; file and
 * environment serve all commands, and what is not the command's own is read and left unused. ERR_CONFIG: info names the
 * option, what was expected and what was found. conf_fini frees. */
MUST_CHECK enum err conf_load(struct conf *c, enum conf_command command, int argc, char **argv, struct err_info *info);
void conf_fini(struct conf *c);

/* Appends a line per option of the command: names, default, range, help. */
void conf_help(enum conf_command command, struct buf *out);

/* The value of the environment variable of an option ("cpu": INFCGI_CPU), or NULL. */
const char *conf_environment(const char *option);

/* Decimal integer with an optional minus; false, and *out unchanged, for anything else or when it does not fit. */
MUST_CHECK bool conf_parse_integer(const char *s, int64_t *out);

/* The i-th option's name and help, for docs checks; NULL beyond the last. */
const char *conf_option_name(int i);

#endif
