/* The small operations: norm, addition, gated activations, rotation, storing into pages, arg-max and log-sum-exp. The
 * reference is the formula in double, computed here; operations that kern.h calls exact must also equal ref bit for
 * bit. */
#include "tests/kernels/checkkern.h"

#include "engine/tensor/dtype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 63, 64, 65, 100, 577, 1000};

static const float specials[] = {0.0f,     -0.0f,     1.0f,    -1.0f,           88.2f,    88.4f,     -87.2f,  -87.4f,
                                 -88.8f,   -104.0f,   104.0f,  -1e4f,           1e4f,     -1e20f,    1e20f,   -FLT_MAX,
                                 FLT_MAX,  FLT_MIN,   -1e-40f, 65504.0f,        65519.0f, -65536.0f, 6.2e-5f, -2.9e-8f,
                                 INFINITY, -INFINITY, NAN,     0.333251953125f, 2049.0f,  -2051.0f};

/* Replaces some elements of x by special values: infinities, NaN, ends of ranges. */
static void sprinkle(struct check *c, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (check_random_below(c, 3) == 0) {
            x[i] = specials[check_random_below(c, (int)ARRAY_LEN(specials))];
        }
    }
}

/* Compares a result that can exceed the range of f32 or be NaN. */
static bool is_near(float got, double want, double limit)
{
    if (isnan(want)) {
        return isnan(got);
    }
    if (fabs(want) + limit > 3.4e38) {
        return want > 0 ? got >= 3.3e38f : got <= -3.3e38f;
    }
    return fabs((double)got - want) <= limit;
}

/* Like check_fill_f32; the kind after the last one mixes in special values. */
static void fill(struct check *c, int kind, float *x, size_t n)
{
    check_fill_f32(c, kind < CHECK_FILL_COUNT ? (enum check_fill)kind : CHECK_UNIFORM, x, n);
    if (kind == CHECK_FILL_COUNT) {
        sprinkle(c, x, n);
    }
}

static const char *fill_name(int kind)
{
    return kind < CHECK_FILL_COUNT ? check_fill_name((enum check_fill)kind) : "special values";
}

static float *floats(size_t n) { return check_buffer(n * sizeof(float), 64); }

/* --- rmsnorm ---------------------------------------------------------------------------------------------------- */

static void check_norm_row(struct check *c, const float *x, const float *w, float eps, size_t k, const float *got)
{
    double sum = 0;
    for (size_t i = 0; i < k; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    double scale = 1 / sqrt(sum / (double)k + (double)eps), bound = 4e-7 + (double)k / 32 * 6e-8;
    for (size_t i = 0; i < k; i++) {
        double want = (double)x[i] * scale * (w == NULL ? 1 : (double)w[i]);
        if (!is_near(got[i], want, bound * fabs(want) + 1e-44)) {
            check_fail(c, "norm", i, (double)got[i], want);
            return;
        }
    }
}

static void rmsnorm_case(struct check *c, size_t k, int kind)
{
    static const float all_eps[] = {1e-5f, 1e-6f, 0.5f};
    float *x = floats(k), *w = floats(k), *out = floats(k), eps = all_eps[check_random_below(c, 3)];
    fill(c, kind, x, k);
    check_fill_f32(c, CHECK_UNIFORM, w, k);
    c->t->rmsnorm(x, w, eps, k, out);
    check_norm_row(c, x, w, eps, k, out);
    c->t->rmsnorm(x, NULL, eps, k, out);
    check_norm_row(c, x, NULL, eps, k, out);
    float *in_place = floats(k);
    memcpy(in_place, x, k * sizeof *x);
    c->t->rmsnorm(in_place, NULL, eps, k, in_place);
    check_same_f32(c, "norm in place", in_place, out, k);
    check_guards(c);
}

/* --- add -------------------------------------------------------------------------------------------------------- */

static void add_case(struct check *c, size_t n, int kind)
{
    float *dst = floats(n), *src = floats(n), *want = floats(n);
    fill(c, kind, dst, n);
    fill(c, kind, src, n);
    for (size_t i = 0; i < n; i++) {
        want[i] = dst[i] + src[i];
    }
    c->t->add(dst, src, n);
    check_same_f32(c, "sum", dst, want, n);
    check_guards(c);
}

/* --- glu -------------------------------------------------------------------------------------------------------- */

static double activation(enum kern_act act, double x, double *bound)
{
    double u = 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    *bound = act == KERN_ACT_GELU_TANH ? 5e-7 * (4 + fmin(fabs(u), 88)) : 2e-6;
    *bound += act == KERN_ACT_CLAMPED ? 1.2e-7 * fmin(fabs(1.702 * x), 104) : 0;
    switch (act) {
    case KERN_ACT_SILU:
        return x / (1 + exp(-x));
    case KERN_ACT_GELU_TANH:
        return x / (1 + exp(-u));
    case KERN_ACT_GELU:
        return x / 2 * erfc(-x / M_SQRT2);
    case KERN_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case KERN_ACT_RELU_SQUARED:
        return isnan(x) ? x : fmax(x, 0) * fmax(x, 0);
    case KERN_ACT_CLAMPED:
        x = x > 7 ? 7 : x;
        return x / (1 + exp(-1.702 * x));
    default:
        return isnan(x) ? x : fmax(x, 0);
    }
}

static void check_glu_row(struct check *c, enum kern_act act, const float *gate, const float *up, size_t n,
                          const float *got)
{
    for (size_t i = 0; i < n; i++) {
        double bound, y = activation(act, (double)gate[i], &bound), u = (double)up[i];
        if (act == KERN_ACT_CLAMPED) {
            u = (u > 7 ? 7 : u < -7 ? -7 : u) + 1;
        }
        double want = y * u, limit = bound * fabs(want) + 2e-36 * fabs(u) + 1e-44;
        /* 0 times infinity: whether act underflows first is within the bound */
        if (!is_near(got[i], want, limit) && !(isinf(u) && fabs(y) < 2e-36)) {
            check_fail(c, "glu", i, (double)got[i], want);
            return;
        }
    }
}

static void glu_case(struct check *c, enum kern_act act, size_t n, int kind)
{
    float *gate = floats(n), *up = floats(n), *out = floats(n), *part = floats(n);
    fill(c, kind, gate, n);
    fill(c, kind == CHECK_FILL_COUNT ? CHECK_UNIFORM : kind, up, n);
    c->t->glu(act, gate, up, n, out);
    check_glu_row(c, act, gate, up, n, out);
    if (n > 16) { /* a piece alone gives the same bits */
        c->t->glu(act, gate + 16, up + 16, n - 16, part);
        check_same_f32(c, "piece alone", part, out + 16, n - 16);
    }
    c->t->glu(act, gate, up, n, gate);
    check_same_f32(c, "glu in place", gate, out, n);
    fill(c, kind, gate, n);
    c->t->glu(act, gate, up, n, part);
    c->t->glu(act, gate, up, n, up);
    check_same_f32(c, "glu in place of up", up, part, n);
    check_guards(c);
}

/* Checks the whole range of the exponential. */
static void glu_sweep(struct check *c, enum kern_act act)
{
    enum { N = 4000 };
    float *gate = floats(N), *up = floats(N), *out = floats(N);
    for (int part = 0; part < 10; part++) {
        for (int i = 0; i < N; i++) {
            gate[i] = (float)(-110 + 220.0 * (part * N + i) / (10 * N));
            up[i] = i % 2 == 0 ? 1.0f : -1e6f;
        }
        c->t->glu(act, gate, up, N, out);
        check_glu_row(c, act, gate, up, N, out);
    }
    check_guards(c);
}

/* --- rope ------------------------------------------------------------------------------------------------------- */

static void rope_case(struct check *c, size_t n_rot, bool neox, int kind)
{
    size_t half = n_rot / 2, n = n_rot + 5; /* 5 that are not rotated */
    float *x = floats(n), *cosine = floats(half), *sine = floats(half), *got = floats(n), *want = floats(n);
    fill(c, kind, x, n);
    for (size_t i = 0; i < half; i++) {
        double angle = check_random_between(c, 0, 7);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    memcpy(got, x, n * sizeof *x);
    memcpy(want, x, n * sizeof *x);
    c->t->rope(got, (int)n_rot, neox, cosine, sine);
    c->ref->rope(want, (int)n_rot, neox, cosine, sine);
    check_same_f32(c, "rotated", got, want, n);
    check_same_bytes(c, "beyond n_rot", got + n_rot, x + n_rot, 5 * sizeof *x);
    for (size_t i = 0; i < half; i++) {
        size_t ia = neox ? i : 2 * i, ib = neox ? i + half : 2 * i + 1;
        double a = (double)x[ia], b = (double)x[ib], co = (double)cosine[i], si = (double)sine[i];
        double limit = 0x1p-23 * (fabs(a) + fabs(b)) + 1e-44;
        if (!is_near(got[ia], a * co - b * si, limit) || !is_near(got[ib], a * si + b * co, limit)) {
            check_fail(c, "rotation in double", ia, (double)got[ia], a * co - b * si);
            break;
        }
    }
    check_guards(c);
}

static void check_rope(struct check *c, int arg)
{
    (void)arg;
    static const int all_rot[] = {2, 4, 6, 14, 16, 18, 30, 32, 34, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < ARRAY_LEN(all_rot); i++) {
        for (int kind = 0; kind < CHECK_FILL_COUNT; kind++) {
            check_case(c, "n_rot %d, %s", all_rot[i], fill_name(kind));
            rope_case(c, (size_t)all_rot[i], false, kind);
            check_case(c, "n_rot %d, neox, %s", all_rot[i], fill_name(kind));
            rope_case(c, (size_t)all_rot[i], true, kind);
        }
    }
}

/* --- kv_store --------------------------------------------------------------------------------------------------- */

static const char *const store_kinds[] = {"a NaN in the key", "a NaN in the value", "huge numbers", "one large number"};
enum { STORE_KINDS = CHECK_FILL_COUNT + ARRAY_LEN(store_kinds) };

/* Fills k[d] and v[d], special numbers among the first n. */
static void store_fill(struct check *c, int kind, float *k, float *v, size_t n, size_t d)
{
    fill(c, MIN_OF(kind, (int)CHECK_FILL_COUNT - 1), k, d);
    fill(c, MIN_OF(kind, (int)CHECK_FILL_COUNT - 1), v, d);
    size_t j = (size_t)check_random_below(c, (int)n);
    switch (kind - CHECK_FILL_COUNT) {
    case 0:
        k[j] = NAN;
        break;
    case 1:
        v[j] = NAN;
        break;
    case 2:
        k[j] = -INFINITY;
        v[j] = 70000;
        break;
    case 3:
        k[j] = v[j] = -1000;
        break;
    default:
        break;
    }
}

/* Returns the allowed error of a stored element, from kv_type.h. */
static double store_limit(const struct kv_side *s, bool is_key, const float *x, size_t j, size_t d)
{
    double squares = 0, largest = 0, f = fmax(-65504, fmin(65504, (double)x[j]));
    size_t block = s->block > 0 ? (size_t)s->block : d, from = j / block * block, to = MIN_OF(d, from + block);
    for (size_t i = from; i < to; i++) {
        double y = fmax(-65504, fmin(65504, (double)x[i]));
        squares += y * y;
        largest = fmax(largest, fabs(y));
    }
    switch (s->type) {
    case KV_TYPE_I16:
        return 0.501 * (is_key ? fmax(sqrt(squares) / KV_I16_NORM, largest / KV_I16_KEY) : largest / KV_I16_VALUE) +
               1e-19;
    case KV_TYPE_F16:
        return fabs(f) * 0x1p-11 + 0x1p-25;
    case KV_TYPE_BF16:
        return fabs(f) * 0x1p-8 + 1e-40;
    case KV_TYPE_Q8_0: /* the scale is a half, possibly subnormal */
        return 0.51 * largest / 127 + 127 * 0x1p-25 + 1e-30;
    default: /* the side opposite to the largest value lacks one code */
        return 1.01 * largest / 8 + 8 * 0x1p-25 + 1e-30;
    }
}

static void check_stored(struct check *c, const struct kv_layout *l, const float *k, const float *v, int slot,
                         const unsigned char *page)
{
    for (int i = 0; i < (l->is_latent ? l->d : l->d + l->d_value); i++) {
        bool is_key = i < l->d;
        const float *x = is_key ? k : v;
        int j = is_key ? i : i - l->d, d = is_key ? l->d : l->d_value;
        double got = (double)(is_key ? kv_key_at(l, page, slot, j) : kv_value_at(l, page + l->k.bytes, slot, j));
        double want = fmax(-65504, fmin(65504, (double)x[j]));
        if (!is_near((float)got, want, store_limit(is_key ? &l->k : &l->v, is_key, x, (size_t)j, (size_t)d))) {
            check_fail(c, is_key ? "key" : "value", (size_t)j, got, want);
            return;
        }
    }
}

static void kv_case(struct check *c, const struct kv_layout *l, int slot, int kind)
{
    size_t d = (size_t)l->d;
    float *k = floats(d), *v = floats(d);
    unsigned char *page = check_buffer(l->bytes, 64), *want = check_buffer(l->bytes, 64), *probe;
    store_fill(c, kind, k, v, l->is_latent ? d : (size_t)l->d_value, d);
    check_use_filling(page, l->bytes); /* the other slots stay as they are */
    check_use_filling(want, l->bytes);
    c->t->kv_store(l, k, v, slot, page, page + l->k.bytes);
    c->ref->kv_store(l, k, v, slot, want, want + l->k.bytes);
    check_same_bytes(c, "page", page, want, l->bytes);
    if (kind != CHECK_FILL_COUNT && (kind != CHECK_FILL_COUNT + 1 || l->is_latent)) { /* latents have no value */
        check_stored(c, l, k, v, slot, page);
    } else if (!isnan(kv_key_at(l, page, slot, 0))) {
        check_fail(c, "key of a NaN", 0, (double)kv_key_at(l, page, slot, 0), NAN);
    }
    probe = check_buffer(l->bytes, 64); /* no byte that another slot writes changes */
    check_use_filling(probe, l->bytes);
    for (int other = 0; other < KV_PAGE_TOKENS; other++) {
        if (other != slot) {
            c->ref->kv_store(l, v, k, other, probe, probe + l->k.bytes);
        }
    }
    memcpy(want, probe, l->bytes);
    c->t->kv_store(l, k, v, slot, probe, probe + l->k.bytes);
    for (int other = 0; other < KV_PAGE_TOKENS; other++) {
        if (other != slot) {
            c->ref->kv_store(l, v, k, other, probe, probe + l->k.bytes);
        }
    }
    c->ref->kv_store(l, k, v, slot, want, want + l->k.bytes);
    check_same_bytes(c, "full page", probe, want, l->bytes);
    check_guards(c);
}

static void check_kv_store(struct check *c, int arg)
{
    (void)arg;
    static const int widths[] = {2, 4, 8, 12, 16, 18, 20, 30, 32, 34, 48, 64, 80, 128, 256, 512, 576};
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        for (int kind = 0; kind < STORE_KINDS; kind++) {
            int slot = kind == 0 ? 0 : kind == 1 ? KV_PAGE_TOKENS - 1 : (kind * 5 + (int)i) % KV_PAGE_TOKENS;
            struct kv_layout l;
            for (int type = 0; type < KV_TYPE_COUNT; type++) {
                enum kv_type v_type = (enum kv_type)((type + kind / 4) % KV_TYPE_COUNT);
                int d_value = kind % 3 == 0 && widths[i] > 4 ? widths[i] / 3 * 2 : widths[i];
                l = kv_layout_of((enum kv_type)type, v_type, widths[i], d_value);
                check_case(c, "d %d, values %d, slot %d, %s, %s and %s", widths[i], d_value, slot,
                           kind < CHECK_FILL_COUNT ? fill_name(kind) : store_kinds[kind - CHECK_FILL_COUNT],
                           kv_type_name(type), kv_type_name(v_type));
                kv_case(c, &l, slot, kind);
            }
            if (widths[i] % 4 == 0) {
                l = kv_layout_of_latents(kind % 2 == 0 ? KV_TYPE_F16 : KV_TYPE_BF16, widths[i], widths[i]);
                check_case(c, "latents of %d, slot %d, %s", widths[i], slot,
                           kind < CHECK_FILL_COUNT ? fill_name(kind) : store_kinds[kind - CHECK_FILL_COUNT]);
                kv_case(c, &l, slot, kind);
            }
        }
    }
}

/* --- argmax and logsumexp --------------------------------------------------------------------------------------- */

static int32_t best_of(const float *x, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best])) {
            best = i;
        }
    }
    return best < 0 ? 0 : best;
}

static void argmax_case(struct check *c, size_t n, int kind)
{
    float *x = check_buffer((n + 1) * sizeof *x, 4); /* not aligned */
    fill(c, kind, x, n + 1);
    for (int trial = 0; trial < 7; trial++) {
        const float *from = x + trial % 2;
        if (trial == 2) { /* the largest twice */
            x[check_random_below(c, (int)n)] = x[best_of(x, (int32_t)n)];
        } else if (trial == 3) { /* the largest first, then at the end */
            x[1] = 2 * fabsf(x[best_of(x, (int32_t)n)]);
        } else if (trial == 4) {
            x[n - 1] = INFINITY;
        } else if (trial >= 5) { /* nothing but NaN, and -inf among it */
            for (size_t i = 0; i <= n; i++) {
                x[i] = trial == 5 && i % 3 == 2 ? -INFINITY : NAN;
            }
        }
        int32_t got = c->t->argmax(from, (int32_t)n), want = best_of(from, (int32_t)n);
        if (got != want) {
            check_fail(c, "index", (size_t)trial, got, want);
        }
    }
    check_guards(c);
}

static void check_sum(struct check *c, const float *x, size_t n)
{
    double largest = (double)x[best_of(x, (int32_t)n)], sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - largest);
    }
    float max;
    double got = (double)c->t->logsumexp(x, (int32_t)n, &max), want = log(sum) + largest;
    if (!is_near((float)got, want, 2e-6 * (1 + fabs(want)))) {
        check_fail(c, "log-sum-exp", 0, got, want);
    }
    if (!isnan(want) && (double)max != largest) {
        check_fail(c, "max", 0, (double)max, largest);
    }
}

static void logsumexp_case(struct check *c, size_t n, int kind)
{
    float *x = floats(n);
    fill(c, kind, x, n);
    check_sum(c, x, n);
    for (size_t i = 0; i < n; i++) { /* logits: many of them contribute */
        x[i] = (float)check_random_between(c, -12, 12);
    }
    check_sum(c, x, n);
    for (size_t i = 0; i < n; i += 2) {
        x[(size_t)check_random_below(c, (int)n)] = -INFINITY; /* banned tokens */
    }
    check_sum(c, x, n);
    x[check_random_below(c, (int)n)] = kind % 2 == 0 ? NAN : INFINITY;
    check_sum(c, x, n);
    check_guards(c);
}

/* --- rows ------------------------------------------------------------------------------------------------------- */

enum op { OP_RMSNORM, OP_ADD, OP_GLU, OP_ARGMAX = OP_GLU + KERN_ACT_COUNT, OP_LOGSUMEXP };

static void check_sizes(struct check *c, int op)
{
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int kind = 0; kind <= CHECK_FILL_COUNT; kind++) {
            size_t n = (size_t)sizes[i];
            check_case(c, "n %zu, %s", n, fill_name(kind));
            if (op == OP_RMSNORM) {
                rmsnorm_case(c, n, kind);
            } else if (op == OP_ADD) {
                add_case(c, n, kind);
            } else if (op == OP_ARGMAX) {
                argmax_case(c, n, kind);
            } else if (op == OP_LOGSUMEXP) {
                logsumexp_case(c, n, kind);
            } else {
                glu_case(c, (enum kern_act)(op - OP_GLU), n, kind);
            }
        }
    }
    if (op >= OP_GLU && op < OP_ARGMAX) {
        check_case(c, "sweep of -110 .. 110");
        glu_sweep(c, (enum kern_act)(op - OP_GLU));
    }
}

/* --- planted faults --------------------------------------------------------------------------------------------- */

static struct kern_table honest;

static void wrong_norm_last(const float *x, const float *w, float eps, size_t k, float *out)
{
    honest.rmsnorm(x, w, eps, k, out);
    out[k - 1] *= 1.00001f;
}
static void wrong_norm_eps(const float *x, const float *w, float eps, size_t k, float *out)
{
    honest.rmsnorm(x, w, 2 * eps, k, out);
}
static void wrong_norm_overflow(const float *x, const float *w, float eps, size_t k, float *out)
{
    float sum = 0;
    for (size_t i = 0; i < k; i++) {
        sum += x[i] * x[i];
    }
    honest.rmsnorm(x, w, isinf(sum) ? sum : eps, k, out);
}

static void wrong_add_beyond(float *dst, const float *src, size_t n)
{
    honest.add(dst, src, n);
    if (n % 16 != 0) { /* else the next element is unreadable */
        dst[n] = 0;
    }
}
static void wrong_add_last(float *dst, const float *src, size_t n) { honest.add(dst, src, n - 1); }

static void wrong_glu_tail(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) { /* an exponential that stops growing at e^88 */
        float g = gate[i], u = up[i];
        honest.glu(act, &g, &u, 1, &out[i]);
        out[i] = g < -88 ? g * 4.5e-39f * u : out[i];
    }
}
static void wrong_glu_last(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    honest.glu(act, gate, up, n, out);
    out[n - 1] *= 1.000005f;
}
static void wrong_glu_nan(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float g = isnan(gate[i]) ? 0 : gate[i], u = up[i];
        honest.glu(act, &g, &u, 1, &out[i]);
    }
}
static void wrong_glu_act(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    honest.glu((act + 1) % KERN_ACT_COUNT, gate, up, n, out);
}

static void wrong_rope_kind(float *x, int n_rot, bool neox, const float *cosine, const float *sine)
{
    honest.rope(x, n_rot, !neox, cosine, sine);
}
static void wrong_rope_beyond(float *x, int n_rot, bool neox, const float *cosine, const float *sine)
{
    honest.rope(x, n_rot, neox, cosine, sine);
    x[n_rot] += 1;
}

static void wrong_kv_slot(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                          unsigned char *v_page)
{
    honest.kv_store(l, k, v, slot ^ 1, k_page, v_page);
}
static void wrong_kv_infinity(const struct kv_layout *l, const float *k, const float *v, int slot,
                              unsigned char *k_page, unsigned char *v_page)
{
    honest.kv_store(l, k, v, slot, k_page, v_page);
    for (int i = 0; l->v.type == KV_TYPE_F16 && i < l->d_value; i++) {
        uint16_t *value =
            (uint16_t *)(void *)(l->is_latent ? k_page : v_page) + kv_value_element(kv_value_row(l), slot, i);
        *value = (l->is_latent ? k : v)[i] > 65504 ? 0x7C00 : *value;
    }
}
static void wrong_kv_neighbour(const struct kv_layout *l, const float *k, const float *v, int slot,
                               unsigned char *k_page, unsigned char *v_page)
{
    honest.kv_store(l, k, v, slot, k_page, v_page);
    (l->is_latent ? k_page : v_page)[(slot ^ 16) * 2] ^= 1;
}

static int32_t wrong_argmax_tie(const float *x, int32_t n)
{
    int32_t best = honest.argmax(x, n);
    for (int32_t i = best; i < n; i++) {
        best = x[i] == x[best] ? i : best;
    }
    return best;
}
static int32_t wrong_argmax_last(const float *x, int32_t n) { return honest.argmax(x, n > 1 ? n - 1 : n); }

static float wrong_sum_last(const float *x, int32_t n, float *max)
{
    float sum = honest.logsumexp(x, n > 1 ? n - 1 : n, max);
    *max = x[honest.argmax(x, n)];
    return sum;
}
static float wrong_sum_infinity(const float *x, int32_t n, float *max)
{
    float sum = honest.logsumexp(x, n, max);
    return isnan(sum) ? *max : sum;
}

static bool plant(struct kern_table *t, int op, int variant)
{
    honest = *t;
    if (op == OP_RMSNORM && variant < 3) {
        t->rmsnorm = variant == 0 ? wrong_norm_last : variant == 1 ? wrong_norm_eps : wrong_norm_overflow;
        return true;
    }
    if (op == OP_ADD && variant < 2) {
        t->add = variant == 0 ? wrong_add_beyond : wrong_add_last;
        return true;
    }
    if (op == OP_ARGMAX && variant < 2) {
        t->argmax = variant == 0 ? wrong_argmax_tie : wrong_argmax_last;
        return true;
    }
    if (op == OP_LOGSUMEXP && variant < 2) {
        t->logsumexp = variant == 0 ? wrong_sum_last : wrong_sum_infinity;
        return true;
    }
    if (op >= OP_GLU && op < OP_ARGMAX && variant < 4) {
        t->glu = variant == 0   ? wrong_glu_tail
                 : variant == 1 ? wrong_glu_last
                 : variant == 2 ? wrong_glu_nan
                                : wrong_glu_act;
        return true;
    }
    return false;
}

static bool plant_rope(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    honest = *t;
    t->rope = variant == 0 ? wrong_rope_kind : wrong_rope_beyond;
    return variant < 2;
}

static bool plant_kv_store(struct kern_table *t, int arg, int variant)
{
    (void)arg;
    honest = *t;
    t->kv_store = variant == 0 ? wrong_kv_slot : variant == 1 ? wrong_kv_infinity : wrong_kv_neighbour;
    return variant < 3;
}

/* --- timing ----------------------------------------------------------------------------------------------------- */

struct bench_arg {
    const struct kern_table *t, *ref;
    int op;
    size_t n;
    float *x, *y, *out;
};

static void run_with(const struct kern_table *t, const struct bench_arg *b)
{
    float max;
    if (b->op == OP_RMSNORM) {
        t->rmsnorm(b->x, b->y, 1e-5f, b->n, b->out);
    } else if (b->op == OP_ADD) {
        t->add(b->out, b->x, b->n);
    } else if (b->op == OP_ARGMAX) {
        b->out[0] = (float)t->argmax(b->x, (int32_t)b->n);
    } else if (b->op == OP_LOGSUMEXP) {
        b->out[0] = t->logsumexp(b->x, (int32_t)b->n, &max);
    } else {
        t->glu((enum kern_act)(b->op - OP_GLU), b->x, b->y, b->n, b->out);
    }
}
static void run(void *arg) { run_with(((struct bench_arg *)arg)->t, arg); }
static void run_ref(void *arg) { run_with(((struct bench_arg *)arg)->ref, arg); }

static void bench(struct check *c, int op)
{
    check_case(c, "bench");
    size_t n = op >= OP_ARGMAX ? 152064 : 1536; /* a large vocabulary; an ffn width */
    struct bench_arg b = {.t = c->t, .ref = c->ref, .op = op, .n = n, .x = floats(n), .y = floats(n), .out = floats(n)};
    check_fill_f32(c, CHECK_UNIFORM, b.x, n);
    check_fill_f32(c, CHECK_UNIFORM, b.y, n);
    memset(b.out, 0, n * sizeof *b.out);
    char size[32];
    snprintf(size, sizeof size, "n %zu", n);
    struct check_work w = {.size = size, .bytes = (double)(n * sizeof(float)) * (op >= OP_ARGMAX ? 1 : 3)};
    check_bench_row(c, &w, run, run_ref, &b);
}

#define OPS_ROW(label, op)                                                                                             \
    {                                                                                                                  \
        .name = label, .arg = op, .check = check_sizes, .plant = plant, .bench = bench                                 \
    }
const struct check_op check_ops_ops[] = {
    OPS_ROW("rmsnorm", OP_RMSNORM),
    OPS_ROW("add", OP_ADD),
    OPS_ROW("glu_silu", OP_GLU + KERN_ACT_SILU),
    OPS_ROW("glu_gelu_tanh", OP_GLU + KERN_ACT_GELU_TANH),
    OPS_ROW("glu_gelu", OP_GLU + KERN_ACT_GELU),
    OPS_ROW("glu_relu", OP_GLU + KERN_ACT_RELU),
    OPS_ROW("glu_clamped", OP_GLU + KERN_ACT_CLAMPED),
    OPS_ROW("glu_relu_squared", OP_GLU + KERN_ACT_RELU_SQUARED),
    OPS_ROW("glu_sigmoid", OP_GLU + KERN_ACT_SIGMOID),
    {.name = "rope", .check = check_rope, .plant = plant_rope},
    {.name = "kv_store", .check = check_kv_store, .plant = plant_kv_store},
    OPS_ROW("argmax", OP_ARGMAX),
    OPS_ROW("logsumexp", OP_LOGSUMEXP),
    {.name = NULL},
};
