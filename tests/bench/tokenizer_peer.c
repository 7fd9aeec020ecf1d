/* How quick llama.cpp tokenises the texts that tokenizer_speed wrote; a program of its own, since both engines have
 * functions called gguf_*.
 *
 *   tokenizer_peer MODEL.gguf FOLDER
 *
 * Prints a line for each text: MB a second of CPU time in the best of several runs, and whether the ids are the same.
 */
#include <llama.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BYTES = 1 << 26, RUNS = 9, MAX_SECONDS = 4 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A whole file, or false when there is none. */
static bool read_file(const char *folder, int i, const char *suffix, void *data, size_t *n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.%s", folder, i, suffix);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return false;
    }
    *n = fread(data, 1, MAX_BYTES, f);
    fclose(f);
    return true;
}

static void ignore_log(enum ggml_log_level level, const char *text, void *data)
{
    (void)level;
    (void)text;
    (void)data;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: tokenizer_peer MODEL.gguf FOLDER\n", stderr);
        return 64;
    }
    llama_log_set(ignore_log, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[1], params);
    char *text = malloc(MAX_BYTES);
    int32_t *want = malloc(MAX_BYTES), *got = malloc(MAX_BYTES);
    if (model == NULL || text == NULL || want == NULL || got == NULL) {
        fprintf(stderr, "error: %s: llama.cpp does not load it\n", argv[1]);
        return 65;
    }
    size_t n_text, n_want;
    for (int i = 0; read_file(argv[2], i, "txt", text, &n_text) && read_file(argv[2], i, "ids", want, &n_want); i++) {
        double best = 1e9, all = 0;
        int32_t n = 0;
        for (int run = 0; run < RUNS && all < MAX_SECONDS; run++) {
            double from = cpu_seconds();
            n = llama_tokenize(llama_model_get_vocab(model), text, (int32_t)n_text, got, MAX_BYTES / 4, false, false);
            double seconds = cpu_seconds() - from;
            best = seconds < best ? seconds : best;
            all += seconds;
        }
        bool same = n >= 0 && (size_t)n * sizeof *got == n_want && memcmp(got, want, n_want) == 0;
        printf("%.2f\t%s\n", (double)n_text * 1e-6 / best, same ? "same" : "other");
    }
    llama_model_free(model);
    free(text);
    free(want);
    free(got);
    return 0;
}
