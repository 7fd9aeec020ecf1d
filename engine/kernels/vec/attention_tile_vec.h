/* Structures that the parts of vector attention share: a tile of queries, the current page, the memory of a call.
 * Include after a vec_<isa>.h. */
#ifndef INFCGI_KERNELS_VEC_ATTENTION_TILE_VEC_H
#define INFCGI_KERNELS_VEC_ATTENTION_TILE_VEC_H

#include "engine/kernels/kern.h"

enum {
    ATT_STEP = 2 * VEC_LANES, /* two vectors at a time: enough sums to hide the latency, few enough for the registers */
    ATT_PAGES = 4,            /* pages that share a softmax step: a block */
    ATT_SLOTS = ATT_PAGES * KV_PAGE_TOKENS,
    ATT_TILES = 16,           /* tiles per pass over the pages */
    ATT_ARENA_FLOATS = 24576, /* their queries and outputs: 96 KiB, a tenth of an L2 */
    ATT_MAX_BLOCKS = KERN_MAX_HEAD / 32,
    ATT_WEIGHT_LIMIT = 16383, /* integer weights: 32 slots * 16383 * 4095 < 2^31 */
    ATT_QUERY_LIMIT = 32767,
};

/* A query of a tile. It sees slots lo .. hi-1 of the current block; none if lo >= hi. */
struct att_query {
    int32_t from, pos; /* visible positions, both included */
    int lo, hi;
    int head;       /* of the group */
    int32_t own;    /* its row's position, with slopes or biases */
    float max, sum; /* of the segments so far */
    float *result;  /* output of the segments so far */
};

struct att_tile {
    _Alignas(64) float scale[VEC_LANES];         /* pending factor of scores, one lane per query */
    _Alignas(64) float max[VEC_LANES];           /* of this segment, in powers of two */
    _Alignas(64) float sum[VEC_TILE][VEC_LANES]; /* partial sums of the weights */
    struct att_query queries[VEC_TILE];
    int n;               /* queries, 1 .. VEC_TILE */
    int32_t first, last; /* positions that any query sees */
    float *out;          /* [VEC_TILE][width], not yet divided by the sum */
    float *q_float;      /* float keys: [d][VEC_TILE], scaled; latents: [VEC_TILE][d rounded up to 16] */
    int32_t *q_pairs;    /* integer keys: [d/2][VEC_TILE] pairs of 16-bit components */
};

struct att_page {
    const void *keys, *values;
    const unsigned char *next_keys, *next_values; /* prefetched during this page */
    const float *key_scales, *value_scales;       /* [n_blocks][32], integer types */
    bool narrow_keys, narrow_values;              /* 8-bit codes, widened on use */
};

/* Up to ATT_PAGES pages, beginning at a multiple of ATT_PAGES. */
struct att_block {
    int32_t first; /* position of slot 0 */
    int n_pages;
    struct att_page pages[ATT_PAGES];
};

/* The memory of a call. Aligned, because a vector across two cache lines costs twice. */
struct att_work {
    _Alignas(64) float correction[VEC_LANES];            /* factor of the outputs so far, one lane per query */
    _Alignas(64) float factor[VEC_LANES];                /* unit of integer weights */
    _Alignas(64) float weights[VEC_TILE][ATT_SLOTS];     /* scores, then weights, of the current block */
    _Alignas(64) float scaled[VEC_TILE][ATT_SLOTS];      /* weights times value scales */
    _Alignas(64) float largest[VEC_TILE][VEC_LANES];     /* of scaled, per lane */
    _Alignas(64) int32_t pairs[ATT_PAGES][VEC_TILE][16]; /* integer weights of slots i and i + 16 */
    _Alignas(64) float arena[ATT_ARENA_FLOATS];
    _Alignas(64) int16_t keys[ATT_PAGES][KERN_MAX_HEAD * KV_PAGE_TOKENS]; /* unpacked pages */
    _Alignas(64) int16_t values[ATT_PAGES][KERN_MAX_HEAD * KV_PAGE_TOKENS];
    _Alignas(64) float key_scales[ATT_PAGES][ATT_MAX_BLOCKS * KV_PAGE_TOKENS];
    _Alignas(64) float value_scales[ATT_PAGES][ATT_MAX_BLOCKS * KV_PAGE_TOKENS];
    struct att_tile tiles[ATT_TILES];
    const struct kern_attention_args *a;
    int width; /* d_value rounded up to 16 */
    int n_tiles;
};

/* Returns whether a value has one scale (integer types), so that weights are scaled while they are computed. */
static inline bool att_has_one_scale(const struct att_work *w)
{
    return !kv_type_is_float(w->a->kv.v.type) && w->a->kv.v.n_blocks == 1 && w->a->kv.v.type != KV_TYPE_Q4_0;
}

/* Evaluates `call` with a constant N equal to n, so that sums stay in registers. */
#define ATT_CASE(n, call)                                                                                              \
    case n: {                                                                                                          \
        enum { N = n };                                                                                                \
        call;                                                                                                          \
        break;                                                                                                         \
    }
#if VEC_TILE == 8
#define ATT_CASES_TO_7(call) ATT_CASE(4, call) ATT_CASE(5, call) ATT_CASE(6, call) ATT_CASE(7, call)
#else
#define ATT_CASES_TO_7(call)
#endif
#define ATT_WITH_N(n, call)                                                                                            \
    switch (n) {                                                                                                       \
        ATT_CASE(1, call)                                                                                              \
        ATT_CASE(2, call)                                                                                              \
        ATT_CASE(3, call)                                                                                              \
        ATT_CASES_TO_7(call)                                                                                           \
    default: {                                                                                                         \
        enum { N = VEC_TILE };                                                                                         \
        call;                                                                                                          \
    }                                                                                                                  \
    }

#endif
