/* Rows and inputs in another order: what is read and encoded and where it lies, of floats and of a source that makes
 * its rows, and what is told to be done with. */
#include "engine/tensor/row_order.h"

#include "engine/quant/row_mapped.h"

#include <check.h>
#include <string.h>

Suite *row_order_suite(void);

enum { N_ROWS = 12, N_IN = 128, RUN = 32, N_RUNS = N_IN / RUN, BLOCK_BYTES = 34 };

static struct arena arena;
static float data[N_ROWS][N_IN];

static float value(uint32_t row, uint32_t column) { return (float)(row * N_IN + column); } /* exact in a half */

/* A source of Q8_0 whose blocks are filled with their row and number. */
static void fake_read(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    ck_assert(from % s->grain == 0 && (n % s->grain == 0 || from + n == N_IN));
    for (uint32_t i = 0; i < n; i++) {
        out[i] = value(row, from + i);
    }
}

static void fake_encode(const struct row_source *s, const struct row_part *p, void *out, uint64_t stride)
{
    ck_assert(p->from % s->grain == 0 && p->n_in % s->grain == 0);
    for (uint32_t r = 0; r < p->n_rows; r++) {
        unsigned char *to = (unsigned char *)out + r * stride;
        for (uint32_t i = 0; i < p->n_in / RUN; i++, to += BLOCK_BYTES) {
            memset(to, (int)((p->row + r) * N_RUNS + p->from / RUN + i), BLOCK_BYTES);
        }
    }
}

static void fake_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    (void)s;
    for (uint32_t r = row; r < row + n; r++) {
        drop(arg, &r, 1);
    }
}

static const struct row_source_ops fake_ops = {.read = fake_read, .encode = fake_encode, .done = fake_done};
static struct row_source fake;
static const struct row_source *floats;

static void set_up(void)
{
    arena_init(&arena, 4096, 0, MEM_GENERAL);
    for (uint32_t i = 0; i < N_ROWS * N_IN; i++) {
        data[i / N_IN][i % N_IN] = value(i / N_IN, i % N_IN);
    }
    fake = row_source_of(&fake_ops, DTYPE_Q8_0, N_ROWS, N_IN, 1);
    floats = row_mapped_new(&arena, DTYPE_F32, data, N_ROWS, N_IN);
    ck_assert(fake.grain == RUN && fake.row_bytes == N_RUNS * BLOCK_BYTES && floats != NULL && floats->grain == 1);
}

static void tear_down(void) { arena_fini(&arena); }

/* Permutation number i of N_RUNS runs of inputs. */
static void permutation(int i, uint32_t out[N_RUNS])
{
    for (uint32_t n = 0; n < N_RUNS; n++) {
        uint32_t at = (uint32_t)i % (n + 1);
        i /= (int)n + 1;
        memmove(out + at + 1, out + at, (n - at) * sizeof *out);
        out[at] = n * RUN;
    }
}

static void check_row(const struct row_source *s, uint32_t row, uint32_t in_file, const uint32_t *columns)
{
    float whole[N_IN], part[2 * RUN];
    s->ops->read(s, row, 0, N_IN, whole);
    s->ops->read(s, row, RUN, 2 * RUN, part);
    for (uint32_t k = 0; k < N_IN; k++) {
        float want = value(in_file, columns[k / RUN] + k % RUN);
        bool ok = whole[k] == want && (k < RUN || k >= 3 * RUN || part[k - RUN] == want);
        ck_assert_msg(ok, "row %u, input %u: expected %g, found %g", row, k, (double)want, (double)whole[k]);
    }
}

START_TEST(runs_of_inputs_stand_in_every_order)
{
    uint32_t columns[N_RUNS];
    permutation(_i, columns);
    const struct row_source *f = row_order_columns(&arena, floats, columns, N_RUNS, RUN);
    const struct row_source *b = row_order_columns(&arena, &fake, columns, N_RUNS, RUN);
    check_row(f, 3, 3, columns);
    check_row(b, 3, 3, columns);
    float row[2][N_IN], part[3][2 * RUN + 1];
    unsigned char coded[2][N_RUNS][BLOCK_BYTES];
    row_source_encode(f, 4, 2, row);
    row_source_encode(b, 4, 2, coded);
    f->ops->encode(f, &(struct row_part){7, 3, RUN, 2 * RUN}, part, sizeof *part);
    for (uint32_t k = 0; k < 2 * N_IN; k++) {
        uint32_t r = k / N_IN, c = k % N_IN / RUN;
        ck_assert(row[r][k % N_IN] == value(4 + r, columns[c] + k % RUN));
        ck_assert_uint_eq(coded[r][c][k % RUN], (4 + r) * N_RUNS + columns[c] / RUN);
    }
    for (uint32_t k = 0; k < 3 * 2 * RUN; k++) {
        uint32_t r = k / (2 * RUN), c = k % (2 * RUN);
        ck_assert(part[r][c] == value(7 + r, columns[1 + c / RUN] + c % RUN));
    }
    uint64_t stride = 0;
    bool is_same = columns[0] < columns[1] && columns[1] < columns[2] && columns[2] < columns[3];
    const void *at = row_source_rows(f, 4, 2, row, &stride);
    ck_assert(stride == sizeof *data && (at == data[4]) == is_same && (is_same || at == row));
}
END_TEST

static void count_drop(void *arg, const void *bytes, uint64_t n)
{
    uint64_t *sums = arg;
    uint32_t row;
    memcpy(&row, bytes, sizeof row);
    sums[0] += 1;
    sums[1] += n;
    sums[2] = sums[2] * 16 + row;
}

START_TEST(runs_of_rows_stand_in_the_order_given)
{
    static uint16_t halves[N_ROWS][N_IN];
    static const uint32_t rows[] = {9, 0, 3}, same[] = {0, RUN, 2 * RUN, 3 * RUN};
    bool is_half = _i == 1;
    for (uint32_t i = 0; i < N_ROWS * N_IN; i++) {
        float v = value(i / N_IN, i % N_IN);
        halves[i / N_IN][i % N_IN] = is_half ? dtype_f32_to_f16(v) : dtype_f32_to_bf16(v);
    }
    const struct row_source *of = row_mapped_new(&arena, is_half ? DTYPE_F16 : DTYPE_BF16, halves, N_ROWS, N_IN);
    const struct row_source *s = row_order_rows(&arena, of, rows, 3, 3);
    ck_assert(s->n_rows == 9 && s->n_in == N_IN && s->type == of->type && s->row_bytes == sizeof *halves);
    uint16_t coded[5][N_IN];
    row_source_encode(s, 2, 5, coded); /* rows 11 | 0 1 2 | 3 of the file, of which four lie together */
    for (uint32_t r = 0; r < 5; r++) {
        uint32_t in_file = rows[(r + 2) / 3] + (r + 2) % 3;
        ck_assert_mem_eq(coded[r], halves[in_file], sizeof *halves);
        float read[N_IN];
        s->ops->read(s, r + 2, 0, N_IN, read);
        float want = is_half ? dtype_f16_to_f32(halves[in_file][77]) : dtype_bf16_to_f32(halves[in_file][77]);
        ck_assert(read[77] == want);
    }
    uint64_t stride;
    ck_assert_ptr_eq(row_source_rows(s, 2, 5, coded, &stride), coded);
    ck_assert_ptr_eq(row_source_rows(s, 3, 6, coded, &stride), halves[0]);
    s = row_order_rows(&arena, &fake, rows, 3, 3);
    check_row(s, 2, 11, same);
    check_row(s, 7, 4, same);
    uint64_t sums[3] = {0};
    s->ops->done(s, 2, 5, count_drop, sums);
    ck_assert(sums[0] == 5 && sums[1] == 5 && sums[2] == 0xB0123); /* each row once */
}
END_TEST

START_TEST(plain_rows_are_dropped_in_one_piece_where_they_lie_together)
{
    static uint32_t numbers[N_ROWS][N_IN];
    static const uint32_t rows[] = {9, 0, 3};
    for (uint32_t r = 0; r < N_ROWS; r++) {
        numbers[r][0] = r;
    }
    const struct row_source *of = row_mapped_new(&arena, DTYPE_F32, numbers, N_ROWS, N_IN);
    const struct row_source *s = row_order_rows(&arena, of, rows, 3, 3);
    uint64_t sums[3] = {0};
    s->ops->done(s, 0, 9, count_drop, sums);
    ck_assert(sums[0] == 2 && sums[1] == sizeof numbers / N_ROWS * 9 && sums[2] == 0x90);
}
END_TEST

START_TEST(ranges_are_of_ranges)
{
    const struct row_source *rows = row_order_row_range(&arena, floats, 5, 6);
    const struct row_source *s = row_order_column_range(&arena, rows, 8, 20);
    ck_assert(s->n_rows == 6 && s->n_in == 20 && s->row_bytes == 20 * sizeof(float));
    float row[20], room[2][20];
    uint64_t stride;
    s->ops->read(s, 2, 4, 16, row);
    ck_assert(row[0] == value(7, 12) && row[15] == value(7, 27));
    ck_assert_ptr_eq(row_source_rows(s, 1, 2, room, &stride), &data[6][8]);
    ck_assert_uint_eq(stride, sizeof *data);
    row_source_encode(s, 4, 2, room);
    ck_assert(room[0][0] == value(9, 8) && room[1][0] == value(10, 8) && room[1][19] == value(10, 27));
    uint64_t sums[3] = {0};
    s->ops->done(s, 0, 6, count_drop, sums);
    ck_assert(sums[0] == 1 && sums[1] == 6 * sizeof *data);
}
END_TEST

START_TEST(out_of_memory_is_nothing_to_read)
{
    static const uint32_t first[] = {0};
    ck_assert_ptr_null(row_order_rows(&arena, NULL, first, 1, 1));
    ck_assert_ptr_null(row_order_rows(&arena, floats, NULL, 1, 1));
    ck_assert_ptr_null(row_order_columns(&arena, floats, NULL, 1, 1));
    ck_assert_ptr_null(row_order_row_range(&arena, NULL, 0, 1));
    ck_assert_ptr_null(row_order_column_range(&arena, NULL, 0, 1));
    struct arena none;
    arena_init(&none, 4096, 1, MEM_GENERAL);
    ck_assert_ptr_null(row_order_rows(&none, floats, first, 1, 1));
    arena_fini(&none);
    ck_assert_uint_eq(row_order_run(128, 48), 16);
    ck_assert_uint_eq(row_order_run(0, 48), 48);
}
END_TEST

Suite *row_order_suite(void)
{
    Suite *s = suite_create("row_order");
    TCase *c = tcase_create("row_order");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, runs_of_inputs_stand_in_every_order, 0, 24);
    tcase_add_loop_test(c, runs_of_rows_stand_in_the_order_given, 0, 2);
    tcase_add_test(c, plain_rows_are_dropped_in_one_piece_where_they_lie_together);
    tcase_add_test(c, ranges_are_of_ranges);
    tcase_add_test(c, out_of_memory_is_nothing_to_read);
    suite_add_tcase(s, c);
    return s;
}
