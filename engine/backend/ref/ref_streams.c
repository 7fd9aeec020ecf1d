/* Sums, streams and factors of the reference back end, in double. */
#include "engine/backend/ref/ref_internal.h"

#include <math.h>

/* Returns the number that a sparse gate subtracts from each of x[n]: mean + cutoff * standard deviation. */
static double cutoff_of(const float *x, uint32_t n, float cutoff)
{
    double mean, variance = ref_math_variance(x, n, &mean);
    return mean + (double)cutoff * sqrt(variance);
}

static double mean_square(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sum / n;
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
    uint32_t repeats = MAX_OF(s->multiply.repeats, 1u);
    for (uint32_t n = 0; n < width; n++) {
        x[n] = x[n] * s->scale * (by != NULL ? ref_math_map(s->multiply.map, by[n / repeats]) : 1.0f);
    }
}

void ref_streams_xielu_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    double alpha_p = (double)s->xielu.alpha_p, alpha_n = (double)s->xielu.alpha_n, beta = (double)s->xielu.beta;
    float *row = ref_row(r, s->dst, i);
    for (uint32_t n = 0; n < r->m->plan->bufs[s->dst].width; n++) {
        double x = row[n], least = fmin(x, (double)s->xielu.eps);
        row[n] = (float)((x > 0 ? alpha_p * x * x : alpha_n * (expm1(least) - x)) + beta * x);
    }
}

void ref_streams_sum_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    uint32_t n = r->m->plan->bufs[s->dst].width;
    const float *src = ref_row(r, s->src, i), *w = ref_vector(r, s->w[0]);
    float *dst = ref_row(r, s->dst, i); /* can be src */
    double factor = 1;
    if (s->sum.level != PLAN_NONE) {
        factor = sqrt(mean_square(ref_row(r, s->sum.level, i), n) / fmax(mean_square(src, n), (double)s->eps));
    }
    for (uint32_t k = 0; k < n; k++) {
        double y = src[k] * factor * (w != NULL ? (double)w[k] : 1.0);
        dst[k] = (float)((double)s->scale * (y + (s->adds ? (double)dst[k] : 0.0)));
    }
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
    uint32_t n = s->streams.n;
    float *x[PLAN_MAX_STREAMS];
    double c[PLAN_MAX_STREAMS * PLAN_MAX_STREAMS], old[PLAN_MAX_STREAMS];
    list_streams(r, i, x);
    mix(ref_vector(r, s->w[0]), ref_row(r, s->src, i), n * n, n, c);
    for (uint32_t k = 0; k < r->m->plan->bufs[s->dst].width; k++) {
        for (uint32_t j = 0; j < n; j++) {
            old[j] = x[j][k];
        }
        for (uint32_t a = 0; a < n; a++) {
            double sum = old[a];
            for (uint32_t j = 0; j < n; j++) {
                sum += c[a * n + j] * old[j];
            }
            x[a][k] = (float)sum;
        }
    }
}

void ref_streams_correct_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const float *block = ref_row(r, s->src, i);
    float *x[PLAN_MAX_STREAMS];
    double c[PLAN_MAX_STREAMS];
    list_streams(r, i, x);
    mix(ref_vector(r, s->w[0]), ref_row(r, s->streams.routes, i), s->streams.n, s->streams.n, c);
    for (uint32_t k = 0; k < r->m->plan->bufs[s->dst].width; k++) {
        double change = (double)block[k] - x[s->streams.first][k];
        for (uint32_t a = 0; a < s->streams.n; a++) {
            x[a][k] = (float)(x[a][k] + (1 + c[a]) * change);
        }
    }
}
