/* Weight types: dequantised values bit for bit as the gguf package gives them, and packed panels that stand for the
 * same weights. */
#include "engine/kernels/quant.h"

#include "engine/base/mem.h"
#include "tests/unit/kernels/quant_vectors.h"

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
    VECTOR(DTYPE_F32, f32),   VECTOR(DTYPE_F16, f16),   VECTOR(DTYPE_BF16, bf16), VECTOR(DTYPE_Q4_0, q4_0),
    VECTOR(DTYPE_Q4_1, q4_1), VECTOR(DTYPE_Q5_0, q5_0), VECTOR(DTYPE_Q5_1, q5_1), VECTOR(DTYPE_Q8_0, q8_0),
    VECTOR(DTYPE_Q4_K, q4_k), VECTOR(DTYPE_Q5_K, q5_k), VECTOR(DTYPE_Q6_K, q6_k),
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

START_TEST(types_that_cannot_run_have_no_row)
{
    ck_assert_ptr_null(quant_ops(DTYPE_IQ2_XS));
    ck_assert_ptr_null(quant_ops(DTYPE_I32));
    ck_assert_ptr_null(quant_ops(DTYPE_COUNT));
    for (uint32_t id = 0; id < DTYPE_COUNT; id++) {
        const struct quant_ops *ops = quant_ops((enum dtype)id);
        if (ops != NULL && (ops->dequantize == NULL || (ops->unpack == NULL) != panel_info(ops->panel)->is_float)) {
            ck_abort_msg("%s: incomplete row", dtype_info(id)->name);
        }
    }
}
END_TEST

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
                to[block - 3] ^= (unsigned char)(r * 16 + (int)part); /* a code, or a scale of Q6_K */
            }
        }
    }
    panel_pack(v->type, src, stride, n_rows, k, panel);
    for (size_t i = 0; i < 64; i++) {
        ck_assert_msg(panel[bytes + i] == 0xA5, "wrote behind the panel");
    }
    bool is_exact =
        v->type != DTYPE_Q4_K && v->type != DTYPE_Q5_K && v->type != DTYPE_Q6_K; /* scales are products there */
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
            float limit = is_exact ? 0 : most * 0x1p-10f; /* a half's rounding of scale and minimum */
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
    ck_assert_uint_eq(panel_scale_offset(PANEL_U4, 64), 512);
    ck_assert_uint_eq(panel_min_offset(PANEL_U4_MIN, 64), 512 + 64);
    ck_assert_uint_eq(panel_min_offset(PANEL_U8_B16, 64), 1024 + 128);
    ck_assert_uint_eq(panel_bytes(PANEL_F16, 3), 128);
}
END_TEST

Suite *quant_suite(void)
{
    Suite *s = suite_create("quant");
    TCase *c = tcase_create("quant");
    tcase_add_loop_test(c, dequantised_values_equal_the_gguf_package, 0, (int)ARRAY_LEN(vectors));
    tcase_add_test(c, types_that_cannot_run_have_no_row);
    tcase_add_loop_test(c, packed_panels_stand_for_the_same_weights, 0, (int)ARRAY_LEN(vectors));
    tcase_add_test(c, codes_lie_where_the_header_says);
    suite_add_tcase(s, c);
    return s;
}
