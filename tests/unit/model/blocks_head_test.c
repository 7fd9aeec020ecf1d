/* Which files have the head of a reranker, and what is refused of one. */
#include "engine/model/blocks.h"
#include "engine/model/model.h"

#include "engine/base/mem.h"

#include <check.h>
#include <string.h>

Suite *blocks_head_suite(void);

static struct plan *build(const char *path, struct gguf **g)
{
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(model_open(path, g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(*g, 0, &p, &info) == ERR_OK, "%s", info.text);
    return p;
}

START_TEST(the_head_tells_a_reranker)
{
    static const struct {
        const char *path;
        enum plan_pooling pooling, states;
        uint32_t n_out, n_segments;
        bool has_dense;
    } rows[] = {
        {"tests/golden/rank/bert-pair.gguf", PLAN_POOL_RANK, PLAN_POOL_CLS, 1, 2, true},
        {"tests/golden/rank/bert-xlmr-pair.gguf", PLAN_POOL_RANK, PLAN_POOL_CLS, 1, 1, true},
        {"tests/golden/rank/bert-xlmr-pair.hf", PLAN_POOL_RANK, PLAN_POOL_CLS, 1, 1, true},
        {"tests/golden/rank/qwen3-label.hf", PLAN_POOL_RANK, PLAN_POOL_LAST, 1, 0, false},
        {"tests/golden/rank/qwen3-yes.gguf", PLAN_POOL_RANK, PLAN_POOL_LAST, 2, 0, false},
        {"tests/golden/models/bert-cls.gguf", PLAN_POOL_CLS, PLAN_POOL_NONE, 0, 1, false},
        {"tests/golden/models/qwen3-norms.gguf", PLAN_POOL_NONE, PLAN_POOL_NONE, 0, 0, false},
    };
    struct gguf *g;
    struct plan *p = build(rows[_i].path, &g);
    ck_assert(p->pooling == rows[_i].pooling && p->ranker.states == rows[_i].states);
    ck_assert_uint_eq(plan_head_width(&p->ranker.head, 0), rows[_i].n_out);
    ck_assert_uint_eq(p->ranker.n_segments, rows[_i].n_segments);
    ck_assert_int_eq(p->ranker.head.n, rows[_i].n_out == 0 ? 0 : 1 + rows[_i].has_dense);
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* With so many rows in the directory, changed in memory; 0: as if there were none. */
static enum err build_with(uint64_t n_rows, struct err_info *info)
{
    struct gguf *g;
    struct plan *p;
    ck_assert_int_eq(model_open("tests/golden/rank/qwen3-yes.gguf", &g, info), ERR_OK);
    struct gguf_tensor *t = (struct gguf_tensor *)(uintptr_t)gguf_find_tensor(g, "cls.output.weight");
    ck_assert_ptr_nonnull(t);
    t->dims[1] = n_rows;
    enum err err = model_build(g, 0, &p, info);
    plan_free(&p);
    gguf_close(&g);
    return err;
}

START_TEST(a_head_that_cannot_be_is_refused)
{
    struct err_info info = {0};
    ck_assert_int_eq(build_with(0, &info), ERR_MISSING_TENSOR);
    ck_assert_ptr_nonnull(strstr(info.text, "cls.output.weight"));
    ck_assert_int_eq(build_with(3, &info), ERR_BAD_TENSOR_SHAPE);
    ck_assert_ptr_nonnull(strstr(info.text, "found 3"));
}
END_TEST

Suite *blocks_head_suite(void)
{
    Suite *s = suite_create("blocks_head");
    TCase *t = tcase_create("blocks_head");
    tcase_add_loop_test(t, the_head_tells_a_reranker, 0, 7);
    tcase_add_test(t, a_head_that_cannot_be_is_refused);
    suite_add_tcase(s, t);
    return s;
}
