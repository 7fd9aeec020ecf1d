/* Looks up rows of a weight, by token (by 0), by position (1) or the first row (2).  -DKIND= as in weights.clh */
#define WG 64

#if IS_FLOAT
#define VALUES 8
#else
#define VALUES 32
#endif

/* Stores components i .. i + 3 of n. */
static inline void put(float4 v, float scale, int flags, __global float *dst, uint n, uint i)
{
    const float y[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
    UNROLL
    for (uint j = 0; j < 4; j++) {
        if (i + j < n) {
            dst[i + j] = (flags & FLAG_ADDS) != 0 ? dst[i + j] + y[j] : y[j];
        }
    }
}

/* Computes dst[row][n] = scale * row of w, with FLAG_ADDS added to dst; a work-item has a block. n_parts: as matmul
 * counts. */
__kernel GROUP(WG, 1) void embed(__global const int *restrict batch, int by, __global const uint *restrict w,
                                 uint n_parts, uint4 table, float scale, int flags, __global float *restrict dst,
                                 uint dst_stride, uint width)
{
    const uint row = get_group_id(2), block = get_global_id(0), first = block * VALUES;
    if (first >= width) {
        return;
    }
    const uint id = by == 0 ? batch[batch[BATCH_AT_TOKENS] + row] : by == 1 ? batch[batch[BATCH_AT_POS] + row] : 0;
    const uint lane = id % LANES;
    dst += (size_t)row * dst_stride + first;
    const uint n = min(width - first, (uint)VALUES);
#if IS_FLOAT
    __global const uint *panel = w + (size_t)(id / LANES) * n_parts * (KIND == KIND_F32 ? 32 : 16) * LANES;
    const float8 v = unpack_floats(panel, lane, block);
    put(v.lo, scale, flags, dst, n, 0);
    put(v.hi, scale, flags, dst, n, 4);
#else
    __global const uint *panel = w + (size_t)(id / LANES) * n_parts * GROUP_WORDS * LANES;
    __global const uint *group = panel + (size_t)(block / GROUP_BLOCKS) * GROUP_WORDS * LANES;
    int codes[8];
    unpack_codes(group, lane, block % GROUP_BLOCKS, table, codes);
    float4 of = unpack_scales(group, lane, block % GROUP_BLOCKS);
    UNROLL
    for (uint i = 0; i < 8; i++) {
        float4 v = convert_float4(as_char4(codes[i])) - (float)ZERO_POINT;
        put((i < 4 ? of.x : of.y) * v + (i < 4 ? of.z : of.w), scale, flags, dst, n, 4 * i);
    }
#endif
}
