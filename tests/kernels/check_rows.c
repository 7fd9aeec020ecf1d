/* What the sampler asks of a row: the largest of each block, sums of exponentials, and the elements over a limit. */
#include "tests/kernels/checkkern.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 100, 255, 257, 577, 4099};
static const int blocks[] = {16, 48, 256, 4096};

enum op { OP_BLOCK_MAX, OP_BLOCK_EXPSUM, OP_COLLECT };

/* Like logits; some rows with ties, banned tokens, and (nan) what no row should hold. */
static void fill_row(struct check *c, float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)check_random_between(c, -15, 15);
        if (kind == 1) {
            x[i] = (float)check_random_below(c, 4);
        }
        if (kind >= 2 && check_random_below(c, 4) == 0) {
            x[i] = -INFINITY;
        }
        if (kind == 3 && check_random_below(c, 4) == 0) {
            x[i] = check_random_below(c, 3) == 0 ? INFINITY : NAN;
        }
    }
}

static void max_case(struct check *c, int n, int block, int kind)
{
    int n_blocks = (n + block - 1) / block;
    float *x = check_buffer((size_t)n * sizeof *x, 4), *got = check_buffer((size_t)n_blocks * sizeof *got, 4);
    fill_row(c, x, n, kind);
    c->t->block_max(x, n, block, got);
    for (int b = 0; b < n_blocks; b++) {
        float want = -INFINITY;
        for (int i = b * block; i < n && i < (b + 1) * block; i++) {
            want = !isnan(x[i]) && x[i] > want ? x[i] : want;
        }
        if (got[b] != want) {
            check_fail(c, "max", (size_t)b, (double)got[b], (double)want);
            break;
        }
    }
    check_guards(c);
}

static void expsum_case(struct check *c, int n, int block, int kind)
{
    static const float scales[] = {1, 0.5f, 1.25f, 100, 1e-30f, FLT_MAX};
    int n_blocks = (n + block - 1) / block;
    float *x = check_buffer((size_t)n * sizeof *x, 4), shift = -FLT_MAX;
    double *got = check_buffer((size_t)n_blocks * sizeof *got, 8);
    fill_row(c, x, n, kind);
    for (int i = 0; i < n; i++) {
        shift = x[i] > shift ? x[i] : shift;
    }
    for (size_t s = 0; s < ARRAY_LEN(scales); s++) {
        c->t->block_expsum(x, n, block, shift, scales[s], got);
        for (int b = 0; b < n_blocks; b++) {
            double sum = 0, args = 0;
            for (int i = b * block; i < n && i < (b + 1) * block; i++) {
                double arg = ((double)x[i] - (double)shift) * (double)scales[s];
                sum += exp(arg);
                args += arg > -700 ? exp(arg) * fabs(arg) : 0;
            }
            if (!(fabs(got[b] - sum) <= 2e-6 * sum + 3e-7 * args + block * 1.2e-38)) {
                check_fail(c, "sum", (size_t)b, got[b], sum);
                return;
            }
        }
    }
    check_guards(c);
}

static void collect_case(struct check *c, int n, int kind)
{
    float *x = check_buffer((size_t)n * sizeof *x, 4);
    int32_t *got = check_buffer((size_t)n * sizeof *got, 4);
    fill_row(c, x, n, kind);
    const float limits[] = {x[check_random_below(c, n)], 0, 16, -FLT_MAX, -INFINITY, INFINITY};
    for (size_t k = 0; k < ARRAY_LEN(limits); k++) {
        int32_t found = c->t->collect(x, n, limits[k], got), want = 0;
        for (int i = 0; i < n; i++) {
            if (x[i] >= limits[k]) {
                if (want >= found || got[want] != i) {
                    check_fail(c, "index", (size_t)want, want < found ? got[want] : -1, i);
                    return;
                }
                want++;
            }
        }
        if (found != want) {
            check_fail(c, "count", k, found, want);
        }
    }
    check_guards(c);
}

static void check_sizes(struct check *c, int op)
{
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (size_t b = 0; b < (op == OP_COLLECT ? 1 : ARRAY_LEN(blocks)); b++) {
            for (int kind = 0; kind < (op == OP_BLOCK_EXPSUM ? 3 : 4); kind++) {
                check_case(c, "n %d, block %d, kind %d", sizes[i], blocks[b], kind);
                if (op == OP_BLOCK_MAX) {
                    max_case(c, sizes[i], blocks[b], kind);
                } else if (op == OP_BLOCK_EXPSUM) {
                    expsum_case(c, sizes[i], blocks[b], kind);
                } else {
                    collect_case(c, sizes[i], kind);
                }
            }
        }
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static struct kern_table honest;

static void wrong_max_tail(const float *x, int32_t n, int32_t block, float *max)
{
    honest.block_max(x, n, block, max);
    if (n % block % 16 != 0) {
        honest.block_max(x + n / block * block, n % block - n % block % 16, block, max + n / block);
    }
}
static void wrong_max_nan(const float *x, int32_t n, int32_t block, float *max)
{
    honest.block_max(x, n, block, max);
    for (int32_t i = 0; i < n; i++) {
        max[i / block] = isnan(x[i]) ? x[i] : max[i / block];
    }
}
static void wrong_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, double *sum)
{
    honest.block_expsum(x, n, block, shift, scale, sum);
    sum[(n - 1) / block] *= 1.00001;
}
static void wrong_expsum_scale(const float *x, int32_t n, int32_t block, float shift, float scale, double *sum)
{
    honest.block_expsum(x, n, block, shift, scale == 0.5f ? 0.50001f : scale, sum);
}
static int32_t wrong_collect_equal(const float *x, int32_t n, float least, int32_t *ids)
{
    return honest.collect(x, n, nextafterf(least, INFINITY), ids);
}
static int32_t wrong_collect_order(const float *x, int32_t n, float least, int32_t *ids)
{
    int32_t found = honest.collect(x, n, least, ids);
    if (found > 1) {
        int32_t first = ids[0];
        ids[0] = ids[1];
        ids[1] = first;
    }
    return found;
}

static bool plant(struct kern_table *t, int op, int variant)
{
    honest = *t;
    if (op == OP_BLOCK_MAX) {
        t->block_max = variant == 0 ? wrong_max_tail : wrong_max_nan;
    } else if (op == OP_BLOCK_EXPSUM) {
        t->block_expsum = variant == 0 ? wrong_expsum : wrong_expsum_scale;
    } else {
        t->collect = variant == 0 ? wrong_collect_equal : wrong_collect_order;
    }
    return variant < 2;
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

enum { BENCH_N = 262144, BENCH_BLOCK = 256 };

struct bench_arg {
    const struct kern_table *t, *ref;
    int op;
    float *x, *max;
    double *sum;
    int32_t *ids;
};

static void run_with(const struct kern_table *t, const struct bench_arg *b)
{
    if (b->op == OP_BLOCK_MAX) {
        t->block_max(b->x, BENCH_N, BENCH_BLOCK, b->max);
    } else if (b->op == OP_BLOCK_EXPSUM) {
        t->block_expsum(b->x, BENCH_N, BENCH_BLOCK, 15, 1, b->sum);
    } else {
        b->ids[0] = t->collect(b->x, BENCH_N, 14.99f, b->ids);
    }
}
static void run(void *arg) { run_with(((struct bench_arg *)arg)->t, arg); }
static void run_ref(void *arg) { run_with(((struct bench_arg *)arg)->ref, arg); }

static void bench(struct check *c, int op)
{
    check_case(c, "bench");
    struct bench_arg b = {.t = c->t,
                          .ref = c->ref,
                          .op = op,
                          .x = check_buffer(BENCH_N * sizeof *b.x, 64),
                          .max = check_buffer(BENCH_N / BENCH_BLOCK * sizeof *b.max, 64),
                          .sum = check_buffer(BENCH_N / BENCH_BLOCK * sizeof *b.sum, 64),
                          .ids = check_buffer(BENCH_N * sizeof *b.ids, 64)};
    fill_row(c, b.x, BENCH_N, 0);
    struct check_work w = {.size = "n 262144", .bytes = BENCH_N * sizeof *b.x};
    check_bench_row(c, &w, run, run_ref, &b);
}

#define ROWS_ROW(label, op)                                                                                            \
    {                                                                                                                  \
        .name = label, .arg = op, .check = check_sizes, .plant = plant, .bench = bench                                 \
    }
const struct check_op check_rows_ops[] = {
    ROWS_ROW("block_max", OP_BLOCK_MAX),
    ROWS_ROW("block_expsum", OP_BLOCK_EXPSUM),
    ROWS_ROW("collect", OP_COLLECT),
    {.name = NULL},
};
