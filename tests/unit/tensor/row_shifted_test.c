/* A table twice, the second time with a difference added: read and encoded, and what is let go. */
#include "engine/tensor/row_shifted.h"

#include "engine/base/mem.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <string.h>

Suite *row_shifted_suite(void);

enum { ROWS = 3, WIDTH = 300 };

static float table[ROWS][WIDTH], shifts[2][WIDTH];
static struct arena arena;
static const struct row_source *both;

static void setup(void)
{
    arena_init(&arena, 0, 0, MEM_GENERAL);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < WIDTH; k++) {
            table[i][k] = (float)(i * 1000 + k);
            shifts[0][k] = 5;
            shifts[1][k] = (float)(7 + k % 3);
        }
    }
    both = row_shifted_new(&arena, row_mapped_new(&arena, DTYPE_F32, table, ROWS, WIDTH),
                           row_mapped_new(&arena, DTYPE_F32, shifts, 2, WIDTH));
    ck_assert_ptr_nonnull(both);
}

static void teardown(void) { arena_fini(&arena); }

static float expected(uint32_t row, uint32_t k)
{
    return row < ROWS ? table[row][k] : table[row - ROWS][k] + (float)(2 + k % 3);
}

START_TEST(rows_are_there_twice)
{
    ck_assert(both->n_rows == 2 * ROWS && both->n_in == WIDTH && both->type == DTYPE_F32);
    for (uint32_t row = 0; row < 2 * ROWS; row++) {
        float out[WIDTH];
        both->ops->read(both, row, 7, WIDTH - 7, out);
        for (uint32_t k = 7; k < WIDTH; k++) {
            ck_assert(out[k - 7] == expected(row, k));
        }
    }
}
END_TEST

START_TEST(what_is_encoded_is_what_is_read)
{
    float out[4][WIDTH + 1];
    const struct row_part part = {1, 4, 0, WIDTH};
    both->ops->encode(both, &part, out, sizeof *out);
    for (uint32_t row = 0; row < part.n_rows; row++) {
        for (uint32_t k = 0; k < WIDTH; k++) {
            ck_assert(out[row][k] == expected(row + 1, k));
        }
    }
}
END_TEST

static void drop(void *arg, const void *data, uint64_t bytes)
{
    (void)data;
    *(uint64_t *)arg += bytes;
}

START_TEST(bytes_go_with_the_second_half)
{
    uint64_t dropped = 0;
    both->ops->done(both, 0, ROWS, drop, &dropped);
    ck_assert_uint_eq(dropped, 0);
    both->ops->done(both, ROWS, ROWS, drop, &dropped);
    ck_assert_uint_eq(dropped, sizeof table);
}
END_TEST

START_TEST(no_source_gives_none)
{
    ck_assert_ptr_null(row_shifted_new(&arena, NULL, both));
    ck_assert_ptr_null(row_shifted_new(&arena, both, NULL));
}
END_TEST

Suite *row_shifted_suite(void)
{
    Suite *s = suite_create("row_shifted");
    TCase *t = tcase_create("row_shifted");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rows_are_there_twice);
    tcase_add_test(t, what_is_encoded_is_what_is_read);
    tcase_add_test(t, bytes_go_with_the_second_half);
    tcase_add_test(t, no_source_gives_none);
    suite_add_tcase(s, t);
    return s;
}
