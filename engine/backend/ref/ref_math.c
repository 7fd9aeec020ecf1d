/* Dequantized rows, dot products, norms and activations of the reference back end. */
#include "engine/backend/ref/ref_internal.h"

#include <math.h>

void ref_math_dequantize(const struct plan_weight *w, uint32_t row, float *out)
{
    w->source->ops->read(w->source, row, 0, w->n_in, out);
}

float ref_math_dot(const float *a, const float *b, uint32_t n)
{
    double sum[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        sum[i % 4] += (double)a[i] * b[i];
    }
    return (float)((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void ref_math_rmsnorm(const float *x, const float *w, float eps, uint32_t n, float *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    double scale = 1.0 / sqrt(sum / n + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (float)(x[i] * scale * (w == NULL ? 1.0 : (double)w[i]));
    }
}

double ref_math_variance(const float *x, uint32_t n, double *mean)
{
    double squares = 0;
    *mean = 0;
    for (uint32_t i = 0; i < n; i++) {
        *mean += (double)x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += (x[i] - *mean) * (x[i] - *mean);
    }
    return squares / n;
}

/* [Ba 2016]; w and bias can be NULL. */
void ref_math_layer_norm(const float *x, const float *w, const float *bias, float eps, uint32_t n, float *out)
{
    double mean, scale = 1.0 / sqrt(ref_math_variance(x, n, &mean) + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        double y = (x[i] - mean) * scale * (w == NULL ? 1.0 : (double)w[i]);
        out[i] = (float)(y + (bias == NULL ? 0.0 : (double)bias[i]));
    }
}

float ref_math_activate(enum plan_act act, float x)
{
    double v = x;
    switch (act) {
    case PLAN_SILU:
        return (float)(v / (1.0 + exp(-v)));
    case PLAN_GELU_TANH: /* 0.7978845608 = sqrt(2/pi) [Hendrycks & Gimpel 2016] */
        return (float)(0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))));
    case PLAN_GELU:
        return (float)(0.5 * v * (1.0 + erf(v * 0.7071067811865476)));
    case PLAN_RELU:
        return x > 0 ? x : 0;
    case PLAN_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case PLAN_CLAMPED: /* gpt-oss */
        v = v > 7 ? 7 : v;
        return (float)(v / (1.0 + exp(-1.702 * v)));
    }
    return x;
}

float ref_math_glu(const struct plan_step *s, float gate, float up)
{
    gate = s->gate_limit != 0 && gate > s->gate_limit ? s->gate_limit : gate;
    up = s->up_limit != 0 && up > s->up_limit ? s->up_limit : up;
    up = s->up_limit != 0 && up < -s->up_limit ? -s->up_limit : up;
    if (s->act == PLAN_CLAMPED) {
        up = MAX_OF(-7.0f, MIN_OF(7.0f, up)) + 1;
    }
    return ref_math_activate(s->act, gate) * up;
}

double ref_math_softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

float ref_math_map(enum plan_map how, double v)
{
    if (how == PLAN_MAP_NONE) {
        return (float)v;
    }
    if (how == PLAN_MAP_SOFTPLUS) {
        return (float)ref_math_softplus(v);
    }
    return (float)((how == PLAN_MAP_SILU ? v : 1.0) / (1.0 + exp(-v)));
}
