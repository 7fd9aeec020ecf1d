/* Compares golden models on the installed OpenCL driver with ref: fewer models and batches than golden, for drivers
 * that interpret or compile slowly, such as Oclgrind and llvmpipe. All kernels of opencl/kernels must run, in all
 * variants for a device without dot products; any that did not run is a failure. Last line: N passed, N failed.
 *
 *   drivers NAME         requires this driver: a word of its platform's or device's name
 *   drivers NAME MODEL   runs only this model, without checking what ran
 *   drivers NAME --few   fewer weight types and no batch of many rows; all kernels must run, not in all variants */
#include "engine/backend/backend.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/quant/panel.h"
#include "opencl/inventory.h"
#include "opencl/program.h"
#include "tests/golden/golden_models.h"
#include "tests/support/fake_opencl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small models that cover all kernels, variants and kinds of weights. */
static const struct driven {
    const char *name;
    bool high;           /* high_precision, which does not affect products of floats */
    bool is_many;        /* also the best tokens, and a batch of many rows, which takes minutes with an interpreter */
    const char *kv_type; /* OPTIONAL */
    bool is_more;        /* skipped with --few: the same kernels with other weight types */
} models[] = {
    {"llama-quants.gguf", false, false, NULL, true},       {"llama-quants-few.gguf", false, false, NULL, true},
    {"llama-quants-grid.gguf", false, false, NULL, true},  {"gemma3-linear-cap.gguf", false, true, NULL, false},
    {"llama-mixtral-q8.gguf", true, false, "q8_0", false}, {"llama-gqa-tied.gguf", true, false, NULL, false},
    {"deepseek2-v3.gguf", true, true, NULL, false},        {"deepseek32-sparse.gguf", true, false, NULL, false},
    {"gemma3n-sparse.gguf", true, false, NULL, false},     {"granitehybrid-experts.gguf", true, false, NULL, false},
    {"qwen35moe-delta.gguf", true, false, NULL, false},    {"lfm2-conv.gguf", true, false, NULL, false},
    {"gpt-oss-sinks.gguf", true, false, NULL, false},      {"llama4-experts.gguf", true, false, NULL, false},
    {"apertus-xielu.gguf", true, false, NULL, false},      {"bert-cls.gguf", true, false, NULL, false},
};

/* Rows of a sequence, in one batch each: all tiles of token rows, attention in parts and as a whole. A bidirectional
 * model has them in one batch. With a recurrent state the last row of several is a draft, which comes true. */
static const int batches[] = {2, 1, 17};
enum { ROWS = 20, MAX_ROWS = 17, N_BEST = 8, MAX_BEST = 128, N_PAGES = 2, MAX_SEEN = 1024, SEEN_BYTES = 256 };

static int n_passed, n_failed;

static void report(bool ok, const char *what, const char *name, double found, double allowed)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok) {
        printf("FAILED %s: %s: found %g, allowed %g\n", name, what, found, allowed);
    }
}

/* --- coverage ----------------------------------------------------------------------------------------------------- */

static char seen[MAX_SEEN][SEEN_BYTES]; /* kernels and their programs' options */
static int n_seen;

static void on_launch(const char *about)
{
    for (int i = 0; i < n_seen; i++) {
        if (strcmp(seen[i], about) == 0) {
            return;
        }
    }
    if (n_seen < MAX_SEEN) {
        snprintf(seen[n_seen++], SEEN_BYTES, "%s", about);
    }
}

/* Returns whether a launch had all the words, each followed by a blank or the end. */
static bool has_run(const char *const *words)
{
    for (int i = 0; i < n_seen; i++) {
        bool all = true;
        for (const char *const *w = words; *w != NULL && all; w++) {
            const char *at = strstr(seen[i], *w);
            size_t n = strlen(*w);
            while (at != NULL && at[n] != '\0' && at[n] != ' ') {
                at = strstr(at + 1, *w);
            }
            all = at != NULL;
        }
        if (all) {
            return true;
        }
    }
    return false;
}

static void check_run(const char *a, const char *b, const char *c)
{
    char what[96];
    snprintf(what, sizeof what, "%s %s %s", a, b != NULL ? b : "", c != NULL ? c : "");
    report(has_run((const char *const[]){a, b, c, NULL}), "did not run", what, 0, 1);
}

/* Checks that each function after a __kernel in the sources ran. */
static void check_kernels(void)
{
    for (const struct program_source *s = program_sources; s->name != NULL; s++) {
        for (const char *at = s->text; (at = strstr(at, "__kernel ")) != NULL; at++) {
            char name[48] = "";
            const char *of = strstr(at, " void ");
            report(of != NULL && sscanf(of, " void %47[a-z_0-9](", name) == 1, "the name of a kernel", s->name, 0, 1);
            check_run(name, NULL, NULL);
        }
    }
}

static void check_arms(void)
{
    static const char *const arms[][3] = {
        {"attention", "-DLATENT=1", "-DSPLIT=0"},
        {"attention", "-DLATENT=1", "-DSPLIT=1"},
        {"attention", "-DLATENT=0", "-DROWS=1 -DSPLIT=0"},
        {"attention", "-DLATENT=0", "-DSPLIT=1"},
        {"attention", "-DROWS=4", "-DV8=0"},
        {"attention", "-DK8=1", "-DV8=1"},
        {"attention", "-DCHUNKS=1"},
        {"heads", "-DK8=1", "-DV8=1"},
    };
    static const char *const ways[] = {"-DPAIR=0", "-DPAIR=1", "-DPICKED=1", "-DSPLIT=0", "-DSPLIT=1"};
    bool ran[2][ARRAY_LEN(ways)] = {{false}};
    char kind[32];
    for (size_t i = 0; i < ARRAY_LEN(arms); i++) {
        check_run(arms[i][0], arms[i][1], arms[i][2]);
    }
    for (int k = 0; k < PANEL_KIND_COUNT; k++) {
        snprintf(kind, sizeof kind, "-DKIND=%d", k);
        check_run("matmul", kind, NULL);
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            ran[panel_info((enum panel_kind)k)->is_float][i] |=
                has_run((const char *const[]){"matmul", kind, ways[i], NULL});
        }
    }
    for (size_t i = 0; i < 2 * ARRAY_LEN(ways); i++) {
        report(ran[i % 2][i / 2], i % 2 != 0 ? "did not run, of floats" : "did not run, of codes", ways[i / 2], 0, 1);
    }
}

/* --- a model -------------------------------------------------------------------------------------------------------- */

/* Computes the logits of the last row of each batch, or all states of a model without logits. Returns the number of
 * floats; 0: failed. */
static size_t compute(const struct backend *b, struct backend_model *m, const struct plan *p, bool is_many, float *out)
{
    static const int32_t pages[N_PAGES] = {1, 0};
    const int32_t *tables = pages;
    int32_t tokens[ROWS], pos[ROWS], rows[ROWS], seq[ROWS] = {0};
    size_t n = 0;
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 37 + 5) % (int32_t)p->n_vocab;
        pos[i] = i;
        rows[i] = i;
    }
    size_t n_batches = p->is_bidirectional ? 1 : ARRAY_LEN(batches) - !is_many;
    for (size_t i = 0, from = 0; i < n_batches; from += (size_t)batches[i++]) {
        int32_t last = batches[i] - 1, n_drafts = batches[i] > 1, n_true = i > 0 && batches[i - 1] > 1;
        struct backend_row_stats stats;
        struct backend_batch batch = {.n_rows = batches[i],
                                      .tokens = tokens + from,
                                      .pos = pos + from,
                                      .seq = seq,
                                      .n_seqs = 1,
                                      .page_tables = &tables,
                                      .n_drafts = &n_drafts,
                                      .n_true = &n_true,
                                      .n_logits = p->has_logits ? 1 : 0,
                                      .logit_rows = &last,
                                      .logits = out + n,
                                      .stats = &stats,
                                      .n_hidden = p->has_hidden && !p->has_logits ? batches[i] : 0,
                                      .hidden_rows = rows,
                                      .hidden = out + n};
        struct err_info info = {0};
        if (backend_compute(b, m, &batch, &info) != ERR_OK) {
            printf("FAILED on %s: %s\n", b->name, info.text);
            return 0;
        }
        n += p->has_logits ? p->n_vocab : (size_t)batches[i] * p->n_embd;
    }
    return n;
}

/* Checks the best tokens of the row at `pos`, after those of all batches. */
static void check_best(const struct backend *b, struct backend_model *m, int32_t pos, const char *name)
{
    static const int32_t pages[N_PAGES] = {1, 0}, token = 7, zero = 0, wants = N_BEST;
    static const int32_t *const tables = pages;
    static struct candidate best[MAX_BEST];
    struct backend_row_stats stats;
    const struct backend_batch batch = {.n_rows = 1,
                                        .tokens = &token,
                                        .pos = &pos,
                                        .seq = &zero,
                                        .n_seqs = 1,
                                        .page_tables = &tables,
                                        .n_logits = 1,
                                        .logit_rows = &zero,
                                        .wants = &wants,
                                        .stats = &stats,
                                        .best = best};
    struct err_info info = {0};
    bool ok =
        backend_compute(b, m, &batch, &info) == ERR_OK && best[0].id == stats.argmax && best[0].logit == stats.max;
    for (int i = 1; i < N_BEST; i++) {
        ok &= best[i].logit <= best[i - 1].logit;
    }
    report(ok, "the best tokens", name, best[0].id, stats.argmax);
}

/* Opens the model, computes, and closes it. Returns the number of floats; 0: failed. */
static size_t run(const struct backend *b, const struct plan *p, const struct driven *d, bool is_many, bool is_truth,
                  float *out)
{
    const struct backend_config cfg = {.n_threads = 1,
                                       .n_pages = N_PAGES,
                                       .n_states = 1,
                                       .max_drafts = 1,
                                       .max_rows = MAX_ROWS,
                                       .max_logits = 1,
                                       .k_type = is_truth ? NULL : d->kv_type,
                                       .v_type = is_truth ? NULL : d->kv_type,
                                       .high_precision = is_truth || d->high};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct backend_info of;
    if (b->open(p, &cfg, &m, &info) != ERR_OK) {
        printf("FAILED on %s: %s\n", b->name, info.text);
        return 0;
    }
    size_t n = compute(b, m, p, is_many, out);
    b->info(m, &of);
    if (of.max_best == MAX_BEST && p->has_logits && d->is_many && n != 0) {
        check_best(b, m, is_many ? ROWS : ROWS - MAX_ROWS, d->name);
    }
    b->close(&m);
    return n;
}

/* Returns the largest error relative to the spread of the expected values; infinite or NaN for values that are not
 * finite. */
static double error_of(const float *found, const float *wanted, size_t n)
{
    double mean = 0, var = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        mean += wanted[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)found[i] - wanted[i]);
        var += (wanted[i] - mean) * (wanted[i] - mean) / (double)n;
        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst / sqrt(var);
}

/* Returns the bound, as in golden.c. */
static double bound_of(const char *name, bool high)
{
    for (size_t i = 0; i < ARRAY_LEN(golden_models) && !high; i++) {
        size_t n = strlen(golden_models[i].name);
        if (strncmp(name, golden_models[i].name, n) == 0 && strcmp(name + n, ".gguf") == 0 &&
            (golden_models[i].formats & GGUF) != 0) {
            return golden_models[i].fast_logits;
        }
    }
    return high ? 2e-2 : 0;
}

static void check_model(const struct driven *d, bool is_many)
{
    char path[256];
    struct gguf *g = NULL;
    struct plan *p = NULL;
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", d->name);
    enum err err = model_open(path, &g, &info);
    err = err == ERR_OK ? model_build(g, 0, &p, &info) : err;
    if (err != ERR_OK) {
        printf("FAILED %s: %s\n", d->name, info.text);
        n_failed++;
        gguf_close(&g);
        return;
    }
    size_t most = MAX_OF((size_t)p->n_vocab * ARRAY_LEN(batches), (size_t)p->n_embd * ROWS);
    float *wanted = malloc(most * sizeof *wanted), *found = malloc(most * sizeof *found);
    size_t n = run(&backend_ref, p, d, is_many, true, wanted);
    bool ran = run(&backend_opencl, p, d, is_many, false, found) == n && n != 0;
    double error = ran ? error_of(found, wanted, n) : NAN,
           allowed = d->kv_type != NULL ? 5e-2 : bound_of(d->name, d->high);
    printf("%-26s %-4s %.1e\n", d->name, d->high ? "high" : "fast", error);
    report(error <= allowed, "largest error, share of the spread", d->name, error, allowed);
    free(wanted);
    free(found);
    plan_free(&p);
    gguf_close(&g);
}

int main(int argc, char **argv)
{
    const struct inventory *v = inventory_get();
    const struct device_caps *c = &v->probe.devices[0];
    bool is_it = argc > 1 && v->probe.n_devices == 1 &&
                 (strstr(c->platform, argv[1]) != NULL || strstr(c->name, argv[1]) != NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!is_it) {
        printf("FAILED: expected one device, of %s; found %d, the first %s of %s\n", argc > 1 ? argv[1] : "a driver",
               v->probe.n_devices, v->probe.n_devices > 0 ? c->name : "none",
               v->probe.n_devices > 0 ? c->platform : "none");
        printf("0 passed, 1 failed\n");
        return 1;
    }
    fake_opencl_watch(on_launch);
    bool is_few = argc > 2 && strcmp(argv[2], "--few") == 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (argc == 2 || (is_few ? !models[i].is_more : strcmp(argv[2], models[i].name) == 0)) {
            check_model(&models[i], models[i].is_many && !is_few);
        }
    }
    if (argc == 2 || is_few) {
        check_kernels();
    }
    if (argc == 2) {
        check_arms();
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
