/* The small operations for every vector ISA: include after a vec_<isa>.h. Each output element has the same
 * operations for any n: tails are partial loads of the same code. */
#ifndef INFCGI_KERNELS_VEC_OPS_VEC_H
#define INFCGI_KERNELS_VEC_OPS_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/vec/exp_vec.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Sixteen partial sums for every vector width: lane i of block b holds elements 16b + i. */
enum { SUM_VECS = 16 / VEC_LANES };

static float vec_sum_of_squares(const float *x, size_t k, float shrink)
{
    vec sums[SUM_VECS];
    for (int j = 0; j < SUM_VECS; j++) {
        sums[j] = vec_set1(0);
    }
    for (size_t i = 0; i < k; i += 16) {
        for (int j = 0; j < SUM_VECS; j++) {
            size_t at = i + (size_t)j * VEC_LANES;
            if (at < k) {
                vec v = vec_mul(vec_load_part(x + at, k - at), vec_set1(shrink));
                sums[j] = vec_fma(v, v, sums[j]);
            }
        }
    }
    return vec_sum(SUM_VECS == 1 ? sums[0] : vec_add(sums[0], sums[SUM_VECS - 1]));
}

static void vec_rmsnorm(const float *x, const float *w, float eps, size_t k, float *out)
{
    float shrink = 1.0f, sum = vec_sum_of_squares(x, k, shrink);
    if (sum == INFINITY) { /* overflowing squares must not turn a row into zeros */
        shrink = 0x1p-80f;
        sum = vec_sum_of_squares(x, k, shrink);
    }
    float scale = 1.0f / sqrtf(sum / (float)k + eps * shrink * shrink);
    for (size_t i = 0; i < k; i += VEC_LANES) {
        vec v = vec_mul(vec_mul(vec_load_part(x + i, k - i), vec_set1(shrink)), vec_set1(scale));
        if (w != NULL) {
            v = vec_mul(v, vec_load_part(w + i, k - i));
        }
        vec_store_part(out + i, v, k - i);
    }
}

static void vec_add_into(float *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vec_store_part(dst + i, vec_add(vec_load_part(dst + i, n - i), vec_load_part(src + i, n - i)), n - i);
    }
}

/* x * sigmoid(u) */
static inline vec vec_gate(vec x, vec u)
{
    return vec_div(x, vec_add(vec_set1(1.0f), vec_exp(vec_sub(vec_set1(0), u))));
}

static inline vec vec_gelu_tanh_arg(vec x) /* 2 * sqrt(2/pi) * (x + 0.044715 x^3) */
{
    vec cube = vec_mul(vec_mul(x, x), x);
    return vec_mul(vec_set1(1.5957691216057308f), vec_fma(cube, vec_set1(0.044715f), x));
}

/* Computes x * Phi(x). For x < 0 this is x * exp(-x^2/2) * w with w = exp(x^2/2) * erfc(-x/sqrt(2)) / 2. w is a
 * polynomial in 1 / (1 + 0.4 |x|), accurate to 3e-7 up to |x| = 14 [our fit, least relative error by Lawson's
 * iteration]; beyond that the exponential is 0. For x > 0, x * Phi(x) = x - x * Phi(-x). */
static inline vec vec_gelu(vec x)
{
    vec a = vec_min(vec_set1(14.0f), vec_max(x, vec_sub(vec_set1(0), x)));
    vec square = vec_mul(a, a), rest = vec_fma(a, a, vec_sub(vec_set1(0), square)); /* a^2 is square + rest, exactly */
    vec e = vec_exp(vec_mul(square, vec_set1(-0.5f)));
    e = vec_fma(vec_mul(rest, vec_set1(-0.5f)), e, e);
    vec t = vec_div(vec_set1(1.0f), vec_fma(a, vec_set1(0.4f), vec_set1(1.0f)));
    vec w = vec_set1(-3.9601165758e-2f);
    w = vec_fma(w, t, vec_set1(2.0060209694e-1f));
    w = vec_fma(w, t, vec_set1(-3.7368485017e-1f));
    w = vec_fma(w, t, vec_set1(2.5097491767e-1f));
    w = vec_fma(w, t, vec_set1(-1.2386563232e-2f));
    w = vec_fma(w, t, vec_set1(1.5841680518e-1f));
    w = vec_fma(w, t, vec_set1(1.5578657123e-1f));
    w = vec_fma(w, t, vec_set1(1.5990418908e-1f));
    w = vec_fma(w, t, vec_set1(-1.1987698766e-5f));
    vec tail = vec_mul(e, w); /* Phi(-a) */
    return vec_if_less(x, vec_set1(0), vec_mul(x, tail), vec_sub(x, vec_mul(a, tail)));
}

static void vec_glu(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vec g = vec_load_part(gate + i, n - i), u = vec_load_part(up + i, n - i), y = vec_max(vec_set1(0), g);
        if (act == KERN_ACT_CLAMPED) { /* constant first, so that a NaN stays */
            g = vec_min(vec_set1(7.0f), g);
            u = vec_add(vec_min(vec_set1(7.0f), vec_max(vec_set1(-7.0f), u)), vec_set1(1.0f));
            y = vec_gate(g, vec_mul(g, vec_set1(1.702f)));
        } else if (act == KERN_ACT_RELU_SQUARED) {
            u = vec_mul(y, u); /* the square alone could overflow */
        } else if (act == KERN_ACT_SIGMOID) {
            y = vec_gate(vec_set1(1.0f), g);
        } else if (act == KERN_ACT_SILU) {
            y = vec_gate(g, g);
        } else if (act == KERN_ACT_GELU_TANH) {
            y = vec_gate(g, vec_gelu_tanh_arg(g));
        } else if (act == KERN_ACT_GELU) {
            y = vec_gelu(g);
        }
        vec_store_part(out + i, vec_mul(y, u), n - i);
    }
}

/* Uses no multiply-add: exact to ref. */
static void vec_rope_neox(float *x, int half, const float *cosine, const float *sine)
{
    for (int i = 0; i < half; i += VEC_LANES) {
        size_t n = (size_t)(half - i);
        vec a = vec_load_part(x + i, n), b = vec_load_part(x + half + i, n);
        vec c = vec_load_part(cosine + i, n), s = vec_load_part(sine + i, n);
        vec_store_part(x + i, vec_sub(vec_mul(a, c), vec_mul(b, s)), n);
        vec_store_part(x + half + i, vec_add(vec_mul(a, s), vec_mul(b, c)), n);
    }
}

static void vec_rope(float *x, int n_rot, bool neox, const float *cosine, const float *sine)
{
    if (neox) {
        vec_rope_neox(x, n_rot / 2, cosine, sine);
        return;
    }
    for (int i = 0; i < n_rot; i += VEC_LANES) {
        size_t n = (size_t)(n_rot - i);
        vec v = vec_load_part(x + i, n);
        vec c = vec_load_doubled(cosine + i / 2, n / 2), s = vec_load_doubled(sine + i / 2, n / 2);
        vec_store_part(x + i, vec_addsub(vec_mul(v, c), vec_mul(vec_swap_pairs(v), s)), n);
    }
}

/* Returns the largest of x[n], ignoring NaNs; -inf if all are NaN. */
static float vec_max_of(const float *x, int32_t n)
{
    vec m[4];
    for (int j = 0; j < 4; j++) {
        m[j] = vec_set1(-INFINITY);
    }
    int32_t i = 0;
    for (; i + 4 * VEC_LANES <= n; i += 4 * VEC_LANES) {
        for (int j = 0; j < 4; j++) {
            m[j] = vec_max(vec_load(x + i + j * VEC_LANES), m[j]);
        }
    }
    float best = vec_max_lane(vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3])));
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

static int32_t vec_argmax(const float *x, int32_t n)
{
    float best = vec_max_of(x, n);
    vec limit = vec_set1(best);
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        unsigned hits = vec_at_least(vec_load(x + i), limit);
        if (hits != 0) {
            return i + __builtin_ctz(hits);
        }
    }
    for (; i < n; i++) {
        if (x[i] == best) {
            return i;
        }
    }
    return 0; /* all NaN */
}

static float vec_logsumexp(const float *x, int32_t n, float *max)
{
    *max = vec_max_of(x, n);
    vec shift = vec_set1(*max);
    struct vec_sum64 sum = vec_sum64_zero();
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_sum64_add(&sum, vec_exp(vec_sub(vec_load(x + i), shift))); /* a NaN or inf - inf makes the sum NaN */
    }
    double total = vec_sum64_total(&sum);
    for (; i < n; i++) {
        total += exp((double)x[i] - *max);
    }
    return (float)(log(total) + *max);
}

#endif
