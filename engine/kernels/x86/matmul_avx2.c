/* out = rows * panels^T with AVX2, quantised kinds. There is no byte dot product here, so codes are multiplied in
 * nibbles: vpmaddubsw adds two products of a nibble (0..15) and an activation (-128..127) in 16 bits, and eight of
 * those still fit (8 * 2 * 15 * 128 = 30,720), so a block needs widening only once. An 8-bit code is two nibbles, so no
 * code saturates. Kinds with a table look up the two nibbles of each code. */
#include "engine/kernels/isa.h"

/* One half after the other, so that everything stays in 16 registers. */
enum { WIDTH = 1 };
#include "engine/kernels/x86/matmul_256_vec.h"

/* sum += nibbles * four activation bytes, in pairs. Nothing saturates; but a saturating addition keeps the compiler
 * from reordering the sum, for which gcc 12 held all products at once and spilt them (a third slower). */
static ALWAYS_INLINE __m256i add_pairs(__m256i sum, __m256i nibbles, const int8_t *q)
{
    return _mm256_adds_epi16(sum, _mm256_maddubs_epi16(nibbles, four_bytes(q)));
}

static ALWAYS_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

static ALWAYS_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

/* 4-bit codes. */
static ALWAYS_INLINE void dot_nibbles(const unsigned char *codes, int n_lines, const int8_t *q, size_t row_bytes, int n,
                                      __m256i *acc)
{
    __m256i pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        pairs[r] = _mm256_setzero_si256();
    }
    UNROLL_FULLY
    for (int j = 0; j < n_lines; j++) {
        __m256i low = low_nibbles(line_of(codes, j, 0)), high = high_nibbles(line_of(codes, j, 0));
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

/* 8-bit codes, as they lie or looked up in a table by 4-bit indexes: low nibbles of a line, then its high ones. */
static ALWAYS_INLINE void dot_bytes(const unsigned char *codes, int n_lines, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i *acc)
{
    const __m256i low_table = low_nibbles(table), high_table = high_nibbles(table);
    __m256i low_pairs[TILE_ROWS], high_pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        low_pairs[r] = high_pairs[r] = _mm256_setzero_si256();
    }
    int lines_in_one = k.has_table ? 2 : 1;
    UNROLL_FULLY
    for (int j = 0; j < n_lines * lines_in_one; j++) {
        __m256i line = line_of(codes, j / lines_in_one, 0), low, high;
        if (k.has_table) {
            __m256i index = j % 2 == 0 ? low_nibbles(line) : high_nibbles(line);
            low = _mm256_shuffle_epi8(low_table, index);
            high = _mm256_shuffle_epi8(high_table, index);
        } else {
            low = low_nibbles(line);
            high = high_nibbles(line);
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            low_pairs[r] = add_pairs(low_pairs[r], low, q + (size_t)r * row_bytes + 4 * j);
            high_pairs[r] = add_pairs(high_pairs[r], high, q + (size_t)r * row_bytes + 4 * j);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256i low = _mm256_madd_epi16(low_pairs[r], _mm256_set1_epi16(1));
        __m256i high = _mm256_madd_epi16(high_pairs[r], _mm256_set1_epi16(16)); /* weight of the high nibble */
        acc[r] = _mm256_add_epi32(acc[r], _mm256_add_epi32(low, high));
    }
}

static ALWAYS_INLINE void dot_lines(const unsigned char *codes, int n_lines, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i acc[WIDTH][TILE_ROWS])
{
    if (k.bits == 4 && !k.has_table) {
        dot_nibbles(codes, n_lines, q, row_bytes, n, acc[0]);
    } else {
        dot_bytes(codes, n_lines, table, q, row_bytes, n, k, acc[0]);
    }
}

void kern_matmul_init_avx2(struct kern_table *t)
{
    matmul_vec_init(t);
    kern_matmul_float_init_avx2(t);
}
