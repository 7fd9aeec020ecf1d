/* Attention, once for every x86 ISA: include after a vec_<isa>.h.
 *
 * Queries (rows x heads of the group) are taken VEC_TILE at a time, so that keys and values are widened from f16 once
 * for the tile, and sums stay in registers. Each query keeps a running maximum, sum and output [online softmax, Milakov
 * 2018]; pages come one after the other.
 *
 * What one query computes never depends on its tile mates: lanes are combined across queries nowhere, scores of
 * positions that a query does not see are replaced after they are computed, and its output never touches a value that
 * it does not see, so what lies there may be anything, even NaN (0 * NaN would be NaN). A page that only tile mates see
 * leaves its maximum, sum and output as they are. docs/internals/attention.md has the whole picture. Functions with
 * more than five parameters: counts that are compile-time constants are folded into each copy. */
#ifndef INFCGI_KERNELS_X86_ATTENTION_VEC_H
#define INFCGI_KERNELS_X86_ATTENTION_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/x86/exp_vec.h"

#include <math.h>

/* Two vectors at a time, of keys and of values: enough sums to hide the latency, few enough for the registers. */
enum { ATT_STEP = 2 * VEC_LANES };

/* A query of the tile. lo .. hi-1: the slots it sees of the page in hand; none when lo >= hi. */
struct att_query {
    int32_t from, pos; /* visible positions, both included */
    int lo, hi;
    float *result;
};

struct att_tile {
    int n; /* queries, 1 .. VEC_TILE */
    struct att_query queries[VEC_TILE];
    float max[VEC_LANES], correction[VEC_LANES];                   /* a lane for each query */
    float sum[VEC_TILE][VEC_LANES];                                /* partial sums of the weights */
    float weights[VEC_TILE][KERN_PAGE_TOKENS];                     /* scores, then weights, of the page in hand */
    float q[KERN_MAX_HEAD][VEC_TILE];                              /* scaled; component by component */
    float out[KERN_MAX_HEAD / VEC_LANES + 1][VEC_TILE][VEC_LANES]; /* not yet divided by the sum */
};

/* The part of a page's values that a call adds up. */
struct att_span {
    const uint16_t *values;
    const uint16_t *next; /* values of the next page, to prefetch */
    int d;
    int from, to; /* slots from .. to-1 */
};

/* Scores of n queries against the 32 keys of a page, into weights. next: keys of the next page. */
static ALWAYS_INLINE void att_scores_n(struct att_tile *t, const uint16_t *keys, const uint16_t *next, int d, int n)
{
    for (int h = 0; h < KERN_PAGE_TOKENS; h += ATT_STEP) {
        vec acc[VEC_TILE][2];
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            acc[i][0] = vec_set1(0);
            acc[i][1] = vec_set1(0);
        }
        for (int j = 0; j < d; j++) {
            const uint16_t *k = keys + j * KERN_PAGE_TOKENS + h;
            vec k0 = vec_load_f16(k), k1 = vec_load_f16(k + VEC_LANES);
            vec_prefetch(next + j * KERN_PAGE_TOKENS + h);
            UNROLL_FULLY
            for (int i = 0; i < n; i++) {
                vec q = vec_set1(t->q[j][i]);
                acc[i][0] = vec_fma(q, k0, acc[i][0]);
                acc[i][1] = vec_fma(q, k1, acc[i][1]);
            }
        }
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            vec_store(t->weights[i] + h, acc[i][0]);
            vec_store(t->weights[i] + h + VEC_LANES, acc[i][1]);
        }
    }
}

static void att_scores(struct att_tile *t, const uint16_t *keys, const uint16_t *next, int d)
{
    switch (t->n) {
    case 1:
        att_scores_n(t, keys, next, d, 1);
        break;
    case 2:
        att_scores_n(t, keys, next, d, 2);
        break;
    case 3:
        att_scores_n(t, keys, next, d, 3);
        break;
#if VEC_TILE == 8
    case 4:
        att_scores_n(t, keys, next, d, 4);
        break;
    case 5:
        att_scores_n(t, keys, next, d, 5);
        break;
    case 6:
        att_scores_n(t, keys, next, d, 6);
        break;
    case 7:
        att_scores_n(t, keys, next, d, 7);
        break;
#endif
    default:
        att_scores_n(t, keys, next, d, VEC_TILE);
        break;
    }
}

/* out = out * correction + weights . V, components c .. c+ATT_STEP-1 of n queries from `first` on. */
static ALWAYS_INLINE void att_columns(struct att_tile *t, const struct att_span *s, int c, int first, int n,
                                      bool is_full)
{
    vec acc[VEC_TILE][2];
    size_t left = (size_t)(s->d - c), right = left > VEC_LANES ? left - VEC_LANES : 0;
    float(*out)[VEC_TILE][VEC_LANES] = &t->out[c / VEC_LANES];
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        vec correction = vec_set1(t->correction[first + i]);
        acc[i][0] = vec_mul(vec_load(out[0][first + i]), correction);
        acc[i][1] = vec_mul(vec_load(out[1][first + i]), correction);
    }
    for (int k = s->from; k < s->to; k++) {
        size_t at = (size_t)k * (size_t)s->d + (size_t)c;
        const uint16_t *v = s->values + at;
        vec v0 = is_full ? vec_load_f16(v) : vec_load_f16_part(v, left);
        vec v1 = is_full ? vec_load_f16(v + VEC_LANES) : vec_load_f16_part(v + (right > 0 ? VEC_LANES : 0), right);
        vec_prefetch(s->next + at);
        UNROLL_FULLY
        for (int i = 0; i < n; i++) {
            vec w = vec_set1(t->weights[first + i][k]);
            acc[i][0] = vec_fma(w, v0, acc[i][0]);
            acc[i][1] = vec_fma(w, v1, acc[i][1]);
        }
    }
    UNROLL_FULLY
    for (int i = 0; i < n; i++) {
        vec_store(out[0][first + i], acc[i][0]);
        vec_store(out[1][first + i], acc[i][1]);
    }
}

static ALWAYS_INLINE void att_values_n(struct att_tile *t, const struct att_span *s, int first, int n)
{
    int c = 0;
    for (; c + ATT_STEP <= s->d; c += ATT_STEP) {
        att_columns(t, s, c, first, n, true);
    }
    if (c < s->d) {
        att_columns(t, s, c, first, n, false);
    }
    for (int i = first; i < first + n; i++) {
        t->correction[i] = 1.0f; /* done; a further span of the page adds to the same output */
    }
}

static void att_values_of_one(struct att_tile *t, struct att_span s, int i, int from, int to)
{
    s.from = from;
    s.to = to;
    if (from < to) {
        att_values_n(t, &s, i, 1);
    }
}

static void att_values_of_all(struct att_tile *t, const struct att_span *s)
{
    switch (t->n) {
    case 1:
        att_values_n(t, s, 0, 1);
        break;
    case 2:
        att_values_n(t, s, 0, 2);
        break;
    case 3:
        att_values_n(t, s, 0, 3);
        break;
#if VEC_TILE == 8
    case 4:
        att_values_n(t, s, 0, 4);
        break;
    case 5:
        att_values_n(t, s, 0, 5);
        break;
    case 6:
        att_values_n(t, s, 0, 6);
        break;
    case 7:
        att_values_n(t, s, 0, 7);
        break;
#endif
    default:
        att_values_n(t, s, 0, VEC_TILE);
        break;
    }
}

/* The values of a page: for each query in ascending order of slots; those that all see are added for all at once. */
static void att_values(struct att_tile *t, struct att_span s)
{
    int lo = 0, hi = KERN_PAGE_TOKENS;
    for (int i = 0; i < t->n; i++) {
        lo = MAX_OF(lo, t->queries[i].lo);
        hi = MIN_OF(hi, t->queries[i].hi);
    }
    if (lo >= hi) { /* nothing in common */
        lo = hi = KERN_PAGE_TOKENS;
    }
    for (int i = 0; i < t->n; i++) {
        att_values_of_one(t, s, i, t->queries[i].lo, MIN_OF(lo, t->queries[i].hi));
    }
    s.from = lo;
    s.to = hi;
    if (lo < hi) {
        att_values_of_all(t, &s);
    }
    for (int i = 0; i < t->n; i++) {
        att_values_of_one(t, s, i, hi, t->queries[i].hi);
    }
}

/* cap * tanh(s / cap) = cap - 2 cap / (exp(2 s / cap) + 1); that cancels near 0, where s / cap goes through a
 * polynomial instead [coefficients: Cephes tanhf, Moshier 1989]. */
static inline vec att_softcap(vec s, float cap)
{
    vec x = vec_mul(s, vec_set1(1.0f / cap)), z = vec_mul(x, x), p = vec_set1(-5.70498872745e-3f);
    p = vec_fma(p, z, vec_set1(2.06390887954e-2f));
    p = vec_fma(p, z, vec_set1(-5.37397155531e-2f));
    p = vec_fma(p, z, vec_set1(1.33314422036e-1f));
    p = vec_fma(p, z, vec_set1(-3.33332819422e-1f));
    p = vec_fma(vec_mul(p, z), s, s);
    vec e = vec_exp(vec_add(x, x));
    vec far = vec_sub(vec_set1(cap), vec_div(vec_set1(2.0f * cap), vec_add(e, vec_set1(1.0f))));
    return vec_if_less(z, vec_set1(0.390625f), p, far); /* 0.625^2; NaN: far, NaN too */
}

/* Caps and masks the scores of query i; returns its maximum up to and with this page, NaNs left out. */
static inline float att_mask(struct att_tile *t, int i, int32_t page_first, float softcap)
{
    const struct att_query *q = &t->queries[i];
    vec largest = vec_set1(-INFINITY);
    UNROLL_FULLY
    for (int v = 0; v < KERN_PAGE_TOKENS; v += VEC_LANES) {
        vec s = vec_load(t->weights[i] + v);
        s = softcap != 0 ? att_softcap(s, softcap) : s;
        s = vec_keep_range(s, vec_set1(-INFINITY), page_first + v, q->from, q->pos);
        vec_store(t->weights[i] + v, s);
        largest = vec_max(s, largest);
    }
    float max = vec_max_lane(largest);
    return max > t->max[i] ? max : t->max[i];
}

/* Scores become weights; maximums and sums move on; correction: what each output must be multiplied with. */
static void att_softmax(struct att_tile *t, int32_t page_first, float softcap)
{
    float max[VEC_LANES] = {0};
    for (int i = 0; i < t->n; i++) {
        struct att_query *q = &t->queries[i];
        q->lo = MAX_OF(q->from - page_first, 0);
        q->hi = MIN_OF(q->pos - page_first + 1, KERN_PAGE_TOKENS);
        max[i] = att_mask(t, i, page_first, softcap);
    }
    vec_store(t->correction, vec_exp(vec_sub(vec_load(t->max), vec_load(max))));
    vec_store(t->max, vec_load(max));
    for (int i = 0; i < t->n; i++) {
        if (t->queries[i].lo >= t->queries[i].hi) {
            continue; /* for tile mates only; before its first page the maximum is still -inf and p would be NaN */
        }
        vec sum = vec_mul(vec_load(t->sum[i]), vec_set1(t->correction[i])), shift = vec_set1(max[i]);
        UNROLL_FULLY
        for (int v = 0; v < KERN_PAGE_TOKENS; v += VEC_LANES) {
            vec p = vec_exp(vec_sub(vec_load(t->weights[i] + v), shift));
            vec_store(t->weights[i] + v, p);
            sum = vec_add(sum, p);
        }
        vec_store(t->sum[i], sum);
    }
}

/* Puts a query into the tile. */
static void att_add(struct att_tile *t, const struct kern_attention_args *a, int row, int head)
{
    size_t column = (size_t)head * (size_t)a->d;
    const float *q = a->q + (size_t)row * a->q_stride + column;
    int32_t pos = a->pos[row];
    int i = t->n++;
    t->queries[i] = (struct att_query){
        .from = a->window > 0 && pos - a->window + 1 > 0 ? pos - a->window + 1 : 0,
        .pos = pos,
        .result = a->out + (size_t)row * a->out_stride + column,
    };
    t->max[i] = -INFINITY;
    vec_store(t->sum[i], vec_set1(0));
    for (int j = 0; j < a->d; j++) {
        t->q[j][i] = q[j] * a->scale;
    }
    for (int c = 0; c < a->d; c += ATT_STEP) {
        vec_store(t->out[c / VEC_LANES][i], vec_set1(0));
        vec_store(t->out[c / VEC_LANES + 1][i], vec_set1(0));
    }
}

static void att_finish(const struct att_tile *t, int d)
{
    for (int i = 0; i < t->n; i++) {
        vec inverse = vec_set1(1.0f / vec_sum(vec_load(t->sum[i])));
        for (int c = 0; c < d; c += VEC_LANES) {
            vec v = vec_mul(vec_load(t->out[c / VEC_LANES][i]), inverse);
            vec_store_part(t->queries[i].result + c, v, (size_t)(d - c));
        }
    }
}

static void att_tile_run(struct att_tile *t, const struct kern_attention_args *a)
{
    int32_t first = t->queries[0].from, last = t->queries[0].pos;
    for (int i = 1; i < t->n; i++) {
        first = MIN_OF(first, t->queries[i].from);
        last = MAX_OF(last, t->queries[i].pos);
    }
    first /= KERN_PAGE_TOKENS;
    last /= KERN_PAGE_TOKENS;
    for (int32_t page = first; page <= last; page++) {
        const uint16_t *keys = (const void *)(a->base + (size_t)a->pages[page] * a->page_stride);
        const uint16_t *next = (const void *)(a->base + (size_t)a->pages[MIN_OF(page + 1, last)] * a->page_stride);
        size_t values = (size_t)a->d * KERN_PAGE_TOKENS; /* lie behind the keys */
        att_scores(t, keys, next, a->d);
        att_softmax(t, page * KERN_PAGE_TOKENS, a->softcap);
        att_values(t, (struct att_span){.values = keys + values, .next = next + values, .d = a->d});
    }
    att_finish(t, a->d);
}

static void vec_attention(const struct kern_attention_args *a)
{
    struct att_tile t;
    for (int i = 0; i < VEC_LANES; i++) { /* lanes of no query compute along */
        t.max[i] = 0;
    }
    int n_queries = a->n_rows * a->n_group;
    for (int from = 0; from < n_queries; from += VEC_TILE) {
        t.n = 0;
        for (int i = from; i < from + VEC_TILE && i < n_queries; i++) {
            att_add(&t, a, i / a->n_group, i % a->n_group);
        }
        att_tile_run(&t, a);
    }
}

#endif
