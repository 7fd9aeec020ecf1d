/* Steps on factors, sums and streams (plan.h). Plain C, because these steps read a few rows and the matmuls around them
 * whole matrices. The order of sums does not depend on the vector width. */
#include "engine/backend/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, PIECE = 256 /* components per piece, which stay in L1 */ };

/* Returns the sum of x - shift, or of its squares. */
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

/* Multiplies out by GELU of x, or of the part of x above its cutoff. out is 64-byte aligned; x can be unaligned. */
static void gate_row(const struct backend_model *m, const struct plan_step *s, const float *x, size_t n, float *out)
{
    _Alignas(64) float gate[PIECE];
    float cutoff = 0;
    if (s->multiply.is_sparse) {
        double mean = sum_of(x, n, false, 0) / (double)n;
        cutoff = (float)(mean + (double)s->multiply.cutoff * sqrt(sum_of(x, n, true, mean) / (double)n));
    }
    for (size_t at = 0, here; at < n; at += here) {
        here = MIN_OF(n - at, (size_t)PIECE);
        for (size_t i = 0; s->multiply.is_sparse && i < here; i++) {
            float v = x[at + i] - cutoff;
            gate[i] = v < 0 ? 0 : v; /* a NaN stays NaN */
        }
        m->kern.glu(KERN_ACT_GELU_TANH, s->multiply.is_sparse ? gate : x + at, out + at, here, out + at);
    }
}

float cpu_softplus(float x) { return x > 30 ? x : log1pf(expf(x)); }

static float map_one(enum plan_map map, float x)
{
    switch (map) {
    case PLAN_MAP_SOFTPLUS:
        return cpu_softplus(x);
    case PLAN_MAP_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case PLAN_MAP_SILU:
        return x / (1.0f + expf(-x));
    default:
        return x;
    }
}

/* Multiplies each `repeats` of out[n] by a factor. */
static void multiply_runs(enum plan_map map, const float *x, size_t n, size_t repeats, float *out)
{
    for (size_t i = 0; i < n; i += repeats, x++) {
        float factor = map_one(map, *x);
        for (size_t j = i; j < i + repeats; j++) {
            out[j] *= factor;
        }
    }
}

void cpu_streams_multiply(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    enum plan_map map = s->multiply.map;
    size_t n = cpu_width(r, s->dst);
    float *out = cpu_row(r, s->dst, row);
    for (size_t i = 0; i < n && s->scale != 1.0f; i++) {
        out[i] *= s->scale;
    }
    if (s->src == PLAN_NONE) {
        return;
    }
    const float *x = cpu_row(r, s->src, row) + s->multiply.first;
    if (s->multiply.repeats > 1 || map == PLAN_MAP_SOFTPLUS) {
        multiply_runs(map, x, n, MAX_OF(s->multiply.repeats, 1u), out);
    } else if (map == PLAN_MAP_GELU_TANH) {
        gate_row(r->m, s, x, n, out);
    } else if (map != PLAN_MAP_NONE) {
        r->m->kern.glu(map == PLAN_MAP_SILU ? KERN_ACT_SILU : KERN_ACT_SIGMOID, x, out, n, out);
    }
    for (size_t i = 0; i < n && map == PLAN_MAP_NONE; i++) {
        out[i] *= x[i];
    }
}

void cpu_streams_xielu(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    float *out = cpu_row(r, s->dst, row);
    for (size_t i = 0, n = cpu_width(r, s->dst); i < n; i++) {
        float x = out[i], least = fminf(x, s->xielu.eps);
        out[i] = (x > 0 ? s->xielu.alpha_p * x * x : s->xielu.alpha_n * (expm1f(least) - x)) + s->xielu.beta * x;
    }
}

void cpu_streams_sum(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    const float *src = cpu_row(r, s->src, row), *w = cpu_vector(r, s->w[0]);
    float *dst = cpu_row(r, s->dst, row), factor = 1;
    size_t n = cpu_width(r, s->dst);
    if (s->sum.level != PLAN_NONE) { /* both are sums over n */
        double level = sum_of(cpu_row(r, s->sum.level, row), n, true, 0), floor = (double)s->eps * (double)n;
        factor = (float)sqrt(level / fmax(sum_of(src, n, true, 0), floor));
    }
    for (size_t i = 0; i < n; i++) {
        float y = src[i] * factor;
        y = w != NULL ? y * w[i] : y;
        dst[i] = s->scale * (s->adds ? dst[i] + y : y);
    }
}

/* One thread calls reduce; then all threads apply the result. */
void cpu_streams_reduce(const struct cpu_run *r)
{
    struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    size_t n = cpu_width(r, s->dst);
    int from, to;
    if (r->thread == 0 && m->reduced == ERR_OK) {
        m->reduced =
            m->cfg.reduce(m->cfg.reduce_arg, cpu_row(r, s->src, 0), r->n_rows, (uint32_t)n, m->strides[s->src]);
    }
    pool_barrier(m->pool);
    pool_share(r->n_rows, r->thread, r->n_threads, &from, &to);
    for (int row = from; row < to; row++) {
        const float *sums = cpu_row(r, s->src, row);
        float *dst = cpu_row(r, s->dst, row);
        for (size_t i = 0; i < n; i++) {
            dst[i] = s->scale * sums[i] + (s->adds ? dst[i] : 0);
        }
    }
}

/* Computes out[n_out] = coefs[n_out][n] tanh(logits[n]). */
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

/* Lists the streams of a row, whose buffers never alternate (cpu_steps.c). */
static void list_streams(const struct cpu_run *r, int32_t row, float *x[PLAN_MAX_STREAMS])
{
    for (uint32_t i = 0; i < r->step->step.streams.n; i++) {
        x[i] = cpu_row(r, r->step->step.dst + (cpu_buf_id)i, row);
    }
}

void cpu_streams_predict(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    size_t n = s->streams.n, width = cpu_width(r, s->dst);
    float c[PLAN_MAX_STREAMS * PLAN_MAX_STREAMS], old[PLAN_MAX_STREAMS][PIECE], *x[PLAN_MAX_STREAMS];
    list_streams(r, row, x);
    mix(cpu_vector(r, s->w[0]), cpu_row(r, s->src, row), n * n, n, c);
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

void cpu_streams_correct(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    const float *block = cpu_row(r, s->src, row);
    size_t width = cpu_width(r, s->dst);
    float c[PLAN_MAX_STREAMS], change[PIECE], *x[PLAN_MAX_STREAMS];
    list_streams(r, row, x);
    mix(cpu_vector(r, s->w[0]), cpu_row(r, s->streams.routes, row), s->streams.n, s->streams.n, c);
    for (size_t at = 0, here; at < width; at += here) {
        here = MIN_OF(width - at, (size_t)PIECE);
        for (size_t k = 0; k < here; k++) {
            change[k] = block[at + k] - x[s->streams.first][at + k];
        }
        for (size_t i = 0; i < s->streams.n; i++) {
            for (size_t k = 0; k < here; k++) {
                x[i][at + k] += (1 + c[i]) * change[k];
            }
        }
    }
}
