/* A weight that is no number is found wherever it is: in every row and column, in pieces, transposed. */
#include "engine/engine_internal.h"

#include "engine/base/mem.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *engine_verify_suite(void);

enum { ROWS = 6, COLUMNS = 5, PIECE_ROWS = 3 };

static float data[ROWS * COLUMNS];

static void expect_found(const struct plan_weight *w, size_t at, uint32_t row, uint32_t column)
{
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err_info info = {0};
        char says[64];
        data[at] = bad[i];
        enum err err = engine_verify_weight(w, &info);
        data[at] = 0;
        snprintf(says, sizeof says, "found %s in row %u, column %u", i == 0 ? "nan" : "inf", row, column);
        ck_assert_msg(err == ERR_NUMERICAL && strstr(info.text, says) != NULL &&
                          strstr(info.text, "x.weight: ") != NULL,
                      "%s: %s: %s", says, err_code(err), info.text);
    }
}

START_TEST(every_place_is_read)
{
    const void *const pieces[] = {data + PIECE_ROWS * COLUMNS, data}; /* not in order */
    const struct plan_weight whole = {.name = "x.weight",
                                      .type = DTYPE_F32,
                                      .data = data,
                                      .row_bytes = COLUMNS * sizeof *data,
                                      .n_out = ROWS,
                                      .n_in = COLUMNS};
    struct plan_weight in_pieces = whole;
    in_pieces.data = NULL;
    in_pieces.pieces = pieces;
    in_pieces.piece_rows = PIECE_ROWS;
    struct plan_weight transposed = in_pieces; /* each [COLUMNS][PIECE_ROWS] */
    transposed.is_transposed = true;
    transposed.row_bytes = PIECE_ROWS * sizeof *data;
    memset(data, 0, sizeof data);
    size_t live = mem_live();
    ck_assert_int_eq(engine_verify_weight(&whole, NULL), ERR_OK);
    ck_assert_int_eq(engine_verify_weight(&in_pieces, NULL), ERR_OK);
    ck_assert_int_eq(engine_verify_weight(&transposed, NULL), ERR_OK);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        const uint32_t half = PIECE_ROWS * COLUMNS, other = (i + half) % (2 * half);
        expect_found(&whole, i, i / COLUMNS, i % COLUMNS);
        expect_found(&in_pieces, i, other / COLUMNS, other % COLUMNS);
        expect_found(&transposed, i, other / PIECE_ROWS, other % PIECE_ROWS);
    }
    ck_assert_uint_eq(mem_live(), live);
    mem_fail_at(0);
    ck_assert_int_eq(engine_verify_weight(&whole, NULL), ERR_NOMEM);
    mem_fail_at(-1);
}
END_TEST

Suite *engine_verify_suite(void)
{
    Suite *s = suite_create("engine_verify");
    TCase *c = tcase_create("engine_verify");
    tcase_add_test(c, every_place_is_read);
    suite_add_tcase(s, c);
    return s;
}
