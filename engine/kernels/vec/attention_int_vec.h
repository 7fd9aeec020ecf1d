/* Attention over integer pages (i16, q8_0, q4_0): products of 16-bit integers, two per lane, compute scores and
 * outputs. The 32-bit sums cannot overflow (kv_type.h). Twice the speed of f32 multiply-add on CPUs with VNNI. Include
 * through attention_vec.h.
 *
 * A query becomes 16-bit integers with one scale. The weights of a page become 14-bit integers, relative to the largest
 * weight times value scale that the query sees in that page; kern.h has the bound of this rounding. 8- and 4-bit codes
 * are widened to 16 bits once for all queries of a pass. Integers that a query does not see are multiplied by a weight
 * of 0, whatever they are.
 *
 * Sums of n queries stay in registers, so a copy exists for each n. */
#ifndef INFCGI_KERNELS_VEC_ATTENTION_INT_VEC_H
#define INFCGI_KERNELS_VEC_ATTENTION_INT_VEC_H

#include "engine/kernels/vec/attention_tile_vec.h"

#include <math.h>

/* --- unpacking -------------------------------------------------------------------------------------------------- */

static void att_unpack_scales(const unsigned char *side, const struct kv_side *s, float *out)
{
    const uint16_t *scales = (const void *)(side + s->scales);
    for (int i = 0; i < s->n_blocks * KV_PAGE_TOKENS; i += VEC_LANES) {
        vec_store(out + i, vec_load_f16(scales + i));
    }
}

/* Widens n 8-bit codes; n is a multiple of 64. */
static void att_widen_codes(const unsigned char *codes, const unsigned char *next, int n, int16_t *out)
{
    for (int i = 0; i < n; i += ATT_STEP) {
        vec_prefetch(next + i);
        ivec_store(out + i, ivec_widen_i8(codes + i));
    }
}

/* Widens 4-bit pairs [d/2][32]. */
static void att_widen_keys4(const unsigned char *codes, const unsigned char *next, int d, int16_t *out)
{
    const ivec low = ivec_set1(15), both = ivec_set1(15 | 15 << 16), eight = ivec_set1(8 | 8 << 16);
    for (int i = 0; i < d / 2 * KV_PAGE_TOKENS; i += VEC_LANES) {
        vec_prefetch(next + i);
        ivec pair = ivec_widen_u8(codes + i);
        pair = ivec_pair(ivec_and(pair, low), ivec_shift_right4(pair));
        ivec_store(out + 2 * i, ivec_sub16(ivec_and(pair, both), eight));
    }
}

/* Turns bytes [32][B][16] with components c and c + 16 into pairs of slots i and i + 16. */
static void att_widen_values4(const unsigned char *codes, const unsigned char *next, int n_blocks, int d, int16_t *out)
{
    const ivec mask = ivec_set1(15 | 15 << 16), eight = ivec_set1(8 | 8 << 16);
    int row = n_blocks * 16;
    for (int i = 0; i < KV_PAGE_TOKENS / 2; i++) {
        for (int c = 0; c < kv_value_width(d); c += VEC_LANES) {
            int at = i * row + c / 32 * 16 + c % 16;
            vec_prefetch(next + at);
            vec_prefetch(next + at + 16 * row);
            ivec pair = ivec_pair(ivec_widen_u8(codes + at), ivec_widen_u8(codes + at + 16 * row));
            pair = c % 32 < 16 ? pair : ivec_shift_right4(pair);
            ivec_store(out + 2 * kv_value_pair(d, i, c), ivec_sub16(ivec_and(pair, mask), eight));
        }
    }
}

/* Unpacks the keys of page k of the block to 16-bit integers, and their scales. A single tile uses 8-bit codes
 * directly. */
static void att_int_keys(struct att_work *w, struct att_page *p, int k)
{
    const struct kv_side *s = &w->a->kv.k;
    int d = w->a->kv.d;
    p->key_scales = (const void *)((const unsigned char *)p->keys + s->scales);
    if (s->type == KV_TYPE_I16) {
        return;
    }
    att_unpack_scales(p->keys, s, w->key_scales[k]);
    p->key_scales = w->key_scales[k];
    p->narrow_keys = s->type == KV_TYPE_Q8_0 && w->n_tiles == 1;
    if (p->narrow_keys) {
        return;
    }
    if (s->type == KV_TYPE_Q8_0) {
        att_widen_codes(p->keys, p->next_keys, d * KV_PAGE_TOKENS, w->keys[k]);
    } else {
        att_widen_keys4(p->keys, p->next_keys, d, w->keys[k]);
    }
    p->keys = w->keys[k];
    p->next_keys = (const unsigned char *)w->keys[k];
}

static void att_int_values_of(struct att_work *w, struct att_page *p, int k)
{
    const struct kv_side *s = &w->a->kv.v;
    p->value_scales = (const void *)((const unsigned char *)p->values + s->scales);
    if (s->type == KV_TYPE_I16) {
        return;
    }
    att_unpack_scales(p->values, s, w->value_scales[k]);
    p->value_scales = w->value_scales[k];
    p->narrow_values = s->type == KV_TYPE_Q8_0 && w->n_tiles == 1;
    if (p->narrow_values) {
        return;
    }
    if (s->type == KV_TYPE_Q8_0) {
        att_widen_codes(p->values, p->next_values, w->width * KV_PAGE_TOKENS, w->values[k]);
    } else {
        att_widen_values4(p->values, p->next_values, s->n_blocks, w->a->kv.d_value, w->values[k]);
    }
    p->values = w->values[k];
    p->next_values = (const unsigned char *)w->values[k];
}

/* --- queries ---------------------------------------------------------------------------------------------------- */

/* Sets query i of the tile to integers with a norm of at most KV_I16_NORM. A NaN or infinity makes its scale NaN. The
 * scale is never 0, so that scores of -inf stay -inf. */
static void att_int_query(struct att_tile *t, int i, const float *q, int d, float scale)
{
    vec squares = vec_set1(0), largest = vec_set1(0);
    for (int j = 0; j < d; j += VEC_LANES) {
        vec x = vec_load_part(q + j, (size_t)(d - j));
        squares = vec_fma(x, x, squares);
        largest = vec_max(vec_max(x, vec_sub(vec_set1(0), x)), largest);
    }
    float norm = sqrtf(vec_sum(squares)), unit = norm * (1.0f / KV_I16_NORM);
    unit = fmaxf(unit, vec_max_lane(largest) * (1.0f / ATT_QUERY_LIMIT));
    bool is_zero = unit < KV_SCALE_FLOOR;
    t->scale[i] = !(norm < INFINITY) ? NAN : is_zero ? 1.0f : unit * scale;
    int32_t codes[KERN_MAX_HEAD + 16];
    vec inverse = vec_set1(is_zero ? 0 : 1.0f / unit);
    for (int j = 0; j < d; j += VEC_LANES) {
        ivec_store(codes + j, vec_to_int(vec_mul(vec_load_part(q + j, (size_t)(d - j)), inverse)));
    }
    for (int j = 0; j < d / 2; j++) {
        uint32_t low = (uint32_t)codes[2 * j] & 0xFFFF, high = (uint32_t)codes[2 * j + 1] << 16;
        t->q_pairs[j * VEC_TILE + i] = (int32_t)(low | high);
    }
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* Loads a vector of 16-bit integers, from number `at` of the page on. */
static ALWAYS_INLINE ivec att_int_load(const void *codes, int at, bool is_narrow)
{
    return is_narrow ? ivec_widen_i8((const int8_t *)codes + at) : ivec_load((const int16_t *)codes + at);
}

/* Prefetches the two vectors of integers from number `at` on. */
static ALWAYS_INLINE void att_int_prefetch(const unsigned char *codes, int at, bool is_narrow)
{
    if (is_narrow) {
        vec_prefetch(codes + at);
    } else {
        vec_prefetch(codes + 2 * at);
        vec_prefetch(codes + 2 * at + 2 * ATT_STEP);
    }
}

/* Writes the scores of n queries against the 32 keys of a page to weights, from slot `to` on. */
static ALWAYS_INLINE void att_int_scores_n(struct att_work *w, const struct att_tile *t, const struct att_page *p,
                                           int to, int n, bool is_narrow)
{
    int n_pairs = w->a->kv.d / 2, block = w->a->kv.k.block / 2;
    for (int h = 0; h < KV_PAGE_TOKENS; h += ATT_STEP) {
        for (int from = 0; from < n_pairs; from += block) {
            ivec acc[VEC_TILE][2];
            UNROLL_FULLY
            for (int i = 0; i < n; i++) {
                acc[i][0] = ivec_set1(0);
                acc[i][1] = ivec_set1(0);
            }
            for (int j = from; j < MIN_OF(from + block, n_pairs); j++) {
                int at = (j * KV_PAGE_TOKENS + h) * 2;
                att_int_prefetch(p->next_keys, at, is_narrow);
                ivec k0 = att_int_load(p->keys, at, is_narrow), k1 = att_int_load(p->keys, at + ATT_STEP, is_narrow);
                UNROLL_FULLY
                for (int i = 0; i < n; i++) {
                    ivec q = ivec_set1(t->q_pairs[j * VEC_TILE + i]);
                    acc[i][0] = ivec_dot16(acc[i][0], q, k0);
                    acc[i][1] = ivec_dot16(acc[i][1], q, k1);
                }
            }
            const float *scales = p->key_scales + from / block * KV_PAGE_TOKENS + h;
            vec s0 = vec_load(scales), s1 = vec_load(scales + VEC_LANES);
            UNROLL_FULLY
            for (int i = 0; i < n; i++) {
                float *out = w->weights[i] + to + h;
                vec x0 = vec_from_int(acc[i][0]), x1 = vec_from_int(acc[i][1]);
                vec_store(out, from == 0 ? vec_mul(x0, s0) : vec_fma(x0, s0, vec_load(out)));
                out += VEC_LANES;
                vec_store(out, from == 0 ? vec_mul(x1, s1) : vec_fma(x1, s1, vec_load(out)));
            }
        }
    }
}

static void att_int_scores(struct att_work *w, const struct att_tile *t, const struct att_page *p, int to)
{
    if (p->narrow_keys) {
        ATT_WITH_N(t->n, att_int_scores_n(w, t, p, to, N, true));
    } else {
        ATT_WITH_N(t->n, att_int_scores_n(w, t, p, to, N, false));
    }
}

/* Multiplies the weights by the value scales of one block of components and finds the largest products. */
static void att_int_scale(struct att_work *w, const struct att_tile *t, const struct att_block *b, int block)
{
    for (int i = 0; i < t->n; i++) {
        const struct att_query *q = &t->queries[i];
        bool is_whole = q->hi - q->lo == b->n_pages * KV_PAGE_TOKENS;
        vec largest = vec_set1(0);
        for (int at = 0; at < b->n_pages * KV_PAGE_TOKENS; at += VEC_LANES) {
            const float *scales = b->pages[at / KV_PAGE_TOKENS].value_scales + block * KV_PAGE_TOKENS;
            vec x = vec_mul(vec_load(w->weights[i] + at), vec_load(scales + at % KV_PAGE_TOKENS));
            x = is_whole ? x : vec_keep_range(x, vec_set1(0), at, q->lo, q->hi - 1);
            vec_store(w->scaled[i] + at, x);
            largest = vec_max(vec_abs(x), largest); /* scales of q4_0 can be negative */
        }
        vec_store(w->largest[i], largest);
    }
}

/* Rounds the scaled weights to integers. */
static void att_int_round(struct att_work *w, const struct att_tile *t, int n_pages)
{
    _Alignas(64) float inverse[VEC_LANES];
    vec largest[VEC_TILE];
    UNROLL_FULLY
    for (int i = 0; i < VEC_TILE; i++) {
        largest[i] = vec_load(w->largest[i]); /* beyond n queries: any value */
    }
    vec all = vec_max_lanes(largest);
    vec_store(inverse, vec_div(vec_set1(ATT_WEIGHT_LIMIT), all));
    vec_store(w->factor, vec_mul(all, vec_set1(1.0f / ATT_WEIGHT_LIMIT)));
    for (int i = 0; i < t->n; i++) {
        vec f = vec_set1(inverse[i]);
        for (int k = 0; k < n_pages; k++) {
            const float *scaled = w->scaled[i] + k * KV_PAGE_TOKENS;
            UNROLL_FULLY
            for (int v = 0; v < 16; v += VEC_LANES) {
                ivec low = vec_to_int(vec_mul(vec_load(scaled + v), f));
                ivec high = vec_to_int(vec_mul(vec_load(scaled + v + 16), f));
                ivec_store(w->pairs[k][i] + v, ivec_pair(ivec_and(low, ivec_set1(0xFFFF)), high));
            }
        }
    }
}

/* Computes out = out * correction (in the first page of a block) + weights . V of page k, for one or two vectors of
 * components from c on. More than five parameters: constants that are folded into each copy. */
static ALWAYS_INLINE void att_int_columns(struct att_work *w, struct att_tile *t, const struct att_page *p, int k,
                                          int c, int n, bool two, bool is_narrow)
{
    ivec acc[VEC_TILE][2];
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        acc[i][0] = ivec_set1(0);
        acc[i][1] = ivec_set1(0);
    }
    const int32_t(*pairs)[16] = w->pairs[k];
    const ptrdiff_t size = is_narrow ? 1 : 2, row = size * 2 * MIN_OF(32, w->width - c / 32 * 32);
    const ptrdiff_t ahead = p->next_values - (const unsigned char *)p->values;
    const unsigned char *values = (const unsigned char *)p->values + size * 2 * kv_value_pair(w->a->kv.d_value, 0, c);
    UNROLL_FULLY
    for (int slot = 0; slot < KV_PAGE_TOKENS / 2; slot++, values += row) {
        att_int_prefetch(values + ahead, 0, is_narrow);
        ivec v0 = att_int_load(values, 0, is_narrow), v1 = two ? att_int_load(values, ATT_STEP, is_narrow) : v0;
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            ivec weight = ivec_set1(pairs[i][slot]);
            acc[i][0] = ivec_dot16(acc[i][0], weight, v0);
            acc[i][1] = two ? ivec_dot16(acc[i][1], weight, v1) : acc[i][1];
        }
    }
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        float *out = t->out + i * w->width + c;
        vec f = vec_set1(w->factor[i]), correction = vec_set1(k == 0 ? w->correction[i] : 1.0f);
        vec_store(out, vec_fma(vec_from_int(acc[i][0]), f, vec_mul(vec_load(out), correction)));
        if (two) {
            out += VEC_LANES;
            vec_store(out, vec_fma(vec_from_int(acc[i][1]), f, vec_mul(vec_load(out), correction)));
        }
    }
}

/* Computes components from .. to-1. */
static ALWAYS_INLINE void att_int_page_n(struct att_work *w, struct att_tile *t, const struct att_page *p, int k,
                                         int from, int to, int n, bool is_narrow)
{
    for (; from + ATT_STEP <= to; from += ATT_STEP) {
        att_int_columns(w, t, p, k, from, n, true, is_narrow);
    }
    if (from < to) {
        att_int_columns(w, t, p, k, from, n, false, is_narrow);
    }
}

static void att_int_page(struct att_work *w, struct att_tile *t, const struct att_page *p, int k, int from, int to)
{
    if (p->narrow_values) {
        ATT_WITH_N(t->n, att_int_page_n(w, t, p, k, from, to, N, true));
    } else {
        ATT_WITH_N(t->n, att_int_page_n(w, t, p, k, from, to, N, false));
    }
}

static void att_int_values(struct att_work *w, struct att_tile *t, const struct att_block *b)
{
    int width = att_has_one_scale(w) ? w->width : w->a->kv.v.block;
    for (int c = 0; c < w->width; c += width) {
        if (!att_has_one_scale(w)) {
            att_int_scale(w, t, b, c / width);
        }
        att_int_round(w, t, b->n_pages);
        for (int k = 0; k < b->n_pages; k++) {
            att_int_page(w, t, &b->pages[k], k, c, MIN_OF(w->width, c + width));
        }
    }
}

#endif
