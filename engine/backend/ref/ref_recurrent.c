/* Recurrent steps of the reference back end, in double. States are stored in float, like keys. Each column of a state
 * is updated separately, row by row. */
#include "engine/backend/ref/ref_internal.h"
#include "engine/plan/plan_ops.h"

#include <math.h>
#include <string.h>

static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

/* Scales x to length 1, times scale. The floor is the one of transformers 5 and flash-linear-attention. */
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

/* --- states and rows ---------------------------------------------------------------------------------------------- */

static float *state_at(const struct ref_run *r, int32_t id)
{
    return r->m->recurrent + (size_t)id * r->m->plan->recurrent_floats + r->step->recurrent;
}

/* Returns the step's state of the sequence of row `first`, before that row: zeros if the sequence begins, or a copy of
 * the state from which it continues. Threads that share a state [lines][width] by channels each prepare their own
 * channels, `from` to `to`. */
static float *state_of(const struct ref_run *r, int32_t first, uint32_t lines, uint32_t width, int from, int to)
{
    const struct backend_batch *b = r->batch;
    int32_t id = b->states != NULL ? b->states[b->seq[first]] : b->seq[first];
    float *state = state_at(r, id),
          *source = state_at(r, b->begin_states != NULL ? b->begin_states[b->seq[first]] : id);
    for (uint32_t k = 0; k < lines; k++) {
        size_t at = (size_t)k * width + (size_t)from, bytes = (size_t)(to - from) * sizeof *state;
        if (b->pos[first] == 0) {
            memset(state + at, 0, bytes);
        } else if (source != state) {
            memcpy(state + at, source + at, bytes);
        }
    }
    return state;
}

/* Convolves channel n of rows [first, end) of one sequence. copy: the first copy of their states, if any. */
static void convolve(const struct ref_run *r, int32_t first, int32_t end, uint32_t n, int32_t copy, float *state)
{
    const struct backend_batch *b = r->batch;
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    int32_t kept = (int32_t)s->conv.taps - 1;
    const float *w = ref_vector(r, s->w[0]) + (size_t)n * s->conv.taps, *bias = ref_vector(r, s->bias[0]);
    for (int32_t i = first; i < end; i++) {
        double sum = 0;
        for (int32_t j = 0; j <= kept; j++) {
            int32_t at = i - kept + j;
            sum += (double)w[j] *
                   (at >= first ? ref_row(r, s->src, at)[n] : state[(size_t)(at - first + kept) * width + n]);
        }
        ref_row(r, s->dst, i)[n] = ref_math_map(s->conv.map, sum + (bias != NULL ? (double)bias[n] : 0.0));
    }
    for (bool is_own = false; !is_own; copy++) { /* the rows of copies; the sequence's own state is last */
        is_own = copy >= b->n_copies || b->copy_rows[copy] >= end;
        float *to = is_own ? state : state_at(r, b->copy_states[copy]);
        for (int32_t k = 0; k < kept; k++) { /* ascending, because some can move down in the same memory */
            int32_t at = (is_own ? end : b->copy_rows[copy] + 1) - kept + k;
            to[(size_t)k * width + n] =
                at >= first ? ref_row(r, s->src, at)[n] : state[(size_t)(at - first + kept) * width + n];
        }
    }
}

/* Computes channels [from, to) of all rows. */
void ref_recurrent_conv(const struct ref_run *r, int from, int to)
{
    const struct backend_batch *b = r->batch;
    uint32_t width = r->m->plan->bufs[r->step->src].width;
    for (int32_t first = 0, end, copy = 0; first < b->n_rows; first = end) {
        for (end = first + 1; end < b->n_rows && b->seq[end] == b->seq[first];) {
            end++;
        }
        float *state = state_of(r, first, r->step->conv.taps - 1, width, from, to);
        for (int n = from; n < to; n++) {
            convolve(r, first, end, (uint32_t)n, copy, state);
        }
        while (copy < b->n_copies && b->copy_rows[copy] < end) {
            copy++;
        }
    }
}

/* Updates the state [dk][dv] of value head h with row i and computes the head's output [dv]. */
static void delta_row(const struct ref_run *r, int32_t i, uint32_t h, float *state)
{
    const struct plan_step *s = r->step;
    const struct plan_delta *d = &r->m->plan->delta;
    const float *q = ref_row(r, s->src, i) + plan_delta_key_head(d, h) * d->key_dim, *k = q + d->n_k_heads * d->key_dim;
    const float *v = ref_row(r, s->src, i) + 2 * d->n_k_heads * d->key_dim + h * d->value_dim;
    double x = (double)ref_row(r, s->delta.alpha, i)[h] + ref_vector(r, s->bias[0])[h];
    double decay = exp(ref_vector(r, s->w[0])[h] * softplus(x));
    double beta = 1.0 / (1.0 + exp(-(double)ref_row(r, s->delta.beta, i)[h]));
    double query[PLAN_MAX_HEAD], key[PLAN_MAX_HEAD], column[PLAN_MAX_HEAD];
    float *out = ref_row(r, s->dst, i) + h * d->value_dim;
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
    if (s->w[1] != PLAN_NONE) {
        ref_math_rmsnorm(out, ref_vector(r, s->w[1]), s->eps, d->value_dim, out);
    }
}

/* Updates the state [n][p] of head h with row i and computes the head's output [p]. */
static void ssm_row(const struct ref_run *r, int32_t i, uint32_t h, float *state)
{
    const struct plan_step *s = r->step;
    const struct plan_ssm *m = &r->m->plan->ssm;
    const float *all = ref_row(r, s->src, i), *x = all + h * m->head_dim; /* x, B and C */
    const float *in = all + m->n_heads * m->head_dim + h / (m->n_heads / m->n_groups) * m->state_dim;
    const float *out_of = in + m->n_groups * m->state_dim;
    double dt = softplus((double)ref_row(r, s->ssm.dt, i)[h] + ref_vector(r, s->bias[0])[h]);
    double rate = ref_vector(r, s->w[0])[h], skip = ref_vector(r, s->w[1])[h], decay = exp(dt * rate);
    float *out = ref_row(r, s->dst, i) + h * m->head_dim;
    for (uint32_t n = 0; n < m->head_dim; n++) {
        double y = 0, input = dt * x[n];
        for (uint32_t j = 0; j < m->state_dim; j++) {
            float *at = state + (size_t)j * m->head_dim + n;
            double sum = decay * *at + in[j] * input;
            y += sum * out_of[j];
            *at = (float)sum;
        }
        out[n] = (float)(y + skip * x[n]);
    }
}

/* Updates the state of a head with row i and computes the head's output. */
typedef void (*row_fn)(const struct ref_run *r, int32_t i, uint32_t h, float *state);

/* Computes heads [from, to) of all rows. */
static void run_heads(const struct ref_run *r, int from, int to, row_fn run_row)
{
    const struct backend_batch *b = r->batch;
    int head = (int)(plan_state_floats(r->m->plan, r->step) / plan_n_items(r->m->plan, r->step));
    float *state = NULL;
    for (int32_t i = 0, copy = 0; i < b->n_rows; i++) {
        if (i == 0 || b->seq[i] != b->seq[i - 1]) {
            state = state_of(r, i, 1, 0, from * head, to * head);
        }
        for (int h = from; h < to; h++) {
            run_row(r, i, (uint32_t)h, state + (size_t)h * (size_t)head);
        }
        if (copy < b->n_copies && b->copy_rows[copy] == i) {
            memcpy(state_at(r, b->copy_states[copy++]) + (size_t)from * (size_t)head,
                   state + (size_t)from * (size_t)head, (size_t)(to - from) * (size_t)head * sizeof *state);
        }
    }
}

void ref_recurrent_delta(const struct ref_run *r, int from, int to) { run_heads(r, from, to, delta_row); }

void ref_recurrent_ssm(const struct ref_run *r, int from, int to) { run_heads(r, from, to, ssm_row); }
