/* Attention over f16 and bf16 pages: f32 multiply-add computes scores and outputs; keys and values are widened once per
 * tile of queries. Include through attention_vec.h.
 *
 * Sums of n queries stay in registers, so a copy exists for each n. Values that a query does not see can be NaN, so its
 * output never uses them. Functions with more than five parameters: constants that are folded into each copy. */
#ifndef INFCGI_KERNELS_VEC_ATTENTION_FLOAT_VEC_H
#define INFCGI_KERNELS_VEC_ATTENTION_FLOAT_VEC_H

#include "engine/kernels/vec/attention_tile_vec.h"

static ALWAYS_INLINE vec att_widen(const uint16_t *p, bool is_f16)
{
    return is_f16 ? vec_load_f16(p) : vec_load_bf16(p);
}
static ALWAYS_INLINE vec att_widen_part(const uint16_t *p, size_t n, bool is_f16)
{
    return is_f16 ? vec_load_f16_part(p, n) : vec_load_bf16_part(p, n);
}

/* Writes the scores of n queries against the 32 keys of a page to weights, from slot `at` on. */
static ALWAYS_INLINE void att_float_scores_n(struct att_work *w, const struct att_tile *t, const struct att_page *p,
                                             int at, int n, bool is_f16)
{
    const uint16_t *keys = p->keys;
    int d = w->a->kv.d;
    for (int h = 0; h < KV_PAGE_TOKENS; h += ATT_STEP) {
        vec acc[VEC_TILE][2];
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            acc[i][0] = vec_set1(0);
            acc[i][1] = vec_set1(0);
        }
        for (int j = 0; j < d; j++) {
            const uint16_t *k = keys + j * KV_PAGE_TOKENS + h;
            vec k0 = att_widen(k, is_f16), k1 = att_widen(k + VEC_LANES, is_f16);
            vec_prefetch(p->next_keys + 2 * (j * KV_PAGE_TOKENS + h));
            UNROLL_FULLY
            for (int i = 0; i < n; i++) {
                vec q = vec_set1(t->q_float[j * VEC_TILE + i]);
                acc[i][0] = vec_fma(q, k0, acc[i][0]);
                acc[i][1] = vec_fma(q, k1, acc[i][1]);
            }
        }
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            vec_store(w->weights[i] + at + h, acc[i][0]);
            vec_store(w->weights[i] + at + h + VEC_LANES, acc[i][1]);
        }
    }
}

static void att_float_scores(struct att_work *w, const struct att_tile *t, const struct att_page *p, int at)
{
    if (w->a->kv.k.type == KV_TYPE_F16) {
        ATT_WITH_N(t->n, att_float_scores_n(w, t, p, at, N, true));
    } else {
        ATT_WITH_N(t->n, att_float_scores_n(w, t, p, at, N, false));
    }
}

/* The values of a page that a call sums: queries first .. first+n-1, slots from .. to-1 of the page. */
struct att_span {
    const uint16_t *values, *next;
    int at; /* first slot of the page in the block */
    int first, from, to;
    bool is_f16;
};

/* Computes out = out * correction + weights . V for components c .. c+ATT_STEP-1 of n queries. */
static ALWAYS_INLINE void att_columns(struct att_work *w, struct att_tile *t, const struct att_span *s, int c, int n,
                                      bool is_full, bool is_f16)
{
    int d = kv_value_row(&w->a->kv), two = w->width - c > VEC_LANES; /* whether a second vector exists */
    vec acc[VEC_TILE][2];
    size_t left = (size_t)(w->a->kv.d_value - c), right = left > VEC_LANES ? left - VEC_LANES : 0;
    float *out = t->out + s->first * w->width + c;
    const uint16_t *values = s->values + kv_value_element(d, 0, c);
    int row = MIN_OF(32, d - c / 32 * 32);
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        vec correction = vec_set1(w->correction[s->first + i]);
        acc[i][0] = vec_mul(vec_load(out + i * w->width), correction);
        acc[i][1] = vec_mul(is_full || two ? vec_load(out + i * w->width + VEC_LANES) : correction, correction);
    }
    for (int k = s->from; k < s->to; k++) {
        const uint16_t *v = values + k * row;
        vec v0 = is_full ? att_widen(v, is_f16) : att_widen_part(v, left, is_f16);
        vec v1 =
            is_full ? att_widen(v + VEC_LANES, is_f16) : att_widen_part(v + (right > 0 ? VEC_LANES : 0), right, is_f16);
        vec_prefetch(s->next + (v - s->values));
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            vec weight = vec_set1(w->weights[s->first + i][s->at + k]);
            acc[i][0] = vec_fma(weight, v0, acc[i][0]);
            acc[i][1] = vec_fma(weight, v1, acc[i][1]);
        }
    }
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        vec_store(out + i * w->width, acc[i][0]);
        if (is_full || two) {
            vec_store(out + i * w->width + VEC_LANES, acc[i][1]);
        }
    }
}

static ALWAYS_INLINE void att_float_values_n(struct att_work *w, struct att_tile *t, const struct att_span *s, int n,
                                             bool is_f16)
{
    int c = 0;
    for (; c + ATT_STEP <= w->a->kv.d_value; c += ATT_STEP) {
        att_columns(w, t, s, c, n, true, is_f16);
    }
    if (c < w->a->kv.d_value) {
        att_columns(w, t, s, c, n, false, is_f16);
    }
    for (int i = s->first; i < s->first + n; i++) {
        w->correction[i] = 1.0f; /* done: further spans of the page add to the same output */
    }
}

static void att_values_of_one(struct att_work *w, struct att_tile *t, struct att_span s, int from, int to)
{
    s.from = from;
    s.to = to;
    if (from >= to) {
        return;
    }
    if (s.is_f16) {
        att_float_values_n(w, t, &s, 1, true);
    } else {
        att_float_values_n(w, t, &s, 1, false);
    }
}

static void att_values_of_all(struct att_work *w, struct att_tile *t, const struct att_span *s)
{
    if (s->is_f16) {
        ATT_WITH_N(t->n, att_float_values_n(w, t, s, N, true));
    } else {
        ATT_WITH_N(t->n, att_float_values_n(w, t, s, N, false));
    }
}

/* Adds the values of a page: for each query in ascending order of slots, and together in the slots that all queries
 * see. */
static void att_float_page(struct att_work *w, struct att_tile *t, const struct att_page *p, int at)
{
    struct att_span s = {
        .values = p->values, .next = (const void *)p->next_values, .at = at, .is_f16 = w->a->kv.v.type == KV_TYPE_F16};
    int lo[VEC_TILE], hi[VEC_TILE], from = 0, to = KV_PAGE_TOKENS;
    for (int i = 0; i < t->n; i++) {
        lo[i] = MAX_OF(t->queries[i].lo - at, 0);
        hi[i] = MIN_OF(t->queries[i].hi - at, KV_PAGE_TOKENS);
        from = MAX_OF(from, lo[i]);
        to = MIN_OF(to, hi[i]);
    }
    if (from >= to) { /* no slot that all see */
        from = to = KV_PAGE_TOKENS;
    }
    for (s.first = 0; s.first < t->n; s.first++) {
        att_values_of_one(w, t, s, lo[s.first], MIN_OF(from, hi[s.first]));
    }
    s.first = 0;
    s.from = from;
    s.to = to;
    if (from < to) {
        att_values_of_all(w, t, &s);
    }
    for (; s.first < t->n; s.first++) {
        att_values_of_one(w, t, s, to, hi[s.first]);
    }
}

static void att_float_values(struct att_work *w, struct att_tile *t, const struct att_block *b)
{
    for (int k = 0; k < b->n_pages; k++) {
        att_float_page(w, t, &b->pages[k], k * KV_PAGE_TOKENS);
    }
}

#endif
