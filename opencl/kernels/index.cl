/* The index of latent attention [DeepSeek-AI 2025, "DeepSeek-V3.2"]: RoPE of its heads, and the choice of positions by their
 * scores. Index keys of a layer are halves, [page][unit of 8 components][slot][8]; their width is a multiple of 8. */
#define WG       64
#define CHOOSERS 256
#define MAX_HEAD 576
#define HEADS    4 /* heads that read a key together: scalar registers hold their queries */

/* A work-group rotates an index head of a row: a query in place, or, after all of these, the key, which it stores. */
__kernel GROUP(WG, 1) void index_heads(__global const int *restrict batch, __global float *q, uint q_stride,
                                       __global const float *restrict k, uint k_stride, __global half *restrict keys,
                                       int at_table, uint n_heads, uint d, int rope, uint n_rot, uint first, int is_neox)
{
    __local float head[MAX_HEAD];
    const uint lid = get_local_id(0), h = get_group_id(0), row = get_group_id(2);
    __global float *to = q + (size_t)row * q_stride + (size_t)h * d;
    __global const float *from = h < n_heads ? to : k + (size_t)row * k_stride;
    for (uint j = lid; j < d; j += WG) {
        head[j] = from[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    rotate_head(head + first, batch, rope, row, n_rot, is_neox, lid, WG);
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint pos = batch[batch[BATCH_AT_POS] + row];
    const size_t page = batch[batch[batch[at_table] + row] + pos / KV_SLOTS];
    for (uint j = lid; j < d; j += WG) {
        if (h < n_heads) {
            to[j] = head[j];
        } else {
            vstore_half(to_half_range(head[j]), ((page * (d / 8) + j / 8) * KV_SLOTS + pos % KV_SLOTS) * 8 + j % 8, keys);
        }
    }
}

/* Returns a number in the order of scores: NaNs are largest, and -0 is 0. */
static inline uint order_of(float score)
{
    const uint bits = as_uint(score + 0.0f);
    return isnan(score) ? UINT_MAX : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* Returns the score of a position; the order of its sum is that of the heads. */
static inline float score_of(__global const half *key, __global const float *q, __global const float *weights, uint n_heads,
                             uint d)
{
    float score = 0.0f;
    for (uint h = 0; h < n_heads; h += HEADS) {
        float dots[HEADS];
        UNROLL
        for (uint i = 0; i < HEADS; i++) {
            dots[i] = 0.0f;
        }
        for (uint u = 0; u < d / 8; u++) {
            const float8 part = vload_half8(u * KV_SLOTS, key);
            UNROLL
            for (uint i = 0; i < HEADS; i++) {
                const float8 of = vload8(u, q + (size_t)min(h + i, n_heads - 1) * d);
                dots[i] = add_8(part, of, dots[i]);
            }
        }
        UNROLL
        for (uint i = 0; i < HEADS; i++) {
            const float term = weights[min(h + i, n_heads - 1)] * (dots[i] < 0.0f ? 0.0f : dots[i]); /* a NaN stays */
            score = h + i < n_heads ? score + term : score;
        }
    }
    return score;
}

/* A work-group chooses k positions of each of `per_group` rows, ascending, as engine/backend/choose_positions.c does.
 * scores: memory of n_scores floats for each group. */
__kernel GROUP(CHOOSERS, 1) void choose(__global const int *restrict batch, __global const float *restrict q, uint q_stride,
                                        __global const float *restrict weights, uint weights_stride,
                                        __global const half *restrict keys, int at_table, uint n_heads, uint d, uint k,
                                        uint per_group, __global float *scores, ulong n_scores,
                                        __global float *restrict dst, uint dst_stride)
{
    __local uint counts[256], greater[CHOOSERS], equal[CHOOSERS], found[2]; /* the order's leading bytes; how many equal it */
    const uint lid = get_local_id(0), group = get_group_id(2);
    __global float *own = scores + group * n_scores;
    for (uint i = 0; i < per_group; i++) {
        const uint row = min(group * per_group + i, (uint)batch[BATCH_ROWS] - 1);
        const uint all = (uint)batch[batch[BATCH_AT_POS] + row] + 1, n = all <= k ? 0 : all;
        __global const int *table = batch + batch[batch[at_table] + row];
        for (uint t = lid; t < n; t += CHOOSERS) {
            const size_t page = table[t / KV_SLOTS];
            own[t] = score_of(keys + (page * (d / 8) * KV_SLOTS + t % KV_SLOTS) * 8, q + (size_t)row * q_stride,
                              weights + (size_t)row * weights_stride, n_heads, d);
        }
        if (lid == 0) {
            found[0] = 0;
            found[1] = k;
        }
        for (int shift = 24; shift >= 0; shift -= 8) {
            counts[lid] = 0;
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            const uint prefix = found[0], mask = shift == 24 ? 0 : UINT_MAX << (shift + 8);
            for (uint t = lid; t < n; t += CHOOSERS) {
                const uint order = order_of(own[t]);
                if ((order & mask) == prefix) {
                    atomic_inc(&counts[order >> shift & 255]);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lid == 0) {
                uint byte = 255, left = found[1];
                for (; byte > 0 && counts[byte] < left; byte--) {
                    left -= counts[byte];
                }
                found[0] = prefix | byte << shift;
                found[1] = left;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const uint least = found[0], share = (n + CHOOSERS - 1) / CHOOSERS;
        const uint from = min(lid * share, n), to = min(from + share, n);
        uint n_greater = 0, n_equal = 0;
        for (uint t = from; t < to; t++) {
            const uint order = order_of(own[t]);
            n_greater += order > least ? 1 : 0;
            n_equal += order == least ? 1 : 0;
        }
        greater[lid] = n_greater;
        equal[lid] = n_equal;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid == 0) { /* become the numbers before each share */
            uint sum_greater = 0, sum_equal = 0;
            for (uint j = 0; j < CHOOSERS; j++) {
                const uint g = greater[j], e = equal[j];
                greater[j] = sum_greater;
                equal[j] = sum_equal;
                sum_greater += g;
                sum_equal += e;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        __global float *out = dst + (size_t)row * dst_stride;
        uint before = equal[lid], at = greater[lid] + min(before, found[1]);
        for (uint t = from; t < to; t++) {
            const uint order = order_of(own[t]);
            if (order > least || (order == least && before < found[1])) {
                out[at++] = (float)t;
            }
            before += order == least ? 1 : 0;
        }
        for (uint t = lid; t < k && n == 0; t += CHOOSERS) {
            out[t] = t < all ? (float)t : -1.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
}
