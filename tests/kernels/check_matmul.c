/* Matrix products of every panel kind. Each result must equal ref bit for bit (all our ISAs fuse multiply and add like
 * ref), be within rounding of the product computed in double from the unpacked panel, and not change if the same row
 * and panel are computed in a smaller call. */
#include "tests/kernels/checkkern.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* K: for quantized kinds a multiple of 32. far: activation rows are 48 KiB apart, so that few fit a cache chunk. */
struct shape {
    int k, n_rows, n_panels;
    bool far;
};

static const struct shape quant_shapes[] = {
    {32, 1, 1, false},   {32, 8, 1, false},    {64, 1, 9, false},
    {64, 2, 3, false},   {96, 3, 2, false},    {96, 4, 1, false},
    {160, 5, 1, false},  {160, 7, 2, false},   {96, 9, 1, false},
    {64, 15, 1, false},  {64, 17, 2, false},   {32, 33, 1, false},
    {64, 19, 3, true},   {576, 3, 1, false},   {1024, 1, 2, false},
    {512, 0, 1, false},  {64, 27, 2, false},   {96, 47, 1, false},
    {1824, 3, 1, false}, {4160, 17, 1, false}, /* more blocks than a list of fine blocks holds */
};

static const struct shape float_shapes[] = {
    {1, 1, 1, false},   {2, 2, 1, false},  {3, 1, 8, false},   {7, 1, 17, false},  {16, 3, 2, false},
    {17, 4, 3, false},  {33, 5, 1, false}, {31, 7, 2, false},  {15, 8, 1, false},  {5, 9, 3, false},
    {24, 17, 2, false}, {33, 19, 3, true}, {100, 2, 5, false}, {257, 1, 2, false}, {8, 0, 1, false},
};

enum { FAR_BYTES = 48 * 1024, RANDOM_SHAPES = 40 };

static struct kern_matmul_args args; /* of the case */
static enum panel_kind kind_of_case;

/* Returns a half for a scale: an ordinary one, or an extreme that a file can have. */
static uint16_t random_half(struct check *c, enum check_fill fill)
{
    static const uint16_t extremes[] = {0x0000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00};
    if (fill == CHECK_SPREAD || fill == CHECK_HUGE || fill == CHECK_DENORMAL) {
        return extremes[check_random_below(c, (int)ARRAY_LEN(extremes))];
    }
    if (fill == CHECK_ZERO_BLOCKS && (check_random(c) & 1) != 0) {
        return 0;
    }
    return dtype_f32_to_f16((float)check_random_between(c, -0.1, 0.1));
}

/* Likewise for bf16 scales, whose range is that of f32; products of scale and sum must not overflow. */
static uint16_t random_bf16(struct check *c, enum check_fill fill)
{
    static const float extremes[] = {0, 0x1p-128f, 0x1p-127f, -0x1p-126f, 0x1p-60f, 0x1p60f, -0x1p60f, 1};
    if (fill == CHECK_SPREAD || fill == CHECK_HUGE || fill == CHECK_DENORMAL) {
        return dtype_f32_to_bf16(extremes[check_random_below(c, (int)ARRAY_LEN(extremes))]);
    }
    if (fill == CHECK_ZERO_BLOCKS && (check_random(c) & 1) != 0) {
        return 0;
    }
    return dtype_f32_to_bf16((float)check_random_between(c, -0.1, 0.1));
}

/* Fills a table with any entries that it can have, the extremes more often. */
static void fill_table(struct check *c, unsigned char *table)
{
    for (size_t i = 0; i < 64; i++) {
        uint64_t r = check_random(c);
        table[i] = i >= 16 ? table[i - 16] : (r >> 8 & 7) == 0 ? 255 : (r >> 8 & 7) == 1 ? 1 : (uint8_t)(1 + r % 255);
    }
}

static void fill_quant_panel(struct check *c, enum panel_kind kind, enum check_fill fill, size_t k,
                             unsigned char *panel)
{
    const struct panel_info *info = panel_info(kind);
    size_t bytes = panel_bytes(kind, k);
    for (size_t i = 0; i < bytes; i++) { /* every code and step value, extremes more often */
        uint64_t r = check_random(c);
        panel[i] = (r >> 8 & 7) == 0 ? 0xFF : (r >> 8 & 7) == 1 ? 0 : (uint8_t)r;
    }
    for (size_t group = 0; group * PANEL_GROUP * PANEL_BLOCK < k; group++) {
        struct panel_group g = panel_group_at(kind, k, group);
        size_t from = info->has_unit ? g.unit : g.scales;
        size_t n = info->has_unit ? 2 * PANEL_ROWS : g.unit - g.scales;
        n += info->has_unit && info->has_min ? 2 * PANEL_ROWS : 0;
        for (size_t i = from; i < from + n; i += 2) {
            uint16_t h = info->has_bf16_scale ? random_bf16(c, fill) : random_half(c, fill);
            memcpy(panel + i, &h, 2);
        }
    }
    if (info->has_table) {
        fill_table(c, panel + panel_table_offset(kind, k));
    }
}

static void fill_float_panel(struct check *c, enum panel_kind kind, enum check_fill fill, size_t k,
                             unsigned char *panel)
{
    for (size_t i = 0; i < k; i++) {
        float w[PANEL_ROWS];
        check_fill_f32(c, fill, w, PANEL_ROWS);
        for (size_t lane = 0; lane < PANEL_ROWS; lane++) {
            size_t at = i * PANEL_ROWS + lane;
            uint16_t h = kind == PANEL_F16 ? dtype_f32_to_f16(w[lane]) : dtype_f32_to_bf16(w[lane]);
            if (kind == PANEL_F32) {
                memcpy(panel + 4 * at, &w[lane], 4);
            } else {
                memcpy(panel + 2 * at, &h, 2);
            }
        }
    }
}

/* Makes the largest terms that a block can have, sometimes all of one sign: sums in narrow integers must hold them. */
static void make_extreme(struct check *c, struct kern_qblock *q)
{
    int sums[2] = {0, 0}, sums_lo[2] = {0, 0};
    bool same = (check_random(c) & 1) != 0, is_low = (check_random(c) & 1) != 0;
    for (int i = 0; i < PANEL_BLOCK; i++) {
        is_low = same ? is_low : (check_random(c) & 1) != 0;
        q->hi[i] = is_low ? -127 : 127;
        q->lo[i] = is_low ? -128 : 127;
        sums[i / 16] += q->hi[i];
        sums_lo[i / 16] += q->lo[i];
    }
    for (int i = 0; i < 2; i++) {
        q->half[i] = -8 * sums[i];
        q->half_lo[i] = -8 * sums_lo[i];
    }
    q->zero = q->half[0] + q->half[1];
    q->zero_lo = q->half_lo[0] + q->half_lo[1];
    q->fine = 1;
    q->s = q->d * ((float)(256 * (sums[0] + sums[1]) + sums_lo[0] + sums_lo[1]) * (1.0f / 256));
}

/* Fills `args`: panels, rows and a canary-filled output. */
static void make_case(struct check *c, enum panel_kind kind, enum check_fill fill, const struct shape *s)
{
    size_t k = (size_t)s->k, bytes = panel_bytes(kind, k);
    bool is_float = panel_info(kind)->is_float;
    size_t row_bytes = is_float ? (k * sizeof(float) + 63) / 64 * 64 : kern_qrow_bytes(k);
    row_bytes = s->far ? FAR_BYTES : row_bytes;
    unsigned char *panels = check_buffer(bytes * (size_t)s->n_panels, 64);
    unsigned char *rows = check_buffer(row_bytes * (size_t)s->n_rows, 64);
    float *x = check_buffer(k * sizeof *x, 64);
    for (int p = 0; p < s->n_panels; p++) {
        (is_float ? fill_float_panel : fill_quant_panel)(c, kind, fill, k, panels + (size_t)p * bytes);
    }
    for (int r = 0; r < s->n_rows; r++) {
        check_fill_f32(c, fill, x, k);
        if (is_float) {
            memcpy(rows + (size_t)r * row_bytes, x, k * sizeof *x);
        } else {
            /* no block has a second term, some have, all have */
            static const float fine[] = {INFINITY, 3, 1, 0};
            struct kern_qblock *row = (void *)(rows + (size_t)r * row_bytes);
            c->ref->quantize_row(x, k, fine[check_random_below(c, 4)], row);
            if (check_random_below(c, 4) == 0) {
                make_extreme(c, &row[check_random_below(c, s->k / PANEL_BLOCK)]);
            }
        }
    }
    size_t stride = (size_t)s->n_panels * PANEL_ROWS + 16; /* 16 floats between rows that must not be written */
    args = (struct kern_matmul_args){.panels = panels,
                                     .n_panels = s->n_panels,
                                     .k = k,
                                     .rows = rows,
                                     .row_bytes = row_bytes,
                                     .n_rows = s->n_rows,
                                     .out = check_buffer(stride * (size_t)s->n_rows * sizeof(float), 64),
                                     .out_stride = stride};
    kind_of_case = kind;
}

/* Returns weight times input, summed in double, of row r and one lane with weights w and, for kinds with minimums,
 * min[], one for each scale. *limit: the allowed rounding, 2^-24 per step of the sum of magnitudes; a kernel adds code
 * * scale and the minimum separately, so their magnitudes both count. */
static double truth(int r, const float *w, const float *min, double *limit)
{
    const unsigned char *row = (const unsigned char *)args.rows + (size_t)r * args.row_bytes;
    const float *x = (const float *)(const void *)row;
    const struct kern_qblock *q = (const void *)row;
    bool is_float = panel_info(kind_of_case)->is_float;
    double sum = 0, magnitude = 0;
    for (size_t i = 0; i < args.k; i++) {
        double in =
            is_float ? (double)x[i] : (q[i / 32].hi[i % 32] + q[i / 32].lo[i % 32] / 256.0) * (double)q[i / 32].d;
        double extra = min != NULL ? 2 * fabs((double)min[i / panel_info(kind_of_case)->block]) : 0;
        sum += (double)w[i] * in;
        magnitude += (fabs((double)w[i]) + extra) * fabs(in);
    }
    double steps = is_float ? (double)args.k : (double)args.k / 8 + 8; /* two per part, and those of w and s */
    *limit = steps * 0x1p-24 * magnitude + (double)args.k * 0x1p-149;
    *limit = magnitude < 1e38 ? *limit : INFINITY; /* an intermediate sum can overflow although the result does not */
    return sum;
}

/* Compares the results in `out` with double arithmetic, for one lane of each panel. */
static void check_truth(struct check *c, const float *out)
{
    const struct panel_info *info = panel_info(kind_of_case);
    float *w = check_buffer(args.k * sizeof *w, 64), *min = check_buffer(args.k / 16 * sizeof *min, 64);
    for (int p = 0; p < args.n_panels; p++) {
        int lane = check_random_below(c, PANEL_ROWS);
        const unsigned char *panel = (const unsigned char *)args.panels + (size_t)p * panel_bytes(kind_of_case, args.k);
        panel_unpack_row(kind_of_case, panel, args.k, lane, w);
        for (size_t b = 0; info->has_min && b < args.k / info->block; b++) {
            min[b] = panel_min(kind_of_case, panel, args.k, b, lane);
        }
        for (int r = 0; r < args.n_rows; r++) {
            size_t at = (size_t)r * args.out_stride + (size_t)(p * PANEL_ROWS + lane);
            double limit, want = truth(r, w, info->has_min ? min : NULL, &limit);
            if (fabs(want) + limit < 1e38 && !(fabs((double)out[at] - want) <= limit)) {
                check_fail(c, "product in double", at, (double)out[at], want);
                return;
            }
        }
    }
}

/* Checks that one row and one panel alone, then a middle piece of the call, give the same bits. */
static void check_invariance(struct check *c)
{
    if (args.n_rows == 0) {
        return;
    }
    size_t bytes = panel_bytes(kind_of_case, args.k);
    for (int trial = 0; trial < 4; trial++) {
        struct kern_matmul_args part = args;
        int r = check_random_below(c, args.n_rows), p = check_random_below(c, args.n_panels);
        part.n_rows = trial == 0 ? 1 : 1 + check_random_below(c, args.n_rows - r);
        part.n_panels = trial == 0 ? 1 : 1 + check_random_below(c, args.n_panels - p);
        part.rows = (const unsigned char *)args.rows + (size_t)r * args.row_bytes;
        part.panels = (const unsigned char *)args.panels + (size_t)p * bytes;
        part.out_stride = (size_t)part.n_panels * PANEL_ROWS;
        part.out = check_buffer(part.out_stride * (size_t)part.n_rows * sizeof(float), 64);
        c->t->matmul[kind_of_case](&part);
        for (int i = 0; i < part.n_rows; i++) {
            const float *whole = args.out + (size_t)(r + i) * args.out_stride + (size_t)p * PANEL_ROWS;
            if (!check_same_f32(c, "part of the call alone", part.out + (size_t)i * part.out_stride, whole,
                                part.out_stride)) {
                return;
            }
        }
    }
}

static void run_case(struct check *c)
{
    size_t n = args.out_stride * (size_t)args.n_rows;
    struct kern_matmul_args ref_args = args;
    ref_args.out = check_buffer(n * sizeof(float), 64);
    c->ref->matmul[kind_of_case](&ref_args);
    c->t->matmul[kind_of_case](&args);
    bool is_right = true;
    for (int r = 0; is_right && r < args.n_rows; r++) {
        size_t at = (size_t)r * args.out_stride, width = (size_t)args.n_panels * PANEL_ROWS;
        is_right =
            check_same_f32(c, "row", args.out + at, ref_args.out + at, width) &&
            check_untouched(c, "byte between rows", args.out + at + width, (args.out_stride - width) * sizeof(float));
    }
    if (is_right) {
        check_truth(c, args.out);
        check_invariance(c);
    }
    check_guards(c);
}

/* Checks random shapes. */
static void check_random_shapes(struct check *c, enum panel_kind kind)
{
    for (int i = 0; i < RANDOM_SHAPES; i++) {
        check_case(c, "random shape %d", i);
        int blocks = 1 + check_random_below(c, 12);
        struct shape s = {.k = panel_info(kind)->is_float ? 1 + check_random_below(c, 100) : 32 * blocks,
                          .n_rows = 1 + check_random_below(c, 20),
                          .n_panels = 1 + check_random_below(c, 10)};
        enum check_fill fill = (enum check_fill)check_random_below(c, CHECK_FILL_COUNT);
        make_case(c, kind, fill, &s);
        run_case(c);
    }
}

static void check_matmul(struct check *c, int kind)
{
    bool is_float = panel_info((enum panel_kind)kind)->is_float;
    const struct shape *shapes = is_float ? float_shapes : quant_shapes;
    size_t n = is_float ? ARRAY_LEN(float_shapes) : ARRAY_LEN(quant_shapes);
    for (size_t i = 0; i < n; i++) {
        for (int fill = 0; fill < CHECK_FILL_COUNT; fill++) {
            check_case(c, "K %d, %d rows, %d panels, %s", shapes[i].k, shapes[i].n_rows, shapes[i].n_panels,
                       check_fill_name((enum check_fill)fill));
            make_case(c, (enum panel_kind)kind, (enum check_fill)fill, &shapes[i]);
            run_case(c);
        }
    }
    check_random_shapes(c, (enum panel_kind)kind);
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static kern_matmul_fn honest;

static void wrong_last_lane(const struct kern_matmul_args *a)
{
    honest(a);
    if (a->n_rows > 0) {
        float *last = &a->out[(size_t)(a->n_rows - 1) * a->out_stride + (size_t)a->n_panels * PANEL_ROWS - 1];
        *last = nextafterf(*last, 1e30f);
    }
}

static void wrong_in_a_batch(const struct kern_matmul_args *a)
{
    honest(a);
    if (a->n_rows > 4) {
        a->out[0] *= 1.0f + 0x1p-23f;
    }
}

static void wrong_width(const struct kern_matmul_args *a)
{
    honest(a);
    if (a->n_rows > 0) {
        a->out[(size_t)a->n_panels * PANEL_ROWS] = 0;
    }
}

static void wrong_last_panel(const struct kern_matmul_args *a)
{
    struct kern_matmul_args fewer = *a;
    fewer.n_panels--;
    honest(&fewer);
}

static bool plant_matmul(struct kern_table *t, int kind, int variant)
{
    const kern_matmul_fn wrong[] = {wrong_last_lane, wrong_in_a_batch, wrong_width, wrong_last_panel};
    if ((size_t)variant >= ARRAY_LEN(wrong)) {
        return false;
    }
    honest = t->matmul[kind];
    t->matmul[kind] = wrong[variant];
    return true;
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

struct bench_arg {
    const struct check *c;
    enum panel_kind kind;
    struct kern_matmul_args a;
};

static void run(void *arg)
{
    struct bench_arg *b = arg;
    b->c->t->matmul[b->kind](&b->a);
}

static void run_ref(void *arg) /* one panel and at most 4 rows: ref is slow */
{
    struct bench_arg *b = arg;
    struct kern_matmul_args a = b->a;
    a.n_panels = 1;
    a.n_rows = MIN_OF(a.n_rows, 4);
    b->c->ref->matmul[b->kind](&a);
}

/* Times rows of K inputs with panels of about `megabytes`: 4 fit in the cache, 160 come from memory. */
static void bench_shape(struct check *c, enum panel_kind kind, size_t k, int n_rows, size_t megabytes)
{
    bool is_float = panel_info(kind)->is_float;
    struct bench_arg b = {.c = c, .kind = kind};
    size_t bytes = panel_bytes(kind, k), n_panels = (megabytes << 20) / bytes;
    size_t row_bytes = is_float ? k * sizeof(float) : kern_qrow_bytes(k);
    size_t out_bytes = n_panels * PANEL_ROWS * sizeof(float) * (size_t)n_rows;
    unsigned char *panels = mem_map(bytes * n_panels, MEM_GENERAL);
    unsigned char *rows = mem_map(row_bytes * (size_t)n_rows, MEM_GENERAL);
    float *out = mem_map(out_bytes, MEM_GENERAL), *x = mem_map(k * sizeof *x, MEM_GENERAL);
    if (panels != NULL && rows != NULL && out != NULL && x != NULL) {
        memset(panels, 0x11, bytes * n_panels); /* codes 1 or 17, scales 0.0006 */
        for (int r = 0; r < n_rows; r++) {
            check_fill_f32(c, CHECK_UNIFORM, x, k);
            if (is_float) {
                memcpy(rows + (size_t)r * row_bytes, x, k * sizeof *x);
            } else {
                c->t->quantize_row(x, k, INFINITY, (void *)(rows + (size_t)r * row_bytes));
            }
        }
        b.a = (struct kern_matmul_args){.panels = panels,
                                        .n_panels = (int)n_panels,
                                        .k = k,
                                        .rows = rows,
                                        .row_bytes = row_bytes,
                                        .n_rows = n_rows,
                                        .out = out,
                                        .out_stride = n_panels * PANEL_ROWS};
        char size[64];
        snprintf(size, sizeof size, "K %zu rows %d %zu MB", k, n_rows, megabytes);
        double ops = 2.0 * (double)k * (double)n_panels * PANEL_ROWS * n_rows;
        struct check_work w = {.size = size,
                               .bytes = (double)(bytes * n_panels + row_bytes * (size_t)n_rows),
                               .int8_ops = is_float ? 0 : ops,
                               .f32_ops = is_float ? ops : 0,
                               .ref_scale = (double)n_panels * n_rows / MIN_OF(n_rows, 4)};
        check_bench_row(c, &w, run, run_ref, &b);
    }
    mem_unmap(panels, bytes * n_panels, MEM_GENERAL);
    mem_unmap(rows, row_bytes * (size_t)n_rows, MEM_GENERAL);
    mem_unmap(out, out_bytes, MEM_GENERAL);
    mem_unmap(x, k * sizeof *x, MEM_GENERAL);
}

static void bench_matmul(struct check *c, int kind)
{
    static const int row_counts[] = {1, 2, 4, 8, 16, 64};
    static const size_t widths[] = {576, 1536, 8960};
    for (size_t i = 0; i < ARRAY_LEN(row_counts) - 1; i++) {
        bench_shape(c, (enum panel_kind)kind, 1536, row_counts[i], 160);
    }
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        for (size_t i = 0; i < ARRAY_LEN(row_counts); i++) {
            if (widths[w] == 1536 || row_counts[i] == 1 || row_counts[i] == 64) {
                bench_shape(c, (enum panel_kind)kind, widths[w], row_counts[i], 4);
            }
        }
    }
}

#define MATMUL_ROW(label, kind)                                                                                        \
    {                                                                                                                  \
        .name = label, .arg = kind, .check = check_matmul, .plant = plant_matmul, .bench = bench_matmul                \
    }
const struct check_op check_matmul_ops[] = {
    MATMUL_ROW("matmul_f32", PANEL_F32),
    MATMUL_ROW("matmul_f16", PANEL_F16),
    MATMUL_ROW("matmul_bf16", PANEL_BF16),
#define ROW(kind, name, ...) MATMUL_ROW("matmul_" #name, PANEL_##kind),
    PANEL_QUANT_KINDS(ROW)
#undef ROW
        {.name = NULL},
};
