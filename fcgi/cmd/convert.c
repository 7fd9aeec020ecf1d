/* `infcgi convert`: a SafeTensors folder or a GGUF file becomes one GGUF file, with weights of another type if wanted.
 * What it does is in convert_write.h; here are its options, its progress bar and its report. */
#include "fcgi/cmd/cmd.h"

#include "engine/base/clock.h"
#include "engine/base/pool.h"
#include "fcgi/cmd/bar.h"
#include "engine/convert/convert_write.h"
#include "fcgi/cmd/escape.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CMD_INTERRUPTED = 130, /* as shells say of SIGINT */
    CANNOT_CREATE = CMD_BAD_OUTPUT,
};

static const char usage[] =
    "usage: infcgi convert SOURCE TARGET.gguf [--type TYPE] [--imatrix FILE] [--threads N] [--force]\n"
    "\n"
    "SOURCE: a GGUF file, any part of a split one, or a SafeTensors folder.\n"
    "  --type TYPE      of the weights: copy (the default: as they are), f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k, "
    "q5_1,\n"
    "                   q5_0, q4_k_m, q4_k, q4_1, q4_0\n"
    "  --imatrix FILE   importance matrix of llama-imatrix: errors are kept small where they matter\n"
    "  -t, --threads N  1 to 256; default: as many as CPUs\n"
    "  --force          replace TARGET if it is there\n"
    "  --cpu NAME       as in other commands; no kernel runs here\n";

struct options {
    struct convert_options convert;
    bool help;
};

/* --- options ------------------------------------------------------------------------------------------------------ */

static int usage_error(const char *problem, const char *argument)
{
    fprintf(stderr, "error: convert: %s", problem);
    if (argument != NULL) {
        fputs(" '", stderr);
        escape_print(stderr, argument, strlen(argument));
        fputs("'", stderr);
    }
    fputs("; `infcgi convert --help` tells more\n", stderr);
    return CMD_USAGE;
}

/* The value of option `name` at argv[*i], as `--name VALUE` or `--name=VALUE`; NULL when it is another argument. *i
 * moves to the last argument used; a missing value reads as "". */
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '\0' && argv[*i][n] != '=')) {
        return NULL;
    }
    if (argv[*i][n] == '=') {
        return argv[*i] + n + 1;
    }
    return *i + 1 < argc ? argv[++*i] : "";
}

static int set_threads(const char *value, struct options *o)
{
    int64_t n;
    if (!conf_parse_integer(value, &n) || n < 1 || n > POOL_MAX_THREADS) {
        return usage_error("--threads: expected an integer of 1 to 256, found", value);
    }
    o->convert.n_threads = (int)n;
    return CMD_OK;
}

static int set_type(const char *value, struct options *o)
{
    o->convert.type = convert_type_find(value);
    if (o->convert.type != NULL) {
        return CMD_OK;
    }
    fputs("error: convert: --type: expected one of ", stderr);
    for (int i = 0; convert_type_at(i) != NULL; i++) {
        fprintf(stderr, "%s%s", i == 0 ? "" : ", ", convert_type_at(i)->name);
    }
    fputs("; found '", stderr);
    escape_print(stderr, value, strlen(value));
    fputs("'\n", stderr);
    return CMD_USAGE;
}

static int set_path(const char *value, struct options *o)
{
    if (o->convert.target != NULL) {
        return usage_error("expected a source and a target, found a third", value);
    }
    *(o->convert.source == NULL ? &o->convert.source : &o->convert.target) = value;
    return CMD_OK;
}

static int parse_argument(int argc, char **argv, int *i, struct options *o)
{
    const char *arg = argv[*i], *value;
    if ((value = value_of("--type", argc, argv, i)) != NULL) {
        return set_type(value, o);
    }
    if ((value = value_of("--threads", argc, argv, i)) != NULL || (value = value_of("-t", argc, argv, i)) != NULL) {
        return set_threads(value, o);
    }
    if ((value = value_of("--imatrix", argc, argv, i)) != NULL) {
        o->convert.imatrix = value;
        return *value != '\0' ? CMD_OK : usage_error("--imatrix: expected a file", NULL);
    }
    if (strcmp(arg, "--force") == 0) {
        o->convert.may_replace = true;
    } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        o->help = true;
    } else if (arg[0] == '-' && arg[1] != '\0') {
        return usage_error("unknown option", arg);
    } else {
        return set_path(arg, o);
    }
    return CMD_OK;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    bool no_more_options = false;
    *o = (struct options){.convert = {.type = convert_type_find("copy"), .n_threads = pool_cpu_count()}};
    for (int i = 1; i < argc; i++) {
        int rc = CMD_OK;
        if (!no_more_options && strcmp(argv[i], "--") == 0) {
            no_more_options = true;
        } else {
            rc = no_more_options ? set_path(argv[i], o) : parse_argument(argc, argv, &i, o);
        }
        if (rc != CMD_OK) {
            return rc;
        }
    }
    if (o->help) {
        return CMD_OK;
    }
    if (o->convert.target == NULL || *o->convert.target == '\0') {
        return usage_error("expected a source and a target", NULL);
    }
    if (o->convert.imatrix != NULL && o->convert.type->copies) {
        return usage_error("--imatrix: expected a --type to quantise to", NULL);
    }
    return CMD_OK;
}

/* --- while it runs ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t is_interrupted;

static void on_signal(int signal)
{
    (void)signal;
    is_interrupted = 1;
}

/* A broken conversion must remove what it has written; a file size limit must be an error and not the end. */
static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    is_interrupted = 0;
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &stop, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

static bool on_progress(void *arg, double fraction)
{
    bar_set(arg, fraction);
    return !is_interrupted;
}

static void print_notes(const struct options *o, const struct convert_report *r)
{
    if (r->n_requantised > 0) {
        fprintf(stderr,
                "note: %zu tensors were quantised before; made from 16 or 32 bits they would be nearer to the model\n",
                r->n_requantised);
    }
    if (r->n_other_type > 0) {
        fprintf(stderr, "note: %zu tensors got another type: their rows do not divide into blocks of %s\n",
                r->n_other_type, o->convert.type->name);
    }
    if (r->left_dynamic_rope) {
        fputs(
            "note: GGUF has no RoPE of type dynamic: written as plain, which is the same up to the original context\n",
            stderr);
    }
    if (r->has_own_pattern) {
        fputs("note: the tokenizer splits texts by a pattern that has no name in GGUF: infcgi reads it from "
              "infcgi.tokenizer.pattern, other readers will split otherwise\n",
              stderr);
    }
    if (o->convert.imatrix != NULL) {
        fprintf(stderr, "note: importance matrix of %zu entries, used for %zu tensors\n", r->n_entries, r->n_weighted);
    }
}

static int run(const struct options *o)
{
    struct bar bar;
    struct convert_options c = o->convert;
    struct convert_report r;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    uint64_t start = clock_now_ns();
    c.progress = on_progress;
    c.progress_arg = &bar;
    catch_signals();
    bar_begin(&bar);
    enum err err = convert_write(&c, &r, &info);
    bar_end(&bar);
    if (err != ERR_OK) {
        escape_print_error(r.is_target_at_fault ? c.target : c.source, &info);
        return err == ERR_CANCELLED ? CMD_INTERRUPTED : r.is_target_at_fault ? CANNOT_CREATE : CMD_BAD_DATA;
    }
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    print_notes(o, &r);
    escape_print(stdout, c.target, strlen(c.target));
    printf(": %zu tensors, %zu of them converted, %.1f M parameters, %.1f MB from %.1f MB, %.1f s\n", r.n_tensors,
           r.n_converted, (double)r.n_params / 1e6, (double)r.target_bytes / 1e6, (double)r.source_bytes / 1e6,
           seconds);
    return CMD_OK;
}

int cmd_convert(int argc, char **argv)
{
    struct options o;
    int rc = cmd_take_cpu(&argc, argv);
    rc = rc != CMD_OK ? rc : parse_options(argc, argv, &o);
    if (rc != CMD_OK) {
        return rc;
    }
    if (o.help) {
        fputs(usage, stdout);
    } else {
        rc = run(&o);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("error: convert: cannot write the output\n", stderr);
        return CMD_BAD_OUTPUT;
    }
    return rc;
}
