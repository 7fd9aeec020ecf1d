/* The 16-bit float conversions, over all 65,536 halves. */
#include "engine/tensor/dtype.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *dtype_suite(void);

START_TEST(every_half_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = dtype_f16_to_f32((uint16_t)h);
        if (isnan(f)) {
            ck_assert(isnan(dtype_f16_to_f32(dtype_f32_to_f16(f))));
            continue;
        }
        ck_assert_uint_eq(dtype_f32_to_f16(f), h);
        float b = dtype_bf16_to_f32((uint16_t)h);
        if (!isnan(b)) {
            ck_assert_uint_eq(dtype_f32_to_bf16(b), h);
        }
    }
}
END_TEST

START_TEST(halves_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7BFF; h++) { /* each pair of neighbouring finite positive halves */
        float low = dtype_f16_to_f32((uint16_t)h), high = dtype_f16_to_f32((uint16_t)(h + 1));
        float middle = low + (high - low) / 2; /* exact in f32 */
        ck_assert_uint_eq(dtype_f32_to_f16(middle), h % 2 == 0 ? h : h + 1);
        ck_assert_uint_eq(dtype_f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
        ck_assert_uint_eq(dtype_f32_to_f16(nextafterf(middle, -1e9f)), h);
    }
    ck_assert_uint_eq(dtype_f32_to_f16(65519.0f), 0x7BFF);
    ck_assert_uint_eq(dtype_f32_to_f16(65520.0f), 0x7C00);
}
END_TEST

START_TEST(row_sizes_refuse_part_blocks_and_overflow)
{
    uint64_t bytes = 7;
    ck_assert(dtype_row_bytes(DTYPE_Q4_K, 512, &bytes));
    ck_assert_uint_eq(bytes, 288);
    ck_assert(!dtype_row_bytes(DTYPE_Q4_K, 511, &bytes));
    ck_assert(!dtype_tensor_bytes(DTYPE_F32, UINT64_MAX / 4, 2, &bytes));
    ck_assert_uint_eq(bytes, 288);
    ck_assert_ptr_null(dtype_info(4));
    ck_assert_ptr_null(dtype_info(DTYPE_COUNT));
}
END_TEST

Suite *dtype_suite(void)
{
    Suite *s = suite_create("dtype");
    TCase *c = tcase_create("dtype");
    tcase_add_test(c, every_half_survives_a_round_trip);
    tcase_add_test(c, halves_round_to_nearest_even);
    tcase_add_test(c, row_sizes_refuse_part_blocks_and_overflow);
    suite_add_tcase(s, c);
    return s;
}
