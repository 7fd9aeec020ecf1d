/* The reference back end: the plan run by the plainest code there is, on weights dequantised row by row, with
 * activations in f32, sums in double and keys and values in f32. It is the truth the fast back ends are held against,
 * and slow.
 *
 * Work is split over the pool's threads by output rows or by token rows; sums never depend on the split. Over 600
 * lines, as the truth is easier to read in one place. */
#include "engine/backend/backend.h"

#include "engine/backend/moe_route.h"
#include "engine/backend/ref/ref_recurrent.h"
#include "engine/backend/ref/ref_streams.h"
#include "engine/backend/rope_angles.h"
#include "engine/base/ck.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/kernels/quant.h"

#include <math.h>
#include <string.h>

/* What a layer reads: [page][slot][2][K*d] from `at` on, keys, then values, of a position; of latents [page][slot][d].
 */
struct ref_kv {
    struct plan_kv heads;
    size_t at, slot_floats;
};

struct backend_model {
    const struct plan *plan;
    struct pool *pool;
    struct backend_config cfg;
    struct ref_kv *kvs; /* [L] */
    float *kv;
    size_t kv_bytes;
    float *recurrent; /* [slot][plan->recurrent_floats]; NULL without */
    size_t recurrent_bytes;
    float *bufs[PLAN_MAX_BUFS]; /* [max_rows][width] */
    float *scratch;             /* [thread][widest input] dequantised row, then [thread][scratch of attention] */
    size_t scratch_floats;      /* of one thread */
    size_t widest;              /* of all buffers and weight rows */
};

/* One call of forward, as all threads see it. */
struct run {
    struct backend_model *m;
    const struct backend_batch *batch;
    const struct plan_step *step;
};

/* Rows a step works on: S from the gather on, T before; E for the states. */
static int32_t rows_at(const struct run *r)
{
    if (r->step->op == PLAN_STATES) {
        return r->batch->n_states;
    }
    for (const struct plan_step *s = r->m->plan->steps; s <= r->step; s++) {
        if (s->op == PLAN_GATHER) {
            return r->batch->n_logits;
        }
    }
    return r->batch->n_rows;
}

static float *row_of(const struct run *r, plan_buf_id id, int32_t row)
{
    return r->m->bufs[id] + (size_t)row * r->m->plan->bufs[id].width;
}

static const float *vector_of(const struct run *r, plan_weight_id id)
{
    return id == PLAN_NONE ? NULL : r->m->plan->weights[id].data; /* checked to be F32 by the plan */
}

static void dequantize_row(const struct plan_weight *w, uint32_t row, float *out)
{
    if (w->source != NULL) {
        w->source->ops->read(w->source, w->source_row + row, 0, w->n_in, out);
        return;
    }
    quant_ops(w->type)->dequantize(plan_weight_row(w, row), w->n_in, out);
}

static float dot(const float *a, const float *b, uint32_t n)
{
    double sum[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        sum[i % 4] += (double)a[i] * b[i];
    }
    return (float)((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void rmsnorm(const float *x, const float *w, float eps, uint32_t n, float *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    double scale = 1.0 / sqrt(sum / n + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (float)(x[i] * scale * (w == NULL ? 1.0 : (double)w[i]));
    }
}

/* [Ba 2016]; w and bias may be NULL. */
static void layer_norm(const float *x, const float *w, const float *bias, float eps, uint32_t n, float *out)
{
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean += (double)x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    double scale = 1.0 / sqrt(squares / n + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        out[i] =
            (float)((x[i] - mean) * scale * (w == NULL ? 1.0 : (double)w[i]) + (bias == NULL ? 0.0 : (double)bias[i]));
    }
}

/* Heads of the current step's layer. */
static const struct plan_kv *heads_of(const struct run *r) { return &r->m->kvs[r->step->layer].heads; }

/* Keys and values that the current step's layer has of a position. */
static float *kv_at(const struct run *r, int32_t seq, int32_t pos)
{
    const struct ref_kv *kv = &r->m->kvs[r->step->layer];
    int32_t page = r->batch->page_tables[seq][pos / BACKEND_PAGE_TOKENS];
    size_t slot = (size_t)page * BACKEND_PAGE_TOKENS + (size_t)(pos % BACKEND_PAGE_TOKENS);
    return r->m->kv + kv->at + slot * kv->slot_floats;
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

/* out += row `row` of weight `id`, if there is one. */
static void add_row(const struct run *r, plan_weight_id id, int32_t row, float *scratch, float *out)
{
    if (id == PLAN_NONE) {
        return;
    }
    const struct plan_weight *w = &r->m->plan->weights[id];
    dequantize_row(w, (uint32_t)row, scratch);
    for (uint32_t k = 0; k < w->n_in; k++) {
        out[k] += scratch[k];
    }
}

static void run_embed(const struct run *r, int from, int to, float *scratch)
{
    const struct plan_weight *w = &r->m->plan->weights[r->step->w[0]];
    for (int i = from; i < to; i++) {
        float *out = row_of(r, r->step->dst, i);
        dequantize_row(w, (uint32_t)r->batch->tokens[i], out);
        for (uint32_t k = 0; k < w->n_in; k++) {
            out[k] *= r->step->scale;
        }
        add_row(r, r->step->w[1], r->batch->pos[i], scratch, out);
        add_row(r, r->step->w[2], 0, scratch, out);
    }
}

/* What a norm step makes of a row; out may be x. */
static void norm_row(const struct run *r, const float *x, float *out)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    if (s->centers) {
        layer_norm(x, vector_of(r, s->w[0]), vector_of(r, s->bias[0]), s->eps, width, out);
        return;
    }
    uint32_t group = r->m->plan->weights[s->w[0]].n_in;
    for (uint32_t at = 0; at < width; at += group) {
        rmsnorm(x + at, vector_of(r, s->w[0]), s->eps, group, out + at);
    }
}

static void run_norm(const struct run *r, int from, int to, float *scratch)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    for (int i = from; i < to; i++) {
        float *dst = row_of(r, s->dst, i);
        norm_row(r, row_of(r, s->src, i), s->adds ? scratch : dst);
        for (uint32_t k = 0; s->adds && k < width; k++) {
            dst[k] += scratch[k];
        }
    }
}

static void run_states(const struct run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    for (int i = from; i < to; i++) {
        const float *x = row_of(r, s->src, r->batch->state_rows[i]);
        float *out = r->batch->states + (size_t)i * width;
        if (s->w[0] == PLAN_NONE) {
            memcpy(out, x, width * sizeof *out);
        } else {
            norm_row(r, x, out);
        }
    }
}

static float activate(enum plan_act act, float x)
{
    double v = x;
    switch (act) {
    case PLAN_SILU:
        return (float)(v / (1.0 + exp(-v)));
    case PLAN_GELU_TANH: /* 0.7978845608 = sqrt(2/pi) [Hendrycks & Gimpel 2016] */
        return (float)(0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))));
    case PLAN_GELU:
        return (float)(0.5 * v * (1.0 + erf(v * 0.7071067811865476)));
    case PLAN_RELU:
        return x > 0 ? x : 0;
    case PLAN_CLAMPED: /* gpt-oss */
        v = v > 7 ? 7 : v;
        return (float)(v / (1.0 + exp(-1.702 * v)));
    }
    return x;
}

static float glu(enum plan_act act, float gate, float up)
{
    return activate(act, gate) * (act != PLAN_CLAMPED ? up : up > 7 ? 8 : up < -7 ? -6 : up + 1);
}

/* Puts output element n of token row i where the step's epilogue wants it. */
static void store(const struct run *r, int32_t i, uint32_t n, float y)
{
    const struct plan_step *s = r->step;
    switch (s->epilogue) {
    case PLAN_ADD:
        row_of(r, s->dst, i)[n] += s->scale * y;
        break;
    case PLAN_LOGITS:
        y *= s->scale;
        r->batch->logits[(size_t)i * r->m->plan->n_vocab + n] =
            s->softcap != 0 ? s->softcap * tanhf(y / s->softcap) : y;
        break;
    default:
        row_of(r, s->dst, i)[n] = y;
        break;
    }
}

/* Output rows [from, to) of any matmul but QKV, for all token rows. */
static void run_matmul(const struct run *r, int from, int to, float *scratch)
{
    const struct plan_step *s = r->step;
    const struct plan_weight *w0 = &r->m->plan->weights[s->w[0]];
    const float *bias0 = vector_of(r, s->bias[0]);
    const float *bias1 = vector_of(r, s->bias[1]);
    int32_t n_rows = rows_at(r);
    float *row0 = scratch, *row1 = scratch + w0->n_in;
    for (uint32_t n = (uint32_t)from; n < (uint32_t)to; n++) {
        dequantize_row(w0, n, row0);
        if (s->epilogue == PLAN_GLU) {
            dequantize_row(&r->m->plan->weights[s->w[1]], n, row1);
        }
        for (int32_t i = 0; i < n_rows; i++) {
            const float *x = row_of(r, s->src, i);
            float y = dot(x, row0, w0->n_in) + (bias0 != NULL ? bias0[n] : 0);
            if (s->epilogue == PLAN_GLU) {
                y = glu(s->act, y, dot(x, row1, w0->n_in) + (bias1 != NULL ? bias1[n] : 0));
            }
            store(r, i, n, s->epilogue == PLAN_ACT ? activate(s->act, y) : y);
        }
    }
}

/* Norm and RoPE of one head vector, in place. */
static void finish_head(const struct run *r, float *head, plan_weight_id norm, int32_t pos)
{
    const struct plan_rope *rope = &r->m->plan->ropes[r->step->rope];
    uint32_t half = rope->n_rot / 2;
    if (norm != PLAN_NONE) {
        rmsnorm(head, vector_of(r, norm), r->step->eps, r->m->plan->weights[norm].n_in, head);
    }
    head += rope->first;
    float cos_row[PLAN_MAX_HEAD / 2], sin_row[PLAN_MAX_HEAD / 2];
    rope_angles(rope, pos, cos_row, sin_row);
    for (uint32_t i = 0; i < half; i++) {
        float *a = head + (rope->is_neox ? i : 2 * i);
        float *b = head + (rope->is_neox ? i + half : 2 * i + 1);
        float a0 = *a, b0 = *b;
        *a = a0 * cos_row[i] - b0 * sin_row[i];
        *b = a0 * sin_row[i] + b0 * cos_row[i];
    }
}

/* A value as it is stored. */
static void finish_value(const struct run *r, float *head)
{
    if (r->step->norms_values) {
        rmsnorm(head, NULL, r->step->eps, heads_of(r)->head_dim, head);
    }
}

static void finish_query(const struct run *r, float *head, int32_t pos)
{
    finish_head(r, head, r->step->q_norm, pos);
    float scale = rope_query_scale(&r->m->plan->ropes[r->step->rope], pos);
    for (uint32_t j = 0; j < heads_of(r)->head_dim; j++) {
        head[j] *= scale;
    }
}

/* Where head h of queries (part 0), keys (1) or values (2) of token row i goes. */
static float *head_at(const struct run *r, int part, int32_t i, uint32_t h)
{
    const struct plan_kv *kv = heads_of(r);
    if (part == 0) {
        return row_of(r, r->step->dst, i) + (size_t)h * kv->head_dim;
    }
    return kv_at(r, r->batch->seq[i], r->batch->pos[i]) + (size_t)((part == 2 ? kv->n_kv_heads : 0) + h) * kv->head_dim;
}

static void finish_part(const struct run *r, int part, int32_t i, float *head)
{
    if (part == 0) {
        finish_query(r, head, r->batch->pos[i]);
    } else if (part == 1) {
        finish_head(r, head, r->step->k_norm, r->batch->pos[i]);
    } else {
        finish_value(r, head);
    }
}

/* Q, K or V, of which `head` of Q (0 .. H-1), K (H .. H+K-1) and V is *h. */
static int part_of(const struct run *r, uint32_t head, uint32_t *h)
{
    uint32_t n_heads = r->m->plan->n_heads, n_kv_heads = heads_of(r)->n_kv_heads;
    *h = head < n_heads ? head : (head - n_heads) % n_kv_heads;
    return head < n_heads ? 0 : head < n_heads + n_kv_heads ? 1 : 2;
}

/* Heads [from, to) of Q, K and V for all token rows. */
static void run_qkv(const struct run *r, int from, int to, float *scratch)
{
    const struct plan_step *s = r->step;
    uint32_t d = heads_of(r)->head_dim, h;
    for (uint32_t head = (uint32_t)from; head < (uint32_t)to; head++) {
        int part = part_of(r, head, &h);
        const struct plan_weight *w = &r->m->plan->weights[s->w[part]];
        const float *bias = vector_of(r, s->bias[part]);
        for (uint32_t n = 0; n < d; n++) {
            dequantize_row(w, h * d + n, scratch);
            for (int32_t i = 0; i < r->batch->n_rows; i++) {
                float y = dot(row_of(r, s->src, i), scratch, w->n_in) + (bias != NULL ? bias[h * d + n] : 0);
                head_at(r, part, i, h)[n] = y;
            }
        }
        for (int32_t i = 0; i < r->batch->n_rows; i++) {
            finish_part(r, part, i, head_at(r, part, i, h));
        }
    }
}

/* Head `head` of row i, as in run_qkv, from where it is to where it belongs. */
static void store_head(const struct run *r, int32_t i, uint32_t head)
{
    const struct plan_step *s = r->step;
    uint32_t d = heads_of(r)->head_dim, h;
    int part = part_of(r, head, &h);
    plan_buf_id from = part == 0 ? s->src : part == 1 ? s->keys : s->values;
    if (from != PLAN_NONE) {
        float *to = head_at(r, part, i, h);
        memmove(to, row_of(r, from, i) + (size_t)h * d, d * sizeof *to); /* queries lie there already */
        finish_part(r, part, i, to);
    }
}

/* Heads that a step makes: of queries and, unless it reads another layer's, of keys and values. */
static uint32_t n_heads_of(const struct run *r)
{
    const struct plan_step *s = r->step;
    bool stores = s->op == PLAN_HEADS ? s->keys != PLAN_NONE : s->w[1] != PLAN_NONE;
    return r->m->plan->n_heads + (stores ? 2 * heads_of(r)->n_kv_heads : 0);
}

/* The last position that row i sees: its own, or the last of its sequence. */
static int32_t last_visible(const struct run *r, int32_t i)
{
    const struct backend_batch *b = r->batch;
    while (r->m->plan->is_bidirectional && i + 1 < b->n_rows && b->seq[i + 1] == b->seq[i]) {
        i++;
    }
    return b->pos[i];
}

/* One head of one row: softmax over the visible positions. Two passes, so that no score is kept. */
static void attend(const struct run *r, int32_t i, uint32_t h)
{
    const struct plan_step *s = r->step;
    const struct plan_kv *heads = heads_of(r);
    uint32_t d = heads->head_dim, d_value = plan_kv_value_dim(heads);
    uint32_t kv_head = h / (r->m->plan->n_heads / heads->n_kv_heads);
    const float *q = row_of(r, s->src, i) + h * d;
    int32_t pos = last_visible(r, i);
    int32_t first = s->window > 0 && pos - s->window + 1 > 0 ? pos - s->window + 1 : 0;
    double max = -INFINITY, sum = 0, acc[PLAN_MAX_HEAD] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t t = first; t <= pos; t++) {
            const float *kv = kv_at(r, r->batch->seq[i], t);
            double score = 0;
            for (uint32_t j = 0; j < d; j++) {
                score += (double)q[j] * kv[kv_head * d + j];
            }
            score *= s->scale;
            score = s->softcap != 0 ? s->softcap * tanh(score / s->softcap) : score;
            if (pass == 0) {
                max = score > max ? score : max;
                continue;
            }
            double weight = exp(score - max);
            sum += weight;
            const float *v = heads->latent_dim != 0 ? kv : kv + (heads->n_kv_heads + kv_head) * d;
            for (uint32_t j = 0; j < d_value; j++) {
                acc[j] += weight * v[j];
            }
        }
    }
    const float *sinks = vector_of(r, s->w[0]);
    sum += sinks != NULL ? exp(sinks[h] - max) : 0;
    float *out = row_of(r, s->dst, i) + h * d_value;
    for (uint32_t j = 0; j < d_value; j++) {
        out[j] = (float)(acc[j] / sum);
    }
}

/* The matrix of head h as rows [n_out][n_in]. */
static void dequantize_head(const struct plan_weight *w, uint32_t h, uint32_t n_out, float *scratch, float *out)
{
    if (!w->is_transposed) {
        for (uint32_t n = 0; n < n_out; n++) {
            dequantize_row(w, h * n_out + n, out + (size_t)n * w->n_in);
        }
        return;
    }
    const unsigned char *piece = plan_weight_row(w, h * n_out);
    for (uint32_t k = 0; k < w->n_in; k++) {
        quant_ops(w->type)->dequantize(piece + k * w->row_bytes, n_out, scratch);
        for (uint32_t n = 0; n < n_out; n++) {
            out[(size_t)n * w->n_in + k] = scratch[n];
        }
    }
}

/* Head h of all token rows. scratch: a row, then a head's matrix. */
static void run_head_matmul(const struct run *r, uint32_t h, float *scratch)
{
    const struct plan *p = r->m->plan;
    const struct plan_step *s = r->step;
    const struct plan_weight *w = &p->weights[s->w[0]];
    uint32_t in = p->bufs[s->src].width / p->n_heads, out = p->bufs[s->dst].width / p->n_heads;
    uint32_t n_out = w->n_out / p->n_heads;
    float *matrix = scratch + r->m->widest;
    dequantize_head(w, h, n_out, scratch, matrix);
    for (int32_t i = 0; i < rows_at(r); i++) {
        const float *x = row_of(r, s->src, i) + h * in;
        float *y = row_of(r, s->dst, i) + h * out;
        for (uint32_t n = 0; n < n_out; n++) {
            y[n] = dot(x, matrix + (size_t)n * w->n_in, w->n_in);
        }
        memcpy(y + n_out, x + w->n_in, (in - w->n_in) * sizeof *y);
    }
}

/* --- experts ---------------------------------------------------------------------------------------------------- */

/* out[n] = x . row `first + n` of w, plus its bias. */
static void multiply_rows(const struct run *r, plan_weight_id id, plan_weight_id bias_id, uint32_t first,
                          uint32_t n_out, const float *x, float *scratch, float *out)
{
    const struct plan_weight *w = &r->m->plan->weights[id];
    const float *bias = vector_of(r, bias_id);
    for (uint32_t n = 0; n < n_out; n++) {
        dequantize_row(w, first + n, scratch);
        out[n] = dot(x, scratch, w->n_in) + (bias != NULL ? bias[first + n] : 0);
    }
}

/* All experts of one row, in ascending order of their ids. scratch: three rows and a weight row. */
static void run_experts(const struct run *r, int32_t i, float *scratch)
{
    const struct plan *p = r->m->plan;
    const struct plan_step *s = r->step;
    uint32_t k = p->moe.n_used, width = p->bufs[s->dst].width, ff = p->weights[s->w[2]].n_in;
    float *gate = scratch + r->m->widest, *up = gate + r->m->widest, *y = up + r->m->widest;
    const float *route = row_of(r, s->route, i), *x = row_of(r, s->src, i);
    if (s->stores) {
        memset(row_of(r, s->dst, i), 0, width * sizeof(float));
    }
    for (uint32_t e = 0; e < p->moe.n_experts; e++) {
        for (uint32_t slot = 0; slot < k; slot++) {
            if (route[k + slot] != (float)e) {
                continue;
            }
            multiply_rows(r, s->w[0], s->bias[0], e * ff, ff, x, scratch, gate);
            multiply_rows(r, s->w[1], s->bias[1], e * ff, ff, x, scratch, up);
            for (uint32_t n = 0; n < ff; n++) {
                gate[n] = glu(s->act, gate[n], up[n]);
            }
            multiply_rows(r, s->w[2], s->bias[2], e * width, width, gate, scratch, y);
            for (uint32_t n = 0; n < width; n++) {
                row_of(r, s->dst, i)[n] += s->scale * route[slot] * y[n];
            }
        }
    }
}

/* dst *= sigmoid(src . w[0]). */
static void run_gate(const struct run *r, int32_t i, float *scratch)
{
    const struct plan_step *s = r->step;
    const struct plan_weight *w = &r->m->plan->weights[s->w[0]];
    dequantize_row(w, 0, scratch);
    double factor = 1.0 / (1.0 + exp(-(double)dot(row_of(r, s->src, i), scratch, w->n_in)));
    for (uint32_t n = 0; n < r->m->plan->bufs[s->dst].width; n++) {
        row_of(r, s->dst, i)[n] = (float)(row_of(r, s->dst, i)[n] * factor);
    }
}

/* --- recurrent layers ------------------------------------------------------------------------------------------- */

static float map(enum plan_map how, double v)
{
    return (float)(how == PLAN_MAP_NONE ? v : (how == PLAN_MAP_SILU ? v : 1.0) / (1.0 + exp(-v)));
}

/* x *= what GELU makes of by, or of what is above its cutoff. */
static void run_gelu_gate(const struct plan_step *s, const float *by, uint32_t width, float *x)
{
    double cutoff = s->is_sparse ? ref_streams_cutoff(by, width, s->cutoff) : 0;
    for (uint32_t n = 0; n < width; n++) {
        double gate = s->is_sparse && by[n] < cutoff ? 0 : by[n] - cutoff;
        x[n] *= s->scale * activate(PLAN_GELU_TANH, (float)gate);
    }
}

/* dst *= scale, and a part of src. */
static void run_multiply(const struct run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->dst].width;
    for (int i = from; i < to; i++) {
        const float *by = s->src == PLAN_NONE ? NULL : row_of(r, s->src, i) + s->first;
        float *x = row_of(r, s->dst, i);
        if (by != NULL && s->map == PLAN_MAP_GELU_TANH) {
            run_gelu_gate(s, by, width, x);
            continue;
        }
        for (uint32_t n = 0; n < width; n++) {
            x[n] = x[n] * s->scale * (by != NULL ? map(s->map, by[n]) : 1.0f);
        }
    }
}

/* Row i of a sum, or of streams. */
static void run_streams(const struct run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const float *src = row_of(r, s->src, i), *keys = s->keys != PLAN_NONE ? row_of(r, s->keys, i) : NULL;
    uint32_t width = r->m->plan->bufs[s->dst].width;
    float *x[PLAN_MAX_STREAMS];
    for (uint32_t k = 0; k < s->n_streams; k++) {
        x[k] = row_of(r, s->dst + (plan_buf_id)k, i);
    }
    if (s->op == PLAN_SUM) {
        ref_streams_sum(s, src, vector_of(r, s->w[0]), keys, width, row_of(r, s->dst, i));
    } else if (s->op == PLAN_PREDICT) {
        ref_streams_predict(s, src, vector_of(r, s->w[0]), width, x);
    } else {
        ref_streams_correct(s, keys, vector_of(r, s->w[0]), src, width, x);
    }
}

static float *slot_of(const struct run *r, int32_t slot)
{
    return r->m->recurrent + (size_t)slot * r->m->plan->recurrent_floats + r->step->recurrent;
}

/* The step's state of the sequence of row `first`, as it is in front of that row: zeros where the sequence begins, or a
 * copy of the one it goes on from. Threads that share a state by channels each see to their own: [lines][width], of
 * which `from` to `to`. */
static float *state_of(const struct run *r, int32_t first, uint32_t lines, uint32_t width, int from, int to)
{
    const struct backend_batch *b = r->batch;
    int32_t slot = b->slots != NULL ? b->slots[b->seq[first]] : b->seq[first];
    float *state = slot_of(r, slot),
          *source = slot_of(r, b->begin_slots != NULL ? b->begin_slots[b->seq[first]] : slot);
    for (uint32_t k = 0; k < lines; k++) {
        size_t at = (size_t)k * width + (size_t)from, bytes = (size_t)(to - from) * sizeof *state;
        if (b->pos[first] == 0) {
            memset(state + at, 0, bytes);
        } else if (source != state) {
            memcpy(state + at, source + at, bytes);
        }
    }
    return state;
}

/* Channel n of rows [first, end), which are one sequence's; copy: the first copy to leave of them, if any. */
static void convolve(const struct run *r, int32_t first, int32_t end, uint32_t n, int32_t copy, float *state)
{
    const struct backend_batch *b = r->batch;
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    int32_t kept = (int32_t)s->taps - 1;
    const float *w = vector_of(r, s->w[0]) + (size_t)n * s->taps, *bias = vector_of(r, s->bias[0]);
    for (int32_t i = first; i < end; i++) {
        double sum = 0;
        for (int32_t j = 0; j <= kept; j++) {
            int32_t at = i - kept + j;
            sum += (double)w[j] *
                   (at >= first ? row_of(r, s->src, at)[n] : state[(size_t)(at - first + kept) * width + n]);
        }
        row_of(r, s->dst, i)[n] = map(s->map, sum + (bias != NULL ? (double)bias[n] : 0.0));
    }
    for (bool is_own = false; !is_own; copy++) { /* the rows behind which a batch goes on; its own state is last */
        is_own = copy >= b->n_copies || b->copy_rows[copy] >= end;
        float *to = is_own ? state : slot_of(r, b->copy_slots[copy]);
        for (int32_t k = 0; k < kept; k++) { /* upwards, as some may move down in the same memory */
            int32_t at = (is_own ? end : b->copy_rows[copy] + 1) - kept + k;
            to[(size_t)k * width + n] =
                at >= first ? row_of(r, s->src, at)[n] : state[(size_t)(at - first + kept) * width + n];
        }
    }
}

/* Channels [from, to) of all rows. */
static void run_short_conv(const struct run *r, int from, int to)
{
    const struct backend_batch *b = r->batch;
    uint32_t width = r->m->plan->bufs[r->step->src].width;
    for (int32_t first = 0, end, copy = 0; first < b->n_rows; first = end) {
        for (end = first + 1; end < b->n_rows && b->seq[end] == b->seq[first];) {
            end++;
        }
        float *state = state_of(r, first, r->step->taps - 1, width, from, to);
        for (int n = from; n < to; n++) {
            convolve(r, first, end, (uint32_t)n, copy, state);
        }
        while (copy < b->n_copies && b->copy_rows[copy] < end) {
            copy++;
        }
    }
}

/* Value head h of row i: the state as it was, to the state as it is and the head's output. */
static void delta_row(const struct run *r, int32_t i, uint32_t h, float *state)
{
    const struct plan_step *s = r->step;
    const struct plan_delta *d = &r->m->plan->delta;
    const float *q = row_of(r, s->src, i) + plan_delta_key_head(d, h) * d->key_dim, *k = q + d->n_k_heads * d->key_dim;
    const float *v = row_of(r, s->src, i) + 2 * d->n_k_heads * d->key_dim + h * d->value_dim;
    double x = (double)row_of(r, s->values, i)[h] + vector_of(r, s->bias[0])[h];
    double decay = exp(vector_of(r, s->w[0])[h] * ref_recurrent_softplus(x));
    double beta = 1.0 / (1.0 + exp(-(double)row_of(r, s->keys, i)[h]));
    float *out = row_of(r, s->dst, i) + h * d->value_dim;
    ref_recurrent_delta(d, q, k, v, decay, beta, state, out);
    if (s->w[1] != PLAN_NONE) {
        rmsnorm(out, vector_of(r, s->w[1]), s->eps, d->value_dim, out);
    }
}

/* Head h of row i. */
static void ssm_row(const struct run *r, int32_t i, uint32_t h, float *state)
{
    const struct plan_step *s = r->step;
    const struct plan_ssm *m = &r->m->plan->ssm;
    const float *x = row_of(r, s->src, i);
    const float *in = x + m->n_heads * m->head_dim + h / (m->n_heads / m->n_groups) * m->state_dim;
    struct ref_recurrent_ssm head = {
        .x = x + h * m->head_dim,
        .in = in,
        .out = in + m->n_groups * m->state_dim,
        .dt = ref_recurrent_softplus((double)row_of(r, s->values, i)[h] + vector_of(r, s->bias[0])[h]),
        .rate = vector_of(r, s->w[0])[h],
        .skip = vector_of(r, s->w[1])[h],
    };
    ref_recurrent_ssm(m, &head, state, row_of(r, s->dst, i) + h * m->head_dim);
}

/* Heads [from, to) of all rows, by the delta rule or a state space. */
static void run_heads(const struct run *r, int from, int to)
{
    const struct backend_batch *b = r->batch;
    const struct plan_delta *d = &r->m->plan->delta;
    const struct plan_ssm *m = &r->m->plan->ssm;
    bool is_delta = r->step->op == PLAN_DELTA;
    int head = (int)(is_delta ? d->key_dim * d->value_dim : m->state_dim * m->head_dim);
    float *state = NULL;
    for (int32_t i = 0, copy = 0; i < b->n_rows; i++) {
        if (i == 0 || b->seq[i] != b->seq[i - 1]) {
            state = state_of(r, i, 1, 0, from * head, to * head);
        }
        for (int h = from; h < to; h++) {
            (is_delta ? delta_row : ssm_row)(r, i, (uint32_t)h, state + (size_t)h * (size_t)head);
        }
        if (copy < b->n_copies && b->copy_rows[copy] == i) {
            memcpy(slot_of(r, b->copy_slots[copy++]) + (size_t)from * (size_t)head, state + (size_t)from * (size_t)head,
                   (size_t)(to - from) * (size_t)head * sizeof *state);
        }
    }
}

static void row_stats(const struct run *r, int32_t i)
{
    const float *x = r->batch->logits + (size_t)i * r->m->plan->n_vocab;
    int32_t best = 0;
    for (uint32_t n = 1; n < r->m->plan->n_vocab; n++) {
        best = x[n] > x[best] ? (int32_t)n : best;
    }
    double sum = 0;
    for (uint32_t n = 0; n < r->m->plan->n_vocab; n++) {
        sum += exp((double)x[n] - x[best]);
    }
    r->batch->stats[i] =
        (struct backend_row_stats){.argmax = best, .max = x[best], .logsumexp = (float)(log(sum) + x[best])};
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* Items the step is split into: output rows, heads, channels, or token rows. */
static int n_items(const struct run *r)
{
    const struct plan *p = r->m->plan;
    const struct plan_step *s = r->step;
    if (s->op == PLAN_ATTENTION) {
        return r->batch->n_rows * (int)p->n_heads;
    }
    if (s->op == PLAN_HEAD_MATMUL) {
        return (int)p->n_heads;
    }
    if (s->op == PLAN_SHORT_CONV) {
        return (int)p->bufs[s->src].width;
    }
    if (s->op == PLAN_DELTA) {
        return (int)p->delta.n_v_heads;
    }
    if (s->op == PLAN_SSM) {
        return (int)p->ssm.n_heads;
    }
    if (s->op != PLAN_MATMUL) {
        return rows_at(r);
    }
    return s->epilogue == PLAN_QKV ? (int)n_heads_of(r) : (int)p->weights[s->w[0]].n_out;
}

static void run_step(const struct run *r, int from, int to, float *scratch)
{
    const struct plan_step *s = r->step;
    switch (s->op) {
    case PLAN_EMBED:
        run_embed(r, from, to, scratch);
        break;
    case PLAN_NORM:
        run_norm(r, from, to, scratch);
        break;
    case PLAN_MATMUL:
        (s->epilogue == PLAN_QKV ? run_qkv : run_matmul)(r, from, to, scratch);
        break;
    case PLAN_HEADS:
        for (int i = from; i < to; i++) {
            for (uint32_t h = 0; h < n_heads_of(r); h++) {
                store_head(r, i, h);
            }
        }
        break;
    case PLAN_HEAD_MATMUL:
        for (int h = from; h < to; h++) {
            run_head_matmul(r, (uint32_t)h, scratch);
        }
        break;
    case PLAN_ATTENTION:
        for (int i = from; i < to; i++) {
            attend(r, i / (int)r->m->plan->n_heads, (uint32_t)(i % (int)r->m->plan->n_heads));
        }
        break;
    case PLAN_ROUTE:
        for (int i = from; i < to; i++) {
            moe_route(&r->m->plan->moe, row_of(r, s->src, i), vector_of(r, s->w[0]), vector_of(r, s->w[1]),
                      row_of(r, s->dst, i));
        }
        break;
    case PLAN_EXPERTS:
        for (int i = from; i < to; i++) {
            run_experts(r, i, scratch);
        }
        break;
    case PLAN_GATE:
        for (int i = from; i < to; i++) {
            run_gate(r, i, scratch);
        }
        break;
    case PLAN_MULTIPLY:
        run_multiply(r, from, to);
        break;
    case PLAN_SHORT_CONV:
        run_short_conv(r, from, to);
        break;
    case PLAN_DELTA:
    case PLAN_SSM:
        run_heads(r, from, to);
        break;
    case PLAN_SUM:
    case PLAN_PREDICT:
    case PLAN_CORRECT:
        for (int i = from; i < to; i++) {
            run_streams(r, i);
        }
        break;
    case PLAN_STATES:
        run_states(r, from, to);
        break;
    case PLAN_GATHER:
        for (int i = from; i < to; i++) {
            memcpy(row_of(r, s->dst, i), row_of(r, s->src, r->batch->logit_rows[i]),
                   r->m->plan->bufs[s->src].width * sizeof(float));
        }
        break;
    case PLAN_OP_COUNT:
        break;
    }
}

static void run_thread(void *arg, int thread, int n_threads)
{
    struct run r = *(struct run *)arg;
    const struct plan *p = r.m->plan;
    int from, to;
    for (int32_t i = 0; i < p->n_steps; i++) {
        r.step = &p->steps[i];
        pool_share(n_items(&r), thread, n_threads, &from, &to);
        run_step(&r, from, to, r.m->scratch + (size_t)thread * r.m->scratch_floats);
        pool_barrier(r.m->pool);
    }
    pool_share(r.batch->n_logits, thread, n_threads, &from, &to);
    for (int i = from; i < to; i++) {
        row_stats(&r, i);
    }
}

static enum err ref_forward(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    if (batch->n_rows > m->cfg.max_rows || batch->n_logits > m->cfg.max_logits) {
        return err_set(info, ERR_INTERNAL, NULL, "a batch of %d rows is larger than planned", batch->n_rows);
    }
    if (m->plan->recurrent_floats != 0 && batch->n_seqs > m->cfg.n_slots) {
        return err_set(info, ERR_INTERNAL, NULL, "a batch of %d sequences is larger than planned", batch->n_seqs);
    }
    struct run run = {.m = m, .batch = batch};
    pool_run(m->pool, run_thread, &run);
    return ERR_OK;
}

static void ref_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    if (m == NULL) {
        return;
    }
    pool_free(&m->pool);
    mem_unmap(m->kv, m->kv_bytes, MEM_KV);
    mem_unmap(m->recurrent, m->recurrent_bytes, MEM_KV);
    for (int i = 0; i < PLAN_MAX_BUFS; i++) {
        mem_free(m->bufs[i]);
    }
    mem_free(m->scratch);
    mem_free(m->kvs);
    mem_free(m);
    *model = NULL;
}

/* Gives each layer that stores keys and values its place; false when all of them do not fit. */
static bool lay_out_kv(struct backend_model *m)
{
    uint64_t all = 0, bytes = 0;
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(m->plan, i);
        if (kv.layer != i) {
            m->kvs[i] = kv.layer != PLAN_NONE ? m->kvs[kv.layer] : (struct ref_kv){.heads = kv};
            continue;
        }
        size_t slot = (size_t)(kv.latent_dim != 0 ? 1 : 2 * kv.n_kv_heads) * kv.head_dim;
        m->kvs[i] = (struct ref_kv){.heads = kv, .at = (size_t)all, .slot_floats = slot};
        if (!ck_mul(slot, (uint64_t)m->cfg.n_pages * BACKEND_PAGE_TOKENS, &bytes) || !ck_add(all, bytes, &all)) {
            return false;
        }
    }
    bool ok = ck_mul(all, sizeof(float), &bytes);
    m->kv_bytes = ok ? (size_t)bytes : 0;
    return ok;
}

static enum err allocate(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    uint32_t widest = 0;
    size_t largest_head = 0;
    uint64_t bytes;
    m->kvs = mem_zalloc_array(p->n_layers, sizeof *m->kvs, MEM_MODEL);
    bool ok = m->kvs != NULL && lay_out_kv(m);
    m->kv = ok ? mem_map(m->kv_bytes, MEM_KV) : NULL;
    ok = ok && m->kv != NULL;
    if (p->recurrent_floats != 0 && ok) {
        ok = ck_mul(p->recurrent_floats * sizeof(float), (uint64_t)m->cfg.n_slots, &bytes);
        m->recurrent_bytes = ok ? (size_t)bytes : 0;
        m->recurrent = ok ? mem_map(m->recurrent_bytes, MEM_KV) : NULL;
        ok = m->recurrent != NULL;
    }
    for (int32_t i = 0; i < p->n_bufs && ok; i++) {
        m->bufs[i] = mem_zalloc_array((size_t)m->cfg.max_rows * p->bufs[i].width, sizeof(float), MEM_SCRATCH);
        ok = m->bufs[i] != NULL;
        widest = MAX_OF(widest, p->bufs[i].width);
    }
    for (int32_t i = 0; i < p->n_weights; i++) {
        widest = p->weights[i].n_out > 1 ? MAX_OF(widest, p->weights[i].n_in) : widest;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        const struct plan_weight *w = s->op == PLAN_HEAD_MATMUL ? &p->weights[s->w[0]] : NULL;
        largest_head = w != NULL ? MAX_OF(largest_head, (size_t)(w->n_out / p->n_heads) * w->n_in) : largest_head;
    }
    m->widest = widest;
    m->scratch_floats = MAX_OF(4 * (size_t)widest, widest + largest_head);
    m->scratch = ok ? mem_zalloc_array(m->scratch_floats * (size_t)m->cfg.n_threads, sizeof(float), MEM_SCRATCH) : NULL;
    return m->scratch != NULL ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the reference back end");
}

static enum err ref_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                         struct err_info *info)
{
    *out = NULL;
    for (int32_t i = 0; i < plan->n_weights; i++) {
        const struct plan_weight *w = &plan->weights[i];
        if (quant_ops(w->type) == NULL) {
            return err_set(info, ERR_UNSUPPORTED_TYPE, w->name, "%s: weights of type %s cannot be executed", w->name,
                           dtype_info(w->type)->name);
        }
    }
    struct backend_model *m = mem_zalloc(sizeof *m, MEM_MODEL);
    if (m == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the reference back end");
    }
    m->plan = plan;
    m->cfg = *cfg;
    enum err err = allocate(m, info);
    if (err == ERR_OK) {
        err = pool_new(cfg->n_threads, &m->pool, info);
    }
    if (err != ERR_OK) {
        ref_close(&m);
        return err;
    }
    *out = m;
    return ERR_OK;
}

static void ref_info(const struct backend_model *m, struct backend_info *out)
{
    *out = (struct backend_info){.kernels = "ref",
                                 .pack_note = "",
                                 .k_type = "f32",
                                 .v_type = "f32",
                                 .kv_bytes = m->kv_bytes,
                                 .recurrent_bytes = m->recurrent_bytes,
                                 .kv_page_bytes = m->kv_bytes / (size_t)m->cfg.n_pages};
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        out->weight_bytes += (size_t)(plan_weight_part_bytes(w) * (w->n_out / plan_weight_part(w)));
    }
    for (int32_t i = 0; i < m->plan->n_bufs; i++) {
        out->scratch_bytes += (size_t)m->cfg.max_rows * m->plan->bufs[i].width * sizeof(float);
    }
}

const struct backend backend_ref = {
    .name = "ref",
    .description = "scalar reference: f32 activations and KV, sums in double",
    .open = ref_open,
    .forward = ref_forward,
    .info = ref_info,
    .close = ref_close,
};
