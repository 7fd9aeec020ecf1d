/* Linear attention and selective scans, compared with the recurrence in double, and with themselves cut differently. */
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

static struct linear make(struct check *c, int n_keys, int n_cols, int n_rows, bool corrects, bool by_key)
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
    if (by_key) {
        l.a.key_decay = random_floats(c, rows * (size_t)n_keys, 0, 1);
    } else {
        l.a.decay = random_floats(c, rows, 0, 1);
    }
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
            double decay = (double)(a->key_decay != NULL ? a->key_decay[t * a->n_keys + j] : a->decay[t]);
            state[j] *= decay;
            size[j] *= decay;
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
        a.decay += a.decay != NULL ? t : 0;
        a.key_decay += a.key_decay != NULL ? t * a.n_keys : 0;
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
    for (int i = 0; i < (int)(ARRAY_LEN(keys) * ARRAY_LEN(cols) * 4 * MAX_ROWS); i++) {
        int k = keys[i % (int)ARRAY_LEN(keys)], n = cols[i / (int)ARRAY_LEN(keys) % (int)ARRAY_LEN(cols)];
        int rest = i / (int)(ARRAY_LEN(keys) * ARRAY_LEN(cols)), rows = 1 + rest / 4;
        check_case(c, "%d keys, %d columns, %d rows%s%s", k, n, rows, rest % 2 == 1 ? ", corrects" : "",
                   rest / 2 % 2 == 1 ? ", decays by key" : "");
        struct linear l = make(c, k, n, rows, rest % 2 == 1, rest / 2 % 2 == 1);
        c->t->linear_attention(&l.a);
        check_columns(c, &l);
        check_pieces(c, &l);
        check_guards(c);
    }
}

/* Decays of n components, and the same bits in pieces and in place. */
static void decay_case(struct check *c, size_t n, double rate, double most)
{
    float *x = random_floats(c, n, -most, most), *bias = random_floats(c, n, -most / 4, most / 4), *out = floats(n);
    c->t->decay(x, bias, (float)rate, n, out);
    for (size_t i = 0; i < n; i++) {
        double sum = (double)x[i] + (double)bias[i];
        double u = (double)(float)rate * (sum > 700 ? sum : log1p(exp(sum))), want = exp(u);
        if (!(fabs((double)out[i] - want) <= (1e-6 + 4e-7 * fabs(u) * (1 + fabs(sum))) * want + 2e-38)) {
            check_fail(c, "decay", i, (double)out[i], want);
            return;
        }
    }
    float *pieces = floats(n);
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = 1 + (size_t)check_random_below(c, 20);
        piece = MIN_OF(n - at, piece);
        c->t->decay(x + at, bias + at, (float)rate, piece, pieces + at);
    }
    check_same_f32(c, "pieces", pieces, out, n);
    c->t->decay(x, bias, (float)rate, n, x);
    check_same_f32(c, "in place", x, out, n);
    check_guards(c);
}

static void check_decay(struct check *c, int arg)
{
    static const double rates[] = {0, -0.01, -1, -16, -1000}, most[] = {1, 12, 90, 1e30};
    static const size_t sizes[] = {1, 7, 16, 17, 128, 300};
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(rates) * ARRAY_LEN(most) * ARRAY_LEN(sizes); i++) {
        size_t n = sizes[i % ARRAY_LEN(sizes)], rest = i / ARRAY_LEN(sizes);
        double rate = rates[rest % ARRAY_LEN(rates)], up_to = most[rest / ARRAY_LEN(rates)];
        check_case(c, "%zu components up to %g, rate %g", n, up_to, rate);
        decay_case(c, n, rate, up_to);
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

static void wrong_decay(const struct kern_linear_args *a) /* one for all components */
{
    float same[MAX_ROWS * MAX_KEYS];
    struct kern_linear_args b = *a;
    for (int i = 0; a->key_decay != NULL && i < a->n_rows * a->n_keys; i++) {
        same[i] = a->key_decay[i / a->n_keys * a->n_keys];
    }
    b.key_decay = a->key_decay != NULL ? same : NULL;
    honest.linear_attention(&b);
}

static void without_bias(const float *x, const float *bias, float rate, size_t n, float *out)
{
    float zeros[300] = {0};
    (void)bias;
    honest.decay(x, zeros, rate, n, out);
}
static void wrong_end(const float *x, const float *bias, float rate, size_t n, float *out)
{
    honest.decay(x, bias, rate, n - n % 16, out);
}

static bool plant_decay(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    honest = *t;
    t->decay = variant == 0 ? without_bias : wrong_end;
    return variant < 2;
}

static bool plant(struct kern_table *t, int arg, int variant)
{
    static void (*const faults[])(const struct kern_linear_args *) = {wrong_key, wrong_rule, wrong_tail, wrong_state,
                                                                      wrong_decay};
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
    enum { KEYS = 128, COLS = 128, ROWS = 32 }; /* a head of Qwen3-Next, and of Kimi Linear */
    (void)arg;
    for (int by_key = 0; by_key < 2; by_key++) {
        check_case(c, "bench");
        struct bench_arg b = {.t = c->t, .ref = c->ref, .l = make(c, KEYS, COLS, ROWS, true, by_key)};
        struct check_work w = {.size = by_key ? "128 x 128, 32 rows, by key" : "128 x 128, 32 rows",
                               .f32_ops = 7.0 * KEYS * COLS * ROWS};
        check_bench_row(c, &w, run, run_ref, &b);
    }
}

/* --- selective scans ---------------------------------------------------------------------------------------------- */

struct scan {
    struct kern_scan_args a;
    float *state, *start, *out;
    size_t n_state, n_out;
};

static struct scan make_scan(struct check *c, int n_states, int n_cols, int n_rows)
{
    size_t rows = (size_t)n_rows, gap = (size_t)check_random_below(c, 3);
    struct scan s = {.a = {.n_states = n_states,
                           .n_cols = n_cols,
                           .n_rows = n_rows,
                           .b_stride = (size_t)n_states + gap,
                           .c_stride = (size_t)n_states,
                           .x_stride = (size_t)n_cols + gap,
                           .dt_stride = (size_t)n_cols,
                           .out_stride = (size_t)n_cols + gap}};
    s.n_state = (size_t)n_states * (size_t)n_cols;
    s.n_out = rows * s.a.out_stride;
    s.a.a = random_floats(c, s.n_state, -20, 0);
    s.a.b = random_floats(c, rows * s.a.b_stride, -1, 1);
    s.a.c = random_floats(c, rows * s.a.c_stride, -1, 1);
    s.a.x = random_floats(c, rows * s.a.x_stride, -1, 1);
    s.a.dt = random_floats(c, rows * s.a.dt_stride, 0, 6); /* decays from 0 to 1 */
    s.start = random_floats(c, s.n_state, -1, 1);
    s.a.state = s.state = floats(s.n_state);
    memcpy(s.state, s.start, s.n_state * sizeof *s.state);
    s.a.out = s.out = floats(s.n_out);
    memset(s.out, 0, s.n_out * sizeof *s.out);
    return s;
}

/* Compares column n of the rows with the computation in double, within the bound of kern.h. */
static void check_scan_column(struct check *c, const struct scan *s, size_t n)
{
    const struct kern_scan_args *a = &s->a;
    double out[MAX_ROWS] = {0}, limit[MAX_ROWS] = {0};
    double unit = 3e-7 * (a->n_states + 8) * a->n_rows;
    for (size_t j = 0; j < (size_t)a->n_states; j++) {
        size_t at = j * (size_t)a->n_cols + n;
        double state = (double)s->start[at], size = fabs(state), off = 0;
        for (size_t t = 0; t < (size_t)a->n_rows; t++) {
            double dt = (double)a->dt[t * a->dt_stride + n], decay = exp(dt * (double)a->a[at]);
            double in = (double)a->b[t * a->b_stride + j] * dt * (double)a->x[t * a->x_stride + n];
            double query = (double)a->c[t * a->c_stride + j];
            off = decay * (off + 3e-7 * fabs(dt * (double)a->a[at]) * size);
            state = decay * state + in;
            size = decay * size + fabs(in);
            out[t] += query * state;
            limit[t] += fabs(query) * (unit * size + off);
        }
        if (!(fabs((double)s->state[at] - state) <= unit * size + off + 1e-37)) {
            check_fail(c, "state", at, (double)s->state[at], state);
        }
    }
    for (size_t t = 0; t < (size_t)a->n_rows; t++) {
        size_t at = t * a->out_stride + n;
        if (!(fabs((double)s->out[at] - out[t]) <= limit[t] + 1e-37)) {
            check_fail(c, "out", at, (double)s->out[at], out[t]);
        }
    }
}

/* Checks that single rows give the same bits. */
static void check_scan_rows(struct check *c, const struct scan *s)
{
    struct kern_scan_args a = s->a;
    float *out = floats(s->n_out);
    memset(out, 0, s->n_out * sizeof *out);
    a.state = floats(s->n_state);
    memcpy(a.state, s->start, s->n_state * sizeof *a.state);
    a.n_rows = 1;
    a.out = out;
    for (int t = 0; t < s->a.n_rows; t++) {
        c->t->selective_scan(&a);
        a.b += a.b_stride;
        a.c += a.c_stride;
        a.x += a.x_stride;
        a.dt += a.dt_stride;
        a.out += a.out_stride;
    }
    check_same_f32(c, "rows", out, s->out, s->n_out);
    check_same_f32(c, "state of rows", a.state, s->state, s->n_state);
}

static void check_scan(struct check *c, int arg)
{
    static const int states[] = {1, 2, 7, 16, MAX_KEYS}, cols[] = {1, 8, 15, 16, 17, 40, 64, MAX_COLS};
    (void)arg;
    for (int i = 0; i < (int)(ARRAY_LEN(states) * ARRAY_LEN(cols) * MAX_ROWS); i++) {
        int n = states[i % (int)ARRAY_LEN(states)], m = cols[i / (int)ARRAY_LEN(states) % (int)ARRAY_LEN(cols)];
        int rows = 1 + i / (int)(ARRAY_LEN(states) * ARRAY_LEN(cols));
        check_case(c, "%d states, %d columns, %d rows", n, m, rows);
        struct scan s = make_scan(c, n, m, rows);
        c->t->selective_scan(&s.a);
        for (size_t k = 0; k < (size_t)m; k++) {
            check_scan_column(c, &s, k);
        }
        check_scan_rows(c, &s);
        check_guards(c);
    }
}

static void wrong_last_state(const struct kern_scan_args *a) /* omits the last one */
{
    struct kern_scan_args b = *a;
    b.n_states -= a->n_states > 1;
    honest.selective_scan(&b);
}
static void wrong_rates(const struct kern_scan_args *a) /* those of the next state */
{
    struct kern_scan_args b = *a;
    b.a = a->n_states > 1 ? a->a + a->n_cols : a->a;
    b.n_states -= a->n_states > 1;
    honest.selective_scan(&b);
}
static void wrong_last_column(const struct kern_scan_args *a) /* leaves a part of a vector out */
{
    float state = a->state[a->n_cols - 1];
    honest.selective_scan(a);
    a->state[a->n_cols - 1] = a->n_cols % 16 != 0 ? state : a->state[a->n_cols - 1];
}

static bool plant_scan(struct kern_table *t, int arg, int variant)
{
    static void (*const faults[])(const struct kern_scan_args *) = {wrong_last_state, wrong_rates, wrong_last_column};
    (void)arg;
    honest = *t;
    t->selective_scan = faults[variant % (int)ARRAY_LEN(faults)];
    return variant < (int)ARRAY_LEN(faults);
}

struct scan_bench {
    const struct kern_table *t, *ref;
    struct scan s;
};
static void run_scan(void *arg) { ((struct scan_bench *)arg)->t->selective_scan(&((struct scan_bench *)arg)->s.a); }
static void run_ref_scan(void *arg)
{
    ((struct scan_bench *)arg)->ref->selective_scan(&((struct scan_bench *)arg)->s.a);
}

static void bench_scan(struct check *c, int arg)
{
    enum { STATES = 16, COLS = 64, ROWS = 32 }; /* a part of the channels of Jamba and Falcon Mamba */
    (void)arg;
    check_case(c, "bench");
    struct scan_bench b = {.t = c->t, .ref = c->ref, .s = make_scan(c, STATES, COLS, ROWS)};
    struct check_work w = {.size = "16 x 64, 32 rows", .f32_ops = 6.0 * STATES * COLS * ROWS};
    check_bench_row(c, &w, run_scan, run_ref_scan, &b);
}

const struct check_op check_linear_ops[] = {
    {.name = "linear_attention", .check = check_linear, .plant = plant, .bench = bench},
    {.name = "decay", .check = check_decay, .plant = plant_decay},
    {.name = "selective_scan", .check = check_scan, .plant = plant_scan, .bench = bench_scan},
    {.name = NULL},
};
