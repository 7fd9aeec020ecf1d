/* Heads of recurrent steps. Each column of a state is taken by itself, from one row to the next. */
#include "engine/backend/ref/ref_recurrent.h"

#include <math.h>

double ref_recurrent_softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

/* out = x of length 1, times scale. The floor is that of transformers 5 and flash-linear-attention. */
static void bring_to_length(const float *x, uint32_t n, double scale, double *out)
{
    double sum = 1e-6;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i] * scale / sqrt(sum);
    }
}

void ref_recurrent_delta(const struct plan_delta *d, const float *q, const float *k, const float *v, double decay,
                         double beta, float *state, float *out)
{
    double query[PLAN_MAX_HEAD], key[PLAN_MAX_HEAD], column[PLAN_MAX_HEAD];
    bring_to_length(q, d->key_dim, 1.0 / sqrt(d->key_dim), query);
    bring_to_length(k, d->key_dim, 1.0, key);
    for (uint32_t n = 0; n < d->value_dim; n++) {
        double known = 0, y = 0;
        for (uint32_t j = 0; j < d->key_dim; j++) {
            column[j] = decay * state[(size_t)j * d->value_dim + n];
            known += column[j] * key[j];
        }
        double change = beta * (v[n] - known);
        for (uint32_t j = 0; j < d->key_dim; j++) {
            column[j] += key[j] * change;
            y += column[j] * query[j];
            state[(size_t)j * d->value_dim + n] = (float)column[j];
        }
        out[n] = (float)y;
    }
}

void ref_recurrent_ssm(const struct plan_ssm *m, const struct ref_recurrent_ssm *head, float *state, float *out)
{
    double decay = exp(head->dt * head->rate);
    for (uint32_t i = 0; i < m->head_dim; i++) {
        double y = 0, input = head->dt * head->x[i];
        for (uint32_t j = 0; j < m->state_dim; j++) {
            float *at = state + (size_t)j * m->head_dim + i;
            double s = decay * *at + head->in[j] * input;
            y += s * head->out[j];
            *at = (float)s;
        }
        out[i] = (float)(y + head->skip * head->x[i]);
    }
}
