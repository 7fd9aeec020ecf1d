/* Fidelity on a real model: how far a back end's next-token distributions are from those of an independent float32
 * implementation on the same (dequantised) weights, over one text. fidelity.py makes the reference file.
 *
 *   fidelity MODEL.gguf REFERENCE [--backend cpu|ref] [--cpu ISA] [--threads N] [-ctk TYPE] [-ctv TYPE]
 *
 * REFERENCE: int32 n, int32 V, int32 ids[n], float logits[n][V]. Prints mean KL(reference || ours), and the share of
 * positions with the same arg-max. */
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

enum { CHUNK = 64 };

static double kl_divergence(const float *p_logits, const float *q_logits, int32_t n)
{
    double p_max = -INFINITY, q_max = -INFINITY, p_sum = 0, q_sum = 0, kl = 0;
    for (int32_t i = 0; i < n; i++) {
        p_max = fmax(p_max, p_logits[i]);
        q_max = fmax(q_max, q_logits[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        p_sum += exp(p_logits[i] - p_max);
        q_sum += exp(q_logits[i] - q_max);
    }
    double p_norm = p_max + log(p_sum), q_norm = q_max + log(q_sum);
    for (int32_t i = 0; i < n; i++) {
        double lp = p_logits[i] - p_norm;
        kl += exp(lp) * (lp - (q_logits[i] - q_norm));
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

static int compare(const struct backend *b, struct backend_model *m, const struct io_map *reference)
{
    const int32_t *head = (const void *)reference->data;
    int32_t n = head[0], n_vocab = head[1];
    const int32_t *ids = head + 2;
    const float *expected = (const float *)(ids + n);
    float *logits = malloc((size_t)CHUNK * (size_t)n_vocab * sizeof *logits);
    int32_t *pages = malloc(((size_t)n / BACKEND_PAGE_TOKENS + 1) * sizeof *pages);
    struct backend_row_stats stats[CHUNK];
    for (int32_t i = 0; i <= n / BACKEND_PAGE_TOKENS; i++) {
        pages[i] = i;
    }
    double kl = 0;
    int same = 0;
    for (int32_t from = 0; from < n; from += CHUNK) {
        int32_t count = MIN_OF(n - from, CHUNK), pos[CHUNK], seq[CHUNK] = {0}, rows[CHUNK];
        for (int32_t i = 0; i < count; i++) {
            pos[i] = from + i;
            rows[i] = i;
        }
        const int32_t *tables[1] = {pages};
        struct backend_batch batch = {.n_rows = count,
                                      .tokens = ids + from,
                                      .pos = pos,
                                      .seq = seq,
                                      .n_seqs = 1,
                                      .page_tables = tables,
                                      .n_logits = count,
                                      .logit_rows = rows,
                                      .logits = logits,
                                      .stats = stats};
        struct err_info info = {0};
        if (b->forward(m, &batch, &info) != ERR_OK) {
            printf("error: %s\n", info.text);
            return 1;
        }
        for (int32_t i = 0; i < count; i++) {
            const float *p = expected + (size_t)(from + i) * (size_t)n_vocab, *q = logits + (size_t)i * (size_t)n_vocab;
            kl += kl_divergence(p, q, n_vocab);
            same += argmax(p, n_vocab) == argmax(q, n_vocab);
        }
    }
    printf("%d tokens: mean KL %.2e, same arg-max %.2f %%\n", n, kl / n, 100.0 * same / n);
    free(logits);
    free(pages);
    return 0;
}

int main(int argc, char **argv)
{
    const char *cpu = NULL, *backend = "cpu", *k_type = kv_type_name(KV_TYPE_DEFAULT), *v_type = k_type;
    int n_threads = pool_cpu_count();
    bool high_precision = argc > 3 && strcmp(argv[argc - 1], "--high-precision") == 0;
    for (int i = 3; i + 1 < argc; i += 2) {
        cpu = strcmp(argv[i], "--cpu") == 0 ? argv[i + 1] : cpu;
        backend = strcmp(argv[i], "--backend") == 0 ? argv[i + 1] : backend;
        k_type = strcmp(argv[i], "-ctk") == 0 ? argv[i + 1] : k_type;
        v_type = strcmp(argv[i], "-ctv") == 0 ? argv[i + 1] : v_type;
        n_threads = strcmp(argv[i], "--threads") == 0 ? (int)strtol(argv[i + 1], NULL, 10) : n_threads;
    }
    struct gguf *g = NULL;
    struct plan *plan = NULL;
    struct io_map reference = {.fd = -1};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    const struct backend *b = backend_find(backend);
    if (argc < 3 || b == NULL || kv_type_find(k_type) == KV_TYPE_COUNT || kv_type_find(v_type) == KV_TYPE_COUNT) {
        fprintf(stderr, "usage: fidelity MODEL.gguf REFERENCE [--backend cpu|ref] [--cpu ISA] [--threads N] "
                        "[-ctk TYPE] [-ctv TYPE] [--high-precision]\n");
        return 64;
    }
    enum err err = gguf_open(argv[1], &g, &info);
    err = err != ERR_OK ? err : model_build(g, &plan, &info);
    err = err != ERR_OK ? err : io_map_open(argv[2], &reference, &info);
    if (err == ERR_OK) {
        struct backend_config cfg = {.cpu = cpu,
                                     .high_precision = high_precision,
                                     .n_threads = n_threads,
                                     .max_rows = CHUNK,
                                     .max_logits = CHUNK,
                                     .k_type = kv_type_find(k_type),
                                     .v_type = kv_type_find(v_type),
                                     .n_pages =
                                         ((const int32_t *)(const void *)reference.data)[0] / BACKEND_PAGE_TOKENS + 1};
        err = b->open(plan, &cfg, &m, &info);
    }
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s\n", err_code(err), info.text);
        return 65;
    }
    printf("%s, %s%s%s, KV %s/%s%s: ", argv[1], backend, cpu != NULL ? "/" : "", cpu != NULL ? cpu : "", k_type, v_type,
           high_precision ? ", high precision" : "");
    int rc = compare(b, m, &reference);
    b->close(&m);
    plan_free(&plan);
    gguf_close(&g);
    io_map_close(&reference);
    return rc;
}
