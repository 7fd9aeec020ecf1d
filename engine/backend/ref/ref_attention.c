/* Attention in the reference back end: queries, keys and values with their norms and RoPE, and the softmax over visible
 * positions. */
#include "engine/backend/ref/ref_internal.h"
#include "engine/backend/rope_angles.h"
#include "engine/plan/plan_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_attention_rotate(const struct plan_rope *rope, int32_t pos, float *head)
{
    uint32_t half = rope->n_rot / 2;
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

/* Applies norm and RoPE to one head vector, in place. */
static void finish_head(const struct ref_run *r, float *head, plan_weight_id norm, int32_t pos)
{
    if (norm != PLAN_NONE) {
        ref_math_rmsnorm(head, ref_vector(r, norm), r->step->eps, r->m->plan->weights[norm].n_in, head);
    }
    ref_attention_rotate(&r->m->plan->ropes[r->step->heads.rope], pos, head);
}

static void finish_query(const struct ref_run *r, float *head, int32_t pos)
{
    finish_head(r, head, r->step->heads.q_norm, pos);
    float scale = rope_query_scale(&r->m->plan->ropes[r->step->heads.rope], pos);
    for (uint32_t j = 0; j < ref_heads(r)->head_dim; j++) {
        head[j] *= scale;
    }
}

/* Returns the address of head h of the queries (part 0), keys (1) or values (2) of token row i. */
static float *head_at(const struct ref_run *r, int part, int32_t i, uint32_t h)
{
    const struct plan_kv *kv = ref_heads(r);
    if (part == 0) {
        return ref_row(r, r->step->dst, i) + (size_t)h * kv->head_dim;
    }
    return ref_kv_at(r, r->batch->seq[i], r->batch->pos[i]) +
           (part == 1 ? h * kv->head_dim : kv->n_kv_heads * kv->head_dim + h * plan_kv_value_dim(kv));
}

/* Returns the width of a head of that part. */
static uint32_t width_of(const struct ref_run *r, int part)
{
    const struct plan_kv *kv = ref_heads(r);
    return part == 2 ? plan_kv_value_dim(kv) : kv->head_dim;
}

static void finish_part(const struct ref_run *r, int part, int32_t i, float *head)
{
    if (part == 0) {
        finish_query(r, head, r->batch->pos[i]);
    } else if (part == 1) {
        finish_head(r, head, r->step->heads.k_norm, r->batch->pos[i]);
    } else if (r->step->heads.norms_values) {
        ref_math_rmsnorm(head, NULL, r->step->eps, width_of(r, part), head);
    }
}

/* Returns the part (0 = Q, 1 = K, 2 = V) of `head`, which counts Q (0 .. H-1), K (H .. H+K-1) and V, and its index *h
 * there. */
static int part_of(const struct ref_run *r, uint32_t head, uint32_t *h)
{
    uint32_t n_heads = ref_heads(r)->n_heads, n_kv_heads = ref_heads(r)->n_kv_heads;
    *h = head < n_heads ? head : (head - n_heads) % n_kv_heads;
    return head < n_heads ? 0 : head < n_heads + n_kv_heads ? 1 : 2;
}

/* Computes heads [from, to) of Q, K and V for all token rows. */
void ref_attention_qkv(const struct ref_run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    uint32_t h;
    for (uint32_t head = (uint32_t)from; head < (uint32_t)to; head++) {
        int part = part_of(r, head, &h);
        uint32_t d = width_of(r, part);
        const struct plan_weight *w = &r->m->plan->weights[s->w[part]];
        const float *bias = ref_vector(r, s->bias[part]);
        for (uint32_t n = 0; n < d; n++) {
            ref_math_dequantize(w, h * d + n, r->scratch);
            for (int32_t i = 0; i < r->batch->n_rows; i++) {
                float y =
                    ref_math_dot(ref_row(r, s->src, i), r->scratch, w->n_in) + (bias != NULL ? bias[h * d + n] : 0);
                head_at(r, part, i, h)[n] = y;
            }
        }
        for (int32_t i = 0; i < r->batch->n_rows; i++) {
            finish_part(r, part, i, head_at(r, part, i, h));
        }
    }
}

/* Finishes the heads of row i and moves them to their destination. */
void ref_attention_heads_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    uint32_t h;
    for (uint32_t head = 0; head < plan_n_items(r->m->plan, s); head++) {
        int part = part_of(r, head, &h);
        uint32_t d = width_of(r, part);
        plan_buf_id from = part == 0 ? s->src : part == 1 ? s->heads.keys : s->heads.values;
        if (from != PLAN_NONE) {
            float *to = head_at(r, part, i, h);
            memmove(to, ref_row(r, from, i) + (size_t)h * d, d * sizeof *to); /* queries are already there */
            finish_part(r, part, i, to);
        }
    }
}

/* Returns the last position that row i sees: its own, or the last of its sequence. */
static int32_t last_visible(const struct ref_run *r, int32_t i)
{
    const struct backend_batch *b = r->batch;
    while (r->m->plan->is_bidirectional && i + 1 < b->n_rows && b->seq[i + 1] == b->seq[i]) {
        i++;
    }
    return b->pos[i];
}

/* Returns what slopes or biases add to the score of a position at this distance from the row's. */
static double bias_of(const struct plan_step *s, const float *by_head, uint32_t h, int32_t distance)
{
    int32_t reach = (int32_t)s->attention.reach, at = MAX_OF(-reach, MIN_OF(distance, reach));
    if (by_head == NULL) {
        return 0;
    }
    return reach == 0 ? -(double)by_head[h] * abs(distance)
                      : (double)by_head[(size_t)h * (2 * (size_t)reach + 1) + (size_t)(at + reach)];
}

/* Computes one head of one row: softmax over the visible positions, in two passes, so that no score is kept. */
static void attend(const struct ref_run *r, int32_t i, uint32_t h)
{
    const struct plan_step *s = r->step;
    const struct plan_kv *heads = ref_heads(r);
    uint32_t d = heads->head_dim, d_value = plan_kv_value_dim(heads);
    uint32_t kv_head = h / (heads->n_heads / heads->n_kv_heads);
    const float *q = ref_row(r, s->src, i) + h * d;
    int32_t pos = last_visible(r, i), own = r->batch->pos[i], window = s->attention.window;
    int32_t first = MAX_OF(plan_first_seen(s, own), MIN_OF(s->attention.skips, own));
    pos = window > 0 ? MIN_OF(pos, own + s->attention.ahead) : pos;
    bool is_chosen = s->attention.chosen != PLAN_NONE;
    const float *chosen = is_chosen ? ref_row(r, s->attention.chosen, i) : NULL;
    pos = is_chosen ? MIN_OF(pos, (int32_t)r->m->plan->bufs[s->attention.chosen].width - 1) : pos;
    const float *sinks = ref_vector(r, s->w[0]), *by_head = ref_vector(r, s->w[1]);
    double max = -INFINITY, sum = 0, cap = s->attention.softcap, acc[PLAN_MAX_HEAD] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t k = first; k <= pos; k++) {
            int32_t t = is_chosen ? (int32_t)chosen[k] : k;
            const float *kv = ref_kv_at(r, r->batch->seq[i], t);
            double score = 0;
            for (uint32_t j = 0; j < d; j++) {
                score += (double)q[j] * kv[kv_head * d + j];
            }
            score *= s->scale;
            score = cap != 0 ? cap * tanh(score / cap) : score;
            score += bias_of(s, by_head, h, t - own);
            if (pass == 0) {
                max = score > max ? score : max;
                continue;
            }
            double weight = exp(score - max);
            sum += weight;
            const float *v = heads->latent_dim != 0 ? kv : kv + heads->n_kv_heads * d + kv_head * d_value;
            for (uint32_t j = 0; j < d_value; j++) {
                acc[j] += weight * v[j];
            }
        }
    }
    sum += sinks != NULL ? exp(sinks[h] - max) : 0;
    float *out = ref_row(r, s->dst, i) + h * d_value;
    for (uint32_t j = 0; j < d_value; j++) {
        out[j] = (float)(acc[j] / sum);
    }
}

void ref_attention_heads(const struct ref_run *r, int from, int to)
{
    for (int h = from; h < to; h++) {
        for (int32_t i = 0; i < r->batch->n_rows; i++) {
            attend(r, i, (uint32_t)h);
        }
    }
}

/* Computes head h of all token rows. */
static void multiply_head(const struct ref_run *r, uint32_t h)
{
    const struct plan *p = r->m->plan;
    const struct plan_step *s = r->step;
    const struct plan_weight *w = &p->weights[s->w[0]];
    uint32_t n_heads = plan_heads_of(p, s), n_out = w->n_out / n_heads;
    uint32_t in = p->bufs[s->src].width / n_heads, out = p->bufs[s->dst].width / n_heads;
    for (uint32_t n = 0; n < n_out; n++) {
        ref_math_dequantize(w, h * n_out + n, r->scratch);
        for (int32_t i = 0; i < ref_rows(r); i++) {
            ref_row(r, s->dst, i)[h * out + n] = ref_math_dot(ref_row(r, s->src, i) + h * in, r->scratch, w->n_in);
        }
    }
    for (int32_t i = 0; i < ref_rows(r); i++) {
        memcpy(ref_row(r, s->dst, i) + h * out + n_out, ref_row(r, s->src, i) + h * in + w->n_in,
               (in - w->n_in) * sizeof(float));
    }
}

void ref_attention_head_matmul(const struct ref_run *r, int from, int to)
{
    for (int h = from; h < to; h++) {
        multiply_head(r, (uint32_t)h);
    }
}
