/* Multiplies rows by a weight. A lane has one row of the weight and TOKENS token rows, whose activations are the same
 * for all lanes, so no sums across lanes are needed, and one load of activations serves all lanes.
 *
 * The inputs of a row are summed in CHUNKS parts, each in order, and then the parts in order. With SPLIT a wave
 * computes one part (for few token rows: as many waves as parts read a panel). Without it a wave sums all parts, and
 * the waves of a work-group have their own panels and the same activations. Both give the same bits.
 *
 *   -DKIND=     form of the weight (weights.clh)
 *   -DTOKENS=   token rows of a work-group: 1 .. 8 with SPLIT, else a multiple of 8
 *   -DSPLIT=    0 or 1
 *   -DPAIR=     1: of two weights, act(x w) * (x w2), which is written as floats or activations in bytes
 *   -DPICKED=   1: of experts: token rows are picks in the tiles of experts.cl, and panels those of a tile's expert */
#define CHUNKS 8
#define WAVES  8

/* Blocks of a group that are unrolled: with many rows, more do not fit in the instruction cache. */
#define IN_LINE (TOKENS >= 16 ? 2 : GROUP_BLOCKS)

#define LOADED 4 /* blocks with pending loads: more take too many registers */

#if PAIR
#define WEIGHTS 2
#else
#define WEIGHTS 1
#endif

/* Location of the activations of a work-group's token rows. */
struct tokens {
#if IS_FLOAT && PICKED
    __global const float *x[TOKENS];
#elif IS_FLOAT
    __global const float *x; /* of the first row */
    uint stride;
#elif PICKED
    __global const int *x;
    uint row[TOKENS], n_blocks;
#else
    __global const int *x;
    uint row, n_blocks; /* the first row: of a tile, or all rows are in its tile */
#endif
};

#if IS_FLOAT
static inline __global const float *inputs_of(const struct tokens *t, uint m, uint i)
{
#if PICKED
    return t->x[m] + 8 * i;
#else
    return t->x + (size_t)m * t->stride + 8 * i;
#endif
}
#else
static inline __global const int *term_of(const struct tokens *t, uint m, uint term, uint block)
{
#if PICKED
    return t->x + act_at(t->row[m], t->n_blocks, term, block);
#else
    return t->x + act_at(t->row + m, t->n_blocks, term, block);
#endif
}

/* Adds to *acc a term of a block of a row of x times a block of the weight. */
static inline void add_term(const int *w, float4 scale, __global const int *x, float *acc)
{
    const float factor = fabs(as_float(x[ACT_FACTOR]));
    int low = -ZERO_POINT * x[ACT_LOW], high = -ZERO_POINT * x[ACT_HIGH];
#if SCALE_16
    for (uint i = 0; i < 4; i++) {
        low = dot4(w[i], x[i], low);
        high = dot4(w[4 + i], x[4 + i], high);
    }
    *acc = fma(fma(scale.y, (float)high, scale.x * (float)low), factor, *acc);
#else
    low += high;
    for (uint i = 0; i < 8; i++) {
        low = dot4(w[i], x[i], low);
    }
#if BLOCK_16
    /* minimums of both halves: the second half's for all, and the difference of the first half's */
    *acc = fma(scale.w, as_float(x[ACT_TOTAL]), *acc);
    *acc = fma(fma(scale.x, (float)low, (scale.z - scale.w) * (float)x[ACT_LOW]), factor, *acc);
#else
    *acc = fma(scale.x * factor, (float)low, *acc);
#if HAS_MIN
    *acc = fma(scale.z, as_float(x[ACT_TOTAL]), *acc);
#endif
#endif
#endif
}

/* Adds to acc[] block b of group g, which is block `block` of the row. If one of eight rows has a second term, all
 * eight add theirs: zero terms add nothing. */
static inline void add_block(__global const uint *group, uint lane, uint b, uint block, uint4 table,
                             const struct tokens *t, float *acc)
{
    int w[8];
    unpack_codes(group, lane, b, table, w);
    const float4 scale = unpack_scales(group, lane, b);
    UNROLL
    for (uint begin = 0; begin < TOKENS; begin += 8) {
        const uint end = min(begin + 8, (uint)TOKENS);
        int signs = 0;
        UNROLL
        for (uint m = begin; m < end; m++) {
            __global const int *x = term_of(t, m, 0, block);
            signs |= x[ACT_FACTOR];
            add_term(w, scale, x, &acc[m]);
            if (m % 2 == 1) {
                SCHEDULE();
            }
        }
        if (signs < 0) {
            UNROLL
            for (uint m = begin; m < end; m++) {
                add_term(w, scale, term_of(t, m, 1, block), &acc[m]);
                if (m % 2 == 1) {
                    SCHEDULE();
                }
            }
        }
    }
}
#endif

/* Adds to acc[] parts [from, to) of the panel: groups, for float kinds blocks. */
static inline void add_parts(__global const uint *panel, uint lane, uint from, uint to, uint4 table,
                             const struct tokens *t, float *acc)
{
    for (uint g = from; g < to; g++) {
#if IS_FLOAT
        for (uint i = 0; i < 4; i++) {
            float8 w = unpack_floats(panel, lane, 4 * g + i);
#if !SPLIT
            w = as_floats(w);
#endif
            UNROLL
            for (uint m = 0; m < TOKENS; m++) {
                __global const float *x = inputs_of(t, m, 4 * g + i);
                acc[m] = fma(w.s0, x[0], acc[m]);
                acc[m] = fma(w.s1, x[1], acc[m]);
                acc[m] = fma(w.s2, x[2], acc[m]);
                acc[m] = fma(w.s3, x[3], acc[m]);
                acc[m] = fma(w.s4, x[4], acc[m]);
                acc[m] = fma(w.s5, x[5], acc[m]);
                acc[m] = fma(w.s6, x[6], acc[m]);
                acc[m] = fma(w.s7, x[7], acc[m]);
                if (m % 2 == 1) {
                    SCHEDULE();
                }
            }
        }
#else
        __global const uint *group = panel + (size_t)g * GROUP_WORDS * LANES;
        NO_UNROLL
        for (uint begin = 0; begin < GROUP_BLOCKS; begin += IN_LINE) {
            UNROLL
            for (uint b = begin; b < begin + IN_LINE; b++) {
                add_block(group, lane, b, g * GROUP_BLOCKS + b, table, t, acc);
                if (b % LOADED == LOADED - 1) {
                    SCHEDULE();
                }
            }
        }
#endif
    }
}

/* Sets sum[] to the sum of chunks [first, end) of the panel, which has n_parts parts. */
static inline void add_chunks(__global const uint *panel, uint lane, uint n_parts, uint first, uint end, uint4 table,
                              const struct tokens *t, float *sum)
{
    const uint per = (n_parts + CHUNKS - 1) / CHUNKS;
    for (uint c = first; c < end; c++) {
        float part[TOKENS];
        UNROLL
        for (uint m = 0; m < TOKENS; m++) {
            part[m] = 0.0f;
        }
        add_parts(panel, lane, min(c * per, n_parts), min((c + 1) * per, n_parts), table, t, part);
        UNROLL
        for (uint m = 0; m < TOKENS; m++) {
            sum[m] = c == first ? part[m] : sum[m] + part[m];
        }
    }
}

/* rows: kind of token rows (enum plan_rows); n_blocks: of a row of x; n_parts: of a panel, as add_parts counts. */
__kernel GROUP(LANES * WAVES, 1) void matmul(__global const int *restrict batch, int rows,
                                             __global const uint *restrict w, __global const int *restrict x,
                                             uint n_blocks, uint n_parts, __global float *restrict dst, uint dst_stride,
                                             uint dst_first, uint n_out, uint n_panels,
                                             __global const float *restrict bias, float scale, int flags, float cap,
                                             uint4 table
#if PAIR
                                             ,
                                             __global const uint *restrict w2, __global const float *restrict bias2,
                                             int act, __global int *restrict codes, uint codes_blocks
#endif
#if PICKED
                                             ,
                                             __global const int *restrict tiles, __global const int *restrict picks,
                                             uint group_panels, uint per_row
#endif
)
{
    const uint lid = get_local_id(0), lane = lid % LANES, wave = UNIFORM(lid / LANES);
#if PICKED
    /* rows of dst are picks, per_row of them for each row of x; n_out: of a group of panels */
    if (get_group_id(2) >= (uint)tiles[0]) {
        return;
    }
    __global const int *tile = tiles + 1 + get_group_id(2) * 3; /* expert, first pick, picks */
    const uint expert = tile[0], n_rows = tile[2];
    picks += tile[1];
    const uint first_panel = expert * group_panels;
#else
    const uint first = get_group_id(2) * TOKENS, n_rows = batch[rows] - first;
    const uint first_panel = 0;
#endif
    struct tokens t;
#if !IS_FLOAT
    t.x = x;
    t.n_blocks = n_blocks;
#elif !PICKED
    t.x = (__global const float *)x + (size_t)first * n_blocks * 32;
    t.stride = n_blocks * 32;
#endif
#if PICKED
    for (uint m = 0; m < TOKENS; m++) {
        const uint row = (uint)picks[min(m, n_rows - 1)] / per_row;
#if IS_FLOAT
        t.x[m] = (__global const float *)x + (size_t)row * n_blocks * 32;
#else
        t.row[m] = row;
#endif
    }
#elif !IS_FLOAT
    t.row = first;
#endif
#if IS_FLOAT
    const size_t words = (size_t)n_parts * (KIND == KIND_F32 ? 32 : 16) * LANES;
#else
    const size_t words = (size_t)n_parts * GROUP_WORDS * LANES;
#endif
    float sum[WEIGHTS][TOKENS];
#if SPLIT
    __local float parts[CHUNKS][WEIGHTS * TOKENS][LANES];
    const uint panel = get_group_id(0), from = wave, to = wave + 1;
    const size_t at = (first_panel + panel) * words;
#else
    const uint panel = get_group_id(0) * WAVES + wave, from = 0, to = CHUNKS;
    const bool is_there = panel < n_panels;
    const size_t at = (first_panel + (is_there ? panel : 0)) * words;
#endif
    add_chunks(w + at, lane, n_parts, from, to, table, &t, sum[0]);
#if PAIR
    add_chunks(w2 + at, lane, n_parts, from, to, table, &t, sum[1]);
#endif
#if SPLIT
    UNROLL
    for (uint i = 0; i < WEIGHTS * TOKENS; i++) {
        parts[wave][i][lane] = sum[i / TOKENS][i % TOKENS];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    /* from here a wave handles a token row */
    const uint own = wave < TOKENS ? wave : 0, n_own = 1;
    const bool is_there = wave < TOKENS;
    UNROLL
    for (uint k = 0; k < WEIGHTS; k++) {
        float all = parts[0][k * TOKENS + own][lane];
        for (uint c = 1; c < CHUNKS; c++) {
            all += parts[c][k * TOKENS + own][lane];
        }
        sum[k][0] = all;
    }
#else
    const uint own = 0, n_own = TOKENS;
#endif
    const uint n = panel * LANES + lane;
    const bool is_out = is_there && n < n_out;
#if PICKED
#define ROW(m) ((uint)picks[min((m), n_rows - 1)])
    if ((flags & FLAG_BIAS) != 0) {
        bias += expert * n_out;
#if PAIR
        bias2 += expert * n_out;
#endif
    }
#else
#define ROW(m) (first + (m))
#endif
#if PAIR
    __local float values[WAVES][8][LANES];
    __local float room[LANES * WAVES];
    __local int rooms[LANES * WAVES];
    /* eight token rows of a wave at a time: their 32 outputs are a block each */
    const uint at_once = n_own < 8 ? n_own : 8;
    UNROLL
    for (uint begin = 0; begin < n_own; begin += 8) {
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL
        for (uint i = 0; i < at_once; i++) {
            const uint m = begin + i, row = ROW(own + m);
            float gate = sum[0][m] + ((flags & FLAG_BIAS) != 0 && is_out ? bias[n] : 0.0f);
            float up = sum[1][m] + ((flags & FLAG_BIAS) != 0 && is_out ? bias2[n] : 0.0f);
            float y = is_out ? glu(act, gate, up) : 0.0f;
            values[wave][i][lane] = y;
            if ((flags & FLAG_FLOATS) != 0 && is_out && own + m < n_rows) {
                dst[(size_t)row * dst_stride + n] = y;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint four = 0; four < 2; four++) {
            const uint m = 4 * four + lane / 8, at = own + begin + m, row = ROW(at);
            const bool is_here = is_there && m < at_once && at < n_rows;
            float4 v = m < at_once ? vload4(lane % 8, values[wave][m]) : (float4)0.0f;
            act_store(v, is_here, flags, lid, room, rooms, codes, is_here ? row : 0, codes_blocks, panel);
        }
    }
#else
    for (uint m = 0; m < n_own; m++) {
        const uint row = ROW(own + m);
        if (is_out && own + m < n_rows) {
            float y = sum[0][m] + ((flags & FLAG_BIAS) != 0 ? bias[n] : 0.0f);
            y *= scale;
            y = (flags & FLAG_CAP) != 0 ? cap * tanh(y / cap) : y;
            __global float *out = dst + (size_t)row * dst_stride + dst_first + n;
            *out = (flags & FLAG_ADDS) != 0 ? *out + y : y;
        }
    }
#endif
}
