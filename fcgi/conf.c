/* The option table and its three readers. Numbers are parsed by hand: strtol takes signs and spaces nobody meant. */
#include "fcgi/conf.h"

#include "engine/base/io.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { STRING, INTEGER, REAL, FLAG };
enum { SERVE = CONF_SERVE, GENERATE = CONF_GENERATE, BOTH = CONF_SERVE | CONF_GENERATE };
enum { FILE_LIMIT_BYTES = 64 << 10, NAME_BYTES = 64 };

struct option {
    const char *name;  /* --name, [file] name, INFCGI_NAME */
    const char *brief; /* "-m", or NULL */
    enum kind kind;
    unsigned commands; /* that take it: bits of enum conf_command */
    size_t offset;
    double min, max, fallback; /* numbers */
    const char *help;
};

#define AT(field) offsetof(struct conf, field)

static const struct option options[] = {
    {"model", "-m", STRING, BOTH, AT(model), 0, 0, 0, "GGUF file or SafeTensors folder to serve"},
    {"alias", "-a", STRING, SERVE, AT(alias), 0, 0, 0,
     "model id the API shows; default: the name of the file or folder, without .gguf"},
    {"socket", NULL, STRING, SERVE, AT(socket), 0, 0, 0,
     "unix socket to listen on; default: the socket on descriptor 0"},
    {"config", NULL, STRING, BOTH, AT(config), 0, 0, 0, "file of `name = value` lines, one option each"},
    {"api-key-file", NULL, STRING, SERVE, AT(api_key_file), 0, 0, 0,
     "file of API keys, one a line; SIGHUP reads it again"},
    {"share-cache", NULL, FLAG, SERVE, AT(share_cache), 0, 0, 0,
     "API keys share the prefix cache: faster, but one can find out what another asked"},
    {"chat-template", NULL, STRING, BOTH, AT(chat_template), 0, 0, 0,
     "a format's name, such as chatml or llama3, or a Jinja file, instead of the model file's chat template"},
    {"threads", "-t", INTEGER, BOTH, AT(threads), 0, 256, 0, "worker threads; 0: as many as CPUs"},
    {"ctx-size", "-c", INTEGER, BOTH, AT(ctx_size), 0, 1 << 30, 0,
     "longest sequence in tokens; 0: the model's, at most 32768"},
    {"kv-tokens", NULL, INTEGER, BOTH, AT(kv_tokens), 0, 1 << 30, 0,
     "tokens the KV cache holds in all; 0: 32768 or ctx-size"},
    {"cache-type-k", "-ctk", STRING, BOTH, AT(cache_type_k), 0, 0, 0,
     "type of the keys in the KV cache: i16 (the default), f16, bf16, q8_0, q4_0"},
    {"cache-type-v", "-ctv", STRING, BOTH, AT(cache_type_v), 0, 0, 0, "type of the values; the same"},
    {"parallel", "-np", INTEGER, SERVE, AT(parallel), 0, 1024, 0, "sequences computed at once; 0: 16"},
    {"batch-size", "-b", INTEGER, BOTH, AT(batch_size), 0, 8192, 0, "token rows in one step; 0: 512"},
    {"queue-max", NULL, INTEGER, SERVE, AT(queue_max), 0, 100000, 0,
     "waiting sequences before 503, of requests of many at most half; 0: 256"},
    {"memory-limit", NULL, INTEGER, BOTH, AT(memory_limit_mib), 0, 1 << 30, 0,
     "refuse to start above so many MiB; 0: no limit"},
    {"request-memory", NULL, INTEGER, SERVE, AT(request_memory_mib), 0, 1 << 20, 0,
     "MiB that all requests together may hold; 0: a quarter of the machine's memory, 256 to 8192"},
    {"cpu", NULL, STRING, BOTH, AT(cpu), 0, 0, 0,
     "instruction set of the kernels: auto, ref, avx2, avxvnni, avx512, amx"},
    {"high-precision", NULL, FLAG, BOTH, AT(high_precision), 0, 0, 0,
     "16-bit activations everywhere: nearer to float32, slower prefill"},
    {"pin", NULL, FLAG, BOTH, AT(pin), 0, 0, 0, "keep each worker thread on a CPU of its own"},
    {"backend", NULL, STRING, BOTH, AT(backend), 0, 0, 0, "cpu or ref"},
    {"pack-cache", NULL, STRING, BOTH, AT(pack_cache), 0, 0, 0,
     "folder where packed weights are kept for the next start; off: packed at every start [off]"},
    {"pooling", NULL, STRING, SERVE, AT(pooling), 0, 0, 0,
     "how states become an embedding: mean, cls or last; default: as the model file says"},
    {"quantize", NULL, STRING, BOTH, AT(quantize), 0, 0, 0,
     "type that F32, F16 and BF16 weights become at load: q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0; off [off]"},
    {"speculate", NULL, STRING, BOTH, AT(speculate), 0, 0, 0,
     "guess tokens ahead where text repeats: auto or off; answers are the same"},
    {"draft-max", NULL, INTEGER, BOTH, AT(draft_max), 0, 31, 0, "tokens guessed ahead in one step; 0: 15"},
    {"max-connections", NULL, INTEGER, SERVE, AT(max_connections), 2, 65536, 1024,
     "FastCGI connections served at once"},
    {"body-limit", NULL, INTEGER, SERVE, AT(body_limit_kib), 1, 1 << 20, 4096, "largest request body in KiB"},
    {"drain-timeout", NULL, INTEGER, SERVE, AT(drain_s), 0, 86400, 30, "seconds running requests get after SIGTERM"},
    {"drain-close", NULL, FLAG, SERVE, AT(drain_close), 0, 0, 0,
     "close the socket at once after SIGTERM, for a second engine behind nginx; default: answer 503"},
    {"sse-ping-interval", NULL, INTEGER, SERVE, AT(ping_s), 1, 3600, 10,
     "seconds of silence before a comment in a stream"},
    {"timeout", NULL, INTEGER, SERVE, AT(timeout_s), 0, 86400, 0,
     "seconds a request may take, queue included; 0: no limit"},
    {"strict-api", NULL, FLAG, SERVE, AT(strict_api), 0, 0, 0, "refuse unknown request fields"},
    {"prompt", "-p", STRING, GENERATE, AT(prompt), 0, 0, 0, "the prompt"},
    {"n-predict", "-n", INTEGER, GENERATE, AT(n_predict), -1, 1 << 30, 128,
     "tokens at most; -1: until the context is full"},
    {"temp", NULL, REAL, BOTH, AT(temperature), -1, 2, -1,
     "temperature of requests that name none; 0: greedy; -1: the model's, else 1; generate: greedy"},
    {"top-k", NULL, INTEGER, BOTH, AT(top_k), -1, INT32_MAX, -1,
     "the same for top_k; 0: off; -1: the model's, else off"},
    {"top-p", NULL, REAL, BOTH, AT(top_p), -1, 1, -1, "the same for top_p; -1: the model's, else 1"},
    {"min-p", NULL, REAL, BOTH, AT(min_p), -1, 1, -1, "the same for min_p; -1: the model's, else 0"},
    {"seed", "-s", INTEGER, GENERATE, AT(seed), 0, 9e15, 0, "seed of the random numbers"},
    {"chat", NULL, FLAG, GENERATE, AT(chat), 0, 0, 0, "wrap the prompt in the model's chat template"},
    {"check-config", NULL, FLAG, SERVE, AT(check_config), 0, 0, 0, "check options, model file and keys, then exit"},
    {"help", "-h", FLAG, BOTH, AT(help), 0, 0, 0, "this list"},
    {"version", "-V", FLAG, BOTH, AT(version), 0, 0, 0, "version and kernels"},
};

const char *conf_command_name(enum conf_command command) { return command == CONF_SERVE ? "serve" : "generate"; }

const char *conf_option_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(options) ? options[i].name : NULL; }

static void *field(struct conf *c, const struct option *o) { return (char *)c + o->offset; }

bool conf_parse_integer(const char *s, int64_t *out)
{
    bool negative = *s == '-';
    int64_t v = 0;
    s += negative;
    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - (*s - '0')) / 10) {
            return false;
        }
        v = v * 10 + (*s - '0');
    }
    *out = negative ? -v : v;
    return true;
}

static bool parse_real(const char *s, double *out)
{
    char *end;
    if (*s == '\0' || s[strspn(s, "+-.0123456789eE")] != '\0') { /* strtod takes spaces, "nan" and hexadecimal too */
        return false;
    }
    *out = strtod(s, &end);
    return *end == '\0' && isfinite(*out);
}

static enum err set_value(struct conf *c, const struct option *o, const char *value, const char *from,
                          struct err_info *info)
{
    int64_t i = 0;
    double d = 0;
    switch (o->kind) {
    case STRING:
        if (*value == '\0' && o->offset != AT(prompt)) { /* an unset shell variable, not a path or name */
            return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected a text, found an empty one", o->name, from);
        }
        *(const char **)field(c, o) = value;
        return ERR_OK;
    case FLAG:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
            return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected on or off, found '%.64s'", o->name, from,
                           value);
        }
        *(bool *)field(c, o) = strcmp(value, "on") == 0;
        return ERR_OK;
    case INTEGER:
        if (!conf_parse_integer(value, &i) || (double)i < o->min || (double)i > o->max) {
            return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected an integer of %.0f to %.0f, found '%.64s'",
                           o->name, from, o->min, o->max, value);
        }
        *(int64_t *)field(c, o) = i;
        return ERR_OK;
    case REAL:
        if (!parse_real(value, &d) || d < o->min || d > o->max) {
            return err_set(info, ERR_CONFIG, o->name, "%s (%s): expected a number of %g to %g, found '%.64s'", o->name,
                           from, o->min, o->max, value);
        }
        *(double *)field(c, o) = d;
        return ERR_OK;
    }
    return ERR_INTERNAL;
}

static const struct option *find(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* The value of INFCGI_<NAME>, or NULL; name[NAME_BYTES] receives that name. */
static const char *environment_of(const char *option, char *name)
{
    snprintf(name, NAME_BYTES, "INFCGI_%s", option);
    for (char *p = name; *p != '\0'; p++) {
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
    return getenv(name);
}

const char *conf_environment(const char *option)
{
    char name[NAME_BYTES];
    return environment_of(option, name);
}

static enum err read_environment(struct conf *c, struct err_info *info)
{
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        char name[NAME_BYTES];
        const char *value = environment_of(options[i].name, name);
        if (value != NULL) {
            TRY(set_value(c, &options[i], value, name, info));
        }
    }
    return ERR_OK;
}

/* Cuts white space off both ends, in place. */
static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) {
        s++;
    }
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) {
        end--;
    }
    *end = '\0';
    return s;
}

static enum err read_file(struct conf *c, const char *path, struct err_info *info)
{
    TRY(io_read_file(path, FILE_LIMIT_BYTES, &c->file, info));
    if (c->file.len > 0 && memchr(c->file.data, 0, c->file.len) != NULL) { /* what stands behind it would be lost */
        return err_set(info, ERR_CONFIG, "config", "config: expected a text file, found a NUL byte in %.128s", path);
    }
    int line = 0;
    char where[NAME_BYTES];
    for (char *s = c->file.data, *next; s != NULL && *s != '\0'; s = next) {
        next = strchr(s, '\n');
        next = next != NULL ? next : s + strlen(s);
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        line++;
        s = trim(s);
        if (*s == '\0' || *s == '#' || *s == ';') {
            continue;
        }
        char *equals = strchr(s, '=');
        snprintf(where, sizeof where, "%.40s line %d", path, line);
        if (equals == NULL) {
            return err_set(info, ERR_CONFIG, where, "%s: expected `name = value`, found '%.64s'", where, s);
        }
        *equals = '\0';
        char *name = trim(s);
        const struct option *o = find(name, strlen(name));
        if (o == NULL || o->offset == AT(config)) {
            return err_set(info, ERR_CONFIG, where, "%s: unknown option '%.64s'", where, name);
        }
        TRY(set_value(c, o, trim(equals + 1), where, info));
    }
    return ERR_OK;
}

/* The option an argument names; *value is what stands behind '=', or NULL. */
static const struct option *match_argument(const char *arg, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (options[i].brief != NULL && strcmp(arg, options[i].brief) == 0) {
            return &options[i];
        }
    }
    if (strncmp(arg, "--", 2) != 0) {
        return NULL;
    }
    const char *equals = strchr(arg, '=');
    *value = equals != NULL ? equals + 1 : NULL;
    return find(arg + 2, equals != NULL ? (size_t)(equals - arg - 2) : strlen(arg + 2));
}

/* only_config: look for --config alone, which must be read before the rest. */
static enum err read_arguments(struct conf *c, enum conf_command command, int argc, char **argv, bool only_config,
                               struct err_info *info)
{
    for (int i = 1; i < argc; i++) {
        const char *value;
        const struct option *o = match_argument(argv[i], &value);
        if (o == NULL) {
            return err_set(info, ERR_CONFIG, argv[i], "unknown option '%.64s'; --help lists them", argv[i]);
        }
        if ((o->commands & command) == 0) {
            return err_set(info, ERR_CONFIG, o->name,
                           "--%s: expected an option of %s, found one of %s; --help lists them", o->name,
                           conf_command_name(command), conf_command_name((enum conf_command)o->commands));
        }
        if (value == NULL && o->kind == FLAG) {
            value = "on";
        } else if (value == NULL && i + 1 < argc) {
            value = argv[++i];
        }
        if (value == NULL) {
            return err_set(info, ERR_CONFIG, o->name, "--%s: expected a value, found none", o->name);
        }
        if (!only_config || o->offset == AT(config)) {
            TRY(set_value(c, o, value, "command line", info));
        }
    }
    return ERR_OK;
}

enum err conf_load(struct conf *c, enum conf_command command, int argc, char **argv, struct err_info *info)
{
    *c = (struct conf){0};
    buf_init(&c->file, FILE_LIMIT_BYTES, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (options[i].kind == INTEGER) {
            *(int64_t *)field(c, &options[i]) = (int64_t)options[i].fallback;
        } else if (options[i].kind == REAL) {
            *(double *)field(c, &options[i]) = options[i].fallback;
        }
    }
    TRY(read_environment(c, info)); /* may name the file */
    TRY(read_arguments(c, command, argc, argv, true, info));
    if (c->config != NULL) {
        TRY(read_file(c, c->config, info));
        TRY(read_environment(c, info));
    }
    return read_arguments(c, command, argc, argv, false, info);
}

void conf_fini(struct conf *c) { buf_fini(&c->file); }

void conf_help(enum conf_command command, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        const struct option *o = &options[i];
        if ((o->commands & command) == 0) {
            continue;
        }
        char name[NAME_BYTES];
        static const char *const kinds[] = {" TEXT", " N", " X", ""};
        snprintf(name, sizeof name, "%s%s--%s%s", o->brief != NULL ? o->brief : "", o->brief != NULL ? ", " : "    ",
                 o->name, kinds[o->kind]);
        buf_printf(out, "  %-30s %s", name, o->help);
        if (o->kind == INTEGER || o->kind == REAL) {
            buf_printf(out, " [%g]", o->fallback);
        }
        buf_putc(out, '\n');
    }
}
