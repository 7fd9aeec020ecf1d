/* Embeddings through the whole engine, on encoders and a decoder: the bits of a vector do not depend on threads, on
 * what runs beside it, or on how prompts are cut; and the back ends agree. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "engine/kernels/kern.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *engine_embed_suite(void);

enum { N_TEXTS = 14, LONGEST = 120, MAX_WIDTH = 64 };

static const char *const models[] = {"tests/golden/models/bert-mean.gguf",
                                     "tests/golden/models/nomic-bert-mean.gguf",
                                     "tests/golden/models/gemma-embedding-mean.gguf",
                                     "tests/golden/models/modern-bert-cls.gguf",
                                     "tests/golden/models/qwen3-last.gguf",
                                     "tests/golden/models/qwen2-bias.gguf"};
enum { N_MODELS = ARRAY_LEN(models), DECODERS = 4 };

static struct engine *open_engine(struct engine_config cfg)
{
    struct engine *e;
    struct err_info info = {0};
    cfg.n_ctx = 128;
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg.model_path, info.text);
    return e;
}

static size_t text_of(int which, int32_t *ids)
{
    static const size_t lengths[N_TEXTS] = {1, 2, 31, 32, 33, 64, 65, 97, 120, 100, 7, 70, 16, 45};
    for (size_t i = 0; i < lengths[which]; i++) {
        ids[i] = (int32_t)((i * 29 + 11 + (size_t)(which % 3) * 5) % 250); /* some share their beginning */
    }
    return lengths[which];
}

static struct engine_embedding *start(struct engine *e, int which)
{
    int32_t ids[LONGEST];
    struct engine_embedding *w;
    struct err_info info = {0};
    size_t n = text_of(which, ids);
    enum err err = engine_embed(e, ids, n, &(struct engine_embed_params){0}, &w, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return w;
}

/* Waits, copies, closes. */
static void finish(struct engine *e, struct engine_embedding **w, float *out)
{
    const float *vector;
    enum err err;
    while ((err = engine_embedding_wait(*w, 1000, &vector, NULL)) == ERR_AGAIN) {
    }
    ck_assert_int_eq(err, ERR_OK);
    memcpy(out, vector, engine_model(e)->n_embd_out * sizeof *out);
    ck_assert_int_eq(engine_embedding_wait(*w, 0, &vector, NULL), ERR_OK); /* as often as one likes */
    engine_embedding_close(w);
    ck_assert_ptr_null(*w);
}

static void embed_alone(struct engine *e, float (*out)[MAX_WIDTH])
{
    for (int i = 0; i < N_TEXTS; i++) {
        struct engine_embedding *w = start(e, i);
        finish(e, &w, out[i]);
    }
}

/* All at once, and on a decoder with a generation beside each. */
static void embed_together(struct engine *e, float (*out)[MAX_WIDTH])
{
    struct engine_embedding *w[N_TEXTS];
    struct engine_stream *streams[N_TEXTS] = {NULL};
    struct engine_params p;
    engine_params_init(e, &p);
    p.max_tokens = 9;
    for (int i = 0; i < N_TEXTS; i++) {
        int32_t ids[LONGEST];
        size_t n = text_of(N_TEXTS - 1 - i, ids);
        if (engine_model(e)->generates) {
            ck_assert_int_eq(engine_submit(e, ids, n, &p, &streams[i], NULL), ERR_OK);
        }
        w[i] = start(e, i);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        finish(e, &w[i], out[i]);
        engine_stream_close(&streams[i]);
    }
}

static void check_same(float (*a)[MAX_WIDTH], float (*b)[MAX_WIDTH], size_t width, const char *what)
{
    for (int i = 0; i < N_TEXTS; i++) {
        ck_assert_msg(memcmp(a[i], b[i], width * sizeof **a) == 0, "%s: text %d differs", what, i);
    }
}

START_TEST(the_bits_depend_on_the_text_alone)
{
    static float alone[N_TEXTS][MAX_WIDTH], other[N_TEXTS][MAX_WIDTH], ref[N_TEXTS][MAX_WIDTH];
    bool is_decoder = _i >= DECODERS;
    struct engine_config cfg = {
        .model_path = models[_i], .n_threads = 1, .pooling = _i == N_MODELS - 1 ? "mean" : NULL};
    struct engine *e = open_engine(cfg);
    size_t width = engine_model(e)->n_embd_out;
    ck_assert(width <= MAX_WIDTH && engine_model(e)->generates == is_decoder && engine_model(e)->pooling != NULL);
    embed_alone(e, alone);
    embed_alone(e, other);
    check_same(alone, other, width, "again, with what is kept");
    embed_together(e, other);
    check_same(alone, other, width, "together");
    engine_close(&e);
    cfg.n_threads = 3;
    cfg.max_batch_rows = is_decoder ? 17 : 128;
    cfg.max_seqs = 5;
    e = open_engine(cfg);
    embed_together(e, other);
    check_same(alone, other, width, "three threads, other batches");
    engine_close(&e);
    cfg.backend = "ref";
    e = open_engine(cfg);
    embed_together(e, ref);
    engine_close(&e);
    double worst = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        for (size_t k = 0; k < width; k++) {
            worst = fmax(worst, fabs((double)ref[i][k] - alone[i][k]) * sqrt((double)width));
        }
    }
    ck_assert_msg(worst < 2e-2, "cpu and ref differ by %g", worst);
}
END_TEST

START_TEST(texts_that_cannot_be_are_refused)
{
    struct engine *e = open_engine((struct engine_config){.model_path = models[0], .n_threads = 1});
    static int32_t ids[129];
    struct engine_embedding *w;
    struct engine_embed_params p = {0};
    struct engine_stream *s;
    struct engine_params gen;
    struct err_info info = {0};
    ck_assert_int_eq(engine_embed(e, ids, 0, &p, &w, &info), ERR_INVALID_VALUE);
    ck_assert_int_eq(engine_embed(e, ids, 129, &p, &w, &info), ERR_CONTEXT_LENGTH);
    ids[1] = 288;
    ck_assert_int_eq(engine_embed(e, ids, 2, &p, &w, &info), ERR_INVALID_VALUE);
    ck_assert_ptr_null(w);
    engine_params_init(e, &gen);
    ck_assert_int_eq(engine_submit(e, ids, 1, &gen, &s, &info), ERR_UNSUPPORTED_ENDPOINT);
    engine_drain(e);
    ck_assert_int_eq(engine_embed(e, ids, 1, &p, &w, &info), ERR_DRAINING);
    engine_close(&e);
    e = open_engine((struct engine_config){.model_path = models[N_MODELS - 1], .n_threads = 1});
    ck_assert_int_eq(engine_embed(e, ids, 1, &p, &w, &info), ERR_UNSUPPORTED_ENDPOINT);
    engine_close(&e);
}
END_TEST

START_TEST(out_of_memory_ends_the_request_alone)
{
    struct engine *e = open_engine((struct engine_config){.model_path = models[0], .n_threads = 1});
    size_t live = mem_live_of(MEM_REQUEST);
    int32_t id = 5;
    for (long at = 0;; at++) {
        struct engine_embedding *w;
        mem_fail_at(at);
        enum err err = engine_embed(e, &id, 1, &(struct engine_embed_params){0}, &w, NULL);
        mem_fail_at(-1);
        if (err == ERR_OK) {
            float out[MAX_WIDTH];
            ck_assert_int_ge(at, 4);
            finish(e, &w, out);
            break;
        }
        ck_assert(err == ERR_NOMEM && w == NULL && mem_live_of(MEM_REQUEST) == live);
    }
    engine_close(&e);
}
END_TEST

Suite *engine_embed_suite(void)
{
    Suite *s = suite_create("engine_embed");
    TCase *c = tcase_create("engine_embed"), *all = tcase_create("engine_embed_models");
    tcase_set_tags(all, "model");
    tcase_add_loop_test(all, the_bits_depend_on_the_text_alone, 0, N_MODELS);
    tcase_add_test(c, texts_that_cannot_be_are_refused);
    tcase_add_test(c, out_of_memory_ends_the_request_alone);
    suite_add_tcase(s, c);
    suite_add_tcase(s, all);
    return s;
}
