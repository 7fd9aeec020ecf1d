/* Text of a real model: 20 prompts of 64 tokens, each the most likely one, on ref and on other back ends, all prompts at
 * once. They must be ref's, or leave it where ref itself takes two tokens for as good as equally likely: the gap between
 * the logarithms of their probabilities is no more than what the back end's may be off. What comes behind that is other
 * text, and says nothing.
 *   greedy MODEL.gguf TEXT [--prompts N] [--tokens N] [+]BACKEND[=GAP]...
 * BACKEND: as engine.h has it, behind `+` with --high-precision. GAP: 0 unless told. */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 20, MAX_TOKENS = 64, N_TOP = 8, LONGEST = 60, WAIT_MS = 600000 };

struct answer {
    int32_t ids[MAX_TOKENS];
    struct sampler_top top[MAX_TOKENS][N_TOP];
};

static struct {
    struct arena arena;
    int32_t *ids; /* of the whole text */
    size_t n_ids;
    int n_prompts, n_tokens;
    struct answer expected[MAX_PROMPTS], found[MAX_PROMPTS];
} test = {.n_prompts = MAX_PROMPTS, .n_tokens = MAX_TOKENS};

static enum err submit(struct engine *e, int i, struct engine_stream **out, struct err_info *info)
{
    struct engine_params p;
    size_t n = 12 + (size_t)(i * 17) % (LONGEST - 12), from = (size_t)(i * 131) % (test.n_ids - n);
    engine_params_init(e, &p);
    p.sampling.temperature = 0;
    p.sampling.n_top = N_TOP;
    p.max_tokens = test.n_tokens;
    p.ignore_eos = true;
    return engine_submit(e, test.ids + from, n, &p, out, info);
}

/* Reads a stream to its end and closes it. */
static enum err collect(struct engine_stream *s, struct answer *a, struct err_info *info)
{
    struct engine_event event;
    int32_t n = 0;
    enum err err;
    while ((err = engine_next(s, WAIT_MS, &event)) == ERR_OK && event.kind != SCHED_END) {
        if (n < test.n_tokens) {
            a->ids[n] = event.token.id;
            memcpy(a->top[n], event.token.top, sizeof a->top[0]);
        }
        n++;
    }
    engine_stream_close(&s);
    err = err == ERR_OK ? event.err : err;
    return err == ERR_OK && n == test.n_tokens ? ERR_OK
                                               : err_set(info, err != ERR_OK ? err : ERR_INTERNAL, NULL,
                                                         "a text ended after %d of %d tokens", n, test.n_tokens);
}

static enum err run_all(struct engine *e, struct answer *answers, struct err_info *info)
{
    struct engine_stream *streams[MAX_PROMPTS] = {NULL};
    enum err err = ERR_OK;
    for (int i = 0; i < test.n_prompts && err == ERR_OK; i++) {
        err = submit(e, i, &streams[i], info);
    }
    for (int i = 0; i < test.n_prompts && streams[i] != NULL; i++) {
        enum err one = collect(streams[i], &answers[i], info);
        err = err == ERR_OK ? one : err;
    }
    return err;
}

static enum err tokenize(const struct engine *e, const char *path, struct err_info *info)
{
    struct io_map text = {.fd = -1};
    TRY(io_map_open(path, &text, info));
    enum err err = engine_tokenize(e, (const char *)text.data, text.bytes, false, false, NULL, 0, &test.arena,
                                   &test.ids, &test.n_ids, info);
    io_map_close(&text);
    return err == ERR_OK && test.n_ids <= LONGEST
               ? err_set(info, ERR_CONFIG, path, "%zu tokens are too few", test.n_ids)
               : err;
}

/* All prompts on a back end. */
static enum err compute(const char *model, const char *text, const char *backend, bool high_precision,
                        struct answer *answers, struct err_info *info)
{
    const struct engine_config cfg = {.model_path = model,
                                      .backend = backend,
                                      .high_precision = high_precision,
                                      .max_batch_rows = 64,
                                      .max_seqs = MAX_PROMPTS,
                                      .n_ctx = LONGEST + MAX_TOKENS + 1,
                                      .kv_tokens = MAX_PROMPTS * 2 * (LONGEST + MAX_TOKENS)};
    struct engine *e = NULL;
    TRY(engine_open(&cfg, &e, info));
    enum err err = test.ids == NULL ? tokenize(e, text, info) : ERR_OK;
    err = err == ERR_OK ? run_all(e, answers, info) : err;
    engine_close(&e);
    return err;
}

/* How much more likely than `id` ref has its own choice; infinite behind its best N_TOP. */
static float gap_of(const struct answer *a, int32_t at, int32_t id)
{
    for (int k = 0; k < N_TOP; k++) {
        if (a->top[at][k].id == id) {
            return a->top[at][0].logprob - a->top[at][k].logprob;
        }
    }
    return INFINITY;
}

/* Prints how often the texts are the same; failures are gaps above `most`. */
static int compare(const char *name, float most)
{
    int n_same = 0, n_failed = 0;
    float largest = 0;
    for (int i = 0; i < test.n_prompts; i++) {
        const struct answer *a = &test.expected[i], *b = &test.found[i];
        int32_t at = 0;
        while (at < test.n_tokens && a->ids[at] == b->ids[at]) {
            at++;
        }
        if (at == test.n_tokens) {
            n_same++;
            continue;
        }
        float gap = gap_of(a, at, b->ids[at]);
        largest = gap > largest ? gap : largest;
        if (!(gap <= most)) {
            printf("FAILED %s: prompt %d leaves ref's text at token %d, gap %.3g, at most %.3g\n", name, i, at + 1, gap,
                   most);
            n_failed++;
        }
    }
    printf("%s: %d of %d texts are ref's, others leave it at a gap of at most %.2g (at most %.2g)\n", name, n_same,
           test.n_prompts, largest, most);
    fflush(stdout);
    return n_failed;
}

static int run_backend(const char *model, const char *text, const char *word, int *n_failed)
{
    char name[128];
    struct err_info info = {0};
    const char *end = strrchr(word, '=');
    bool high_precision = word[0] == '+';
    int n = snprintf(name, sizeof name, "%.*s", (int)(end != NULL ? end - word : (long)strlen(word)), word);
    enum err err = n < (int)sizeof name ? compute(model, text, name + high_precision, high_precision, test.found, &info)
                                        : ERR_CONFIG;
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s: %s\n", word, err_code(err), info.text);
        return 65;
    }
    *n_failed += compare(name, end != NULL ? strtof(end + 1, NULL) : 0);
    return 0;
}

int main(int argc, char **argv)
{
    struct err_info info = {0};
    int first = 3, rc = 0, n_failed = 0;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        int n = (int)strtol(argv[first + 1], NULL, 10);
        *(strcmp(argv[first], "--prompts") == 0 ? &test.n_prompts : &test.n_tokens) = n;
    }
    if (first >= argc || test.n_prompts < 1 || test.n_prompts > MAX_PROMPTS || test.n_tokens < 1 ||
        test.n_tokens > MAX_TOKENS) {
        fprintf(stderr, "usage: greedy MODEL.gguf TEXT [--prompts N] [--tokens N] [+]BACKEND[=GAP]...\n");
        return 64;
    }
    arena_init(&test.arena, 0, 0, MEM_GENERAL);
    enum err err = compute(argv[1], argv[2], "ref", false, test.expected, &info);
    if (err != ERR_OK) {
        fprintf(stderr, "error: ref: %s: %s\n", err_code(err), info.text);
        rc = 65;
    }
    for (int i = first; i < argc && rc == 0; i++) {
        rc = run_backend(argv[1], argv[2], argv[i], &n_failed);
    }
    arena_fini(&test.arena);
    printf("%d passed, %d failed\n", rc == 0 ? test.n_prompts * (argc - first) - n_failed : 0, n_failed + (rc != 0));
    return rc != 0 ? rc : n_failed != 0;
}
