/* The kernel table: every numeric operation of the CPU back end, as function pointers. The scalar `ref` versions fill
 * it, then each ISA of the CPU overwrites entries (engine/kernels/isa.c). ref defines the correct result: tests/kernels
 * checks every entry of every ISA against it.
 *
 * A result never depends on the number of rows, panels or heads of a call: each output element has a fixed order of
 * operations. ISAs can differ from one another within the bound of each operation.
 * K inputs, T rows, d head width. All f32 buffers are 64-byte aligned unless stated otherwise; they must not alias.
 * Threads: pure functions; the table is constant after kern_select. */
#ifndef INFCGI_KERNELS_KERN_H
#define INFCGI_KERNELS_KERN_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"
#include "engine/quant/panel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- quantized activation rows ------------------------------------------------------------------------------------
 * Blocks of 32 inputs, x = d * (hi + lo / 256). With amax the largest |x| of the block, d = amax / 127 and hi = round
 * to nearest even of x * (127 / amax), both divisions in f32. A *fine* block has a second term, lo = x - d * hi in
 * units of d / 256; in the others lo is 0. If a few large values dominate a row, most of its error is in their blocks.
 * A second term in only those blocks removes most of the error at little cost [measured: docs/internals/cpu.md]. A
 * block is fine if d^2 > fine^2 * (mean of d^2 over the row's blocks): with fine 0 every block is, with infinity none.
 * The mean is summed in 16 interleaved partial sums, then by halves.
 * A block with amax < 2^-110 (1 / d would approach overflow) is all zero. In a block with a NaN or infinity, d and s
 * are NaN, and hi and lo are 0, so every product with the row is NaN and can be detected.
 *
 * A row of K inputs is kern_qrow_blocks(K) blocks; inputs beyond K are 0. The first cache line of a block holds all
 * that a kernel needs if there is no second term. */
struct kern_qblock {
    _Alignas(64) int8_t hi[PANEL_BLOCK]; /* -127 .. 127 */
    float d;                             /* 0 for an all-zero block */
    float s;                             /* d * (sum of hi + sum of lo / 256), for minimums */
    int32_t zero;                        /* -8 * sum of hi, for zero points */
    int32_t half[2];                     /* -8 * sum of hi over each half */
    uint32_t fine;                       /* 1 for a fine block, else 0 */
    _Alignas(64) int8_t lo[PANEL_BLOCK]; /* -128 .. 127 */
    int32_t zero_lo;                     /* -8 * sum of lo */
    int32_t half_lo[2];                  /* -8 * sum of lo over each half */
};

static inline size_t kern_qrow_blocks(size_t k) { return (k + PANEL_BLOCK - 1) / PANEL_BLOCK; }
static inline size_t kern_qrow_bytes(size_t k) { return kern_qrow_blocks(k) * sizeof(struct kern_qblock); }

/* out[T][n_panels*16] = rows * panels^T.
 * Quantized kinds, per element and in this order over blocks b = 0..: with acc the exact integer sum of
 * (c - zero point) * hi, c replaced by its entry in table kinds
 *   scale per 32:  out = fma(scale_b * (float)acc, d_b, out)
 *   minimum too:   then out = fma(min_b, s_b, out)
 *   scale per 16:  two steps as for 32, first half then second half of the block
 *   minimum too:   two steps out = fma(fma(min_b / -8, (float)half, scale_b * (float)acc), d_b, out)
 * Then out += rest. `rest` starts from 0 and takes only the steps of the row's fine blocks, in their order, with lo for
 * hi, half_lo for half, scale_b / 256, min_b / -2048 and no step of s (which has both terms). A block without lo adds
 * nothing to rest, so a kernel can include it: no row's result depends on the other rows of its tile.
 * float kinds: out = fma(w_k, x_k, out) for k = 0..K-1, weights widened to f32. out starts from 0.
 * Bound vs ref: quantized 1e-6 * sum |terms| (ISAs with FMA are exact to ref, which uses fmaf); float kinds equal. */
struct kern_matmul_args {
    const void *panels; /* n_panels panels, panel_bytes apart, 64-byte aligned */
    int n_panels;
    size_t k;
    const void *rows; /* n_rows rows, row_bytes apart: f32 [K] for float kinds, else kern_qblock [K/32] */
    size_t row_bytes;
    int n_rows;
    float *out; /* [n_rows][out_stride]; elements 0 .. n_panels*16-1 of each row are written */
    size_t out_stride;
};
typedef void (*kern_matmul_fn)(const struct kern_matmul_args *a);

/* --- attention ----------------------------------------------------------------------------------------------------
 * Keys and values are in pages of KV_PAGE_TOKENS positions. Each has one of the types of kv_type.h, and the two can
 * differ. Page p of a sequence holds positions 32p .. 32p+31; the keys of one layer and KV head start at
 * keys + pages[p] * page_bytes, the values at values + pages[p] * page_bytes.
 * out[r][g] = softmax(scale * q[r][g].K (soft-capped), masked) . V [Vaswani 2017 3.2.1]. Row r sees positions
 * max(0, pos[r]-window+1) .. pos[r] (window 0: all), or first[r] .. pos[r]. Positions are ascending. Cannot fail. Slots
 * of a page that a row does not see can hold anything, even NaN. A NaN in a visible slot makes the output NaN.
 *
 * Positions are processed in segments of KERN_SEGMENT_TOKENS with fixed boundaries; within a segment, in blocks of 128
 * with a running maximum [online softmax, Milakov 2018]. Maximum, sum and output of the segments are merged in
 * ascending order. So threads can share a long context segment by segment, with the same bits as one call.
 *
 * Bound vs ref (which computes in double), per element:
 *   float types    (4e-6 + 4e-7 * A) * S
 *   integer keys   (4e-6 + 4e-7 * A + 6e-5 * Q) * S, because the query is rounded to 16 bits
 *   integer values 3.3e-5 * sum over blocks of 128 positions of (largest p*|scale| of a visible one) * sum |codes|
 *                  more, because the weights of a block are rounded to 14 bits of the largest
 * with A the largest scale * sum |q*K|, plus |bias|, of a visible position, Q the largest scale * norm(q) * norm(K), and
 * S = sum |p*v|: an error of one score affects all weights.
 * A query with a norm above 1e18 returns NaN with integer keys. scale > 0. */
enum { KERN_SEGMENT_TOKENS = 256, KERN_MAX_HEAD = 576 };

struct kern_attention_args {
    const float *q;  /* row r, head g at q + r*q_stride + g*d; any alignment */
    size_t q_stride; /* floats between rows */
    float *out;      /* same shape with kv.d_value instead of d, and out_stride */
    size_t out_stride;
    const int32_t *pos;   /* [n_rows] */
    const int32_t *first; /* [n_rows], OPTIONAL: replaces the window; ascending, at most pos */
    int n_rows;
    int n_group;         /* query heads that share this KV head */
    struct kv_layout kv; /* kv.d, kv.d_value: multiples of 4, at most KERN_MAX_HEAD */
    const unsigned char *keys,
        *values;          /* this layer's and KV head's parts of page 0, 64-byte aligned; equal for latents */
    size_t page_bytes;    /* between pages of keys, and of values; a multiple of 64 */
    const int32_t *pages; /* page table of the sequence, indexed by position / 32 */
    /* OPTIONAL, both: the pages that the caller's next call reads, to prefetch during this one. Their content does not
     * matter. */
    const unsigned char *next_keys, *next_values;
    int window; /* 0 = none */
    float scale;
    float softcap; /* 0 = none; else s = softcap * tanh(s / softcap) */
    /* OPTIONAL [n_group]: a score that takes part in the softmax of its head but has no value [Xiao 2023, "Efficient
     * Streaming Language Models with Attention Sinks"; form of gpt-oss]. */
    const float *sinks;
    /* OPTIONAL, without softcap: [n_group] slopes. Scores less the slope of their head times the distance of the position
     * from the row's own [Press 2021, "Train Short, Test Long"]. */
    const float *slopes;
    /* OPTIONAL, likewise: [n_group][2 * reach + 1] biases. Scores plus the bias of their head for the distance, which is
     * limited to -reach .. reach [Raffel 2019, "Exploring the Limits of Transfer Learning", 2.1]. */
    const float *biases;
    int reach;
    const int32_t *own; /* [n_rows] the rows' own positions, for slopes and biases */
};

/* Return the first position that a row sees, and the first and last segment that row `row` and later rows see. */
static inline int32_t kern_visible_from(const struct kern_attention_args *a, int row)
{
    int32_t pos = a->pos[row];
    return a->first != NULL ? a->first[row] : a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}
static inline int32_t kern_first_segment(const struct kern_attention_args *a, int row)
{
    return kern_visible_from(a, row) / KERN_SEGMENT_TOKENS;
}
static inline int32_t kern_last_segment(int32_t last_pos) { return last_pos / KERN_SEGMENT_TOKENS; }

/* Returns the floats (a multiple of 16) of a segment's record per row and head, [n_rows][n_group]: the output before
 * division by the sum [d_value]; the last 16 hold the maximum and the sum. The sum is 0 if the row sees nothing of the
 * segment. 64-byte aligned. */
static inline size_t kern_part_floats(int d_value) { return (size_t)kv_value_width(d_value) + 16; }

/* --- bins of logits -----------------------------------------------------------------------------------------------
 * A bin is KERN_BIN_WIDTH wide. Element x belongs to k = x * KERN_BINS_PER_ONE, product and nearest integer in f32, and
 * to bin top - k. Elements beyond the last of KERN_BINS go to the last bin, whose sums are meaningless. So ascending
 * bins hold smaller elements, regardless of rounding. With r = x - k * KERN_BIN_WIDTH, within 0.011, an element adds
 * round(KERN_BIN_ONE * (1 + c[q][0] r + c[q][1] r^2 + .. + c[q][4] r^5)) to sums[q][bin], q < n_sums; the polynomial
 * without its 1 stays within 0.1. */
enum { KERN_BINS = 2048, KERN_BIN_TERMS = 5 };
#define KERN_BIN_WIDTH    0.021660849392498290 /* ln 2 / 32 */
#define KERN_BINS_PER_ONE 46.166241308446828f
#define KERN_BIN_ONE      UINT32_C(0x80000000)

struct kern_bins {
    float top;  /* integral, within +-2^20 */
    int n_sums; /* 1 or 2 */
    float c[2][KERN_BIN_TERMS];
    bool has_rest; /* return the sum of r * exp(x - max) over all but the last bin */
    float max;
};

/* --- linear attention ---------------------------------------------------------------------------------------------
 * One head over n_rows rows in order. Each row updates the state S [n_keys][n_cols] with its decay a and rate b:
 *
 *   u = b v                      [Dao 2024, "Transformers are SSMs": Mamba-2]
 *   u = b (v - (a S)^T k)        when `corrects` [Yang 2024, "Gated Delta Networks"]
 *   S = a S + k u^T
 *   out = S^T q
 *
 * With key_decay, row j of S has its own decay a_j. The bits do not depend on how calls split rows, or columns at
 * multiples of 16: the sums over n_keys use two interleaved partial sums. Bound vs the computation in double, per
 * element: 2e-7 * (n_keys + 4) * n_rows * m. m is the element computed from the magnitudes of all numbers, with sums
 * instead of differences. */
struct kern_linear_args {
    float *state; /* row j at state + j*n_cols; any alignment, as all of these */
    int n_keys, n_cols;
    const float *q, *k; /* [n_rows][n_keys], qk_stride floats apart */
    size_t qk_stride;
    const float *v; /* [n_rows][n_cols] */
    size_t v_stride;
    const float *decay, *rate; /* [n_rows] */
    const float *key_decay;    /* OPTIONAL, instead of decay: [n_rows][n_keys], n_keys floats apart */
    float *out;                /* [n_rows][n_cols]; must not be v */
    size_t out_stride;
    int n_rows;
    int first_col, last_col; /* columns [first, last) are computed; first a multiple of 16 */
    bool corrects;
};

/* --- selective scan -----------------------------------------------------------------------------------------------
 * Some channels of one sequence over n_rows rows in order. Each row updates the state S [n_states][n_cols] with steps dt
 * by channel [Gu & Dao 2023, "Mamba"]:
 *
 *   S[j][n] = exp(dt[n] A[j][n]) S[j][n] + B[j] (dt[n] x[n])
 *   out[n] = the sum over j of C[j] S[j][n]
 *
 * The bits do not depend on how calls split rows or columns: the sum over n_states uses two interleaved partial sums. For
 * dt >= 0 and A <= 0 the bound is that of linear attention, with 3e-7 and n_states + 8 in the place of n_keys + 4, and for
 * each row also 3e-7 |dt A| of the state's magnitude before it. */
struct kern_scan_args {
    float *state; /* [n_states][n_cols]; any alignment, as all of these */
    int n_states, n_cols;
    const float *a;     /* [n_states][n_cols] */
    const float *b, *c; /* [n_rows][n_states], b_stride and c_stride floats apart */
    size_t b_stride, c_stride;
    const float *x, *dt; /* [n_rows][n_cols] */
    size_t x_stride, dt_stride;
    float *out; /* [n_rows][n_cols]; must not be x or dt */
    size_t out_stride;
    int n_rows;
};

/* CLAMPED, of gpt-oss: x * sigmoid(1.702 x) with x = min(gate, 7), times 1 + up clamped to -7 .. 7. RELU_SQUARED:
 * max(gate, 0)^2 [So 2021, "Primer"]. SIGMOID is a factor: it is not multiplied by the gate. */
enum kern_act {
    KERN_ACT_SILU,
    KERN_ACT_GELU_TANH,
    KERN_ACT_GELU,
    KERN_ACT_RELU,
    KERN_ACT_CLAMPED,
    KERN_ACT_RELU_SQUARED,
    KERN_ACT_SIGMOID,
    KERN_ACT_COUNT
};

struct kern_table {
    const char *isa; /* name of the highest ISA that filled an entry */

    kern_matmul_fn matmul[PANEL_KIND_COUNT];
    int tile_rows; /* rows per tile of most kinds; fewer rows take nearly as long; 1 = any number is equally good */

    /* Quantizes x[k] into row[kern_qrow_blocks(k)]. `fine` >= 0 selects the blocks with a second term (kern_qblock).
     * Exact to ref. */
    void (*quantize_row)(const float *x, size_t k, float fine, struct kern_qblock *row);

    /* Computes out = x / sqrt(mean(x^2) + eps) * w. w can be NULL (all ones); out can be x. [Zhang & Sennrich 2019] eps
     * > 0; squares below 1e-38 count as 0. The sum uses 16 interleaved partial sums, then pairs.
     * Bound: (4e-7 + K/32 * 6e-8) * |out| + 1e-44. */
    void (*rmsnorm)(const float *x, const float *w, float eps, size_t k, float *out);

    /* Adds: dst += src; exact. */
    void (*add)(float *dst, const float *src, size_t n);

    /* Computes out = act(gate) * up, CLAMPED as defined at enum kern_act. out can be gate or up. A NaN input returns
     * NaN.
     * Bound: r * |act(gate) * up| + 2e-36 * |up| + 1e-44, where r is
     *   GELU_TANH   5e-7 * (4 + min(|u|, 88)), because its exponent u = 1.6 (x + 0.045 x^3) is rounded to f32
     *   CLAMPED     2e-6 + 1.2e-7 * min(|u|, 104), because u = 1.702 x is
     *   the others  2e-6 */
    void (*glu)(enum kern_act act, const float *gate, const float *up, size_t n, float *out);

    /* Rotates the first n_rot components of one head vector x, of any alignment, in place, by cos[n_rot/2],
     * sin[n_rot/2] [Su 2021]. neox: pairs (i, i + n_rot/2); else pairs (2i, 2i+1). Exact to ref: a*cos - b*sin and
     * a*sin + b*cos without FMA. */
    void (*rope)(float *x, int n_rot, bool neox, const float *cos, const float *sin);

    /* Stores one key and one value vector (l->d and l->d_value floats, in the types of l) at slot 0..31 of a page. Writes
     * no byte of another slot, so threads can store to one page. For latents v and v_page are not read. Exact. */
    void (*kv_store)(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                     unsigned char *v_page);

    void (*attention)(const struct kern_attention_args *a);
    /* Like attention(), but in two stages. attention_part() writes the records of n segments from number `segment` on
     * to parts, part_stride floats apart (a->out is unused). attention_join() merges all segments from their records in
     * ascending order (of a, it uses only out, out_stride, n_rows, n_group, sinks and kv.d). */
    void (*attention_part)(const struct kern_attention_args *a, int32_t segment, int n, float *parts,
                           size_t part_stride);
    void (*attention_join)(const struct kern_attention_args *a, const float *parts, size_t part_stride, int n);

    void (*linear_attention)(const struct kern_linear_args *a);
    void (*selective_scan)(const struct kern_scan_args *a);

    /* Computes out = exp(rate * log(1 + exp(x + bias))), rate <= 0: decays of linear attention. out can be x. Bound:
     * (1e-6 + 4e-7 * |u| * (1 + |x + bias|)) * out + 2e-38, with u the argument of the outer exp. */
    void (*decay)(const float *x, const float *bias, float rate, size_t n, float *out);

    /* Returns the index of the largest of x[n], n >= 1, the lowest among equals; NaNs lose. Exact. x can be unaligned. */
    int32_t (*argmax)(const float *x, int32_t n);

    /* Writes the largest value of x[n] to *max and returns log(sum exp(x - max)) + max, in 16 interleaved partial sums
     * in double. Returns NaN if an element is NaN or +inf. Bound: 2e-6 * (1 + |result|). */
    float (*logsumexp)(const float *x, int32_t n, float *max);

    /* The next three read x[n] in blocks of `block` elements, a multiple of 16; the last block can be shorter. x can be
     * unaligned. n_blocks = ceil(n / block). */

    /* Writes max[n_blocks], the largest of each block without NaNs; -inf for a block of only NaNs. Exact. */
    void (*block_max)(const float *x, int32_t n, int32_t block, float *max);

    /* Writes sum[n_blocks]: the sum of exp((x - shift) * scale) over the elements of each block below `limit`, for x <=
     * shift and 0 < scale <= FLT_MAX. No NaNs. Relative error at most 1.2e-6 + 1.3e-7 * the mean of |(x - shift) *
     * scale|, weighted by the terms; arguments below -87.3 count as 0. */
    void (*block_expsum)(const float *x, int32_t n, int32_t block, float shift, float scale, float limit, double *sum);

    /* Writes the indices of elements from `least` to `most`, inclusive, ascending, to ids[n] and returns their number.
     * Skips NaNs. Exact. */
    int32_t (*collect)(const float *x, int32_t n, float least, float most, int32_t *ids);

    /* Adds x[n] to the bins. x can be unaligned; it must hold no NaNs and no element with a k above b->top. The error
     * of a polynomial is at most 1.5e-9 * (sum of j * |c[q][j-1]| * 0.011^(j-1) over j = 1..5) + 2.5e-10.
     * Returns the sum of b->has_rest within 1e-6 * the sum of |r| * exp(x - max) + 1e-9 * the sum of exp(x - max), or
     * 0. */
    double (*bin_sums)(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS]);
};

/* --- ISA selection ---------------------------------------------------------------------------------------------- */

/* Fills *out for the ISA `name` ("ref", "avx2", ...: isa.c; NULL or "auto" = the best of the CPU). Returns
 * ERR_UNSUPPORTED_CPU if the CPU lacks it or the name is unknown; info lists the ISAs of the CPU. */
MUST_CHECK enum err kern_select(const char *name, struct kern_table *out, struct err_info *info);

/* Returns the i-th ISA in ascending order; NULL beyond the last. kern_isa_is_there() returns whether this CPU has it. */
const char *kern_isa_name(int i);
bool kern_isa_is_there(int i);

/* Write CPU flags, separated by spaces: those that ISA i lacks ("": none; "kernels": not built), and all of this CPU. */
enum { KERN_CPU_FLAGS_BYTES = 256 };
void kern_isa_lacks(int i, char out[KERN_CPU_FLAGS_BYTES]);
void kern_cpu_flags(char out[KERN_CPU_FLAGS_BYTES]);

#endif
