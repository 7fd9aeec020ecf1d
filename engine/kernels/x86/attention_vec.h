/* Attention, once for every x86 ISA: include after a vec_<isa>.h.
 *
 * Queries (rows x heads of the group) are taken VEC_TILE at a time, so that keys and values are widened from f16 once for
 * the tile. Each query keeps a running maximum, sum and output [online softmax, Milakov 2018]; pages come one after the
 * other. What one query computes never depends on its tile mates: a page that is masked for it changes nothing, exactly
 * (its weights are 0 and its correction is exp(0) = 1). */
#ifndef INFCGI_KERNELS_X86_ATTENTION_VEC_H
#define INFCGI_KERNELS_X86_ATTENTION_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/x86/exp_vec.h"

#include <math.h>
#include <string.h>

enum { PAGE_VECS = KERN_PAGE_TOKENS / VEC_LANES };

/* A query of the tile and what it has seen. */
struct att_query {
    int32_t from, pos; /* visible positions, both included */
    float max, sum;
    float *result;
};

struct att_tile {
    int n;
    struct att_query queries[VEC_TILE];
    float q[VEC_TILE][KERN_MAX_HEAD];      /* scaled */
    float out[VEC_TILE][KERN_MAX_HEAD];    /* not yet divided by sum */
    float weights[VEC_TILE][KERN_PAGE_TOKENS];
};

/* Scores of all queries of the tile against the 32 keys of a page, into weights. Unused queries compute along. */
static inline void att_scores(struct att_tile *t, const uint16_t *keys, int d)
{
    vec acc[VEC_TILE][PAGE_VECS];
    for (int i = 0; i < VEC_TILE; i++) {
        for (int v = 0; v < PAGE_VECS; v++) {
            acc[i][v] = vec_set1(0);
        }
    }
    for (int j = 0; j < d; j++) {
        vec k[PAGE_VECS];
        for (int v = 0; v < PAGE_VECS; v++) {
            k[v] = vec_load_f16(keys + j * KERN_PAGE_TOKENS + v * VEC_LANES);
        }
        for (int i = 0; i < VEC_TILE; i++) {
            vec q = vec_set1(t->q[i][j]);
            for (int v = 0; v < PAGE_VECS; v++) {
                acc[i][v] = vec_fma(q, k[v], acc[i][v]);
            }
        }
    }
    for (int i = 0; i < VEC_TILE; i++) {
        for (int v = 0; v < PAGE_VECS; v++) {
            vec_store(t->weights[i] + v * VEC_LANES, acc[i][v]);
        }
    }
}

static inline vec att_softcap(vec s, float cap) /* cap * tanh(s / cap) = cap - 2 cap / (exp(2 s / cap) + 1) */
{
    vec e = vec_exp(vec_mul(s, vec_set1(2.0f / cap)));
    return vec_sub(vec_set1(cap), vec_div(vec_set1(2.0f * cap), vec_add(e, vec_set1(1.0f))));
}

/* Scores of query i become weights; its maximum and sum move on; returns what its output must be multiplied with. */
static inline float att_softmax(struct att_tile *t, int i, int32_t first, float softcap)
{
    struct att_query *q = &t->queries[i];
    vec s[PAGE_VECS], largest = vec_set1(-INFINITY), sum = vec_set1(0);
    for (int v = 0; v < PAGE_VECS; v++) {
        s[v] = vec_load(t->weights[i] + v * VEC_LANES);
        s[v] = softcap != 0 ? att_softcap(s[v], softcap) : s[v];
        s[v] = vec_keep_range(s[v], vec_set1(-INFINITY), first + v * VEC_LANES, q->from, q->pos);
        largest = vec_max(largest, s[v]);
    }
    float max = vec_max_lane(largest);
    max = max > q->max ? max : q->max;
    if (max == -INFINITY) { /* nothing visible so far */
        memset(t->weights[i], 0, sizeof t->weights[i]);
        return 1.0f;
    }
    for (int v = 0; v < PAGE_VECS; v++) {
        vec p = vec_exp(vec_sub(s[v], vec_set1(max)));
        vec_store(t->weights[i] + v * VEC_LANES, p);
        sum = vec_add(sum, p);
    }
    float correction[VEC_LANES];
    vec_store(correction, vec_exp(vec_set1(q->max - max)));
    q->sum = q->sum * correction[0] + vec_sum(sum);
    q->max = max;
    return correction[0];
}

/* out = out * correction + weights . V for the first n_tokens values of a page. */
static inline void att_values(struct att_tile *t, const uint16_t *values, int d, int n_tokens, const float *correction)
{
    for (int c = 0; c < d; c += VEC_LANES) {
        size_t width = (size_t)(d - c);
        vec acc[VEC_TILE];
        for (int i = 0; i < VEC_TILE; i++) {
            acc[i] = vec_mul(vec_load(t->out[i] + c), vec_set1(correction[i]));
        }
        for (int k = 0; k < n_tokens; k++) {
            const uint16_t *row = values + (size_t)k * (size_t)d + c;
            vec v = width >= VEC_LANES ? vec_load_f16(row) : vec_load_f16_part(row, width);
            for (int i = 0; i < VEC_TILE; i++) {
                acc[i] = vec_fma(vec_set1(t->weights[i][k]), v, acc[i]);
            }
        }
        for (int i = 0; i < VEC_TILE; i++) {
            vec_store(t->out[i] + c, acc[i]);
        }
    }
}

static void att_tile_run(struct att_tile *t, const struct kern_attention_args *a)
{
    int32_t first = t->queries[0].from, last = 0;
    for (int i = 0; i < t->n; i++) {
        first = t->queries[i].from < first ? t->queries[i].from : first;
        last = t->queries[i].pos > last ? t->queries[i].pos : last;
    }
    for (int32_t page = first / KERN_PAGE_TOKENS; page <= last / KERN_PAGE_TOKENS; page++) {
        const uint16_t *keys = (const void *)(a->base + (size_t)a->pages[page] * a->page_stride);
        const uint16_t *values = keys + (size_t)a->d * KERN_PAGE_TOKENS;
        int32_t page_first = page * KERN_PAGE_TOKENS;
        float correction[VEC_TILE];
        att_scores(t, keys, a->d);
        for (int i = 0; i < VEC_TILE; i++) {
            correction[i] = att_softmax(t, i, page_first, a->softcap);
        }
        /* Slots behind the last query's position may hold anything, even NaN, and 0 * NaN is NaN: leave them out. */
        int32_t n = last - page_first + 1;
        att_values(t, values, a->d, n < KERN_PAGE_TOKENS ? n : KERN_PAGE_TOKENS, correction);
    }
    for (int i = 0; i < t->n; i++) {
        vec inverse = vec_set1(1.0f / t->queries[i].sum);
        for (size_t c = 0; c < (size_t)a->d; c += VEC_LANES) {
            vec_store_part(t->queries[i].result + c, vec_mul(vec_load(t->out[i] + c), inverse), (size_t)a->d - c);
        }
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
        .max = -INFINITY,
        .result = a->out + (size_t)row * a->out_stride + column,
    };
    for (int j = 0; j < a->d; j++) {
        t->q[i][j] = q[j] * a->scale;
    }
    memset(t->out[i], 0, sizeof t->out[i]);
}

static void vec_attention(const struct kern_attention_args *a)
{
    struct att_tile t;
    int n_queries = a->n_rows * a->n_group;
    for (int from = 0; from < n_queries; from += VEC_TILE) {
        t.n = 0;
        for (int i = from; i < from + VEC_TILE && i < n_queries; i++) {
            att_add(&t, a, i / a->n_group, i % a->n_group);
        }
        for (int i = t.n; i < VEC_TILE; i++) { /* the rest sees nothing */
            t.queries[i] = (struct att_query){.from = 0, .pos = -1, .max = -INFINITY};
            memset(t.q[i], 0, sizeof t.q[i]);
            memset(t.out[i], 0, sizeof t.out[i]);
        }
        att_tile_run(&t, a);
    }
}

#endif
