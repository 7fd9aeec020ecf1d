/* Checks that a request's bytes never depend on its neighbors: 200 prompts alone, then together in batches of 2 to 32,
 * with steps of 16 to 512 rows, one thread and two, found in the prefix cache or not, of one key or of one key per
 * prompt, which overtake each other. Tokens, log-probabilities and those of the best alternatives must agree in every
 * bit.
 *   same_bytes MODEL.gguf TEXT [BACKEND [PROMPTS]]: default cpu and all 200 prompts */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 200, N_TOKENS = 8, N_TOP = 3, LONGEST = 400, WAIT_MS = 600000 };

/* A way of running all prompts. */
static const struct run {
    const char *name;
    int n_threads, max_batch_rows, max_seqs;
    int n_together; /* requests in flight */
    int passes;     /* the second one finds prompts in the cache */
    bool has_keys;  /* each prompt has its own key */
} runs[] = {
    {"alone, 1 thread, steps of 512", 1, 512, 1, 1, 1, false},
    {"alone, 2 threads, steps of 64, then cached", 2, 64, 1, 1, 2, false},
    {"2 together, 1 thread, steps of 16", 1, 16, 2, 2, 1, false},
    {"5 together, 2 threads, steps of 33", 2, 33, 5, 5, 1, false},
    {"16 together, 2 threads, steps of 128, then cached", 2, 128, 16, 16, 2, false},
    {"32 together, 2 threads, steps of 512, then cached", 2, 512, 32, 32, 2, false},
    {"12 together of 12 keys, 2 threads, steps of 128", 2, 128, 6, 12, 1, true},
};

/* The result of a prompt: every bit that a client can see. */
struct answer {
    int32_t n;
    int32_t ids[N_TOKENS];
    float logprobs[N_TOKENS];
    struct sampler_top top[N_TOKENS][N_TOP];
};

static struct {
    struct arena arena;
    int32_t *ids; /* of the whole text */
    size_t n_ids;
    struct answer expected[MAX_PROMPTS];
    int n_prompts, n_passed, n_failed;
    uint64_t n_cached;
} test;

/* Makes prompt i: one of five common prefixes, then its own text. */
static size_t prompt_of(int i, int32_t *out)
{
    size_t common = (size_t)(i % 5) * 23, own = 1 + (size_t)(i * 37) % 120, n = 0;
    own = i % 32 == 31 ? LONGEST - common : own;
    size_t from = (size_t)(i * 131) % (test.n_ids - own);
    memcpy(out, test.ids, common * sizeof *out);
    n = common;
    memcpy(out + n, test.ids + from, own * sizeof *out);
    return n + own;
}

static struct engine_stream *submit(const struct run *r, struct engine *e, int i)
{
    int32_t ids[LONGEST];
    size_t n = prompt_of(i, ids);
    struct engine_params p;
    struct err_info info = {0};
    struct engine_stream *s = NULL;
    engine_params_init(e, &p);
    p.sampling.temperature = i % 2 == 0 ? 0 : 0.8f;
    p.sampling.top_k = 0;
    p.sampling.top_p = i % 4 == 1 ? 0.9f : 1;
    p.sampling.min_p = 0;
    p.sampling.seed = (uint64_t)i;
    p.max_tokens = N_TOKENS;
    p.ignore_eos = true;
    p.sampling.n_top = N_TOP;
    struct sched_share whose = {.key = r->has_keys ? 1 + (uint64_t)i : 0};
    struct engine_sequence q = {.ids = ids, .n_ids = n};
    struct sched_group *g = NULL;
    if (engine_group_open(e, &whose, 1, &g) != ERR_OK || engine_submit_all(e, g, &p, &q, 1, &s, &info) != ERR_OK) {
        printf("FAILED prompt %d: %s\n", i, info.text);
    }
    engine_group_close(&g);
    return s;
}

/* Reads a stream to its end and closes it. False: it ended early. */
static bool collect(struct engine_stream *s, struct answer *a)
{
    struct engine_event event;
    memset(a, 0, sizeof *a);
    enum err err = s != NULL ? ERR_OK : ERR_NONE;
    while (err == ERR_OK && (err = engine_next(s, WAIT_MS, &event)) == ERR_OK && event.kind != SCHED_END) {
        if (a->n < N_TOKENS && event.token.n_top == N_TOP) {
            a->ids[a->n] = event.token.id;
            a->logprobs[a->n] = event.token.logprob;
            memcpy(a->top[a->n], event.token.top, sizeof a->top[0]);
        }
        a->n++;
    }
    bool ok = err == ERR_OK && event.err == ERR_OK && a->n == N_TOKENS;
    struct sched_usage usage = {0};
    if (s != NULL) {
        engine_stream_usage(s, &usage);
        engine_stream_close(&s);
    }
    test.n_cached += (uint64_t)usage.cached_tokens;
    return ok;
}

static void check(const struct run *r, int i, bool ok, const struct answer *a)
{
    if (r == &runs[0]) {
        test.expected[i] = *a;
    } else if (ok && memcmp(a, &test.expected[i], sizeof *a) != 0) {
        printf("FAILED prompt %d differs: %s\n", i, r->name);
        ok = false;
    }
    test.n_passed += ok;
    test.n_failed += !ok;
}

static void run_all(const struct run *r, struct engine *e)
{
    for (int pass = 0; pass < r->passes; pass++) {
        test.n_cached = 0;
        int failed = test.n_failed;
        for (int from = 0; from < test.n_prompts; from += r->n_together) {
            struct engine_stream *streams[32];
            int n = MIN_OF(r->n_together, test.n_prompts - from);
            for (int i = 0; i < n; i++) {
                streams[i] = submit(r, e, from + i);
            }
            for (int i = 0; i < n; i++) {
                struct answer a;
                bool ok = collect(streams[i], &a);
                check(r, from + i, ok, &a);
            }
        }
        struct sched_stats stats;
        engine_get_stats(e, &stats);
        printf("%s, pass %d: %d differ; %llu prompt tokens from the cache, %llu batches overtook\n", r->name, pass + 1,
               test.n_failed - failed, (unsigned long long)test.n_cached, (unsigned long long)stats.overtaking);
        fflush(stdout);
    }
}

static enum err open_engine(const char *model, const char *backend, const struct run *r, struct engine **out,
                            struct err_info *info)
{
    const struct engine_config cfg = {.model_path = model,
                                      .backend = backend,
                                      .n_threads = r->n_threads,
                                      .max_batch_rows = r->max_batch_rows,
                                      .max_seqs = r->max_seqs,
                                      .n_ctx = 1024,
                                      .kv_tokens = 65536};
    return engine_open(&cfg, out, info);
}

static enum err tokenize(const struct engine *e, const char *path, struct err_info *info)
{
    struct io_map text = {.fd = -1};
    TRY(io_map_open(path, &text, info));
    enum err err = engine_tokenize(e, (const char *)text.data, text.bytes, false, false, NULL, 0, &test.arena,
                                   &test.ids, &test.n_ids, info);
    io_map_close(&text);
    return err;
}

int main(int argc, char **argv)
{
    const char *backend = argc > 3 ? argv[3] : "cpu";
    test.n_prompts = argc > 4 ? (int)strtol(argv[4], NULL, 10) : MAX_PROMPTS;
    if (argc < 3 || argc > 5 || test.n_prompts < 1 || test.n_prompts > MAX_PROMPTS) {
        fprintf(stderr, "usage: same_bytes MODEL.gguf TEXT [BACKEND [PROMPTS]]\n");
        return 64;
    }
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        struct engine *e = NULL;
        struct err_info info = {0};
        enum err err = open_engine(argv[1], backend, &runs[i], &e, &info);
        if (err == ERR_OK && test.ids == NULL) {
            arena_init(&test.arena, 0, 0, MEM_GENERAL);
            err = tokenize(e, argv[2], &info);
        }
        if (err != ERR_OK || test.n_ids < 2 * LONGEST) {
            fprintf(stderr, "error: %s: %s (%zu tokens)\n", err_code(err), info.text, test.n_ids);
            return 65;
        }
        run_all(&runs[i], e);
        engine_close(&e);
    }
    arena_fini(&test.arena);
    printf("%d passed, %d failed\n", test.n_passed, test.n_failed);
    return test.n_failed != 0;
}
