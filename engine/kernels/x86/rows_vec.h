/* What the sampler asks of a row of logits, once for every x86 ISA: include after a vec_<isa>.h, call rows_vec_init
 * from the ISA's init. A row is a megabyte, so each is one pass. */
#ifndef INFCGI_KERNELS_X86_ROWS_VEC_H
#define INFCGI_KERNELS_X86_ROWS_VEC_H

#include "engine/kernels/kern.h"
#include "engine/kernels/x86/exp_vec.h"

#include <math.h>

static void vec_block_max(const float *x, int32_t n, int32_t block, float *max)
{
    for (int32_t from = 0; from < n; from += block) {
        int32_t to = n - from < block ? n : from + block, i = from;
        vec a = vec_set1(-INFINITY), b = a;
        for (; i + 2 * VEC_LANES <= to; i += 2 * VEC_LANES) { /* a NaN in the first operand of vec_max is left out */
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

/* Sums of floats run over 256 elements at most, so that they stay right to 2e-6. */
enum { EXPSUM_RUN = 256 };

static void vec_block_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, double *sum)
{
    vec by = vec_set1(scale), from_max = vec_set1(shift);
    for (int32_t from = 0; from < n; from += block) {
        int32_t to = n - from < block ? n : from + block, i = from;
        double total = 0;
        while (i + 2 * VEC_LANES <= to) {
            int32_t run_to = to - i < EXPSUM_RUN ? to : i + EXPSUM_RUN;
            vec a = vec_set1(0), b = vec_set1(0);
            for (; i + 2 * VEC_LANES <= run_to; i += 2 * VEC_LANES) {
                a = vec_add(a, vec_exp(vec_mul(vec_sub(vec_load(x + i), from_max), by)));
                b = vec_add(b, vec_exp(vec_mul(vec_sub(vec_load(x + i + VEC_LANES), from_max), by)));
            }
            total += (double)vec_sum(vec_add(a, b));
        }
        for (; i < to; i += VEC_LANES) {
            size_t left = (size_t)(to - i);
            vec e = vec_exp(vec_mul(vec_sub(vec_load_part(x + i, left), from_max), by));
            float parts[VEC_LANES] = {0};
            vec_store_part(parts, e, left);
            total += (double)vec_sum(vec_load(parts));
        }
        *sum++ = total;
    }
}

static int32_t vec_collect(const float *x, int32_t n, float least, int32_t *ids)
{
    vec limit = vec_set1(least);
    int32_t found = 0, i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        for (unsigned hits = vec_at_least(vec_load(x + i), limit); hits != 0; hits &= hits - 1) {
            ids[found++] = i + __builtin_ctz(hits);
        }
    }
    for (; i < n; i++) {
        if (x[i] >= least) {
            ids[found++] = i;
        }
    }
    return found;
}

static void rows_vec_init(struct kern_table *t)
{
    t->block_max = vec_block_max;
    t->block_expsum = vec_block_expsum;
    t->collect = vec_collect;
}

#endif
