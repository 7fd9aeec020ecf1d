/* Steps with recurrent state. Threads share channels, and each computes all rows in order, so the division of a prompt
 * into batches changes no bit (docs/internals/recurrent.md). The rest is plain C, because it reads little compared with
 * the matmuls around it. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/pool.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 64,                       /* channels convolved together */
    HEAD_ROWS = 32,                   /* rows of a head per call, */
    DELTA_FLOATS = 8 * PLAN_MAX_HEAD, /* whose queries stay in L1 */
};

/* A convolution over rows [first, end) of one sequence. */
struct conv {
    const struct cpu_run *r;
    const struct plan_step *s;
    int32_t first, end;
    float *state; /* [taps - 1][width] */
    size_t width;
};

/* Channels [at, at + n), with their taps. */
struct piece {
    size_t at, n;
    float w[PLAN_MAX_TAPS][PIECE];
};

/* Returns row i of the sequence, or a kept row before its first. */
static const float *input(const struct conv *c, int32_t i)
{
    int32_t kept = (int32_t)c->s->conv.taps - 1;
    return i >= c->first ? cpu_row(c->r, c->s->src, i) : c->state + (size_t)(i - c->first + kept) * c->width;
}

/* Computes the sum of tap j times in[j], in order, plus the bias, for a piece of row i. */
static void convolve_row(const struct conv *c, const struct piece *p, const float *const *in, int32_t i)
{
    const float *bias = cpu_vector(c->r, c->s->bias[0]);
    float *out = cpu_row(c->r, c->s->dst, i) + p->at;
    _Alignas(64) float sums[PIECE] = {0};
    for (uint32_t j = 0; j < c->s->conv.taps; j++) {
        const float *x = in[j] + p->at;
        for (size_t k = 0; k < p->n; k++) {
            sums[k] += p->w[j][k] * x[k];
        }
    }
    for (size_t k = 0; k < p->n && bias != NULL; k++) {
        sums[k] += bias[p->at + k];
    }
    if (c->s->conv.map == PLAN_MAP_NONE) {
        memcpy(out, sums, p->n * sizeof *out);
    } else { /* SiLU, as plan_check requires */
        c->r->m->kern.glu(KERN_ACT_SIGMOID, sums, sums, p->n, out);
    }
}

/* Convolves channels [from, to), one piece at a time. */
static void convolve(const struct conv *c, size_t from, size_t to)
{
    uint32_t n_taps = c->s->conv.taps;
    const float *taps = cpu_vector(c->r, c->s->w[0]);
    struct piece p;
    for (p.at = from; p.at < to; p.at += p.n) {
        p.n = MIN_OF(to - p.at, (size_t)PIECE);
        for (size_t i = 0; i < p.n; i++) {
            for (uint32_t j = 0; j < n_taps; j++) {
                p.w[j][i] = taps[(p.at + i) * n_taps + j];
            }
        }
        for (int32_t i = c->first; i < c->end; i++) {
            const float *in[PLAN_MAX_TAPS];
            for (uint32_t j = 0; j < n_taps; j++) {
                in[j] = input(c, i - (int32_t)n_taps + 1 + (int32_t)j);
            }
            convolve_row(c, &p, in, i);
        }
    }
}

/* Writes channels [from, to) of the state after row `last`: the rows that a following batch needs. */
static void leave(const struct conv *c, int32_t last, size_t from, size_t to, float *state)
{
    int32_t kept = (int32_t)c->s->conv.taps - 1;
    for (int32_t k = 0; k < kept; k++) { /* ascending, because some can move down in the same memory */
        memmove(state + (size_t)k * c->width + from, input(c, last + 1 - kept + k) + from, (to - from) * sizeof(float));
    }
}

static float softplus(float x) { return x > 30 ? x : log1pf(expf(x)); }

/* Scales x to length 1, times scale. The floor is the one of transformers 5 and flash-linear-attention. */
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

/* Inputs of value head h for rows [first, first + n) of one sequence, with n * key_dim <= DELTA_FLOATS. */
struct delta_rows {
    float query[DELTA_FLOATS], key[DELTA_FLOATS];
    float decay[HEAD_ROWS], rate[HEAD_ROWS];
};

/* Runs value head h over rows [first, first + n). */
static void delta_rows(const struct cpu_run *run, int32_t first, int32_t n, uint32_t h, float *state)
{
    const struct backend_model *m = run->m;
    const struct plan_step *s = &run->step->step;
    const struct plan_delta *d = &m->plan->delta;
    size_t src = m->strides[s->src], dst = m->strides[s->dst];
    const float *rows = cpu_row(run, s->src, first);
    const float *q = rows + plan_delta_key_head(d, h) * d->key_dim, *k = q + d->n_k_heads * d->key_dim;
    struct delta_rows r;
    for (int32_t i = 0; i < n; i++) {
        float x = cpu_row(run, s->delta.alpha, first + i)[h] + cpu_vector(run, s->bias[0])[h];
        float beta = cpu_row(run, s->delta.beta, first + i)[h];
        r.decay[i] = expf(cpu_vector(run, s->w[0])[h] * softplus(x));
        r.rate[i] = 1.0f / (1.0f + expf(-beta));
        bring_to_length(q + (size_t)i * src, d->key_dim, 1.0f / sqrtf((float)d->key_dim),
                        r.query + (size_t)i * d->key_dim);
        bring_to_length(k + (size_t)i * src, d->key_dim, 1.0f, r.key + (size_t)i * d->key_dim);
    }
    float *out = cpu_row(run, s->dst, first) + h * d->value_dim;
    m->kern.linear_attention(&(struct kern_linear_args){
        .state = state,
        .n_keys = (int)d->key_dim,
        .n_cols = (int)d->value_dim,
        .q = r.query,
        .k = r.key,
        .qk_stride = d->key_dim,
        .v = rows + 2 * d->n_k_heads * d->key_dim + h * d->value_dim,
        .v_stride = src,
        .decay = r.decay,
        .rate = r.rate,
        .out = out,
        .out_stride = dst,
        .n_rows = n,
        .last_col = (int)d->value_dim,
        .corrects = true,
    });
    for (int32_t i = 0; i < n && s->w[1] != PLAN_NONE; i++, out += dst) {
        m->kern.rmsnorm(out, cpu_vector(run, s->w[1]), s->eps, d->value_dim, out);
    }
}

/* Runs head h of a state space over rows [first, first + n) of one sequence, n <= HEAD_ROWS. */
static void ssm_rows(const struct cpu_run *run, int32_t first, int32_t n, uint32_t h, float *state)
{
    const struct backend_model *m = run->m;
    const struct plan_step *s = &run->step->step;
    const struct plan_ssm *d = &m->plan->ssm;
    size_t src = m->strides[s->src], dst = m->strides[s->dst];
    const float *rows = cpu_row(run, s->src, first), *x = rows + h * d->head_dim;
    const float *in = rows + d->n_heads * d->head_dim + h / (d->n_heads / d->n_groups) * d->state_dim;
    float *out = cpu_row(run, s->dst, first) + h * d->head_dim;
    float decay[HEAD_ROWS], rate[HEAD_ROWS], skip = cpu_vector(run, s->w[1])[h];
    for (int32_t i = 0; i < n; i++) {
        rate[i] = softplus(cpu_row(run, s->ssm.dt, first + i)[h] + cpu_vector(run, s->bias[0])[h]);
        decay[i] = expf(rate[i] * cpu_vector(run, s->w[0])[h]);
    }
    m->kern.linear_attention(&(struct kern_linear_args){
        .state = state,
        .n_keys = (int)d->state_dim,
        .n_cols = (int)d->head_dim,
        .q = in + d->n_groups * d->state_dim,
        .k = in,
        .qk_stride = src,
        .v = x,
        .v_stride = src,
        .decay = decay,
        .rate = rate,
        .out = out,
        .out_stride = dst,
        .n_rows = n,
        .last_col = (int)d->head_dim,
    });
    for (int32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < d->head_dim; k++) {
            out[(size_t)i * dst + k] += skip * x[(size_t)i * src + k];
        }
    }
}

/* Returns the step's part of a recurrent state. */
static float *state_at(const struct cpu_run *r, int32_t id)
{
    return r->m->recurrent + (size_t)id * r->m->plan->recurrent_floats + r->step->step.recurrent;
}

/* A thread's part of a step's state: floats [from, to) of each line [width]. */
struct part {
    size_t lines, width, from, to;
};

/* Prepares the thread's part of the state before row i, the first of its sequence in the batch. */
static float *begin(const struct cpu_run *r, int32_t i, const struct part *p)
{
    const struct backend_batch *b = r->batch;
    int32_t id = b->states != NULL ? b->states[b->seq[i]] : b->seq[i];
    float *state = state_at(r, id);
    const float *source = state_at(r, b->begin_states != NULL ? b->begin_states[b->seq[i]] : id);
    for (size_t k = 0; k < p->lines; k++) {
        size_t at = k * p->width + p->from, bytes = (p->to - p->from) * sizeof *state;
        if (b->pos[i] == 0) {
            memset(state + at, 0, bytes);
        } else if (source != state) {
            memcpy(state + at, source + at, bytes);
        }
    }
    return state;
}

/* Computes head h of rows [first, first + n) of one sequence. */
typedef void (*rows_fn)(const struct cpu_run *r, int32_t first, int32_t n, uint32_t h, float *state);

/* Runs the thread's heads, at most `at_once` rows at a time. */
static void run_heads(const struct cpu_run *r, int32_t at_once, rows_fn run_rows)
{
    const struct backend_batch *b = r->batch;
    uint32_t n_heads = plan_n_items(r->m->plan, &r->step->step);
    size_t head = (size_t)plan_state_floats(r->m->plan, &r->step->step) / n_heads;
    int from, to;
    pool_share((int)n_heads, r->thread, r->n_threads, &from, &to);
    const struct part part = {.lines = 1, .from = (size_t)from * head, .to = (size_t)to * head};
    float *state = NULL;
    /* Each run of rows ends at a copy or at the end of a sequence. */
    for (int32_t first = 0, copy = 0, end; first < b->n_rows && from < to; first = end) {
        bool copies = false;
        if (first == 0 || b->seq[first] != b->seq[first - 1]) {
            state = begin(r, first, &part);
        }
        for (end = first; end < b->n_rows && b->seq[end] == b->seq[first] && !copies; end++) {
            copies = copy < b->n_copies && b->copy_rows[copy] == end;
        }
        for (int h = from; h < to; h++) {
            for (int32_t i = first; i < end; i += at_once) {
                run_rows(r, i, MIN_OF(at_once, end - i), (uint32_t)h, state + (size_t)h * head);
            }
        }
        if (copies) {
            memcpy(state_at(r, b->copy_states[copy++]) + part.from, state + part.from,
                   (part.to - part.from) * sizeof *state);
        }
    }
}

void cpu_recurrent_delta(const struct cpu_run *r)
{
    run_heads(r, (int32_t)MIN_OF((uint32_t)HEAD_ROWS, DELTA_FLOATS / r->m->plan->delta.key_dim), delta_rows);
}

void cpu_recurrent_ssm(const struct cpu_run *r) { run_heads(r, HEAD_ROWS, ssm_rows); }

void cpu_recurrent_conv(const struct cpu_run *r)
{
    const struct backend_batch *b = r->batch;
    const struct plan_step *s = &r->step->step;
    size_t width = cpu_width(r, s->src);
    int from, to;
    pool_share((int)width, r->thread, r->n_threads, &from, &to);
    const struct part p = {s->conv.taps - 1, width, (size_t)from, (size_t)to};
    for (int32_t first = 0, end, copy = 0; first < b->n_rows && from < to; first = end) {
        for (end = first + 1; end < b->n_rows && b->seq[end] == b->seq[first];) {
            end++;
        }
        const struct conv c = {r, s, first, end, begin(r, first, &p), width};
        convolve(&c, p.from, p.to);
        for (; copy < b->n_copies && b->copy_rows[copy] < end; copy++) {
            leave(&c, b->copy_rows[copy], p.from, p.to, state_at(r, b->copy_states[copy]));
        }
        leave(&c, end - 1, p.from, p.to, c.state);
    }
}
