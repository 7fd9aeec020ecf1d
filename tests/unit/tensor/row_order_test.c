/* Rows and heads of inputs in another order: what is read and encoded, of floats and of a source, and what is told to
 * be done with. */
#include "engine/tensor/row_order.h"

#include <check.h>
#include <string.h>

Suite *row_order_suite(void);

enum { N_ROWS = 12, N_IN = 128, RUN = 32, N_RUNS = N_IN / RUN, BLOCK_BYTES = 34 };

static float value(uint32_t row, uint32_t column) { return (float)(row * N_IN + column); } /* exact in a half */

/* A source of Q8_0 whose blocks are filled with their row and number. */
static void fake_read(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    (void)s;
    ck_assert(from % ROW_SOURCE_RUN == 0 && (n % ROW_SOURCE_RUN == 0 || from + n == N_IN));
    for (uint32_t i = 0; i < n; i++) {
        out[i] = value(row, from + i);
    }
}

static void fake_encode(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    (void)s;
    unsigned char *to = out;
    for (uint32_t i = 0; i < n * N_RUNS; i++, to += BLOCK_BYTES) {
        memset(to, (int)(row * N_RUNS + i), BLOCK_BYTES);
    }
}

static void fake_done(const struct row_source *s, uint32_t row, uint32_t n,
                      void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg)
{
    (void)s;
    for (uint32_t r = row; r < row + n; r++) {
        drop(arg, &r, 1);
    }
}

static const struct row_source_ops fake_ops = {fake_read, fake_encode, fake_done};
static const struct row_source fake = {&fake_ops};

/* Permutation number i of N_RUNS runs. */
static void permutation(int i, uint32_t out[N_RUNS])
{
    for (uint32_t n = 0; n < N_RUNS; n++) {
        uint32_t at = (uint32_t)i % (n + 1);
        i /= (int)n + 1;
        memmove(out + at + 1, out + at, (n - at) * sizeof *out);
        out[at] = n;
    }
}

static void check_row(const struct row_order *o, uint32_t row, uint32_t in_file, const uint32_t *columns)
{
    float whole[N_IN], part[2 * RUN];
    o->base.ops->read(&o->base, row, 0, N_IN, whole);
    o->base.ops->read(&o->base, row, RUN, 2 * RUN, part);
    for (uint32_t k = 0; k < N_IN; k++) {
        float want = value(in_file, columns[k / RUN] * RUN + k % RUN);
        bool ok = whole[k] == want && (k < RUN || k >= 3 * RUN || part[k - RUN] == want);
        ck_assert_msg(ok, "row %u, input %u: expected %g, found %g", row, k, (double)want, (double)whole[k]);
    }
}

START_TEST(runs_of_inputs_stand_in_every_order)
{
    static float data[N_ROWS][N_IN];
    uint32_t columns[N_RUNS];
    permutation(_i, columns);
    for (uint32_t i = 0; i < N_ROWS * N_IN; i++) {
        data[i / N_IN][i % N_IN] = value(i / N_IN, i % N_IN);
    }
    struct row_order floats = {.base = {&row_order_ops},
                               .data = data,
                               .type = DTYPE_F32,
                               .row_bytes = sizeof *data,
                               .n_in = N_IN,
                               .columns = columns,
                               .column_run = RUN};
    struct row_order blocks = floats;
    blocks.source = &fake;
    blocks.data = NULL;
    blocks.type = DTYPE_Q8_0;
    blocks.row_bytes = N_RUNS * BLOCK_BYTES;
    ck_assert(row_order_is_valid(&floats) && row_order_is_valid(&blocks));
    check_row(&floats, 3, 3, columns);
    check_row(&blocks, 3, 3, columns);
    float row[2][N_IN];
    unsigned char coded[2][N_RUNS][BLOCK_BYTES];
    row_order_ops.encode(&floats.base, 4, 2, row);
    row_order_ops.encode(&blocks.base, 4, 2, coded);
    for (uint32_t k = 0; k < 2 * N_IN; k++) {
        uint32_t r = k / N_IN, c = k % N_IN / RUN;
        ck_assert(row[r][k % N_IN] == data[4 + r][columns[c] * RUN + k % RUN]);
        ck_assert_uint_eq(coded[r][c][k % RUN], (4 + r) * N_RUNS + columns[c]);
    }
}
END_TEST

static void count_drop(void *arg, const void *data, uint64_t bytes)
{
    uint64_t *sums = arg;
    uint32_t row;
    memcpy(&row, data, sizeof row);
    sums[0] += 1;
    sums[1] += bytes;
    sums[2] = sums[2] * 16 + row;
}

START_TEST(runs_of_rows_stand_in_the_order_given)
{
    static uint16_t data[N_ROWS][N_IN];
    static const uint32_t rows[] = {9, 0, 3}, same[] = {0, 1, 2, 3};
    bool is_half = _i == 1;
    for (uint32_t i = 0; i < N_ROWS * N_IN; i++) {
        float v = value(i / N_IN, i % N_IN);
        data[i / N_IN][i % N_IN] = is_half ? dtype_f32_to_f16(v) : dtype_f32_to_bf16(v);
    }
    struct row_order o = {.base = {&row_order_ops},
                          .data = data,
                          .type = is_half ? DTYPE_F16 : DTYPE_BF16,
                          .row_bytes = sizeof *data,
                          .n_in = N_IN,
                          .rows = rows,
                          .row_run = 3};
    ck_assert(row_order_is_valid(&o));
    uint16_t coded[5][N_IN];
    row_order_ops.encode(&o.base, 2, 5, coded); /* rows 11 | 0 1 2 | 3 of the file, of which four lie together */
    for (uint32_t r = 0; r < 5; r++) {
        uint32_t in_file = rows[(r + 2) / 3] + (r + 2) % 3;
        ck_assert_mem_eq(coded[r], data[in_file], sizeof *data);
        float read[N_IN];
        row_order_ops.read(&o.base, r + 2, 0, N_IN, read);
        float want = is_half ? dtype_f16_to_f32(data[in_file][77]) : dtype_bf16_to_f32(data[in_file][77]);
        ck_assert(read[77] == want);
    }
    o.source = &fake;
    check_row(&o, 2, 11, same);
    check_row(&o, 7, 4, same);
    uint64_t sums[3] = {0};
    row_order_ops.done(&o.base, 2, 5, count_drop, sums);
    ck_assert(sums[0] == 5 && sums[1] == 5 && sums[2] == 0xB0123); /* each row once */
}
END_TEST

START_TEST(plain_rows_are_dropped_in_one_piece_where_they_lie_together)
{
    static uint32_t data[N_ROWS][N_IN];
    static const uint32_t rows[] = {9, 0, 3};
    for (uint32_t r = 0; r < N_ROWS; r++) {
        data[r][0] = r;
    }
    struct row_order o = {.base = {&row_order_ops},
                          .data = data,
                          .type = DTYPE_F32,
                          .row_bytes = sizeof *data,
                          .n_in = N_IN,
                          .rows = rows,
                          .row_run = 3};
    uint64_t sums[3] = {0};
    row_order_ops.done(&o.base, 0, 9, count_drop, sums);
    ck_assert(sums[0] == 2 && sums[1] == sizeof data / N_ROWS * 9 && sums[2] == 0x90);
}
END_TEST

START_TEST(what_cannot_be_read_is_not_valid)
{
    static const uint32_t columns[8] = {0};
    static const struct {
        enum dtype type;
        bool has_source;
        uint32_t n_in, run;
        bool ok;
    } cases[] = {
        {DTYPE_F32, false, 24, 8, true},   {DTYPE_BF16, false, 24, 12, true},  {DTYPE_F32, false, 24, 7, false},
        {DTYPE_F32, false, 24, 0, false},  {DTYPE_Q8_0, false, 64, 32, false}, {DTYPE_Q8_0, true, 64, 32, true},
        {DTYPE_Q8_0, true, 64, 16, false}, {DTYPE_F16, true, 64, 16, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct row_order o = {.type = cases[i].type,
                              .source = cases[i].has_source ? &fake : NULL,
                              .n_in = cases[i].n_in,
                              .columns = columns,
                              .column_run = cases[i].run};
        ck_assert_msg(row_order_is_valid(&o) == cases[i].ok, "case %zu", i);
    }
    struct row_order rows_of_blocks = {.type = DTYPE_Q4_0, .n_in = 64};
    ck_assert(!row_order_is_valid(&rows_of_blocks));
    ck_assert_uint_eq(row_order_run(128, 48), 16);
    ck_assert_uint_eq(row_order_run(0, 48), 48);
}
END_TEST

Suite *row_order_suite(void)
{
    Suite *s = suite_create("row_order");
    TCase *c = tcase_create("row_order");
    tcase_add_loop_test(c, runs_of_inputs_stand_in_every_order, 0, 24);
    tcase_add_loop_test(c, runs_of_rows_stand_in_the_order_given, 0, 2);
    tcase_add_test(c, plain_rows_are_dropped_in_one_piece_where_they_lie_together);
    tcase_add_test(c, what_cannot_be_read_is_not_valid);
    suite_add_tcase(s, c);
    return s;
}
