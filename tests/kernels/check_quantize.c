/* quantize_row: exact to ref, and ref within half a step of the input. */
#include "tests/kernels/checkkern.h"

#include <math.h>
#include <string.h>

static const int widths[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 576, 1000, 1536};

/* The parts of a row; the padding between them is nobody's. */
struct qrow {
    const int8_t *q;
    const float *d, *s;
    const int32_t *nsum;
};

static struct qrow qrow_parts(const void *row, size_t k)
{
    const unsigned char *p = row;
    return (struct qrow){(const int8_t *)p, (const float *)(const void *)(p + kern_qrow_d_offset(k)),
                         (const float *)(const void *)(p + kern_qrow_s_offset(k)),
                         (const int32_t *)(const void *)(p + kern_qrow_nsum_offset(k))};
}

/* Block b against the definition in kern.h, for finite inputs x[n]. */
static void check_block(struct check *c, const float *x, size_t n, struct qrow r, size_t b)
{
    double amax = 0;
    int sum[2] = {0, 0};
    for (size_t i = 0; i < n; i++) {
        amax = fmax(amax, fabs((double)x[i]));
    }
    bool is_zero = amax < 0x1p-119;
    double d = is_zero ? 0 : amax / 127;
    if (fabs((double)r.d[b] - d) > d * 1e-7) {
        check_fail(c, "d", b, (double)r.d[b], d);
    }
    for (size_t i = 0; i < 32; i++) {
        int q = r.q[32 * b + i];
        sum[i / 16] += q;
        double step = i < n && !is_zero ? (double)x[i] / d : 0;
        if (fabs(q - step) > 0.5 + 1e-4) {
            check_fail(c, "q", 32 * b + i, q, step);
            return;
        }
    }
    for (size_t half = 0; half < 2; half++) {
        if (r.nsum[2 * b + half] != -sum[half]) {
            check_fail(c, "nsum", 2 * b + half, r.nsum[2 * b + half], -sum[half]);
        }
    }
    double s = (double)r.d[b] * (sum[0] + sum[1]);
    if (fabs((double)r.s[b] - s) > fabs(s) * 1e-7 + 0x1p-149) {
        check_fail(c, "s", b, (double)r.s[b], s);
    }
}

static void run_case(struct check *c, size_t k, enum check_fill fill, bool is_finite)
{
    size_t n_blocks = (k + 31) / 32;
    float *x = check_buffer(k * sizeof *x, 64);
    void *got = check_buffer(kern_qrow_bytes(k), 64), *want = check_buffer(kern_qrow_bytes(k), 64);
    check_fill_f32(c, fill, x, k);
    if (!is_finite) {
        x[check_random_below(c, (int)k)] = (check_random(c) & 1) != 0 ? NAN : -INFINITY;
    }
    c->ref->quantize_row(x, k, want);
    c->t->quantize_row(x, k, got);
    struct qrow g = qrow_parts(got, k), w = qrow_parts(want, k);
    if (check_same_bytes(c, "q", g.q, w.q, 32 * n_blocks) && check_same_f32(c, "d", g.d, w.d, n_blocks) &&
        check_same_f32(c, "s", g.s, w.s, n_blocks) &&
        check_same_bytes(c, "nsum bytes", g.nsum, w.nsum, 2 * n_blocks * sizeof *g.nsum) && is_finite) {
        for (size_t b = 0; b < n_blocks; b++) {
            check_block(c, x + 32 * b, MIN_OF(k - 32 * b, (size_t)32), g, b);
        }
    }
    check_guards(c);
}

static void check_quantize(struct check *c, int arg)
{
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        for (int fill = 0; fill < CHECK_FILL_COUNT; fill++) {
            check_case(c, "K %d, %s", widths[i], check_fill_name(fill));
            run_case(c, (size_t)widths[i], fill, true);
        }
        check_case(c, "K %d, not finite", widths[i]);
        run_case(c, (size_t)widths[i], CHECK_UNIFORM, false);
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static void (*honest)(const float *x, size_t k, void *row);

static void wrong_code(const float *x, size_t k, void *row)
{
    honest(x, k, row);
    int8_t *last = (int8_t *)row + k - 1;
    *last = (int8_t)(*last > 0 ? *last - 1 : *last + 1);
}

static void wrong_half_sum(const float *x, size_t k, void *row)
{
    honest(x, k, row);
    int32_t *nsum = (int32_t *)(void *)((unsigned char *)row + kern_qrow_nsum_offset(k));
    int32_t first = nsum[0];
    nsum[0] = nsum[1];
    nsum[1] = first;
}

static bool plant_quantize(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    void (*const wrong[])(const float *, size_t, void *) = {wrong_code, wrong_half_sum};
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
    void *row;
};

static void run(void *arg)
{
    struct bench_arg *b = arg;
    b->c->t->quantize_row(b->x, b->k, b->row);
}

static void run_ref(void *arg)
{
    struct bench_arg *b = arg;
    b->c->ref->quantize_row(b->x, b->k, b->row);
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
