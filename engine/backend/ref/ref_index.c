/* The index of latent attention in the reference back end: which positions a row's attention reads. */
#include "engine/backend/choose_positions.h"
#include "engine/backend/ref/ref_internal.h"

#include <string.h>

/* Returns the index key of a position, which comes after its latent. */
static float *index_key(const struct ref_run *r, int32_t seq, int32_t pos)
{
    return ref_kv_at(r, seq, pos) + ref_heads(r)->head_dim;
}

void ref_index_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const struct plan_rope *rope = &r->m->plan->ropes[s->heads.rope];
    uint32_t d = ref_heads(r)->index_dim, width = r->m->plan->bufs[s->src].width;
    int32_t pos = r->batch->pos[i];
    float *key = index_key(r, r->batch->seq[i], pos);
    for (uint32_t at = 0; at < width; at += d) {
        ref_attention_rotate(rope, pos, ref_row(r, s->dst, i) + at);
    }
    memcpy(key, ref_row(r, s->heads.keys, i), d * sizeof *key);
    ref_attention_rotate(rope, pos, key);
}

void ref_index_choose_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const struct plan *p = r->m->plan;
    uint32_t d = ref_heads(r)->index_dim, n_heads = p->bufs[s->src].width / d;
    int32_t n = r->batch->pos[i] + 1, k = (int32_t)p->bufs[s->dst].width;
    const float *q = ref_row(r, s->src, i), *weights = ref_row(r, s->choose.weights, i);
    for (int32_t t = 0; t < n && n > k; t++) {
        const float *key = index_key(r, r->batch->seq[i], t);
        double score = 0;
        for (uint32_t h = 0; h < n_heads; h++) {
            double dot = 0;
            for (uint32_t j = 0; j < d; j++) {
                dot += (double)q[h * d + j] * key[j];
            }
            score += (double)weights[h] * (dot < 0 ? 0 : dot); /* a NaN stays */
        }
        r->scratch[t] = (float)score;
    }
    choose_positions(r->scratch, n, k, ref_row(r, s->dst, i));
}
