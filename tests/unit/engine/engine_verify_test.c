/* A weight that is no number is found wherever it is: in every row and column, in another order, turned. */
#include "engine/engine_internal.h"

#include "engine/base/mem.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"
#include "engine/tensor/row_turned.h"

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

static struct plan_weight weight_of(const struct row_source *s)
{
    ck_assert_ptr_nonnull(s);
    return (struct plan_weight){.name = "x.weight",
                                .source = s,
                                .type = s->type,
                                .row_bytes = s->row_bytes,
                                .n_out = s->n_rows,
                                .n_in = s->n_in};
}

START_TEST(every_place_is_read)
{
    static const uint32_t first[] = {PIECE_ROWS, 0}; /* not in order */
    struct arena a;
    arena_init(&a, 4096, 0, MEM_GENERAL);
    const struct row_source *plain = row_mapped_new(&a, DTYPE_F32, data, ROWS, COLUMNS);
    const struct plan_weight whole = weight_of(plain);
    const struct plan_weight in_pieces = weight_of(row_order_rows(&a, plain, first, 2, PIECE_ROWS));
    const struct plan_weight turned = weight_of(row_turned_new(&a, plain, PIECE_ROWS, DTYPE_F32));
    memset(data, 0, sizeof data);
    size_t live = mem_live();
    ck_assert_int_eq(engine_verify_weight(&whole, NULL), ERR_OK);
    ck_assert_int_eq(engine_verify_weight(&in_pieces, NULL), ERR_OK);
    ck_assert_int_eq(engine_verify_weight(&turned, NULL), ERR_OK);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        const uint32_t half = PIECE_ROWS * COLUMNS, other = (i + half) % (2 * half), row = i / COLUMNS;
        expect_found(&whole, i, row, i % COLUMNS);
        expect_found(&in_pieces, i, other / COLUMNS, other % COLUMNS);
        expect_found(&turned, i, row / PIECE_ROWS * COLUMNS + i % COLUMNS, row % PIECE_ROWS);
    }
    ck_assert_uint_eq(mem_live(), live);
    mem_fail_at(0);
    ck_assert_int_eq(engine_verify_weight(&whole, NULL), ERR_NOMEM);
    mem_fail_at(-1);
    arena_fini(&a);
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
