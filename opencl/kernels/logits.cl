/* Statistics of rows of logits, so that the host need not read them all: arg-max, maximum and logsumexp of pieces of a
 * row, which the host combines, and the best tokens of rows that request some. */
#define WG 256

/* --- the best of many ----------------------------------------------------------------------------------------------- */

/* Input of pick: the logits x of n tokens starting at `first`, or of those in lists (OPTIONAL) that are MAX_BEST apart,
 * `per` in each, -1 for none. Ids ascend in both cases. */
struct source {
    __global const float *x;
    __global const int *lists;
    uint first, per, n;
};

/* Local memory that work-items share. */
struct room {
    uint2 sums[WG + WG / 16];
    uint bins[WG], found[2];
    int picked[MAX_BEST];
    uint keys[MAX_BEST];
};

static inline int id_of(struct source s, uint i)
{
    return s.lists == 0 ? (int)(s.first + i) : s.lists[i / s.per * MAX_BEST + i % s.per];
}

/* Returns a key in the order of logits: zeros of both signs are equal; NaN ranks last, before a missing token. */
static inline uint key_of(__global const float *x, int id)
{
    const float logit = id < 0 ? 0.0f : x[id];
    const uint bits = logit == 0.0f ? 0 : as_uint(logit);
    return id < 0 ? 0 : isnan(logit) ? 1 : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/* Returns the sum of `own` over all work-items before this one. */
static inline uint2 sum_before(uint2 own, uint lid, __local struct room *r)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    r->sums[lid] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < WG / 16) {
        uint2 sum = 0;
        for (uint i = 0; i < 16; i++) {
            sum += r->sums[16 * lid + i];
        }
        r->sums[WG + lid] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint2 sum = 0;
    for (uint i = 0; i < lid / 16; i++) {
        sum += r->sums[WG + i];
    }
    for (uint i = lid / 16 * 16; i < lid; i++) {
        sum += r->sums[i];
    }
    return sum;
}

/* Finds eight more bits of the key of the k-th best: known.x has the bits above `shift`, and the key is the known.y-th
 * of those with these bits. The barriers must not be in a loop (common.clh). */
static inline uint2 next_digit(struct source s, uint2 known, uint shift, uint lid, __local struct room *r)
{
    const uint mask = shift == 24 ? 0 : ~0u << (shift + 8);
    barrier(CLK_LOCAL_MEM_FENCE);
    r->bins[lid] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lid; i < s.n; i += WG) {
        const uint key = key_of(s.x, id_of(s, i));
        if ((key & mask) == known.x) {
            atomic_inc(&r->bins[WG - 1 - (key >> shift & 255)]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint own = r->bins[lid], above = sum_before((uint2)(own, 0), lid, r).x;
    if (above < known.y && known.y <= above + own) {
        r->found[0] = WG - 1 - lid;
        r->found[1] = known.y - above;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return (uint2)(known.x | r->found[0] << shift, r->found[1]);
}

/* Writes to r->picked[0 .. k-1] the ids of the best k of at least k tokens, ascending; of equal ones those with lower
 * ids. Ends with a barrier, so all can read them. */
static inline __attribute__((always_inline)) void pick(struct source s, uint k, uint lid, __local struct room *r)
{
    uint2 last = next_digit(s, (uint2)(0, k), 24, lid, r);
    last = next_digit(s, last, 16, lid, r);
    last = next_digit(s, last, 8, lid, r);
    last = next_digit(s, last, 0, lid, r);
    const uint per = (s.n + WG - 1) / WG, from = min(lid * per, s.n), to = min(from + per, s.n);
    uint2 n = 0; /* better ones, and those equal to the last, of which last.y are taken */
    for (uint i = from; i < to; i++) {
        const uint key = key_of(s.x, id_of(s, i));
        n += (uint2)(key > last.x, key == last.x);
    }
    n = sum_before(n, lid, r);
    for (uint i = from; i < to; i++) {
        const int id = id_of(s, i);
        const uint key = key_of(s.x, id);
        if (key > last.x || (key == last.x && n.y < last.y)) {
            r->picked[n.x + min(n.y, last.y)] = id;
        }
        n += (uint2)(key > last.x, key == last.x);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

/* group_id(0): a piece of `per` logits of row group_id(2). pieces[row][piece][PIECE_WORDS]: the maximum, its lowest
 * index (as bits), and the sum of exp(logit - maximum). lists[row][piece][MAX_BEST]: the piece's best, as many as the
 * row requests, ids ascending, padded with -1. */
__kernel GROUP(WG, 1) void piece(__global const int *restrict batch, __global const float *restrict logits, uint n,
                                 uint per, __global float *restrict pieces, __global int *restrict lists)
{
    __local struct room r;
    __local float room[WG];
    __local int at[WG];
    const uint lid = get_local_id(0), which = get_group_id(0), row = get_group_id(2);
    const uint from = which * per, to = min(from + per, n);
    __global const float *x = logits + (size_t)row * n;
    float max = -INFINITY;
    uint best = from;
    for (uint i = from + lid; i < to; i += WG) {
        if (x[i] > max) {
            max = x[i];
            best = i;
        }
    }
    const float largest = group_max(max, lid, WG, room);
    barrier(CLK_LOCAL_MEM_FENCE);
    at[lid] = max == largest ? (int)best : INT_MAX;
    float sum = 0.0f;
    for (uint i = from + lid; i < to; i += WG) {
        sum += exp(x[i] - largest);
    }
    sum = group_sum(sum, lid, WG, room);
    for (uint half_n = WG / 2; half_n > 0; half_n /= 2) {
        if (lid < half_n) {
            at[lid] = min(at[lid], at[lid + half_n]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lid == 0) {
        __global float *out = pieces + ((size_t)row * get_num_groups(0) + which) * PIECE_WORDS;
        out[0] = largest;
        out[1] = as_float(at[0]);
        out[2] = sum;
    }
    const uint k = batch[batch[BATCH_AT_WANTS] + 2 * row], n_own = min(k, to - from);
    if (k == 0) {
        return; /* all work-items return */
    }
    const struct source s = {x, 0, from, 0, to - from};
    pick(s, n_own, lid, &r);
    if (lid < k) {
        lists[((size_t)row * get_num_groups(0) + which) * MAX_BEST + lid] = lid < n_own ? r.picked[lid] : -1;
    }
}

/* A work-group finds the best tokens of a row of n logits in n_pieces, and stores them at the batch's offset, best
 * first: id (as bits) and logit, padded with -inf. */
__kernel GROUP(WG, 1) void best(__global const int *restrict batch, __global const float *restrict logits, uint n,
                                __global const int *restrict lists, uint n_pieces, __global float *restrict out)
{
    __local struct room r;
    const uint lid = get_local_id(0), row = get_group_id(2);
    __global const int *wants = batch + batch[BATCH_AT_WANTS] + 2 * row;
    const uint k = wants[0], n_own = min(k, n);
    if (k == 0) {
        return; /* all work-items return */
    }
    __global const float *x = logits + (size_t)row * n;
    const struct source s = {x, lists + (size_t)row * n_pieces * MAX_BEST, 0, k, n_pieces * k};
    pick(s, n_own, lid, &r);
    if (lid < n_own) {
        r.keys[lid] = key_of(x, r.picked[lid]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < k) {
        uint rank = 0;
        for (uint i = 0; i < n_own && lid < n_own; i++) {
            rank += r.keys[i] > r.keys[lid] || (r.keys[i] == r.keys[lid] && i < lid);
        }
        __global float *to = out + wants[1] + 2 * (lid < n_own ? rank : lid);
        to[0] = as_float(lid < n_own ? r.picked[lid] : 0);
        to[1] = lid < n_own ? x[r.picked[lid]] : -INFINITY;
    }
}
