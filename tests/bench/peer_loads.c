/* Does llama.cpp load a model, and how far from what is expected does it compute? A program of its own, since both
 * engines have functions called gguf_*.
 *
 *   peer_loads MODEL.gguf EXPECT.gguf      the second as tests/golden has them
 *
 * Prints, over all prompts, the largest error of a last logit as a share of the logits' spread, or of a component of an
 * embedding as a share of the components' mean size. Default settings of the library, one thread. */
#include <gguf.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_CTX = 256 };

/* What llama.cpp says when it does not load a model. */
static void print_errors(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static double mean_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    return sum / n;
}

/* Root of the mean square of what x is away from `from`. */
static double size_of(const float *x, int n, double from)
{
    double squares = 0;
    for (int i = 0; i < n; i++) {
        squares += ((double)x[i] - from) * ((double)x[i] - from);
    }
    return sqrt(squares / n);
}

/* found is multiplied by `scale`; the error is in units of `unit`. */
static double largest_error(const float *found, double scale, const float *want, int n, double unit)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)found[i] * scale - (double)want[i]) / unit);
    }
    return worst;
}

/* The error of prompt i; negative when there is no such prompt, NAN when it does not run. */
static double run_prompt(struct llama_context *llama, struct ggml_context *expect, int i)
{
    char name[64];
    snprintf(name, sizeof name, "prompt.%d.ids", i);
    struct ggml_tensor *ids = ggml_get_tensor(expect, name);
    snprintf(name, sizeof name, "prompt.%d.logits", i);
    struct ggml_tensor *logits = ggml_get_tensor(expect, name);
    snprintf(name, sizeof name, "prompt.%d.embedding", i);
    struct ggml_tensor *want = logits != NULL ? logits : ggml_get_tensor(expect, name);
    if (ids == NULL || want == NULL) {
        return -1;
    }
    if (llama_get_memory(llama) != NULL) {
        llama_memory_clear(llama_get_memory(llama), true);
    }
    if (llama_decode(llama, llama_batch_get_one(ids->data, (int32_t)ids->ne[0])) != 0) {
        return NAN;
    }
    const float *found = logits != NULL ? llama_get_logits_ith(llama, -1) : llama_get_embeddings_seq(llama, 0);
    const float *wanted = want->data;
    int n = (int)want->ne[0];
    if (found == NULL) {
        return NAN;
    }
    if (logits != NULL) {
        return largest_error(found, 1, wanted, n, size_of(wanted, n, mean_of(wanted, n)));
    }
    double size = size_of(wanted, n, 0); /* embeddings are of length 1 here, and of any length there */
    return largest_error(found, size / size_of(found, n, 0), wanted, n, size);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: peer_loads MODEL.gguf EXPECT.gguf\n", stderr);
        return 64;
    }
    struct ggml_context *expect = NULL;
    struct gguf_context *file = gguf_init_from_file(argv[2], (struct gguf_init_params){.ctx = &expect});
    llama_log_set(print_errors, NULL);
    struct llama_model *model = file == NULL ? NULL : llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == NULL) {
        return 65;
    }
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = ggml_get_tensor(expect, "prompt.0.embedding") != NULL;
    struct llama_context *llama = llama_init_from_model(model, params);
    double worst = 0, error = llama == NULL ? NAN : 0;
    for (int i = 0; error >= 0; i++) {
        worst = fmax(worst, error);
        error = run_prompt(llama, expect, i);
    }
    if (isnan(error)) {
        return 65;
    }
    printf("%.1e\n", worst);
    llama_free(llama);
    llama_model_free(model);
    gguf_free(file);
    ggml_free(expect);
    return 0;
}
