/* Multiplies each head of a row by its own matrix of floats (-DKIND=); -DTOKENS= rows of a work-group. A lane has a row
 * of the matrix and sums its inputs in order, whatever TOKENS is. */
#define WAVES 4
#define AHEAD 4 /* weights that are loaded before they are used */

static inline void add_inputs(float8 w, __global const float *x, uint stride, float acc[TOKENS])
{
#pragma unroll
    for (uint m = 0; m < TOKENS; m++) {
        __global const float *of = x + (size_t)m * stride;
        acc[m] = fma(w.s0, of[0], acc[m]);
        acc[m] = fma(w.s1, of[1], acc[m]);
        acc[m] = fma(w.s2, of[2], acc[m]);
        acc[m] = fma(w.s3, of[3], acc[m]);
        acc[m] = fma(w.s4, of[4], acc[m]);
        acc[m] = fma(w.s5, of[5], acc[m]);
        acc[m] = fma(w.s6, of[6], acc[m]);
        acc[m] = fma(w.s7, of[7], acc[m]);
        if (m % 4 == 3) {
            SCHEDULE();
        }
    }
}

/* A head has `in` components in a row of src. The first n are multiplied by its n_out rows of w. It has `out`
 * components in a row of dst: n_out results, then the components of src after the first n. per_head: panels of a head,
 * of panel_words each. */
__kernel GROUP(LANES * WAVES, 1) void heads_matmul(__global const int *restrict batch, int rows,
                                                   __global const uint *restrict w, uint panel_words, uint per_head,
                                                   uint n_panels, uint n, uint n_out,
                                                   __global const float *restrict src, uint src_stride, uint in,
                                                   __global float *restrict dst, uint dst_stride, uint out)
{
    const uint lane = get_local_id(0) % LANES, wave = UNIFORM(get_local_id(0) / LANES);
    const uint panel = get_group_id(0) * WAVES + wave, head = panel / per_head, own = panel % per_head;
    const uint first = get_group_id(2) * TOKENS, n_rows = min(batch[rows] - first, (uint)TOKENS);
    if (panel >= n_panels) {
        return;
    }
    __global const float *x = src + (size_t)first * src_stride + (size_t)head * in;
    __global float *y = dst + (size_t)first * dst_stride + (size_t)head * out;
    __global const uint *weights = w + (size_t)panel * panel_words;
    float acc[TOKENS];
    for (uint m = 0; m < TOKENS; m++) {
        acc[m] = 0.0f;
    }
    const uint blocks = n / 8;
    for (uint i = 0; i < blocks; i += AHEAD) {
        float8 ahead[AHEAD];
        for (uint k = 0; k < AHEAD; k++) {
            ahead[k] = unpack_floats(weights, lane, min(i + k, blocks - 1));
        }
        for (uint k = 0; k < AHEAD && i + k < blocks; k++) {
            add_inputs(ahead[k], x + 8 * (i + k), src_stride, acc);
        }
    }
    if (n % 8 != 0) {
        const float8 last = unpack_floats(weights, lane, blocks);
        const float all[8] = {last.s0, last.s1, last.s2, last.s3, last.s4, last.s5, last.s6, last.s7};
        for (uint m = 0; m < TOKENS; m++) {
            for (uint k = 0; k < n % 8; k++) {
                acc[m] = fma(all[k], x[(size_t)m * src_stride + 8 * blocks + k], acc[m]);
            }
        }
    }
    const uint o = own * LANES + lane;
    for (uint m = 0; m < n_rows; m++) {
        if (o < n_out) {
            y[(size_t)m * dst_stride + o] = acc[m];
        }
        for (uint k = lane; k < in - n && own == 0; k += LANES) {
            y[(size_t)m * dst_stride + n_out + k] = x[(size_t)m * src_stride + n + k];
        }
    }
}
