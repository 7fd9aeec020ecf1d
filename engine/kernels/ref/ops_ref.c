/* Reference versions of the small operations: plain loops, libm, sums in double. */
#include "engine/kernels/isa.h"
#include "engine/kernels/kern.h"

#include <math.h>

static void rmsnorm(const float *x, const float *w, float eps, size_t k, float *out)
{
    double sum = 0;
    for (size_t i = 0; i < k; i++) {
        sum += (double)x[i] * x[i];
    }
    double scale = 1.0 / sqrt(sum / (double)k + (double)eps);
    for (size_t i = 0; i < k; i++) {
        out[i] = (float)(x[i] * scale * (w == NULL ? 1.0 : (double)w[i]));
    }
}

static void add(float *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] += src[i];
    }
}

static double activate(enum kern_act act, double x)
{
    switch (act) {
    case KERN_ACT_SILU:
        return x / (1.0 + exp(-x));
    case KERN_ACT_GELU_TANH: /* x * sigmoid(2u) = x/2 * (1 + tanh u), u = sqrt(2/pi) * (x + 0.044715 x^3) */
        return x / (1.0 + exp(-2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case KERN_ACT_GELU:
        return 0.5 * x * erfc(x * -0.7071067811865476); /* 1 + erf cancels for x < 0 */
    case KERN_ACT_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case KERN_ACT_RELU_SQUARED:
        return x < 0 ? 0 : x * x;
    default:
        return x < 0 ? 0 : x; /* a NaN stays NaN */
    }
}

static void glu(enum kern_act act, const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        if (act == KERN_ACT_CLAMPED) {
            double x = gate[i] > 7 ? 7 : gate[i], y = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];
            out[i] = (float)(x / (1.0 + exp(-1.702 * x)) * (y + 1));
        } else {
            out[i] = (float)(activate(act, gate[i]) * up[i]);
        }
    }
}

static void rope(float *x, int n_rot, bool neox, const float *cos_row, const float *sin_row)
{
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *a = x + (neox ? i : 2 * i), *b = x + (neox ? i + half : 2 * i + 1);
        float a0 = *a, b0 = *b;
        *a = a0 * cos_row[i] - b0 * sin_row[i];
        *b = a0 * sin_row[i] + b0 * cos_row[i];
    }
}

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])) ? i : best;
    }
    return best;
}

static float logsumexp(const float *x, int32_t n, float *max)
{
    *max = x[argmax(x, n)];
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - *max);
    }
    return (float)(log(sum) + *max);
}

/* Computes column n, row by row; the state is float between rows. */
static void linear_column(const struct kern_linear_args *a, int n)
{
    for (int t = 0; t < a->n_rows; t++) {
        const float *q = a->q + (size_t)t * a->qk_stride, *k = a->k + (size_t)t * a->qk_stride;
        const float *decay = a->key_decay != NULL ? a->key_decay + (size_t)t * (size_t)a->n_keys : a->decay + t;
        int step = a->key_decay != NULL;
        double known = 0, y = 0;
        for (int j = 0; j < a->n_keys && a->corrects; j++) {
            known +=
                (double)decay[j * step] * (double)a->state[(size_t)j * (size_t)a->n_cols + (size_t)n] * (double)k[j];
        }
        double change = (double)a->rate[t] * ((double)a->v[(size_t)t * a->v_stride + (size_t)n] - known);
        for (int j = 0; j < a->n_keys; j++) {
            float *s = a->state + (size_t)j * (size_t)a->n_cols + n;
            double renewed = (double)decay[j * step] * (double)*s + (double)k[j] * change;
            y += renewed * (double)q[j];
            *s = (float)renewed;
        }
        a->out[(size_t)t * a->out_stride + (size_t)n] = (float)y;
    }
}

static void linear_attention(const struct kern_linear_args *a)
{
    for (int n = a->first_col; n < a->last_col; n++) {
        linear_column(a, n);
    }
}

static void selective_scan(const struct kern_scan_args *a)
{
    for (int i = 0; i < a->n_rows * a->n_cols; i++) {
        size_t t = (size_t)(i / a->n_cols), n = (size_t)(i % a->n_cols);
        double dt = (double)a->dt[t * a->dt_stride + n], in = dt * (double)a->x[t * a->x_stride + n], y = 0;
        for (size_t j = 0; j < (size_t)a->n_states; j++) {
            size_t at = j * (size_t)a->n_cols + n;
            double s = exp(dt * (double)a->a[at]) * (double)a->state[at] + (double)a->b[t * a->b_stride + j] * in;
            y += s * (double)a->c[t * a->c_stride + j];
            a->state[at] = (float)s;
        }
        a->out[t * a->out_stride + n] = (float)y;
    }
}

static void decay(const float *x, const float *bias, float rate, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        double sum = (double)x[i] + (double)bias[i], softplus = sum > 30 ? sum : log1p(exp(sum));
        out[i] = (float)exp((double)rate * softplus);
    }
}

void kern_ops_init_ref(struct kern_table *t)
{
    t->decay = decay;
    t->linear_attention = linear_attention;
    t->selective_scan = selective_scan;
    t->rmsnorm = rmsnorm;
    t->add = add;
    t->glu = glu;
    t->rope = rope;
    t->kv_store = kern_kv_store_ref;
    kern_attention_init_ref(t);
    t->argmax = argmax;
    t->logsumexp = logsumexp;
}
