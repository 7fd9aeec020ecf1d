/* Fidelity on a real model: the difference between a back end's next-token distributions and those of an independent
 * float32 implementation with the same (dequantized) weights, over one text. fidelity.py makes the reference file.
 *
 *   fidelity MODEL.gguf REFERENCE [--backend cpu|ref|opencl] [--cpu ISA] [--threads N] [--chunk N] [-ctk TYPE] [-ctv TYPE]
 *            [--high-precision]
 *   fidelity MODEL.gguf REFERENCE --bounds [--backend cpu|opencl] [-ctk TYPE]
 *
 * REFERENCE has one of two forms:
 *   int32 n, V, ids[n]; float logits[n][V]
 *   int32 -K, n, V, ids[n], top[n][K]; float logprobs[n][K + 1]   the K most likely ids, and all others together
 * Prints mean KL(reference || ours), and the share of positions with the same arg-max. With the second form the
 * divergence is that of distributions over K + 1 classes, which never exceeds that over all ids: a lower bound [Cover &
 * Thomas 2006, section 2.8, data processing].
 *
 * --bounds: runs default and other settings of the back end, each within bounds for the default model; prints a line
 * for each, then `N passed, N failed`. With -ctk runs only the settings that store keys in this type. */
#include "engine/backend/backend.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64, MAX_TOP = 64 };

/* A configuration to run. */
struct setting {
    const char *backend, *cpu;
    int n_threads, chunk; /* chunk: rows of a batch */
    bool high_precision;
    const char *k_type, *v_type;
};

struct result {
    double kl, same; /* mean; share of positions */
};

struct reference {
    struct io_map map;
    int32_t n, n_vocab, n_top;
    const int32_t *ids;
    const float *logits;   /* [n][V], NULL in the second form */
    const int32_t *top;    /* [n][n_top] */
    const float *logprobs; /* [n][n_top + 1] */
};

/* --- the reference ---------------------------------------------------------------------------------------------- */

static bool open_reference(const char *path, int32_t n_vocab, struct reference *r)
{
    struct err_info info = {0};
    if (io_map_open(path, &r->map, &info) != ERR_OK) {
        fprintf(stderr, "error: %s\n", info.text);
        return false;
    }
    const int32_t *head = (const void *)r->map.data;
    size_t size = r->map.bytes / sizeof *head, want = 0;
    if (size >= 3) {
        r->n_top = head[0] < 0 ? -head[0] : 0;
        head += r->n_top > 0;
        r->n = head[0];
        r->n_vocab = head[1];
        r->ids = head + 2;
        size_t n = r->n > 0 ? (size_t)r->n : 0, per_row = (size_t)(r->n_top > 0 ? 2 * r->n_top + 2 : r->n_vocab + 1);
        want = (size_t)(r->ids - (const int32_t *)(const void *)r->map.data) + n * per_row;
    }
    if (want != size || r->n < 1 || r->n_top > MAX_TOP || r->n_vocab != n_vocab) {
        fprintf(stderr, "error: %s: not a reference for this model: %d tokens, vocabulary %d (the model's is %d)\n",
                path, r->n, r->n_vocab, n_vocab);
        return false;
    }
    const void *rest = r->ids + r->n;
    r->logits = r->n_top > 0 ? NULL : rest;
    r->top = rest;
    r->logprobs = (const float *)rest + (size_t)r->n * (size_t)r->n_top;
    return true;
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

static double log_sum_exp(const float *x, int32_t n)
{
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) {
        max = fmax(max, x[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        sum += exp(x[i] - max);
    }
    return max + log(sum);
}

static double kl_divergence(const float *p_logits, const float *q_logits, int32_t n)
{
    double p_norm = log_sum_exp(p_logits, n), q_norm = log_sum_exp(q_logits, n), kl = 0;
    for (int32_t i = 0; i < n; i++) {
        double lp = p_logits[i] - p_norm;
        kl += exp(lp) * (lp - (q_logits[i] - q_norm));
    }
    return kl;
}

/* Returns the divergence over the classes top[0], ..., top[n_top - 1], all others; removes the former from q_logits.
 * The reference's shares were rounded to float, so they are scaled to sum to 1 again. */
static double kl_of_classes(const int32_t *top, const float *logprobs, int32_t n_top, float *q_logits, int32_t n)
{
    float q[MAX_TOP];
    for (int32_t k = 0; k < n_top; k++) {
        q[k] = q_logits[top[k]];
        q_logits[top[k]] = -INFINITY;
    }
    double rest = log_sum_exp(q_logits, n), p_norm = log_sum_exp(logprobs, n_top + 1), kl = 0;
    double q_norm = log_sum_exp(q, n_top);
    q_norm = fmax(q_norm, rest) + log1p(exp(-fabs(q_norm - rest)));
    for (int32_t k = 0; k <= n_top; k++) {
        double lp = logprobs[k] - p_norm, lq = (k < n_top ? q[k] : rest) - q_norm;
        kl += exp(lp) * (lp - lq);
    }
    return kl;
}

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* Adds the results of `count` positions from `from` on. */
static void add_rows(const struct reference *r, int32_t from, int32_t count, float *logits, struct result *sum)
{
    for (int32_t i = from; i < from + count; i++, logits += r->n_vocab) {
        if (r->logits != NULL) {
            const float *p = r->logits + (size_t)i * (size_t)r->n_vocab;
            sum->same += argmax(p, r->n_vocab) == argmax(logits, r->n_vocab);
            sum->kl += kl_divergence(p, logits, r->n_vocab);
        } else {
            const int32_t *top = r->top + (size_t)i * (size_t)r->n_top;
            sum->same += top[0] == argmax(logits, r->n_vocab);
            sum->kl +=
                kl_of_classes(top, r->logprobs + (size_t)i * (size_t)(r->n_top + 1), r->n_top, logits, r->n_vocab);
        }
    }
}

/* Runs the text through an open model, `chunk` rows at a time. */
static enum err compare(const struct backend *b, struct backend_model *m, const struct reference *r, int chunk,
                        struct result *out, struct err_info *info)
{
    float *logits = malloc((size_t)chunk * (size_t)r->n_vocab * sizeof *logits);
    int32_t *pages = malloc(((size_t)r->n / KV_PAGE_TOKENS + 1) * sizeof *pages);
    struct backend_row_stats stats[CHUNK];
    enum err err = ERR_OK;
    for (int32_t i = 0; i <= r->n / KV_PAGE_TOKENS; i++) {
        pages[i] = i;
    }
    for (int32_t from = 0; from < r->n && err == ERR_OK; from += chunk) {
        int32_t count = MIN_OF(r->n - from, chunk), pos[CHUNK], seq[CHUNK] = {0}, rows[CHUNK];
        for (int32_t i = 0; i < count; i++) {
            pos[i] = from + i;
            rows[i] = i;
        }
        const int32_t *tables[1] = {pages};
        struct backend_batch batch = {.n_rows = count,
                                      .tokens = r->ids + from,
                                      .pos = pos,
                                      .seq = seq,
                                      .n_seqs = 1,
                                      .page_tables = tables,
                                      .n_logits = count,
                                      .logit_rows = rows,
                                      .logits = logits,
                                      .stats = stats};
        err = backend_compute(b, m, &batch, info);
        if (err == ERR_OK) {
            add_rows(r, from, count, logits, out);
        }
    }
    free(logits);
    free(pages);
    out->kl /= r->n;
    out->same /= r->n;
    return err;
}

/* Opens the model with the setting and runs the text. */
static bool run(const struct plan *plan, const struct reference *r, const struct setting *s, struct result *out)
{
    const struct backend *b = backend_find(s->backend);
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {.cpu = s->cpu,
                                 .high_precision = s->high_precision,
                                 .n_threads = s->n_threads,
                                 .max_rows = s->chunk,
                                 .max_logits = s->chunk,
                                 .k_type = s->k_type,
                                 .v_type = s->v_type,
                                 .n_pages = r->n / KV_PAGE_TOKENS + 1,
                                 .n_states = 1};
    enum err err = b->open(plan, &cfg, &m, &info);
    *out = (struct result){.kl = 0};
    if (err == ERR_OK) {
        err = compare(b, m, r, s->chunk, out, &info);
        b->close(&m);
    }
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s\n", err_code(err), info.text);
    }
    return err == ERR_OK;
}

/* --- bounds ----------------------------------------------------------------------------------------------------- */

/* Settings of the default model and their bounds: about twice the measured values (docs/benchmarks.md). KV types are
 * distinguished with --high-precision, which removes most other errors. `twin`: an earlier row that must give the same
 * result to the last bit. */
static const struct bound {
    const char *backend, *name;
    bool high_precision;
    int chunk;
    const char *kv_type;
    double kl, same;
    int twin; /* row with the same bits; -1: none */
} bounds[] = {
    {"cpu", "default", false, CHUNK, "i16", 2e-3, 0.96, -1},
    {"cpu", "default, one row at a time", false, 1, "i16", 2e-3, 0.96, 0},
    {"cpu", "--high-precision", true, CHUNK, "i16", 2e-6, 0.998, -1},
    {"cpu", "--high-precision, KV f16", true, CHUNK, "f16", 2e-6, 0.998, -1},
    {"cpu", "--high-precision, KV bf16", true, CHUNK, "bf16", 6e-5, 0.99, -1},
    {"cpu", "--high-precision, KV q8_0", true, CHUNK, "q8_0", 1e-3, 0.97, -1},
    {"cpu", "--high-precision, KV q4_0", true, CHUNK, "q4_0", 0.2, 0.72, -1},
    {"opencl", "default", false, CHUNK, "f16", 2e-3, 0.96, -1},
    {"opencl", "default, one row at a time", false, 1, "f16", 2e-3, 0.96, 7},
    {"opencl", "--high-precision", true, CHUNK, "f16", 2e-6, 0.998, -1},
};

/* `of` has the back end, the threads, and (or NULL) the type of keys to which settings are limited. */
static int check_bounds(const struct plan *plan, const struct reference *r, const struct setting *of)
{
    struct result results[ARRAY_LEN(bounds)];
    int n_passed = 0, n_failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        const struct bound *b = &bounds[i];
        if (strcmp(b->backend, of->backend) != 0 || (of->k_type != NULL && strcmp(b->kv_type, of->k_type) != 0)) {
            continue;
        }
        struct setting s = {.backend = of->backend,
                            .n_threads = of->n_threads,
                            .chunk = b->chunk,
                            .high_precision = b->high_precision,
                            .k_type = b->kv_type,
                            .v_type = b->kv_type};
        bool ok = run(plan, r, &s, &results[i]) && results[i].kl <= b->kl && results[i].same >= b->same;
        bool is_twin = b->twin < 0 || memcmp(&results[i], &results[b->twin], sizeof results[i]) == 0;
        printf("%-6s %-36s mean KL %.2e (at most %.1e), same arg-max %.2f %% (at least %.1f)%s%s\n",
               ok && is_twin ? "ok" : "FAILED", b->name, results[i].kl, b->kl, 100 * results[i].same, 100 * b->same,
               is_twin ? "" : ", not the same bits as ", is_twin ? "" : bounds[b->twin].name);
        fflush(stdout);
        *(ok && is_twin ? &n_passed : &n_failed) += 1;
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}

/* --- the command line ------------------------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr,
            "usage: fidelity MODEL.gguf REFERENCE [--backend cpu|ref|opencl] [--cpu ISA] [--threads N] [--chunk 1-%d] "
            "[-ctk TYPE] [-ctv TYPE] [--high-precision]\n"
            "       fidelity MODEL.gguf REFERENCE --bounds [--backend cpu|opencl] [--threads N] [-ctk TYPE]\n",
            CHUNK);
    return 64;
}

static bool parse(int argc, char **argv, struct setting *s, bool *with_bounds)
{
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--high-precision") == 0) {
            s->high_precision = true;
            continue;
        }
        if (strcmp(argv[i], "--bounds") == 0) {
            *with_bounds = true;
            continue;
        }
        if (strcmp(argv[i], "--cpu") == 0) {
            s->cpu = value;
        } else if (strcmp(argv[i], "--backend") == 0) {
            s->backend = value;
        } else if (strcmp(argv[i], "-ctk") == 0) {
            s->k_type = value;
        } else if (strcmp(argv[i], "-ctv") == 0) {
            s->v_type = value;
        } else if (strcmp(argv[i], "--threads") == 0) {
            s->n_threads = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--chunk") == 0) {
            s->chunk = (int)strtol(value, NULL, 10);
        } else {
            return false;
        }
        i++;
    }
    return argc >= 3 && s->chunk >= 1 && s->chunk <= CHUNK && s->n_threads >= 1 && s->n_threads <= POOL_MAX_THREADS &&
           backend_find(s->backend) != NULL;
}

static int run_one(const char *model, const struct plan *plan, const struct reference *r, const struct setting *s)
{
    struct result result;
    if (!run(plan, r, s, &result)) {
        return 65;
    }
    printf("%s, %s%s%s, KV %s/%s%s: ", model, s->backend, s->cpu != NULL ? "/" : "", s->cpu != NULL ? s->cpu : "",
           s->k_type != NULL ? s->k_type : "usual", s->v_type != NULL ? s->v_type : "usual",
           s->high_precision ? ", high precision" : "");
    printf("%d tokens: mean KL %s%.2e, same arg-max %.2f %%\n", r->n, r->logits == NULL ? "at least " : "", result.kl,
           100 * result.same);
    return 0;
}

int main(int argc, char **argv)
{
    struct setting s = {.backend = "cpu", .n_threads = pool_cpu_count(), .chunk = CHUNK};
    bool with_bounds = false;
    if (!parse(argc, argv, &s, &with_bounds)) {
        return usage();
    }
    struct gguf *g = NULL;
    struct plan *plan = NULL;
    struct reference r = {.map = {.fd = -1}};
    struct err_info info = {0};
    int rc = 65;
    enum err err = gguf_open(argv[1], &g, &info);
    err = err != ERR_OK ? err : model_build(g, 0, &plan, &info);
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s\n", err_code(err), info.text);
    } else if (open_reference(argv[2], (int32_t)plan->n_vocab, &r)) {
        rc = with_bounds ? check_bounds(plan, &r, &s) : run_one(argv[1], plan, &r, &s);
    }
    io_map_close(&r.map);
    plan_free(&plan);
    gguf_close(&g);
    return rc;
}
