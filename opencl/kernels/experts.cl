/* Experts: the routing of rows [Shazeer 2017; DeepSeek-V2, 2.1.2; DeepSeek-V3, 2.1.2], lists of the rows of each
 * expert, and the sum of their results. matmul.cl with PICKED multiplies. A pick is a row and one of its experts, row *
 * k + place. */
#define MAX_EXPERTS 1024
#define MAX_USED    64

enum { GATE_SOFTMAX, GATE_SIGMOID, GATE_SOFTMAX_PICKED };

/* Returns how many of x[n] rank before element i: larger ones, and equal ones of lower index; NaNs rank last. */
static inline uint rank_of(__local const float *x, uint n, uint i)
{
    const float own = isnan(x[i]) ? -INFINITY : x[i];
    const uint is_none = isnan(x[i]) ? 1 : 0;
    uint rank = 0;
    for (uint j = 0; j < n; j++) {
        const uint other_none = isnan(x[j]) ? 1 : 0;
        const float other = other_none != 0 ? -INFINITY : x[j];
        const bool is_ahead = other_none != is_none ? is_none != 0 : other > own || (other == own && j < i);
        rank += is_ahead ? 1 : 0;
    }
    return rank;
}

/* Writes to dst[row] k weights, then k ids, of the experts that logits[row][n] select, like
 * engine/backend/moe_route.c. */
__kernel GROUP(LANES, 1) void route(__global const int *restrict batch, __global const float *restrict logits,
                                    uint stride, uint n, uint k, uint n_groups, uint n_groups_used, int by_two,
                                    int gating, int norms_weights, float weights_scale,
                                    __global const float *restrict bias, int has_bias,
                                    __global const float *restrict factors, int has_factors,
                                    __global float *restrict dst, uint dst_stride)
{
    __local float score[MAX_EXPERTS], picking[MAX_EXPERTS], groups[MAX_EXPERTS], room[LANES], weights[MAX_USED];
    __local int is_kept[MAX_EXPERTS], picked[MAX_USED];
    const uint lane = get_local_id(0), row = get_group_id(2), per = n / n_groups;
    __global const float *x = logits + (size_t)row * stride;
    float max = -INFINITY, sum = 0.0f;
    for (uint e = lane; e < n; e += LANES) {
        max = fmax(max, x[e]);
    }
    max = group_max(max, lane, LANES, room);
    for (uint e = lane; e < n; e += LANES) {
        score[e] = gating == GATE_SIGMOID ? sigmoid(x[e]) : gating == GATE_SOFTMAX ? exp(x[e] - max) : x[e];
        sum += score[e];
    }
    sum = group_sum(sum, lane, LANES, room);
    for (uint e = lane; e < n; e += LANES) {
        score[e] = gating == GATE_SOFTMAX ? score[e] / sum : score[e];
        picking[e] = score[e] + (has_bias ? bias[e] : 0.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint g = lane; g < n_groups; g += LANES) {
        float first = -INFINITY, second = -INFINITY;
        for (uint i = g * per; i < g * per + per; i++) {
            const float v = picking[i];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        groups[g] = by_two && per > 1 ? first + second : first;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint g = lane; g < n_groups; g += LANES) {
        is_kept[g] = rank_of(groups, n_groups, g) < n_groups_used;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = lane; e < n; e += LANES) { /* ranks after all eligible experts */
        picking[e] = is_kept[e / per] ? picking[e] : NAN;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = lane; e < n; e += LANES) {
        const uint rank = rank_of(picking, n, e);
        if (rank < k) {
            picked[rank] = (int)e;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global float *out = dst + (size_t)row * dst_stride;
    for (uint i = lane; i < k; i += LANES) {
        const float of = score[picked[i]];
        weights[i] = gating == GATE_SOFTMAX_PICKED ? exp(of - score[picked[0]]) : of;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        float all = 0.0f;
        for (uint i = 0; i < k; i++) {
            all += weights[i];
        }
        const float divisor = norms_weights || gating == GATE_SOFTMAX_PICKED ? all + 1e-20f : 1.0f;
        for (uint i = 0; i < k; i++) {
            const float factor = has_factors ? factors[picked[i]] : 1.0f;
            out[k + i] = (float)picked[i];
            out[i] = weights[i] / divisor * weights_scale * factor;
        }
    }
}

/* Lists the picks by expert, and tiles of at most `per_tile` of them: tiles[0] is the number of tiles, then each has
 * expert, first pick in the list, picks. One work-group. */
__kernel GROUP(256, 1) void sort(__global const int *restrict batch, int rows, __global const float *restrict routes,
                                 uint stride, uint n, uint k, uint per_tile, __global int *restrict picks,
                                 __global int *restrict tiles)
{
    __local int count[MAX_EXPERTS], begin[MAX_EXPERTS], first_tile[MAX_EXPERTS + 1];
    const uint lid = get_local_id(0), n_picks = batch[rows] * k;
    for (uint e = lid; e < n; e += 256) {
        count[e] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = lid; p < n_picks; p += 256) {
        atomic_inc(&count[(uint)routes[(size_t)(p / k) * stride + k + p % k]]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid == 0) {
        int at = 0, tile = 0;
        for (uint e = 0; e < n; e++) {
            begin[e] = at;
            first_tile[e] = tile;
            at += count[e];
            tile += (count[e] + (int)per_tile - 1) / (int)per_tile;
        }
        first_tile[n] = tile;
        tiles[0] = tile;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = lid; e < n; e += 256) {
        for (int t = first_tile[e], at = 0; t < first_tile[e + 1]; t++, at += (int)per_tile) {
            tiles[1 + 3 * t] = (int)e;
            tiles[2 + 3 * t] = begin[e] + at;
            tiles[3 + 3 * t] = min((int)per_tile, count[e] - at);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    /* the order of an expert's picks does not matter, because they are independent */
    for (uint p = lid; p < n_picks; p += 256) {
        picks[atomic_inc(&begin[(uint)routes[(size_t)(p / k) * stride + k + p % k]])] = (int)p;
    }
}

/* Computes gate = act(weight * gate) * (weight * up) for each pick: of experts whose weights are factors of their input. */
__kernel GROUP(64, 1) void weigh_gated(__global const int *restrict batch, __global const float *restrict routes,
                                       uint stride, uint k, int act, __global float *gate, uint gate_stride, uint n,
                                       __global const float *restrict up, uint up_stride)
{
    const uint pick = get_group_id(2), i = get_global_id(0);
    const float weight = routes[(size_t)(pick / k) * stride + pick % k];
    if (i < n) {
        __global float *y = gate + (size_t)pick * gate_stride + i;
        *y = glu(act, weight * *y, weight * up[(size_t)pick * up_stride + i]);
    }
}

/* Computes dst[row][width] = scale * the sum of weight * made[pick] over a row's experts in ascending order of their
 * ids, or without weights; with FLAG_ADDS added to dst. */
__kernel GROUP(64, 1) void combine(__global const int *restrict batch, __global const float *restrict routes,
                                   uint stride, uint k, __global const float *restrict made, uint made_stride,
                                   float scale, int has_weights, int flags, __global float *dst, uint dst_stride,
                                   uint width)
{
    __local int order[MAX_USED];
    const uint lid = get_local_id(0), row = get_group_id(2), i = get_global_id(0);
    __global const float *route = routes + (size_t)row * stride;
    if (lid < k) {
        uint place = 0;
        for (uint j = 0; j < k; j++) {
            place += route[k + j] < route[k + lid];
        }
        order[place] = (int)lid;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < width) {
        __global float *out = dst + (size_t)row * dst_stride + i;
        float sum = (flags & FLAG_ADDS) != 0 ? *out : 0.0f;
        for (uint j = 0; j < k; j++) {
            const uint place = (uint)order[j];
            const float weight = has_weights ? route[place] : 1.0f;
            sum += scale * weight * made[((size_t)row * k + place) * made_stride + i];
        }
        *out = sum;
    }
}
