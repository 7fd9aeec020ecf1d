/* Copies rows. */
#define WG 64

/* Copies to dst[row][n] the row of src whose number is in the list with FLAG_PICKS, else the same row. */
__kernel GROUP(WG, 1) void copy(__global const int *restrict batch, int rows, __global const float *restrict src,
                                uint src_stride, uint src_first, __global float *restrict dst, uint dst_stride,
                                uint dst_first, uint n, int flags)
{
    const uint row = get_group_id(2), i = get_global_id(0);
    const uint from = (flags & FLAG_PICKS) != 0 ? batch[batch[BATCH_AT_PICKED + rows - 1] + row] : row;
    if (i < n) {
        dst[(size_t)row * dst_stride + dst_first + i] = src[(size_t)from * src_stride + src_first + i];
    }
}
