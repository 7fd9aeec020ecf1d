#include "engine/backend/ref/ref_streams.h"

#include <math.h>

double ref_streams_cutoff(const float *x, uint32_t n, float cutoff)
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

void ref_streams_sum(const struct plan_step *s, const float *src, const float *w, const float *level, uint32_t n,
                     float *dst)
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

/* out[n_out] = coefs[n_out][n] tanh(logits[n]). */
static void mix(const float *coefs, const float *logits, uint32_t n_out, uint32_t n, double *out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            out[i] += coefs[i * n + j] * tanh((double)logits[j]);
        }
    }
}

void ref_streams_predict(const struct plan_step *s, const float *logits, const float *coefs, uint32_t width,
                         float *const *x)
{
    uint32_t n = s->n_streams;
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

void ref_streams_correct(const struct plan_step *s, const float *logits, const float *coefs, const float *block,
                         uint32_t width, float *const *x)
{
    double c[PLAN_MAX_STREAMS];
    mix(coefs, logits, s->n_streams, s->n_streams, c);
    for (uint32_t k = 0; k < width; k++) {
        double change = (double)block[k] - x[s->first][k];
        for (uint32_t i = 0; i < s->n_streams; i++) {
            x[i][k] = (float)(x[i][k] + (1 + c[i]) * change);
        }
    }
}
