/* Models whose layers all see a window alone, and those of which some do, on every back end: in a pool that holds a window and a batch,
 * whose pages are written over all the time, they give to the last bit what they give in one that holds everything. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "engine/kernels/kern.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *engine_window_suite(void);

#define MODELS "tests/golden/models/"

enum { N = 4, PROMPT = 400, ANSWER = 60, N_CTX = 512, ROWS = 48, TIGHT = 4 * 32 /* (33 + 48) / 32 + 2 pages */ };

static const struct engine_config configs[] = {
    {.model_path = MODELS "phi3-window.gguf", .cpu = "avx2"},
    {.model_path = MODELS "phi3-window.gguf", .cpu = "avx512"},
    {.model_path = MODELS "phi3-window.gguf", .cpu = "avx2", .cache_type_k = "q8_0", .cache_type_v = "q4_0"},
    {.model_path = MODELS "phi3-window.gguf", .backend = "ref"},
    {.model_path = MODELS "phi3-window.gguf", .backend = "ref:0-0,cpu"},
};

struct answer {
    int32_t ids[ANSWER];
    float logprobs[ANSWER];
};

static bool is_there(const char *isa)
{
    for (int i = 0; isa != NULL && kern_isa_name(i) != NULL; i++) {
        if (strcmp(kern_isa_name(i), isa) == 0) {
            return kern_isa_is_there(i);
        }
    }
    return true;
}

static struct engine_stream *submit(struct engine *e, int which)
{
    struct engine_params p;
    struct engine_stream *s;
    struct err_info info = {0};
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        prompt[i] = (int32_t)((uint32_t)(i * i + 3 * i * which + 11) % engine_model(e)->n_vocab);
    }
    engine_params_init(e, &p);
    p.sampling.temperature = 0;
    p.sampling.n_top = 0;
    p.max_tokens = ANSWER;
    p.ignore_eos = true;
    enum err err = engine_submit(e, prompt, PROMPT, &p, &s, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return s;
}

static void collect(struct engine_stream *s, struct answer *a)
{
    struct engine_event ev = {0};
    int n = 0;
    while (ev.kind != SCHED_END) {
        enum err err = engine_next(s, 1000, &ev);
        if (err == ERR_OK && ev.kind == SCHED_TOKEN) {
            a->ids[n] = ev.token.id;
            a->logprobs[n++] = ev.token.logprob;
        }
        ck_assert(err == ERR_OK || err == ERR_AGAIN);
    }
    ck_assert_int_eq(ev.err, ERR_OK);
    ck_assert_int_eq(n, ANSWER);
    engine_stream_close(&s);
}

static struct engine *open_for(struct engine_config cfg, uint64_t kv_tokens, int max_seqs)
{
    struct engine *e;
    struct err_info info = {0};
    cfg.n_threads = 2;
    cfg.n_ctx = N_CTX;
    cfg.max_batch_rows = ROWS;
    cfg.max_seqs = max_seqs;
    cfg.kv_tokens = kv_tokens;
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg.model_path, info.text);
    return e;
}

static struct engine *open_engine(struct engine_config cfg, uint64_t kv_tokens) { return open_for(cfg, kv_tokens, N); }

/* Each alone in a pool of all that they have, then together in one for a window, and in one for two. */
START_TEST(pages_that_are_written_over_change_no_bit)
{
    static struct answer alone[N], got;
    if (!is_there(configs[_i].cpu)) {
        return;
    }
    struct engine *e = open_engine(configs[_i], (uint64_t)N * N_CTX);
    for (int i = 0; i < N; i++) {
        collect(submit(e, i), &alone[i]);
        ck_assert(isfinite(alone[i].logprobs[0]));
    }
    engine_close(&e);
    for (uint64_t n = 1; n <= 2; n++) {
        struct engine_stream *s[N];
        e = open_engine(configs[_i], n * TIGHT);
        for (int i = 0; i < N; i++) {
            s[i] = submit(e, i);
        }
        for (int i = 0; i < N; i++) {
            collect(s[i], &got);
            ck_assert_msg(memcmp(&got, &alone[i], sizeof got) == 0,
                          "%s: request %d, %d windows: other tokens or log-probabilities", configs[_i].model_path, i,
                          (int)n);
        }
        engine_close(&e);
    }
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

static const struct engine_config mixed[] = {
    {.model_path = MODELS "gemma3-window.gguf", .cpu = "avx2"},
    {.model_path = MODELS "gemma3-window.gguf", .cpu = "avx512", .cache_type_k = "q8_0", .cache_type_v = "q4_0"},
    {.model_path = MODELS "gemma3-window.gguf", .backend = "ref"},
    {.model_path = MODELS "gemma3-window.gguf", .backend = "ref:0-0,cpu"},
    {.model_path = MODELS "gemma3n-sparse.gguf", .cpu = "avx2"}, /* layers that read others' keys and values */
    {.model_path = MODELS "gpt-oss-sinks.gguf", .cpu = "avx2"},
};

/* Each alone with window pages for all positions, then together with as few as a sequence at a time, or all, have; and these again, from
 * what the first left. */
START_TEST(window_pages_that_are_written_over_change_no_bit)
{
    enum { MANY = 40, PAGES = N * N_CTX / 32 };
    static struct answer alone[N], got;
    if (!is_there(mixed[_i].cpu)) {
        return;
    }
    int n_seqs = mixed[_i].backend == NULL ? (int)N : N / 2; /* ref takes long */
    struct engine *e = open_for(mixed[_i], (uint64_t)N * N_CTX, MANY);
    struct sched_stats st;
    for (int i = 0; i < n_seqs; i++) {
        collect(submit(e, i), &alone[i]);
        ck_assert(isfinite(alone[i].logprobs[0]));
    }
    engine_get_stats(e, &st);
    ck_assert_uint_eq(st.windows_total, PAGES);
    engine_close(&e);
    for (int n = 1; n <= N; n += N - 1) {
        struct engine_stream *s[N];
        e = open_for(mixed[_i], (uint64_t)n * N_CTX, n);
        engine_get_stats(e, &st);
        ck_assert(st.windows_total > 0 &&
                  st.windows_total <= (n == 1 ? PAGES / 4 : PAGES / 2)); /* of 15 that each has */
        for (int turn = 0; turn < (n == 1 ? 1 : 2); turn++) {
            for (int i = 0; i < n_seqs; i++) {
                s[i] = submit(e, i);
            }
            for (int i = 0; i < n_seqs; i++) {
                collect(s[i], &got);
                ck_assert_msg(memcmp(&got, &alone[i], sizeof got) == 0,
                              "%s: request %d of %d at once, turn %d: other tokens", mixed[_i].model_path, i, n, turn);
            }
        }
        engine_get_stats(e, &st);
        ck_assert(n == 1 || st.cached_tokens > 0);
        engine_close(&e);
    }
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* A pool is as small as a window, a batch and what pages leave over; where a layer sees everything, as the context. */
START_TEST(the_memory_plan_follows_the_window)
{
    struct engine_config cfg = {
        .model_path = MODELS "phi3-window.gguf", .n_threads = 1, .n_ctx = N_CTX, .max_batch_rows = ROWS, .max_seqs = 1};
    struct engine_memory m;
    struct err_info info = {0};
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.seq_tokens, TIGHT);
    ck_assert_uint_eq(m.kv_tokens, 32768);
    uint64_t bytes = m.kv_bytes / m.kv_tokens;
    cfg.kv_tokens = TIGHT;
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_OK);
    ck_assert_uint_eq(m.kv_bytes, TIGHT * bytes);
    cfg.kv_tokens = TIGHT - 1;
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "kv-tokens: expected the 128 of a window and batch-size or more, found 127");
    cfg = (struct engine_config){
        .model_path = MODELS "gemma3-window.gguf", .n_threads = 1, .n_ctx = N_CTX, .kv_tokens = N_CTX};
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.seq_tokens, N_CTX);
    ck_assert_uint_eq(m.window_tokens, N_CTX);
    bytes = m.kv_bytes / N_CTX;
    cfg.max_batch_rows = ROWS;
    cfg.max_seqs = 1;
    cfg.kv_tokens = 64 * N_CTX;
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_OK);
    ck_assert_uint_le(m.window_tokens, N_CTX);
    ck_assert_uint_gt(m.window_tokens, 0);
    ck_assert_uint_lt(m.kv_bytes, 64 * N_CTX * bytes / 2); /* of its layers most have the window */
    cfg.max_batch_rows = 0;
    cfg.max_seqs = 0;
    cfg.kv_tokens = N_CTX - 1;
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "kv-tokens: expected ctx-size 512 or more, found 511");
}
END_TEST

Suite *engine_window_suite(void)
{
    Suite *s = suite_create("engine_window");
    TCase *t = tcase_create("bits"), *plan = tcase_create("plan");
    tcase_set_timeout(t, 120);
    tcase_set_tags(t, "long");
    tcase_add_loop_test(t, pages_that_are_written_over_change_no_bit, 0, sizeof configs / sizeof *configs);
    tcase_add_loop_test(t, window_pages_that_are_written_over_change_no_bit, 0, sizeof mixed / sizeof *mixed);
    suite_add_tcase(s, t);
    tcase_add_test(plan, the_memory_plan_follows_the_window);
    suite_add_tcase(s, plan);
    return s;
}
