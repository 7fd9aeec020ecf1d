/* Attention for every vector ISA: include after a vec_<isa>.h.
 *
 * Queries (rows x heads of the group) form tiles of VEC_TILE. A pass takes as many tiles as fit the arena through the
 * pages, in blocks of four, so that each page is read and unpacked once for all. Each query keeps a running maximum,
 * sum and output [online softmax, Milakov 2018], which is merged into those of the previous segments at the end of a
 * segment.
 *
 * The result of a query never depends on the others. No lanes are combined across queries. Scores of positions that a
 * query does not see are replaced after they are computed, so their content can be anything, even NaN. A page that only
 * other queries see leaves its maximum, sum and output unchanged. See docs/internals/attention.md. */
#ifndef INFCGI_KERNELS_VEC_ATTENTION_VEC_H
#define INFCGI_KERNELS_VEC_ATTENTION_VEC_H

#include "engine/kernels/vec/attention_float_vec.h"
#include "engine/kernels/vec/attention_int_vec.h"
#include "engine/kernels/vec/attention_latent_vec.h"
#include "engine/kernels/vec/exp_vec.h"

#include <math.h>
#include <string.h>

/* log2(e): exp(x) = 2^(x * log2(e)). */
#define ATT_LOG2_E 1.44269504088896341f

/* --- softmax ---------------------------------------------------------------------------------------------------- */

/* cap * tanh(s / cap) = cap - 2 cap / (exp(2 s / cap) + 1). Near 0 this cancels, so a polynomial of s / cap replaces it
 * [coefficients: Cephes tanhf, Moshier 1989]. */
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
    return vec_if_less(z, vec_set1(0.390625f), p, far); /* 0.625^2; a NaN selects far, also NaN */
}

/* Does something other than the scale and the mask change scores? These then include the scale. */
static inline bool att_changes_scores(const struct att_work *w)
{
    return w->a->softcap != 0 || w->a->slopes != NULL || w->a->biases != NULL;
}

/* Returns the biases of positions at distances first .. first + VEC_LANES - 1 of a query. */
static inline vec att_biases(const struct kern_attention_args *a, int head, int32_t first)
{
    int32_t reach = a->reach;
    const float *biases = a->biases + head * (2 * reach + 1) + reach; /* of distance 0 */
    if (first >= reach || first + VEC_LANES - 1 <= -reach) {
        return vec_set1(biases[first > 0 ? reach : -reach]);
    }
    if (first >= -reach && first + VEC_LANES - 1 <= reach) {
        return vec_load(biases + first);
    }
    _Alignas(64) float some[VEC_LANES];
    for (int i = 0; i < VEC_LANES; i++) {
        some[i] = biases[MAX_OF(-reach, MIN_OF(first + i, reach))];
    }
    return vec_load(some);
}

/* Caps, slopes or biases, and masks the scores of query i in a block that begins at position `first`. */
static void att_mask(struct att_work *w, const struct att_tile *t, int i, int32_t first, int n_slots)
{
    static const float lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const struct att_query *q = &t->queries[i];
    float cap = w->a->softcap, slope = w->a->slopes != NULL ? w->a->slopes[q->head] * -ATT_LOG2_E : 0;
    for (int v = 0; v < n_slots; v += VEC_LANES) {
        vec s = vec_load(w->weights[i] + v);
        if (cap != 0) {
            s = vec_mul(att_softcap(vec_mul(s, vec_set1(t->scale[i])), cap), vec_set1(ATT_LOG2_E));
        }
        if (w->a->slopes != NULL) {
            vec distance = vec_abs(vec_add(vec_load(lanes), vec_set1((float)(first + v - q->own))));
            s = vec_fma(distance, vec_set1(slope), vec_mul(s, vec_set1(t->scale[i])));
        } else if (w->a->biases != NULL) {
            vec bias = att_biases(w->a, q->head, first + v - q->own);
            s = vec_fma(bias, vec_set1(ATT_LOG2_E), vec_mul(s, vec_set1(t->scale[i])));
        }
        s = vec_keep_range(s, vec_set1(-INFINITY), v, q->lo, q->hi - 1);
        vec_store(w->weights[i] + v, s);
    }
}

/* Updates t->max with the scores of a block. Sets shift to minus the new maximums, and the correction by which outputs
 * and sums so far must be multiplied. Returns the pending factor of the scores. */
static inline vec att_maximums(struct att_work *w, struct att_tile *t, const struct att_block *b, float *shift)
{
    int n_slots = b->n_pages * KV_PAGE_TOKENS;
    vec largest[VEC_TILE];
    UNROLL_FULLY
    for (int i = 0; i < VEC_TILE; i++) {
        largest[i] = vec_set1(-INFINITY);
    }
    for (int i = 0; i < t->n; i++) {
        struct att_query *q = &t->queries[i];
        q->lo = MAX_OF(q->from - b->first, 0);
        q->hi = MIN_OF(q->pos - b->first + 1, n_slots);
        if (q->hi - q->lo < n_slots || att_changes_scores(w)) {
            att_mask(w, t, i, b->first, n_slots);
        }
        vec even = vec_set1(-INFINITY), odd = even;
        for (int v = 0; v < n_slots; v += 2 * VEC_LANES) { /* ignores NaNs */
            even = vec_max(vec_load(w->weights[i] + v), even);
            odd = vec_max(vec_load(w->weights[i] + v + VEC_LANES), odd);
        }
        largest[i] = vec_max(even, odd);
    }
    vec unit = att_changes_scores(w) ? vec_set1(1.0f) : vec_load(t->scale), before = vec_load(t->max);
    vec max = vec_max(vec_mul(vec_max_lanes(largest), unit), before);
    vec_store(w->correction, vec_exp2(vec_sub(before, max)));
    vec_store(t->max, max);
    vec_store(shift, vec_sub(vec_set1(0), max));
    return unit;
}

/* Computes the weights of one query. with_scales: each value has one scale, and the weights are multiplied by it. */
static ALWAYS_INLINE void att_weigh(struct att_work *w, struct att_tile *t, const struct att_block *b, int i,
                                    float scale, float shift, bool with_scales)
{
    const struct att_query *q = &t->queries[i];
    bool is_whole = q->hi - q->lo == b->n_pages * KV_PAGE_TOKENS;
    vec sum = vec_mul(vec_load(t->sum[i]), vec_set1(w->correction[i])), largest = vec_set1(0);
    for (int k = 0; k < b->n_pages; k++) {
        UNROLL_FULLY
        for (int v = 0; v < KV_PAGE_TOKENS; v += VEC_LANES) {
            int at = k * KV_PAGE_TOKENS + v;
            vec p = vec_exp2(vec_fma(vec_load(w->weights[i] + at), vec_set1(scale), vec_set1(shift)));
            sum = vec_add(sum, p);
            if (!with_scales) {
                vec_store(w->weights[i] + at, p);
                continue;
            }
            vec x = vec_mul(p, vec_load(b->pages[k].value_scales + v));
            x = is_whole ? x : vec_keep_range(x, vec_set1(0), at, q->lo, q->hi - 1);
            vec_store(w->scaled[i] + at, x);
            largest = vec_max(x, largest);
        }
    }
    vec_store(t->sum[i], sum);
    if (with_scales) {
        vec_store(w->largest[i], largest);
    }
}

/* Turns scores into weights and updates maximums and sums. Scores still need the factor t->scale, which includes
 * log2(e): weights are powers of two. */
static void att_softmax(struct att_work *w, struct att_tile *t, const struct att_block *b)
{
    _Alignas(64) float shift[VEC_LANES];
    _Alignas(64) float scale[VEC_LANES];
    vec_store(scale, att_maximums(w, t, b, shift));
    for (int i = 0; i < t->n; i++) {
        /* Before a query's first block the maximum is -inf, and the difference NaN. */
        if (t->queries[i].lo >= t->queries[i].hi) {
            w->correction[i] = 1.0f;
            memset(w->weights[i], 0, sizeof w->weights[i]);
            memset(w->scaled[i], 0, sizeof w->scaled[i]);
            memset(w->largest[i], 0, sizeof w->largest[i]);
        } else if (att_has_one_scale(w)) {
            att_weigh(w, t, b, i, scale[i], shift[i], true);
        } else {
            att_weigh(w, t, b, i, scale[i], shift[i], false);
        }
    }
}

/* --- segments --------------------------------------------------------------------------------------------------- */

/* Merges a segment's maximum, sum and output into those of the previous segments. */
static void att_fold(float *out, float *max, float *sum, const float *part, float part_max, float part_sum, int d)
{
    if (part_sum == 0) { /* no position is visible (a NaN is not 0) */
        return;
    }
    if (*sum == 0) {
        memcpy(out, part, (size_t)d * sizeof *out);
        *max = part_max;
        *sum = part_sum;
        return;
    }
    float both = *max > part_max ? *max : part_max;
    vec a = vec_exp2(vec_set1(*max - both)), b = vec_exp2(vec_set1(part_max - both));
    for (int c = 0; c < d; c += VEC_LANES) {
        size_t n = (size_t)(d - c);
        vec_store_part(out + c, vec_fma(vec_load_part(part + c, n), b, vec_mul(vec_load_part(out + c, n), a)), n);
    }
    float factors[2 * VEC_LANES];
    vec_store(factors, a);
    vec_store(factors + VEC_LANES, b);
    *sum = *sum * factors[0] + part_sum * factors[VEC_LANES];
    *max = both;
}

/* Returns the sum of a query's weights and the weight of its head's sink, which has no value. */
static float att_sum(const struct kern_attention_args *a, int head, float max, float sum)
{
    return a->sinks == NULL ? sum : sum + exp2f(a->sinks[head] * ATT_LOG2_E - max); /* infinity: the sink takes all */
}

/* Divides by the sum. Adding 0 turns -0 into 0, because -0 would depend on whether other queries saw more pages. */
static void att_divide(float *out, float sum, int d)
{
    vec inverse = vec_set1(1.0f / sum);
    for (int c = 0; c < d; c += VEC_LANES) {
        vec v = vec_fma(vec_load_part(out + c, (size_t)(d - c)), inverse, vec_set1(0));
        vec_store_part(out + c, v, (size_t)(d - c));
    }
}

static void att_begin_segment(struct att_work *w)
{
    for (int i = 0; i < w->n_tiles; i++) {
        struct att_tile *t = &w->tiles[i];
        for (int j = 0; j < VEC_LANES; j++) {
            t->max[j] = j < t->n ? -INFINITY : 0; /* lanes of no query compute along */
        }
        memset(t->sum, 0, sizeof t->sum);
        memset(t->out, 0, (size_t)(t->n * w->width) * sizeof *t->out);
    }
}

/* Ends a segment of the pass. part: receives the records; NULL: merge into the results. */
static void att_end_segment(struct att_work *w, float *part)
{
    int d = w->a->kv.d_value;
    for (int i = 0; i < w->n_tiles; i++) {
        struct att_tile *t = &w->tiles[i];
        for (int j = 0; j < t->n; j++) {
            struct att_query *q = &t->queries[j];
            const float *out = t->out + j * w->width;
            float sum = vec_sum(vec_load(t->sum[j]));
            if (part == NULL) {
                att_fold(q->result, &q->max, &q->sum, out, t->max[j], sum, d);
                continue;
            }
            memcpy(part, out, (size_t)d * sizeof *part);
            part[w->width] = t->max[j];
            part[w->width + 1] = sum;
            part += kern_part_floats(d);
        }
    }
}

static void att_tile_run(struct att_work *w, struct att_tile *t, const struct att_block *b)
{
    for (int k = 0; k < b->n_pages; k++) {
        int at = k * KV_PAGE_TOKENS;
        if (w->a->kv.is_latent) {
            att_latent_scores(w, t, &b->pages[k], at);
        } else if (!kv_type_is_float(w->a->kv.k.type)) {
            att_int_scores(w, t, &b->pages[k], at);
        } else {
            att_float_scores(w, t, &b->pages[k], at);
        }
    }
    att_softmax(w, t, b);
    (kv_type_is_float(w->a->kv.v.type) ? att_float_values : att_int_values)(w, t, b);
}

/* Returns page `page` of the sequence and the page to prefetch: the next one, or the caller's next after `last`. */
static inline struct att_page att_page_of(const struct kern_attention_args *a, int32_t page, int32_t last)
{
    size_t here = (size_t)a->pages[page], next = (size_t)a->pages[MIN_OF(page + 1, last)];
    bool is_callers = page == last && a->next_keys != NULL;
    struct att_page p = {.keys = a->keys + here * a->page_bytes,
                         .values = a->values + here * a->page_bytes,
                         .next_keys = is_callers ? a->next_keys : a->keys + next * a->page_bytes,
                         .next_values = is_callers ? a->next_values : a->values + next * a->page_bytes};
    for (uint32_t i = 0; i < 2 * 64; i += 64) { /* the loops prefetch codes, but not scales */
        vec_prefetch(p.next_keys + MIN_OF(a->kv.k.scales + i, a->kv.k.bytes - 1));
        vec_prefetch(p.next_values + MIN_OF(a->kv.v.scales + i, a->kv.v.bytes - 1));
    }
    return p;
}

/* Computes pages from .. to of one block for all tiles that see any of them; pages up to `last` follow. */
static void att_block_run(struct att_work *w, int32_t from, int32_t to, int32_t last)
{
    struct att_block b = {.first = from * KV_PAGE_TOKENS, .n_pages = to - from + 1};
    for (int k = 0; k < b.n_pages; k++) {
        b.pages[k] = att_page_of(w->a, from + k, last);
        if (!kv_type_is_float(w->a->kv.k.type)) {
            att_int_keys(w, &b.pages[k], k);
        }
        if (!kv_type_is_float(w->a->kv.v.type)) {
            att_int_values_of(w, &b.pages[k], k);
        }
    }
    int n_pages = b.n_pages;
    for (int i = 0; i < w->n_tiles; i++) {
        struct att_tile *t = &w->tiles[i];
        if (t->last >= b.first && t->first < (to + 1) * KV_PAGE_TOKENS) {
            b.n_pages = MIN_OF(n_pages, t->last / KV_PAGE_TOKENS - from + 1);
            att_tile_run(w, t, &b);
        }
    }
}

/* Computes the pages of one segment that any query sees; segments up to `until` follow. */
static void att_segment_run(struct att_work *w, int32_t segment, int32_t until)
{
    enum { PAGES = KERN_SEGMENT_TOKENS / KV_PAGE_TOKENS };
    int32_t first = INT32_MAX, last = 0;
    for (int i = 0; i < w->n_tiles; i++) {
        first = MIN_OF(first, w->tiles[i].first);
        last = MAX_OF(last, w->tiles[i].last);
    }
    last = MIN_OF(last / KV_PAGE_TOKENS, until * PAGES + PAGES - 1);
    first = MAX_OF(first / KV_PAGE_TOKENS, segment * PAGES);
    int32_t to = MIN_OF(last, segment * PAGES + PAGES - 1);
    while (first <= to) { /* blocks end at multiples of ATT_PAGES */
        int32_t end = MIN_OF(to, first / ATT_PAGES * ATT_PAGES + ATT_PAGES - 1);
        att_block_run(w, first, end, last);
        first = end + 1;
    }
}

/* --- queries ---------------------------------------------------------------------------------------------------- */

/* Returns the floats of the arena that a tile uses. */
static int att_tile_floats(const struct att_work *w)
{
    int d = w->a->kv.d;
    return VEC_TILE * (w->width + (kv_type_is_float(w->a->kv.k.type) ? (d + 15) / 16 * 16 : (d / 2 + 15) / 16 * 16));
}

/* Appends query `index` (row by row, head by head) to a tile. */
static void att_add(struct att_work *w, struct att_tile *t, int index)
{
    const struct kern_attention_args *a = w->a;
    int row = index / a->n_group, head = index % a->n_group, d = a->kv.d, i = t->n++;
    const float *q = a->q + (size_t)row * a->q_stride + (size_t)(head * d);
    float *result = a->out + (size_t)row * a->out_stride + (size_t)(head * a->kv.d_value);
    int32_t pos = a->pos[row], from = kern_visible_from(a, row);
    t->queries[i] = (struct att_query){.from = from, .pos = pos, .head = head, .result = result};
    t->queries[i].own = a->slopes != NULL || a->biases != NULL ? a->own[row] : 0;
    float scale = a->softcap != 0 ? a->scale : a->scale * ATT_LOG2_E;
    t->first = i == 0 ? from : MIN_OF(t->first, from);
    t->last = i == 0 ? pos : MAX_OF(t->last, pos);
    if (!kv_type_is_float(a->kv.k.type)) {
        att_int_query(t, i, q, d, scale);
        return;
    }
    t->scale[i] = 1.0f;
    if (a->kv.is_latent) {
        att_latent_query(t, i, q, d, scale);
        return;
    }
    for (int j = 0; j < d; j++) {
        t->q_float[j * VEC_TILE + i] = q[j] * scale;
    }
}

/* Fills the tiles of a pass with queries from `from` on; returns the first query left over. */
static int att_fill(struct att_work *w, int from, int n_queries)
{
    int floats = att_tile_floats(w); /* a multiple of 16 */
    for (w->n_tiles = 0; from < n_queries && w->n_tiles < ATT_TILES; w->n_tiles++) {
        if ((w->n_tiles + 1) * floats > ATT_ARENA_FLOATS) {
            break;
        }
        struct att_tile *t = &w->tiles[w->n_tiles];
        t->out = w->arena + w->n_tiles * floats;
        t->q_float = t->out + VEC_TILE * w->width;
        t->q_pairs = (int32_t *)(void *)t->q_float;
        memset(t->scale, 0, sizeof t->scale); /* lanes of no query compute along */
        for (t->n = 0; from < n_queries && t->n < VEC_TILE; from++) {
            att_add(w, t, from);
        }
    }
    return from;
}

static void vec_attention(const struct kern_attention_args *a)
{
    struct att_work w;
    w.a = a;
    w.width = kv_value_width(a->kv.d_value);
    int n = a->n_rows * a->n_group;
    for (int from = 0; from < n;) {
        int32_t first = kern_first_segment(a, from / a->n_group);
        from = att_fill(&w, from, n);
        int32_t last = a->pos[(from - 1) / a->n_group];
        for (int32_t s = first; s <= kern_last_segment(last); s++) {
            att_begin_segment(&w);
            att_segment_run(&w, s, kern_last_segment(last));
            att_end_segment(&w, NULL);
        }
        for (int i = 0; i < w.n_tiles; i++) {
            for (int j = 0; j < w.tiles[i].n; j++) {
                const struct att_query *q = &w.tiles[i].queries[j];
                att_divide(q->result, att_sum(a, q->head, q->max, q->sum), a->kv.d_value);
            }
        }
    }
}

static void vec_attention_part(const struct kern_attention_args *a, int32_t segment, int n, float *parts,
                               size_t part_stride)
{
    struct att_work w;
    w.a = a;
    w.width = kv_value_width(a->kv.d_value);
    int n_queries = a->n_rows * a->n_group;
    for (int from = 0; from < n_queries;) {
        float *part = parts + (size_t)from * kern_part_floats(a->kv.d_value);
        from = att_fill(&w, from, n_queries);
        for (int32_t s = segment; s < segment + n; s++, part += part_stride) {
            att_begin_segment(&w);
            att_segment_run(&w, s, segment + n - 1);
            att_end_segment(&w, part);
        }
    }
}

static void vec_attention_join(const struct kern_attention_args *a, const float *parts, size_t part_stride, int n)
{
    int d = a->kv.d_value, width = kv_value_width(d);
    for (int i = 0; i < a->n_rows * a->n_group; i++) {
        const float *part = parts + (size_t)i * kern_part_floats(d);
        float *out = a->out + (size_t)(i / a->n_group) * a->out_stride + (size_t)(i % a->n_group * d);
        float max = -INFINITY, sum = 0;
        for (int s = 0; s < n; s++, part += part_stride) {
            att_fold(out, &max, &sum, part, part[width], part[width + 1], d);
        }
        att_divide(out, att_sum(a, i % a->n_group, max, sum), d);
    }
}

#endif
