/* Greedy text of a real model on ref and on other back ends, all prompts at the same time: the first tokens of answers
 * to questions, plain and through the chat template, and 64 tokens after each of 20 pieces of a file. A text must equal
 * ref's, or first differ at a token that ref considers nearly as likely as its own: the gap between the logarithms of
 * their probabilities is at most the back end's bound. The tokens after it belong to another text and are ignored.
 *   greedy MODEL.gguf TEXT [--prompts N] [--tokens N] [+]BACKEND[=GAP]...
 * BACKEND: as in engine.h, after `+` with --high-precision. GAP: default 0. */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/engine.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_QUESTIONS = 2, QUESTION_TOKENS = 4 };
enum { MAX_PROMPTS = 2 * N_QUESTIONS + 20, MAX_TOKENS = 64, N_TOP = 8, LONGEST = 60, WAIT_MS = 600000 };

static const char *const questions[N_QUESTIONS] = {"The capital of France is", "Name the capital of France."};

struct prompt {
    const int32_t *ids;
    size_t n;
    int n_tokens; /* of its answer */
};

struct answer {
    int32_t ids[MAX_TOKENS];
    struct sampler_top top[MAX_TOKENS][N_TOP];
};

static struct {
    struct arena arena;
    int32_t *ids; /* of the whole text */
    size_t n_ids;
    struct prompt prompts[MAX_PROMPTS]; /* parts of ids, except the questions */
    int n_prompts, n_tokens;
    struct answer expected[MAX_PROMPTS], found[MAX_PROMPTS];
} test = {.n_prompts = MAX_PROMPTS, .n_tokens = MAX_TOKENS};

static enum err submit(struct engine *e, int i, struct engine_stream **out, struct err_info *info)
{
    struct engine_params p;
    engine_params_init(e, &p);
    p.sampling.temperature = 0;
    p.sampling.n_top = N_TOP;
    p.max_tokens = test.prompts[i].n_tokens;
    p.ignore_eos = true;
    return engine_submit(e, test.prompts[i].ids, test.prompts[i].n, &p, out, info);
}

/* Reads a stream to its end and closes it. */
static enum err collect(struct engine_stream *s, int n_tokens, struct answer *a, struct err_info *info)
{
    struct engine_event event;
    int32_t n = 0;
    enum err err;
    while ((err = engine_next(s, WAIT_MS, &event)) == ERR_OK && event.kind != SCHED_END) {
        if (n < n_tokens) {
            a->ids[n] = event.token.id;
            memcpy(a->top[n], event.token.top, sizeof a->top[0]);
        }
        n++;
    }
    engine_stream_close(&s);
    err = err == ERR_OK ? event.err : err;
    return err == ERR_OK && n == n_tokens ? ERR_OK
                                          : err_set(info, err != ERR_OK ? err : ERR_INTERNAL, NULL,
                                                    "a text ended after %d of %d tokens", n, n_tokens);
}

static enum err run_all(struct engine *e, struct answer *answers, struct err_info *info)
{
    struct engine_stream *streams[MAX_PROMPTS] = {NULL};
    enum err err = ERR_OK;
    for (int i = 0; i < test.n_prompts && err == ERR_OK; i++) {
        err = submit(e, i, &streams[i], info);
    }
    for (int i = 0; i < test.n_prompts && streams[i] != NULL; i++) {
        enum err one = collect(streams[i], test.prompts[i].n_tokens, &answers[i], info);
        err = err == ERR_OK ? one : err;
    }
    return err;
}

/* Reads question i as prompt 2 * i, and through the chat template as the next prompt. */
static enum err read_question(const struct engine *e, int i, struct err_info *info)
{
    int32_t *ids;
    struct prompt *plain = &test.prompts[2 * i], *chat = plain + 1;
    TRY(engine_tokenize(e, questions[i], strlen(questions[i]), true, false, NULL, 0, &test.arena, &ids, &plain->n,
                        info));
    plain->ids = ids;
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", questions[i]);
    json_t *context = engine_chat_context(e, messages, true);
    enum err err = context != NULL ? engine_chat(e, context, &test.arena, &ids, &chat->n, info) : ERR_NOMEM;
    json_decref(context);
    json_decref(messages);
    chat->ids = ids;
    plain->n_tokens = chat->n_tokens = MIN_OF(QUESTION_TOKENS, test.n_tokens);
    return err == ERR_OK && chat->n > LONGEST ? err_set(info, ERR_CONFIG, NULL, "%zu tokens are too many", chat->n)
                                              : err;
}

static enum err read_prompts(const struct engine *e, const char *path, struct err_info *info)
{
    struct io_map text = {.fd = -1};
    TRY(io_map_open(path, &text, info));
    enum err err = engine_tokenize(e, (const char *)text.data, text.bytes, false, false, NULL, 0, &test.arena,
                                   &test.ids, &test.n_ids, info);
    io_map_close(&text);
    TRY(err);
    if (test.n_ids <= LONGEST) {
        return err_set(info, ERR_CONFIG, path, "%zu tokens are too few", test.n_ids);
    }
    for (int i = 0; i < N_QUESTIONS; i++) {
        TRY(read_question(e, i, info));
    }
    for (size_t i = 0; i < MAX_PROMPTS - 2 * N_QUESTIONS; i++) {
        size_t n = 12 + i * 17 % (LONGEST - 12);
        test.prompts[2 * N_QUESTIONS + i] = (struct prompt){test.ids + i * 131 % (test.n_ids - n), n, test.n_tokens};
    }
    return ERR_OK;
}

/* Runs all prompts on a back end. */
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
    enum err err = test.ids == NULL ? read_prompts(e, text, info) : ERR_OK;
    err = err == ERR_OK ? run_all(e, answers, info) : err;
    engine_close(&e);
    return err;
}

/* Returns how much more likely than `id` ref's own choice is; infinite if `id` is not among its best N_TOP. */
static float gap_of(const struct answer *a, int32_t at, int32_t id)
{
    for (int k = 0; k < N_TOP; k++) {
        if (a->top[at][k].id == id) {
            return a->top[at][0].logprob - a->top[at][k].logprob;
        }
    }
    return INFINITY;
}

/* Prints how often the texts are equal; failures are gaps above `most`. */
static int compare(const char *name, float most)
{
    int n_same = 0, n_failed = 0;
    float largest = 0;
    for (int i = 0; i < test.n_prompts; i++) {
        const struct answer *a = &test.expected[i], *b = &test.found[i];
        int32_t at = 0;
        while (at < test.prompts[i].n_tokens && a->ids[at] == b->ids[at]) {
            at++;
        }
        if (at == test.prompts[i].n_tokens) {
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
