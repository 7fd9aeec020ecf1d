/* Products with every weight type on the OpenCL device, against ref: rows of any number have the same bits, and with
 * activations of 16 bits, which a head always has, they lie next to those of floats. */
#include "engine/backend/backend.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *opencl_steps_suite(void);

enum { V = 40, ROWS = 40, MAX_IN = 768, MAX_OUT = 100 };

static float table[V * MAX_IN], values[MAX_OUT * MAX_IN], biases[MAX_OUT];
static unsigned char encoded[2][MAX_OUT * MAX_IN * 4];

static void fill(float *x, size_t n, uint32_t seed, float size)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = ((float)(seed >> 8) / (float)(1 << 24) * 2 - 1) * size;
    }
}

struct shape {
    enum dtype type;
    uint32_t n_in, n_out;
    bool is_pair, is_normed, is_head;
};

/* Rows of the table, times one weight, or the GLU of two. The result is a hidden state, or with is_head logits. */
static struct plan *make_plan(const struct shape *s)
{
    struct plan *p;
    plan_buf_id x, y, z;
    plan_weight_id w[5];
    uint64_t row_bytes;
    ck_assert(dtype_row_bytes(s->type, s->n_in, &row_bytes));
    for (uint32_t k = 0; k < 2; k++) {
        fill(values, (size_t)s->n_out * s->n_in, 7 + k, 1.0f / sqrtf((float)s->n_in));
        for (uint32_t i = 0; i < s->n_out; i++) {
            ck_assert(quantize_row(s->type, values + (size_t)i * s->n_in, s->n_in, NULL, encoded[k] + i * row_bytes));
        }
    }
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_layers = p->n_kv_heads = p->n_heads = 1;
    p->head_dim = 2;
    p->n_ctx_train = ROWS;
    p->n_embd = s->n_out;
    ck_assert_int_eq(plan_add_buf(p, "x", s->n_in, &x), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "z", s->n_in, &z), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "y", s->n_out, &y), ERR_OK);
    const struct row_source *sources[] = {row_mapped_new(&p->arena, DTYPE_F32, table, V, s->n_in),
                                          row_mapped_new(&p->arena, s->type, encoded[0], s->n_out, s->n_in),
                                          row_mapped_new(&p->arena, s->type, encoded[1], s->n_out, s->n_in),
                                          row_mapped_new(&p->arena, DTYPE_F32, biases, 1, s->n_out),
                                          row_mapped_new(&p->arena, DTYPE_F32, table, 1, s->n_in)};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(plan_add_weight(p, "w", sources[i], &w[i]), ERR_OK);
    }
    struct plan_step steps[] = {plan_step_of(PLAN_EMBED, PLAN_NONE, x), plan_step_of(PLAN_NORM, x, z),
                                plan_step_of(s->is_pair ? PLAN_GLU : PLAN_MATMUL, s->is_normed ? z : x, y),
                                plan_step_of(PLAN_HIDDEN, y, PLAN_NONE)};
    if (s->is_head) {
        steps[2] = plan_step_of(PLAN_LOGITS, s->is_normed ? z : x, PLAN_NONE);
    }
    steps[0].w[0] = w[0];
    steps[1].w[0] = w[4];
    steps[1].eps = 1e-5f;
    steps[2].w[0] = w[1];
    steps[2].w[1] = s->is_pair ? w[2] : PLAN_NONE;
    steps[2].bias[0] = s->is_head ? PLAN_NONE : w[3];
    steps[2].bias[1] = s->is_pair ? w[3] : PLAN_NONE;
    for (int i = 0; i < (s->is_head ? 3 : 4); i++) {
        ck_assert_int_eq(i == 1 && !s->is_normed ? ERR_OK : plan_add_step(p, &steps[i]), ERR_OK);
    }
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static struct backend_model *open_on(const struct backend *b, const struct plan *p, bool high)
{
    struct backend_config cfg = {
        .n_threads = 1, .n_pages = 2, .max_rows = ROWS, .max_logits = ROWS, .high_precision = high};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    return m;
}

/* out[n][n_out] = rows [from, from + n). */
static void compute(const struct backend *b, struct backend_model *m, bool is_head, int from, int n, float *out)
{
    static const int32_t pages[2] = {0, 1};
    const int32_t *tables = pages;
    struct backend_row_stats stats[ROWS];
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, rows[ROWS];
    for (int i = 0; i < n; i++) {
        tokens[i] = (from + i) * 7 % V;
        pos[i] = from + i;
        rows[i] = i;
    }
    struct backend_batch batch = {
        .n_rows = n, .tokens = tokens, .pos = pos, .seq = seq, .n_seqs = 1, .page_tables = &tables};
    if (is_head) {
        batch.n_logits = n;
        batch.logit_rows = rows;
        batch.logits = out;
        batch.stats = stats;
    } else {
        batch.n_hidden = n;
        batch.hidden_rows = rows;
        batch.hidden = out;
    }
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
}

static void check_shape(const struct shape *s, bool high)
{
    static float wanted[ROWS * MAX_OUT], found[ROWS * MAX_OUT], piece[ROWS * MAX_OUT];
    static const int pieces[] = {1, 3, 8, 9, 17};
    struct plan *p = make_plan(s);
    struct backend_model *ref = open_on(&backend_ref, p, true), *m = open_on(&backend_opencl, p, high);
    compute(&backend_ref, ref, s->is_head, 0, ROWS, wanted);
    compute(&backend_opencl, m, s->is_head, 0, ROWS, found);
    double worst = 0, size = 0;
    for (size_t i = 0; i < (size_t)ROWS * s->n_out; i++) {
        worst = fmax(worst, fabs((double)wanted[i] - found[i]));
        size += (double)wanted[i] * wanted[i];
    }
    size = sqrt(size / ((double)ROWS * s->n_out));
    double allowed = high || s->is_head ? 4e-4 : 5e-2; /* a head has activations of 16 bits without being asked */
    ck_assert_msg(worst <= allowed * size, "%s %u x %u%s: error %g of %g", dtype_info(s->type)->name, s->n_in, s->n_out,
                  s->is_pair ? " pair" : "", worst, size);
    for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
        for (int from = 0; from < ROWS; from += pieces[k]) {
            int n = MIN_OF(pieces[k], ROWS - from);
            compute(&backend_opencl, m, s->is_head, from, n, piece);
            ck_assert_msg(memcmp(piece, found + (size_t)from * s->n_out, (size_t)n * s->n_out * sizeof *piece) == 0,
                          "%s %u x %u%s: rows %d to %d of pieces of %d have other bits", dtype_info(s->type)->name,
                          s->n_in, s->n_out, s->is_pair ? " pair" : "", from, from + n, pieces[k]);
        }
    }
    backend_ref.close(&ref);
    backend_opencl.close(&m);
    plan_free(&p);
}

static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                                   DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

START_TEST(test_types)
{
    enum dtype type = types[_i];
    bool is_k = dtype_info(type)->block_elems == 256;
    fill(table, V * MAX_IN, 1, 1);
    fill(biases, MAX_OUT, 2, 0.1f);
    check_shape(&(struct shape){type, is_k ? 768 : 576, 100, false, true, false}, true);
    check_shape(&(struct shape){type, is_k ? 256 : 64, 33, false, true, false}, false);
    check_shape(&(struct shape){type, is_k ? 256 : 96, 64, true, false, false}, true);
    check_shape(&(struct shape){type, is_k ? 256 : 64, V, false, type % 2 == 0, true}, false);
}
END_TEST

Suite *opencl_steps_suite(void)
{
    Suite *s = suite_create("opencl_steps");
    TCase *c = tcase_create("types");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, test_types, 0, (int)ARRAY_LEN(types));
    suite_add_tcase(s, c);
    return s;
}
