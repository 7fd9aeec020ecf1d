/* Reference attention: two passes over the visible positions, everything in double. */
#include "engine/kernels/isa.h"
#include "engine/kernels/kern.h"

#include "engine/tensor/dtype.h"

#include <math.h>

/* Key component j, or value component j, of position t. */
static double key_at(const struct kern_attention_args *a, int32_t t, int j)
{
    const uint16_t *keys = (const void *)(a->base + (size_t)a->pages[t / KERN_PAGE_TOKENS] * a->page_stride);
    return dtype_f16_to_f32(keys[j * KERN_PAGE_TOKENS + t % KERN_PAGE_TOKENS]);
}

static double value_at(const struct kern_attention_args *a, int32_t t, int j)
{
    const uint16_t *keys = (const void *)(a->base + (size_t)a->pages[t / KERN_PAGE_TOKENS] * a->page_stride);
    return dtype_f16_to_f32(keys[a->d * KERN_PAGE_TOKENS + (t % KERN_PAGE_TOKENS) * a->d + j]);
}

static double score_of(const struct kern_attention_args *a, const float *q, int32_t t)
{
    double score = 0;
    for (int j = 0; j < a->d; j++) {
        score += q[j] * key_at(a, t, j);
    }
    score *= a->scale;
    return a->softcap != 0 ? a->softcap * tanh(score / a->softcap) : score;
}

static void attend(const struct kern_attention_args *a, const float *q, int32_t pos, float *out)
{
    int32_t first = a->window > 0 && pos - a->window + 1 > 0 ? pos - a->window + 1 : 0;
    double max = -INFINITY, sum = 0, acc[KERN_MAX_HEAD] = {0};
    for (int32_t t = first; t <= pos; t++) {
        max = fmax(max, score_of(a, q, t));
    }
    for (int32_t t = first; t <= pos; t++) {
        double p = exp(score_of(a, q, t) - max);
        sum += p;
        for (int j = 0; j < a->d; j++) {
            acc[j] += p * value_at(a, t, j);
        }
    }
    for (int j = 0; j < a->d; j++) {
        out[j] = (float)(acc[j] / sum);
    }
}

void kern_attention_ref(const struct kern_attention_args *a)
{
    for (int r = 0; r < a->n_rows; r++) {
        for (int g = 0; g < a->n_group; g++) {
            size_t head = (size_t)g * (size_t)a->d;
            attend(a, a->q + (size_t)r * a->q_stride + head, a->pos[r], a->out + (size_t)r * a->out_stride + head);
        }
    }
}
