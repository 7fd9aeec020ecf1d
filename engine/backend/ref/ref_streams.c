/* Sums, streams and factors of the reference back end, in double. */
#include "engine/backend/ref/ref_internal.h"

#include <math.h>

/* Returns the number that a sparse gate subtracts from each of x[n]: mean + cutoff * standard deviation. */
static double cutoff_of(const float *x, uint32_t n, float cutoff)
{
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean += (double)x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    return mean + (double)cutoff * sqrt(squares / n);
}

static double mean_square(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sum / n;
}

/* Applies the step to src[n] and writes dst[n]. w[n] and level[n] can be NULL; dst can be src. */
static void add(const struct plan_step *s, const float *src, const float *w, const float *level, uint32_t n, float *dst)
{
    double factor = 1;
    if (level != NULL) {
        factor = sqrt(mean_square(level, n) / fmax(mean_square(src, n), (double)s->eps));
    }
    for (uint32_t i = 0; i < n; i++) {
        double y = src[i] * factor * (w != NULL ? (double)w[i] : 1.0);
        dst[i] = (float)((double)s->scale * (y + (s->adds ? (double)dst[i] : 0.0)));
    }
}

/* Computes out[n_out] = coefs[n_out][n] tanh(logits[n]). */
static void mix(const float *coefs, const float *logits, uint32_t n_out, uint32_t n, double *out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            out[i] += coefs[i * n + j] * tanh((double)logits[j]);
        }
    }
}

/* Predicts streams x[n_streams][width], in place, from the router's logits[n_streams]. coefs: w[0] of the step. */
static void predict(const struct plan_step *s, const float *logits, const float *coefs, uint32_t width, float *const *x)
{
    uint32_t n = s->streams.n;
    double c[PLAN_MAX_STREAMS * PLAN_MAX_STREAMS], old[PLAN_MAX_STREAMS];
    mix(coefs, logits, n * n, n, c);
    for (uint32_t k = 0; k < width; k++) {
        for (uint32_t j = 0; j < n; j++) {
            old[j] = x[j][k];
        }
        for (uint32_t i = 0; i < n; i++) {
            double sum = old[i];
            for (uint32_t j = 0; j < n; j++) {
                sum += c[i * n + j] * old[j];
            }
            x[i][k] = (float)sum;
        }
    }
}

/* Corrects the streams with the block's output, block[width]. */
static void correct(const struct plan_step *s, const float *logits, const float *coefs, const float *block,
                    uint32_t width, float *const *x)
{
    double c[PLAN_MAX_STREAMS];
    mix(coefs, logits, s->streams.n, s->streams.n, c);
    for (uint32_t k = 0; k < width; k++) {
        double change = (double)block[k] - x[s->streams.first][k];
        for (uint32_t i = 0; i < s->streams.n; i++) {
            x[i][k] = (float)(x[i][k] + (1 + c[i]) * change);
        }
    }
}

/* Multiplies x by GELU of `by`, or of the part of `by` above its cutoff. */
static void run_gelu_gate(const struct plan_step *s, const float *by, uint32_t width, float *x)
{
    double cutoff = s->multiply.is_sparse ? cutoff_of(by, width, s->multiply.cutoff) : 0;
    for (uint32_t n = 0; n < width; n++) {
        double gate = s->multiply.is_sparse && by[n] < cutoff ? 0 : by[n] - cutoff;
        x[n] *= s->scale * ref_math_activate(PLAN_GELU_TANH, (float)gate);
    }
}

/* Multiplies dst by scale and by a part of src. */
void ref_streams_multiply_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->dst].width;
    const float *by = s->src == PLAN_NONE ? NULL : ref_row(r, s->src, i) + s->multiply.first;
    float *x = ref_row(r, s->dst, i);
    if (by != NULL && s->multiply.map == PLAN_MAP_GELU_TANH) {
        run_gelu_gate(s, by, width, x);
        return;
    }
    for (uint32_t n = 0; n < width; n++) {
        x[n] = x[n] * s->scale * (by != NULL ? ref_math_map(s->multiply.map, by[n]) : 1.0f);
    }
}

void ref_streams_sum_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const float *level = s->sum.level != PLAN_NONE ? ref_row(r, s->sum.level, i) : NULL;
    add(s, ref_row(r, s->src, i), ref_vector(r, s->w[0]), level, r->m->plan->bufs[s->dst].width, ref_row(r, s->dst, i));
}

void ref_streams_reduce_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const float *sums = ref_row(r, s->src, i);
    float *dst = ref_row(r, s->dst, i);
    for (uint32_t k = 0; k < r->m->plan->bufs[s->dst].width; k++) {
        dst[k] = s->scale * sums[k] + (s->adds ? dst[k] : 0);
    }
}

/* Lists the streams of row i. */
static void list_streams(const struct ref_run *r, int32_t i, float *x[PLAN_MAX_STREAMS])
{
    for (uint32_t k = 0; k < r->step->streams.n; k++) {
        x[k] = ref_row(r, r->step->dst + (plan_buf_id)k, i);
    }
}

void ref_streams_predict_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    float *x[PLAN_MAX_STREAMS];
    list_streams(r, i, x);
    predict(s, ref_row(r, s->src, i), ref_vector(r, s->w[0]), r->m->plan->bufs[s->dst].width, x);
}

void ref_streams_correct_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    float *x[PLAN_MAX_STREAMS];
    list_streams(r, i, x);
    correct(s, ref_row(r, s->streams.routes, i), ref_vector(r, s->w[0]), ref_row(r, s->src, i),
            r->m->plan->bufs[s->dst].width, x);
}
