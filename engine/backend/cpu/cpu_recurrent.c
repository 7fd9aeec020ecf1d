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
    const struct backend_model *m;
    const struct cpu_step *step;
    int32_t first, end;
    float *state; /* [taps - 1][width] */
    size_t width;
};

/* Returns row i of the sequence, or a kept row before its first. */
static const float *input(const struct conv *c, int32_t i)
{
    int32_t kept = (int32_t)c->step->step.conv.taps - 1;
    return i >= c->first ? c->m->bufs[c->step->step.src] + (size_t)i * c->m->strides[c->step->step.src]
                         : c->state + (size_t)(i - c->first + kept) * c->width;
}

/* Computes out[n] = the sum of tap j times in[j][at + n], in order, plus the bias, for n <= PIECE channels with their
 * taps at w. */
static void convolve_row(const struct conv *c, const float *const *in, const float (*w)[PIECE], size_t at, size_t n,
                         float *out)
{
    const struct plan_step *s = &c->step->step;
    const float *bias = s->bias[0] != PLAN_NONE ? c->m->weights[s->bias[0]].vector + at : NULL;
    _Alignas(64) float sums[PIECE] = {0};
    for (uint32_t j = 0; j < s->conv.taps; j++) {
        const float *x = in[j] + at;
        for (size_t i = 0; i < n; i++) {
            sums[i] += w[j][i] * x[i];
        }
    }
    for (size_t i = 0; i < n && bias != NULL; i++) {
        sums[i] += bias[i];
    }
    if (s->conv.map == PLAN_MAP_NONE) {
        memcpy(out + at, sums, n * sizeof *out);
    } else { /* SiLU, as plan_check requires */
        c->m->kern.glu(KERN_ACT_SIGMOID, sums, sums, n, out + at);
    }
}

/* Convolves channels [from, to), one piece at a time. */
static void convolve(const struct conv *c, size_t from, size_t to)
{
    const struct plan_step *s = &c->step->step;
    int32_t kept = (int32_t)s->conv.taps - 1;
    const float *taps = c->m->weights[s->w[0]].vector;
    for (size_t at = from, n; at < to; at += n) {
        float w[PLAN_MAX_TAPS][PIECE];
        n = MIN_OF(to - at, (size_t)PIECE);
        for (size_t i = 0; i < n; i++) {
            for (uint32_t j = 0; j < s->conv.taps; j++) {
                w[j][i] = taps[(at + i) * s->conv.taps + j];
            }
        }
        for (int32_t i = c->first; i < c->end; i++) {
            const float *in[PLAN_MAX_TAPS];
            for (int32_t j = 0; j <= kept; j++) {
                in[j] = input(c, i - kept + j);
            }
            convolve_row(c, in, w, at, n, c->m->bufs[c->step->step.dst] + (size_t)i * c->m->strides[c->step->step.dst]);
        }
    }
}

/* Writes channels [from, to) of the state after row `last`: the rows that a following batch needs. */
static void leave(const struct conv *c, int32_t last, size_t from, size_t to, float *state)
{
    int32_t kept = (int32_t)c->step->step.conv.taps - 1;
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
static void delta_rows(const struct backend_model *m, const struct cpu_step *step, int32_t first, int32_t n, uint32_t h,
                       float *state)
{
    const struct plan_step *s = &step->step;
    const struct plan_delta *d = &m->plan->delta;
    const float *rows = m->bufs[step->step.src] + (size_t)first * m->strides[step->step.src];
    const float *q = rows + plan_delta_key_head(d, h) * d->key_dim, *k = q + d->n_k_heads * d->key_dim;
    struct delta_rows r;
    for (int32_t i = 0; i < n; i++) {
        float x = (m->bufs[s->delta.alpha] + (size_t)(first + i) * m->strides[s->delta.alpha])[h] +
                  m->weights[s->bias[0]].vector[h];
        float beta = (m->bufs[s->delta.beta] + (size_t)(first + i) * m->strides[s->delta.beta])[h];
        r.decay[i] = expf(m->weights[s->w[0]].vector[h] * softplus(x));
        r.rate[i] = 1.0f / (1.0f + expf(-beta));
        bring_to_length(q + (size_t)i * m->strides[step->step.src], d->key_dim, 1.0f / sqrtf((float)d->key_dim),
                        r.query + (size_t)i * d->key_dim);
        bring_to_length(k + (size_t)i * m->strides[step->step.src], d->key_dim, 1.0f, r.key + (size_t)i * d->key_dim);
    }
    float *out = m->bufs[step->step.dst] + (size_t)first * m->strides[step->step.dst] + h * d->value_dim;
    m->kern.linear_attention(&(struct kern_linear_args){
        .state = state,
        .n_keys = (int)d->key_dim,
        .n_cols = (int)d->value_dim,
        .q = r.query,
        .k = r.key,
        .qk_stride = d->key_dim,
        .v = rows + 2 * d->n_k_heads * d->key_dim + h * d->value_dim,
        .v_stride = m->strides[step->step.src],
        .decay = r.decay,
        .rate = r.rate,
        .out = out,
        .out_stride = m->strides[step->step.dst],
        .n_rows = n,
        .last_col = (int)d->value_dim,
        .corrects = true,
    });
    for (int32_t i = 0; i < n && s->w[1] != PLAN_NONE; i++, out += m->strides[step->step.dst]) {
        m->kern.rmsnorm(out, m->weights[s->w[1]].vector, s->eps, d->value_dim, out);
    }
}

/* Runs head h of a state space over rows [first, first + n) of one sequence, n <= HEAD_ROWS. */
static void ssm_rows(const struct backend_model *m, const struct cpu_step *step, int32_t first, int32_t n, uint32_t h,
                     float *state)
{
    const struct plan_step *s = &step->step;
    const struct plan_ssm *d = &m->plan->ssm;
    size_t src = m->strides[step->step.src], dst = m->strides[step->step.dst];
    const float *rows = m->bufs[step->step.src] + (size_t)first * src, *x = rows + h * d->head_dim;
    const float *in = rows + d->n_heads * d->head_dim + h / (d->n_heads / d->n_groups) * d->state_dim;
    float *out = m->bufs[step->step.dst] + (size_t)first * dst + h * d->head_dim;
    float decay[HEAD_ROWS], rate[HEAD_ROWS], skip = m->weights[s->w[1]].vector[h];
    for (int32_t i = 0; i < n; i++) {
        const float *dt = m->bufs[s->ssm.dt] + (size_t)(first + i) * m->strides[s->ssm.dt];
        rate[i] = softplus(dt[h] + m->weights[s->bias[0]].vector[h]);
        decay[i] = expf(rate[i] * m->weights[s->w[0]].vector[h]);
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
static float *state_at(const struct backend_model *m, const struct cpu_step *step, int32_t id)
{
    return m->recurrent + (size_t)id * m->plan->recurrent_floats + step->step.recurrent;
}

/* Prepares [lines][width] floats of the state before row i, the first of its sequence in the batch: `from` to `to` of
 * each line, which no other thread touches. */
static float *begin(const struct backend_model *m, const struct backend_batch *b, const struct cpu_step *step,
                    int32_t i, size_t lines, size_t width, size_t from, size_t to)
{
    int32_t id = b->states != NULL ? b->states[b->seq[i]] : b->seq[i];
    float *state = state_at(m, step, id);
    const float *source = state_at(m, step, b->begin_states != NULL ? b->begin_states[b->seq[i]] : id);
    for (size_t k = 0; k < lines; k++) {
        float *line = state + k * width + from;
        if (b->pos[i] == 0) {
            memset(line, 0, (to - from) * sizeof *line);
        } else if (source != state) {
            memcpy(line, source + k * width + from, (to - from) * sizeof *line);
        }
    }
    return state;
}

/* Computes head h of rows [first, first + n) of one sequence. */
typedef void (*rows_fn)(const struct backend_model *m, const struct cpu_step *step, int32_t first, int32_t n,
                        uint32_t h, float *state);

/* Runs the thread's heads, at most `at_once` rows at a time. */
static void run_heads(const struct cpu_run *r, int32_t at_once, rows_fn run_rows)
{
    const struct backend_batch *b = r->batch;
    uint32_t n_heads = plan_n_items(r->m->plan, &r->step->step);
    size_t head = (size_t)plan_state_floats(r->m->plan, &r->step->step) / n_heads;
    int from, to;
    pool_share((int)n_heads, r->thread, r->n_threads, &from, &to);
    size_t start = (size_t)from * head, stop = (size_t)to * head;
    float *state = NULL;
    /* Each run of rows ends at a copy or at the end of a sequence. */
    for (int32_t first = 0, copy = 0, end; first < b->n_rows && from < to; first = end) {
        bool copies = false;
        if (first == 0 || b->seq[first] != b->seq[first - 1]) {
            state = begin(r->m, b, r->step, first, 1, 0, start, stop);
        }
        for (end = first; end < b->n_rows && b->seq[end] == b->seq[first] && !copies; end++) {
            copies = copy < b->n_copies && b->copy_rows[copy] == end;
        }
        for (int h = from; h < to; h++) {
            for (int32_t i = first; i < end; i += at_once) {
                run_rows(r->m, r->step, i, MIN_OF(at_once, end - i), (uint32_t)h, state + (size_t)h * head);
            }
        }
        if (copies) {
            memcpy(state_at(r->m, r->step, b->copy_states[copy++]) + start, state + start,
                   (stop - start) * sizeof *state);
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
    size_t width = cpu_width(r, r->step->step.src);
    int from, to;
    pool_share((int)width, r->thread, r->n_threads, &from, &to);
    size_t lo = (size_t)from, hi = (size_t)to;
    for (int32_t first = 0, end, copy = 0; first < b->n_rows && from < to; first = end) {
        for (end = first + 1; end < b->n_rows && b->seq[end] == b->seq[first];) {
            end++;
        }
        float *state = begin(r->m, b, r->step, first, r->step->step.conv.taps - 1, width, lo, hi);
        struct conv c = {.m = r->m, .step = r->step, .first = first, .end = end, .state = state, .width = width};
        convolve(&c, lo, hi);
        for (; copy < b->n_copies && b->copy_rows[copy] < end; copy++) {
            leave(&c, b->copy_rows[copy], lo, hi, state_at(r->m, r->step, b->copy_states[copy]));
        }
        leave(&c, end - 1, lo, hi, state);
    }
}
