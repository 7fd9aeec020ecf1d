/* Operations of the sampler on a row of logits, for every vector ISA: include after a vec_<isa>.h. A row is a
 * megabyte, so each operation is one pass. */
#ifndef INFCGI_KERNELS_VEC_ROWS_VEC_H
#define INFCGI_KERNELS_VEC_ROWS_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/vec/exp_vec.h"

#include <math.h>

static void vec_block_max(const float *x, int32_t n, int32_t block, float *max)
{
    for (int32_t from = 0; from < n; from += block) {
        int32_t to = n - from < block ? n : from + block, i = from;
        vec a = vec_set1(-INFINITY), b = a;
        for (; i + 2 * VEC_LANES <= to; i += 2 * VEC_LANES) { /* vec_max ignores a NaN in its first operand */
            a = vec_max(vec_load(x + i), a);
            b = vec_max(vec_load(x + i + VEC_LANES), b);
        }
        for (; i + VEC_LANES <= to; i += VEC_LANES) {
            a = vec_max(vec_load(x + i), a);
        }
        float best = vec_max_lane(vec_max(a, b));
        for (; i < to; i++) {
            best = x[i] > best ? x[i] : best;
        }
        *max++ = best;
    }
}

/* Sums of floats cover at most 256 elements, so a lane of AVX2 adds 16 terms. */
enum { EXPSUM_RUN = 256 };

/* Returns the terms of a vector of x. */
static inline vec vec_expsum_terms(vec x, vec shift, vec scale, vec limit)
{
    return vec_if_less(x, limit, vec_exp(vec_mul(vec_sub(x, shift), scale)), vec_set1(0));
}

static void vec_block_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, float limit,
                             double *sum)
{
    vec by = vec_set1(scale), from_max = vec_set1(shift), below = vec_set1(limit);
    for (int32_t from = 0; from < n; from += block) {
        int32_t to = n - from < block ? n : from + block, i = from;
        double total = 0;
        while (i + 2 * VEC_LANES <= to) {
            int32_t run_to = to - i < EXPSUM_RUN ? to : i + EXPSUM_RUN;
            vec a = vec_set1(0), b = vec_set1(0);
            for (; i + 2 * VEC_LANES <= run_to; i += 2 * VEC_LANES) {
                a = vec_add(a, vec_expsum_terms(vec_load(x + i), from_max, by, below));
                b = vec_add(b, vec_expsum_terms(vec_load(x + i + VEC_LANES), from_max, by, below));
            }
            total += (double)vec_sum(vec_add(a, b));
        }
        for (; i < to; i += VEC_LANES) {
            size_t left = (size_t)(to - i);
            vec e = vec_expsum_terms(vec_load_part(x + i, left), from_max, by, below);
            float parts[VEC_LANES] = {0};
            vec_store_part(parts, e, left);
            total += (double)vec_sum(vec_load(parts));
        }
        *sum++ = total;
    }
}

static int32_t vec_collect(const float *x, int32_t n, float least, float most, int32_t *ids)
{
    vec low = vec_set1(least), high = vec_set1(most);
    int32_t found = 0, i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec v = vec_load(x + i);
        for (unsigned hits = vec_at_least(v, low) & vec_at_least(high, v); hits != 0; hits &= hits - 1) {
            ids[found++] = i + __builtin_ctz(hits);
        }
    }
    for (; i < n; i++) {
        if (x[i] >= least && x[i] <= most) {
            ids[found++] = i;
        }
    }
    return found;
}

/* Elements per run: vectors compute their bins and values, which are then added one by one. That has no vector form and
 * takes most of the time. */
enum { BIN_RUN = 128 };
struct bin_run {
    uint32_t bin[BIN_RUN], value[2][BIN_RUN];
};

/* Evaluates the polynomials of r in floats: k times the first part of the width is exact inside the FMA. Returns r, 0
 * in the last bin. */
static inline vec vec_bin_values(vec x, const struct kern_bins *b, int n_sums, int32_t at, struct bin_run *run)
{
    const float width = (float)KERN_BIN_WIDTH, rest = (float)(KERN_BIN_WIDTH - (double)width);
    const ivec one = ivec_set1(INT32_MIN); /* KERN_BIN_ONE */
    vec top = vec_set1(b->top), last = vec_sub(top, vec_set1(KERN_BINS - 1));
    vec k = vec_max(vec_round(vec_mul(x, vec_set1(KERN_BINS_PER_ONE))), last);
    vec r = vec_fma(k, vec_set1(-rest), vec_fma(k, vec_set1(-width), x));
    ivec_store(run->bin + at, vec_to_int(vec_sub(top, k)));
    for (int q = 0; q < n_sums; q++) {
        vec p = vec_set1(b->c[q][KERN_BIN_TERMS - 1]);
        for (int j = KERN_BIN_TERMS - 2; j >= 0; j--) {
            p = vec_fma(p, r, vec_set1(b->c[q][j]));
        }
        p = vec_mul(vec_mul(p, r), vec_set1((float)KERN_BIN_ONE));
        ivec_store(run->value[q] + at, ivec_add(vec_to_int(p), one));
    }
    return vec_if_less(last, k, r, vec_set1(0));
}

static ALWAYS_INLINE double vec_bin_run(const float *x, int32_t n, const struct kern_bins *b, int n_sums,
                                        uint64_t (*sums)[KERN_BINS])
{
    struct bin_run run;
    vec rest = vec_set1(0), max = vec_set1(b->max);
    int32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec v = vec_load(x + i), r = vec_bin_values(v, b, n_sums, i, &run);
        if (b->has_rest) {
            rest = vec_fma(r, vec_exp(vec_sub(v, max)), rest);
        }
    }
    if (i < n) {
        size_t left = (size_t)(n - i);
        vec v = vec_load_part(x + i, left), r = vec_bin_values(v, b, n_sums, i, &run);
        float parts[VEC_LANES] = {0};
        vec_store_part(parts, vec_mul(r, vec_exp(vec_min(vec_set1(0), vec_sub(v, max)))), left);
        rest = b->has_rest ? vec_add(rest, vec_load(parts)) : rest;
    }
    for (int q = 0; q < n_sums; q++) {
        const uint32_t *bin = run.bin, *value = run.value[q];
        uint64_t *sum = sums[q];
        for (i = 0; i + 4 <= n; i += 4) { /* unrolled by hand: gcc 12 unrolls no loop at -O2 */
            sum[bin[i]] += value[i];
            sum[bin[i + 1]] += value[i + 1];
            sum[bin[i + 2]] += value[i + 2];
            sum[bin[i + 3]] += value[i + 3];
        }
        for (; i < n; i++) {
            sum[bin[i]] += value[i];
        }
    }
    return (double)vec_sum(rest);
}

static double vec_bin_sums(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS])
{
    double rest = 0;
    for (int32_t i = 0; i < n; i += BIN_RUN) {
        int32_t len = n - i < BIN_RUN ? n - i : BIN_RUN;
        if (b->n_sums == 1) {
            rest += vec_bin_run(x + i, len, b, 1, sums);
        } else {
            rest += vec_bin_run(x + i, len, b, 2, sums);
        }
    }
    return rest;
}

#endif
