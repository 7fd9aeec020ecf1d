/* Reading panels with 512-bit vectors: a lane is an output row of the panel. Include after matmul_panels_vec.h. */
#ifndef INFCGI_KERNELS_X86_MATMUL_512_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_512_VEC_H

enum { LINE_BYTES = 64 };

static ALWAYS_INLINE __m512 half_row(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}

static ALWAYS_INLINE __m512 bf16_row(const unsigned char *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

static ALWAYS_INLINE __m512 step_row(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}

/* Scales or minimums number `at` of a group: `rows` of them, their unit at `unit`. */
static ALWAYS_INLINE __m512 scale_row(const unsigned char *rows, const unsigned char *unit, size_t at, struct shape k)
{
    if (k.has_unit) {
        return _mm512_mul_ps(step_row(rows + at * PANEL_ROWS), half_row(unit));
    }
    return k.has_bf16_scale ? bf16_row(rows + at * 2 * PANEL_ROWS) : half_row(rows + at * 2 * PANEL_ROWS);
}

/* Every 16-bit element shifted right, or left where `by` is below 0; a constant. */
static ALWAYS_INLINE __m512i shift_right(__m512i v, int by)
{
    return by > 0 ? _mm512_srli_epi16(v, (unsigned)by) : by < 0 ? _mm512_slli_epi16(v, (unsigned)-by) : v;
}

/* Bits `from` .. of every byte of a line, as many as `mask` has, moved to where mask has them; or'ed to `low`. */
static ALWAYS_INLINE __m512i add_bits(__m512i low, const unsigned char *line, int by, char mask)
{
    __m512i bits = shift_right(_mm512_load_si512(line), by);
    return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi8(mask), low, 0xEA); /* (bits & mask) | low */
}

/* Word v (0..7) of a block's codes for every lane, table entries in table kinds. */
static ALWAYS_INLINE __m512i code_words(const unsigned char *codes, __m512i table, int v, struct shape k)
{
    if (k.bits == 8) {
        return _mm512_load_si512(codes + LINE_BYTES * v);
    }
    if (k.bits < 4) {
        __m512i pairs = shift_right(_mm512_load_si512(codes + LINE_BYTES * (v / 4)), 2 * (v % 4));
        pairs = _mm512_and_si512(pairs, _mm512_set1_epi8(3));
        return k.bits == 3 ? add_bits(pairs, codes + 2 * LINE_BYTES, v - 2, 4) : pairs;
    }
    __m512i low = shift_right(_mm512_load_si512(codes + LINE_BYTES * (v / 2)), 4 * (v % 2));
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    if (k.bits == 5) {
        return add_bits(low, codes + 4 * LINE_BYTES, v - 4, 16);
    }
    if (k.bits == 6) {
        return add_bits(low, codes + LINE_BYTES * (4 + v / 4), 2 * (v % 4) - 4, 48);
    }
    return k.has_table ? _mm512_shuffle_epi8(table, low) : low;
}

static ALWAYS_INLINE __m512i load_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    return k.has_table ? _mm512_load_si512(panel + g->table) : _mm512_setzero_si512();
}

#endif
