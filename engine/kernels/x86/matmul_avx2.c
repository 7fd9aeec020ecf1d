/* out = rows * panels^T with AVX2, quantised kinds. There is no byte dot product here, so codes are multiplied in
 * nibbles: vpmaddubsw adds two products of a nibble (0..15) and an activation (-128..127) in 16 bits, and eight of
 * those still fit (8 * 2 * 15 * 128 = 30,720), so a block needs widening only once. An 8-bit code is two nibbles, so no
 * code saturates. Kinds with a table look up the two nibbles of each code. A panel is done in two halves of 8 lanes.
 * The order of float operations is that of kern.h, as in matmul_avx512.c. Functions with more than five parameters:
 * tile shapes and counts are compile-time constants, folded into each copy of the inlined function, and are kept apart
 * from what is only known at run time. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <string.h>

/* Activation rows that are taken through all panels at a time: they stay in the second-level cache (256 KiB and more on
 * CPUs with AVX2) while the panels stream past. */
enum { ROWS_IN_CACHE_BYTES = 192 * 1024, TILE_ROWS = 4, HALVES = 2, PREFETCH_BYTES = 4096 };

/* What a tile needs to know of the call. */
struct job {
    size_t n_blocks;
    size_t row_bytes;
    size_t scales, mins, table; /* offsets in a panel */
    size_t ahead;               /* distance at which panels are prefetched, whole panels */
    size_t out_stride;
};

/* What differs between the quantised kinds; always compile-time constants. */
struct shape {
    int bits; /* 4 or 8 */
    int zero_point;
    bool has_min;
    int parts; /* scales per block of 32: 1 or 2 */
    bool has_table;
    bool has_bf16_scale;
};

/* Nibbles of a panel's table: what vpshufb makes of an index. */
struct table {
    __m256i low, high;
};

static ALWAYS_INLINE __m256 half_row(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

static ALWAYS_INLINE __m256 bf16_row(const unsigned char *p)
{
    __m256i words = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

static ALWAYS_INLINE struct table table_of(const struct job *g, const unsigned char *panel)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i whole = _mm256_load_si256((const __m256i *)(const void *)(panel + g->table));
    return (struct table){_mm256_and_si256(whole, mask), _mm256_and_si256(_mm256_srli_epi16(whole, 4), mask)};
}

static ALWAYS_INLINE int32_t int_at(const int8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Block b of row r of a tile. */
static ALWAYS_INLINE const struct kern_qblock *block_of(const struct job *g, const unsigned char *rows, int r, size_t b)
{
    return (const struct kern_qblock *)(const void *)(rows + (size_t)r * g->row_bytes) + b;
}

/* sum += nibbles * four activation bytes, in pairs. Nothing saturates; but a saturating addition keeps the compiler
 * from reordering the sum, for which gcc 12 held all products at once and spilt them (a third slower). */
static ALWAYS_INLINE __m256i add_pairs(__m256i sum, __m256i nibbles, const int8_t *q)
{
    return _mm256_adds_epi16(sum, _mm256_maddubs_epi16(nibbles, _mm256_set1_epi32(int_at(q))));
}

/* acc[r] += codes . q over `steps` times eight inputs of 4-bit codes, 8 lanes. */
static ALWAYS_INLINE void dot_4_bit(const unsigned char *codes, const int8_t *q, size_t row_bytes, int n, int steps,
                                    __m256i *acc)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i pairs[TILE_ROWS] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                                _mm256_setzero_si256()};
    UNROLL_FULLY
    for (int j = 0; j < steps; j++) {
        __m256i both = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * j));
        __m256i low = _mm256_and_si256(both, mask);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            pairs[r] = add_pairs(pairs[r], low, q + (size_t)r * row_bytes + 8 * j);
            pairs[r] = add_pairs(pairs[r], high, q + (size_t)r * row_bytes + 8 * j + 4);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)));
    }
}

/* acc[r] += low nibbles + 16 * high nibbles. */
static ALWAYS_INLINE void add_nibbles(const __m256i *low_pairs, const __m256i *high_pairs, int n, __m256i *acc)
{
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256i low = _mm256_madd_epi16(low_pairs[r], _mm256_set1_epi16(1));
        __m256i high = _mm256_madd_epi16(high_pairs[r], _mm256_set1_epi16(16));
        acc[r] = _mm256_add_epi32(acc[r], _mm256_add_epi32(low, high));
    }
}

/* The same for `steps` times eight inputs of indexes into a table. */
static ALWAYS_INLINE void dot_table(const unsigned char *codes, struct table t, const int8_t *q, size_t row_bytes,
                                    int n, int steps, __m256i *acc)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low_pairs[TILE_ROWS], high_pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        low_pairs[r] = high_pairs[r] = _mm256_setzero_si256();
    }
    UNROLL_FULLY
    for (int j = 0; j < 2 * steps; j++) { /* indexes in low nibbles of a line, then in its high ones */
        __m256i both = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * (j / 2)));
        __m256i index = _mm256_and_si256(j % 2 == 0 ? both : _mm256_srli_epi16(both, 4), mask);
        __m256i low = _mm256_shuffle_epi8(t.low, index), high = _mm256_shuffle_epi8(t.high, index);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            low_pairs[r] = add_pairs(low_pairs[r], low, q + (size_t)r * row_bytes + 4 * j);
            high_pairs[r] = add_pairs(high_pairs[r], high, q + (size_t)r * row_bytes + 4 * j);
        }
    }
    add_nibbles(low_pairs, high_pairs, n, acc);
}

/* The same for `steps` times four inputs of 8-bit codes. */
static ALWAYS_INLINE void dot_8_bit(const unsigned char *codes, const int8_t *q, size_t row_bytes, int n, int steps,
                                    __m256i *acc)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low_pairs[TILE_ROWS], high_pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        low_pairs[r] = high_pairs[r] = _mm256_setzero_si256();
    }
    UNROLL_FULLY
    for (int j = 0; j < steps; j++) {
        __m256i both = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * j));
        __m256i low = _mm256_and_si256(both, mask);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            low_pairs[r] = add_pairs(low_pairs[r], low, q + (size_t)r * row_bytes + 4 * j);
            high_pairs[r] = add_pairs(high_pairs[r], high, q + (size_t)r * row_bytes + 4 * j);
        }
    }
    add_nibbles(low_pairs, high_pairs, n, acc);
}

/* acc[r] += (codes - zero point) . one term of block b, or a part of one. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, struct table t,
                              const unsigned char *rows, size_t b, int part, int n, struct shape k, bool is_lo,
                              __m256i *acc)
{
    for (int r = 0; r < n && k.zero_point != 0; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        const int32_t *half = is_lo ? q->half_lo : q->half;
        int32_t zero = k.parts == 2 ? half[part] : is_lo ? q->zero_lo : q->zero; /* -8 * sum */
        acc[r] = _mm256_add_epi32(acc[r], _mm256_set1_epi32(zero * (k.zero_point / 8)));
    }
    const struct kern_qblock *first = block_of(g, rows, 0, b);
    const int8_t *q = is_lo ? first->lo : first->hi;
    int steps = k.bits / k.parts; /* lines of codes */
    codes += 64 * part * steps;
    q += PANEL_BLOCK / k.parts * part;
    if (k.has_table) {
        dot_table(codes, t, q, g->row_bytes, n, steps, acc);
    } else if (k.bits == 4) {
        dot_4_bit(codes, q, g->row_bytes, n, steps, acc);
    } else {
        dot_8_bit(codes, q, g->row_bytes, n, steps, acc);
    }
}

/* product[r] += min times the sum of the inputs over half a block, in units of d. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_fine, __m256 min, __m256 *product)
{
    min = _mm256_mul_ps(min, _mm256_set1_ps(is_fine ? -1.0f / 2048 : -1.0f / 8));
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        int32_t total = is_fine ? 256 * q->half[part] + q->half_lo[part] : q->half[part];
        product[r] = _mm256_fmadd_ps(min, _mm256_set1_ps((float)total), product[r]);
    }
}

/* One block's part of a tile for one half of the lanes: integer dot, then the float steps kern.h prescribes. */
static ALWAYS_INLINE void tile_part(const struct job *g, const unsigned char *panel, struct table t,
                                    const unsigned char *rows, size_t b, int part, int half, int n, struct shape k,
                                    bool is_fine, __m256 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    const unsigned char *codes = panel + b * (size_t)(k.bits * 64) + 32 * half;
    const unsigned char *scales = panel + g->scales + at * 32 + 16 * (size_t)half;
    __m256 scale = k.has_bf16_scale ? bf16_row(scales) : half_row(scales);
    __m256i acc[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm256_setzero_si256();
    }
    dot(g, codes, t, rows, b, part, n, k, false, acc);
    if (is_fine) {
        scale = _mm256_mul_ps(scale, _mm256_set1_ps(1.0f / 256));
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = _mm256_slli_epi32(acc[r], 8);
        }
        dot(g, codes, t, rows, b, part, n, k, true, acc);
    }
    __m256 product[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_fine, half_row(panel + g->mins + at * 32 + 16 * (size_t)half), product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[r] = _mm256_fmadd_ps(product[r], _mm256_set1_ps(block_of(g, rows, r, b)->d), sum[r]);
    }
    if (k.has_min && k.parts == 1) {
        __m256 min = half_row(panel + g->mins + at * 32 + 16 * (size_t)half);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(block_of(g, rows, r, b)->s), sum[r]);
        }
    }
}

/* Block b of a tile, half `half` of the lanes. Where no row of the tile has a second term, none is computed. */
static ALWAYS_INLINE void tile_block(const struct job *g, const unsigned char *panel, struct table t,
                                     const unsigned char *rows, size_t b, int half, int n, struct shape k, __m256 *sum)
{
    uint32_t any = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        any |= block_of(g, rows, r, b)->fine;
    }
    UNROLL_FULLY
    for (int part = 0; part < k.parts; part++) {
        if (any != 0) {
            tile_part(g, panel, t, rows, b, part, half, n, k, true, sum);
        } else {
            tile_part(g, panel, t, rows, b, part, half, n, k, false, sum);
        }
    }
}

/* Asks for the lines that lie `ahead` of block b's share of the panel; see matmul_avx512.c. */
static ALWAYS_INLINE void prefetch(const struct job *g, const unsigned char *panel, size_t b, struct shape k)
{
    const int share = k.bits * 64 + 32 * k.parts * (k.has_min ? 2 : 1); /* bytes of a block */
    uintptr_t at = (uintptr_t)panel + g->ahead + b * (size_t)share;     /* may lie behind the last panel: harmless */
    UNROLL_FULLY
    for (int line = 0; line < share; line += 64) {
        _mm_prefetch((const char *)(at + (uintptr_t)line), _MM_HINT_T0);
    }
}

/* Likewise for its table, if it has one; returns that of this panel. */
static ALWAYS_INLINE struct table take_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    if (!k.has_table) {
        return (struct table){_mm256_setzero_si256(), _mm256_setzero_si256()};
    }
    _mm_prefetch((const char *)((uintptr_t)panel + g->ahead + g->table), _MM_HINT_T0);
    return table_of(g, panel);
}

/* Both halves of the lanes, block by block: few rows, whose panels stream from memory. */
static ALWAYS_INLINE void thin_tile(const struct job *g, const unsigned char *panel, const unsigned char *rows,
                                    float *out, int n, struct shape k)
{
    __m256 sum[HALVES][TILE_ROWS];
    struct table t = take_table(g, panel, k);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[0][r] = sum[1][r] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < g->n_blocks; b++) {
        prefetch(g, panel, b, k);
        tile_block(g, panel, t, rows, b, 0, n, k, sum[0]);
        tile_block(g, panel, t, rows, b, 1, n, k, sum[1]);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        _mm256_storeu_ps(out + (size_t)r * g->out_stride, sum[0][r]);
        _mm256_storeu_ps(out + (size_t)r * g->out_stride + 8, sum[1][r]);
    }
}

/* One half of the lanes after the other, so that everything stays in 16 registers. */
static ALWAYS_INLINE void full_tile(const struct job *g, const unsigned char *panel, const unsigned char *rows,
                                    float *out, struct shape k)
{
    struct table t = take_table(g, panel, k);
    for (int half = 0; half < HALVES; half++) {
        __m256 sum[TILE_ROWS];
        UNROLL_FULLY
        for (int r = 0; r < TILE_ROWS; r++) {
            sum[r] = _mm256_setzero_ps();
        }
        for (size_t b = 0; b < g->n_blocks; b++) {
            prefetch(g, panel, b, k);
            tile_block(g, panel, t, rows, b, half, TILE_ROWS, k, sum);
        }
        UNROLL_FULLY
        for (int r = 0; r < TILE_ROWS; r++) {
            _mm256_storeu_ps(out + (size_t)r * g->out_stride + 8 * half, sum[r]);
        }
    }
}

/* All rows of a chunk against one panel. */
static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k)
{
    int r = 0;
    for (; r + TILE_ROWS <= n; r += TILE_ROWS) {
        full_tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, k);
    }
    if (n - r >= 2) {
        thin_tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 2, k);
        r += 2;
    }
    if (n - r >= 1) {
        thin_tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 1, k);
    }
}

/* Rows in a chunk: a multiple of a tile that fits the cache. */
static int chunk_rows(size_t row_bytes)
{
    size_t n = ROWS_IN_CACHE_BYTES / (row_bytes + 1) / TILE_ROWS * TILE_ROWS;
    return n < TILE_ROWS ? TILE_ROWS : (int)n;
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    size_t bytes = panel_bytes(kind, a->k);
    const struct job g = {.n_blocks = a->k / PANEL_BLOCK,
                          .row_bytes = a->row_bytes,
                          .scales = panel_scale_offset(kind, a->k),
                          .mins = panel_min_offset(kind, a->k),
                          .table = panel_table_offset(kind, a->k),
                          .ahead = (PREFETCH_BYTES + bytes - 1) / bytes * bytes,
                          .out_stride = a->out_stride};
    int step = chunk_rows(a->row_bytes);
    for (int r = 0; r < a->n_rows; r += step) {
        const unsigned char *rows = (const unsigned char *)a->rows + (size_t)r * a->row_bytes;
        int n = MIN_OF(step, a->n_rows - r);
        for (int p = 0; p < a->n_panels; p++) {
            panel_rows(&g, (const unsigned char *)a->panels + (size_t)p * bytes, rows, n,
                       a->out + (size_t)r * a->out_stride + (size_t)p * PANEL_ROWS, k);
        }
    }
}

static void matmul_u4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4, (struct shape){.bits = 4, .zero_point = 8, .parts = 1});
}

static void matmul_u4_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN, (struct shape){.bits = 4, .has_min = true, .parts = 1});
}

static void matmul_u8(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8, (struct shape){.bits = 8, .zero_point = 128, .parts = 1});
}

static void matmul_u8_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_MIN, (struct shape){.bits = 8, .has_min = true, .parts = 1});
}

static void matmul_u8_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_B16, (struct shape){.bits = 8, .zero_point = 128, .parts = 2});
}

static void matmul_u4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_B16, (struct shape){.bits = 4, .zero_point = 8, .parts = 2});
}

static void matmul_u4_min_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN_B16, (struct shape){.bits = 4, .has_min = true, .parts = 2});
}

static void matmul_t4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4, (struct shape){.bits = 4, .zero_point = 128, .parts = 1, .has_table = true});
}

static void matmul_t4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_B16, (struct shape){.bits = 4, .zero_point = 128, .parts = 2, .has_table = true});
}

static void matmul_t4_bf16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_BF16,
           (struct shape){.bits = 4, .zero_point = 128, .parts = 1, .has_table = true, .has_bf16_scale = true});
}

void kern_matmul_init_avx2(struct kern_table *t)
{
    t->matmul[PANEL_U4] = matmul_u4;
    t->matmul[PANEL_U4_MIN] = matmul_u4_min;
    t->matmul[PANEL_U8] = matmul_u8;
    t->matmul[PANEL_U8_MIN] = matmul_u8_min;
    t->matmul[PANEL_U8_B16] = matmul_u8_b16;
    t->matmul[PANEL_U4_B16] = matmul_u4_b16;
    t->matmul[PANEL_U4_MIN_B16] = matmul_u4_min_b16;
    t->matmul[PANEL_T4] = matmul_t4;
    t->matmul[PANEL_T4_B16] = matmul_t4_b16;
    t->matmul[PANEL_T4_BF16] = matmul_t4_bf16;
    kern_matmul_float_init_avx2(t);
}
