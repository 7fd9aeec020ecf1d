/* Attention over pages. The reference is softmax(q.k) . v in double, computed here. Everything that a row does not see
 * is NaN or infinity: slots after its position or before its window, and other pages of the pool. Pages before every
 * window have invalid numbers in the page table. A row alone must give the same bits as among others. */
#include "tests/kernels/checkkern.h"

#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* first: position of row 0; gap: between the positions of adjacent rows; d_value: width of a value, 0: d. */
struct shape {
    int d, n_group, n_rows, first, gap, window;
    float softcap;
    enum kv_type k_type, v_type;
    int d_value;
    bool is_latent;
};

static const struct shape shapes[] = {
    {16, 1, 1, 0, 1, 0, 0, 0, 0, 0, false},      {4, 1, 1, 31, 1, 0, 0, 0, 0, 0, false},
    {8, 2, 2, 31, 1, 0, 0, 0, 0, 0, false},      {12, 3, 3, 30, 1, 0, 0, 0, 0, 0, false},
    {16, 4, 4, 62, 1, 0, 0, 0, 0, 0, false},     {20, 5, 5, 0, 1, 0, 0, 0, 0, 0, false},
    {24, 6, 2, 63, 1, 7, 0, 0, 0, 20, false},    {28, 7, 1, 64, 1, 0, 0, 0, 0, 0, false},
    {32, 8, 3, 95, 1, 33, 0, 0, 0, 0, false},    {36, 9, 2, 17, 1, 0, 50, 0, 0, 0, false},
    {40, 1, 8, 24, 1, 1, 0, 0, 0, 0, false},     {48, 2, 4, 40, 1, 0, 30, 0, 0, 4, false},
    {64, 3, 9, 28, 1, 0, 0, 0, 0, 0, false},     {64, 1, 33, 0, 1, 0, 0, 0, 0, 0, false},
    {72, 4, 3, 33, 1, 0, 0, 0, 0, 0, false},     {80, 1, 7, 60, 1, 0, 0, 0, 0, 0, false},
    {80, 5, 3, 90, 1, 32, 0, 0, 0, 36, false},   {96, 2, 4, 10, 1, 0, 0, 0, 0, 0, false},
    {112, 1, 3, 45, 1, 0, 0, 0, 0, 0, false},    {128, 6, 2, 100, 1, 0, 0, 0, 0, 0, false},
    {128, 1, 16, 20, 1, 16, 0, 0, 0, 0, false},  {144, 1, 2, 5, 1, 0, 0, 0, 0, 0, false},
    {192, 3, 1, 33, 1, 0, 50, 0, 0, 128, false}, {256, 4, 2, 40, 1, 24, 0, 0, 0, 0, false},
    {256, 1, 3, 31, 1, 0, 0, 0, 0, 0, false},    {512, 1, 2, 32, 1, 0, 0, 0, 0, 0, false},
    {64, 2, 4, 3, 50, 0, 0, 0, 0, 0, false},     {32, 1, 8, 0, 33, 40, 0, 0, 0, 0, false},
    {16, 3, 5, 200, 1, 64, 0, 0, 0, 0, false},   {64, 1, 1, 300, 1, 0, 0, 0, 0, 0, false},
    {64, 1, 2, 250, 1, 5, 20, 0, 0, 0, false},   {48, 16, 1, 12, 1, 0, 0, 0, 0, 0, false},
    {576, 1, 2, 40, 1, 0, 0, 0, 0, 0, false},
};

/* Latents, which all heads share. */
static const struct shape latents[] = {
    {576, 16, 1, 70, 1, 0, 0, 0, 0, 512, true}, {576, 3, 2, 130, 1, 0, 0, 0, 0, 512, true},
    {32, 4, 3, 30, 1, 0, 0, 0, 0, 24, true},    {24, 5, 2, 33, 1, 0, 0, 0, 0, 20, true},
    {8, 1, 1, 0, 1, 0, 0, 0, 0, 4, true},       {40, 9, 4, 60, 1, 13, 0, 0, 0, 32, true},
    {48, 2, 5, 31, 7, 0, 30, 0, 0, 44, true},   {64, 7, 3, 255, 1, 0, 0, 0, 0, 48, true},
    {100, 6, 1, 127, 1, 0, 0, 0, 0, 100, true}, {320, 2, 2, 20, 1, 0, 0, 0, 0, 256, true},
    {36, 33, 1, 300, 1, 0, 0, 0, 0, 4, true},
};

static const int widths[] = {4, 16, 20, 32, 44, 64, 80, 96, 128, 256};
enum { RANDOM_SHAPES = 24, MAX_TABLE = 512, LONG = 8192 };

enum kind { UNIFORM, PEAKED, SPREAD, SUBNORMAL, HUGE_VALUES, KIND_COUNT };
static const char *const kind_names[] = {"uniform", "peaked", "spread", "subnormal", "huge values"};

static struct {
    struct kern_attention_args a;
    int32_t pos[64], first[64], own[64], pages[MAX_TABLE];
    unsigned char *pool;
    size_t pool_bytes;
} k; /* the case */

static struct kv_layout layout_of(const struct shape *s)
{
    return kv_layout_for(s->k_type, s->v_type, s->d, s->d_value != 0 ? s->d_value : s->d, s->is_latent);
}

static int32_t from_of(int r)
{
    return k.a.first != NULL ? k.a.first[r] : k.a.window > 0 && k.pos[r] >= k.a.window ? k.pos[r] - k.a.window + 1 : 0;
}

static unsigned char *keys_of(const struct kern_attention_args *a, int32_t t)
{
    return (unsigned char *)(uintptr_t)a->keys + (size_t)a->pages[t / 32] * a->page_bytes;
}
static unsigned char *values_of(const struct kern_attention_args *a, int32_t t)
{
    return (unsigned char *)(uintptr_t)a->values + (size_t)a->pages[t / 32] * a->page_bytes;
}
static double key_at(const struct kern_attention_args *a, int32_t t, int j)
{
    return (double)kv_key_at(&a->kv, keys_of(a, t), t % 32, j);
}
static double value_at(const struct kern_attention_args *a, int32_t t, int j)
{
    return (double)kv_value_at(&a->kv, values_of(a, t), t % 32, j);
}

/* Returns the factor of the codes of a position's value in an integer type. */
static double value_scale(const struct kern_attention_args *a, int32_t t, int j)
{
    const unsigned char *scales = values_of(a, t) + a->kv.v.scales;
    int block = j / a->kv.v.block;
    return a->kv.v.type == KV_TYPE_I16
               ? (double)((const float *)(const void *)scales)[t % 32]
               : (double)dtype_f16_to_f32(((const uint16_t *)(const void *)scales)[block * 32 + t % 32]);
}

static uint16_t garbage(struct check *c)
{
    static const uint16_t all[] = {0x7FFF, 0xFFFF, 0x7C00, 0xFC00, 0x7F80, 0xFF81, 0x7FA5, 0x8000}; /* f32, f16, bf16 */
    return all[check_random(c) >> 61];
}

/* --- a case ----------------------------------------------------------------------------------------------------- */

static float random_element(struct check *c, enum kind kind, bool is_value)
{
    double u = check_random_between(c, -1, 1);
    switch (kind) {
    case PEAKED:
        return (float)(is_value ? u : 8 * u);
    case SPREAD:
        return (float)ldexp(u, check_random_below(c, 30) - 24);
    case SUBNORMAL:
        return (float)(is_value ? ldexp(u, -14 - check_random_below(c, 9)) : u);
    case HUGE_VALUES:
        return (float)(is_value ? copysign(65504, u) : u);
    default:
        return (float)u;
    }
}

static void fill_position(struct check *c, enum kind kind, int32_t t)
{
    float key[KERN_MAX_HEAD], value[KERN_MAX_HEAD];
    for (int j = 0; j < k.a.kv.d; j++) {
        key[j] = random_element(c, kind, false);
        value[j] = random_element(c, kind, true); /* can be narrower */
    }
    c->ref->kv_store(&k.a.kv, key, value, t % 32, keys_of(&k.a, t), values_of(&k.a, t));
}

/* Makes unordered pages; only positions that some row sees are numbers. */
static void make_pages(struct check *c, enum kind kind)
{
    int32_t first = from_of(0), last = k.pos[k.a.n_rows - 1];
    int n_used = last / 32 - first / 32 + 1, n_pool = n_used + 1;
    size_t before = 64 * (size_t)check_random_below(c, 5),
           after = 64 * (size_t)check_random_below(c, 5); /* other data of a page */
    k.a.page_bytes = before + k.a.kv.bytes + after;
    k.pool_bytes = k.a.page_bytes * (size_t)n_pool;
    k.pool = check_buffer(k.pool_bytes, 64);
    k.a.keys = k.pool + before;
    k.a.values = k.a.kv.is_latent ? k.a.keys : k.a.keys + k.a.kv.k.bytes;
    k.a.pages = k.pages;
    for (size_t i = 0; i < k.pool_bytes; i += 2) {
        uint16_t h = garbage(c);
        memcpy(k.pool + i, &h, 2);
    }
    for (int i = 0; i < MAX_TABLE; i++) {
        k.pages[i] = 1 << 28; /* far outside the pool */
    }
    int turn = check_random_below(c, n_pool);
    for (int i = 0; i < n_used; i++) {
        k.pages[first / 32 + i] = n_pool - 1 - (i + turn) % n_pool;
    }
    for (int r = 0; r < k.a.n_rows; r++) {
        int32_t from = from_of(r);
        from = r > 0 ? MAX_OF(from, k.pos[r - 1] + 1) : from;
        for (int32_t t = from; t <= k.pos[r]; t++) {
            fill_position(c, kind, t);
        }
    }
}

/* Makes rows see both sides, like bidirectional models: half the window before a row and half after it, up to the last
 * position. */
static void look_ahead(int32_t half)
{
    int32_t end = k.pos[k.a.n_rows - 1];
    for (int r = 0; r < k.a.n_rows; r++) {
        k.first[r] = MAX_OF(k.pos[r] - half, 0);
        k.pos[r] = MIN_OF(k.pos[r] + half, end);
    }
    k.a.first = k.first;
    k.a.window = 1; /* ignored */
}

static void make_case(struct check *c, enum kind kind, const struct shape *s)
{
    size_t width = (size_t)(s->n_group * s->d), stride = width + 3; /* rows are not aligned */
    struct kv_layout kv = layout_of(s);
    size_t out_stride = (size_t)(s->n_group * kv.d_value) + 3;
    float *q = check_buffer(stride * (size_t)s->n_rows * sizeof *q, 4);
    k.a = (struct kern_attention_args){.q = q,
                                       .q_stride = stride,
                                       .out = check_buffer(out_stride * (size_t)s->n_rows * sizeof *q, 4),
                                       .out_stride = out_stride,
                                       .pos = k.pos,
                                       .n_rows = s->n_rows,
                                       .n_group = s->n_group,
                                       .kv = kv,
                                       .window = s->window,
                                       .scale = 1.0f / sqrtf((float)s->d),
                                       .softcap = s->softcap};
    for (size_t i = 0; i < stride * (size_t)s->n_rows; i++) {
        q[i] = i % stride < width ? (kind == PEAKED ? 8.0f : 1.0f) * (float)check_random_between(c, -1, 1) : NAN;
    }
    for (int r = 0; r < s->n_rows; r++) {
        k.own[r] = k.pos[r] = s->first + r * s->gap;
    }
    if (s->window > 0 && check_random_below(c, 2) == 0) {
        look_ahead(s->window / 2);
    }
    if (check_random_below(c, 2) == 0) {
        float *sinks = check_buffer((size_t)s->n_group * sizeof *sinks, 4);
        for (int g = 0; g < s->n_group; g++) { /* sometimes one that dominates */
            sinks[g] = check_random_below(c, 8) == 0 ? 300 : (float)check_random_between(c, -8, 8);
        }
        k.a.sinks = sinks;
    } else if (s->softcap == 0 && check_random_below(c, 2) == 0) {
        float *slopes = check_buffer((size_t)s->n_group * sizeof *slopes, 4);
        for (int g = 0; g < s->n_group; g++) {
            slopes[g] = (float)check_random_between(c, 0, 1);
        }
        k.a.slopes = slopes;
        k.a.own = k.own;
    } else if (s->softcap == 0) {
        k.a.reach = 1 + check_random_below(c, 3) * (1 + check_random_below(c, 100)); /* some beyond all distances */
        size_t n = (size_t)(s->n_group * (2 * k.a.reach + 1));
        float *biases = check_buffer(n * sizeof *biases, 4);
        for (size_t i = 0; i < n; i++) {
            biases[i] = (float)check_random_between(c, -4, 4);
        }
        k.a.biases = biases;
        k.a.own = k.own;
    }
    make_pages(c, kind);
}

/* Adds the rounding of the weights of integer values to limit[d]: for each 128 positions that of the largest weight
 * times the scale of the value. first: position of score[0]. */
static void add_weight_rounding(const struct kern_attention_args *a, int32_t first, const double *score, int32_t n,
                                double largest, double *limit)
{
    for (int j = 0; j < a->kv.d_value; j++) {
        for (int32_t i = 0; i < n;) {
            int32_t block = (first + i) / 128;
            double top = 0, codes = 0;
            for (; i < n && (first + i) / 128 == block; i++) {
                double scale = fabs(value_scale(a, first + i, j));
                top = fmax(top, exp(score[i] - largest) * scale);
                codes += scale > 0 ? fabs(value_at(a, first + i, j)) / scale : 0;
            }
            limit[j] += 3.3e-5 * top * codes;
        }
    }
}

/* Returns what slopes or biases add to the score of position t. */
static double bias_of(int r, int g, int32_t t)
{
    int distance = t - k.own[r], reach = k.a.reach;
    if (k.a.biases != NULL) {
        return (double)k.a.biases[g * (2 * reach + 1) + reach + MAX_OF(-reach, MIN_OF(distance, reach))];
    }
    return k.a.slopes != NULL ? -(double)k.a.slopes[g] * abs(distance) : 0;
}

/* Computes row r, head g in double. want, limit: [d]. */
static void truth(int r, int g, double *want, double *limit)
{
    const struct kern_attention_args *a = &k.a;
    const float *q = a->q + (size_t)r * a->q_stride + (size_t)(g * a->kv.d);
    static double score[LONG], sum_abs[KERN_MAX_HEAD];
    double largest = -INFINITY, sum = 0, magnitude = 0, rounding = 0, q_norm = 0;
    int32_t from = from_of(r), n = a->pos[r] - from + 1;
    for (int j = 0; j < a->kv.d; j++) {
        q_norm += (double)q[j] * (double)q[j];
    }
    for (int32_t i = 0; i < n; i++) {
        double dot = 0, size = 0, k_norm = 0;
        for (int j = 0; j < a->kv.d; j++) {
            double key = key_at(a, from + i, j), term = (double)q[j] * key * (double)a->scale;
            dot += term;
            size += fabs(term);
            k_norm += key * key;
        }
        double bias = bias_of(r, g, from + i);
        dot += bias;
        size += fabs(bias);
        score[i] = a->softcap != 0 ? (double)a->softcap * tanh(dot / (double)a->softcap) : dot;
        largest = fmax(largest, score[i]);
        magnitude = fmax(magnitude, size);
        rounding = fmax(rounding, sqrt(q_norm * k_norm) * (double)a->scale);
    }
    memset(want, 0, (size_t)a->kv.d_value * sizeof *want);
    memset(limit, 0, (size_t)a->kv.d_value * sizeof *want);
    memset(sum_abs, 0, sizeof sum_abs);
    for (int32_t i = 0; i < n; i++) {
        double p = exp(score[i] - largest);
        sum += p;
        for (int j = 0; j < a->kv.d_value; j++) {
            double v = value_at(a, from + i, j);
            want[j] += p * v;
            sum_abs[j] += p * fabs(v);
        }
    }
    if (!kv_type_is_float(a->kv.v.type)) {
        add_weight_rounding(a, from, score, n, largest, limit);
    }
    sum += a->sinks != NULL ? exp(a->sinks[g] - largest) : 0;
    double relative = 4e-6 + 4e-7 * magnitude + (kv_type_is_float(a->kv.k.type) ? 0 : 6e-5 * rounding);
    for (int j = 0; j < a->kv.d_value; j++) { /* the bound in kern.h */
        want[j] /= sum;
        limit[j] = (limit[j] + relative * sum_abs[j]) / sum + 1e-44;
    }
}

static void check_truth(struct check *c)
{
    static double want[KERN_MAX_HEAD], limit[KERN_MAX_HEAD];
    for (int r = 0; r < k.a.n_rows; r++) {
        const float *row = k.a.out + (size_t)r * k.a.out_stride;
        for (int g = 0; g < k.a.n_group; g++) {
            truth(r, g, want, limit);
            if (!check_near_f32(c, "output", row + g * k.a.kv.d_value, want, limit, (size_t)k.a.kv.d_value)) {
                return;
            }
        }
        size_t width = (size_t)(k.a.n_group * k.a.kv.d_value);
        if (!check_untouched(c, "byte between rows", row + width, 3 * sizeof *row)) {
            return;
        }
    }
}

/* Writes NaN to every position that row r does not see. */
static void spoil_unseen(struct check *c, int r)
{
    float nan[KERN_MAX_HEAD];
    for (int j = 0; j < k.a.kv.d; j++) {
        nan[j] = NAN;
    }
    int32_t first = from_of(0), last = k.pos[k.a.n_rows - 1];
    for (int32_t t = first / 32 * 32; t <= last / 32 * 32 + 31; t++) {
        if (t < from_of(r) || t > k.pos[r]) {
            c->ref->kv_store(&k.a.kv, nan, nan, t % 32, keys_of(&k.a, t), values_of(&k.a, t));
        }
    }
}

/* Checks that rows r .. r+n_rows-1 and heads g .. g+n_group-1 alone give the same bits. */
static bool check_part(struct check *c, int r, int n_rows, int g, int n_group)
{
    struct kern_attention_args part = k.a;
    float *out = check_buffer((size_t)(n_rows * n_group * k.a.kv.d_value) * sizeof *out, 4);
    part.q += (size_t)r * part.q_stride + (size_t)(g * part.kv.d);
    part.pos += r;
    part.first = k.a.first == NULL ? NULL : k.a.first + r;
    part.sinks = k.a.sinks == NULL ? NULL : k.a.sinks + g;
    part.slopes = k.a.slopes == NULL ? NULL : k.a.slopes + g;
    part.biases = k.a.biases == NULL ? NULL : k.a.biases + (size_t)(g * (2 * k.a.reach + 1));
    part.own = k.a.own == NULL ? NULL : k.a.own + r;
    part.n_rows = n_rows;
    part.n_group = n_group;
    part.out = out;
    part.out_stride = (size_t)(n_group * part.kv.d_value);
    c->t->attention(&part);
    for (int i = 0; i < n_rows; i++) {
        const float *whole = k.a.out + (size_t)(r + i) * k.a.out_stride + (size_t)(g * k.a.kv.d_value);
        if (!check_same_f32(c, "part of the call alone", out + (size_t)i * part.out_stride, whole, part.out_stride)) {
            return false;
        }
    }
    return true;
}

static void check_invariance(struct check *c)
{
    for (int trial = 0; trial < 2; trial++) {
        int r = check_random_below(c, k.a.n_rows), g = check_random_below(c, k.a.n_group);
        int n_rows = 1 + check_random_below(c, k.a.n_rows - r), n_group = 1 + check_random_below(c, k.a.n_group - g);
        if (!check_part(c, r, n_rows, g, n_group)) {
            return;
        }
    }
    int r = check_random_below(c, k.a.n_rows); /* last, because it spoils what others see */
    spoil_unseen(c, r);
    check_part(c, r, 1, check_random_below(c, k.a.n_group), 1);
}

/* Checks that separate segments, joined, give the same bits. */
static void check_parts(struct check *c)
{
    if (c->t->attention_part == c->ref->attention_part) { /* ref computes the whole in double and records in f32 */
        return;
    }
    struct kern_attention_args whole = k.a;
    int32_t first = kern_first_segment(&whole, 0), n = kern_last_segment(k.pos[whole.n_rows - 1]) + 1;
    size_t stride = (size_t)(whole.n_rows * whole.n_group) * kern_part_floats(whole.kv.d_value);
    size_t out_floats = whole.out_stride * (size_t)whole.n_rows;
    if (stride * (size_t)(n - first) * sizeof(float) > CHECK_BUFFER_BYTES) {
        return;
    }
    float *parts = check_buffer(stride * (size_t)(n - first) * sizeof *parts, 64);
    for (int32_t s = n; s > first;) { /* runs of one or two, the last first */
        int32_t run = 1 + (int32_t)(check_random(c) & 1 && s - 1 > first);
        s -= run;
        c->t->attention_part(&whole, s, run, parts + stride * (size_t)(s - first), stride);
    }
    whole.out = check_buffer(out_floats * sizeof *whole.out, 4);
    c->t->attention_join(&whole, parts, stride, n - first);
    for (int r = 0; r < whole.n_rows; r++) {
        size_t at = (size_t)r * whole.out_stride, width = (size_t)(whole.n_group * whole.kv.d_value);
        if (!check_same_f32(c, "joined segments", whole.out + at, k.a.out + at, width)) {
            return;
        }
    }
}

/* Checks that a NaN shows in every row that sees it and in no other. */
static void check_seen_nan(struct check *c)
{
    int last = k.a.n_rows - 1, n_before = 0, j = check_random_below(c, k.a.kv.d_value);
    while (k.pos[n_before] < k.pos[last]) {
        n_before++;
    }
    bool in_key = (check_random(c) & 1) != 0;
    size_t n = k.a.out_stride * (size_t)k.a.n_rows;
    const float *before = k.a.out;
    float key[KERN_MAX_HEAD], value[KERN_MAX_HEAD];
    for (int i = 0; i < k.a.kv.d; i++) {
        key[i] = (float)key_at(&k.a, k.pos[last], i);
        value[i] = k.a.kv.is_latent || i >= k.a.kv.d_value ? 0 : (float)value_at(&k.a, k.pos[last], i);
    }
    (in_key || k.a.kv.is_latent ? key : value)[j] = NAN;
    c->ref->kv_store(&k.a.kv, key, value, k.pos[last] % 32, keys_of(&k.a, k.pos[last]), values_of(&k.a, k.pos[last]));
    k.a.out = check_buffer(n * sizeof *k.a.out, 4);
    check_use_filling(k.a.out, n * sizeof *k.a.out); /* between rows */
    c->t->attention(&k.a);
    check_same_f32(c, "rows before a NaN", k.a.out, before, k.a.out_stride * (size_t)n_before);
    for (int g = 0; g < k.a.n_group; g++) {
        for (int i = 0; i < k.a.kv.d_value; i++) {
            size_t at = (size_t)last * k.a.out_stride + (size_t)(g * k.a.kv.d_value + i);
            if (!isnan(k.a.out[at])) {
                check_fail(c, "NaN", at, (double)k.a.out[at], NAN);
                return;
            }
        }
    }
}

static void run_case(struct check *c)
{
    c->t->attention(&k.a);
    check_truth(c);
    check_parts(c);
    check_seen_nan(c);
    c->t->attention(&k.a); /* the NaN stays, to be in the parts */
    check_invariance(c);
    check_guards(c);
}

/* arg: the type of keys and values; KV_TYPE_COUNT: a random type for each. */
static void set_types(struct check *c, int arg, struct shape *s)
{
    s->k_type = (enum kv_type)(arg < KV_TYPE_COUNT ? arg : check_random_below(c, KV_TYPE_COUNT));
    s->v_type = (enum kv_type)(arg < KV_TYPE_COUNT ? arg : check_random_below(c, KV_TYPE_COUNT));
}

static void check_attention(struct check *c, int arg)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        enum kind kind = (enum kind)(i % KIND_COUNT);
        struct shape s = shapes[i];
        check_case(c, "d %d, values %d, %d heads, %d rows from %d, window %d, cap %g, %s", s.d, s.d_value, s.n_group,
                   s.n_rows, s.first, s.window, (double)s.softcap, kind_names[kind]);
        set_types(c, arg, &s);
        make_case(c, kind, &s);
        run_case(c);
    }
    for (int i = 0; i < RANDOM_SHAPES; i++) {
        check_case(c, "random shape %d", i);
        struct shape s = {.d = widths[check_random_below(c, (int)ARRAY_LEN(widths))],
                          .n_group = 1 + check_random_below(c, 6),
                          .n_rows = 1 + check_random_below(c, 6),
                          .first = check_random_below(c, 80),
                          .gap = check_random_below(c, 4) == 0 ? 20 : 1,
                          .window = check_random_below(c, 2) * (1 + check_random_below(c, 70)),
                          .softcap = (float)(check_random_below(c, 3) / 2 * 30)};
        s.d_value = check_random_below(c, 3) == 0 ? 4 * (1 + check_random_below(c, s.d / 4)) : 0;
        set_types(c, arg, &s);
        make_case(c, (enum kind)check_random_below(c, KIND_COUNT), &s);
        run_case(c);
    }
    if (!c->planted) {
        check_case(c, "%d positions", LONG);
        struct shape s = {16, 2, 2, LONG - 2, 1, 0, 0, 0, 0, 0, false};
        set_types(c, arg, &s);
        make_case(c, UNIFORM, &s);
        run_case(c);
    }
}

static void check_latents(struct check *c, int arg)
{
    for (size_t i = 0; i < ARRAY_LEN(latents); i++) {
        enum kind kind = (enum kind)(i % KIND_COUNT);
        struct shape s = latents[i];
        check_case(c, "latents of %d in %d, %d heads, %d rows from %d, window %d, cap %g, %s", s.d_value, s.d,
                   s.n_group, s.n_rows, s.first, s.window, (double)s.softcap, kind_names[kind]);
        s.k_type = (enum kv_type)arg;
        make_case(c, kind, &s);
        run_case(c);
    }
    for (int i = 0; i < RANDOM_SHAPES; i++) {
        check_case(c, "random shape %d", i);
        struct shape s = {.d_value = 4 * (1 + check_random_below(c, 30)),
                          .n_group = 1 + check_random_below(c, 20),
                          .n_rows = 1 + check_random_below(c, 6),
                          .first = check_random_below(c, 80),
                          .gap = check_random_below(c, 4) == 0 ? 20 : 1,
                          .window = check_random_below(c, 2) * (1 + check_random_below(c, 70)),
                          .softcap = (float)(check_random_below(c, 3) / 2 * 30),
                          .k_type = (enum kv_type)arg,
                          .is_latent = true};
        s.d = s.d_value + 4 * check_random_below(c, 10);
        make_case(c, (enum kind)check_random_below(c, KIND_COUNT), &s);
        run_case(c);
    }
    if (!c->planted) {
        check_case(c, "%d positions", LONG);
        struct shape s = {24, 2, 2, LONG - 2, 1, 0, 0, (enum kv_type)arg, 0, 16, true};
        make_case(c, UNIFORM, &s);
        run_case(c);
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static void (*honest)(const struct kern_attention_args *a);

static void wrong_position(const struct kern_attention_args *a) /* ignores its own position */
{
    int32_t pos[64];
    struct kern_attention_args b = *a;
    for (int r = 0; r < a->n_rows; r++) {
        pos[r] = a->window > 0 || a->first != NULL ? a->pos[r]
                                                   : MAX_OF(a->pos[r] - 1, 0); /* no pages exist before a window */
    }
    b.pos = pos;
    honest(&b);
}

static void wrong_window(const struct kern_attention_args *a)
{
    struct kern_attention_args b = *a;
    int32_t first[64];
    b.window = a->window > 1 ? a->window - 1 : a->window;
    b.first = a->first != NULL ? first : NULL;
    for (int r = 0; a->first != NULL && r < a->n_rows; r++) {
        first[r] = MIN_OF(a->first[r] + 1, a->pos[r]);
    }
    honest(&b);
}

static void wrong_in_a_batch(const struct kern_attention_args *a)
{
    honest(a);
    if (a->n_rows > 2) {
        a->out[1] = nextafterf(a->out[1], INFINITY);
    }
}

static void wrong_unseen(const struct kern_attention_args *a) /* adds a masked value with weight 0: keeps NaN */
{
    honest(a);
    for (int r = 0; r < a->n_rows; r++) {
        a->out[(size_t)r * a->out_stride] += 0 * (float)value_at(a, a->pos[r] | 31, 0);
    }
}

static void wrong_heads(const struct kern_attention_args *a)
{
    honest(a);
    for (int j = 0; a->n_group > 1 && j < a->kv.d_value; j++) {
        float first = a->out[j];
        a->out[j] = a->out[a->kv.d_value + j];
        a->out[a->kv.d_value + j] = first;
    }
}

static void wrong_cap(const struct kern_attention_args *a)
{
    struct kern_attention_args b = *a;
    b.softcap = 0;
    honest(&b);
}

static void wrong_distance(const struct kern_attention_args *a) /* the slopes of the other direction */
{
    float slopes[64];
    struct kern_attention_args b = *a;
    for (int g = 0; a->slopes != NULL && g < a->n_group; g++) {
        slopes[g] = -a->slopes[g];
    }
    b.slopes = a->slopes != NULL ? slopes : NULL;
    honest(&b);
}

static void wrong_reach(const struct kern_attention_args *a) /* the biases of the next distance */
{
    struct kern_attention_args b = *a;
    int32_t own[64];
    for (int r = 0; a->biases != NULL && r < a->n_rows; r++) {
        own[r] = a->own[r] - 1;
    }
    b.own = a->biases != NULL ? own : a->own;
    honest(&b);
}

static void wrong_scale(const struct kern_attention_args *a)
{
    struct kern_attention_args b = *a;
    b.scale *= kv_type_is_float(a->kv.k.type) ? 1.0001f : 1.003f; /* exceeds rounding */
    honest(&b);
}

static void wrong_width(const struct kern_attention_args *a)
{
    honest(a);
    if (a->n_rows > 1) {
        a->out[(size_t)(a->n_group * a->kv.d_value)] = 0;
    }
}

static void wrong_nan(const struct kern_attention_args *a)
{
    honest(a);
    for (int i = 0; i < a->n_group * a->kv.d_value; i++) {
        float *x = &a->out[(size_t)(a->n_rows - 1) * a->out_stride + (size_t)i];
        *x = isnan(*x) ? 0 : *x;
    }
}

static bool plant_attention(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    void (*const wrong[])(const struct kern_attention_args *) = {
        wrong_position, wrong_window, wrong_in_a_batch, wrong_unseen,   wrong_heads, wrong_cap,
        wrong_scale,    wrong_width,  wrong_nan,        wrong_distance, wrong_reach};
    if ((size_t)variant >= ARRAY_LEN(wrong)) {
        return false;
    }
    honest = t->attention;
    t->attention = wrong[variant];
    return true;
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

struct bench_arg {
    const struct kern_table *t, *ref;
    struct kern_attention_args a;
};

static void run(void *arg)
{
    struct bench_arg *b = arg;
    b->t->attention(&b->a);
}

static void run_ref(void *arg) /* the last row, one head: ref is slow */
{
    struct bench_arg *b = arg;
    struct kern_attention_args a = b->a;
    a.pos += a.n_rows - 1;
    a.n_rows = 1;
    a.n_group = 1;
    b->ref->attention(&a);
}

static void bench_shape(struct check *c, const struct shape *s)
{
    int n_pages = (s->first + s->n_rows + 31) / 32;
    const struct kv_layout kv = layout_of(s);
    size_t head_bytes = kv.bytes, n = (size_t)(s->n_rows * s->n_group * s->d);
    size_t pool_bytes = head_bytes * (size_t)n_pages, q_bytes = 2 * n * sizeof(float);
    unsigned char *pool = mem_map(pool_bytes, MEM_GENERAL);
    float *q = mem_map(q_bytes, MEM_GENERAL);
    if (pool != NULL && q != NULL) {
        memset(pool, 0x2C, pool_bytes); /* halves of 0.067 */
        check_fill_f32(c, CHECK_UNIFORM, q, n);
        for (int i = 0; i < n_pages; i++) {
            k.pages[i] = (i * 7 + 3) % n_pages; /* unordered; distinct unless 7 divides n_pages */
        }
        double seen = 0;
        for (int r = 0; r < s->n_rows; r++) {
            k.pos[r] = s->first + r;
            seen += s->first + r + 1;
        }
        size_t stride = (size_t)(s->n_group * s->d); /* outputs of latents are narrower and have gaps */
        struct bench_arg b = {.t = c->t, .ref = c->ref};
        b.a = (struct kern_attention_args){.q = q,
                                           .q_stride = stride,
                                           .out = q + n,
                                           .out_stride = stride,
                                           .pos = k.pos,
                                           .n_rows = s->n_rows,
                                           .n_group = s->n_group,
                                           .kv = kv,
                                           .keys = pool,
                                           .values = kv.is_latent ? pool : pool + kv.k.bytes,
                                           .page_bytes = head_bytes,
                                           .pages = k.pages,
                                           .scale = 0.1f};
        char size[64];
        snprintf(size, sizeof size, "d %d g %d rows %d at %d", s->d, s->n_group, s->n_rows, s->first);
        struct check_work w = {.size = size,
                               .bytes = (double)(head_bytes * (size_t)n_pages),
                               .f32_ops = 2 * seen * (s->d + kv.d_value) * s->n_group,
                               .ref_scale = seen * s->n_group / (s->first + s->n_rows)};
        check_bench_row(c, &w, run, run_ref, &b);
    }
    mem_unmap(pool, pool_bytes, MEM_GENERAL);
    mem_unmap(q, q_bytes, MEM_GENERAL);
}

static void bench_attention(struct check *c, int arg)
{
    static const struct shape all[] = {
        {64, 3, 1, 512, 1, 0, 0, 0, 0, 0, false},   {64, 3, 1, 4096, 1, 0, 0, 0, 0, 0, false},
        {64, 3, 32, 0, 1, 0, 0, 0, 0, 0, false},    {64, 3, 32, 480, 1, 0, 0, 0, 0, 0, false},
        {64, 3, 32, 4096, 1, 0, 0, 0, 0, 0, false}, {128, 6, 1, 512, 1, 0, 0, 0, 0, 0, false},
        {128, 6, 1, 4096, 1, 0, 0, 0, 0, 0, false}, {128, 6, 32, 4096, 1, 0, 0, 0, 0, 0, false},
        {256, 4, 1, 4096, 1, 0, 0, 0, 0, 0, false}, {256, 4, 32, 512, 1, 0, 0, 0, 0, 0, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        check_case(c, "bench");
        struct shape s = all[i];
        s.k_type = s.v_type = (enum kv_type)arg;
        bench_shape(c, &s);
    }
}

static void bench_latents(struct check *c, int arg)
{
    static const struct shape all[] = {
        {576, 16, 1, 512, 1, 0, 0, 0, 0, 512, true},   {576, 16, 1, 4096, 1, 0, 0, 0, 0, 512, true},
        {576, 16, 32, 480, 1, 0, 0, 0, 0, 512, true},  {576, 128, 1, 4096, 1, 0, 0, 0, 0, 512, true},
        {576, 128, 8, 4096, 1, 0, 0, 0, 0, 512, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        check_case(c, "bench");
        struct shape s = all[i];
        s.k_type = (enum kv_type)arg;
        bench_shape(c, &s);
    }
}

#define ROW(row_name, type)                                                                                            \
    {                                                                                                                  \
        .name = row_name, .arg = type, .check = check_attention, .plant = plant_attention, .bench = bench_attention    \
    }
const struct check_op check_attention_ops[] = {
    ROW("attention_i16", KV_TYPE_I16),
    ROW("attention_f16", KV_TYPE_F16),
    ROW("attention_bf16", KV_TYPE_BF16),
    ROW("attention_q8_0", KV_TYPE_Q8_0),
    ROW("attention_q4_0", KV_TYPE_Q4_0),
    {.name = "attention_latents_f16",
     .arg = KV_TYPE_F16,
     .check = check_latents,
     .plant = plant_attention,
     .bench = bench_latents},
    {.name = "attention_latents_bf16",
     .arg = KV_TYPE_BF16,
     .check = check_latents,
     .plant = plant_attention,
     .bench = bench_latents},
    {.name = "attention_mixed", .arg = KV_TYPE_COUNT, .check = check_attention, .plant = plant_attention},
    {.name = NULL},
};
