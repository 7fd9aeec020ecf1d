/* Rows of sums, of streams and of sparse gates (plan.h). Plain C: these steps read a few rows where the matmuls around
 * them read matrices. Sums go in an order of their own, whatever the vector width. */
#include "engine/backend/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, PIECE = 256 /* components at a time, which stay in L1 */ };

/* The sum of x less `shift`, or of its squares. */
static double sum_of(const float *x, size_t n, bool squares, double shift)
{
    double sums[LANES] = {0};
    for (size_t at = 0; at < n; at += LANES) {
        for (size_t i = 0; i < MIN_OF(n - at, (size_t)LANES); i++) {
            double v = x[at + i] - shift;
            sums[i] += squares ? v * v : v;
        }
    }
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t i = 0; i < step; i++) {
            sums[i] += sums[i + step];
        }
    }
    return sums[0];
}

void cpu_streams_gate(const struct backend_model *m, const struct plan_step *s, const float *x, size_t n, float *out)
{
    _Alignas(64) float gate[PIECE];
    float cutoff = 0;
    if (s->is_sparse) {
        double mean = sum_of(x, n, false, 0) / (double)n;
        cutoff = (float)(mean + (double)s->cutoff * sqrt(sum_of(x, n, true, mean) / (double)n));
    }
    for (size_t at = 0, here; at < n; at += here) {
        here = MIN_OF(n - at, (size_t)PIECE);
        for (size_t i = 0; s->is_sparse && i < here; i++) {
            float v = x[at + i] - cutoff;
            gate[i] = v < 0 ? 0 : v; /* a NaN stays one */
        }
        m->kern.glu(KERN_ACT_GELU_TANH, s->is_sparse ? gate : x + at, out + at, here, out + at);
    }
}

void cpu_streams_sum(const struct plan_step *s, const float *src, const float *w, const float *level, size_t n,
                     float *dst)
{
    float factor = 1;
    if (level != NULL) { /* both are sums over n */
        double floor = (double)s->eps * (double)n;
        factor = (float)sqrt(sum_of(level, n, true, 0) / fmax(sum_of(src, n, true, 0), floor));
    }
    for (size_t i = 0; i < n; i++) {
        float y = src[i] * factor;
        y = w != NULL ? y * w[i] : y;
        dst[i] = s->scale * (s->adds ? dst[i] + y : y);
    }
}

/* out[n_out] = coefs[n_out][n] tanh(logits[n]). */
static void mix(const float *coefs, const float *logits, size_t n_out, size_t n, float *out)
{
    float modes[PLAN_MAX_STREAMS];
    for (size_t j = 0; j < n; j++) {
        modes[j] = tanhf(logits[j]);
    }
    for (size_t i = 0; i < n_out; i++) {
        out[i] = 0;
        for (size_t j = 0; j < n; j++) {
            out[i] += coefs[i * n + j] * modes[j];
        }
    }
}

void cpu_streams_predict(const struct plan_step *s, const float *logits, const float *coefs, size_t width,
                         float *const *x)
{
    size_t n = s->n_streams;
    float c[PLAN_MAX_STREAMS * PLAN_MAX_STREAMS], old[PLAN_MAX_STREAMS][PIECE];
    mix(coefs, logits, n * n, n, c);
    for (size_t at = 0, here; at < width; at += here) {
        here = MIN_OF(width - at, (size_t)PIECE);
        for (size_t j = 0; j < n; j++) {
            memcpy(old[j], x[j] + at, here * sizeof(float));
        }
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < n; j++) {
                for (size_t k = 0; k < here; k++) {
                    x[i][at + k] += c[i * n + j] * old[j][k];
                }
            }
        }
    }
}

void cpu_streams_correct(const struct plan_step *s, const float *logits, const float *coefs, const float *block,
                         size_t width, float *const *x)
{
    float c[PLAN_MAX_STREAMS], change[PIECE];
    mix(coefs, logits, s->n_streams, s->n_streams, c);
    for (size_t at = 0, here; at < width; at += here) {
        here = MIN_OF(width - at, (size_t)PIECE);
        for (size_t k = 0; k < here; k++) {
            change[k] = block[at + k] - x[s->first][at + k];
        }
        for (size_t i = 0; i < s->n_streams; i++) {
            for (size_t k = 0; k < here; k++) {
                x[i][at + k] += (1 + c[i]) * change[k];
            }
        }
    }
}
