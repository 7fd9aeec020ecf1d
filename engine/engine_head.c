/* The layers after the pooling: those of embeddings and the head of a reranker. The thread that waits for the result
 * computes them, in double and in a fixed order, so that the bits depend only on the states. */
#include "engine/engine_internal.h"

#include <math.h>

/* A struct plan_dense as floats. */
struct layer {
    const float *weight; /* [n_out][n_in] */
    const float *bias;   /* [n_out], OPTIONAL */
    const float *norm;   /* [n_out], OPTIONAL */
    uint32_t n_in, n_out;
    enum plan_dense_act act;
    double eps;
};

struct engine_head {
    struct layer layers[PLAN_MAX_DENSE];
    int n;
    uint32_t widest; /* widest input or output of a layer */
};

/* Returns NULL for a NULL source without an error: *ok is unchanged. */
static const float *load(struct arena *arena, const struct row_source *s, bool *ok, bool *is_finite)
{
    float *out = s != NULL ? arena_zalloc_array(arena, (size_t)s->n_rows * s->n_in, sizeof *out) : NULL;
    *ok = *ok && (s == NULL || out != NULL);
    for (uint32_t row = 0; out != NULL && row < s->n_rows; row++) {
        float *to = out + (size_t)row * s->n_in;
        s->ops->read(s, row, 0, s->n_in, to);
        for (uint32_t i = 0; i < s->n_in; i++) {
            *is_finite = *is_finite && isfinite(to[i]);
        }
    }
    return out;
}

enum err engine_head_load(struct arena *arena, const struct plan_head *p, struct engine_head **out,
                          struct err_info *info)
{
    bool ok = true, is_finite = true;
    struct engine_head *h = arena_zalloc(arena, sizeof *h);
    for (int i = 0; h != NULL && i < p->n; i++) {
        const struct plan_dense *d = &p->layers[i];
        struct layer *l = &h->layers[h->n++];
        *l = (struct layer){.n_in = d->weight->n_in, .n_out = d->weight->n_rows, .act = d->act, .eps = (double)d->eps};
        l->weight = load(arena, d->weight, &ok, &is_finite);
        l->bias = load(arena, d->bias, &ok, &is_finite);
        l->norm = load(arena, d->norm, &ok, &is_finite);
        h->widest = MAX_OF(h->widest, MAX_OF(l->n_in, l->n_out));
    }
    if (h == NULL || !ok) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the layers after pooling");
    }
    if (!is_finite) {
        return err_set(info, ERR_NUMERICAL, "cls.output.weight",
                       "dense_2, dense_3, cls, cls.output: expected finite numbers, found another");
    }
    *out = h;
    return ERR_OK;
}

size_t engine_head_room(const struct engine_head *h) { return h != NULL ? 2 * (size_t)h->widest : 0; }

/* Eight partial sums, which vectorize. */
static double product(const float *a, const double *b, uint32_t n)
{
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t k = 0; k < LANES; k++) {
            sums[k] += (double)a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        sum += (double)a[i] * b[i];
    }
    for (uint32_t k = 0; k < LANES; k++) {
        sum += sums[k];
    }
    return sum;
}

static double act(enum plan_dense_act kind, double x)
{
    switch (kind) {
    case PLAN_DENSE_TANH:
        return tanh(x);
    case PLAN_DENSE_RELU:
        return fmax(x, 0);
    case PLAN_DENSE_GELU:
        return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case PLAN_DENSE_SILU:
        return x / (1 + exp(-x));
    case PLAN_DENSE_SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return x;
    }
}

/* Applies LayerNorm in place. */
static void normalize(const struct layer *l, double *x)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < l->n_out; i++) {
        mean += x[i] / l->n_out;
    }
    for (uint32_t i = 0; i < l->n_out; i++) {
        square += (x[i] - mean) * (x[i] - mean) / l->n_out;
    }
    double scale = 1 / sqrt(square + l->eps);
    for (uint32_t i = 0; i < l->n_out; i++) {
        x[i] = (x[i] - mean) * scale * l->norm[i];
    }
}

const double *engine_head_run(const struct engine_head *h, const float *states, double *room)
{
    double *x = room, *y = room + h->widest;
    for (uint32_t i = 0; i < h->layers[0].n_in; i++) {
        x[i] = (double)states[i];
    }
    for (int i = 0; i < h->n; i++) {
        const struct layer *l = &h->layers[i];
        for (uint32_t k = 0; k < l->n_out; k++) {
            double sum = product(l->weight + (size_t)k * l->n_in, x, l->n_in);
            y[k] = act(l->act, sum + (l->bias != NULL ? (double)l->bias[k] : 0));
        }
        if (l->norm != NULL) {
            normalize(l, y);
        }
        double *other = x;
        x = y;
        y = other;
    }
    return x;
}
