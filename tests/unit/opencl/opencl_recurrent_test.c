/* Recurrent steps and matrices of heads with the sizes of real models on the OpenCL device, against ref: states of many
 * slices and waves, sequences of many rows, the same bits in pieces, and codes of what heads' norms make. The formulas
 * and copies of states are in backend/cpu_recurrent_test.c. */
#include "engine/backend/backend.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *opencl_recurrent_suite(void);

enum { V = 50, ROWS = 150, OUT = 32, MAX_WIDTH = 4352, HEADS = 4, KEY_HEADS = 2, KV_PAGES = ROWS / KV_PAGE_TOKENS + 1 };

static float table[V * MAX_WIDTH], small[V * HEADS], values[MAX_WIDTH * OUT], vectors[3][MAX_WIDTH],
    rates[HEADS * 40 * 64];

static const struct shape {
    enum plan_op op;
    uint32_t rows, columns; /* of a state, or of a head's matrix; taps and channels of a convolution */
    enum dtype type;        /* of what is multiplied with the result */
} shapes[] = {
    {PLAN_SHORT_CONV, 4, 70, DTYPE_F32},    {PLAN_SHORT_CONV, 16, 96, DTYPE_Q8_0},
    {PLAN_DELTA, 128, 64, DTYPE_Q8_0},      {PLAN_DELTA, 200, 40, DTYPE_F32},
    {PLAN_SSM, 128, 64, DTYPE_Q8_0},        {PLAN_SSM, 1024, 36, DTYPE_F32},
    {PLAN_SCAN, 16, 64, DTYPE_Q8_0},        {PLAN_SCAN, 40, 36, DTYPE_F32},
    {PLAN_HEAD_MATMUL, 64, 100, DTYPE_F32}, {PLAN_HEAD_MATMUL, 41, 72, DTYPE_Q8_0},
};

static void fill(float *x, size_t n, uint32_t seed, float size)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = ((float)(seed >> 8) / (float)(1 << 24) * 2 - 1) * size;
    }
}

static plan_weight_id add_weight(struct plan *p, enum dtype type, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id;
    uint64_t row_bytes;
    ck_assert(dtype_row_bytes(type, n_in, &row_bytes));
    unsigned char *rows = arena_alloc(&p->arena, n_out * row_bytes);
    ck_assert_ptr_nonnull(rows);
    for (uint32_t i = 0; i < n_out; i++) {
        ck_assert(quantize_row(type, data + (size_t)i * n_in, n_in, NULL, rows + i * row_bytes));
    }
    const struct row_source *source = row_mapped_new(&p->arena, type, rows, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, "w", source, &id), ERR_OK);
    return id;
}

static plan_weight_id add_vector(struct plan *p, const float *data, uint32_t n)
{
    return add_weight(p, DTYPE_F32, data, 1, n);
}

static plan_buf_id add_buf(struct plan *p, uint32_t width, const float *rows)
{
    plan_buf_id id;
    ck_assert_int_eq(plan_add_buf(p, "buffer", width, &id), ERR_OK);
    if (rows != NULL) {
        struct plan_step s = plan_step_of(PLAN_EMBED, PLAN_NONE, id);
        s.w[0] = add_weight(p, DTYPE_F32, rows, V, width);
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    }
    return id;
}

/* The step, which has no weights yet, with its buffers and the widths of these. */
static struct plan_step step_of(struct plan *p, const struct shape *s)
{
    uint32_t out = HEADS * s->columns, in = out + 2 * KEY_HEADS * s->rows;
    struct plan_step step;
    switch (s->op) {
    case PLAN_SHORT_CONV:
        step = plan_step_of(s->op, add_buf(p, s->columns, table), add_buf(p, s->columns, NULL));
        step.conv.taps = s->rows;
        step.conv.map = PLAN_MAP_SILU;
        step.w[0] = add_vector(p, values, s->columns * s->rows);
        step.bias[0] = add_vector(p, vectors[1], s->columns);
        return step;
    case PLAN_HEAD_MATMUL: /* 20 components of a head stay as they are */
        step = plan_step_of(s->op, add_buf(p, HEADS * (s->rows + 20), table), add_buf(p, out, NULL));
        step.w[0] = add_weight(p, DTYPE_F32, table, HEADS * (s->columns - 20), s->rows);
        return step;
    case PLAN_SCAN:
        p->ssm = (struct plan_ssm){.n_heads = HEADS, .n_groups = 1, .head_dim = s->columns, .state_dim = s->rows};
        step = plan_step_of(s->op, add_buf(p, out, table), add_buf(p, out, NULL));
        step.scan.dt = add_buf(p, out, table);
        step.scan.b = add_buf(p, s->rows, table);
        step.scan.c = add_buf(p, s->rows, table);
        step.w[0] = add_vector(p, rates, out * s->rows);
        step.w[1] = add_vector(p, vectors[2], out);
        step.bias[0] = add_vector(p, vectors[1], out);
        return step;
    default:
        step = plan_step_of(s->op, add_buf(p, in, table), add_buf(p, out, NULL));
        break;
    }
    step.w[0] = add_vector(p, vectors[0], HEADS);
    step.bias[0] = add_vector(p, vectors[1], HEADS);
    step.eps = 1e-6f;
    if (s->op == PLAN_DELTA) {
        p->delta = (struct plan_delta){
            .n_k_heads = KEY_HEADS, .n_v_heads = HEADS, .key_dim = s->rows, .value_dim = s->columns};
        step.delta.alpha = add_buf(p, HEADS, small);
        step.delta.beta = add_buf(p, HEADS, table);
        step.w[1] = add_vector(p, vectors[2], s->columns);
    } else {
        p->ssm =
            (struct plan_ssm){.n_heads = HEADS, .n_groups = KEY_HEADS, .head_dim = s->columns, .state_dim = s->rows};
        step.ssm.dt = add_buf(p, HEADS, small);
        step.w[1] = add_vector(p, vectors[2], HEADS);
    }
    return step;
}

/* What the step makes of rows of the table, of a convolution times SiLU of these, times a weight. */
static struct plan *make_plan(const struct shape *s)
{
    struct plan *p;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_layers = p->n_kv_heads = 1;
    p->n_heads = HEADS;
    p->head_dim = 2;
    p->n_embd = OUT;
    struct plan_step step = step_of(p, s);
    uint32_t width = p->bufs[step.dst].width;
    struct plan_step product = plan_step_of(PLAN_MATMUL, step.dst, add_buf(p, OUT, NULL));
    product.w[0] = add_weight(p, s->type, values, OUT, width);
    struct plan_step hidden = plan_step_of(PLAN_HIDDEN, product.dst, PLAN_NONE);
    struct plan_step gate = plan_step_of(PLAN_MULTIPLY, step.src, step.dst);
    gate.multiply.map = PLAN_MAP_SILU;
    ck_assert_int_eq(plan_add_step(p, &step), ERR_OK);
    ck_assert_int_eq(s->op != PLAN_SHORT_CONV ? ERR_OK : plan_add_step(p, &gate), ERR_OK);
    ck_assert_int_eq(plan_add_step(p, &product), ERR_OK);
    ck_assert_int_eq(plan_add_step(p, &hidden), ERR_OK);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

/* out[n][OUT] = rows [from, from + n) of a sequence. */
static void compute(const struct backend *b, struct backend_model *m, int from, int n, float *out)
{
    static int32_t pages[KV_PAGES];
    const int32_t *tables = pages;
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, rows[ROWS];
    for (int i = 0; i < n; i++) {
        tokens[i] = (from + i) * 7 % V;
        pos[i] = from + i;
        rows[i] = i;
    }
    struct backend_batch batch = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = &tables,
                                  .n_hidden = n,
                                  .hidden_rows = rows,
                                  .hidden = out};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
}

static struct backend_model *open_on(const struct backend *b, const struct plan *p)
{
    struct backend_config cfg = {
        .n_threads = 1, .n_pages = KV_PAGES, .n_states = 1, .max_rows = ROWS, .max_logits = 1, .high_precision = true};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    return m;
}

START_TEST(a_step_of_real_size_is_that_of_ref)
{
    static float wanted[ROWS * OUT], found[ROWS * OUT], piece[ROWS * OUT];
    static const int pieces[] = {1, 7, 40};
    const struct shape *s = &shapes[_i];
    fill(table, ARRAY_LEN(table), 1, 1);
    fill(small, ARRAY_LEN(small), 2, 1);
    fill(values, ARRAY_LEN(values), 3, 0.1f);
    fill(vectors[0], MAX_WIDTH, 4, 1);
    fill(vectors[1], MAX_WIDTH, 5, 1);
    fill(vectors[2], MAX_WIDTH, 6, 1);
    fill(rates, ARRAY_LEN(rates), 7, 0.5f);
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        rates[i] = -fabsf(rates[i]);
    }
    for (int h = 0; h < HEADS; h++) {
        vectors[0][h] = -0.02f - 0.1f * fabsf(vectors[0][h]); /* states that last for many rows */
    }
    struct plan *p = make_plan(s);
    struct backend_model *ref = open_on(&backend_ref, p), *m = open_on(&backend_opencl, p);
    compute(&backend_ref, ref, 0, ROWS, wanted);
    compute(&backend_opencl, m, 0, ROWS, found);
    double worst = 0, size = 0;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        worst = fmax(worst, fabs((double)wanted[i] - found[i]));
        size += (double)wanted[i] * wanted[i];
    }
    size = sqrt(size / ARRAY_LEN(wanted));
    ck_assert_msg(worst <= (s->type == DTYPE_F32 ? 2e-5 : 4e-4) * size, "%s %u x %u: error %g of %g",
                  plan_op_name(s->op), s->rows, s->columns, worst, size);
    for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
        for (int from = 0; from < ROWS; from += pieces[k]) {
            int n = MIN_OF(pieces[k], ROWS - from);
            compute(&backend_opencl, m, from, n, piece);
            ck_assert_msg(memcmp(piece, found + (size_t)from * OUT, (size_t)n * OUT * sizeof *piece) == 0,
                          "%s %u x %u: rows from %d of pieces of %d have other bits", plan_op_name(s->op), s->rows,
                          s->columns, from, pieces[k]);
        }
    }
    backend_ref.close(&ref);
    backend_opencl.close(&m);
    plan_free(&p);
}
END_TEST

Suite *opencl_recurrent_suite(void)
{
    Suite *s = suite_create("opencl_recurrent");
    TCase *c = tcase_create("opencl_recurrent");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, a_step_of_real_size_is_that_of_ref, 0, (int)ARRAY_LEN(shapes));
    suite_add_tcase(s, c);
    return s;
}
