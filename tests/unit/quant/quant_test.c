/* Weight types: dequantised values bit for bit as the gguf package gives them, and packed panels that stand for the
 * same weights. */
#include "engine/quant/quant.h"

#include "engine/base/mem.h"
#include "engine/quant/panel_pack.h"
#include "engine/quant/row_factored.h"
#include "engine/quant/row_mapped.h"
#include "tests/unit/quant/quant_vectors.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *quant_suite(void);

struct vector {
    enum dtype type;
    const uint8_t *bytes;
    size_t n_bytes;
    const uint32_t *bits;
    size_t n;
};

#define VECTOR(type, name)                                                                                             \
    {                                                                                                                  \
        type, name##_bytes, sizeof name##_bytes, name##_bits, ARRAY_LEN(name##_bits)                                   \
    }
static const struct vector vectors[] = {
    VECTOR(DTYPE_F32, f32),       VECTOR(DTYPE_F16, f16),           VECTOR(DTYPE_BF16, bf16),
    VECTOR(DTYPE_Q4_0, q4_0),     VECTOR(DTYPE_Q4_1, q4_1),         VECTOR(DTYPE_Q5_0, q5_0),
    VECTOR(DTYPE_Q5_1, q5_1),     VECTOR(DTYPE_Q8_0, q8_0),         VECTOR(DTYPE_Q4_K, q4_k),
    VECTOR(DTYPE_Q5_K, q5_k),     VECTOR(DTYPE_Q6_K, q6_k),         VECTOR(DTYPE_Q2_K, q2_k),
    VECTOR(DTYPE_Q3_K, q3_k),     VECTOR(DTYPE_TQ1_0, tq1_0),       VECTOR(DTYPE_TQ2_0, tq2_0),
    VECTOR(DTYPE_IQ1_S, iq1_s),   VECTOR(DTYPE_IQ1_M, iq1_m),       VECTOR(DTYPE_IQ2_XXS, iq2_xxs),
    VECTOR(DTYPE_IQ2_XS, iq2_xs), VECTOR(DTYPE_IQ2_S, iq2_s),       VECTOR(DTYPE_IQ3_XXS, iq3_xxs),
    VECTOR(DTYPE_IQ3_S, iq3_s),   VECTOR(DTYPE_IQ4_NL, iq4_nl),     VECTOR(DTYPE_IQ4_XS, iq4_xs),
    VECTOR(DTYPE_MXFP4, mxfp4),   VECTOR(DTYPE_NVFP4, nvfp4),       VECTOR(DTYPE_Q1_0, q1_0),
    VECTOR(DTYPE_Q2_0, q2_0),     VECTOR(DTYPE_Q2_0_128, q2_0_128),
};

START_TEST(dequantised_values_equal_the_gguf_package)
{
    const struct vector *v = &vectors[_i];
    uint64_t row_bytes;
    ck_assert(dtype_row_bytes(v->type, v->n, &row_bytes));
    ck_assert_uint_eq(row_bytes, v->n_bytes);
    unsigned char shifted[4096]; /* rows in a file have any alignment */
    memcpy(shifted + 1, v->bytes, v->n_bytes);
    float got[256];
    quant_ops(v->type)->dequantize(shifted + 1, v->n, got);
    for (size_t i = 0; i < v->n; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        if (bits != v->bits[i]) {
            ck_abort_msg("%s[%zu]: %08X, expected %08X", dtype_info(v->type)->name, i, bits, v->bits[i]);
        }
    }
}
END_TEST

struct checksum {
    enum dtype type;
    uint64_t sum;
    size_t exponent_at[2]; /* bytes of a block */
};

#define CHECKSUM(type, sum, first, last) {type, sum, {first, last}},
static const struct checksum checksums[] = {CHECKSUMS(CHECKSUM)};

/* The blocks that quant_vectors.py made its checksum of. */
static void checksum_blocks(const struct checksum *c, uint8_t *blocks, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        uint64_t z = (i / 8 + 1) * 0x9E3779B97F4A7C15u; /* splitmix64 */
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        blocks[i] = (uint8_t)((z ^ z >> 31) >> i % 8 * 8);
    }
    size_t block = dtype_info(c->type)->block_bytes;
    for (size_t b = 0; b < n_bytes; b += block) {
        for (int i = 0; i < 2; i++) {
            blocks[b + c->exponent_at[i]] = (blocks[b + c->exponent_at[i]] & 0x8F) | 0x20;
        }
    }
}

START_TEST(every_grid_point_equals_the_gguf_package)
{
    const struct checksum *c = &checksums[_i];
    size_t n_bytes = CHECKSUM_BLOCKS * (size_t)dtype_info(c->type)->block_bytes;
    size_t n = CHECKSUM_BLOCKS * (size_t)dtype_info(c->type)->block_elems;
    uint8_t *blocks = mem_zalloc(n_bytes, MEM_GENERAL);
    float *values = mem_zalloc_array(n, sizeof *values, MEM_GENERAL);
    checksum_blocks(c, blocks, n_bytes);
    quant_ops(c->type)->dequantize(blocks, n, values);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum += (2 * i + 1) * bits;
    }
    ck_assert_msg(sum == c->sum, "%s: checksum %016llX, expected %016llX", dtype_info(c->type)->name,
                  (unsigned long long)sum, (unsigned long long)c->sum);
    mem_free(blocks);
    mem_free(values);
}
END_TEST

/* The ends of MXFP4's range of scales, where halves would be zero or infinite: as ggml has them, and exact when packed.
 */
START_TEST(mxfp4_scales_are_exact_over_their_range)
{
    unsigned char panel[2 * 1024] __attribute__((aligned(64)));
    ck_assert_uint_le(panel_bytes(PANEL_T4_BF16, 32), sizeof panel);
    for (unsigned e = 0; e < 255; e++) {
        uint8_t block[17] = {(uint8_t)e, 0x97}; /* input 0: 12; input 16: -1 */
        float values[32], packed[32], scale = ldexpf(1, (int)e - 128);
        quant_ops(DTYPE_MXFP4)->dequantize(block, 32, values);
        panel_pack(DTYPE_MXFP4, block, sizeof block, 1, 32, panel);
        panel_unpack_row(PANEL_T4_BF16, panel, 32, 0, packed);
        if (values[0] != 12 * scale || values[16] != -scale || memcmp(values, packed, sizeof values) != 0) {
            ck_abort_msg("e %u: %a and %a, packed %a and %a", e, (double)values[0], (double)values[16],
                         (double)packed[0], (double)packed[16]);
        }
    }
}
END_TEST

/* Each block of NVFP4 with factors is the plain one times its factor, and a source adds and takes away factors. */
START_TEST(nvfp4_has_a_factor_per_matrix)
{
    enum { ROWS = 6, EACH = 2, IN = 128, PLAIN = 36, SCALED = 40 };
    static const float factors[ROWS / EACH] = {0.5f, 0.0078125f, 3};
    unsigned char file[ROWS][IN / 64 * PLAIN], scaled[IN / 64 * SCALED], back[IN / 64 * PLAIN];
    float plain[IN], got[IN], of_block[IN];
    struct arena a;
    for (size_t i = 0; i < sizeof file; i++) {
        file[i / sizeof file[0]][i % sizeof file[0]] = (unsigned char)(i * 37 % 127);
    }
    arena_init(&a, 1024, 0, MEM_GENERAL);
    const struct row_source *of = row_mapped_new(&a, DTYPE_NVFP4, file, ROWS, IN);
    const struct row_source *s = row_factored_new(&a, of, factors, EACH), *without = row_unfactored_new(&a, s);
    ck_assert(s != NULL && without != NULL && s->type == DTYPE_NVFP4_SCALED && s->row_bytes == sizeof scaled);
    for (uint32_t row = 0; row < ROWS; row++) {
        of->ops->read(of, row, 0, IN, plain);
        s->ops->read(s, row, 0, IN, got);
        row_source_encode(s, row, 1, scaled);
        quant_ops(s->type)->dequantize(scaled, IN, of_block);
        for (int i = 0; i < IN; i++) {
            ck_assert(got[i] == plain[i] * factors[row / EACH] && of_block[i] == got[i]);
        }
        row_source_encode(without, row, 1, back);
        ck_assert_mem_eq(back, file[row], sizeof back);
        ck_assert(row_factored_at(s, row) == factors[row / EACH]);
    }
    arena_fini(&a);
}
END_TEST

START_TEST(types_that_cannot_run_have_no_row)
{
    ck_assert_ptr_null(quant_ops(DTYPE_Q8_K));
    ck_assert_ptr_null(quant_ops(DTYPE_I32));
    ck_assert_ptr_null(quant_ops(DTYPE_COUNT));
    for (uint32_t id = 0; id < DTYPE_COUNT; id++) {
        const struct quant_ops *ops = quant_ops((enum dtype)id);
        if (ops != NULL && (ops->dequantize == NULL || (ops->unpack == NULL) != panel_info(ops->panel)->is_float ||
                            (ops->table != NULL) != panel_info(ops->panel)->has_table)) {
            ck_abort_msg("%s: incomplete row", dtype_info(id)->name);
        }
    }
}
END_TEST

/* The type's scales are halves or powers of two in the file, and so in the panel; elsewhere they are products. */
static bool scales_are_exact(enum dtype type)
{
    static const enum dtype exact[] = {DTYPE_F32,   DTYPE_F16,  DTYPE_BF16,  DTYPE_Q4_0,    DTYPE_Q4_1,   DTYPE_Q5_0,
                                       DTYPE_Q5_1,  DTYPE_Q8_0, DTYPE_TQ1_0, DTYPE_TQ2_0,   DTYPE_IQ4_NL, DTYPE_MXFP4,
                                       DTYPE_NVFP4, DTYPE_Q1_0, DTYPE_Q2_0,  DTYPE_Q2_0_128};
    for (size_t i = 0; i < ARRAY_LEN(exact); i++) {
        if (exact[i] == type) {
            return true;
        }
    }
    return false;
}

/* Packs `n_rows` rows of 4 times the vector into a panel and compares each lane with the dequantised row. */
static void check_panel(const struct vector *v, int n_rows)
{
    enum panel_kind kind = quant_ops(v->type)->panel;
    size_t k = v->n * 4, row_bytes = v->n_bytes * 4, stride = row_bytes + 3; /* rows apart and unaligned */
    unsigned char *src = mem_zalloc(stride * PANEL_ROWS, MEM_GENERAL);
    float *want = mem_zalloc_array(k, sizeof *want, MEM_GENERAL), *got = mem_zalloc_array(k, sizeof *got, MEM_GENERAL);
    size_t bytes = panel_bytes(kind, k);
    unsigned char *panel = mem_map(bytes + 64, MEM_GENERAL);
    memset(panel, 0xA5, bytes + 64);
    for (int r = 0; r < n_rows; r++) {
        for (size_t part = 0; part < 4; part++) { /* no two rows alike: blocks are rotated by the row number */
            size_t block = dtype_info(v->type)->block_bytes, from = (size_t)r * block % v->n_bytes;
            unsigned char *to = src + (size_t)r * stride + part * v->n_bytes;
            memcpy(to, v->bytes + from, v->n_bytes - from);
            memcpy(to + v->n_bytes - from, v->bytes, from);
            if (!panel_info(kind)->is_float) {
                to[block - 5] ^= (unsigned char)(r * 16 + (int)part); /* no exponent of a scale in any type */
            }
        }
    }
    panel_pack(v->type, src, stride, n_rows, k, panel);
    for (size_t i = 0; i < 64; i++) {
        ck_assert_msg(panel[bytes + i] == 0xA5, "wrote behind the panel");
    }
    for (int lane = 0; lane < PANEL_ROWS; lane++) {
        panel_unpack_row(kind, panel, k, lane, got);
        memset(want, 0, k * sizeof *want);
        if (lane < n_rows) {
            quant_ops(v->type)->dequantize(src + (size_t)lane * stride, k, want);
        }
        float most = 0;
        for (size_t i = 0; i < k; i++) {
            most = fmaxf(most, fabsf(want[i]));
        }
        for (size_t i = 0; i < k; i++) {
            /* a half's rounding of the scale, or of scale and minimum */
            float rounded = panel_info(kind)->has_min ? most * 0x1p-10f : fabsf(want[i]) * 0x1p-11f;
            float limit = scales_are_exact(v->type) ? 0 : rounded + 64 * 0x1p-25f; /* codes up to 64, subnormal scale */
            if (!(fabsf(got[i] - want[i]) <= limit)) {
                ck_abort_msg("%s lane %d of %d [%zu]: %a, expected %a", dtype_info(v->type)->name, lane, n_rows, i,
                             (double)got[i], (double)want[i]);
            }
        }
    }
    mem_unmap(panel, bytes + 64, MEM_GENERAL);
    mem_free(src);
    mem_free(want);
    mem_free(got);
}

START_TEST(packed_panels_stand_for_the_same_weights)
{
    check_panel(&vectors[_i], PANEL_ROWS);
    check_panel(&vectors[_i], 1);
    check_panel(&vectors[_i], 11);
}
END_TEST

START_TEST(codes_lie_where_the_header_says)
{
    unsigned char row[2 * 18] = {0}; /* two Q4_0 blocks */
    row[18 + 2 + 5] = 0xC3;          /* second block: input 5 has code 3, input 5+16 code 12 */
    unsigned char panel[1024] __attribute__((aligned(64)));
    ck_assert_uint_eq(panel_bytes(PANEL_U4, 64), 2 * (256 + 32) + 0);
    panel_pack(DTYPE_Q4_0, row, sizeof row, 1, 64, panel);
    /* input 5 = 8*0 + 4 + 1: first 64 bytes of the block, high nibble of byte 1; 21 = 8*2 + 4 + 1 */
    ck_assert_uint_eq(panel[256 + 1], 0x30);
    ck_assert_uint_eq(panel[256 + 2 * 64 + 1], 0xC0);
    ck_assert_uint_eq(panel_group_at(PANEL_U4, 64, 0).scales, 512);
    ck_assert_uint_eq(panel_group_at(PANEL_U4_MIN, 64, 0).mins, 512 + 64);
    ck_assert_uint_eq(panel_group_bytes(PANEL_U6_K), 8 * 384 + 16 * 16 + 32 + 32);
    struct panel_group last = panel_group_at(PANEL_U6_K, 256 + 64, 1);
    ck_assert_uint_eq(last.codes, panel_group_bytes(PANEL_U6_K));
    ck_assert_uint_eq(last.n_blocks, 2);
    ck_assert_uint_eq(last.unit, last.codes + 2 * 384 + 4 * 16);
    ck_assert_uint_eq(panel_bytes(PANEL_F16, 3), 128);
    ck_assert_uint_eq(panel_table_offset(PANEL_T4, 96), 3 * (256 + 32) + 32);
    ck_assert_uint_eq(panel_bytes(PANEL_T4, 96), 3 * (256 + 32) + 32 + 64);
    ck_assert_uint_eq(panel_bytes(PANEL_U2_MIN_K, 256), 8 * (128 + 64) + 64);
}
END_TEST

Suite *quant_suite(void)
{
    Suite *s = suite_create("quant");
    TCase *c = tcase_create("quant");
    tcase_add_loop_test(c, dequantised_values_equal_the_gguf_package, 0, (int)ARRAY_LEN(vectors));
    tcase_add_loop_test(c, every_grid_point_equals_the_gguf_package, 0, (int)ARRAY_LEN(checksums));
    tcase_add_test(c, mxfp4_scales_are_exact_over_their_range);
    tcase_add_test(c, nvfp4_has_a_factor_per_matrix);
    tcase_add_test(c, types_that_cannot_run_have_no_row);
    tcase_add_loop_test(c, packed_panels_stand_for_the_same_weights, 0, (int)ARRAY_LEN(vectors));
    tcase_add_test(c, codes_lie_where_the_header_says);
    suite_add_tcase(s, c);
    return s;
}
