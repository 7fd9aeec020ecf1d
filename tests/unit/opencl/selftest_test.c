/* A device that says it has an instruction for dot products which is wrong: it is found, told of and replaced, and the
 * answers are those of right ones. One whose plain products are wrong is not used. */
#include "opencl/selftest.h"

#include "engine/plan/plan_ops.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"
#include "tests/support/fake_opencl.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *selftest_suite(void);

enum { N = 64, ROWS = 3 };

static struct plan *plan;
static struct backend_config cfg;
static struct err_info info;
static unsigned char encoded[N * N * 4];
static float x[N * N], found[ROWS * N];
static char told[4][1024];
static int n_told;

static void on_told(void *unused, const char *text)
{
    (void)unused;
    snprintf(told[n_told++ % 4], sizeof told[0], "%s", text);
}

/* The caller's rows times a matrix of Q8_0. */
static void set_up(void)
{
    uint64_t row_bytes;
    plan_buf_id in, out;
    plan_weight_id w;
    cfg = (struct backend_config){
        .n_threads = 1, .n_pages = 1, .max_rows = ROWS, .max_logits = 1, .tell = on_told, .pack_cache = folder_path()};
    ck_assert(dtype_row_bytes(DTYPE_Q8_0, N, &row_bytes));
    for (size_t i = 0; i < ARRAY_LEN(x); i++) {
        x[i] = (float)(i * i % 37) - 18;
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert(quantize_row(DTYPE_Q8_0, x + i * N, N, NULL, encoded + i * row_bytes));
    }
    ck_assert_int_eq(plan_new(&plan), ERR_OK);
    plan->n_vocab = plan->n_layers = plan->n_heads = plan->n_kv_heads = 1;
    plan->head_dim = 2;
    plan->n_ctx_train = ROWS;
    plan->n_embd = plan->input_width = plan->output_width = N;
    ck_assert_int_eq(plan_add_buf(plan, "in", N, &in), ERR_OK);
    ck_assert_int_eq(plan_add_buf(plan, "out", N, &out), ERR_OK);
    ck_assert_int_eq(plan_add_weight(plan, "w", row_mapped_new(&plan->arena, DTYPE_Q8_0, encoded, N, N), &w), ERR_OK);
    struct plan_step steps[] = {plan_edge_of(false, in, 0), plan_step_of(PLAN_MATMUL, in, out),
                                plan_edge_of(true, out, 0)};
    steps[1].w[0] = w;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        ck_assert_int_eq(plan_add_step(plan, &steps[i]), ERR_OK);
    }
    ck_assert_msg(plan_check(plan, &info) == ERR_OK, "%s", info.text);
}

static void tear_down(void)
{
    plan_free(&plan);
    ck_assert_int_eq(fake_opencl_live(), 0);
    folder_remove();
}

/* Opens the plan with the rules, and computes. */
static const float *answer(const char *rules)
{
    static const int32_t zeros[ROWS] = {0}, pos[ROWS] = {0, 1, 2};
    static const int32_t *const tables = zeros;
    const struct backend_batch b = {.n_rows = ROWS,
                                    .tokens = zeros,
                                    .pos = pos,
                                    .seq = zeros,
                                    .n_seqs = 1,
                                    .page_tables = &tables,
                                    .input = x,
                                    .output = found};
    struct backend_model *m;
    n_told = 0;
    fake_opencl_arm(rules);
    ck_assert_msg(backend_opencl.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(backend_compute(&backend_opencl, m, &b, &info) == ERR_OK, "%s", info.text);
    backend_opencl.close(&m);
    return found;
}

START_TEST(dot_products_are_tested_once)
{
    float right[ROWS * N];
    memcpy(right, answer("dot:right"), sizeof right);
    ck_assert_int_eq(n_told, 1);
    long n = fake_opencl_calls("clEnqueueNDRangeKernel");
    ck_assert(memcmp(right, answer("dot:right"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 0);
    ck_assert_int_lt(fake_opencl_calls("clEnqueueNDRangeKernel"), n); /* what was right is remembered */

    folder_clear();
    ck_assert(memcmp(right, answer("dot:wrong"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 2);
    ck_assert_msg(strstr(told[1], "computes products with Q8_0 weights wrongly: dot products of kind khr are replaced "
                                  "by plain ones") != NULL,
                  "%s", told[1]);
    ck_assert(memcmp(right, answer("dot:wrong"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 0);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), 0);
}
END_TEST

START_TEST(plain_ones_are_wrong)
{
    struct backend_model *m;
    selftest_always(true);
    fake_opencl_arm("dot:broken");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_UNSUPPORTED_DEVICE);
    ck_assert_ptr_null(m);
    ck_assert_msg(strstr(info.text, "wrongly, with plain dot products, too") != NULL, "%s", info.text);
}
END_TEST

/* A batch of the test that fails is no word against the device's products. */
START_TEST(the_device_fails_meanwhile)
{
    struct backend_model *m;
    selftest_always(true);
    fake_opencl_arm("clEnqueueNDRangeKernel:2:CL_MEM_OBJECT_ALLOCATION_FAILURE");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_NOMEM);
    ck_assert_ptr_null(m);
    ck_assert_int_eq(fake_opencl_live(), 0);
    fake_opencl_arm("clEnqueueNDRangeKernel:4!:CL_OUT_OF_RESOURCES");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_LOST);
    fake_opencl_arm("");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_OK);
    backend_opencl.close(&m);
}
END_TEST

Suite *selftest_suite(void)
{
    Suite *s = suite_create("selftest");
    TCase *t = tcase_create("selftest");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, dot_products_are_tested_once);
    tcase_add_test(t, plain_ones_are_wrong);
    tcase_add_test(t, the_device_fails_meanwhile);
    suite_add_tcase(s, t);
    return s;
}
