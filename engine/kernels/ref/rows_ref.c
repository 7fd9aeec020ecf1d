/* Reference versions of the sampler's operations on a row of logits. */
#include "engine/kernels/isa.h"
#include "engine/kernels/kern.h"

#include <math.h>

static void block_max(const float *x, int32_t n, int32_t block, float *max)
{
    for (int32_t from = 0; from < n; from += block) {
        float best = -INFINITY;
        for (int32_t i = from; i < n && i < from + block; i++) {
            best = x[i] > best ? x[i] : best;
        }
        *max++ = best;
    }
}

static void block_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, float limit, double *sum)
{
    for (int32_t from = 0; from < n; from += block) {
        double total = 0;
        for (int32_t i = from; i < n && i < from + block; i++) {
            total += x[i] < limit ? exp(((double)x[i] - shift) * scale) : 0;
        }
        *sum++ = total;
    }
}

static int32_t collect(const float *x, int32_t n, float least, float most, int32_t *ids)
{
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] >= least && x[i] <= most) {
            ids[found++] = i;
        }
    }
    return found;
}

static double bin_sums(const float *x, int32_t n, const struct kern_bins *b, uint64_t (*sums)[KERN_BINS])
{
    double rest = 0;
    for (int32_t i = 0; i < n; i++) {
        float product = x[i] * KERN_BINS_PER_ONE;
        double k = fmax(nearbyintf(product), (double)b->top - (KERN_BINS - 1)), r = x[i] - k * KERN_BIN_WIDTH;
        if (k <= (double)b->top - (KERN_BINS - 1)) {
            continue;
        }
        for (int q = 0; q < b->n_sums; q++) {
            double p = 0;
            for (int j = KERN_BIN_TERMS - 1; j >= 0; j--) {
                p = (p + (double)b->c[q][j]) * r;
            }
            sums[q][(int)((double)b->top - k)] += (uint64_t)llrint(KERN_BIN_ONE * (1 + p));
        }
        rest += b->has_rest ? r * exp((double)x[i] - (double)b->max) : 0;
    }
    return rest;
}

void kern_rows_init_ref(struct kern_table *t)
{
    t->block_max = block_max;
    t->block_expsum = block_expsum;
    t->collect = collect;
    t->bin_sums = bin_sums;
}
