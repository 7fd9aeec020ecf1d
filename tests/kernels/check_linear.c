/* Linear attention, compared with the recurrence in double, and with itself cut in other ways. */
#include "tests/kernels/checkkern.h"

#include <math.h>
#include <string.h>

enum { MAX_KEYS = 128, MAX_COLS = 130, MAX_ROWS = 5 };

/* A case: the arguments, and a copy of the initial state. */
struct linear {
    struct kern_linear_args a;
    float *state, *start, *out;
    size_t n_state, n_out;
};

static float *floats(size_t n) { return check_buffer(n * sizeof(float), sizeof(float)); }

static float *random_floats(struct check *c, size_t n, double low, double high)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)check_random_between(c, low, high);
    }
    return x;
}

static struct linear make(struct check *c, int n_keys, int n_cols, int n_rows, bool corrects)
{
    size_t rows = (size_t)n_rows, gap = (size_t)check_random_below(c, 3); /* floats between rows */
    double unit = 1 / sqrt((double)n_keys);                               /* keys of length about 1, as in models */
    struct linear l = {.a = {.n_keys = n_keys,
                             .n_cols = n_cols,
                             .last_col = n_cols,
                             .n_rows = n_rows,
                             .corrects = corrects,
                             .qk_stride = (size_t)n_keys + gap,
                             .v_stride = (size_t)n_cols + gap,
                             .out_stride = (size_t)n_cols}};
    l.n_state = (size_t)n_keys * (size_t)n_cols;
    l.n_out = rows * (size_t)n_cols;
    l.a.q = random_floats(c, rows * l.a.qk_stride, -1, 1);
    l.a.k = random_floats(c, rows * l.a.qk_stride, -1.7 * unit, 1.7 * unit);
    l.a.v = random_floats(c, rows * l.a.v_stride, -1, 1);
    l.a.decay = random_floats(c, rows, 0, 1);
    l.a.rate = random_floats(c, rows, 0, 1);
    l.start = random_floats(c, l.n_state, -1, 1);
    l.a.state = l.state = floats(l.n_state);
    memcpy(l.state, l.start, l.n_state * sizeof *l.state);
    l.a.out = l.out = floats(l.n_out);
    return l;
}

/* Computes column n of the rows in double; limit: the rounding of floats, by the same computation with all
 * magnitudes. */
static void column(const struct linear *l, int n, double out[MAX_ROWS], double limit[MAX_ROWS], double state[MAX_KEYS],
                   double *state_limit)
{
    const struct kern_linear_args *a = &l->a;
    double size[MAX_KEYS], largest = 0;
    for (int j = 0; j < a->n_keys; j++) {
        state[j] = (double)l->start[j * a->n_cols + n];
        size[j] = fabs(state[j]);
    }
    for (int t = 0; t < a->n_rows; t++) {
        const float *q = a->q + (size_t)t * a->qk_stride, *k = a->k + (size_t)t * a->qk_stride;
        double v = (double)a->v[(size_t)t * a->v_stride + (size_t)n], v_size = fabs(v), sizes = 0;
        for (int j = 0; j < a->n_keys; j++) {
            state[j] *= (double)a->decay[t];
            size[j] *= (double)a->decay[t];
        }
        for (int j = 0; j < a->n_keys && a->corrects; j++) {
            v -= state[j] * (double)k[j];
            v_size += size[j] * fabs((double)k[j]);
        }
        out[t] = 0;
        for (int j = 0; j < a->n_keys; j++) {
            state[j] += (double)k[j] * (double)a->rate[t] * v;
            size[j] += fabs((double)k[j]) * (double)a->rate[t] * v_size;
            out[t] += state[j] * (double)q[j];
            sizes += size[j] * fabs((double)q[j]);
            largest = fmax(largest, size[j]);
        }
        limit[t] = 2e-7 * (a->n_keys + 4) * a->n_rows * sizes;
    }
    *state_limit = 2e-7 * (a->n_keys + 4) * a->n_rows * largest;
}

static void check_columns(struct check *c, const struct linear *l)
{
    for (int n = 0; n < l->a.n_cols; n++) {
        double out[MAX_ROWS], limit[MAX_ROWS], state[MAX_KEYS], state_limit;
        column(l, n, out, limit, state, &state_limit);
        for (int t = 0; t < l->a.n_rows; t++) {
            size_t at = (size_t)t * l->a.out_stride + (size_t)n;
            if (!(fabs((double)l->out[at] - out[t]) <= limit[t])) {
                check_fail(c, "out", at, (double)l->out[at], out[t]);
                return;
            }
        }
        for (int j = 0; j < l->a.n_keys; j++) {
            size_t at = (size_t)(j * l->a.n_cols + n);
            if (!(fabs((double)l->state[at] - state[j]) <= state_limit)) {
                check_fail(c, "state", at, (double)l->state[at], state[j]);
                return;
            }
        }
    }
}

/* Checks that single rows, and columns in two pieces, give the same bits. */
static void check_pieces(struct check *c, const struct linear *l)
{
    float *state = floats(l->n_state), *out = floats(l->n_out);
    memcpy(state, l->start, l->n_state * sizeof *state);
    for (int t = 0; t < l->a.n_rows; t++) {
        struct kern_linear_args a = l->a;
        int middle = a.n_cols > 16 ? 16 * (1 + t % ((a.n_cols - 1) / 16)) : 0;
        a.state = state;
        a.n_rows = 1;
        a.q += (size_t)t * a.qk_stride;
        a.k += (size_t)t * a.qk_stride;
        a.v += (size_t)t * a.v_stride;
        a.out = out + (size_t)t * a.out_stride;
        a.decay += t;
        a.rate += t;
        a.first_col = middle;
        c->t->linear_attention(&a);
        a.first_col = 0;
        a.last_col = middle;
        c->t->linear_attention(&a);
    }
    check_same_f32(c, "pieces", out, l->out, l->n_out);
    check_same_f32(c, "state of pieces", state, l->state, l->n_state);
}

static void check_linear(struct check *c, int arg)
{
    static const int keys[] = {1, 2, 7, 64, MAX_KEYS}, cols[] = {1, 8, 15, 16, 17, 40, 128, MAX_COLS};
    (void)arg;
    for (int i = 0; i < (int)(ARRAY_LEN(keys) * ARRAY_LEN(cols) * 2 * MAX_ROWS); i++) {
        int k = keys[i % (int)ARRAY_LEN(keys)], n = cols[i / (int)ARRAY_LEN(keys) % (int)ARRAY_LEN(cols)];
        int rest = i / (int)(ARRAY_LEN(keys) * ARRAY_LEN(cols)), rows = 1 + rest / 2;
        check_case(c, "%d keys, %d columns, %d rows%s", k, n, rows, rest % 2 == 1 ? ", corrects" : "");
        struct linear l = make(c, k, n, rows, rest % 2 == 1);
        c->t->linear_attention(&l.a);
        check_columns(c, &l);
        check_pieces(c, &l);
        check_guards(c);
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static struct kern_table honest;

static void wrong_key(const struct kern_linear_args *a) /* omits the last one */
{
    struct kern_linear_args b = *a;
    b.n_keys -= a->n_keys > 1;
    honest.linear_attention(&b);
}
static void wrong_rule(const struct kern_linear_args *a)
{
    struct kern_linear_args b = *a;
    b.corrects = !a->corrects;
    honest.linear_attention(&b);
}
static void wrong_tail(const struct kern_linear_args *a)
{
    struct kern_linear_args b = *a;
    b.last_col -= a->last_col % 16 != 0;
    honest.linear_attention(&b);
}
static void wrong_state(const struct kern_linear_args *a) /* bits that depend on the cut */
{
    honest.linear_attention(a);
    if (a->n_rows > 1) {
        a->state[0] = nextafterf(a->state[0], INFINITY);
    }
}

static bool plant(struct kern_table *t, int arg, int variant)
{
    static void (*const faults[])(const struct kern_linear_args *) = {wrong_key, wrong_rule, wrong_tail, wrong_state};
    (void)arg;
    honest = *t;
    t->linear_attention = faults[variant % (int)ARRAY_LEN(faults)];
    return variant < (int)ARRAY_LEN(faults);
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

struct bench_arg {
    const struct kern_table *t, *ref;
    struct linear l;
};
static void run(void *arg) { ((struct bench_arg *)arg)->t->linear_attention(&((struct bench_arg *)arg)->l.a); }
static void run_ref(void *arg) { ((struct bench_arg *)arg)->ref->linear_attention(&((struct bench_arg *)arg)->l.a); }

static void bench(struct check *c, int arg)
{
    enum { KEYS = 128, COLS = 128, ROWS = 32 }; /* a head of Qwen3-Next */
    (void)arg;
    check_case(c, "bench");
    struct bench_arg b = {.t = c->t, .ref = c->ref, .l = make(c, KEYS, COLS, ROWS, true)};
    struct check_work w = {.size = "128 x 128, 32 rows", .f32_ops = 7.0 * KEYS * COLS * ROWS};
    check_bench_row(c, &w, run, run_ref, &b);
}

const struct check_op check_linear_ops[] = {
    {.name = "linear_attention", .check = check_linear, .plant = plant, .bench = bench},
    {.name = NULL},
};
