/* Experts and their gate in the reference back end. */
#include "engine/backend/ref/ref_internal.h"

#include <math.h>
#include <string.h>

/* Computes out[n] = factor * (x . row n of expert e in w[k]), plus its bias. */
static void multiply_rows(const struct ref_run *r, int k, uint32_t e, const float *x, float factor, float *out)
{
    const struct plan_weight *w = &r->m->plan->weights[r->step->w[k]];
    const float *bias = ref_vector(r, r->step->bias[k]);
    uint32_t n_out = w->n_out / r->m->plan->moe.n_experts, first = e * n_out;
    for (uint32_t n = 0; n < n_out; n++) {
        ref_math_dequantize(w, first + n, r->scratch);
        out[n] = factor * ref_math_dot(x, r->scratch, w->n_in) + (bias != NULL ? bias[first + n] : 0);
    }
}

/* Computes all experts of one row, in ascending order of their ids. */
void ref_experts_row(const struct ref_run *r, int32_t i)
{
    const struct plan *p = r->m->plan;
    const struct plan_step *s = r->step;
    uint32_t k = p->moe.n_used, width = p->bufs[s->dst].width, ff = p->weights[s->w[2]].n_in;
    bool is_gated = s->w[1] != PLAN_NONE;
    float *gate = r->scratch + r->m->widest, *up = gate + r->m->widest, *y = up + r->m->widest;
    const float *route = ref_row(r, s->experts.route, i), *x = ref_row(r, s->src, i);
    if (!s->adds) {
        memset(ref_row(r, s->dst, i), 0, width * sizeof(float));
    }
    for (uint32_t e = 0; e < p->moe.n_experts; e++) {
        for (uint32_t slot = 0; slot < k; slot++) {
            if (route[k + slot] != (float)e) {
                continue;
            }
            float in = s->experts.weighs_input ? route[slot] : 1, out = s->experts.weighs_input ? 1 : route[slot];
            multiply_rows(r, 0, e, x, in, gate);
            if (is_gated) {
                multiply_rows(r, 1, e, x, in, up);
            }
            for (uint32_t n = 0; n < ff; n++) {
                gate[n] = is_gated ? ref_math_glu(s, gate[n], up[n]) : ref_math_activate(s->act, gate[n]);
            }
            multiply_rows(r, 2, e, gate, 1, y);
            for (uint32_t n = 0; n < width; n++) {
                ref_row(r, s->dst, i)[n] += s->scale * out * y[n];
            }
        }
    }
}

/* Computes dst *= sigmoid(src . w[0]). */
void ref_experts_gate_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    const struct plan_weight *w = &r->m->plan->weights[s->w[0]];
    ref_math_dequantize(w, 0, r->scratch);
    double factor = 1.0 / (1.0 + exp(-(double)ref_math_dot(ref_row(r, s->src, i), r->scratch, w->n_in)));
    for (uint32_t n = 0; n < r->m->plan->bufs[s->dst].width; n++) {
        ref_row(r, s->dst, i)[n] = (float)(ref_row(r, s->dst, i)[n] * factor);
    }
}
