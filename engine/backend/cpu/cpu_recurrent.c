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
    DELTA_FLOATS = 8 * PLAN_MAX_HEAD, /* whose queries stay in L1, */
    SCAN_FLOATS = 4 * PLAN_MAX_HEAD,  /* or whose steps do */
};

/* A convolution over rows [first, end) of one sequence. */
struct conv {
    const struct cpu_run *r;
    const struct plan_step *s;
    int32_t first, end;
    float *state;   /* [taps - 1][width] */
    float *drafts;  /* [max_drafts][width] after these */
    int32_t n_true; /* drafts of the last batch that came true */
    size_t width;
};

/* Channels [at, at + n), with their taps. */
struct piece {
    size_t at, n;
    float w[PLAN_MAX_TAPS][PIECE];
};

/* Returns row i of the sequence, or one of those kept before its first: of the state, then the drafts that came true. */
static const float *input(const struct conv *c, int32_t i)
{
    int32_t kept = (int32_t)c->s->conv.taps - 1, at = i - c->first + c->n_true;
    if (i >= c->first) {
        return cpu_row(c->r, c->s->src, i);
    }
    return at < 0 ? c->state + (size_t)(at + kept) * c->width : c->drafts + (size_t)at * c->width;
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

/* Keeps channels [from, to) of the drafts, rows [certain, end). */
static void keep_drafts(const struct conv *c, int32_t certain, size_t from, size_t to)
{
    for (int32_t i = certain; i < c->end; i++) {
        memcpy(c->drafts + (size_t)(i - certain) * c->width + from, input(c, i) + from, (to - from) * sizeof(float));
    }
}

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

/* Rows of one head: elements of row i are i strides after those of the first. */
struct head_rows {
    const float *q, *k, *v, *rates, *beta; /* of a state space C, B, x and dt, without beta */
    size_t qk_stride, v_stride, rate_stride, beta_stride;
    float *out;
    size_t out_stride; /* 0: all rows in one place, which nobody reads */
    int32_t n;
};

/* Normalized queries and keys of n rows, with n * key_dim <= DELTA_FLOATS. */
struct delta_rows {
    float query[DELTA_FLOATS], key[DELTA_FLOATS], key_decay[DELTA_FLOATS];
    float decay[HEAD_ROWS], rate[HEAD_ROWS];
};

/* Computes the decays of row i of value head h. */
static void find_decays(const struct cpu_run *run, const struct head_rows *in, int32_t i, uint32_t h,
                        struct delta_rows *r)
{
    const struct plan_step *s = &run->step->step;
    const struct plan_delta *d = &run->m->plan->delta;
    const float *rates = in->rates + (size_t)i * in->rate_stride, *bias = cpu_vector(run, s->bias[0]);
    float a = cpu_vector(run, s->w[0])[h];
    if (d->decays_keys) {
        run->m->kern.decay(rates, bias + (size_t)h * d->key_dim, a, d->key_dim, r->key_decay + (size_t)i * d->key_dim);
    } else {
        r->decay[i] = expf(a * cpu_softplus(*rates + bias[h]));
    }
}

/* Advances the state of value head h by the rows. */
static void delta_run(const struct cpu_run *run, const struct head_rows *in, uint32_t h, float *state)
{
    const struct backend_model *m = run->m;
    const struct plan_delta *d = &m->plan->delta;
    struct delta_rows r;
    for (int32_t i = 0; i < in->n; i++) {
        float beta = in->beta[(size_t)i * in->beta_stride];
        find_decays(run, in, i, h, &r);
        r.rate[i] = 1.0f / (1.0f + expf(-beta));
        bring_to_length(in->q + (size_t)i * in->qk_stride, d->key_dim, 1.0f / sqrtf((float)d->key_dim),
                        r.query + (size_t)i * d->key_dim);
        bring_to_length(in->k + (size_t)i * in->qk_stride, d->key_dim, 1.0f, r.key + (size_t)i * d->key_dim);
    }
    m->kern.linear_attention(&(struct kern_linear_args){
        .state = state,
        .n_keys = (int)d->key_dim,
        .n_cols = (int)d->value_dim,
        .q = r.query,
        .k = r.key,
        .qk_stride = d->key_dim,
        .v = in->v,
        .v_stride = in->v_stride,
        .decay = r.decay,
        .key_decay = d->decays_keys ? r.key_decay : NULL,
        .rate = r.rate,
        .out = in->out,
        .out_stride = in->out_stride,
        .n_rows = in->n,
        .last_col = (int)d->value_dim,
        .corrects = true,
    });
}

/* Returns rows [first, first + n) of the batch for value head h. */
static struct head_rows delta_in(const struct cpu_run *run, int32_t first, int32_t n, uint32_t h)
{
    const struct plan_step *s = &run->step->step;
    const struct plan_delta *d = &run->m->plan->delta;
    const size_t *strides = run->m->strides;
    bool is_apart = s->delta.keys != PLAN_NONE;
    uint32_t key = plan_delta_key_head(d, h) * d->key_dim, all = d->n_k_heads * d->key_dim;
    const float *rows = cpu_row(run, s->src, first);
    const float *values = is_apart ? cpu_row(run, s->delta.values, first) : rows + 2 * (size_t)all;
    return (struct head_rows){.q = rows + key,
                              .k = (is_apart ? cpu_row(run, s->delta.keys, first) : rows + all) + key,
                              .v = values + h * d->value_dim,
                              .qk_stride = strides[s->src], /* and of keys, which are as wide */
                              .v_stride = strides[is_apart ? s->delta.values : s->src],
                              .rates = cpu_row(run, s->delta.alpha, first) + h * plan_delta_decays(d),
                              .rate_stride = strides[s->delta.alpha],
                              .beta = cpu_row(run, s->delta.beta, first) + h,
                              .beta_stride = strides[s->delta.beta],
                              .out = cpu_row(run, s->dst, first) + h * d->value_dim,
                              .out_stride = strides[s->dst],
                              .n = n};
}

static void delta_end(const struct cpu_run *run, const struct head_rows *in, uint32_t h)
{
    const struct plan_step *s = &run->step->step;
    (void)h;
    float *out = in->out;
    for (int32_t i = 0; i < in->n && s->w[1] != PLAN_NONE; i++, out += in->out_stride) {
        run->m->kern.rmsnorm(out, cpu_vector(run, s->w[1]), s->eps, run->m->plan->delta.value_dim, out);
    }
}

/* Advances the state of head h of a state space by the rows. */
static void ssm_run(const struct cpu_run *run, const struct head_rows *in, uint32_t h, float *state)
{
    const struct plan_step *s = &run->step->step;
    const struct plan_ssm *d = &run->m->plan->ssm;
    float decay[HEAD_ROWS], rate[HEAD_ROWS];
    for (int32_t i = 0; i < in->n; i++) {
        rate[i] = cpu_softplus(in->rates[(size_t)i * in->rate_stride] + cpu_vector(run, s->bias[0])[h]);
        decay[i] = expf(rate[i] * cpu_vector(run, s->w[0])[h]);
    }
    run->m->kern.linear_attention(&(struct kern_linear_args){
        .state = state,
        .n_keys = (int)d->state_dim,
        .n_cols = (int)d->head_dim,
        .q = in->q,
        .k = in->k,
        .qk_stride = in->qk_stride,
        .v = in->v,
        .v_stride = in->v_stride,
        .decay = decay,
        .rate = rate,
        .out = in->out,
        .out_stride = in->out_stride,
        .n_rows = in->n,
        .last_col = (int)d->head_dim,
    });
}

/* Returns rows [first, first + n) of the batch for head h. */
static struct head_rows ssm_in(const struct cpu_run *run, int32_t first, int32_t n, uint32_t h)
{
    const struct plan_step *s = &run->step->step;
    const struct plan_ssm *d = &run->m->plan->ssm;
    const size_t *strides = run->m->strides;
    const float *rows = cpu_row(run, s->src, first);
    const float *in = rows + d->n_heads * d->head_dim + h / (d->n_heads / d->n_groups) * d->state_dim;
    return (struct head_rows){.q = in + d->n_groups * d->state_dim,
                              .k = in,
                              .v = rows + h * d->head_dim,
                              .qk_stride = strides[s->src],
                              .v_stride = strides[s->src],
                              .rates = cpu_row(run, s->ssm.dt, first) + h,
                              .rate_stride = strides[s->ssm.dt],
                              .out = cpu_row(run, s->dst, first) + h * d->head_dim,
                              .out_stride = strides[s->dst],
                              .n = n};
}

static void ssm_end(const struct cpu_run *run, const struct head_rows *in, uint32_t h)
{
    float skip = cpu_vector(run, run->step->step.w[1])[h];
    uint32_t n = run->m->plan->ssm.head_dim;
    for (int32_t i = 0; i < in->n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            in->out[(size_t)i * in->out_stride + k] += skip * in->v[(size_t)i * in->v_stride + k];
        }
    }
}

/* Advances the state of head h of a selective scan by the rows. */
static void scan_run(const struct cpu_run *run, const struct head_rows *in, uint32_t h, float *state)
{
    const struct plan_step *s = &run->step->step;
    const struct plan_ssm *d = &run->m->plan->ssm;
    size_t p = d->head_dim, first = h * p;
    const float *bias = cpu_vector(run, s->bias[0]) + first;
    float dt[SCAN_FLOATS]; /* [n][p] */
    for (size_t i = 0; i < (size_t)in->n * p; i++) {
        dt[i] = cpu_softplus(in->rates[i / p * in->rate_stride + i % p] + bias[i % p]);
    }
    run->m->kern.selective_scan(&(struct kern_scan_args){
        .state = state,
        .n_states = (int)d->state_dim,
        .n_cols = (int)p,
        .a = cpu_vector(run, s->w[0]) + first * d->state_dim,
        .b = in->k,
        .b_stride = in->qk_stride,
        .c = in->q,
        .c_stride = in->qk_stride,
        .x = in->v,
        .x_stride = in->v_stride,
        .dt = dt,
        .dt_stride = p,
        .out = in->out,
        .out_stride = in->out_stride,
        .n_rows = in->n,
    });
}

/* Returns rows [first, first + n) of the batch for head h. */
static struct head_rows scan_in(const struct cpu_run *run, int32_t first, int32_t n, uint32_t h)
{
    const struct plan_step *s = &run->step->step;
    const size_t *strides = run->m->strides;
    size_t at = (size_t)h * run->m->plan->ssm.head_dim;
    return (struct head_rows){.q = cpu_row(run, s->scan.c, first),
                              .k = cpu_row(run, s->scan.b, first),
                              .v = cpu_row(run, s->src, first) + at,
                              .qk_stride = strides[s->scan.b], /* of the same width as c */
                              .v_stride = strides[s->src],
                              .rates = cpu_row(run, s->scan.dt, first) + at,
                              .rate_stride = strides[s->scan.dt],
                              .out = cpu_row(run, s->dst, first) + at,
                              .out_stride = strides[s->dst],
                              .n = n};
}

static void scan_end(const struct cpu_run *run, const struct head_rows *in, uint32_t h)
{
    size_t p = run->m->plan->ssm.head_dim;
    const float *skips = cpu_vector(run, run->step->step.w[1]) + h * p;
    for (size_t i = 0; i < (size_t)in->n * p; i++) {
        in->out[i / p * in->out_stride + i % p] += skips[i % p] * in->v[i / p * in->v_stride + i % p];
    }
}

/* A step that has a state for each head. */
struct head_op {
    struct head_rows (*in)(const struct cpu_run *r, int32_t first, int32_t n, uint32_t h);
    void (*run)(const struct cpu_run *r, const struct head_rows *in, uint32_t h, float *state);
    void (*end)(const struct cpu_run *r, const struct head_rows *in, uint32_t h); /* after run, on its output */
    uint32_t n_keys, n_cols, n_rates;
    int32_t at_once; /* most rows of a call, at most HEAD_ROWS */
};

/* Returns the step's part of a recurrent state. */
static float *state_at(const struct cpu_run *r, int32_t id) { return cpu_state(r->m, id) + r->step->step.recurrent; }

/* Returns the step's drafts next to the state of sequence i. */
static float *drafts_of(const struct cpu_run *r, int32_t i)
{
    const struct backend_batch *b = r->batch;
    return cpu_state(r->m, b->states != NULL ? b->states[i] : i) + r->m->plan->recurrent_floats +
           (size_t)r->m->cfg.max_drafts * r->step->step.drafted;
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

/* Advances the state of head h by the drafts of the last batch that came true, from `rows` on. */
static void advance(const struct cpu_run *r, const struct head_op *op, const float *rows, int32_t n, uint32_t h,
                    float *state)
{
    size_t stride = plan_drafted_floats(r->m->plan, &r->step->step);
    float unread[PLAN_MAX_HEAD];
    for (int32_t i = 0; i < n; i += op->at_once) {
        const float *k = rows + (size_t)i * stride, *v = k + op->n_keys, *rates = v + op->n_cols;
        op->run(r,
                &(struct head_rows){.q = k,
                                    .k = k,
                                    .v = v,
                                    .rates = rates,
                                    .beta = rates + op->n_rates,
                                    .qk_stride = stride,
                                    .v_stride = stride,
                                    .rate_stride = stride,
                                    .beta_stride = stride,
                                    .out = unread,
                                    .n = MIN_OF(op->at_once, n - i)},
                h, state);
    }
}

/* Keeps what advances the state of head h by these rows. */
static void keep_rows(const struct cpu_run *r, const struct head_op *op, const struct head_rows *in, float *to)
{
    size_t stride = plan_drafted_floats(r->m->plan, &r->step->step);
    for (int32_t i = 0; i < in->n; i++, to += stride) {
        memcpy(to, in->k + (size_t)i * in->qk_stride, op->n_keys * sizeof *to);
        memcpy(to + op->n_keys, in->v + (size_t)i * in->v_stride, op->n_cols * sizeof *to);
        float *rates = to + op->n_keys + op->n_cols;
        memcpy(rates, in->rates + (size_t)i * in->rate_stride, op->n_rates * sizeof *to);
        if (in->beta != NULL) {
            rates[op->n_rates] = in->beta[(size_t)i * in->beta_stride];
        }
    }
}

/* Computes head h of rows [from, to). */
static void compute_rows(const struct cpu_run *r, const struct head_op *op, int32_t from, int32_t to, uint32_t h,
                         float *state)
{
    for (int32_t i = from; i < to; i += op->at_once) {
        struct head_rows in = op->in(r, i, MIN_OF(op->at_once, to - i), h);
        op->run(r, &in, h, state);
        op->end(r, &in, h);
    }
}

/* Runs heads [part->from, part->to) over the rows of one sequence. *copy: its first copy; on return, the next
 * sequence's. */
static void run_seq(const struct cpu_run *r, const struct head_op *op, const struct backend_seq_rows *s, int from,
                    int to, int32_t *copy)
{
    const struct backend_batch *b = r->batch;
    size_t head = (size_t)op->n_keys * op->n_cols,
           kept = (size_t)r->m->cfg.max_drafts * plan_drafted_floats(r->m->plan, &r->step->step);
    const struct part part = {.lines = 1, .from = (size_t)from * head, .to = (size_t)to * head};
    float *state = begin(r, s->first, &part), *drafts = drafts_of(r, s->seq);
    int32_t n_true = backend_n_true(b, s->seq);
    for (int h = from; h < to && n_true > 0; h++) {
        advance(r, op, drafts + (size_t)h * kept, n_true, (uint32_t)h, state + (size_t)h * head);
    }
    for (int32_t first = s->first, end; first < s->certain; first = end) { /* each run ends at a copy */
        bool copies = *copy < b->n_copies && b->copy_rows[*copy] < s->certain;
        end = copies ? b->copy_rows[*copy] + 1 : s->certain;
        for (int h = from; h < to; h++) {
            compute_rows(r, op, first, end, (uint32_t)h, state + (size_t)h * head);
        }
        if (copies) {
            memcpy(state_at(r, b->copy_states[(*copy)++]) + part.from, state + part.from,
                   (part.to - part.from) * sizeof *state);
        }
    }
    for (int h = from; h < to && s->certain < s->end; h++) {
        struct head_rows in = op->in(r, s->certain, s->end - s->certain, (uint32_t)h);
        float *temporary = r->scratch->drafting;
        memcpy(temporary, state + (size_t)h * head, head * sizeof *state);
        compute_rows(r, op, s->certain, s->end, (uint32_t)h, temporary);
        keep_rows(r, op, &in, drafts + (size_t)h * kept);
    }
}

/* Runs the thread's heads. */
static void run_heads(const struct cpu_run *r, const struct head_op *op)
{
    int from, to;
    pool_share((int)plan_n_items(r->m->plan, &r->step->step), r->thread, r->n_threads, &from, &to);
    struct backend_seq_rows s = {0};
    for (int32_t copy = 0; s.end < r->batch->n_rows && from < to;) {
        s = backend_seq_rows_at(r->batch, s.end);
        run_seq(r, op, &s, from, to, &copy);
    }
}

void cpu_recurrent_delta(const struct cpu_run *r)
{
    const struct plan_delta *d = &r->m->plan->delta;
    run_heads(r, &(struct head_op){.in = delta_in,
                                   .run = delta_run,
                                   .end = delta_end,
                                   .n_keys = d->key_dim,
                                   .n_cols = d->value_dim,
                                   .n_rates = plan_delta_decays(d),
                                   .at_once = (int32_t)MIN_OF((uint32_t)HEAD_ROWS, DELTA_FLOATS / d->key_dim)});
}

void cpu_recurrent_ssm(const struct cpu_run *r)
{
    const struct plan_ssm *d = &r->m->plan->ssm;
    run_heads(r, &(struct head_op){.in = ssm_in,
                                   .run = ssm_run,
                                   .end = ssm_end,
                                   .n_keys = d->state_dim,
                                   .n_cols = d->head_dim,
                                   .n_rates = 1,
                                   .at_once = HEAD_ROWS});
}

void cpu_recurrent_scan(const struct cpu_run *r)
{
    const struct plan_ssm *d = &r->m->plan->ssm;
    run_heads(r, &(struct head_op){.in = scan_in,
                                   .run = scan_run,
                                   .end = scan_end,
                                   .n_keys = d->state_dim,
                                   .n_cols = d->head_dim,
                                   .n_rates = d->head_dim,
                                   .at_once = (int32_t)MIN_OF((uint32_t)HEAD_ROWS, SCAN_FLOATS / d->head_dim)});
}

void cpu_recurrent_conv(const struct cpu_run *r)
{
    const struct backend_batch *b = r->batch;
    const struct plan_step *s = &r->step->step;
    size_t width = cpu_width(r, s->src);
    int from, to;
    pool_share((int)width, r->thread, r->n_threads, &from, &to);
    const struct part p = {s->conv.taps - 1, width, (size_t)from, (size_t)to};
    struct backend_seq_rows rows = {0};
    for (int32_t copy = 0; rows.end < b->n_rows && from < to;) {
        rows = backend_seq_rows_at(b, rows.end);
        const struct conv c = {.r = r,
                               .s = s,
                               .first = rows.first,
                               .end = rows.end,
                               .state = begin(r, rows.first, &p),
                               .drafts = drafts_of(r, rows.seq),
                               .n_true = backend_n_true(b, rows.seq),
                               .width = width};
        convolve(&c, p.from, p.to);
        for (; copy < b->n_copies && b->copy_rows[copy] < rows.end; copy++) {
            leave(&c, b->copy_rows[copy], p.from, p.to, state_at(r, b->copy_states[copy]));
        }
        leave(&c, rows.certain - 1, p.from, p.to, c.state);
        keep_drafts(&c, rows.certain, p.from, p.to);
    }
}
