/* Factors and sums of rows, element by element or a row at a time. */
#define WG 64

/* dst = act(dst), times `by` where it is gated. */
__kernel GROUP(WG, 1) void gated(__global const int *restrict batch, int act, __global float *dst, uint dst_stride,
                                 uint n, __global const float *restrict by, uint by_stride, int is_gated)
{
    const uint row = get_group_id(2), i = get_global_id(0);
    if (i < n) {
        __global float *y = dst + (size_t)row * dst_stride + i;
        *y = is_gated ? glu(act, *y, by[(size_t)row * by_stride + i]) : activate(act, *y);
    }
}
