/* Streams over real back ends: what their steps take of the heap. */
#include "engine/engine.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <check.h>
#include <time.h>

Suite *engine_stream_suite(void);

enum { N_STREAMS = 3, N_PROMPT = 10, N_STEPS = 100 };

static const struct engine_config configs[] = {
    {.model_path = "tests/golden/models/llama-gqa-tied.gguf", .n_ctx = 256, .n_threads = 2},
    {.model_path = "tests/golden/models/lfm2-conv.gguf", .n_ctx = 256, .n_threads = 2},
    {.model_path = "tests/golden/models/qwen3moe-norms.gguf", .n_ctx = 256, .n_threads = 2},
    {.model_path = "tests/golden/models/llama-gqa-tied.gguf", .n_ctx = 256, .n_threads = 1, .backend = "ref"},
};

/* Waits until n steps more than `before` are done and nothing runs. */
static void wait_for_end(const struct engine *e, uint64_t before)
{
    uint64_t until = clock_now_ns() + 60000000000ull;
    struct sched_stats st = {0};
    do {
        ck_assert_msg(clock_now_ns() < until, "%lu steps, %d run", (unsigned long)st.steps, (int)st.n_running);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        engine_get_stats(e, &st);
    } while (st.steps < before + N_STEPS || st.n_running != 0);
}

/* Nobody reads meanwhile, so that whatever is taken is taken by the steps. The first round warms up. */
START_TEST(a_hundred_steps_of_decoding_allocate_nothing)
{
    struct engine *e;
    struct err_info info = {0};
    struct engine_params p;
    struct engine_stream *streams[N_STREAMS];
    ck_assert_msg(engine_open(&configs[_i], &e, &info) == ERR_OK, "%s", info.text);
    engine_params_init(e, &p);
    p.ignore_eos = true;
    p.sampling.temperature = 0.8f;
    p.sampling.top_k = 20;
    p.sampling.seed = 1;
    p.max_tokens = N_STEPS + 50;
    for (int round = 0; round < 2; round++) {
        struct sched_stats st;
        engine_get_stats(e, &st);
        for (int32_t i = 0; i < N_STREAMS; i++) {
            int32_t ids[N_PROMPT];
            for (int32_t k = 0; k < N_PROMPT; k++) {
                ids[k] = 3 + (i + k) % 7;
            }
            ck_assert_msg(engine_submit(e, ids, N_PROMPT, &p, &streams[i], &info) == ERR_OK, "%s", info.text);
        }
        mem_fail_at(round == 1 ? 0 : -1);
        wait_for_end(e, st.steps);
        ck_assert(!mem_fault_fired());
        mem_fail_at(-1);
        for (int i = 0; i < N_STREAMS; i++) {
            engine_stream_close(&streams[i]);
        }
    }
    engine_close(&e);
}
END_TEST

Suite *engine_stream_suite(void)
{
    Suite *s = suite_create("engine_stream");
    TCase *t = tcase_create("engine_stream");
    tcase_set_tags(t, "model");
    tcase_add_loop_test(t, a_hundred_steps_of_decoding_allocate_nothing, 0, (int)ARRAY_LEN(configs));
    suite_add_tcase(s, t);
    return s;
}
