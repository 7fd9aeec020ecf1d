/* What is restored is what was computed, to the bit: for families with full, windowed, latent and recurrent layers, for types of keys and
 * values, and for back ends. Three engines one after the other: without a folder, one that fills it, one that reads it. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "tests/support/folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

Suite *engine_snapshots_suite(void);

#define MODELS "tests/golden/models/"

enum { PROMPT = 170, WHOLE = 160, ANSWER = 24 };

static const struct engine_config configs[] = {
    {.model_path = MODELS "llama-gqa-tied.gguf"},
    {.model_path = MODELS "llama-gqa-tied.gguf", .cache_type_k = "q8_0", .cache_type_v = "q4_0"},
    {.model_path = MODELS "llama-gqa-tied.gguf", .cache_type_k = "f16", .cache_type_v = "bf16"},
    {.model_path = MODELS "llama-gqa-tied.gguf", .backend = "ref"},
    {.model_path = MODELS "llama-gqa-tied.gguf", .backend = "ref:0-0,cpu"},
    {.model_path = MODELS "llama-gqa-tied.gguf", .high_precision = true},
    {.model_path = MODELS "gemma3-window.gguf"},
    {.model_path = MODELS "gpt-oss-sinks.gguf"},
    {.model_path = MODELS "deepseek2-v3.gguf"},
    {.model_path = MODELS "lfm2-conv.gguf"},
    {.model_path = MODELS "qwen3next-delta.gguf"},
    {.model_path = MODELS "mamba-falcon.gguf"}, /* pages without bytes */
    {.model_path = MODELS "mamba-tied.gguf", .backend = "ref:0-0,cpu"},
    {.model_path = MODELS "qwen35-delta.gguf", .cache_type_k = "q8_0", .cache_type_v = "q8_0"},
};

struct answer {
    int32_t ids[ANSWER];
    float logprobs[ANSWER];
    struct sched_usage usage;
};

static struct engine *open_engine(struct engine_config cfg, const char *folder)
{
    struct engine *e;
    struct err_info info = {0};
    cfg.n_ctx = cfg.n_ctx != 0 ? cfg.n_ctx : 256;
    cfg.n_threads = 1;
    cfg.cache_dir = folder;
    cfg.cache_disk_bytes = 256 << 20;
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg.model_path, info.text);
    return e;
}

static struct answer ask(struct engine *e)
{
    struct engine_params p;
    struct engine_stream *s;
    struct engine_event ev = {0};
    struct err_info info = {0};
    struct answer a = {0};
    int32_t prompt[PROMPT], n = 0;
    for (int i = 0; i < PROMPT; i++) {
        prompt[i] = (int32_t)((uint32_t)(i * i + 3 * i + 11) % engine_model(e)->n_vocab);
    }
    engine_params_init(e, &p);
    p.sampling.temperature = 0;
    p.sampling.n_top = 0;
    p.max_tokens = ANSWER;
    p.ignore_eos = true;
    enum err err = engine_submit(e, prompt, PROMPT, &p, &s, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    while (ev.kind != SCHED_END) {
        err = engine_next(s, 1000, &ev);
        if (err == ERR_OK && ev.kind == SCHED_TOKEN) {
            a.ids[n] = ev.token.id;
            a.logprobs[n++] = ev.token.logprob;
        }
        ck_assert(err == ERR_OK || err == ERR_AGAIN);
    }
    ck_assert_int_eq(ev.err, ERR_OK);
    ck_assert_int_eq(n, ANSWER);
    engine_stream_usage(s, &a.usage);
    engine_stream_close(&s);
    return a;
}

static void compare(const struct answer *a, const struct answer *b, const char *what)
{
    ck_assert_msg(memcmp(a->ids, b->ids, sizeof a->ids) == 0, "%s: other tokens", what);
    ck_assert_msg(memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0, "%s: other log-probabilities", what);
}

START_TEST(what_is_restored_is_what_was_computed)
{
    const struct engine_config *cfg = &configs[_i];
    struct engine *e = open_engine(*cfg, NULL);
    struct answer computed = ask(e);
    ck_assert(isfinite(computed.logprobs[0]));
    ck_assert_int_eq(computed.usage.cached_tokens, 0);
    engine_close(&e);
    e = open_engine(*cfg, folder_file("cache"));
    struct answer saved = ask(e);
    compare(&saved, &computed, cfg->model_path);
    ck_assert_int_eq(saved.usage.cached_tokens, 0);
    engine_close(&e);
    e = open_engine(*cfg, folder_file("cache"));
    struct answer restored = ask(e), again = ask(e);
    compare(&restored, &computed, cfg->model_path);
    compare(&again, &computed, cfg->model_path);
    ck_assert_int_eq(restored.usage.cached_tokens, WHOLE);
    struct sched_stats st;
    engine_get_stats(e, &st);
    ck_assert_uint_eq(st.disk.restored_tokens, WHOLE);
    ck_assert_uint_eq(st.disk.n_refused, 0);
    engine_close(&e);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* What decides the bytes decides the names: nothing of another configuration, or of a file that was written anew, is found. */
START_TEST(what_computes_otherwise_finds_nothing)
{
    static const struct engine_config others[] = {
        {.model_path = MODELS "llama-gqa-tied.gguf", .cache_type_k = "f16"},
        {.model_path = MODELS "llama-gqa-tied.gguf", .high_precision = true},
        {.model_path = MODELS "llama-gqa-tied.gguf", .backend = "ref"},
        {.model_path = MODELS "llama-gqa-tied.gguf", .quantize = "q8_0"},
    };
    struct engine *e = open_engine(configs[0], folder_file("cache"));
    (void)ask(e);
    engine_close(&e);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        e = open_engine(others[i], folder_file("cache"));
        ck_assert_int_eq(ask(e).usage.cached_tokens, 0);
        engine_close(&e);
    }
    static char bytes[4 << 20];
    size_t n = folder_read(configs[0].model_path, bytes, sizeof bytes);
    ck_assert_uint_lt(n, sizeof bytes - 1);
    struct engine_config copy = configs[0];
    copy.model_path = folder_write("copy.gguf", bytes, n);
    e = open_engine(copy, folder_file("cache"));
    ck_assert_int_eq(ask(e).usage.cached_tokens, 0);
    engine_close(&e);
    e = open_engine(configs[0], folder_file("cache"));
    ck_assert_int_eq(ask(e).usage.cached_tokens, WHOLE);
    engine_close(&e);
    folder_remove();
}
END_TEST

START_TEST(an_encoder_keeps_nothing)
{
    struct engine *e =
        open_engine((struct engine_config){.model_path = MODELS "bert-mean.gguf", .n_ctx = 64}, folder_file("cache"));
    struct sched_stats st;
    engine_get_stats(e, &st);
    ck_assert_uint_eq(st.disk.limit_bytes, 0);
    engine_close(&e);
    folder_remove();
}
END_TEST

Suite *engine_snapshots_suite(void)
{
    Suite *s = suite_create("engine_snapshots");
    TCase *t = tcase_create("engine_snapshots");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_is_restored_is_what_was_computed, 0, (int)(sizeof configs / sizeof *configs));
    tcase_add_test(t, what_computes_otherwise_finds_nothing);
    tcase_add_test(t, an_encoder_keeps_nothing);
    suite_add_tcase(s, t);
    return s;
}
