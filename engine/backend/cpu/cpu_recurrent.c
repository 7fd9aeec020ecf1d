/* Steps with recurrent state, and products. Threads share channels and each walks all rows in order, so that how a
 * prompt is cut changes no bit (docs/internals/recurrent.md). Plain C: these steps read little beside the matmuls
 * around them. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/ck.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"

#include <math.h>
#include <string.h>

static float map(enum plan_map how, float v)
{
    return how == PLAN_MAP_NONE ? v : (how == PLAN_MAP_SILU ? v : 1.0f) / (1.0f + expf(-v));
}

void cpu_product(enum plan_map how, const float *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] *= map(how, x[i]);
    }
}

enum err cpu_recurrent_new(struct backend_model *m, struct err_info *info)
{
    uint64_t bytes;
    if (m->plan->recurrent_floats == 0) {
        return ERR_OK;
    }
    bool ok = ck_mul(m->plan->recurrent_floats * sizeof(float), (uint64_t)MAX_OF(m->cfg.n_slots, 1), &bytes);
    m->recurrent_bytes = ok ? (size_t)bytes : 0;
    if (ok && m->cfg.measures) {
        return ERR_OK;
    }
    m->recurrent = ok ? mem_map(m->recurrent_bytes, MEM_KV) : NULL;
    return m->recurrent != NULL ? ERR_OK
                                : err_set(info, ERR_NOMEM, NULL,
                                          "out of memory for the recurrent state of %d sequences", m->cfg.n_slots);
}

void cpu_recurrent_free(struct backend_model *m) { mem_unmap(m->recurrent, m->recurrent_bytes, MEM_KV); }

/* A convolution over rows [first, end) of one sequence. */
struct conv {
    const struct backend_model *m;
    const struct cpu_step *step;
    int32_t first, end;
    float *state; /* [taps - 1][width] */
    size_t width;
};

/* Row i of the sequence, or what is kept of those before its first. */
static const float *input(const struct conv *c, int32_t i)
{
    int32_t kept = (int32_t)c->step->step->taps - 1;
    return i >= c->first ? c->m->bufs[c->step->src] + (size_t)i * c->m->strides[c->step->src]
                         : c->state + (size_t)(i - c->first + kept) * c->width;
}

/* Channels [from, to). */
static void convolve(const struct conv *c, size_t from, size_t to)
{
    const struct plan_step *s = c->step->step;
    int32_t kept = (int32_t)s->taps - 1;
    const float *w = c->m->weights[s->w[0]].vector;
    const float *bias = s->bias[0] != PLAN_NONE ? c->m->weights[s->bias[0]].vector : NULL;
    for (int32_t i = c->first; i < c->end; i++) {
        const float *in[PLAN_MAX_TAPS];
        float *out = c->m->bufs[c->step->dst] + (size_t)i * c->m->strides[c->step->dst];
        for (int32_t j = 0; j <= kept; j++) {
            in[j] = input(c, i - kept + j);
        }
        for (size_t n = from; n < to; n++) {
            float sum = 0;
            for (int32_t j = 0; j <= kept; j++) {
                sum += w[n * s->taps + (size_t)j] * in[j][n];
            }
            out[n] = map(s->map, bias != NULL ? sum + bias[n] : sum);
        }
    }
    for (int32_t k = 0; k < kept; k++) { /* the rows behind which the next batch begins; upwards, as some move down */
        memmove(c->state + (size_t)k * c->width + from, input(c, c->end - kept + k) + from,
                (to - from) * sizeof(float));
    }
}

/* out = x of length 1, times scale. The floor is that of transformers 5 and flash-linear-attention. */
static void bring_to_length(const float *x, size_t n, float scale, float *out)
{
    float sum = 1e-6f;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    scale /= sqrtf(sum);
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i] * scale;
    }
}

/* state = decay * state + key (beta * (v - (decay * state)^T key))^T; out = state^T query. Sums go over the key's
 * components in their order, for all columns together. */
static void delta_rule(const struct plan_delta *d, const float *query, const float *key, const float *v, float decay,
                       float beta, float *state, float *out)
{
    float change[PLAN_MAX_HEAD] = {0};
    size_t width = d->value_dim;
    for (size_t j = 0; j < d->key_dim; j++) {
        float *row = state + j * width;
        for (size_t n = 0; n < width; n++) {
            row[n] *= decay;
            change[n] += row[n] * key[j];
        }
    }
    for (size_t n = 0; n < width; n++) {
        change[n] = beta * (v[n] - change[n]);
        out[n] = 0;
    }
    for (size_t j = 0; j < d->key_dim; j++) {
        float *row = state + j * width;
        for (size_t n = 0; n < width; n++) {
            row[n] += key[j] * change[n];
            out[n] += row[n] * query[j];
        }
    }
}

/* Value head h of row i. */
static void delta_row(const struct backend_model *m, const struct cpu_step *step, int32_t i, uint32_t h, float *state)
{
    const struct plan_step *s = step->step;
    const struct plan_delta *d = &m->plan->delta;
    const float *row = m->bufs[step->src] + (size_t)i * m->strides[step->src];
    const float *q = row + plan_delta_key_head(d, h) * d->key_dim, *k = q + d->n_k_heads * d->key_dim;
    const float *v = row + 2 * d->n_k_heads * d->key_dim + h * d->value_dim;
    float query[PLAN_MAX_HEAD], key[PLAN_MAX_HEAD];
    float x = (m->bufs[s->values] + (size_t)i * m->strides[s->values])[h] + m->weights[s->bias[0]].vector[h];
    float decay = expf(m->weights[s->w[0]].vector[h] * (x > 30 ? x : log1pf(expf(x))));
    float beta = map(PLAN_MAP_SIGMOID, (m->bufs[s->keys] + (size_t)i * m->strides[s->keys])[h]);
    float *out = m->bufs[step->dst] + (size_t)i * m->strides[step->dst] + h * d->value_dim;
    bring_to_length(q, d->key_dim, 1.0f / sqrtf((float)d->key_dim), query);
    bring_to_length(k, d->key_dim, 1.0f, key);
    delta_rule(d, query, key, v, decay, beta, state, out);
    if (s->w[1] != PLAN_NONE) {
        m->kern.rmsnorm(out, m->weights[s->w[1]].vector, s->eps, d->value_dim, out);
    }
}

/* Where the step keeps the state of row i's sequence. */
static float *state_of(const struct backend_model *m, const struct backend_batch *b, const struct cpu_step *step,
                       int32_t i)
{
    int32_t slot = b->slots != NULL ? b->slots[b->seq[i]] : b->seq[i];
    return m->recurrent + (size_t)slot * m->plan->recurrent_floats + step->step->recurrent;
}

void cpu_delta_run(struct backend_model *m, const struct backend_batch *b, const struct cpu_step *step, int thread,
                   int n_threads)
{
    int from, to;
    size_t head = (size_t)m->plan->delta.key_dim * m->plan->delta.value_dim;
    pool_share((int)m->plan->delta.n_v_heads, thread, n_threads, &from, &to);
    float *state = NULL;
    for (int32_t i = 0; i < b->n_rows; i++) {
        if (i == 0 || b->seq[i] != b->seq[i - 1]) {
            state = state_of(m, b, step, i) + (size_t)from * head;
            memset(state, 0, b->pos[i] == 0 ? (size_t)(to - from) * head * sizeof *state : 0);
        }
        for (int h = from; h < to; h++) {
            delta_row(m, step, i, (uint32_t)h, state + (size_t)(h - from) * head);
        }
    }
}

void cpu_short_conv_run(struct backend_model *m, const struct backend_batch *b, const struct cpu_step *step, int thread,
                        int n_threads)
{
    int from, to;
    size_t width = m->plan->bufs[step->src % PLAN_MAX_BUFS].width;
    pool_share((int)width, thread, n_threads, &from, &to);
    for (int32_t first = 0, end; first < b->n_rows && from < to; first = end) {
        for (end = first + 1; end < b->n_rows && b->seq[end] == b->seq[first];) {
            end++;
        }
        float *state = state_of(m, b, step, first);
        struct conv c = {.m = m, .step = step, .first = first, .end = end, .state = state, .width = width};
        for (uint32_t k = 0; k + 1 < step->step->taps && b->pos[first] == 0; k++) {
            memset(state + k * width + (size_t)from, 0, (size_t)(to - from) * sizeof *state);
        }
        convolve(&c, (size_t)from, (size_t)to);
    }
}
