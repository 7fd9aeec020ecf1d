/* Factors and sums of rows, per element or per row. */
#define WG 64

/* Computes dst = act(dst), times `by` if it is gated; both are limited first, unless the limits are 0. */
__kernel GROUP(WG, 1) void gated(__global const int *restrict batch, int act, float gate_limit, float by_limit,
                                 __global float *dst, uint dst_stride, uint n, __global const float *restrict by,
                                 uint by_stride, int is_gated)
{
    const uint row = get_group_id(2), i = get_global_id(0);
    if (i < n) {
        __global float *y = dst + (size_t)row * dst_stride + i;
        const float gate = gate_limit != 0.0f && *y > gate_limit ? gate_limit : *y;
        float factor = is_gated ? by[(size_t)row * by_stride + i] : 1.0f;
        factor = by_limit != 0.0f && factor > by_limit ? by_limit : factor;
        factor = by_limit != 0.0f && factor < -by_limit ? -by_limit : factor;
        *y = is_gated ? glu(act, gate, factor) : activate(act, gate);
    }
}

/* Computes dst = scale * src (* w) (+ dst_scale * dst, with FLAG_ADDS); dst can be src. */
__kernel GROUP(WG, 1) void sum(__global const int *restrict batch, __global const float *src, uint src_stride,
                               __global const float *restrict w, int flags, float scale, float dst_scale,
                               __global float *dst, uint dst_stride, uint n)
{
    const uint row = get_group_id(2), i = get_global_id(0);
    if (i < n) {
        __global float *out = dst + (size_t)row * dst_stride + i;
        float y = src[(size_t)row * src_stride + i];
        y = scale * ((flags & FLAG_WEIGHT) != 0 ? y * w[i] : y);
        *out = (flags & FLAG_ADDS) != 0 ? fma(dst_scale, *out, y) : y;
    }
}

#define MULTIPLY_WG 128

/* Computes dst *= scale * map(by), each `repeats` components by one, or only scale; as floats, activations in bytes, or both, by flags. */
__kernel GROUP(MULTIPLY_WG, 1) void multiply(__global const int *restrict batch, __global const float *restrict by,
                                             uint by_stride, uint by_first, uint repeats, int has_by, int how,
                                             float scale, __global float *restrict dst, uint dst_stride, uint n,
                                             int flags, __global int *restrict codes, uint codes_blocks)
{
    __local float room[MULTIPLY_WG];
    __local int rooms[MULTIPLY_WG];
    const uint row = get_group_id(2), i = 4 * get_global_id(0);
    __global float *out = dst + (size_t)row * dst_stride;
    float4 v = load_4(out, i, n) * scale;
    if (has_by) {
        __global const float *from = by + (size_t)row * by_stride + by_first;
        float4 x;
        if (repeats > 1) {
            x.x = i < n ? from[i / repeats] : 0.0f;
            x.y = i + 1 < n ? from[(i + 1) / repeats] : 0.0f;
            x.z = i + 2 < n ? from[(i + 2) / repeats] : 0.0f;
            x.w = i + 3 < n ? from[(i + 3) / repeats] : 0.0f;
        } else {
            x = load_4(from, i, n);
        }
        v *= (float4)(map(how, x.x), map(how, x.y), map(how, x.z), map(how, x.w));
    }
    if ((flags & FLAG_FLOATS) != 0) {
        store_4(v, out, i, n);
    }
    act_store(v, i / 32 < codes_blocks, flags, get_local_id(0), room, rooms, codes, row, codes_blocks, i / 32);
}

/* Computes dst = xIELU of dst, as `multiply`. */
__kernel GROUP(MULTIPLY_WG, 1) void xielu(__global const int *restrict batch, float alpha_p, float alpha_n, float beta,
                                          float eps, __global float *restrict dst, uint dst_stride, uint n, int flags,
                                          __global int *restrict codes, uint codes_blocks)
{
    __local float room[MULTIPLY_WG];
    __local int rooms[MULTIPLY_WG];
    const uint row = get_group_id(2), i = 4 * get_global_id(0);
    __global float *out = dst + (size_t)row * dst_stride;
    const float4 x = load_4(out, i, n);
    const float4 low = alpha_n * (expm1(fmin(x, eps)) - x);
    const float4 v = select(low, alpha_p * x * x, x > 0.0f) + beta * x;
    if ((flags & FLAG_FLOATS) != 0) {
        store_4(v, out, i, n);
    }
    act_store(v, i / 32 < codes_blocks, flags, get_local_id(0), room, rooms, codes, row, codes_blocks, i / 32);
}

/* --- a work-group has a row --------------------------------------------------------------------------------------- */

#define ROW_WG 256

static inline float mean_square(__global const float *x, uint n, float mean, uint lid, __local float *room)
{
    float sum = 0.0f;
    for (uint i = lid; i < n; i += ROW_WG) {
        const float v = x[i] - mean;
        sum = fma(v, v, sum);
    }
    return group_sum(sum, lid, ROW_WG, room) / n;
}

/* Like `sum`, with src scaled to the magnitude of `level`. */
__kernel GROUP(ROW_WG, 1) void level(__global const int *restrict batch, __global const float *src, uint src_stride,
                                     __global const float *restrict w, int flags, float scale, float eps,
                                     __global const float *restrict level, uint level_stride, __global float *dst,
                                     uint dst_stride, uint n)
{
    __local float room[ROW_WG];
    const uint lid = get_local_id(0), row = get_group_id(2);
    __global const float *x = src + (size_t)row * src_stride;
    __global float *out = dst + (size_t)row * dst_stride;
    const float wanted = mean_square(level + (size_t)row * level_stride, n, 0.0f, lid, room);
    const float is = mean_square(x, n, 0.0f, lid, room);
    const float factor = sqrt(wanted / fmax(is, eps));
    for (uint i = lid; i < n; i += ROW_WG) {
        const float y = x[i] * factor * ((flags & FLAG_WEIGHT) != 0 ? w[i] : 1.0f);
        out[i] = scale * ((flags & FLAG_ADDS) != 0 ? out[i] + y : y);
    }
}

/* Computes dst *= scale * GELU(max(by - (mean + cutoff * standard deviation of by), 0)). */
__kernel GROUP(ROW_WG, 1) void sparse(__global const int *restrict batch, __global const float *restrict by,
                                      uint by_stride, uint by_first, float cutoff, float scale,
                                      __global float *restrict dst, uint dst_stride, uint n)
{
    __local float room[ROW_WG];
    const uint lid = get_local_id(0), row = get_group_id(2);
    __global const float *x = by + (size_t)row * by_stride + by_first;
    __global float *out = dst + (size_t)row * dst_stride;
    float sum = 0.0f;
    for (uint i = lid; i < n; i += ROW_WG) {
        sum += x[i];
    }
    const float mean = group_sum(sum, lid, ROW_WG, room) / n;
    const float above = mean + cutoff * sqrt(mean_square(x, n, mean, lid, room));
    for (uint i = lid; i < n; i += ROW_WG) {
        out[i] *= scale * map(3, x[i] < above ? 0.0f : x[i] - above);
    }
}

/* Computes dst *= sigmoid(src . w); src has n_in components. */
__kernel GROUP(ROW_WG, 1) void gate(__global const int *restrict batch, __global const float *restrict src,
                                    uint src_stride, uint n_in, __global const float *restrict w,
                                    __global float *restrict dst, uint dst_stride, uint n)
{
    __local float room[ROW_WG];
    const uint lid = get_local_id(0), row = get_group_id(2);
    __global const float *x = src + (size_t)row * src_stride;
    float sum = 0.0f;
    for (uint i = lid; i < n_in; i += ROW_WG) {
        sum = fma(x[i], w[i], sum);
    }
    const float factor = sigmoid(group_sum(sum, lid, ROW_WG, room));
    for (uint i = lid; i < n; i += ROW_WG) {
        dst[(size_t)row * dst_stride + i] *= factor;
    }
}

/* --- streams that are predicted and corrected, -DSTREAMS= of them ------------------------------------------------- */

#ifdef STREAMS
#define MAX_STREAMS 6
#define X           __global float *x0, __global float *x1, __global float *x2, __global float *x3, __global float *x4, __global float *x5

/* Returns coefficient i of w times tanh(logits). */
static inline float mixed(__global const float *w, __global const float *logits, uint i)
{
    float sum = 0.0f;
    for (uint j = 0; j < STREAMS; j++) {
        sum = fma(w[i * STREAMS + j], tanh(logits[j]), sum);
    }
    return sum;
}

/* Computes x_i += the sum over j of c[i][j] x_j. */
__kernel GROUP(WG, 1) void predict(__global const int *restrict batch, __global const float *restrict logits,
                                   uint logits_stride, __global const float *restrict w, X, uint stride, uint n)
{
    __local float c[STREAMS * STREAMS];
    __global float *const x[MAX_STREAMS] = {x0, x1, x2, x3, x4, x5};
    const uint row = get_group_id(2), lid = get_local_id(0), k = get_global_id(0);
    if (lid < STREAMS * STREAMS) {
        c[lid] = mixed(w, logits + (size_t)row * logits_stride, lid);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float old[STREAMS];
    for (uint i = 0; i < STREAMS; i++) {
        old[i] = k < n ? x[i][(size_t)row * stride + k] : 0.0f;
    }
    for (uint i = 0; i < STREAMS; i++) {
        float sum = old[i];
        for (uint j = 0; j < STREAMS; j++) {
            sum = fma(c[i * STREAMS + j], old[j], sum);
        }
        if (k < n) {
            x[i][(size_t)row * stride + k] = sum;
        }
    }
}

/* Computes x_i += (1 + c[i]) (src - x_first). */
__kernel GROUP(WG, 1) void correct(__global const int *restrict batch, __global const float *restrict logits,
                                   uint logits_stride, __global const float *restrict w, X, uint stride, uint n,
                                   uint first, __global const float *restrict src, uint src_stride)
{
    __local float c[STREAMS];
    __global float *const x[MAX_STREAMS] = {x0, x1, x2, x3, x4, x5};
    const uint row = get_group_id(2), lid = get_local_id(0), k = get_global_id(0);
    if (lid < STREAMS) {
        c[lid] = 1.0f + mixed(w, logits + (size_t)row * logits_stride, lid);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float change = k < n ? src[(size_t)row * src_stride + k] : 0.0f, old[STREAMS];
    for (uint i = 0; i < STREAMS; i++) {
        old[i] = k < n ? x[i][(size_t)row * stride + k] : 0.0f;
    }
    for (uint i = 0; i < STREAMS; i++) {
        change -= i == first ? old[i] : 0.0f;
    }
    for (uint i = 0; i < STREAMS; i++) {
        if (k < n) {
            x[i][(size_t)row * stride + k] = fma(c[i], change, old[i]);
        }
    }
}
#endif
