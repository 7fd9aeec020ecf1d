/* Every operation on the reference back end, against numbers worked out by hand from what plan.h says of it: the truth
 * that all other back ends are held to; and on the OpenCL back end, whose steps are the plan's too. Rows are tokens 0, 1
 * and 2 at positions 0, 1 and 2 of one sequence. */
#include "engine/backend/backend.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *backend_ref_ops_suite(void);

#define LN2       0.693147181f
#define LN3       1.098612289f
#define ATANH_05  0.549306144f /* tanh gives 1/2 */
#define QUARTER   1.570796327f /* a quarter of a turn */
#define ROWS(...) ((const float[]){__VA_ARGS__})

enum { N = 3, POSITIONS = 4 };

static struct plan *p;
static const struct subject {
    const struct backend *backend;
    float allowed;
} subjects[] = {{&backend_ref, 2e-6f}, {&backend_opencl, 5e-4f /* keys and values are halves */}}, *on;

/* --- a plan, piece by piece -------------------------------------------------------------------------------------- */

static void begin(uint32_t n_heads, uint32_t head_dim)
{
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = N;
    p->n_layers = p->n_kv_heads = 1;
    p->n_heads = n_heads;
    p->head_dim = head_dim;
    p->n_ctx_train = POSITIONS;
}

/* The plan keeps a copy of data [n_out][n_in]. */
static plan_weight_id weight(uint32_t n_out, uint32_t n_in, const float *data)
{
    plan_weight_id id = PLAN_NONE;
    size_t row_bytes = n_in * sizeof *data;
    float *copy = arena_alloc(&p->arena, n_out * row_bytes);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, n_out * row_bytes);
    const struct row_source *source = row_mapped_new(&p->arena, DTYPE_F32, copy, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, "w", source, &id), ERR_OK);
    return id;
}

static plan_weight_id vector(uint32_t n, const float *data) { return weight(1, n, data); }

static plan_buf_id buffer(uint32_t width)
{
    plan_buf_id id = PLAN_NONE;
    ck_assert_int_eq(plan_add_buf(p, "buffer", width, &id), ERR_OK);
    return id;
}

/* Holds until the next step is added. */
static struct plan_step *step(enum plan_op op, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(op, src, dst);
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

/* A buffer with these rows [N][width]. */
static plan_buf_id input(uint32_t width, const float *rows)
{
    plan_buf_id id = buffer(width);
    plan_weight_id w = weight(N, width, rows);
    step(PLAN_EMBED, PLAN_NONE, id)->w[0] = w;
    return id;
}

static int32_t rope(struct plan_rope r)
{
    int32_t id = -1;
    ck_assert_int_eq(plan_add_rope(p, &r, &id), ERR_OK);
    return id;
}

static int32_t no_rope(void) { return rope((struct plan_rope){.mscale = 1}); }

/* --- running it -------------------------------------------------------------------------------------------------- */

/* Another rank, which has ten times what this one has. */
static enum err reduce_with_another(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride)
{
    ck_assert_ptr_null(arg);
    ck_assert_int_eq(n_rows, N);
    for (size_t i = 0; i < N * (size_t)width; i++) {
        rows[i / width * stride + i % width] *= 11;
    }
    return ERR_OK;
}

static void run(struct backend_batch *batch)
{
    static const int32_t tokens[N] = {0, 1, 2}, seq[N] = {0}, page = 0;
    const int32_t *table = &page;
    struct backend_config cfg = {
        .n_threads = 2, .n_pages = 1, .n_states = 1, .max_rows = N, .max_logits = N, .reduce = reduce_with_another};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    batch->n_rows = N;
    batch->tokens = batch->pos = tokens;
    batch->seq = seq;
    batch->n_seqs = 1;
    batch->page_tables = &table;
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(on->backend->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(backend_compute(on->backend, m, batch, &info) == ERR_OK, "%s", info.text);
    on->backend->close(&m);
    plan_free(&p);
}

static void compare(const char *what, const float *found, const float *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(fabsf(found[i] - wanted[i]) <= on->allowed * (1 + fabsf(wanted[i])),
                      "%s: %s: element %zu: wanted %g, found %g", on->backend->name, what, i, (double)wanted[i],
                      (double)found[i]);
    }
}

/* Ends the plan, runs it, and compares all rows of `out`, [N][its width]. */
static void expect(const char *what, plan_buf_id out, const float *wanted)
{
    static const int32_t rows[N] = {0, 1, 2};
    float found[N * 8];
    size_t n = N * (size_t)p->bufs[out].width;
    ck_assert_uint_le(n, ARRAY_LEN(found));
    p->n_embd = p->bufs[out].width;
    step(PLAN_HIDDEN, out, PLAN_NONE);
    run(&(struct backend_batch){.n_hidden = N, .hidden_rows = rows, .hidden = found});
    compare(what, found, wanted, n);
}

/* The same of logits of rows 0 and 2. */
static void expect_logits(const char *what, const float *wanted)
{
    static const int32_t rows[2] = {0, 2};
    float found[2 * N];
    struct backend_row_stats stats[2];
    p->n_embd = 2;
    run(&(struct backend_batch){.n_logits = 2, .logit_rows = rows, .logits = found, .stats = stats});
    compare(what, found, wanted, 2 * N);
}

/* --- operations -------------------------------------------------------------------------------------------------- */

static void embed(void)
{
    begin(1, 2);
    plan_buf_id x = buffer(2);
    plan_weight_id rows = weight(N, 2, ROWS(1, 2, 3, 4, 5, 6));
    plan_weight_id places = weight(POSITIONS, 2, ROWS(10, 20, 30, 40, 50, 60, 70, 80));
    plan_weight_id all = weight(1, 2, ROWS(100, 200));
    struct plan_step *s = step(PLAN_EMBED, PLAN_NONE, x);
    s->w[0] = rows;
    s->w[1] = places;
    s->w[2] = all;
    s->scale = 2;
    expect("scaled rows, positions and what all have", x, ROWS(112, 224, 136, 248, 160, 272));
}

static void norm(void)
{
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(3, 4, 1, -1, 0, 0)), y = input(2, ROWS(1, 1, 1, 1, 1, 1));
    plan_weight_id w = vector(2, ROWS(2, 10));
    struct plan_step *s = step(PLAN_NORM, x, y);
    s->w[0] = w;
    s->eps = 3.5f; /* 12.5 + 3.5 = 4^2 */
    expect("root mean square", y, ROWS(1.5f, 10, 0.942809042f, -4.71404521f, 0, 0));

    begin(1, 2);
    x = input(2, ROWS(3, 4, 1, -1, 0, 0)), y = input(2, ROWS(1, 2, 3, 4, 5, 6));
    w = vector(2, ROWS(2, 10));
    s = step(PLAN_NORM, x, y);
    s->w[0] = w;
    s->eps = 3.5f;
    s->adds = true;
    expect("added", y, ROWS(2.5f, 12, 3.942809042f, -0.71404521f, 5, 6));

    begin(1, 2);
    x = input(2, ROWS(3, 4, 1, -1, 0, 0)), y = buffer(2);
    w = vector(1, ROWS(2));
    s = step(PLAN_NORM, x, y);
    s->w[0] = w;
    s->eps = 7; /* 9 + 7 = 4^2 */
    expect("each group by itself", y, ROWS(1.5f, 1.66811531f, 0.707106781f, -0.707106781f, 0, 0));

    begin(1, 2);
    x = input(2, ROWS(1, 3, 5, 5, -3, -1)), y = buffer(2);
    w = vector(2, ROWS(2, 4));
    plan_weight_id bias = vector(2, ROWS(10, 20));
    s = step(PLAN_NORM, x, y);
    s->w[0] = w;
    s->bias[0] = bias;
    s->eps = 3; /* variance 1 + 3 = 2^2 */
    s->norm.centers = true;
    expect("LayerNorm", y, ROWS(9, 22, 10, 20, 9, 22));

    begin(1, 2);
    x = input(4, ROWS(1, 3, 5, 5, 5, 5, -3, -1, 0, 0, 0, 2)), y = buffer(4);
    w = vector(2, ROWS(2, 4));
    s = step(PLAN_NORM, x, y);
    s->w[0] = w;
    s->eps = 3;
    s->norm.centers = true;
    expect("each group less its own mean", y, ROWS(-1, 2, 0, 0, 0, 0, -1, 2, 0, 0, -1, 2));
}

/* w x + bias for x of two, three outputs: 21, 43, 65 and the bias in row 0. */
static struct plan_step *matmul(enum plan_op op, plan_buf_id dst)
{
    plan_buf_id x = input(2, ROWS(1, 10, 0, 1, -1, 0));
    plan_weight_id w = weight(3, 2, ROWS(1, 2, 3, 4, 5, 6)), bias = vector(3, ROWS(100, 200, -2));
    struct plan_step *s = step(op, x, dst);
    s->w[0] = w;
    s->bias[0] = bias;
    return s;
}

static void matmuls(void)
{
    begin(1, 2);
    plan_buf_id y = buffer(3);
    matmul(PLAN_MATMUL, y);
    expect("stored", y, ROWS(121, 243, 63, 102, 204, 4, 99, 197, -7));

    begin(1, 2);
    y = input(3, ROWS(1, 2, 3, 4, 5, 6, 7, 8, 9));
    struct plan_step *s = matmul(PLAN_MATMUL, y);
    s->adds = true;
    s->scale = 0.5f;
    expect("added", y, ROWS(61.5f, 123.5f, 34.5f, 55, 107, 8, 56.5f, 106.5f, 5.5f));
}

static void glu(void)
{
    begin(1, 2);
    plan_buf_id y = buffer(3);
    matmul(PLAN_GLU, y)->act = PLAN_RELU;
    expect("activated", y, ROWS(121, 243, 63, 102, 204, 4, 99, 197, 0));

    begin(1, 2);
    y = buffer(3);
    matmul(PLAN_GLU, y)->act = PLAN_RELU_SQUARED;
    expect("squared", y, ROWS(14641, 59049, 3969, 10404, 41616, 16, 9801, 38809, 0));

    begin(1, 2);
    y = buffer(3);
    plan_weight_id up = weight(3, 2, ROWS(1, 0, 0, 1, 1, 1)), bias = vector(3, ROWS(0, 0, 1));
    struct plan_step *s = matmul(PLAN_GLU, y);
    s->act = PLAN_RELU;
    s->w[1] = up;
    s->bias[1] = bias;
    expect("gated", y, ROWS(121, 2430, 756, 0, 204, 8, -99, 0, 0));

    begin(1, 2);
    y = buffer(3);
    up = weight(3, 2, ROWS(1, 0, 0, 1, 1, 1)), bias = vector(3, ROWS(0, 0, 1));
    s = matmul(PLAN_GLU, y);
    s->act = PLAN_RELU;
    s->w[1] = up;
    s->bias[1] = bias;
    s->gate_limit = 100;
    s->up_limit = 0.75f; /* of -1 and 1 too */
    expect("limited", y, ROWS(75, 75, 47.25f, 0, 75, 3, -74.25f, 0, 0));
}

static void heads_with(const char *what, struct plan_rope r, const float *wanted)
{
    begin(1, 4);
    plan_buf_id q = input(4, ROWS(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)),
                k = input(4, ROWS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    int32_t id = rope(r);
    struct plan_step *s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = s->heads.values = k;
    s->heads.rope = id;
    expect(what, q, wanted);
}

/* A pair (a, b) turned by a quarter is (-b, a). */
static void heads(void)
{
    static const float turns[2] = {QUARTER, 0};
    heads_with("neighbours turn", (struct plan_rope){.n_rot = 4, .mscale = 1, .inv_freq = turns},
               ROWS(1, 2, 3, 4, -2, 1, 3, 4, -1, -2, 3, 4));
    heads_with("halves turn", (struct plan_rope){.n_rot = 4, .is_neox = true, .mscale = 1, .inv_freq = turns},
               ROWS(1, 2, 3, 4, -3, 2, 1, 4, -1, 2, -3, 4));
    heads_with("a part turns", (struct plan_rope){.n_rot = 2, .first = 2, .mscale = 1, .inv_freq = turns},
               ROWS(1, 2, 3, 4, 1, 2, -4, 3, 1, 2, -3, -4));
    heads_with("what turns is scaled", (struct plan_rope){.n_rot = 2, .mscale = 10, .inv_freq = turns},
               ROWS(10, 20, 3, 4, -20, 10, 3, 4, -10, -20, 3, 4));
    heads_with("queries grow with the position", /* by 1 + ln(1 + p) */
               (struct plan_rope){.mscale = 1, .query_beta = 1, .query_period = 1},
               ROWS(1, 2, 3, 4, 1 + LN2, 2 + 2 * LN2, 3 + 3 * LN2, 4 + 4 * LN2, 1 + LN3, 2 + 2 * LN3, 3 + 3 * LN3,
                    4 + 4 * LN3));
    heads_with("queries grow from the second position on", /* by 1 + ln(1 + floor((p + 1) / 2)) */
               (struct plan_rope){.mscale = 1, .query_beta = 1, .query_period = 2, .query_lead = 1},
               ROWS(1, 2, 3, 4, 1 + LN2, 2 + 2 * LN2, 3 + 3 * LN2, 4 + 4 * LN2, 1 + LN2, 2 + 2 * LN2, 3 + 3 * LN2,
                    4 + 4 * LN2));
    begin(1, 4);
    plan_buf_id q = input(4, ROWS(1, 1, 5, 5, 1, 1, 5, 5, 0, 0, 0, 0));
    plan_weight_id w = vector(4, ROWS(1, 2, 3, 4));
    int32_t id = rope((struct plan_rope){.n_rot = 2, .mscale = 1, .inv_freq = turns});
    struct plan_step *s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = s->heads.values = q;
    s->heads.rope = id;
    s->heads.q_norm = w;
    s->eps = 12; /* 13 + 12 = 5^2 */
    expect("normed, then turned", q, ROWS(0.2f, 0.4f, 3, 4, -0.4f, 0.2f, 3, 4, 0, 0, 0, 0));
}

/* Of d components each head's first a matrix of its own, the last as it is. */
static void head_matmul(void)
{
    begin(2, 2);
    plan_buf_id x = input(6, ROWS(1, 2, 3, 4, 5, 6, 0, 1, 7, 1, 0, 8, 0, 0, 0, 0, 0, 0)), y = buffer(4);
    plan_weight_id w = weight(2, 2, ROWS(10, 100, 1, 2));
    step(PLAN_HEAD_MATMUL, x, y)->w[0] = w;
    expect("heads", y, ROWS(210, 3, 14, 6, 100, 7, 1, 8, 0, 0, 0, 0));
}

/* Keys 0, 1 and 2 along the first component, queries 1 along it, scores in units of ln 3: weights 1, 3 and 9. */
static struct plan_step *attend(plan_buf_id *out)
{
    plan_buf_id q = input(2, ROWS(1, 0, 1, 0, 1, 0)), k = input(2, ROWS(0, 5, 1, 0, 2, -5)),
                v = input(2, ROWS(0, 4, 8, 0, 13, 0));
    int32_t id = no_rope();
    struct plan_step *s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = k;
    s->heads.values = v;
    s->heads.rope = id;
    *out = buffer(2);
    s = step(PLAN_ATTENTION, q, *out);
    s->layer = 0;
    s->scale = LN3;
    return s;
}

static void attention(void)
{
    plan_buf_id y;
    begin(1, 2);
    attend(&y);
    expect("softmax", y, ROWS(0, 4, 6, 1, 141.0f / 13, 4.0f / 13));
    begin(1, 2);
    attend(&y)->attention.window = 1;
    expect("a window of one", y, ROWS(0, 4, 8, 0, 13, 0));
    begin(1, 2);
    attend(&y)->attention.window = 2;
    expect("a window of two", y, ROWS(0, 4, 6, 1, 11.75f, 0));
    begin(1, 2);
    struct plan_step *s = attend(&y);
    s->attention.window = 2;
    s->attention.in_chunks = true;
    expect("chunks of two", y, ROWS(0, 4, 6, 1, 13, 0));
    begin(1, 2);
    attend(&y)->attention.skips = 1;
    expect("the first position skipped", y, ROWS(0, 4, 8, 0, 11.75f, 0));
    begin(1, 2);
    s = attend(&y);
    s->scale = 2 * ATANH_05; /* of which 2 tanh(x / 2) makes 0, 1 and 1.6 */
    s->attention.softcap = 2;
    float a = expf(1), b = expf(1.6f);
    expect("soft-capped", y, ROWS(0, 4, 8 * a / (1 + a), 4 / (1 + a), (8 * a + 13 * b) / (1 + a + b), 4 / (1 + a + b)));
    begin(1, 2);
    plan_weight_id sink = vector(1, ROWS(LN3));
    attend(&y)->w[0] = sink; /* 3 more in the sum of weights */
    expect("a sink", y, ROWS(0, 1, 24.0f / 7, 4.0f / 7, 141.0f / 16, 4.0f / 16));
    begin(1, 2);
    plan_weight_id slope = vector(1, ROWS(LN3)); /* a third of the weight for each position between */
    attend(&y)->w[1] = slope;
    expect("a slope", y, ROWS(0, 4, 7.2f, 0.4f, 1125.0f / 91, 4.0f / 91));
    begin(1, 2);
    p->is_bidirectional = true;
    slope = vector(1, ROWS(LN3));
    attend(&y)->w[1] = slope;
    expect("a slope to both sides", y, ROWS(7, 4.0f / 3, 189.0f / 19, 4.0f / 19, 1125.0f / 91, 4.0f / 91));
    begin(1, 2);
    p->is_bidirectional = true;
    plan_weight_id biases = vector(3, ROWS(0, LN3, -LN3)); /* of earlier positions, its own, later ones */
    s = attend(&y);
    s->w[1] = biases;
    s->attention.reach = 1;
    expect("biases", y, ROWS(47.0f / 7, 12.0f / 7, 111.0f / 13, 4.0f / 13, 375.0f / 31, 4.0f / 31));

    begin(2, 2); /* two query heads on one of keys: the second looks the other way */
    plan_buf_id q = input(4, ROWS(1, 0, -1, 0, 1, 0, -1, 0, 0, 0, 0, 0)), kv = input(2, ROWS(0, 4, 1, 0, 0, 0));
    int32_t id = no_rope();
    s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = s->heads.values = kv;
    s->heads.rope = id;
    s->heads.norms_values = true;
    s->eps = 8; /* (0 + 16) / 2 + 8 = 4^2; 1/2 + 8 */
    y = buffer(4);
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    s->scale = LN3;
    float v = 1 / sqrtf(8.5f);
    expect("heads that share keys; normed values", y,
           ROWS(0, 1, 0, 1, 0.75f * v, 0.25f, 0.25f * v, 0.75f, v / 3, 1.0f / 3, v / 3, 1.0f / 3));

    begin(1, 3);
    p->latent_dim = 2;
    q = input(3, ROWS(1, 0, 0, 1, 0, 1, 0, 0, 0)), kv = input(3, ROWS(0, 4, 0, 1, 0, 0, 0, 0, 9));
    id = no_rope();
    s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = kv;
    s->heads.rope = id;
    y = buffer(2);
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    s->scale = LN3;
    expect("values that are the first part of keys", y, ROWS(0, 4, 0.75f, 1, 1.0f / 3, 4.0f / 3));

    begin(2, 3);
    p->value_dim = 2;
    p->n_kv_heads = 2;
    q = input(6, ROWS(1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0));
    plan_buf_id keys = input(6, ROWS(0, 4, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0));
    plan_buf_id values = input(4, ROWS(0, 4, 5, 6, 1, 0, 7, 8, 0, 0, 9, 1));
    id = no_rope();
    s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = keys;
    s->heads.values = values;
    s->heads.rope = id;
    y = buffer(4);
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    s->scale = LN3 / 4; /* row 1: weights 3 and 1; row 2: 3, 1 and 1 */
    expect("values narrower than keys", y, ROWS(0, 4, 5, 6, 0.25f, 3, 6, 7, 1.0f / 5, 12.0f / 5, 7, 5));
}

/* What QKV is made of is in the cases of heads and attention; here the three products, and where they go. */
static void qkv(void)
{
    static const float turns[1] = {QUARTER};
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(1, 0, 0, 1, 1, 1)), q = buffer(2), y = buffer(2);
    plan_weight_id wq = weight(2, 2, ROWS(1, 2, 3, 4)), wk = weight(2, 2, ROWS(0, 0, 0, 0)),
                   wv = weight(2, 2, ROWS(5, 6, 7, 8));
    plan_weight_id bias = vector(2, ROWS(10, 20));
    int32_t id = rope((struct plan_rope){.n_rot = 2, .mscale = 1, .inv_freq = turns});
    struct plan_step *s = step(PLAN_QKV, x, q);
    s->layer = 0;
    s->w[0] = wq;
    s->w[1] = wk;
    s->w[2] = wv;
    s->bias[0] = s->bias[2] = bias;
    s->heads.rope = id;
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    s = step(PLAN_SUM, q, y); /* turned queries, and the mean of values so far */
    s->adds = true;
    expect("queries and values", y, ROWS(11 + 15, 23 + 27, -24 + 15.5f, 12 + 27.5f, -13 + 52.0f / 3, -27 + 30));

    begin(1, 2);
    p->value_dim = 1;
    x = input(2, ROWS(1, 0, 0, 1, 1, 1)), q = buffer(2), y = buffer(1);
    wq = weight(2, 2, ROWS(1, 2, 3, 4)), wk = weight(2, 2, ROWS(0, 0, 0, 0)), wv = vector(2, ROWS(5, 6));
    bias = vector(1, ROWS(10));
    id = no_rope();
    s = step(PLAN_QKV, x, q);
    s->layer = 0;
    s->w[0] = wq;
    s->w[1] = wk;
    s->w[2] = wv;
    s->bias[2] = bias;
    s->heads.rope = id;
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    expect("a narrow value", y, ROWS(15, 15.5f, 52.0f / 3));
}

static void route_by(const char *what, struct plan_moe moe, const float *bias, const float *factors,
                     const float *wanted)
{
    begin(1, 2);
    p->moe = moe;
    plan_buf_id x = input(3, ROWS(0, LN2, LN3, LN3, 0, LN2, 0, 0, 0)), y = buffer(4);
    plan_weight_id b = bias != NULL ? vector(3, bias) : PLAN_NONE, f = factors != NULL ? vector(3, factors) : PLAN_NONE;
    struct plan_step *s = step(PLAN_ROUTE, x, y);
    s->w[0] = b;
    s->w[1] = f;
    expect(what, y, wanted);
}

static void route(void)
{
    struct plan_moe m = {.n_experts = 3, .n_used = 2, .n_groups = 1, .n_groups_used = 1, .weights_scale = 1};
    const float third = 1.0f / 3;
    route_by("softmax over all", m, NULL, NULL, ROWS(0.5f, third, 2, 1, 0.5f, third, 0, 2, third, third, 0, 1));
    m.norms_weights = true;
    m.weights_scale = 10;
    route_by("weights that are 10 together", m, NULL, NULL, ROWS(6, 4, 2, 1, 6, 4, 0, 2, 5, 5, 0, 1));
    m.norms_weights = false;
    m.weights_scale = 1;
    m.gating = PLAN_SOFTMAX_PICKED;
    route_by("softmax over the picked", m, NULL, NULL, ROWS(0.6f, 0.4f, 2, 1, 0.6f, 0.4f, 0, 2, 0.5f, 0.5f, 0, 1));
    m.gating = PLAN_SIGMOID; /* 1/2, 2/3, 3/4 */
    route_by("a bias picks and does not weigh; factors weigh", m, ROWS(10, 0, 0), ROWS(2, 1, 4),
             ROWS(1, 3, 0, 2, 1.5f, 8 * third, 0, 2, 1, 0.5f, 0, 1));
}

static void experts_with(const char *what, bool weighs_input, float gate_limit, float up_limit, const float *wanted)
{
    begin(1, 2);
    p->moe = (struct plan_moe){.n_experts = 2, .n_used = 1, .n_groups = 1, .n_groups_used = 1, .weights_scale = 1};
    plan_buf_id x = input(1, ROWS(1, 1, -1)), picked = input(2, ROWS(2, 1, 0.5f, 0, 1, 0)), y = buffer(1);
    plan_weight_id w[3] = {weight(2, 1, ROWS(1, 2)), weight(2, 1, ROWS(3, 4)), weight(2, 1, ROWS(5, 6))};
    struct plan_step *s = step(PLAN_EXPERTS, x, y);
    s->experts.route = picked;
    s->experts.weighs_input = weighs_input;
    s->act = PLAN_RELU;
    s->gate_limit = gate_limit;
    s->up_limit = up_limit;
    memcpy(s->w, w, sizeof w);
    expect(what, y, wanted);
}

static void experts(void)
{
    for (int stores = 0; stores < 2; stores++) {
        begin(1, 2);
        p->moe = (struct plan_moe){.n_experts = 2, .n_used = 1, .n_groups = 1, .n_groups_used = 1, .weights_scale = 1};
        plan_buf_id x = input(1, ROWS(1, 1, -1)), picked = input(2, ROWS(2, 1, 1, 0, 1, 0)),
                    y = input(1, ROWS(1, 2, 3));
        plan_weight_id w[3] = {weight(2, 1, ROWS(1, 2)), weight(2, 1, ROWS(3, 4)), weight(2, 1, ROWS(5, 6))};
        plan_weight_id bias[3] = {vector(2, ROWS(0, 1)), vector(2, ROWS(0, 0)), vector(2, ROWS(0, 10))};
        struct plan_step *s = step(PLAN_EXPERTS, x, y);
        s->experts.route = picked;
        s->act = PLAN_RELU;
        s->scale = 0.5f;
        s->adds = !stores;
        for (int i = 0; i < 3; i++) {
            s->w[i] = w[i];
            s->bias[i] = bias[i];
        }
        /* expert 1: (2 + 1) * 4 = 12, 6 * 12 + 10 = 82, twice, half of it; expert 0: 1 * 3 * 5, half of it */
        expect("experts", y, stores ? ROWS(82, 7.5f, 0) : ROWS(83, 9.5f, 3));
    }

    begin(1, 2);
    p->moe = (struct plan_moe){.n_experts = 2, .n_used = 1, .n_groups = 1, .n_groups_used = 1, .weights_scale = 1};
    plan_buf_id x = input(1, ROWS(1, 1, -1)), picked = input(2, ROWS(2, 1, 1, 0, 1, 0)), y = buffer(1);
    plan_weight_id up = weight(2, 1, ROWS(1, 2)), down = weight(2, 1, ROWS(5, 6)), bias = vector(2, ROWS(0, 1));
    struct plan_step *s = step(PLAN_EXPERTS, x, y);
    s->experts.route = picked;
    s->act = PLAN_RELU_SQUARED;
    s->w[0] = up;
    s->w[2] = down;
    s->bias[0] = bias;
    /* expert 1: (2 + 1)^2 = 9, 6 * 9, twice; expert 0: 1 * 5 */
    expect("experts without a gate", y, ROWS(108, 5, 0));
    experts_with("experts of a weighed input", true, 0, 0, ROWS(6 * (4 * 8), 5 * (0.5f * 1.5f), 0));
    experts_with("experts with limits", false, 1.5f, 2, ROWS(2 * 6 * (1.5f * 2), 0.5f * 5 * (1 * 2), 0));
}

static void gate(void)
{
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(1, 9, 0, 9, -1, 9)), y = input(2, ROWS(4, 8, 4, 8, 4, 8));
    plan_weight_id w = vector(2, ROWS(LN3, 0));
    step(PLAN_GATE, x, y)->w[0] = w;
    expect("sigmoid of ln 3, 0 and -ln 3", y, ROWS(3, 6, 2, 4, 1, 2));
}

static void multiply(void)
{
    begin(1, 2);
    plan_buf_id x = input(3, ROWS(9, 0, LN3, 9, LN3, 0, 9, -LN3, 0)), y = input(2, ROWS(4, 8, 4, 8, 4, 8));
    struct plan_step *s = step(PLAN_MULTIPLY, x, y);
    s->multiply.map = PLAN_MAP_SIGMOID;
    s->multiply.first = 1;
    s->scale = 2;
    expect("scale and sigmoid", y, ROWS(4, 12, 6, 8, 2, 8));
    begin(1, 2);
    x = input(2, ROWS(0, LN3, 3, 4, 5, 6)), y = input(2, ROWS(4, 8, 1, 1, 1, 1));
    step(PLAN_MULTIPLY, x, y)->multiply.map = PLAN_MAP_SILU; /* x * sigmoid(x) */
    expect("SiLU", y, ROWS(0, 6 * LN3, 2.85772238f, 3.92805516f, 4.96653575f, 5.98516426f));
    begin(1, 2); /* log(1 + exp(x)): of ln 3 twice ln 2 */
    x = input(2, ROWS(LN3, 0, 0, LN3, 40, 0)), y = input(4, ROWS(1, 2, 1, 4, 1, 2, 1, 4, 1, 2, 1, 4));
    s = step(PLAN_MULTIPLY, x, y);
    s->multiply.map = PLAN_MAP_SOFTPLUS;
    s->multiply.repeats = 2;
    expect("softplus of two components each", y,
           ROWS(2 * LN2, 4 * LN2, LN2, 4 * LN2, LN2, 2 * LN2, 2 * LN2, 8 * LN2, 40, 80, LN2, 4 * LN2));
    begin(1, 2);
    x = input(4, ROWS(0, 0, 0, 4, 1, 1, 1, 1, -4, 0, 0, 0)), y = input(4, ROWS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    s = step(PLAN_MULTIPLY, x, y);
    s->multiply.map = PLAN_MAP_GELU_TANH;
    s->multiply.is_sparse = true;
    s->multiply.cutoff =
        1; /* mean 1 and deviation sqrt(3): GELU(3 - sqrt(3)); mean -1: GELU(1 - sqrt(3)) is cut to 0 */
    expect("what stands out", y, ROWS(0, 0, 0, 1.13787459f, 0, 0, 0, 0, 0, 0, 0, 0));
}

static void xielu(void)
{
    begin(1, 2);
    plan_buf_id y = input(2, ROWS(2, 3, -LN2, -2 * LN2, 0, -0.25f));
    step(PLAN_XIELU, PLAN_NONE, y)->xielu.alpha_p = 3;
    p->steps[p->n_steps - 1].xielu.alpha_n = 2;
    p->steps[p->n_steps - 1].xielu.beta = 10;
    p->steps[p->n_steps - 1].xielu.eps = -LN2; /* -1/4 counts as -ln 2 in the exponential */
    expect("3 x^2 + 10 x; 2 (e^x - 1 - x) + 10 x", y, ROWS(32, 57, -1 - 8 * LN2, -1.5f - 16 * LN2, -1, -0.5f - 2.5f));
}

static void short_conv(void)
{
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(1, 2, 3, 4, 5, 6)), y = buffer(2);
    plan_weight_id w = vector(4, ROWS(10, 1, 20, 2)), bias = vector(2, ROWS(100, 200));
    struct plan_step *s = step(PLAN_SHORT_CONV, x, y);
    s->conv.taps = 2;
    s->w[0] = w;
    s->bias[0] = bias;
    expect("a row and the one before", y, ROWS(101, 204, 113, 248, 135, 292));
}

static void delta(void)
{
    begin(1, 2);
    p->delta = (struct plan_delta){.n_k_heads = 1, .n_v_heads = 1, .key_dim = 1, .value_dim = 1};
    plan_buf_id x = input(3, ROWS(3, 2, 4, -5, 1, 5, 1, -1, 2)), zeros = input(1, ROWS(0, 0, 0)), y = buffer(1);
    plan_weight_id w = vector(1, ROWS(-1)), bias = vector(1, ROWS(0));
    struct plan_step *s = step(PLAN_DELTA, x, y); /* decay exp(-ln 2), rate 1/2; q and k become signs */
    s->delta.beta = s->delta.alpha = zeros;
    s->w[0] = w;
    s->bias[0] = bias;
    s->eps = 1e-12f;
    expect("states 2, 3 and -1/4", y, ROWS(2, -3, -0.25f));
    begin(1, 2);
    p->delta = (struct plan_delta){.n_k_heads = 1, .n_v_heads = 1, .key_dim = 2, .value_dim = 1, .decays_keys = true};
    plan_buf_id q = input(2, ROWS(1e6f, 0, 0, 1e6f, 0, 1e6f)), k = input(2, ROWS(0, 1e6f, 0, 1e6f, 1e6f, 0));
    plan_buf_id v = input(1, ROWS(4, 4, 9)), alphas = input(2, ROWS(0, 0, 0, LN2, 0, 0));
    plan_buf_id none = input(1, ROWS(0, 0, 0)), out = buffer(1);
    plan_weight_id a = vector(1, ROWS(-1)), zero = vector(2, ROWS(0, 0));
    s = step(PLAN_DELTA, q, out); /* the second row of the state decays to 1/2, by alpha = ln 2 to 1/3 */
    s->delta.beta = none;
    s->delta.alpha = alphas;
    s->delta.keys = k;
    s->delta.values = v;
    s->w[0] = a;
    s->bias[0] = zero;
    s->eps = 1e-12f;
    float root = sqrtf(0.5f);
    expect("states (0, 2), (0, 7/3) and (9/2, 7/6)", out, ROWS(0, 7.0f / 3 * root, 7.0f / 6 * root));
}

static void ssm(void)
{
    begin(1, 2);
    p->ssm = (struct plan_ssm){.n_heads = 1, .n_groups = 1, .head_dim = 1, .state_dim = 1};
    plan_buf_id x = input(3, ROWS(1, 1, 1, 2, 1, 2, 0, 1, 1)), zeros = input(1, ROWS(0, 0, 0)), y = buffer(1);
    plan_weight_id w = vector(1, ROWS(-1)), skip = vector(1, ROWS(10)), bias = vector(1, ROWS(0));
    struct plan_step *s = step(PLAN_SSM, x, y); /* dt = ln 2, decay 1/2 */
    s->ssm.dt = zeros;
    s->w[0] = w;
    s->w[1] = skip;
    s->bias[0] = bias;
    expect("states ln 2 times 1, 2.5 and 1.25", y, ROWS(LN2 + 10, 5 * LN2 + 20, 1.25f * LN2));
}

static void scan(void)
{
    begin(1, 2);
    p->ssm = (struct plan_ssm){.n_heads = 1, .n_groups = 1, .head_dim = 2, .state_dim = 1};
    plan_buf_id x = input(2, ROWS(1, 1, 2, 2, 0, 1)), zeros = input(2, ROWS(0, 0, 0, 0, 0, 0));
    plan_buf_id ones = input(1, ROWS(1, 1, 1)), c = input(1, ROWS(1, 2, 4)), y = buffer(2);
    plan_weight_id w = vector(2, ROWS(-1, -2)), skip = vector(2, ROWS(10, 100)), bias = vector(2, ROWS(0, 0));
    struct plan_step *s = step(PLAN_SCAN, x, y); /* dt = ln 2, decays 1/2 and 1/4 */
    s->scan.dt = zeros;
    s->scan.b = ones;
    s->scan.c = c;
    s->w[0] = w;
    s->w[1] = skip;
    s->bias[0] = bias;
    expect("states ln 2 times 1, 2.5, 1.25 and 1, 2.25, 1.5625", y,
           ROWS(LN2 + 10, LN2 + 100, 5 * LN2 + 20, 4.5f * LN2 + 200, 5 * LN2, 6.25f * LN2 + 100));
}

static void sum(void)
{
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(2, 4, 1, 1, 0, 0)), y = input(2, ROWS(6, 8, 1, 2, 3, 4));
    plan_weight_id w = vector(2, ROWS(10, 1));
    struct plan_step *s = step(PLAN_SUM, x, y);
    s->w[0] = w;
    s->scale = 0.5f;
    s->adds = true;
    expect("weighted and added", y, ROWS(13, 6, 5.5f, 1.5f, 1.5f, 2));
    begin(1, 2);
    x = input(2, ROWS(3, 4, 0, 1, 0, 0)), y = buffer(2);
    plan_buf_id level = input(2, ROWS(10, 0, 1, 1, 1, 1));
    s = step(PLAN_SUM, x, y);
    s->sum.level = level;
    s->eps = 2; /* the least mean square that is told from 0: row 1 has 1/2 */
    expect("brought to a magnitude", y, ROWS(6, 8, 0, 0.707106781f, 0, 0));
}

static void predict(void)
{
    begin(1, 2);
    plan_buf_id x = input(1, ROWS(10, 10, 10)), logits = PLAN_NONE;
    plan_buf_id other = input(1, ROWS(100, 100, 100));
    logits = input(2, ROWS(ATANH_05, 0, 0, 0, -ATANH_05, 0));
    ck_assert_int_eq(other, x + 1);
    plan_weight_id w = vector(8, ROWS(2, 9, 4, 9, 6, 9, 8, 9)); /* coefficients 1 2, 3 4 */
    struct plan_step *s = step(PLAN_PREDICT, logits, x);
    s->w[0] = w;
    s->streams.n = 2;
    plan_buf_id y = buffer(1);
    s = step(PLAN_SUM, x, y);
    s = step(PLAN_SUM, other, y);
    s->adds = true;
    s->scale = 0.5f;
    expect("(220 + 530) / 2, as they were, (-200 - 330) / 2", y, ROWS(375, 55, -265));
}

static void correct(void)
{
    begin(1, 2);
    plan_buf_id x = input(1, ROWS(10, 10, 10)), other = input(1, ROWS(100, 100, 100));
    plan_buf_id made = input(1, ROWS(150, 150, 100)), logits = input(2, ROWS(ATANH_05, 0, 0, 0, 0, 0));
    ck_assert_int_eq(other, x + 1);
    plan_weight_id w = vector(4, ROWS(2, 9, 4, 9)); /* coefficients 1, 2 */
    struct plan_step *s = step(PLAN_CORRECT, made, x);
    s->w[0] = w;
    s->streams.routes = logits;
    s->streams.n = 2;
    s->streams.first = 1;
    plan_buf_id y = buffer(1);
    s = step(PLAN_SUM, x, y);
    s = step(PLAN_SUM, other, y);
    s->adds = true;
    expect("10 + 2 * 50, 100 + 3 * 50; both + 50; both as they were", y, ROWS(360, 210, 110));
}

static void reduce(void)
{
    begin(1, 2);
    plan_buf_id x = input(2, ROWS(1, 2, 3, 4, 5, 6)), y = input(2, ROWS(100, 200, 300, 400, 500, 600));
    struct plan_step *s = step(PLAN_REDUCE, x, y);
    s->adds = true;
    s->scale = 2;
    step(PLAN_REDUCE, PLAN_NONE, y)->adds = true; /* nothing */
    expect("y + 2 * 11 x", y, ROWS(122, 244, 366, 488, 610, 732));
    begin(1, 2);
    x = input(2, ROWS(1, 2, 3, 4, 5, 6));
    y = input(2, ROWS(9, 9, 9, 9, 9, 9));
    step(PLAN_REDUCE, x, y)->scale = -1;
    expect("-11 x", y, ROWS(-11, -22, -33, -44, -55, -66));
}

static void hidden(void)
{
    static const int32_t row = 1;
    float found[2];
    begin(1, 2);
    p->n_embd = 2;
    plan_buf_id x = input(2, ROWS(9, 9, 3, 4, 9, 9));
    plan_weight_id w = vector(2, ROWS(2, 10));
    struct plan_step *s = step(PLAN_HIDDEN, x, PLAN_NONE);
    s->w[0] = w;
    s->eps = 3.5f;
    run(&(struct backend_batch){.n_hidden = 1, .hidden_rows = &row, .hidden = found});
    compare("a normed row", found, ROWS(1.5f, 10), 2);
}

static void gather_and_logits(void)
{
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        begin(1, 2);
        plan_buf_id x = input(2, ROWS(ATANH_05, 1, 7, 7, 0, -ATANH_05)), last = buffer(2);
        step(PLAN_GATHER, x, last);
        plan_weight_id w = weight(N, 2, ROWS(1, 0, 0, 1, 0, 0)), bias = vector(N, ROWS(0, 0, ATANH_05));
        struct plan_step *s = step(PLAN_LOGITS, last, PLAN_NONE);
        s->w[0] = w;
        s->bias[0] = has_bias ? bias : PLAN_NONE;
        s->scale = 10;
        s->logits.softcap = 10; /* 10 tanh(x + bias) */
        float third = has_bias ? 5 : 0;
        expect_logits("rows 0 and 2", ROWS(5, 7.61594156f, third, 0, -5, third));
    }
}

static void input_and_output(void)
{
    float found[N * 4];
    begin(1, 2);
    p->n_embd = 2;
    p->input_width = 3;
    p->output_width = 4;
    plan_buf_id x = buffer(2), y = buffer(1);
    step(PLAN_INPUT, PLAN_NONE, x)->edge.first = 1;
    step(PLAN_INPUT, PLAN_NONE, y);
    plan_weight_id w = weight(1, 2, ROWS(10, 1));
    struct plan_step *s = step(PLAN_MATMUL, x, y);
    s->w[0] = w;
    s->adds = true;
    step(PLAN_OUTPUT, x, PLAN_NONE)->edge.first = 2;
    step(PLAN_OUTPUT, y, PLAN_NONE);
    memset(found, 0, sizeof found);
    run(&(struct backend_batch){.input = ROWS(1, 2, 3, 4, 5, 6, 7, 8, 9), .output = found});
    compare("y + 10 a + b, nothing, a, b", found, ROWS(24, 0, 2, 3, 60, 0, 5, 6, 96, 0, 8, 9), N * 4);
}

static void attention_to_chosen(void)
{
    begin(1, 2);
    p->latent_dim = 2;
    plan_buf_id q = input(2, ROWS(0, 0, 0, 0, 1, 0)), kv = input(2, ROWS(1, 0, 0, 9, 0, 1));
    plan_buf_id chosen = input(2, ROWS(0, -1, 0, 1, 0, 2));
    int32_t id = no_rope();
    struct plan_step *s = step(PLAN_HEADS, q, q);
    s->layer = 0;
    s->heads.keys = kv;
    s->heads.rope = id;
    plan_buf_id y = buffer(2);
    s = step(PLAN_ATTENTION, q, y);
    s->layer = 0;
    s->scale = LN3;
    s->attention.chosen = chosen;
    expect("chosen positions", y, ROWS(1, 0, 0.5f, 4.5f, 0.75f, 0.25f));
}

static void index_heads(void)
{
    static const float turns[1] = {QUARTER};
    begin(1, 2);
    p->latent_dim = 2;
    p->index_dim = 8;
    plan_buf_id q = input(8, ROWS(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8));
    plan_buf_id keys = input(8, ROWS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    int32_t id = rope((struct plan_rope){.n_rot = 2, .first = 1, .mscale = 1, .inv_freq = turns});
    struct plan_step *s = step(PLAN_INDEX, q, q);
    s->layer = 0;
    s->heads.keys = keys;
    s->heads.rope = id;
    expect("turned queries", q, ROWS(1, 2, 3, 4, 5, 6, 7, 8, 1, -3, 2, 4, 5, 6, 7, 8, 1, -2, -3, 4, 5, 6, 7, 8));
}

/* Adds two index heads, of which the first sees turned keys, and returns the two positions that each row chooses. */
static plan_buf_id choose_two(const float *weights)
{
    static const float turns[1] = {QUARTER};
    begin(1, 2);
    p->latent_dim = 2;
    p->index_dim = 8;
    plan_buf_id q = input(16, ROWS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* row 0 */
                                   0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* row 1 */
                                   1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
    plan_buf_id keys = input(8, ROWS(1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3));
    plan_buf_id factors = input(2, weights), chosen = buffer(2);
    int32_t id = rope((struct plan_rope){.n_rot = 2, .mscale = 1, .inv_freq = turns});
    struct plan_step *s = step(PLAN_INDEX, q, q);
    s->layer = 0;
    s->heads.keys = keys;
    s->heads.rope = id;
    s = step(PLAN_CHOOSE, q, chosen);
    s->layer = 0;
    s->choose.weights = factors;
    return chosen;
}

static void choose(void)
{
    /* Row 2: products -1, 0 and 1 with the first head, of which those below 0 count as 0; 1, 2 and 3 with the second. */
    plan_buf_id chosen = choose_two(ROWS(0, 0, 0, 0, 4, -1));
    expect("scores -1, -2 and 1", chosen, ROWS(0, -1, 0, 1, 0, 2));
    chosen = choose_two(ROWS(0, 0, 0, 0, 0, 1));
    expect("scores 1, 2 and 3", chosen, ROWS(0, -1, 0, 1, 1, 2));
    chosen = choose_two(ROWS(0, 0, 0, 0, 0, -0.0f));
    expect("equal scores", chosen, ROWS(0, -1, 0, 1, 0, 1));
    attention_to_chosen();
}

/* One row an operation; an operation without a case fails below. */
static void (*const cases[PLAN_OP_COUNT])(void) = {
    [PLAN_EMBED] = embed,
    [PLAN_NORM] = norm,
    [PLAN_MATMUL] = matmuls,
    [PLAN_GLU] = glu,
    [PLAN_QKV] = qkv,
    [PLAN_HEADS] = heads,
    [PLAN_INDEX] = index_heads,
    [PLAN_CHOOSE] = choose,
    [PLAN_HEAD_MATMUL] = head_matmul,
    [PLAN_ATTENTION] = attention,
    [PLAN_ROUTE] = route,
    [PLAN_EXPERTS] = experts,
    [PLAN_GATE] = gate,
    [PLAN_MULTIPLY] = multiply,
    [PLAN_XIELU] = xielu,
    [PLAN_SHORT_CONV] = short_conv,
    [PLAN_DELTA] = delta,
    [PLAN_SSM] = ssm,
    [PLAN_SCAN] = scan,
    [PLAN_SUM] = sum,
    [PLAN_PREDICT] = predict,
    [PLAN_CORRECT] = correct,
    [PLAN_REDUCE] = reduce,
    [PLAN_HIDDEN] = hidden,
    [PLAN_GATHER] = gather_and_logits,
    [PLAN_LOGITS] = gather_and_logits,
    [PLAN_INPUT] = input_and_output,
    [PLAN_OUTPUT] = input_and_output,
};

START_TEST(an_operation_gives_what_a_hand_works_out)
{
    enum plan_op op = (enum plan_op)(_i / (int)ARRAY_LEN(subjects));
    on = &subjects[_i % (int)ARRAY_LEN(subjects)];
    ck_assert_msg(cases[op] != NULL, "no case for %s", plan_op_name(op));
    cases[op]();
}
END_TEST

Suite *backend_ref_ops_suite(void)
{
    Suite *s = suite_create("backend_ref_ops");
    TCase *c = tcase_create("backend_ref_ops");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, an_operation_gives_what_a_hand_works_out, 0, PLAN_OP_COUNT * (int)ARRAY_LEN(subjects));
    suite_add_tcase(s, c);
    return s;
}
