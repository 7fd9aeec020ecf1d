/* Sums, streams that are predicted and corrected, and sparse gates on every back end and instruction set: against the
 * formulas of plan.h in double, and the same bits however the rows are cut into batches. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *cpu_streams_suite(void);

/* D is more than the pieces that the CPU back end takes, ROWS enough for steps to go by rows. */
enum { V = 40, D = 300, N = 3, ROWS = 40, THREADS = 3, ACTIVE = 1 };
enum { X, Y = X + N, Z, T, ROUTES, N_BUFS };
static const double EPS = 1e-2, CUTOFF = 0.6, SCALE = 0.7;
static const double ALPHA_P = 0.8, ALPHA_N = 1.3, BETA = 0.5, XIELU_EPS = -0.05;

static float tables[N_BUFS][V * D], predict[N * N * N], correct[N * N], vector[D], norm[2][D], matrix[D * D];

static void fill(float *x, size_t n, uint32_t seed, float size)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = ((float)(seed >> 8) / (float)(1 << 24) * 2 - 1) * size;
    }
}

/* Rows of the first token are so small that the floor of their mean square counts. */
static void fill_all(void)
{
    for (int i = 0; i < N_BUFS; i++) {
        fill(tables[i], (size_t)V * D, (uint32_t)i + 1, 1);
        for (int k = 0; k < D && i != ROUTES; k++) {
            tables[i][k] *= 0.01f;
        }
    }
    fill(predict, N * N * N, 11, 1);
    fill(correct, N * N, 12, 1);
    fill(vector, D, 13, 1);
    fill(norm[0], D, 14, 1);
    fill(norm[1], D, 15, 1);
    fill(matrix, (size_t)D * D, 16, 0.1f);
}

/* --- the plan --------------------------------------------------------------------------------------------------- */

static plan_weight_id add_weight(struct plan *p, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, data, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, "w", rows, &id), ERR_OK);
    return id;
}

static struct plan_step *add_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.src = src;
    s.dst = dst;
    s.w[0] = w;
    s.eps = (float)EPS;
    if (op == PLAN_PREDICT || op == PLAN_CORRECT) {
        s.streams.n = N;
    }
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

/* Norms that the CPU back end would make one step with the matmul after them, if the stream were not read as one
 * later: one whose result is a row of it; one that adds to a row, and one of the sum, which would go to another buffer.
 */
static void add_tempting_steps(struct plan *p)
{
    add_step(p, PLAN_NORM, Z, X + 1, add_weight(p, norm[1], 1, D));
    add_step(p, PLAN_MATMUL, X + 1, Y, add_weight(p, matrix, D, D));
    add_step(p, PLAN_NORM, Z, X + 2, add_weight(p, norm[0], 1, D))->adds = true;
    add_step(p, PLAN_NORM, X + 2, T, add_weight(p, norm[1], 1, D));
    add_step(p, PLAN_MATMUL, T, Y, add_weight(p, matrix, D, D));
}

/* All kinds of step; what is in buffer `out` then is the result. */
static struct plan *make_plan(plan_buf_id out)
{
    struct plan *p = NULL;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = p->n_heads = p->n_kv_heads = 1;
    p->head_dim = 4;
    for (plan_buf_id i = 0, id; i < N_BUFS; i++) {
        ck_assert_int_eq(plan_add_buf(p, "buffer", i == ROUTES ? N : D, &id), ERR_OK);
        if (i != T) {
            add_step(p, PLAN_EMBED, PLAN_NONE, i, add_weight(p, tables[i], V, p->bufs[id].width));
        }
    }
    add_step(p, PLAN_PREDICT, ROUTES, X, add_weight(p, predict, 1, N * N * N));
    struct plan_step *s = add_step(p, PLAN_SUM, X + 1, Y, add_weight(p, vector, 1, D));
    s->adds = true;
    s->scale = (float)SCALE;
    add_step(p, PLAN_SUM, X + 2, Z, PLAN_NONE)->sum.level = Y;
    s = add_step(p, PLAN_SUM, X, Z, PLAN_NONE);
    s->sum.level = Y;
    s->adds = true;
    add_step(p, PLAN_SUM, Y, Y, PLAN_NONE)->scale = (float)SCALE;
    s = add_step(p, PLAN_CORRECT, Y, X, add_weight(p, correct, 1, N * N));
    s->streams.routes = ROUTES;
    s->streams.first = ACTIVE;
    s = add_step(p, PLAN_MULTIPLY, X, Z, PLAN_NONE);
    s->multiply.map = PLAN_MAP_GELU_TANH;
    s->multiply.is_sparse = true;
    s->multiply.cutoff = (float)CUTOFF;
    s = add_step(p, PLAN_MULTIPLY, X + 1, X + 2, PLAN_NONE);
    s->multiply.map = PLAN_MAP_GELU_TANH;
    s->scale = (float)SCALE;
    s = add_step(p, PLAN_XIELU, PLAN_NONE, X + 2, PLAN_NONE);
    s->xielu.alpha_p = (float)ALPHA_P;
    s->xielu.alpha_n = (float)ALPHA_N;
    s->xielu.beta = (float)BETA;
    s->xielu.eps = (float)XIELU_EPS;
    add_tempting_steps(p);
    add_step(p, PLAN_PREDICT, ROUTES, X, add_weight(p, predict, 1, N * N * N));
    add_step(p, PLAN_HIDDEN, out, PLAN_NONE, PLAN_NONE);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

/* --- the same in double ------------------------------------------------------------------------------------------ */

static double mean_square(const double *x)
{
    double sum = 0;
    for (int k = 0; k < D; k++) {
        sum += x[k] * x[k];
    }
    return sum / D;
}

static double gelu(double v) { return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v))); }

static void expect_prediction(double b[N_BUFS][D])
{
    double c[N][N] = {{0}}, old[N];
    for (int i = 0; i < N * N * N; i++) {
        c[i / N / N][i / N % N] += predict[i] * tanh(b[ROUTES][i % N]);
    }
    for (int k = 0; k < D; k++) {
        for (int i = 0; i < N; i++) {
            old[i] = b[X + i][k];
        }
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++) {
                b[X + i][k] += c[i][j] * old[j];
            }
        }
    }
}

static void expect_correction(double b[N_BUFS][D])
{
    for (int k = 0; k < D; k++) {
        double change = b[Y][k] - b[X + ACTIVE][k];
        for (int i = 0; i < N; i++) {
            double c = 1;
            for (int j = 0; j < N; j++) {
                c += correct[i * N + j] * tanh(b[ROUTES][j]);
            }
            b[X + i][k] += c * change;
        }
    }
}

static void expect_gates(double b[N_BUFS][D])
{
    double mean = 0, variance = 0;
    for (int k = 0; k < D; k++) {
        mean += b[X][k] / D;
    }
    for (int k = 0; k < D; k++) {
        variance += (b[X][k] - mean) * (b[X][k] - mean) / D;
    }
    for (int k = 0; k < D; k++) {
        b[Z][k] *= gelu(fmax(0, b[X][k] - (mean + CUTOFF * sqrt(variance))));
        double x = b[X + 2][k] * SCALE * gelu(b[X + 1][k]);
        b[X + 2][k] = BETA * x + (x > 0 ? ALPHA_P * x * x : ALPHA_N * (expm1(fmin(x, XIELU_EPS)) - x));
    }
}

static void expect_tempting_steps(double b[N_BUFS][D])
{
    double by = sqrt(mean_square(b[Z]) + EPS);
    for (int k = 0; k < D; k++) {
        b[X + 1][k] = b[Z][k] / by * norm[1][k];
        b[X + 2][k] += b[Z][k] / by * norm[0][k];
    }
    by = sqrt(mean_square(b[X + 2]) + EPS);
    for (int k = 0; k < D; k++) {
        b[T][k] = b[X + 2][k] / by * norm[1][k];
    }
    for (int n = 0; n < D; n++) {
        b[Y][n] = 0;
        for (int k = 0; k < D; k++) {
            b[Y][n] += b[T][k] * matrix[n * D + k];
        }
    }
}

static void expect(int32_t token, double b[N_BUFS][D])
{
    for (int i = 0; i < N_BUFS; i++) {
        int width = i == ROUTES ? N : D;
        for (int k = 0; k < width && i != T; k++) {
            b[i][k] = tables[i][token * width + k];
        }
    }
    expect_prediction(b);
    for (int k = 0; k < D; k++) {
        b[Y][k] = SCALE * (b[Y][k] + b[X + 1][k] * vector[k]);
    }
    double level = mean_square(b[Y]), a = sqrt(level / fmax(mean_square(b[X + 2]), EPS)),
           c = sqrt(level / fmax(mean_square(b[X]), EPS));
    for (int k = 0; k < D; k++) {
        b[Z][k] = a * b[X + 2][k] + c * b[X][k];
        b[Y][k] *= SCALE;
    }
    expect_correction(b);
    expect_gates(b);
    expect_tempting_steps(b);
    expect_prediction(b);
}

/* --- runs -------------------------------------------------------------------------------------------------------- */

/* Tokens [from, from + n), one a row. */
static void forward(const struct backend *b, struct backend_model *m, int from, int n, float *states)
{
    static const int32_t pages[2] = {0, 1};
    const int32_t *page_tables[1] = {pages};
    int32_t tokens[ROWS], rows[ROWS], pos[ROWS], seq[ROWS] = {0};
    for (int i = 0; i < n; i++) {
        tokens[i] = pos[i] = from + i;
        rows[i] = i;
    }
    struct backend_batch batch = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = page_tables,
                                  .n_hidden = n,
                                  .hidden_rows = rows,
                                  .hidden = states};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
}

static void check(plan_buf_id out, const struct backend *b, const char *cpu)
{
    static float whole[ROWS * D], cut[ROWS * D];
    const char *name = cpu != NULL ? cpu : "";
    struct backend_config cfg = {
        .cpu = cpu, .high_precision = true, .n_threads = THREADS, .n_pages = 2, .max_rows = ROWS, .max_logits = 1};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct plan *p = make_plan(out);
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    forward(b, m, 0, ROWS, whole);
    for (int from = 0, n; from < ROWS; from += n) {
        n = MIN_OF(1 + from % 9, ROWS - from);
        forward(b, m, from, n, cut + from * D);
    }
    ck_assert_msg(memcmp(whole, cut, sizeof whole) == 0, "%s %s: a cut changes bits", b->name, name);
    for (int i = 0; i < ROWS; i++) {
        double expected[N_BUFS][D];
        expect(i, expected);
        for (int k = 0; k < D; k++) {
            double found = whole[i * D + k], wanted = expected[out][k];
            if (!(fabs(found - wanted) < 1e-4 * (1 + fabs(wanted)))) {
                ck_abort_msg("%s %s: buffer %d, row %d, component %d: expected %g, found %g", b->name, name, (int)out,
                             i, k, wanted, found);
            }
        }
    }
    b->close(&m);
    plan_free(&p);
}

START_TEST(a_step_is_its_formula_however_it_is_cut)
{
    fill_all();
    check(_i, &backend_ref, NULL);
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        if (kern_isa_is_there(i)) {
            check(_i, &backend_cpu, kern_isa_name(i));
        }
    }
    check(_i, &backend_opencl, NULL);
}
END_TEST

Suite *cpu_streams_suite(void)
{
    Suite *s = suite_create("cpu_streams");
    TCase *c = tcase_create("cpu_streams");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, a_step_is_its_formula_however_it_is_cut, X, ROUTES);
    suite_add_tcase(s, c);
    return s;
}
