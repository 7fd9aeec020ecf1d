/* Scores of attention over latents (kv_type.h), whose pages have the layout of values. attention_float_vec.h computes
 * the sum over the outputs. A score is a sum across lanes, which adds a tenth to the cost of its products. All query
 * heads share a latent, so tiles are full and the products, not the memory, are the bound. Include through
 * attention_vec.h. */
#ifndef INFCGI_KERNELS_VEC_ATTENTION_LATENT_VEC_H
#define INFCGI_KERNELS_VEC_ATTENTION_LATENT_VEC_H

#include "engine/kernels/vec/attention_float_vec.h"

#include <string.h>

/* Sets query i of the tile, with zeros after its d components. */
static void att_latent_query(struct att_tile *t, int i, const float *q, int d, float scale)
{
    float *to = t->q_float + i * kv_value_width(d);
    for (int j = 0; j < d; j++) {
        to[j] = q[j] * scale;
    }
    memset(to + d, 0, (size_t)(kv_value_width(d) - d) * sizeof *to);
}

/* Multiplies components j .. j+VEC_LANES-1 (`left` of them exist) of two adjacent latents by those of n queries. */
static ALWAYS_INLINE void att_latent_step(vec acc[2][VEC_TILE], const float *q, int q_stride, const uint16_t *k,
                                          int row, size_t left, int n, bool is_f16)
{
    vec k0 = left >= VEC_LANES ? att_widen(k, is_f16) : att_widen_part(k, left, is_f16);
    vec k1 = left >= VEC_LANES ? att_widen(k + row, is_f16) : att_widen_part(k + row, left, is_f16);
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        vec x = vec_load(q + i * q_stride);
        acc[0][i] = vec_fma(x, k0, acc[0][i]);
        acc[1][i] = vec_fma(x, k1, acc[1][i]);
    }
}

/* Writes the scores of n queries against the 32 latents of a page to weights, from slot `at` on. */
static ALWAYS_INLINE void att_latent_scores_n(struct att_work *w, const struct att_tile *t, const struct att_page *p,
                                              int at, int n, bool is_f16)
{
    int d = w->a->kv.d, q_stride = kv_value_width(d), whole = d / 32 * 32;
    for (int slot = 0; slot < KV_PAGE_TOKENS; slot += 2) {
        vec acc[2][VEC_TILE];
        UNROLL_FULLY
        for (int i = 0; i < VEC_TILE; i++) {
            acc[0][i] = acc[1][i] = vec_set1(0);
        }
        for (int b = 0; b < whole; b += 32) {
            int from = kv_value_element(d, slot, b);
            const uint16_t *k = (const uint16_t *)p->keys + from;
            vec_prefetch(p->next_keys + 2 * from);
            vec_prefetch(p->next_keys + 2 * from + 64);
            UNROLL_FULLY
            for (int v = 0; v < 32; v += VEC_LANES) {
                att_latent_step(acc, t->q_float + b + v, q_stride, k + v, 32, VEC_LANES, n, is_f16);
            }
        }
        for (int j = whole; j < d; j += VEC_LANES) {
            const uint16_t *k = (const uint16_t *)p->keys + kv_value_element(d, slot, j);
            att_latent_step(acc, t->q_float + j, q_stride, k, d - whole, (size_t)(d - j), n, is_f16);
        }
        for (int s = 0; s < 2; s++) {
            _Alignas(64) float scores[VEC_LANES];
            vec_store(scores, vec_sum_lanes(acc[s]));
            UNROLL_FULLY
            for (int i = 0; i < n; i++) {
                w->weights[i][at + slot + s] = scores[i];
            }
        }
    }
}

static void att_latent_scores(struct att_work *w, const struct att_tile *t, const struct att_page *p, int at)
{
    if (w->a->kv.k.type == KV_TYPE_F16) {
        ATT_WITH_N(t->n, att_latent_scores_n(w, t, p, at, N, true));
    } else {
        ATT_WITH_N(t->n, att_latent_scores_n(w, t, p, at, N, false));
    }
}

#endif
