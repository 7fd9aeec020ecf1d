/* On-load quantisation: which weights change, into what, and that rows come out as the quantiser makes them. */
#include "engine/plan/plan_quantize.h"

#include "engine/quant/quant.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *plan_quantize_suite(void);

enum { WIDTH = 512, ROWS = 8, ODD = 48 };

static float values[ROWS * WIDTH];
static uint16_t halves[ROWS * WIDTH];

static plan_weight_id add(struct plan *p, const char *name, enum dtype type, const void *data, uint32_t rows,
                          uint32_t width)
{
    plan_weight_id id;
    const struct row_source *source = row_mapped_new(&p->arena, type, data, rows, width);
    ck_assert_int_eq(plan_add_weight(p, name, source, &id), ERR_OK);
    return id;
}

enum { EMBED, MATRIX, HALF, NARROW, VECTOR, ODD_WIDTH, UNEVEN, ROUTER, EXPERTS, PREDICTS, CORRECTS, N_WEIGHTS };

static void add_step(struct plan *p, enum plan_op op, plan_weight_id w, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.w[0] = w;
    s.src = src;
    s.dst = dst;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
}

static struct plan *make(void)
{
    struct plan *p;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        values[i] = sinf((float)i * 0.37f) * (1 + (float)(i % 5));
        halves[i] = dtype_f32_to_bf16(values[i]);
    }
    add(p, "embed", DTYPE_F32, values, ROWS, WIDTH);
    add(p, "matrix", DTYPE_F32, values, ROWS, WIDTH);
    add(p, "half", DTYPE_BF16, halves, ROWS, WIDTH);
    add(p, "narrow", DTYPE_Q8_0, values, ROWS, WIDTH);
    add(p, "vector", DTYPE_F32, values, 1, WIDTH);
    add(p, "odd", DTYPE_F32, values, ROWS, ODD);
    add(p, "uneven", DTYPE_F32, values, ROWS, WIDTH / 2 + 32);
    add(p, "router", DTYPE_F32, values, ROWS, WIDTH);
    add(p, "experts", DTYPE_F32, values, ROWS, WIDTH);
    add(p, "predicts", DTYPE_F32, values, ROWS, WIDTH); /* routers of streams */
    add(p, "corrects", DTYPE_F32, values, ROWS, WIDTH);
    add_step(p, PLAN_EMBED, EMBED, PLAN_NONE, 0);
    for (plan_weight_id id = MATRIX; id <= UNEVEN; id++) {
        add_step(p, id == VECTOR ? PLAN_NORM : PLAN_MATMUL, id, 0, 1);
    }
    add_step(p, PLAN_MATMUL, ROUTER, 0, 2);
    add_step(p, PLAN_ROUTE, PLAN_NONE, 2, 3);
    add_step(p, PLAN_EXPERTS, EXPERTS, 0, 1);
    add_step(p, PLAN_MATMUL, PREDICTS, 0, 4);
    add_step(p, PLAN_PREDICT, PLAN_NONE, 4, 5);
    add_step(p, PLAN_MATMUL, CORRECTS, 0, 6);
    add_step(p, PLAN_CORRECT, PLAN_NONE, 0, 5);
    p->steps[p->n_steps - 1].streams.routes = 6;
    return p;
}

START_TEST(matrices_of_floats_change)
{
    struct err_info info = {0};
    struct plan *p = make();
    ck_assert_int_eq(plan_quantize(p, "q4_k", &info), ERR_OK);
    const enum dtype want[N_WEIGHTS] = {
        [EMBED] = DTYPE_Q8_0,   [MATRIX] = DTYPE_Q4_K,   [HALF] = DTYPE_Q4_K,   [NARROW] = DTYPE_Q8_0,
        [VECTOR] = DTYPE_F32,   [ODD_WIDTH] = DTYPE_F32, [UNEVEN] = DTYPE_Q8_0, [ROUTER] = DTYPE_F32,
        [EXPERTS] = DTYPE_Q4_K, [PREDICTS] = DTYPE_F32,  [CORRECTS] = DTYPE_F32};
    for (int i = 0; i < N_WEIGHTS; i++) {
        const struct plan_weight *w = &p->weights[i];
        bool changed = i != NARROW && i != VECTOR && i != ODD_WIDTH && i != ROUTER && i < PREDICTS;
        uint64_t bytes;
        ck_assert(dtype_row_bytes(want[i], w->n_in, &bytes));
        ck_assert_msg(w->type == want[i] && w->row_bytes == bytes && (w->source->ops->at == NULL) == changed,
                      "%s is %s", w->name, dtype_info(w->type)->name);
    }
    plan_free(&p);
}
END_TEST

START_TEST(rows_are_the_quantisers)
{
    static unsigned char rows[ROWS * WIDTH * 2], one[WIDTH * 2];
    float x[WIDTH];
    struct err_info info = {0};
    struct plan *p = make();
    ck_assert_int_eq(plan_quantize(p, "q5_0", &info), ERR_OK);
    const struct plan_weight *w = &p->weights[HALF];
    row_source_encode(w->source, 0, ROWS, rows);
    for (uint32_t r = 0; r < ROWS; r++) {
        w->source->ops->read(w->source, r, 0, WIDTH, x);
        for (int i = 0; i < WIDTH; i++) {
            if (x[i] != dtype_bf16_to_f32(halves[r * WIDTH + (uint32_t)i])) {
                ck_abort_msg("row %u, input %d", r, i);
            }
        }
        ck_assert(quantize_row(DTYPE_Q5_0, x, WIDTH, NULL, one));
        ck_assert_int_eq(memcmp(one, rows + r * w->row_bytes, w->row_bytes), 0);
    }
    plan_free(&p);
}
END_TEST

START_TEST(eight_bits_are_rounded)
{
    static unsigned char rows[ROWS * WIDTH * 2];
    float back[WIDTH];
    struct err_info info = {0};
    struct plan *p = make();
    for (int i = 0; i < WIDTH; i++) {
        values[i] = i < 32 ? 0 : i < 64 ? 1e-9f * values[i] : values[i]; /* scales that are zero in a half */
    }
    ck_assert_int_eq(plan_quantize(p, "q8_0", &info), ERR_OK);
    const struct plan_weight *w = &p->weights[MATRIX];
    row_source_encode(w->source, 0, ROWS, rows);
    for (uint32_t r = 0; r < ROWS; r++) {
        quant_ops(DTYPE_Q8_0)->dequantize(rows + r * w->row_bytes, WIDTH, back);
        for (uint32_t i = 0; i < WIDTH; i++) {
            float most = 0;
            for (uint32_t k = i / 32 * 32; k < i / 32 * 32 + 32; k++) {
                most = fmaxf(most, fabsf(values[r * WIDTH + k]));
            }
            if (!(fabsf(back[i] - values[r * WIDTH + i]) <= most * 0.502f / 127 + 1e-8f)) {
                ck_abort_msg("row %u, input %u: %g for %g", r, i, (double)back[i], (double)values[r * WIDTH + i]);
            }
        }
    }
    plan_free(&p);
}
END_TEST

START_TEST(what_cannot_be_rounded_shows)
{
    static unsigned char row[WIDTH * 2];
    float back[WIDTH];
    struct err_info info = {0};
    struct plan *p = make();
    values[40] = INFINITY;
    ck_assert_int_eq(plan_quantize(p, "q4_0", &info), ERR_OK);
    const struct plan_weight *w = &p->weights[MATRIX];
    row_source_encode(w->source, 0, 1, row);
    quant_ops(DTYPE_Q4_0)->dequantize(row, WIDTH, back);
    ck_assert(isnan(back[40]));
    w = &p->weights[EMBED]; /* Q8_0 */
    for (int i = 0; i < 3; i++) {
        values[40] = i == 0 ? INFINITY : i == 1 ? NAN : 1e9f;
        row_source_encode(w->source, 0, 1, row);
        quant_ops(DTYPE_Q8_0)->dequantize(row, WIDTH, back);
        ck_assert_msg(isnan(back[40]), "%g became %g", (double)values[40], (double)back[40]);
    }
    plan_free(&p);
}
END_TEST

START_TEST(other_names_are_refused)
{
    struct err_info info = {0};
    struct plan *p = make();
    ck_assert_int_eq(plan_quantize(p, "q3_k", &info), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(info.text, "expected one of off, q8_0, q6_k"));
    ck_assert_ptr_nonnull(strstr(info.text, "'q3_k'"));
    plan_free(&p);
}
END_TEST

Suite *plan_quantize_suite(void)
{
    Suite *s = suite_create("plan_quantize");
    TCase *t = tcase_create("plan_quantize");
    tcase_add_test(t, matrices_of_floats_change);
    tcase_add_test(t, rows_are_the_quantisers);
    tcase_add_test(t, eight_bits_are_rounded);
    tcase_add_test(t, what_cannot_be_rounded_shows);
    tcase_add_test(t, other_names_are_refused);
    suite_add_tcase(s, t);
    return s;
}
