/* Columns as rows, of one matrix and of several, and sources that stand one after the other. */
#include "engine/tensor/row_turned.h"

#include "engine/quant/quant.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_stack.h"

#include <check.h>
#include <string.h>

Suite *row_turned_suite(void);

enum { N = 3, ROWS = 10, COLUMNS = 64 };

static struct arena arena;
static float data[N * ROWS][COLUMNS];
static unsigned char blocks[N * ROWS][COLUMNS / 32 * 34]; /* Q8_0 */

static void set_up(void)
{
    arena_init(&arena, 4096, 0, MEM_GENERAL);
    for (uint32_t i = 0; i < N * ROWS * COLUMNS; i++) {
        uint16_t scale = dtype_f32_to_f16(0.25f);
        unsigned char *block = blocks[i / COLUMNS] + i % COLUMNS / 32 * 34;
        memcpy(block, &scale, sizeof scale);
        block[2 + i % 32] = (unsigned char)(i * 7 % 250);
    }
    for (int r = 0; r < N * ROWS; r++) {
        quant_ops(DTYPE_Q8_0)->dequantize(blocks[r], COLUMNS, data[r]);
    }
}

static void tear_down(void) { arena_fini(&arena); }

START_TEST(columns_become_rows)
{
    static const struct {
        enum dtype from, to;
    } cases[] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_Q8_0, DTYPE_F16}, {DTYPE_F32, DTYPE_BF16}};
    const void *lies = cases[_i].from == DTYPE_F32 ? (const void *)data : blocks;
    const struct row_source *of = row_mapped_new(&arena, cases[_i].from, lies, N * ROWS, COLUMNS);
    const struct row_source *s = row_turned_new(&arena, of, ROWS, cases[_i].to);
    ck_assert(s->n_rows == N * COLUMNS && s->n_in == ROWS && s->type == cases[_i].to && s->ops->at == NULL);
    static unsigned char coded[N * COLUMNS][ROWS * sizeof(float)];
    s->ops->encode(s, &(struct row_part){5, N * COLUMNS - 5, 0, ROWS}, coded[5], sizeof *coded);
    for (uint32_t r = 5; r < N * COLUMNS; r++) {
        float row[ROWS], back[ROWS];
        s->ops->read(s, r, 0, ROWS, row);
        quant_ops(s->type)->dequantize(coded[r], ROWS, back);
        for (uint32_t k = 0; k < ROWS; k++) {
            float want = data[r / COLUMNS * ROWS + k][r % COLUMNS];
            float rounded = s->type == DTYPE_BF16 ? dtype_bf16_to_f32(dtype_f32_to_bf16(want)) : want;
            ck_assert_msg(row[k] == want && back[k] == rounded, "row %u, input %u: %g, %g for %g", r, k, (double)row[k],
                          (double)back[k], (double)want);
        }
    }
    uint16_t part[2][4];
    if (cases[_i].to == DTYPE_F16) {
        s->ops->encode(s, &(struct row_part){COLUMNS + 31, 2, 3, 4}, part, sizeof *part);
        ck_assert(dtype_f16_to_f32(part[1][3]) == data[ROWS + 6][32]);
    }
}
END_TEST

static void add_drop(void *arg, const void *bytes, uint64_t n)
{
    (void)bytes;
    *(uint64_t *)arg += n;
}

START_TEST(a_matrix_is_done_with_after_its_last_column)
{
    const struct row_source *of = row_mapped_new(&arena, DTYPE_F32, data, N * ROWS, COLUMNS);
    const struct row_source *s = row_turned_new(&arena, of, ROWS, DTYPE_F32);
    uint64_t dropped = 0;
    s->ops->done(s, 0, COLUMNS - 1, add_drop, &dropped);
    ck_assert_uint_eq(dropped, 0);
    s->ops->done(s, COLUMNS - 1, 1 + COLUMNS + 3, add_drop, &dropped);
    ck_assert_uint_eq(dropped, 2 * ROWS * sizeof *data);
    ck_assert_ptr_null(row_turned_new(&arena, NULL, ROWS, DTYPE_F32));
}
END_TEST

START_TEST(parts_stand_one_after_the_other)
{
    const struct row_source *parts[N];
    static const uint32_t order[N] = {2, 0, 1};
    for (uint32_t i = 0; i < N; i++) {
        parts[i] = row_mapped_new(&arena, DTYPE_F32, data[order[i] * ROWS], ROWS, COLUMNS);
    }
    const struct row_source *s = row_stack_new(&arena, parts, N);
    float room[ROWS][COLUMNS], row[COLUMNS];
    uint64_t stride, dropped = 0;
    ck_assert(s->n_rows == N * ROWS && s->n_in == COLUMNS);
    ck_assert_ptr_eq(row_source_rows(s, ROWS, ROWS, room, &stride), data[0]);
    ck_assert_ptr_eq(row_source_rows(s, ROWS - 2, ROWS, room, &stride), room);
    ck_assert_mem_eq(room[0], data[3 * ROWS - 2], 2 * sizeof *data);
    ck_assert_mem_eq(room[2], data[0], (ROWS - 2) * sizeof *data);
    s->ops->read(s, 2 * ROWS + 3, 0, COLUMNS, row);
    ck_assert_mem_eq(row, data[ROWS + 3], sizeof row);
    s->ops->done(s, 3, 2 * ROWS, add_drop, &dropped);
    ck_assert_uint_eq(dropped, 2 * ROWS * sizeof *data);
}
END_TEST

Suite *row_turned_suite(void)
{
    Suite *s = suite_create("row_turned");
    TCase *c = tcase_create("row_turned");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, columns_become_rows, 0, 3);
    tcase_add_test(c, a_matrix_is_done_with_after_its_last_column);
    tcase_add_test(c, parts_stand_one_after_the_other);
    suite_add_tcase(s, c);
    return s;
}
