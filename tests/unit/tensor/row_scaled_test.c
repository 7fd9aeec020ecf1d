/* Rows times factors: read exactly, encoded in the source's type or in F16, and what is let go. */
#include "engine/tensor/row_scaled.h"

#include "engine/base/mem.h"
#include "engine/quant/quant.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <string.h>

Suite *row_scaled_suite(void);

enum { ROWS = 4, WIDTH = 320 };

static const float factors[ROWS] = {1.0f, 0.5f, -3.0f, 0.0f};
static float table[ROWS][WIDTH];
static unsigned char blocks[ROWS][WIDTH / 32 * 34]; /* Q8_0 */
static struct arena arena;

static void setup(void)
{
    arena_init(&arena, 0, 0, MEM_GENERAL);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        uint16_t scale = dtype_f32_to_f16(0.25f);
        unsigned char *block = blocks[i / WIDTH] + i % WIDTH / 32 * 34;
        memcpy(block, &scale, sizeof scale);
        block[2 + i % 32] = (unsigned char)(i * 7 % 250);
    }
    for (int r = 0; r < ROWS; r++) {
        quant_ops(DTYPE_Q8_0)->dequantize(blocks[r], WIDTH, table[r]);
    }
}

static void teardown(void) { arena_fini(&arena); }

static const struct row_source *scaled_of(enum dtype type, const void *data)
{
    return row_scaled_new(&arena, row_mapped_new(&arena, type, data, ROWS, WIDTH), factors);
}

START_TEST(each_row_has_its_factor)
{
    static const struct {
        enum dtype from, to;
        const void *data;
    } cases[] = {{DTYPE_F32, DTYPE_F32, table}, {DTYPE_Q8_0, DTYPE_F16, blocks}};
    const struct row_source *s = scaled_of(cases[_i].from, cases[_i].data);
    ck_assert(s->n_rows == ROWS && s->n_in == WIDTH && s->type == cases[_i].to && s->ops->at == NULL);
    static unsigned char coded[ROWS][WIDTH * sizeof(float) + 1]; /* unaligned rows */
    s->ops->encode(s, &(struct row_part){1, ROWS - 1, 32, WIDTH - 32}, coded[1], sizeof *coded);
    for (uint32_t r = 1; r < ROWS; r++) {
        float row[WIDTH], back[WIDTH], bytes[WIDTH];
        s->ops->read(s, r, 32, WIDTH - 32, row);
        memcpy(bytes, coded[r], sizeof bytes);
        quant_ops(s->type)->dequantize(bytes, WIDTH - 32, back);
        for (uint32_t k = 32; k < WIDTH; k++) {
            float want = table[r][k] * factors[r];
            ck_assert_msg(row[k - 32] == want && back[k - 32] == want, "row %u, input %u: %g, %g for %g", r, k,
                          (double)row[k - 32], (double)back[k - 32], (double)want);
        }
    }
}
END_TEST

static void drop(void *arg, const void *data, uint64_t bytes)
{
    (void)data;
    *(uint64_t *)arg += bytes;
}

START_TEST(rows_are_done_with_one_by_one)
{
    const struct row_source *s = scaled_of(DTYPE_F32, table);
    uint64_t dropped = 0;
    s->ops->done(s, 1, 2, drop, &dropped);
    ck_assert_uint_eq(dropped, 2 * sizeof *table);
    ck_assert_ptr_null(row_scaled_new(&arena, NULL, factors));
}
END_TEST

Suite *row_scaled_suite(void)
{
    Suite *s = suite_create("row_scaled");
    TCase *c = tcase_create("row_scaled");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, each_row_has_its_factor, 0, 2);
    tcase_add_test(c, rows_are_done_with_one_by_one);
    suite_add_tcase(s, c);
    return s;
}
