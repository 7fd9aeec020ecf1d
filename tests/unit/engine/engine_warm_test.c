/* A warm engine is like one that was just opened: nothing counted, nothing kept, the same answers. On a decoder, one
 * with recurrent states, an encoder, and with limits so narrow that not all of the warming fits. */
#include "engine/engine.h"

#include "engine/base/mem.h"

#include <check.h>
#include <string.h>

Suite *engine_warm_suite(void);

static const struct engine_config configs[] = {
    {.model_path = "tests/golden/models/llama-gqa-tied.gguf", .n_ctx = 256, .chat_template = "chatml"},
    {.model_path = "tests/golden/models/llama-gqa-tied.gguf", .n_ctx = 2, .max_seqs = 1, .queue_max_requests = 1},
    {.model_path = "tests/golden/models/lfm2-conv.gguf", .n_ctx = 256},
    {.model_path = "tests/golden/models/bert-mean.gguf", .n_ctx = 64},
    {.model_path = "tests/golden/models/qwen3-last.gguf", .n_ctx = 256, .backend = "ref"},
};

static struct engine *open_engine(const struct engine_config *cfg)
{
    struct engine *e;
    struct err_info info = {0};
    enum err err = engine_open(cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg->model_path, info.text);
    return e;
}

/* Ids that follow one token; how many. */
static size_t answer(struct engine *e, int32_t ids[16])
{
    struct engine_params p;
    struct engine_stream *s;
    struct engine_event ev = {0};
    struct err_info info = {0};
    size_t n = 0;
    engine_params_init(e, &p);
    p.sampling.seed = 5;
    p.max_tokens = 16;
    p.ignore_eos = true;
    enum err err = engine_submit(e, (const int32_t[]){7}, 1, &p, &s, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    while (ev.kind != SCHED_END) {
        err = engine_next(s, 1000, &ev);
        if (err == ERR_OK && ev.kind == SCHED_TOKEN) {
            ids[n++] = ev.token.id;
        }
        ck_assert(err == ERR_OK || err == ERR_AGAIN);
    }
    ck_assert_int_eq(ev.err, ERR_OK);
    engine_stream_close(&s);
    return n;
}

START_TEST(warming_leaves_no_trace)
{
    struct engine *cold = open_engine(&configs[_i]), *warm = open_engine(&configs[_i]);
    struct sched_stats before, after;
    struct err_info info;
    engine_get_stats(warm, &before);
    size_t live = mem_live_of(MEM_REQUEST);
    ck_assert_int_eq(engine_warm(warm, &info), ERR_OK);
    ck_assert_uint_eq(mem_live_of(MEM_REQUEST), live);
    engine_get_stats(warm, &after);
    after.last_step_age_ms = before.last_step_age_ms;
    after.usual_step_ms = before.usual_step_ms; /* an estimate is what stays */
    after.at = before.at;
    ck_assert_mem_eq(&before, &after, sizeof before);
    if (engine_model(warm)->generates) {
        int32_t expected[16], found[16];
        size_t n = answer(cold, expected);
        ck_assert_uint_eq(answer(warm, found), n);
        ck_assert_mem_eq(expected, found, n * sizeof *found);
        engine_get_stats(warm, &after);
        ck_assert_uint_eq(after.prompt_tokens, 1);
        ck_assert_uint_eq(after.cached_tokens, 0);
    }
    engine_close(&cold);
    engine_close(&warm);
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

Suite *engine_warm_suite(void)
{
    Suite *s = suite_create("engine_warm");
    TCase *t = tcase_create("engine_warm");
    tcase_add_loop_test(t, warming_leaves_no_trace, 0, (int)(sizeof configs / sizeof *configs));
    suite_add_tcase(s, t);
    return s;
}
