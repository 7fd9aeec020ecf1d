/* quantize_row: equal to ref, and ref within half a step of the input. */
#include "tests/kernels/checkkern.h"

#include <math.h>
#include <string.h>

static const int widths[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 576, 1000, 1536};

static void check_int(struct check *c, const char *what, size_t at, int32_t got, int32_t want)
{
    if (got != want) {
        check_fail(c, what, at, got, want);
    }
}

/* Compares block b with the definition in kern.h, for finite inputs x[n]. */
static void check_block(struct check *c, const float *x, size_t n, const struct kern_qblock *q, size_t b)
{
    double amax = 0;
    int sum[2] = {0, 0}, sum_lo[2] = {0, 0};
    for (size_t i = 0; i < n; i++) {
        amax = fmax(amax, fabs((double)x[i]));
    }
    bool is_zero = amax < 0x1p-110;
    double d = is_zero ? 0 : amax / 127, largest_error = q->fine != 0 ? 0.5 / 256 + 1.0 / 256 : 0.5;
    if (fabs((double)q->d - d) > d * 1e-7) {
        check_fail(c, "d", b, (double)q->d, d);
    }
    for (size_t i = 0; i < 32; i++) {
        double value = q->hi[i] + q->lo[i] / 256.0;
        sum[i / 16] += q->hi[i];
        sum_lo[i / 16] += q->lo[i];
        double step = i < n && !is_zero ? (double)x[i] / d : 0;
        if (fabs(value - step) > largest_error + 1e-4 || (q->fine == 0 && q->lo[i] != 0)) {
            check_fail(c, "terms", 32 * b + i, value, step);
            return;
        }
    }
    for (size_t i = 0; i < 2; i++) {
        check_int(c, "half", 2 * b + i, q->half[i], -8 * sum[i]);
        check_int(c, "half_lo", 2 * b + i, q->half_lo[i], -8 * sum_lo[i]);
    }
    check_int(c, "zero", b, q->zero, -8 * (sum[0] + sum[1]));
    check_int(c, "zero_lo", b, q->zero_lo, -8 * (sum_lo[0] + sum_lo[1]));
    double s = (double)q->d * (sum[0] + sum[1] + (sum_lo[0] + sum_lo[1]) / 256.0);
    if (fabs((double)q->s - s) > fabs(s) * 2e-7 + 0x1p-149) {
        check_fail(c, "s", b, (double)q->s, s);
    }
}

/* Compares which blocks are fine with the mean in double; blocks near the limit can be either. */
static void check_fine(struct check *c, const struct kern_qblock *r, size_t n_blocks, float fine)
{
    double mean = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        mean += (double)r[b].d * (double)r[b].d / (double)n_blocks;
    }
    for (size_t b = 0; b < n_blocks && mean > 1e-30 && mean < 1e30; b++) {
        double square = (double)r[b].d * (double)r[b].d, limit = (double)fine * (double)fine * mean;
        bool is_near = fabs(square - limit) <= 1e-5 * limit || square < 1e-37;
        if (!is_near && (r[b].fine != 0) != (square > limit)) {
            check_fail(c, "fine", b, r[b].fine, square > limit);
        }
    }
}

static bool same_block(struct check *c, const struct kern_qblock *got, const struct kern_qblock *want)
{
    return check_same_bytes(c, "hi", got->hi, want->hi, sizeof got->hi) &&
           check_same_bytes(c, "lo", got->lo, want->lo, sizeof got->lo) &&
           check_same_f32(c, "d", &got->d, &want->d, 1) && check_same_f32(c, "s", &got->s, &want->s, 1) &&
           check_same_bytes(c, "zero and half", &got->zero, &want->zero, 3 * sizeof got->zero) &&
           check_same_bytes(c, "zero_lo and half_lo", &got->zero_lo, &want->zero_lo, 3 * sizeof got->zero) &&
           check_same_bytes(c, "fine", &got->fine, &want->fine, sizeof got->fine);
}

static void run_case(struct check *c, size_t k, enum check_fill fill, bool is_finite)
{
    static const float thresholds[] = {0, 0.5f, 1, 3, INFINITY};
    size_t n = kern_qrow_blocks(k);
    float *x = check_buffer(k * sizeof *x, 64);
    struct kern_qblock *got = check_buffer(kern_qrow_bytes(k), 64), *want = check_buffer(kern_qrow_bytes(k), 64);
    check_fill_f32(c, fill, x, k);
    if (!is_finite) {
        x[check_random_below(c, (int)k)] = (check_random(c) & 1) != 0 ? NAN : -INFINITY;
    }
    float fine = thresholds[check_random_below(c, (int)ARRAY_LEN(thresholds))];
    c->ref->quantize_row(x, k, fine, want);
    c->t->quantize_row(x, k, fine, got);
    bool is_same = true;
    for (size_t b = 0; b < n && is_same; b++) {
        is_same = same_block(c, &got[b], &want[b]);
    }
    for (size_t b = 0; b < n && is_same && is_finite; b++) {
        check_block(c, x + 32 * b, MIN_OF(k - 32 * b, (size_t)32), &got[b], b);
    }
    if (is_same && is_finite) {
        check_fine(c, got, n, fine);
    }
    check_guards(c);
}

static void check_quantize(struct check *c, int arg)
{
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        for (int fill = 0; fill < 4 * CHECK_FILL_COUNT; fill++) { /* four thresholds each */
            check_case(c, "K %d, %s", widths[i], check_fill_name((enum check_fill)(fill % CHECK_FILL_COUNT)));
            run_case(c, (size_t)widths[i], (enum check_fill)(fill % CHECK_FILL_COUNT), true);
        }
        check_case(c, "K %d, not finite", widths[i]);
        run_case(c, (size_t)widths[i], CHECK_UNIFORM, false);
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static void (*honest)(const float *x, size_t k, float fine, struct kern_qblock *row);

static void wrong_code(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    honest(x, k, fine, row);
    int8_t *last = &row[(k - 1) / PANEL_BLOCK].hi[(k - 1) % PANEL_BLOCK];
    *last = (int8_t)(*last > 0 ? *last - 1 : *last + 1);
}

static void wrong_half_sum(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    honest(x, k, fine, row);
    int32_t first = row->half[0];
    row->half[0] = row->half[1];
    row->half[1] = first;
}

static void wrong_fine(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    honest(x, k, fine, row);
    row->fine ^= 1;
}

static bool plant_quantize(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    void (*const wrong[])(const float *, size_t, float, struct kern_qblock *) = {wrong_code, wrong_half_sum,
                                                                                 wrong_fine};
    if ((size_t)variant >= ARRAY_LEN(wrong)) {
        return false;
    }
    honest = t->quantize_row;
    t->quantize_row = wrong[variant];
    return true;
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

struct bench_arg {
    const struct check *c;
    const float *x;
    size_t k;
    struct kern_qblock *row;
};

static void run(void *arg)
{
    struct bench_arg *b = arg;
    b->c->t->quantize_row(b->x, b->k, 3.0f, b->row);
}

static void run_ref(void *arg)
{
    struct bench_arg *b = arg;
    b->c->ref->quantize_row(b->x, b->k, 3.0f, b->row);
}

static void bench_quantize(struct check *c, int arg)
{
    (void)arg;
    check_case(c, "bench");
    struct bench_arg b = {.c = c, .k = 1536};
    float *x = check_buffer(b.k * sizeof *x, 64);
    check_fill_f32(c, CHECK_UNIFORM, x, b.k);
    b.x = x;
    b.row = check_buffer(kern_qrow_bytes(b.k), 64);
    struct check_work w = {.size = "K 1536", .bytes = (double)(b.k * sizeof *x + kern_qrow_bytes(b.k))};
    check_bench_row(c, &w, run, run_ref, &b);
}

const struct check_op check_quantize_ops[] = {
    {.name = "quantize_row", .check = check_quantize, .plant = plant_quantize, .bench = bench_quantize},
    {.name = NULL},
};
