/* What is known of rows of logits without the host's seeing them all. */
#define WG 256

/* group_id(0): a piece of `per` logits of row group_id(2); pieces[row][piece][4]: largest, the lowest index of those (as
 * bits), and the sum of exp(logit - largest). */
__kernel GROUP(WG, 1) void piece(__global const int *restrict batch, __global const float *restrict logits, uint n, uint per, __global float *restrict pieces)
{
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
        __global float *out = pieces + ((size_t)row * get_num_groups(0) + which) * 4;
        out[0] = largest;
        out[1] = as_float(at[0]);
        out[2] = sum;
    }
}

/* stats[row]: arg-max (as bits), largest, logsumexp, of n pieces; one work-item a row. */
__kernel GROUP(1, 1) void stats(__global const int *restrict batch, __global const float *restrict pieces, uint n, __global float *restrict out)
{
    const uint row = get_group_id(2);
    __global const float *p = pieces + (size_t)row * n * 4;
    float max = p[0], sum = 0.0f;
    int best = as_int(p[1]);
    for (uint i = 1; i < n; i++) {
        if (p[4 * i] > max) {
            max = p[4 * i];
            best = as_int(p[4 * i + 1]);
        }
    }
    for (uint i = 0; i < n; i++) {
        sum += p[4 * i + 2] * exp(p[4 * i] - max);
    }
    out[4 * row] = as_float(best == INT_MAX ? 0 : best);
    out[4 * row + 1] = max;
    out[4 * row + 2] = log(sum) + max;
}
