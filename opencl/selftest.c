/* Small products with known results: the host unpacks rows with quant.h, as the reference does, and sums in double.
 *
 * The codes of the activations are exact, so only the rounding of float sums can differ from the expected results: a
 * dot product that is wrong by one shows. */
#include "opencl/selftest.h"

#include "engine/base/mem.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"
#include "engine/quant/row_mapped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    N_IN = 512, /* two blocks of the K types */
    N_OUT = 48, /* a panel and a half */
    ROWS = 33,
    MAX_ROW_BYTES = N_IN * 4,
    TRIES = 2000, /* to find bytes of a block that decode to moderate values */
};

static const double max_error = 1e-4; /* share of the sum of absolute products; float sums are within 1e-5 */
static bool is_always;

void selftest_always(bool yes) { is_always = yes; }

/* A case: act(x w[0]) * (x w[1]) for a pair, else x w[0]. */
struct product_case {
    enum dtype type;
    bool is_pair;
    unsigned char rows[2][N_OUT * MAX_ROW_BYTES]; /* encoded */
    float values[2][N_OUT * N_IN];                /* decoded */
    float x[ROWS * N_IN], found[ROWS * N_OUT];
    uint32_t state; /* of the generator */
};

uint32_t selftest_next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u; /* Numerical Recipes */
    return *state >> 8;
}

void selftest_make_block(enum dtype type, uint32_t *state, unsigned char *block)
{
    const struct dtype_info *info = dtype_info(type);
    float values[ROW_SOURCE_MAX_GRAIN];
    for (int k = 0; k < TRIES; k++) {
        bool has_large = false, fits = true;
        for (uint32_t i = 0; i < info->block_bytes; i++) {
            block[i] = (unsigned char)(selftest_next(state) >> 8);
        }
        quant_ops(type)->dequantize(block, info->block_elems, values);
        for (uint32_t i = 0; i < info->block_elems; i++) {
            has_large |= fabsf(values[i]) > 1.0f / 16;
            fits &= fabsf(values[i]) < 8; /* false for NaN */
        }
        if (has_large && fits) {
            return;
        }
    }
    memset(block, 0, info->block_bytes);
}

/* --- a case --------------------------------------------------------------------------------------------------------- */

/* Codes are exact if each block's largest value is at the end of the range, 127. Values with second terms are multiples
 * of 1/254: everywhere with `fine`, else in blocks whose other components are small. */
static void make_inputs(struct product_case *c, bool fine)
{
    for (size_t i = 0; i < (size_t)ROWS * N_IN; i++) {
        size_t row = i / N_IN, block = i / PANEL_BLOCK;
        bool is_small = !fine && block % 4 == 1;
        int32_t units = fine || is_small ? 254 : 1, most = is_small ? 2 * units : 127 * units;
        int32_t v = (int32_t)(selftest_next(&c->state) % (2 * (uint32_t)most + 1)) - most;
        bool is_largest = i % PANEL_BLOCK == row % PANEL_BLOCK;
        c->x[i] = is_largest ? (v < 0 ? -127.0f : 127.0f) : (float)v / (float)units;
    }
}

static void make_case(struct product_case *c, enum dtype type, bool is_pair, bool fine)
{
    uint64_t row_bytes = 0;
    *c = (struct product_case){.type = type, .is_pair = is_pair, .state = 1};
    bool fits = dtype_row_bytes(type, N_IN, &row_bytes) && row_bytes <= MAX_ROW_BYTES;
    for (int w = 0; w < 2 && fits; w++) {
        for (size_t at = 0; at < N_OUT * row_bytes; at += dtype_info(type)->block_bytes) {
            selftest_make_block(type, &c->state, c->rows[w] + at);
        }
        quant_ops(type)->dequantize(c->rows[w], (size_t)N_OUT * N_IN, c->values[w]);
    }
    make_inputs(c, fine);
}

static enum err make_plan(struct product_case *c, struct plan *p, struct err_info *info)
{
    plan_buf_id x, y;
    plan_weight_id w[2];
    p->n_vocab = p->n_layers = p->n_heads = p->n_kv_heads = 1;
    p->head_dim = 2;
    p->n_ctx_train = ROWS;
    p->n_embd = p->output_width = N_OUT;
    p->input_width = N_IN;
    TRY(plan_add_buf(p, "x", N_IN, &x));
    TRY(plan_add_buf(p, "y", N_OUT, &y));
    for (int i = 0; i < 2; i++) {
        TRY(plan_add_weight(p, "w", row_mapped_new(&p->arena, c->type, c->rows[i], N_OUT, N_IN), &w[i]));
    }
    struct plan_step steps[] = {plan_edge_of(false, x, 0), plan_step_of(c->is_pair ? PLAN_GLU : PLAN_MATMUL, x, y),
                                plan_edge_of(true, y, 0)};
    steps[1].w[0] = w[0];
    steps[1].w[1] = c->is_pair ? w[1] : PLAN_NONE;
    steps[1].act = PLAN_SILU;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        TRY(plan_add_step(p, &steps[i]));
    }
    return plan_check(p, info);
}

/* Computes rows [0, n) to c->found, as a separate batch. */
static enum err compute(struct product_case *c, struct backend_model *m, int32_t n, struct err_info *info)
{
    static const int32_t page[2] = {0, 0};
    static const int32_t *const tables = page;
    static const int32_t zeros[ROWS] = {0};
    int32_t pos[ROWS];
    for (int32_t i = 0; i < n; i++) {
        pos[i] = i;
    }
    const struct backend_batch b = {.n_rows = n,
                                    .tokens = zeros,
                                    .pos = pos,
                                    .seq = zeros,
                                    .n_seqs = 1,
                                    .page_tables = &tables,
                                    .input = c->x,
                                    .output = c->found};
    memset(c->found, 0xff, sizeof c->found); /* NaN */
    return backend_compute(&backend_opencl, m, &b, info);
}

/* --- expected results --------------------------------------------------------------------------------------------- */

/* Returns a sum of products; writes how much a float sum of them can differ. */
static double sum_of(const float *x, const float *w, double *slack)
{
    double sum = 0, size = 0;
    for (int i = 0; i < N_IN; i++) {
        sum += (double)x[i] * w[i];
        size += fabs((double)x[i] * w[i]);
    }
    *slack = size * max_error;
    return sum;
}

static bool is_right(const struct product_case *c, int32_t row, int32_t out)
{
    const float *x = c->x + (size_t)row * N_IN;
    double slack, up_slack, found = c->found[(size_t)row * N_OUT + (size_t)out];
    double wanted = sum_of(x, c->values[0] + (size_t)out * N_IN, &slack);
    if (c->is_pair) { /* the slope of SiLU is at most 1.1 */
        double up = sum_of(x, c->values[1] + (size_t)out * N_IN, &up_slack);
        double gate = wanted / (1 + exp(-wanted));
        slack = 1.1 * slack * (fabs(up) + up_slack) + fabs(gate) * (up_slack + fabs(up) * max_error);
        wanted = gate * up;
    }
    return fabs(found - wanted) <= slack + 1e-37; /* false for NaN */
}

/* Sets *right to whether each of the case's products is as expected, in a batch for each tile. */
static enum err test_model(struct product_case *c, struct backend_model *m, bool *right, struct err_info *info)
{
    static const int32_t batches[] = {1, 3, ROWS};
    *right = true;
    for (size_t k = 0; k < ARRAY_LEN(batches) && *right; k++) {
        int32_t n = MIN_OF(batches[k], m->cfg.max_rows);
        TRY(compute(c, m, n, info));
        for (int32_t i = 0; i < n * N_OUT && *right; i++) {
            *right = is_right(c, i / N_OUT, i % N_OUT);
        }
    }
    return ERR_OK;
}

static enum err test_case(struct backend_model *of, struct product_case *c, bool *right, struct err_info *info)
{
    const struct backend_config cfg = {.n_threads = 1,
                                       .n_pages = 1,
                                       .max_rows =
                                           MIN_OF(of->cfg.max_rows, (int32_t)ROWS), /* and the tiles of the model */
                                       .max_logits = 1,
                                       .high_precision = of->cfg.high_precision};
    struct plan *p;
    struct backend_model *m = NULL;
    TRY_MEM_FOR(plan_new(&p) == ERR_OK, info, "out of memory for a test of the device");
    enum err err = make_plan(c, p, info);
    err = err == ERR_OK ? opencl_open_beside(of, p, &cfg, &m, info) : err;
    err = err == ERR_OK ? test_model(c, m, right, info) : err;
    backend_opencl.close(&m);
    plan_free(&p);
    return err;
}

/* Tests one kind with the type; if it is wrong, makes it plain and tests again. */
static enum err test_kind(struct backend_model *m, struct product_case *c, enum dtype type, bool is_pair,
                          struct err_info *info)
{
    char word[32], text[256];
    const char *name = dtype_info(type)->name;
    bool right = false;
    snprintf(word, sizeof word, "-DKIND=%d ", (int)quant_ops(type)->panel);
    make_case(c, type, is_pair, m->cfg.high_precision);
    TRY(test_case(m, c, &right, info));
    if (!right && program_set_plain(m->programs, word)) {
        snprintf(text, sizeof text,
                 "%.64s computes products with %s weights wrongly: dot products of kind %s are replaced by plain ones",
                 m->device.caps.name, name, device_dot_name((int)m->device.caps.dot));
        program_set_tell(m->programs, text);
        TRY(test_case(m, c, &right, info));
    }
    return right ? ERR_OK
                 : err_set(info, ERR_UNSUPPORTED_DEVICE, "opencl",
                           "%s computes products with %s weights wrongly, with plain dot products, too",
                           m->device.caps.name, name);
}

/* --- selection ---------------------------------------------------------------------------------------------------- */

/* The kinds that a model multiplies by: a type of each, and whether pairs exist. */
struct kinds {
    bool is_used[PANEL_KIND_COUNT], has_pairs[PANEL_KIND_COUNT];
    enum dtype type[PANEL_KIND_COUNT];
};

static void find_kinds(const struct backend_model *m, struct kinds *out)
{
    const struct plan_operand *o;
    int32_t id;
    *out = (struct kinds){.is_used = {false}};
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        const struct plan_step *s = &m->plan->steps[i];
        for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
            enum panel_kind kind = m->weights[plan_is_buf(o) ? 0 : id].kind;
            if (!plan_is_buf(o) && (o->flags & PLAN_MULTIPLIES) != 0 && !panel_info(kind)->is_float) {
                out->is_used[kind] = true;
                out->type[kind] = m->plan->weights[id].type;
                out->has_pairs[kind] |= (s->op == PLAN_GLU || s->op == PLAN_EXPERTS) && id == s->w[1];
            }
        }
    }
}

/* Finds the file that records the success of all tests. */
static enum err find_file(const struct backend_model *m, const struct kinds *k, struct program_file *out,
                          struct err_info *info)
{
    struct buf steps;
    char kinds[2 * PANEL_KIND_COUNT + 1] = "", fine[2] = {m->cfg.high_precision ? '1' : '0', '\0'};
    for (int i = 0; i < PANEL_KIND_COUNT; i++) {
        kinds[2 * i] = k->is_used[i] ? '1' : '0';
        kinds[2 * i + 1] = k->has_pairs[i] ? '1' : '0';
    }
    buf_init(&steps, 0, MEM_SCRATCH);
    enum err err = selftest_steps_name(m, &steps, info);
    if (err == ERR_OK) {
        program_set_find(m->programs, (const char *const[]){"selftest", kinds, fine, steps.data, NULL}, out);
    }
    buf_fini(&steps);
    return err;
}

void selftest_mark(const struct backend_model *m, int32_t i)
{
    const struct plan *p = m->plan;
    int32_t layer = PLAN_NONE;
    for (int32_t k = i; k >= 0 && layer == PLAN_NONE; k--) { /* its own layer, or the last one before it */
        layer = p->steps[k].layer;
    }
    for (int32_t k = i; k < p->n_steps && layer == PLAN_NONE; k++) {
        layer = p->steps[k].layer;
    }
    if (m->cfg.unfit != NULL && layer != PLAN_NONE) {
        m->cfg.unfit[layer] = true;
    }
}

/* Marks the steps that multiply by weights of the kind. */
static void mark_kind(const struct backend_model *m, enum panel_kind kind)
{
    const struct plan_operand *o;
    int32_t id;
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        for (int k = 0; (o = plan_next_operand(&m->plan->steps[i], &k, &id)) != NULL;) {
            if (!plan_is_buf(o) && (o->flags & PLAN_MULTIPLIES) != 0 && m->weights[id].kind == kind) {
                selftest_mark(m, i);
            }
        }
    }
}

static enum err test_kinds(struct backend_model *m, const struct kinds *k, struct err_info *info)
{
    struct product_case *c = mem_alloc(sizeof *c, MEM_SCRATCH);
    TRY_MEM_FOR(c != NULL, info, "out of memory for a test of the device");
    enum err err = ERR_OK;
    for (int i = 0; i < PANEL_KIND_COUNT && err == ERR_OK; i++) {
        err = k->is_used[i] ? test_kind(m, c, k->type[i], false, info) : ERR_OK;
        err = err == ERR_OK && k->has_pairs[i] ? test_kind(m, c, k->type[i], true, info) : err;
        if (err == ERR_UNSUPPORTED_DEVICE) {
            mark_kind(m, (enum panel_kind)i);
        }
    }
    mem_free(c);
    return err;
}

enum err selftest_run(struct backend_model *m, struct err_info *info)
{
    const struct device_caps *caps = &m->device.caps;
    struct kinds k;
    struct program_file file;
    if (!caps->is_gpu && caps->dot == DEVICE_DOT_PLAIN && !is_always) {
        return ERR_OK;
    }
    find_kinds(m, &k);
    TRY(find_file(m, &k, &file, info));
    if (program_set_has(m->programs, &file)) {
        return ERR_OK;
    }
    TRY(test_kinds(m, &k, info));
    TRY(selftest_steps(m, info));
    program_set_mark(m->programs, &file);
    return ERR_OK;
}
