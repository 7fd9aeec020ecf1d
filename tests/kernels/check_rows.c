/* The sampler's operations on a row: the largest of each block, sums of exponentials, and the elements above a
 * limit. */
#include "tests/kernels/checkkern.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 100, 255, 257, 577, 4099};
static const int blocks[] = {16, 48, 256, 4096};

enum op { OP_BLOCK_MAX, OP_BLOCK_EXPSUM, OP_COLLECT, OP_BIN_SUMS };

/* Fills a row like logits; some rows have ties, banned tokens, or (nan) values that no row should have. */
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
        float limit = s % 2 == 0 ? INFINITY : x[check_random_below(c, n)];
        c->t->block_expsum(x, n, block, shift, scales[s], limit, got);
        for (int b = 0; b < n_blocks; b++) {
            double sum = 0, args = 0;
            for (int i = b * block; i < n && i < (b + 1) * block; i++) {
                double arg = ((double)x[i] - (double)shift) * (double)scales[s];
                sum += x[i] < limit ? exp(arg) : 0;
                args += x[i] < limit && arg > -700 ? exp(arg) * fabs(arg) : 0;
            }
            if (!(fabs(got[b] - sum) <= 1.2e-6 * sum + 1.3e-7 * args + block * 1.2e-38)) {
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
    const float limits[] = {x[check_random_below(c, n)], 0, 16, -FLT_MAX, -INFINITY, INFINITY, -2, 1};
    for (size_t k = 0; k < ARRAY_LEN(limits); k++) {
        float most = k % 2 == 0 ? INFINITY : k == 1 ? 3 : limits[k];
        int32_t found = c->t->collect(x, n, limits[k], most, got), want = 0;
        for (int i = 0; i < n; i++) {
            if (x[i] >= limits[k] && x[i] <= most) {
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

/* Two polynomials in one pass, or only the first; sums add to existing values. */
static void bin_sums_case(struct check *c, int n, int kind)
{
    float *x = check_buffer((size_t)n * sizeof *x, 4), max = -FLT_MAX;
    uint64_t(*got)[KERN_BINS] = check_buffer(2 * sizeof *got, 8),
    (*want)[KERN_BINS] = check_buffer(2 * sizeof *want, 8);
    int32_t *count = check_buffer(KERN_BINS * sizeof *count, 4);
    fill_row(c, x, n, kind);
    float shift = (float)check_random_between(c, -900, 900);
    for (int i = 0; i < n; i++) {
        x[i] = check_random_below(c, 50) == 0 ? -3e38f : x[i] + shift;
        max = fmaxf(max, x[i]);
    }
    max = fmaxf(max, shift - 20);
    struct kern_bins b = {
        .top = nearbyintf(max * KERN_BINS_PER_ONE), .n_sums = 1 + kind % 2, .has_rest = kind != 1, .max = max};
    double error[2] = {0};
    for (int q = 0; q < 2; q++) {
        double term = q == 0 ? 1 : check_random_between(c, 0.2, 5);
        for (int j = 0; j < KERN_BIN_TERMS; j++) {
            b.c[q][j] = (float)term;
            error[q] += 1.5e-9 * (j + 1) * (double)b.c[q][j] * pow(0.011, j);
            term *= (q == 0 ? 1 : 5) / (j + 2.0);
        }
        error[q] = (error[q] + 2.5e-10) * KERN_BIN_ONE + 1;
    }
    for (int i = 0; i < KERN_BINS; i++) {
        got[0][i] = got[1][i] = want[0][i] = want[1][i] = (uint64_t)i;
        count[i] = 0;
    }
    for (int i = 0; i < n; i++) {
        double k = b.top - (double)nearbyintf(x[i] * KERN_BINS_PER_ONE);
        count[k < KERN_BINS ? (int)k : KERN_BINS - 1]++;
    }
    double rest = c->t->bin_sums(x, n, &b, got), rest_error = 0;
    double rest_wanted = c->ref->bin_sums(x, n, &b, want);
    for (int i = 0; i < n && b.has_rest; i++) {
        rest_error += (1e-6 * 0.011 + 1e-9) * exp((double)x[i] - max);
    }
    if (!(fabs(rest - rest_wanted) <= rest_error)) {
        check_fail(c, "rest", 0, rest, rest_wanted);
    }
    for (int i = 0; i < KERN_BINS - 1; i++) { /* those of the last are meaningless */
        for (int q = 0; q < 2; q++) {
            if (fabs((double)(int64_t)(got[q][i] - want[q][i])) > count[i] * error[q]) {
                check_fail(c, "sum", (size_t)(2 * i + q), (double)got[q][i], (double)want[q][i]);
                return;
            }
        }
    }
    check_guards(c);
}

static void check_sizes(struct check *c, int op)
{
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (size_t b = 0; b < (op >= OP_COLLECT ? 1 : ARRAY_LEN(blocks)); b++) {
            for (int kind = 0; kind < (op == OP_BLOCK_EXPSUM || op == OP_BIN_SUMS ? 3 : 4); kind++) {
                check_case(c, "n %d, block %d, kind %d", sizes[i], blocks[b], kind);
                if (op == OP_BLOCK_MAX) {
                    max_case(c, sizes[i], blocks[b], kind);
                } else if (op == OP_BLOCK_EXPSUM) {
                    expsum_case(c, sizes[i], blocks[b], kind);
                } else if (op == OP_BIN_SUMS) {
                    bin_sums_case(c, sizes[i], kind);
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
static void wrong_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, float limit, double *sum)
{
    honest.block_expsum(x, n, block, shift, scale, limit, sum);
    sum[(n - 1) / block] *= 1.00001;
}
static void wrong_expsum_limit(const float *x, int32_t n, int32_t block, float shift, float scale, float limit,
                               double *sum)
{
    honest.block_expsum(x, n, block, shift, scale, nextafterf(limit, INFINITY), sum);
}
static void wrong_expsum_scale(const float *x, int32_t n, int32_t block, float shift, float scale, float limit,
                               double *sum)
{
    honest.block_expsum(x, n, block, shift, scale == 0.5f ? 0.50001f : scale, limit, sum);
}
static int32_t wrong_collect_equal(const float *x, int32_t n, float least, float most, int32_t *ids)
{
    return honest.collect(x, n, nextafterf(least, INFINITY), most, ids);
}
static int32_t wrong_collect_most(const float *x, int32_t n, float least, float most, int32_t *ids)
{
    return honest.collect(x, n, least, nextafterf(most, -INFINITY), ids);
}
static int32_t wrong_collect_order(const float *x, int32_t n, float least, float most, int32_t *ids)
{
    int32_t found = honest.collect(x, n, least, most, ids);
    if (found > 1) {
        int32_t first = ids[0];
        ids[0] = ids[1];
        ids[1] = first;
    }
    return found;
}

static double wrong_bin_sums(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS])
{
    struct kern_bins c = *b;
    c.c[c.n_sums - 1][0] *= 1.000001f;
    return honest.bin_sums(x, n, &c, sums);
}
static double wrong_bin_sums_tail(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS])
{
    return honest.bin_sums(x, n - n % 16 / 15, b, sums);
}
static double wrong_bin_sums_rest(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS])
{
    return honest.bin_sums(x, n, b, sums) * 1.00001;
}

static bool plant(struct kern_table *t, int op, int variant)
{
    honest = *t;
    if (op == OP_BLOCK_MAX) {
        t->block_max = variant == 0 ? wrong_max_tail : wrong_max_nan;
    } else if (op == OP_BLOCK_EXPSUM) {
        t->block_expsum = variant == 0 ? wrong_expsum : variant == 1 ? wrong_expsum_scale : wrong_expsum_limit;
    } else if (op == OP_BIN_SUMS) {
        t->bin_sums = variant == 0 ? wrong_bin_sums : variant == 1 ? wrong_bin_sums_tail : wrong_bin_sums_rest;
    } else {
        t->collect = variant == 0 ? wrong_collect_equal : variant == 1 ? wrong_collect_order : wrong_collect_most;
    }
    return variant < (op == OP_BLOCK_MAX ? 2 : 3);
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

enum { BENCH_N = 262144, BENCH_BLOCK = 256 };

struct bench_arg {
    const struct kern_table *t, *ref;
    int op;
    float *x, *max;
    double *sum;
    int32_t *ids;
    uint64_t (*bins)[KERN_BINS];
};

static void run_with(const struct kern_table *t, const struct bench_arg *b)
{
    if (b->op == OP_BLOCK_MAX) {
        t->block_max(b->x, BENCH_N, BENCH_BLOCK, b->max);
    } else if (b->op == OP_BLOCK_EXPSUM) {
        t->block_expsum(b->x, BENCH_N, BENCH_BLOCK, 15, 1, INFINITY, b->sum);
    } else if (b->op == OP_BIN_SUMS) {
        const struct kern_bins bins = {.top = 700, .n_sums = 1, .c = {{1, 1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120}}};
        t->bin_sums(b->x, BENCH_N, &bins, b->bins);
    } else {
        b->ids[0] = t->collect(b->x, BENCH_N, 14.99f, INFINITY, b->ids);
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
                          .ids = check_buffer(BENCH_N * sizeof *b.ids, 64),
                          .bins = check_buffer(2 * sizeof *b.bins, 64)};
    memset(b.bins, 0, 2 * sizeof *b.bins);
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
    ROWS_ROW("bin_sums", OP_BIN_SUMS),
    {.name = NULL},
};
