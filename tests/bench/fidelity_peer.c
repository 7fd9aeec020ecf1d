/* How far llama.cpp's next-token distributions are from a reference that tests/golden/fidelity.py wrote (its long form,
 * described in fidelity.c); a program of its own, since both engines have functions called gguf_*.
 *
 *   fidelity_peer MODEL.gguf REFERENCE THREADS
 *
 * Default settings of the library: KV f16, flash attention as it chooses, repacked weights, batches of 512. Prints
 * `N tokens: mean KL X, same arg-max Y %`, as fidelity does. */
#include <llama.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 512 };

static void ignore_log(enum ggml_log_level level, const char *text, void *data)
{
    (void)level;
    (void)text;
    (void)data;
}

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

static double kl_divergence(const float *p, const float *q, int32_t n)
{
    double p_norm = log_sum_exp(p, n), q_norm = log_sum_exp(q, n), kl = 0;
    for (int32_t i = 0; i < n; i++) {
        kl += exp(p[i] - p_norm) * (p[i] - p_norm - (q[i] - q_norm));
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

/* Rows [from, from + n) of the text, whose reference logits follow in the file. */
static bool add_rows(struct llama_context *ctx, FILE *f, const int32_t *ids, int32_t from, int32_t n, int32_t n_vocab,
                     double *kl, int *same)
{
    struct llama_batch b = llama_batch_init(n, 0, 1);
    for (b.n_tokens = 0; b.n_tokens < n; b.n_tokens++) {
        int32_t i = b.n_tokens;
        b.token[i] = ids[from + i];
        b.pos[i] = from + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    float *want = malloc((size_t)n_vocab * sizeof *want);
    bool ok = want != NULL && llama_decode(ctx, b) == 0;
    for (int32_t i = 0; ok && i < n; i++) {
        const float *got = llama_get_logits_ith(ctx, i);
        ok = got != NULL && fread(want, sizeof *want, (size_t)n_vocab, f) == (size_t)n_vocab;
        if (ok) {
            *kl += kl_divergence(want, got, n_vocab);
            *same += argmax(want, n_vocab) == argmax(got, n_vocab);
        }
    }
    free(want);
    llama_batch_free(b);
    return ok;
}

int main(int argc, char **argv)
{
    int32_t head[2] = {0};
    FILE *f = argc == 4 ? fopen(argv[2], "rb") : NULL;
    if (f == NULL || fread(head, sizeof *head, 2, f) != 2 || head[0] < 1) {
        fputs("usage: fidelity_peer MODEL.gguf REFERENCE THREADS; REFERENCE is fidelity.py's, without --top\n", stderr);
        return 64;
    }
    llama_log_set(ignore_log, NULL);
    int32_t *ids = malloc((size_t)head[0] * sizeof *ids);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)(head[0] + 255) / 256 * 256;
    params.n_batch = params.n_ubatch = BATCH;
    params.n_threads = params.n_threads_batch = (int32_t)strtol(argv[3], NULL, 10);
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context *ctx = model != NULL ? llama_init_from_model(model, params) : NULL;
    if (ctx == NULL || llama_vocab_n_tokens(llama_model_get_vocab(model)) != head[1] || ids == NULL ||
        fread(ids, sizeof *ids, (size_t)head[0], f) != (size_t)head[0]) {
        fprintf(stderr, "error: %s: llama.cpp does not load it, or %s is of another model\n", argv[1], argv[2]);
        return 65;
    }
    double kl = 0;
    int same = 0;
    for (int32_t from = 0; from < head[0]; from += BATCH) {
        int32_t n = head[0] - from < BATCH ? head[0] - from : BATCH;
        if (!add_rows(ctx, f, ids, from, n, head[1], &kl, &same)) {
            fprintf(stderr, "error: %s: llama.cpp failed at token %d\n", argv[1], from);
            return 65;
        }
    }
    printf("%d tokens: mean KL %.2e, same arg-max %.2f %%\n", head[0], kl / head[0], 100.0 * same / head[0]);
    llama_free(ctx);
    llama_model_free(model);
    free(ids);
    fclose(f);
    return 0;
}
