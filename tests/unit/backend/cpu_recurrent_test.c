/* Short convolutions, products, the gated delta rule, state spaces and selective scans on every back end and instruction set: against the
 * formulas in double, and the same bits however two sequences are cut into batches, whatever their slots held before,
 * and where they go on from a copy of a state. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *cpu_recurrent_suite(void);

enum { V = 11, D = 36, N = 13, TAPS = 4, THREADS = 3, SLOTS = 7, MAX_DRAFTS = 3 };
enum { KEY_HEADS = 2, HEADS = 4, KEY = 5, VALUE = D / HEADS, MIXED = 2 * KEY_HEADS * KEY + D };
enum { GROUPS = 2, STATE = 7, SPACE = D + 2 * GROUPS * STATE };

static float embd[V * D], taps[D * TAPS], bias[D];
static float mixed[V * MIXED], betas[V * HEADS], alphas[V * HEADS], decays[HEADS], steps[HEADS], norm[VALUE];
static float space[V * SPACE], skips[HEADS], lefts[V * STATE], rights[V * STATE], rates[D * STATE];
static float parts[3][V * D], key_rates[V * D], key_steps[D]; /* of a rule with a decay per component of a key */
static const int32_t texts[2][N] = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9}};

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = (float)(seed >> 8) / (float)(1 << 24) * 2 - 1;
    }
}

static plan_weight_id add_weight(struct plan *p, const char *name, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, data, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, name, rows, &id), ERR_OK);
    return id;
}

static struct plan_step *add_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.src = src;
    s.dst = dst;
    s.w[0] = w;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

static struct plan *new_plan(void)
{
    struct plan *p = NULL;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = p->n_heads = p->n_kv_heads = 1;
    p->head_dim = 4;
    return p;
}

static void check_plan(struct plan *p)
{
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
}

/* y = silu(conv(x) + bias), y *= sigmoid(x), x = conv(y); states of x are what comes out. */
static struct plan *make_conv_plan(void)
{
    struct plan *p = new_plan();
    plan_buf_id x, y;
    ck_assert_int_eq(plan_add_buf(p, "x", D, &x), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "y", D, &y), ERR_OK);
    plan_weight_id w = add_weight(p, "taps", taps, 1, D * TAPS);
    add_step(p, PLAN_EMBED, PLAN_NONE, x, add_weight(p, "embd", embd, V, D));
    struct plan_step *conv = add_step(p, PLAN_SHORT_CONV, x, y, w);
    conv->conv.taps = TAPS;
    conv->conv.map = PLAN_MAP_SILU;
    conv->bias[0] = add_weight(p, "bias", bias, 1, D);
    add_step(p, PLAN_MULTIPLY, x, y, PLAN_NONE)->multiply.map = PLAN_MAP_SIGMOID;
    add_step(p, PLAN_SHORT_CONV, y, x, w)->conv.taps = TAPS;
    add_step(p, PLAN_HIDDEN, x, PLAN_NONE, PLAN_NONE);
    check_plan(p);
    ck_assert_uint_eq(p->recurrent_floats, 2 * (TAPS - 1) * D);
    ck_assert_uint_eq(p->steps[1].recurrent, 0);
    ck_assert_uint_eq(p->steps[3].recurrent, (TAPS - 1) * D);
    return p;
}

static double convolve(const double x[N][D], int t, int n)
{
    double sum = 0;
    for (int j = 0; j < TAPS; j++) {
        sum += t - TAPS + 1 + j >= 0 ? taps[n * TAPS + j] * x[t - TAPS + 1 + j][n] : 0;
    }
    return sum;
}

/* Value heads read key heads in blocks, or, tiled, in turns. */
static struct plan *make_delta_plan(bool is_tiled)
{
    struct plan *p = new_plan();
    plan_buf_id in, beta, alpha, out;
    p->delta = (struct plan_delta){
        .n_k_heads = KEY_HEADS, .n_v_heads = HEADS, .key_dim = KEY, .value_dim = VALUE, .is_tiled = is_tiled};
    ck_assert_int_eq(plan_add_buf(p, "in", MIXED, &in), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "beta", HEADS, &beta), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "alpha", HEADS, &alpha), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "out", D, &out), ERR_OK);
    add_step(p, PLAN_EMBED, PLAN_NONE, in, add_weight(p, "mixed", mixed, V, MIXED));
    add_step(p, PLAN_EMBED, PLAN_NONE, beta, add_weight(p, "betas", betas, V, HEADS));
    add_step(p, PLAN_EMBED, PLAN_NONE, alpha, add_weight(p, "alphas", alphas, V, HEADS));
    struct plan_step *s = add_step(p, PLAN_DELTA, in, out, add_weight(p, "decays", decays, 1, HEADS));
    s->delta.beta = beta;
    s->delta.alpha = alpha;
    s->bias[0] = add_weight(p, "steps", steps, 1, HEADS);
    s->w[1] = add_weight(p, "norm", norm, 1, VALUE);
    s->eps = 1e-6f;
    add_step(p, PLAN_HIDDEN, out, PLAN_NONE, PLAN_NONE);
    check_plan(p);
    ck_assert_uint_eq(p->recurrent_floats, HEADS * KEY * VALUE);
    return p;
}

/* Each component of a key has its own decay; q, k and values are in buffers of their own. */
static struct plan *make_key_plan(void)
{
    struct plan *p = new_plan();
    plan_buf_id in[3], beta, alpha, out;
    p->delta = (struct plan_delta){
        .n_k_heads = HEADS, .n_v_heads = HEADS, .key_dim = VALUE, .value_dim = VALUE, .decays_keys = true};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(plan_add_buf(p, "in", D, &in[i]), ERR_OK);
        add_step(p, PLAN_EMBED, PLAN_NONE, in[i], add_weight(p, "part", parts[i], V, D));
    }
    ck_assert_int_eq(plan_add_buf(p, "beta", HEADS, &beta), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "alpha", D, &alpha), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "out", D, &out), ERR_OK);
    add_step(p, PLAN_EMBED, PLAN_NONE, beta, add_weight(p, "betas", betas, V, HEADS));
    add_step(p, PLAN_EMBED, PLAN_NONE, alpha, add_weight(p, "rates", key_rates, V, D));
    struct plan_step *s = add_step(p, PLAN_DELTA, in[0], out, add_weight(p, "decays", decays, 1, HEADS));
    s->delta.beta = beta;
    s->delta.alpha = alpha;
    s->delta.keys = in[1];
    s->delta.values = in[2];
    s->bias[0] = add_weight(p, "steps", key_steps, 1, D);
    s->w[1] = add_weight(p, "norm", norm, 1, VALUE);
    s->eps = 1e-6f;
    add_step(p, PLAN_HIDDEN, out, PLAN_NONE, PLAN_NONE);
    check_plan(p);
    ck_assert_uint_eq(p->recurrent_floats, HEADS * VALUE * VALUE);
    ck_assert_uint_eq(p->drafted_floats, HEADS * (3 * VALUE + 1));
    return p;
}

static struct plan *make_block_plan(void) { return make_delta_plan(false); }
static struct plan *make_tiled_plan(void) { return make_delta_plan(true); }

/* Heads in two groups. */
static struct plan *make_ssm_plan(void)
{
    struct plan *p = new_plan();
    plan_buf_id in, dt, out;
    p->ssm = (struct plan_ssm){.n_heads = HEADS, .n_groups = GROUPS, .head_dim = VALUE, .state_dim = STATE};
    ck_assert_int_eq(plan_add_buf(p, "in", SPACE, &in), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "dt", HEADS, &dt), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "out", D, &out), ERR_OK);
    add_step(p, PLAN_EMBED, PLAN_NONE, in, add_weight(p, "space", space, V, SPACE));
    add_step(p, PLAN_EMBED, PLAN_NONE, dt, add_weight(p, "alphas", alphas, V, HEADS));
    struct plan_step *s = add_step(p, PLAN_SSM, in, out, add_weight(p, "decays", decays, 1, HEADS));
    s->ssm.dt = dt;
    s->w[1] = add_weight(p, "skips", skips, 1, HEADS);
    s->bias[0] = add_weight(p, "steps", steps, 1, HEADS);
    add_step(p, PLAN_HIDDEN, out, PLAN_NONE, PLAN_NONE);
    check_plan(p);
    ck_assert_uint_eq(p->recurrent_floats, HEADS * STATE * VALUE);
    return p;
}

static void expect_ssm(const int32_t *tokens, float out[N][D])
{
    for (int n = 0; n < D; n++) {
        double state[STATE] = {0};
        int h = n / VALUE, group = h / (HEADS / GROUPS);
        for (int t = 0; t < N; t++) {
            const float *x = space + tokens[t] * SPACE, *b = x + D + group * STATE, *c = b + GROUPS * STATE;
            double dt = log1p(exp((double)alphas[tokens[t] * HEADS + h] + steps[h])), y = skips[h] * x[n];
            for (int j = 0; j < STATE; j++) {
                state[j] = exp(dt * decays[h]) * state[j] + dt * b[j] * x[n];
                y += c[j] * state[j];
            }
            out[t][n] = (float)y;
        }
    }
}

/* Heads only divide the channels. */
static struct plan *make_scan_plan(void)
{
    struct plan *p = new_plan();
    plan_buf_id in, dt, b, c, out;
    p->ssm = (struct plan_ssm){.n_heads = HEADS, .n_groups = 1, .head_dim = VALUE, .state_dim = STATE};
    ck_assert_int_eq(plan_add_buf(p, "in", D, &in), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "dt", D, &dt), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "b", STATE, &b), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "c", STATE, &c), ERR_OK);
    ck_assert_int_eq(plan_add_buf(p, "out", D, &out), ERR_OK);
    add_step(p, PLAN_EMBED, PLAN_NONE, in, add_weight(p, "embd", embd, V, D));
    add_step(p, PLAN_EMBED, PLAN_NONE, dt, add_weight(p, "mixed", mixed, V, D));
    add_step(p, PLAN_EMBED, PLAN_NONE, b, add_weight(p, "lefts", lefts, V, STATE));
    add_step(p, PLAN_EMBED, PLAN_NONE, c, add_weight(p, "rights", rights, V, STATE));
    struct plan_step *s = add_step(p, PLAN_SCAN, in, out, add_weight(p, "rates", rates, 1, D * STATE));
    s->scan.dt = dt;
    s->scan.b = b;
    s->scan.c = c;
    s->w[1] = add_weight(p, "taps", taps, 1, D);
    s->bias[0] = add_weight(p, "bias", bias, 1, D);
    add_step(p, PLAN_HIDDEN, out, PLAN_NONE, PLAN_NONE);
    check_plan(p);
    ck_assert_uint_eq(p->recurrent_floats, D * STATE);
    return p;
}

static void expect_scan(const int32_t *tokens, float out[N][D])
{
    for (int n = 0; n < D; n++) {
        double state[STATE] = {0};
        for (int t = 0; t < N; t++) {
            const float *b = lefts + tokens[t] * STATE, *c = rights + tokens[t] * STATE;
            double x = embd[tokens[t] * D + n], dt = log1p(exp((double)mixed[tokens[t] * D + n] + bias[n]));
            double y = taps[n] * x;
            for (int j = 0; j < STATE; j++) {
                double a = rates[(n / VALUE * STATE + j) * VALUE + n % VALUE];
                state[j] = exp(dt * a) * state[j] + dt * b[j] * x;
                y += c[j] * state[j];
            }
            out[t][n] = (float)y;
        }
    }
}

static double length_of(const float *x, int n)
{
    double sum = 1e-6;
    for (int j = 0; j < n; j++) {
        sum += x[j] * x[j];
    }
    return sqrt(sum);
}

static void expect_head(const int32_t *tokens, int h, int key_head, float out[N][D])
{
    double state[KEY][VALUE] = {{0}};
    for (int t = 0; t < N; t++) {
        const float *q = mixed + tokens[t] * MIXED + key_head * KEY, *k = q + KEY_HEADS * KEY;
        const float *v = mixed + tokens[t] * MIXED + 2 * KEY_HEADS * KEY + h * VALUE;
        double decay = exp(decays[h] * log(1 + exp((double)alphas[tokens[t] * HEADS + h] + steps[h])));
        double beta = 1 / (1 + exp(-betas[tokens[t] * HEADS + h])), y[VALUE] = {0}, squares = 0;
        for (int n = 0; n < VALUE; n++) {
            double known = 0;
            for (int j = 0; j < KEY; j++) {
                known += decay * state[j][n] * k[j] / length_of(k, KEY);
            }
            for (int j = 0; j < KEY; j++) {
                state[j][n] = decay * state[j][n] + k[j] / length_of(k, KEY) * beta * (v[n] - known);
                y[n] += state[j][n] * q[j] / length_of(q, KEY) / sqrt(KEY);
            }
            squares += y[n] * y[n];
        }
        for (int n = 0; n < VALUE; n++) {
            out[t][h * VALUE + n] = (float)(y[n] / sqrt(squares / VALUE + 1e-6) * norm[n]);
        }
    }
}

static void expect_keys(const int32_t *tokens, float out[N][D])
{
    for (int h = 0; h < HEADS; h++) {
        double state[VALUE][VALUE] = {{0}};
        for (int t = 0; t < N; t++) {
            int at = tokens[t] * D + h * VALUE;
            const float *q = parts[0] + at, *k = parts[1] + at, *v = parts[2] + at;
            double beta = 1 / (1 + exp(-betas[tokens[t] * HEADS + h])), y[VALUE] = {0}, squares = 0;
            for (int n = 0; n < VALUE; n++) {
                double known = 0;
                for (int j = 0; j < VALUE; j++) {
                    double x = (double)key_rates[at + j] + key_steps[h * VALUE + j];
                    state[j][n] *= exp(decays[h] * (x > 30 ? x : log(1 + exp(x))));
                    known += state[j][n] * k[j] / length_of(k, VALUE);
                }
                for (int j = 0; j < VALUE; j++) {
                    state[j][n] += k[j] / length_of(k, VALUE) * beta * (v[n] - known);
                    y[n] += state[j][n] * q[j] / length_of(q, VALUE) / sqrt(VALUE);
                }
                squares += y[n] * y[n];
            }
            for (int n = 0; n < VALUE; n++) {
                out[t][h * VALUE + n] = (float)(y[n] / sqrt(squares / VALUE + 1e-6) * norm[n]);
            }
        }
    }
}

static void expect_block(const int32_t *tokens, float out[N][D])
{
    for (int h = 0; h < HEADS; h++) {
        expect_head(tokens, h, h / (HEADS / KEY_HEADS), out);
    }
}

static void expect_tiled(const int32_t *tokens, float out[N][D])
{
    for (int h = 0; h < HEADS; h++) {
        expect_head(tokens, h, h % KEY_HEADS, out);
    }
}

static void expect_conv(const int32_t *tokens, float out[N][D])
{
    double x[N][D], y[N][D];
    for (int t = 0; t < N; t++) {
        for (int n = 0; n < D; n++) {
            x[t][n] = embd[tokens[t] * D + n];
            double v = convolve(x, t, n) + bias[n];
            y[t][n] = v / (1 + exp(-v)) / (1 + exp(-x[t][n]));
        }
        for (int n = 0; n < D; n++) {
            out[t][n] = (float)convolve(y, t, n);
        }
    }
}

/* Where a text's state is, where it begins, and which positions' states go to which slots besides. */
struct slots {
    int32_t own[2], begin[2];
    int32_t n_drafts[2]; /* of the last rows */
    int n_right[2];      /* the first of these, which come true */
    int32_t n_true[2];   /* the number before */
    int n_copies[2];
    int copy_pos[2][2];
    int32_t copy_states[2][2];
};

/* Rows of the second text in front of rows of the first, so that slots are not in the order of sequences. */
static void forward_from(const struct backend *b, struct backend_model *m, const struct slots *s, const int from[2],
                         const int n[2], float out[2][N][D])
{
    int32_t tokens[2 * N], pos[2 * N], seq[2 * N], rows[2 * N], of[2], begin[2], pages[1] = {0};
    int32_t copy_rows[4], copy_states[4], n_drafts[2], n_true[2];
    int n_copies = 0;
    const int32_t *tables[2] = {pages, pages};
    float states[2 * N * D];
    int n_rows = 0, n_seqs = 0;
    for (int text = 1; text >= 0; text--) {
        for (int i = 0; i < n[text]; i++, n_rows++) {
            bool is_wrong = i >= n[text] - s->n_drafts[text] + s->n_right[text];
            tokens[n_rows] = (texts[text][from[text] + i] + is_wrong) % V;
            pos[n_rows] = from[text] + i;
            seq[n_rows] = n_seqs;
            rows[n_rows] = n_rows;
        }
        for (int i = 0; i < s->n_copies[text]; i++) {
            copy_rows[n_copies] = n_rows - n[text] + s->copy_pos[text][i] - from[text];
            copy_states[n_copies++] = s->copy_states[text][i];
        }
        of[n_seqs] = s->own[text];
        begin[n_seqs] = s->begin[text];
        n_drafts[n_seqs] = s->n_drafts[text];
        n_true[n_seqs] = s->n_true[text];
        n_seqs += n[text] != 0;
    }
    struct backend_batch batch = {.n_rows = n_rows,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = n_seqs,
                                  .page_tables = tables,
                                  .states = of,
                                  .begin_states = memcmp(of, begin, sizeof of) != 0 ? begin : NULL,
                                  .n_drafts = n_drafts,
                                  .n_true = n_true,
                                  .n_copies = n_copies,
                                  .copy_rows = copy_rows,
                                  .copy_states = copy_states,
                                  .n_hidden = n_rows,
                                  .hidden_rows = rows,
                                  .hidden = states};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    for (int text = 1, at = 0; text >= 0; at += n[text], text--) {
        memcpy(out[text][from[text]], states + (size_t)at * D, (size_t)n[text] * sizeof out[text][0]);
    }
}

static void forward(const struct backend *b, struct backend_model *m, const int32_t slots[2], const int from[2],
                    const int n[2], float out[2][N][D])
{
    struct slots s = {.own = {slots[0], slots[1]}, .begin = {slots[0], slots[1]}};
    forward_from(b, m, &s, from, n, out);
}

/* The rest of both texts after states that were copied in the middle of batches, three times: what was copied stays as
 * it is. One of the copies is after the second row, when a convolution's state still begins with zeros. */
static void check_copied(const struct backend *b, struct backend_model *m, float whole[2][N][D])
{
    static float out[2][N][D];
    static const int start[2] = {0, 0}, first[2] = {7, 4};
    static const int from[3][2] = {{2, 1}, {6, 3}, {6, 1}};
    static const int32_t begin[3][2] = {{3, 5}, {4, 6}, {4, 5}};
    struct slots s = {.own = {0, 1},
                      .begin = {0, 1},
                      .n_copies = {2, 2},
                      .copy_pos = {{1, 5}, {0, 2}},
                      .copy_states = {{3, 4}, {5, 6}}};
    forward_from(b, m, &s, start, first, out);
    for (int i = 0; i < 3; i++) {
        int n[2] = {N - from[i][0], N - from[i][1]};
        struct slots rest = {.own = {2, 0}, .begin = {begin[i][0], begin[i][1]}};
        memset(out, 0, sizeof out);
        forward_from(b, m, &rest, from[i], n, out);
        for (int text = 0; text < 2; text++) {
            int at = from[i][text];
            ck_assert_msg(memcmp(out[text][at], whole[text][at], (size_t)(N - at) * sizeof out[text][at]) == 0,
                          "%s: a copied state changes bits, text %d from row %d", b->name, text, at);
        }
    }
}

/* Drafts of 0 to MAX_DRAFTS rows after 1 or 2 certain ones, of which some come true: each row that is right gives the
 * same as without drafts, and so does the rest from the copy of a state before drafts. */
static void check_drafted(const struct backend *b, struct backend_model *m, float whole[2][N][D])
{
    static float out[2][N][D];
    for (int turn = 0; turn < 12; turn++) {
        struct slots s = {.own = {2, 0}, .begin = {2, 0}};
        int from[2] = {0, 0}, copied = -1;
        memset(out, 0, sizeof out);
        for (int step = 0; from[0] < N || from[1] < N; step++) {
            int n[2];
            s.n_copies[0] = 0;
            for (int text = 0; text < 2; text++) {
                int left = N - from[text], mix = turn * 7 + step * 5 + text * 3;
                int certain = left < 1 + mix % 2 ? left : 1 + mix % 2;
                s.n_drafts[text] = left - certain < mix % (MAX_DRAFTS + 1) ? left - certain : mix % (MAX_DRAFTS + 1);
                s.n_right[text] = mix / 2 % (s.n_drafts[text] + 1);
                n[text] = certain + s.n_drafts[text];
            }
            if (copied < 0 && from[0] > N / 4 && n[0] > 0) {
                s.n_copies[0] = 1;
                s.copy_pos[0][0] = copied = from[0] + n[0] - s.n_drafts[0] - 1;
                s.copy_states[0][0] = 5;
            }
            forward_from(b, m, &s, from, n, out);
            for (int text = 0; text < 2; text++) {
                int n_right = n[text] - s.n_drafts[text] + s.n_right[text];
                ck_assert_msg(
                    memcmp(out[text][from[text]], whole[text][from[text]], (size_t)n_right * sizeof out[text][0]) == 0,
                    "%s: turn %d, step %d, text %d: %d of %d rows from %d, after %d true drafts, differ", b->name, turn,
                    step, text, n_right, n[text], from[text], s.n_true[text]);
                from[text] += n_right;
                s.n_true[text] = n[text] != 0 ? s.n_right[text] : s.n_true[text];
            }
        }
        int rest[2] = {copied + 1, N}, n[2] = {N - copied - 1, 0};
        forward_from(b, m, &(struct slots){.own = {2, 0}, .begin = {5, 0}}, rest, n, out);
        ck_assert_msg(memcmp(out[0][rest[0]], whole[0][rest[0]], (size_t)n[0] * sizeof out[0][0]) == 0,
                      "%s: turn %d: a state copied beside drafts changes bits from row %d", b->name, turn, rest[0]);
    }
}

/* Two texts that go on from one state in one batch: the same rows give the same. */
static void check_shared(const struct backend *b, struct backend_model *m, float whole[2][N][D])
{
    static float found[2][N][D];
    int32_t tokens[2 * N], pos[2 * N], seq[2 * N], rows[2 * N], own[2] = {1, 2}, begin[2] = {4, 4}, pages[1] = {0};
    const int32_t *tables[2] = {pages, pages};
    enum { FROM = 6, LEFT = N - FROM };
    for (int i = 0; i < 2 * LEFT; i++) {
        tokens[i] = texts[0][FROM + i % LEFT];
        pos[i] = FROM + i % LEFT;
        seq[i] = i / LEFT;
        rows[i] = i;
    }
    struct backend_batch batch = {.n_rows = 2 * LEFT,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 2,
                                  .page_tables = tables,
                                  .states = own,
                                  .begin_states = begin,
                                  .n_hidden = 2 * LEFT,
                                  .hidden_rows = rows,
                                  .hidden = found[0][0]};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(memcmp(found[0] + i * LEFT, whole[0] + FROM, LEFT * sizeof whole[0][0]) == 0,
                      "%s: text %d of two differs", b->name, i);
    }
}

/* Pieces of 1 to 5 rows, the two texts out of step and now and then alone. */
static void run_cut(const struct backend *b, struct backend_model *m, const int32_t slots[2], float out[2][N][D])
{
    int from[2] = {0, 0};
    for (int step = 0; from[0] < N || from[1] < N; step++) {
        int n[2] = {step % 3 == 2 ? 0 : 1 + step % 5, step % 4 == 1 ? 0 : 1 + step % 2};
        n[0] = n[0] < N - from[0] ? n[0] : N - from[0];
        n[1] = n[1] < N - from[1] ? n[1] : N - from[1];
        if (n[0] + n[1] == 0) {
            continue;
        }
        forward(b, m, slots, from, n, out);
        from[0] += n[0];
        from[1] += n[1];
    }
}

static const struct subject {
    struct plan *(*make)(void);
    void (*expect)(const int32_t *tokens, float out[N][D]);
} subjects[] = {{make_conv_plan, expect_conv}, {make_block_plan, expect_block}, {make_tiled_plan, expect_tiled},
                {make_key_plan, expect_keys},  {make_ssm_plan, expect_ssm},     {make_scan_plan, expect_scan}};

static void check(const struct subject *s, const struct backend *b, const char *cpu)
{
    static const int32_t slots[2] = {2, 0}, others[2] = {0, 2};
    static const int start[2] = {0, 0}, all[2] = {N, N};
    float whole[2][N][D], cut[2][N][D], expected[N][D];
    struct backend_config cfg = {.cpu = cpu,
                                 .high_precision = true,
                                 .n_threads = THREADS,
                                 .n_pages = 1,
                                 .n_states = SLOTS,
                                 .max_drafts = MAX_DRAFTS,
                                 .max_rows = 2 * N,
                                 .max_logits = 1};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct plan *p = s->make();
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    struct backend_measure takes;
    ck_assert_int_eq(b->measure(p, &cfg, &takes, &info), ERR_OK);
    ck_assert_uint_eq(takes.bytes[b == &backend_opencl ? BACKEND_DEVICE : BACKEND_HOST].state,
                      p->recurrent_floats * sizeof(float));
    forward(b, m, slots, start, all, whole);
    run_cut(b, m, others, cut); /* each begins in a slot that holds the other's state */
    ck_assert_msg(memcmp(whole, cut, sizeof whole) == 0, "%s %s: a cut changes bits", b->name, cpu != NULL ? cpu : "");
    check_copied(b, m, whole);
    check_drafted(b, m, whole);
    check_shared(b, m, whole);
    for (int text = 0; text < 2; text++) {
        s->expect(texts[text], expected);
        for (int i = 0; i < N * D; i++) {
            float found = whole[text][i / D][i % D], wanted = expected[i / D][i % D];
            if (!(fabsf(found - wanted) < 1e-4f * fmaxf(1, fabsf(wanted)))) {
                ck_abort_msg("%s %s: text %d, row %d, channel %d: expected %g, found %g", b->name,
                             cpu != NULL ? cpu : "", text, i / D, i % D, (double)wanted, (double)found);
            }
        }
    }
    b->close(&m);
    plan_free(&p);
}

START_TEST(a_step_is_its_formula_however_it_is_cut)
{
    const struct subject *s = &subjects[_i];
    fill(embd, V * D, 1);
    fill(taps, D * TAPS, 2);
    fill(bias, D, 3);
    fill(mixed, V * MIXED, 4);
    fill(betas, V * HEADS, 5);
    fill(alphas, V * HEADS, 6);
    fill(decays, HEADS, 7);
    fill(steps, HEADS, 8);
    fill(norm, VALUE, 9);
    fill(space, V * SPACE, 10);
    fill(skips, HEADS, 11);
    fill(lefts, V * STATE, 12);
    fill(rights, V * STATE, 13);
    fill(rates, D * STATE, 14);
    fill(key_rates, V * D, 15);
    fill(key_steps, D, 16);
    for (uint32_t i = 0; i < 3; i++) {
        fill(parts[i], V * D, 17 + i);
    }
    alphas[4 * HEADS + 1] = mixed[5 * D + 2] = key_rates[4 * D + 10] = 95; /* exp() of which is no float */
    for (int i = 0; i < D * STATE; i++) {
        rates[i] = -fabsf(rates[i]) - 0.1f;
    }
    for (int h = 0; h < HEADS; h++) {
        decays[h] = -fabsf(decays[h]) - 0.1f;
    }
    check(s, &backend_ref, NULL);
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        if (kern_isa_is_there(i)) {
            check(s, &backend_cpu, kern_isa_name(i));
        }
    }
    check(s, &backend_opencl, NULL);
}
END_TEST

START_TEST(a_batch_of_more_sequences_than_slots_is_refused)
{
    const struct backend *const backends[] = {&backend_ref, &backend_cpu, &backend_opencl};
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .n_states = 1, .max_rows = 2, .max_logits = 1};
        int32_t pos[2] = {0, 0}, seq[2] = {0, 1}, pages[1] = {0};
        const int32_t *tables[2] = {pages, pages};
        struct backend_batch batch = {
            .n_rows = 2, .tokens = pos, .pos = pos, .seq = seq, .n_seqs = 2, .page_tables = tables};
        struct backend_model *m = NULL;
        struct err_info info = {0};
        struct plan *p = make_conv_plan();
        ck_assert_msg(backends[i]->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
        ck_assert_int_eq(backend_compute(backends[i], m, &batch, &info), ERR_INTERNAL);
        ck_assert_msg(strstr(info.text, "2 sequences") != NULL, "%s", info.text);
        backends[i]->close(&m);
        plan_free(&p);
    }
}
END_TEST

START_TEST(a_recurrent_step_that_does_not_fit_is_the_builders_mistake)
{
    for (int i = 0; i < 9; i++) {
        struct plan *p = make_conv_plan();
        struct plan_step *conv = &p->steps[1];
        struct err_info info = {0};
        enum err expected = i == 4 || i == 5 ? ERR_BAD_TENSOR_SHAPE : ERR_INTERNAL;
        conv->dst = i == 0 ? conv->src : conv->dst;
        conv->conv.taps = i == 1 ? 1 : i == 2 ? PLAN_MAX_TAPS + 1 : i == 5 ? TAPS + 1 : conv->conv.taps;
        p->is_bidirectional = i == 3;
        conv->bias[0] = i == 4 ? conv->w[0] : conv->bias[0];
        p->steps[2].src = i == 6 ? p->steps[2].dst : p->steps[2].src;
        conv->conv.map = i == 7 ? PLAN_MAP_GELU_TANH : conv->conv.map; /* of products alone */
        p->steps[2].multiply.is_sparse = i == 8;                       /* which sigmoids are not */
        ck_assert_msg(plan_check(p, &info) == expected, "case %d: %s", i, info.text);
        plan_free(&p);
    }
}
END_TEST

START_TEST(a_rule_that_does_not_fit_is_the_builders_mistake)
{
    for (int i = 0; i < 9; i++) {
        struct plan *p = i < 4 ? make_key_plan() : make_block_plan();
        struct plan_step *s = &p->steps[i < 4 ? 5 : 3];
        struct err_info info = {0};
        enum err expected = i == 2 ? ERR_BAD_TENSOR_SHAPE : ERR_INTERNAL;
        s->delta.values = i == 0 ? PLAN_NONE : s->delta.values;
        s->delta.alpha = i == 1 ? s->delta.beta : s->delta.alpha;
        s->bias[0] = i == 2 ? s->w[0] : s->bias[0];
        s->delta.keys = i == 3 ? s->delta.beta : i == 4 ? s->dst : s->delta.keys;
        s->delta.values = i == 5 ? s->dst : s->delta.values;
        p->delta.decays_keys |= i == 6; /* value heads share key heads */
        s->dst = i == 7 ? s->src : s->dst;
        p->is_bidirectional = i == 8;
        ck_assert_msg(plan_check(p, &info) == expected, "case %d: %s", i, info.text);
        plan_free(&p);
    }
}
END_TEST

START_TEST(a_state_space_that_does_not_fit_is_the_builders_mistake)
{
    for (int i = 0; i < 15; i++) {
        struct plan *p = make_ssm_plan();
        struct plan_step *s = &p->steps[2];
        struct err_info info = {0};
        enum err expected = i >= 12 ? ERR_BAD_TENSOR_SHAPE : ERR_INTERNAL;
        s->dst = i == 0 ? s->src : s->dst;
        s->ssm.dt = i == 1 ? s->dst : i == 2 ? PLAN_NONE : s->ssm.dt;
        p->is_bidirectional = i == 3;
        p->ssm.n_groups = i == 4 ? 3 : i == 5 ? 0 : i == 6 ? 1 : p->ssm.n_groups; /* of other widths the last one */
        p->ssm.head_dim = i == 7 ? 0 : i == 8 ? PLAN_MAX_HEAD + 1 : p->ssm.head_dim;
        p->ssm.state_dim = i == 9 ? 0 : i == 10 ? PLAN_MAX_STATE + 1 : p->ssm.state_dim;
        p->ssm.n_heads = i == 11 ? 0 : p->ssm.n_heads;
        plan_weight_id wide = p->steps[0].w[0];
        s->w[0] = i == 12 ? wide : s->w[0];
        s->w[1] = i == 13 ? wide : s->w[1];
        s->bias[0] = i == 14 ? wide : s->bias[0];
        ck_assert_msg(plan_check(p, &info) == expected, "case %d: %s", i, info.text);
        plan_free(&p);
    }
}
END_TEST

START_TEST(a_scan_that_does_not_fit_is_the_builders_mistake)
{
    for (int i = 0; i < 10; i++) {
        struct plan *p = make_scan_plan();
        struct plan_step *s = &p->steps[4];
        struct err_info info = {0};
        enum err expected = i >= 7 ? ERR_BAD_TENSOR_SHAPE : ERR_INTERNAL;
        s->dst = i == 0 ? s->src : s->dst;
        s->scan.dt = i == 1 ? s->scan.b : s->scan.dt;
        s->scan.b = i == 2 ? s->scan.dt : s->scan.b;
        s->scan.c = i == 3 ? PLAN_NONE : s->scan.c;
        p->is_bidirectional = i == 4;
        p->ssm.n_groups = i == 5 ? 2 : 1;
        p->ssm.head_dim = i == 6 ? VALUE + 1 : VALUE;
        plan_weight_id wide = p->steps[0].w[0];
        s->w[0] = i == 7 ? wide : s->w[0];
        s->w[1] = i == 8 ? wide : s->w[1];
        s->bias[0] = i == 9 ? wide : s->bias[0];
        ck_assert_msg(plan_check(p, &info) == expected, "case %d: %s", i, info.text);
        plan_free(&p);
    }
}
END_TEST

Suite *cpu_recurrent_suite(void)
{
    Suite *s = suite_create("cpu_recurrent");
    TCase *c = tcase_create("cpu_recurrent");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, a_step_is_its_formula_however_it_is_cut, 0, (int)(sizeof subjects / sizeof *subjects));
    tcase_add_test(c, a_batch_of_more_sequences_than_slots_is_refused);
    tcase_add_test(c, a_recurrent_step_that_does_not_fit_is_the_builders_mistake);
    tcase_add_test(c, a_rule_that_does_not_fit_is_the_builders_mistake);
    tcase_add_test(c, a_state_space_that_does_not_fit_is_the_builders_mistake);
    tcase_add_test(c, a_scan_that_does_not_fit_is_the_builders_mistake);
    suite_add_tcase(s, c);
    return s;
}
