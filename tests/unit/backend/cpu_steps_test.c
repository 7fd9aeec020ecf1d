/* Norms that must not be fused into the matmul behind them, because they add or because something later still reads
 * their result, adding norms that are fused with the norm after them, and matrices of one row: small plans made by
 * hand, on every instruction set, against the reference back end. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *cpu_steps_suite(void);

enum { V = 9, D = 20, ROWS = 5 };

static float embd[V * D], matrix[D * D], norm_a[D], norm_b[D];

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = (float)(seed >> 8) / (float)(1 << 24) * 2 - 1;
    }
}

static plan_weight_id add_matrix(struct plan *p, const char *name, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, data, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, name, rows, &id), ERR_OK);
    return id;
}

static plan_weight_id add_weight(struct plan *p, const char *name, const float *data, uint32_t n_out)
{
    return add_matrix(p, name, data, n_out, D);
}

static void add_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w, bool adds)
{
    struct plan_step s = plan_step_of(op, src, dst);
    s.w[0] = w;
    s.eps = 1e-5f;
    s.adds = adds;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
}

enum subject {
    ADDS_AFTER_A_NORM, /* a matmul straight after a norm that adds to what it reads */
    READ_LATER,        /* y = norm of x, which the matmul reads and the adding norm once more */
    NOT_RENEWED,       /* the same, where the matmul writes what the norm in front of it adds */
    RENEWED,           /* three times: norm, matmul, and a norm that adds what came out to x: fused but for the last */
    ONE_ROW,           /* a matmul to one component, as of a single expert's router, and back */
    N_SUBJECTS
};

/* embed to x; the steps in question; gather and logits of x. */
static struct plan *make_plan(enum subject subject)
{
    struct plan *p = NULL;
    plan_buf_id x, y, out, last, one;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = p->n_heads = p->n_kv_heads = 1;
    p->head_dim = 4;
    ck_assert_int_eq(plan_add_buf(p, "x", D, &x), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "y", D, &y), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "out", D, &out), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "last", D, &last), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "one", 1, &one), ERR_OK);
    plan_weight_id e = add_weight(p, "embd", embd, V), m = add_weight(p, "matrix", matrix, D);
    plan_weight_id a = add_weight(p, "a", norm_a, 1), b = add_weight(p, "b", norm_b, 1);
    add_step(p, PLAN_EMBED, PLAN_NONE, x, e, false);
    plan_buf_id result = x;
    switch (subject) {
    case READ_LATER:
        add_step(p, PLAN_NORM, x, y, a, false);
        add_step(p, PLAN_MATMUL, y, x, m, false);
        add_step(p, PLAN_NORM, x, y, b, true);
        result = y;
        break;
    case ADDS_AFTER_A_NORM:
        add_step(p, PLAN_NORM, x, y, a, false);
        add_step(p, PLAN_NORM, x, y, b, true);
        add_step(p, PLAN_MATMUL, y, x, m, false);
        break;
    case ONE_ROW:
        add_step(p, PLAN_MATMUL, x, one, add_weight(p, "row", norm_a, 1), false);
        add_step(p, PLAN_MATMUL, one, x, add_matrix(p, "column", norm_b, D, 1), true);
        break;
    default:
        for (int i = 0; i < 3; i++) {
            add_step(p, PLAN_NORM, x, y, a, false);
            plan_buf_id to =
                subject == RENEWED && i == 1 ? last : out; /* not what the norm in front adds, or it is not fused */
            add_step(p, PLAN_MATMUL, y, to, m, false);
            add_step(p, PLAN_NORM, to, x, b, true);
        }
    }
    add_step(p, PLAN_GATHER, result, last, PLAN_NONE, false);
    add_step(p, PLAN_LOGITS, last, PLAN_NONE, e, false);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static void run(const struct plan *p, const struct backend *b, const char *cpu, float *logits)
{
    static const int32_t tokens[ROWS] = {3, 1, 4, 1, 8}, pos[ROWS] = {0, 1, 2, 3, 4}, seq[ROWS] = {0}, pages[1] = {0};
    const int32_t *tables[1] = {pages};
    struct backend_row_stats stats[ROWS];
    struct backend_config cfg = {.cpu = cpu, .n_threads = 2, .n_pages = 1, .max_rows = ROWS, .max_logits = ROWS};
    struct backend_batch batch = {.n_rows = ROWS,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = tables,
                                  .n_logits = ROWS,
                                  .logit_rows = pos,
                                  .logits = logits,
                                  .stats = stats};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    b->close(&m);
}

START_TEST(plans_give_what_the_reference_gives)
{
    fill(embd, V * D, 1);
    fill(matrix, (size_t)D * D, 2);
    fill(norm_a, D, 3);
    fill(norm_b, D, 4);
    struct plan *p = make_plan((enum subject)_i);
    float expected[ROWS * V], found[ROWS * V];
    run(p, &backend_ref, NULL, expected);
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        if (!kern_isa_is_there(i)) {
            continue;
        }
        run(p, &backend_cpu, kern_isa_name(i), found);
        for (int k = 0; k < ROWS * V; k++) {
            if (!(fabsf(found[k] - expected[k]) < 1e-4f)) {
                ck_abort_msg("%s: logit %d: expected %g, found %g", kern_isa_name(i), k, (double)expected[k],
                             (double)found[k]);
            }
        }
    }
    plan_free(&p);
}
END_TEST

Suite *cpu_steps_suite(void)
{
    Suite *s = suite_create("cpu_steps");
    TCase *c = tcase_create("cpu_steps");
    tcase_add_loop_test(c, plans_give_what_the_reference_gives, 0, N_SUBJECTS);
    suite_add_tcase(s, c);
    return s;
}
