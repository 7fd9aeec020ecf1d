/* out = rows * panels^T with AVX2, quantized kinds. AVX2 has no byte dot product, so codes are multiplied in parts of
 * at most four bits. vpmaddubsw adds two products of such a part (0..15) and an activation (-128..127) in 16 bits.
 * Eight of these sums still fit (8 * 2 * 15 * 128 = 30,720), so a block needs widening only once. Longer codes are two
 * parts, so nothing saturates. Kinds with a table look up the two nibbles of each code. */
#include "engine/kernels/isa.h"

/* One half at a time, so that all operands stay in 16 registers. */
enum { WIDTH = 1 };
#include "engine/kernels/x86/matmul_256_vec.h"

/* Adds nibbles times four activation bytes, in pairs, to sum. Nothing saturates, but a saturating addition keeps the
 * compiler from reordering the sum. gcc 12 otherwise holds all products at the same time and spills them (a third
 * slower). */
static ALWAYS_INLINE __m256i add_pairs(__m256i sum, __m256i nibbles, const int8_t *q)
{
    return _mm256_adds_epi16(sum, _mm256_maddubs_epi16(nibbles, four_bytes(q)));
}

static ALWAYS_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

static ALWAYS_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

/* Multiplies codes of 2 to 4 bits. */
static ALWAYS_INLINE void dot_narrow(const unsigned char *codes, int from, int to, const int8_t *q, size_t row_bytes,
                                     int n, struct shape k, __m256i *acc)
{
    __m256i pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        pairs[r] = _mm256_setzero_si256();
    }
    UNROLL_FULLY
    for (int v = from; v < to; v++) {
        __m256i word = low_bits(codes, v, 0, k);
        word = k.bits == 3 ? _mm256_or_si256(word, _mm256_slli_epi16(high_bits(codes, v, 0, k), 2)) : word;
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            pairs[r] = add_pairs(pairs[r], word, q + (size_t)r * row_bytes + 4 * v);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)));
    }
}

/* Splits word v's codes into low nibbles and the bits above. */
static ALWAYS_INLINE void split(const unsigned char *codes, __m256i table, int v, struct shape k, __m256i *low,
                                __m256i *high)
{
    __m256i word = low_bits(codes, v, 0, k);
    if (k.has_table) {
        *low = _mm256_shuffle_epi8(low_nibbles(table), word);
        *high = _mm256_shuffle_epi8(high_nibbles(table), word);
    } else if (k.bits == 8) {
        *low = low_nibbles(word);
        *high = high_nibbles(word);
    } else {
        *low = word;
        *high = high_bits(codes, v, 0, k);
    }
}

/* Multiplies codes of 5 to 8 bits, read directly or from a table by 4-bit indexes. */
static ALWAYS_INLINE void dot_bytes(const unsigned char *codes, int from, int to, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i *acc)
{
    __m256i low_pairs[TILE_ROWS], high_pairs[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        low_pairs[r] = high_pairs[r] = _mm256_setzero_si256();
    }
    UNROLL_FULLY
    for (int v = from; v < to; v++) {
        __m256i low, high;
        split(codes, table, v, k, &low, &high);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            low_pairs[r] = add_pairs(low_pairs[r], low, q + (size_t)r * row_bytes + 4 * v);
            high_pairs[r] = add_pairs(high_pairs[r], high, q + (size_t)r * row_bytes + 4 * v);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256i low = _mm256_madd_epi16(low_pairs[r], _mm256_set1_epi16(1));
        __m256i high = _mm256_madd_epi16(high_pairs[r], _mm256_set1_epi16(16)); /* weight of the high part */
        acc[r] = _mm256_add_epi32(acc[r], _mm256_add_epi32(low, high));
    }
}

static ALWAYS_INLINE void dot_words(const unsigned char *codes, int from, int to, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i acc[WIDTH][TILE_ROWS])
{
    if (k.bits <= 4 && !k.has_table) {
        dot_narrow(codes, from, to, q, row_bytes, n, k, acc[0]);
    } else {
        dot_bytes(codes, from, to, table, q, row_bytes, n, k, acc[0]);
    }
}

void kern_matmul_init_avx2(struct kern_table *t) { matmul_vec_init(t); }
