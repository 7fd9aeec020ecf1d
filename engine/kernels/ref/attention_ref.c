/* Reference attention: two passes over the visible positions, everything in double except the records of segments. */
#include "engine/kernels/isa.h"
#include "engine/kernels/kern.h"

#include <math.h>
#include <stdlib.h>

/* A query: its head of the group and its row. */
struct query {
    const float *q;
    int r, g;
};

static struct query query_of(const struct kern_attention_args *a, int r, int g)
{
    return (struct query){.q = a->q + (size_t)r * a->q_stride + (size_t)(g * a->kv.d), .r = r, .g = g};
}

/* Returns what is added to the score of position t. */
static double bias_of(const struct kern_attention_args *a, const struct query *of, int32_t t)
{
    if (a->slopes != NULL) {
        return -(double)a->slopes[of->g] * abs(t - a->own[of->r]);
    }
    if (a->biases == NULL) {
        return 0;
    }
    int32_t distance = MAX_OF(-a->reach, MIN_OF(t - a->own[of->r], a->reach));
    return (double)a->biases[of->g * (2 * a->reach + 1) + a->reach + distance];
}

static double score_of(const struct kern_attention_args *a, const struct query *of, int32_t t)
{
    const unsigned char *page = a->keys + (size_t)a->pages[t / KV_PAGE_TOKENS] * a->page_bytes;
    double score = 0;
    for (int j = 0; j < a->kv.d; j++) {
        score += of->q[j] * (double)kv_key_at(&a->kv, page, t % KV_PAGE_TOKENS, j);
    }
    score = score * a->scale + bias_of(a, of, t);
    return a->softcap != 0 ? a->softcap * tanh(score / a->softcap) : score;
}

/* Computes maximum, sum and output over positions first .. last; sum is 0 if there are none. */
static void attend(const struct kern_attention_args *a, const struct query *q, int32_t first, int32_t last, double *max,
                   double *sum, double *out)
{
    *max = -INFINITY;
    *sum = 0;
    for (int j = 0; j < a->kv.d_value; j++) {
        out[j] = 0;
    }
    for (int32_t t = first; t <= last; t++) {
        *max = fmax(*max, score_of(a, q, t));
    }
    for (int32_t t = first; t <= last; t++) {
        double p = exp(score_of(a, q, t) - *max);
        const unsigned char *page = a->values + (size_t)a->pages[t / KV_PAGE_TOKENS] * a->page_bytes;
        *sum += p;
        for (int j = 0; j < a->kv.d_value; j++) {
            out[j] += p * (double)kv_value_at(&a->kv, page, t % KV_PAGE_TOKENS, j);
        }
    }
}

/* Returns the weight that a head's sink adds to the sum. */
static double sink_weight(const struct kern_attention_args *a, int g, double max)
{
    return a->sinks == NULL ? 0 : exp(a->sinks[g] - max);
}

static void attention(const struct kern_attention_args *a)
{
    double max, sum, out[KERN_MAX_HEAD];
    for (int r = 0; r < a->n_rows; r++) {
        for (int g = 0; g < a->n_group; g++) {
            struct query q = query_of(a, r, g);
            attend(a, &q, kern_visible_from(a, r), a->pos[r], &max, &sum, out);
            sum += sink_weight(a, g, max);
            for (int j = 0; j < a->kv.d_value; j++) {
                a->out[(size_t)r * a->out_stride + (size_t)(g * a->kv.d_value + j)] = (float)(out[j] / sum);
            }
        }
    }
}

static void one_segment(const struct kern_attention_args *a, int32_t segment, float *part)
{
    double max, sum, out[KERN_MAX_HEAD];
    int width = kv_value_width(a->kv.d_value);
    for (int i = 0; i < a->n_rows * a->n_group; i++, part += kern_part_floats(a->kv.d_value)) {
        int r = i / a->n_group, g = i % a->n_group;
        int32_t first = MAX_OF(kern_visible_from(a, r), segment * KERN_SEGMENT_TOKENS);
        int32_t last = MIN_OF(a->pos[r], segment * KERN_SEGMENT_TOKENS + KERN_SEGMENT_TOKENS - 1);
        struct query q = query_of(a, r, g);
        attend(a, &q, first, last, &max, &sum, out);
        for (int j = 0; j < a->kv.d_value; j++) {
            part[j] = (float)out[j];
        }
        part[width] = (float)max;
        part[width + 1] = (float)sum;
    }
}

static void attention_part(const struct kern_attention_args *a, int32_t segment, int n, float *parts,
                           size_t part_stride)
{
    for (int i = 0; i < n; i++) {
        one_segment(a, segment + i, parts + (size_t)i * part_stride);
    }
}

static void join(const struct kern_attention_args *a, const float *parts, size_t stride, int n, int g, float *out)
{
    const int d = a->kv.d_value;
    double max = -INFINITY, sum = 0, acc[KERN_MAX_HEAD] = {0};
    const int width = kv_value_width(d);
    for (int s = 0; s < n; s++) {
        const float *p = parts + (size_t)s * stride;
        max = p[width + 1] != 0 ? fmax(max, p[width]) : max;
    }
    for (int s = 0; s < n; s++) {
        const float *p = parts + (size_t)s * stride;
        double factor = p[width + 1] != 0 ? exp(p[width] - max) : 0;
        sum += p[width + 1] * factor;
        for (int j = 0; j < d; j++) {
            acc[j] += factor != 0 || isnan(factor) ? p[j] * factor : 0;
        }
    }
    sum += sink_weight(a, g, max);
    for (int j = 0; j < d; j++) {
        out[j] = (float)(acc[j] / sum);
    }
}

static void attention_join(const struct kern_attention_args *a, const float *parts, size_t part_stride, int n)
{
    for (int i = 0; i < a->n_rows * a->n_group; i++) {
        join(a, parts + (size_t)i * kern_part_floats(a->kv.d_value), part_stride, n, i % a->n_group,
             a->out + (size_t)(i / a->n_group) * a->out_stride + (size_t)(i % a->n_group * a->kv.d_value));
    }
}

void kern_attention_init_ref(struct kern_table *t)
{
    t->attention = attention;
    t->attention_part = attention_part;
    t->attention_join = attention_join;
}
