/* Linear attention and selective scans for every ISA: include after a vec_<isa>.h. A block of columns of the state
 * passes through all rows before the next block, so that it stays in L1. */
#ifndef INFCGI_KERNELS_VEC_LINEAR_VEC_H
#define INFCGI_KERNELS_VEC_LINEAR_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/vec/exp_vec.h"

#include <stdbool.h>

/* Vectors of columns processed together, with two partial sums each: four chains of multiply-add. */
enum { LINEAR_VECS = 2 };

/* A block of n columns from state, v and out on. The last vector can be partial. */
struct linear_block {
    float *state, *out;
    const float *v;
    size_t n;
};

static ALWAYS_INLINE vec linear_load(const float *p, size_t at, size_t n, bool is_part)
{
    return is_part ? vec_load_part(p + at, n - at) : vec_load(p + at);
}

static ALWAYS_INLINE void linear_store(float *p, size_t at, vec v, size_t n, bool is_part)
{
    if (is_part) {
        vec_store_part(p + at, v, n - at);
    } else {
        vec_store(p + at, v);
    }
}

/* Adds row j of the state times its key to sums. */
static ALWAYS_INLINE void linear_know(const struct kern_linear_args *a, const struct linear_block *b, int j, float key,
                                      vec *sums, int vecs, bool is_part)
{
    const float *row = b->state + (size_t)j * (size_t)a->n_cols;
    for (int i = 0; i < vecs; i++) {
        sums[i] = vec_fma(linear_load(row, (size_t)i * VEC_LANES, b->n, is_part), vec_set1(key), sums[i]);
    }
}

/* Updates row j of the state and adds it times its component of the query to sums. */
static ALWAYS_INLINE void linear_renew(const struct kern_linear_args *a, const struct linear_block *b, int j, vec decay,
                                       float key, float query, const vec *change, vec *sums, int vecs, bool is_part)
{
    float *row = b->state + (size_t)j * (size_t)a->n_cols;
    for (int i = 0; i < vecs; i++) {
        vec s = vec_mul(decay, linear_load(row, (size_t)i * VEC_LANES, b->n, is_part));
        s = vec_fma(vec_set1(key), change[i], s);
        sums[i] = vec_fma(vec_set1(query), s, sums[i]);
        linear_store(row, (size_t)i * VEC_LANES, s, b->n, is_part);
    }
}

/* Computes one row of one block of `vecs` vectors; by_key: with key_decay. */
static ALWAYS_INLINE void linear_row(const struct kern_linear_args *a, const struct linear_block *b, int t, int vecs,
                                     bool is_part, bool by_key)
{
    const float *q = a->q + (size_t)t * a->qk_stride, *k = a->k + (size_t)t * a->qk_stride;
    const float *v = b->v + (size_t)t * a->v_stride;
    float *out = b->out + (size_t)t * a->out_stride;
    const float *d = by_key ? a->key_decay + (size_t)t * (size_t)a->n_keys : NULL;
    vec decay = by_key ? vec_set1(0) : vec_set1(a->decay[t]), rate = vec_set1(a->rate[t]);
    vec even[LINEAR_VECS], odd[LINEAR_VECS], change[LINEAR_VECS];
    for (int i = 0; i < vecs; i++) {
        even[i] = odd[i] = vec_set1(0);
    }
    int n = a->n_keys, j = 0;
    for (; a->corrects && j + 1 < n; j += 2) {
        linear_know(a, b, j, by_key ? d[j] * k[j] : k[j], even, vecs, is_part);
        linear_know(a, b, j + 1, by_key ? d[j + 1] * k[j + 1] : k[j + 1], odd, vecs, is_part);
    }
    if (a->corrects && j < n) {
        linear_know(a, b, j, by_key ? d[j] * k[j] : k[j], even, vecs, is_part);
    }
    for (int i = 0; i < vecs; i++) {
        vec known = vec_add(even[i], odd[i]);
        known = by_key ? known : vec_mul(decay, known);
        change[i] = vec_mul(rate, vec_sub(linear_load(v, (size_t)i * VEC_LANES, b->n, is_part), known));
        even[i] = odd[i] = vec_set1(0);
    }
    for (j = 0; j + 1 < n; j += 2) {
        linear_renew(a, b, j, by_key ? vec_set1(d[j]) : decay, k[j], q[j], change, even, vecs, is_part);
        linear_renew(a, b, j + 1, by_key ? vec_set1(d[j + 1]) : decay, k[j + 1], q[j + 1], change, odd, vecs, is_part);
    }
    if (j < n) {
        linear_renew(a, b, j, by_key ? vec_set1(d[j]) : decay, k[j], q[j], change, even, vecs, is_part);
    }
    for (int i = 0; i < vecs; i++) {
        linear_store(out, (size_t)i * VEC_LANES, vec_add(even[i], odd[i]), b->n, is_part);
    }
}

static ALWAYS_INLINE void linear_rows(const struct kern_linear_args *a, bool by_key)
{
    size_t last = (size_t)a->last_col, width = LINEAR_VECS * VEC_LANES;
    for (size_t at = (size_t)a->first_col; at < last; at += width) {
        struct linear_block b = {.state = a->state + at, .out = a->out + at, .v = a->v + at, .n = last - at};
        if (b.n >= width) {
            for (int t = 0; t < a->n_rows; t++) {
                linear_row(a, &b, t, LINEAR_VECS, false, by_key);
            }
            continue;
        }
        for (; b.n > 0; b.state += VEC_LANES, b.out += VEC_LANES, b.v += VEC_LANES) {
            for (int t = 0; t < a->n_rows; t++) {
                linear_row(a, &b, t, 1, true, by_key);
            }
            b.n -= b.n < VEC_LANES ? b.n : VEC_LANES;
        }
    }
}

static void vec_linear_attention(const struct kern_linear_args *a)
{
    if (a->key_decay != NULL) {
        linear_rows(a, true);
    } else {
        linear_rows(a, false);
    }
}

/* Computes log(1 + z) of z in 0 .. 1 as 2 atanh(t) with t = z / (2 + z) <= 1/3: its series without the terms from
 * t^17 on, which are below 2e-9 of the sum. */
static inline vec vec_log1p(vec z)
{
    vec t = vec_div(z, vec_add(z, vec_set1(2.0f))), square = vec_mul(t, t);
    vec sum = vec_set1(1.0f / 15);
    for (int n = 13; n >= 1; n -= 2) {
        sum = vec_fma(sum, square, vec_set1(1.0f / (float)n));
    }
    return vec_mul(vec_add(t, t), sum);
}

static void vec_decay(const float *x, const float *bias, float rate, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += VEC_LANES) {
        vec sum = vec_add(vec_load_part(x + i, n - i), vec_load_part(bias + i, n - i));
        vec softplus = vec_add(vec_max(vec_set1(0), sum), vec_log1p(vec_exp(vec_sub(vec_set1(0), vec_abs(sum)))));
        vec_store_part(out + i, vec_exp(vec_mul(vec_set1(rate), softplus)), n - i);
    }
}

/* Computes row t of the n columns of a vector from column `at` on. */
static ALWAYS_INLINE void scan_row(const struct kern_scan_args *a, size_t at, size_t n, int t, bool is_part)
{
    const float *b = a->b + (size_t)t * a->b_stride, *c = a->c + (size_t)t * a->c_stride;
    vec dt = linear_load(a->dt + (size_t)t * a->dt_stride + at, 0, n, is_part);
    vec in = vec_mul(dt, linear_load(a->x + (size_t)t * a->x_stride + at, 0, n, is_part));
    vec sums[2] = {vec_set1(0), vec_set1(0)};
    for (int j = 0; j < a->n_states; j++) {
        size_t from = (size_t)j * (size_t)a->n_cols + at;
        vec decay = vec_exp(vec_mul(dt, linear_load(a->a + from, 0, n, is_part)));
        vec s = vec_mul(decay, linear_load(a->state + from, 0, n, is_part));
        s = vec_fma(vec_set1(b[j]), in, s);
        sums[j % 2] = vec_fma(vec_set1(c[j]), s, sums[j % 2]);
        linear_store(a->state + from, 0, s, n, is_part);
    }
    linear_store(a->out + (size_t)t * a->out_stride + at, 0, vec_add(sums[0], sums[1]), n, is_part);
}

static void vec_selective_scan(const struct kern_scan_args *a)
{
    for (size_t at = 0, n = (size_t)a->n_cols; at < n; at += VEC_LANES) {
        bool is_part = n - at < VEC_LANES;
        for (int t = 0; t < a->n_rows; t++) {
            if (is_part) {
                scan_row(a, at, n - at, t, true);
            } else {
                scan_row(a, at, VEC_LANES, t, false);
            }
        }
    }
}

#endif
