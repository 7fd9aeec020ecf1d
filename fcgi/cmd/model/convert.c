/* `infcgi convert`: converts a SafeTensors folder or a GGUF file to one GGUF file, optionally with another weight type.
 * convert_write.h does the work; this file has options, progress bar and report. */
#include "engine/base/clock.h"
#include "engine/base/pool.h"
#include "engine/convert/convert_write.h"
#include "fcgi/cmd/bar.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/escape.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { CMD_INTERRUPTED = 130 /* shell convention for SIGINT */ };

/* --- while it runs ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t is_interrupted;

static void on_signal(int signal)
{
    (void)signal;
    is_interrupted = 1;
}

/* An interrupted conversion must remove its output. A file size limit must cause an error, not kill the process. */
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

static void print_notes(const struct convert_options *o, const struct convert_report *r)
{
    if (r->n_requantised > 0) {
        fprintf(stderr,
                "note: %zu tensors were quantised before; made from 16 or 32 bits they would be nearer to the model\n",
                r->n_requantised);
    }
    if (r->n_other_type > 0) {
        fprintf(stderr, "note: %zu tensors got another type: their rows do not divide into blocks of %s\n",
                r->n_other_type, o->type->name);
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
    if (o->imatrix != NULL) {
        fprintf(stderr, "note: importance matrix of %zu entries, used for %zu tensors\n", r->n_entries, r->n_weighted);
    }
}

int cmd_convert(const struct program *p, struct conf *conf)
{
    struct bar bar;
    struct convert_options c = {.source = conf->source,
                                .target = conf->target,
                                .type = convert_type_find(conf->type),
                                .imatrix = conf->imatrix,
                                .n_threads = conf->threads != 0 ? (int)conf->threads : pool_cpu_count(),
                                .may_replace = conf->force,
                                .progress = on_progress,
                                .progress_arg = &bar};
    (void)p;
    if (c.imatrix != NULL && c.type->copies) {
        fputs("error: convert: imatrix: expected a --type to quantise to\n", stderr);
        return CMD_USAGE;
    }
    struct convert_report r;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    uint64_t start = clock_now_ns();
    catch_signals();
    bar_begin(&bar);
    enum err err = convert_write(&c, &r, &info);
    bar_end(&bar);
    if (err != ERR_OK) {
        escape_print_error(r.is_target_at_fault ? c.target : c.source, &info);
        if (err == ERR_CANCELLED) {
            return CMD_INTERRUPTED;
        }
        return r.is_target_at_fault ? CMD_BAD_OUTPUT : CMD_BAD_DATA;
    }
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    print_notes(&c, &r);
    escape_print(stdout, c.target, strlen(c.target));
    printf(": %zu tensors, %zu of them converted, %.1f M parameters, %.1f MB from %.1f MB, %.1f s\n", r.n_tensors,
           r.n_converted, (double)r.n_params / 1e6, (double)r.target_bytes / 1e6, (double)r.source_bytes / 1e6,
           seconds);
    return CMD_OK;
}
