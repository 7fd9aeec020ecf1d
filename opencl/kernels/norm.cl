/* Norms of rows, and the encoding of their results, or of any rows, as activations in bytes. */
#define WG 128

static inline float sum_4(float4 v) { return (v.x + v.y) + (v.z + v.w); }

/* A work-group normalizes n components of a row, starting at group * n: RMSNorm, or LayerNorm with FLAG_CENTERS; with a
 * weight only if FLAG_WEIGHT is set. [Zhang 2019; Ba 2016] */
__kernel GROUP(WG, 1) void norm(__global const int *restrict batch, int rows, __global const float *src,
                                uint src_stride, __global const float *restrict w, __global const float *restrict bias,
                                float eps, uint n, int flags, __global float *dst, uint dst_stride,
                                __global int *restrict codes, uint codes_blocks)
{
    __local float room[WG];
    __local int rooms[WG];
    const uint lid = get_local_id(0), row = get_group_id(2), first = get_group_id(0) * n;
    const uint from = (flags & FLAG_PICKS) != 0 ? batch[batch[BATCH_AT_PICKED + rows - 1] + row] : row;
    __global const float *x = src + (size_t)from * src_stride + first;
    __global float *out = dst + (size_t)row * dst_stride + first;
    float mean = 0.0f, sum = 0.0f;
    if ((flags & FLAG_CENTERS) != 0) {
        for (uint i = 4 * lid; i < n; i += 4 * WG) {
            sum += sum_4(load_4(x, i, n));
        }
        mean = group_sum(sum, lid, WG, room) / n;
        sum = 0.0f;
    }
    for (uint i = 4 * lid; i < n; i += 4 * WG) {
        float4 v = load_4(x, i, n) - mean;
        v.y = i + 1 < n ? v.y : 0.0f;
        v.z = i + 2 < n ? v.z : 0.0f;
        v.w = i + 3 < n ? v.w : 0.0f;
        sum += sum_4(v * v);
    }
    const float scale = 1.0f / sqrt(group_sum(sum, lid, WG, room) / n + eps);
    for (uint begin = 0; begin < n; begin += 4 * WG) {
        const uint i = begin + 4 * lid;
        float4 v = 0.0f;
        if (i < n) {
            v = (load_4(x, i, n) - mean) * scale;
            v = (flags & FLAG_WEIGHT) != 0 ? v * load_4(w, i, n) : v;
            v = (flags & FLAG_BIAS) != 0 ? v + load_4(bias, i, n) : v;
            if ((flags & FLAG_ADDS) != 0) {
                v += load_4(out, i, n);
            }
            if ((flags & FLAG_FLOATS) != 0) {
                store_4(v, out, i, n);
            }
            v.y = i + 1 < n ? v.y : 0.0f;
            v.z = i + 2 < n ? v.z : 0.0f;
            v.w = i + 3 < n ? v.w : 0.0f;
        }
        act_store(v, i < n, flags, lid, room, rooms, codes, row, codes_blocks, (first + i) / 32);
    }
}

/* A work-group encodes 4 * WG components of a row of `width`, whose stride is at least that, as activations in
 * bytes. */
__kernel GROUP(WG, 1) void encode(__global const int *restrict batch, int rows, __global const float *restrict src,
                                  uint src_stride, uint width, int flags, __global int *restrict codes,
                                  uint codes_blocks)
{
    __local float room[WG];
    __local int rooms[WG];
    const uint lid = get_local_id(0), row = get_group_id(2), i = get_group_id(0) * 4 * WG + 4 * lid;
    float4 v = load_4(src + (size_t)row * src_stride, i, width);
    act_store(v, i / 32 < codes_blocks, flags, lid, room, rooms, codes, row, codes_blocks, i / 32);
}
