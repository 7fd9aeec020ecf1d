/* Reference versions of what the sampler asks of a row of logits. */
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

static void block_expsum(const float *x, int32_t n, int32_t block, float shift, float scale, double *sum)
{
    for (int32_t from = 0; from < n; from += block) {
        double total = 0;
        for (int32_t i = from; i < n && i < from + block; i++) {
            total += exp(((double)x[i] - shift) * scale);
        }
        *sum++ = total;
    }
}

static int32_t collect(const float *x, int32_t n, float least, int32_t *ids)
{
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] >= least) {
            ids[found++] = i;
        }
    }
    return found;
}

void kern_rows_init_ref(struct kern_table *t)
{
    t->block_max = block_max;
    t->block_expsum = block_expsum;
    t->collect = collect;
}
