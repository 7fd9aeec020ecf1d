/* Matrix products of the quantised kinds over 256-bit vectors: everything but the sum of products, which the includer
 * defines as dot_4_bit and dot_8_bit. A panel is done in two halves of 8 lanes. */
#ifndef INFCGI_KERNELS_X86_MATMUL_256_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_256_VEC_H

/* CPUs with AVX2 have second-level caches of 256 KiB and more. */
enum { ROWS_IN_CACHE_BYTES = 192 * 1024, TILE_ROWS = 4, HALVES = 2 };
#include "engine/kernels/x86/matmul_vec.h"

#include <string.h>

/* acc[r] += codes . activations over n_lines lines of a block's 4-bit or 8-bit codes, 8 lanes. Row r's activations lie
 * r * row_bytes behind the first row's, q. */
static ALWAYS_INLINE void dot_4_bit(const unsigned char *codes, int n_lines, const int8_t *q, size_t row_bytes, int n,
                                    __m256i *acc);
static ALWAYS_INLINE void dot_8_bit(const unsigned char *codes, int n_lines, const int8_t *q, size_t row_bytes, int n,
                                    __m256i *acc);

static ALWAYS_INLINE __m256 half_row(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

/* Four activation bytes in every lane. */
static ALWAYS_INLINE __m256i four_bytes(const int8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* acc[r] += (codes - zero point) . one term of block b, or a part of one. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, const unsigned char *rows, size_t b,
                              int part, int n, struct shape k, bool is_lo, __m256i *acc)
{
    for (int r = 0; r < n && k.zero_shift != 0; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        const int32_t *half = is_lo ? q->half_lo : q->half;
        __m256i zero = _mm256_set1_epi32(k.parts == 2 ? half[part] : is_lo ? q->zero_lo : q->zero); /* -8 * sum */
        acc[r] = _mm256_add_epi32(acc[r], _mm256_slli_epi32(zero, k.zero_shift - 3));
    }
    const struct kern_qblock *first = block_of(g, rows, 0, b);
    const int8_t *q = (is_lo ? first->lo : first->hi) + PANEL_BLOCK / k.parts * part;
    int n_lines = k.bits / k.parts;
    codes += 64 * n_lines * part;
    if (k.bits == 4) {
        dot_4_bit(codes, n_lines, q, g->row_bytes, n, acc);
    } else {
        dot_8_bit(codes, n_lines, q, g->row_bytes, n, acc);
    }
}

/* One block's part of a tile for one half of the lanes: integer dot, then the float steps kern.h prescribes. */
static ALWAYS_INLINE void tile_part(const struct job *g, const unsigned char *panel, const unsigned char *rows,
                                    size_t b, int part, int half, int n, struct shape k, bool is_fine, __m256 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    const unsigned char *codes = panel + b * (size_t)(k.bits * 64) + 32 * half;
    __m256 scale = half_row(panel + g->scales + at * 32 + 16 * (size_t)half);
    __m256i acc[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm256_setzero_si256();
    }
    dot(g, codes, rows, b, part, n, k, false, acc);
    if (is_fine) {
        scale = _mm256_mul_ps(scale, _mm256_set1_ps(1.0f / 256));
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = _mm256_slli_epi32(acc[r], 8);
        }
        dot(g, codes, rows, b, part, n, k, true, acc);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256 d = _mm256_set1_ps(block_of(g, rows, r, b)->d);
        sum[r] = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(acc[r])), d, sum[r]);
    }
    if (k.has_min) {
        __m256 min = half_row(panel + g->mins + at * 32 + 16 * (size_t)half);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(block_of(g, rows, r, b)->s), sum[r]);
        }
    }
}

/* Block b of a tile, half `half` of the lanes. Where no row of the tile has a second term, none is computed. */
static ALWAYS_INLINE void tile_block(const struct job *g, const unsigned char *panel, const unsigned char *rows,
                                     size_t b, int half, int n, struct shape k, __m256 *sum)
{
    bool is_fine = any_fine(g, rows, b, n);
    for (int part = 0; part < k.parts; part++) {
        if (is_fine) {
            tile_part(g, panel, rows, b, part, half, n, k, true, sum);
        } else {
            tile_part(g, panel, rows, b, part, half, n, k, false, sum);
        }
    }
}

/* Both halves of the lanes, block by block: few rows, whose panels stream from memory. */
static ALWAYS_INLINE void thin_tile(const struct job *g, const unsigned char *panel, const unsigned char *rows,
                                    float *out, int n, struct shape k)
{
    __m256 sum[HALVES][TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[0][r] = sum[1][r] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < g->n_blocks; b++) {
        prefetch(g, panel, b, k);
        tile_block(g, panel, rows, b, 0, n, k, sum[0]);
        tile_block(g, panel, rows, b, 1, n, k, sum[1]);
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
    for (int half = 0; half < HALVES; half++) {
        __m256 sum[TILE_ROWS];
        UNROLL_FULLY
        for (int r = 0; r < TILE_ROWS; r++) {
            sum[r] = _mm256_setzero_ps();
        }
        for (size_t b = 0; b < g->n_blocks; b++) {
            prefetch(g, panel, b, k);
            tile_block(g, panel, rows, b, half, TILE_ROWS, k, sum);
        }
        UNROLL_FULLY
        for (int r = 0; r < TILE_ROWS; r++) {
            _mm256_storeu_ps(out + (size_t)r * g->out_stride + 8 * half, sum[r]);
        }
    }
}

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

#endif
