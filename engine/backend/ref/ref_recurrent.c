/* Recurrent steps of the reference back end, in double. States are stored in float, like keys. Each column of a state
 * is updated separately, row by row. */
#include "engine/backend/ref/ref_internal.h"
#include "engine/plan/plan_ops.h"

#include <math.h>
#include <string.h>

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

static float *state_at(const struct ref_run *r, int32_t id) { return ref_state(r->m, id) + r->step->recurrent; }

/* Returns the step's drafts next to the state of sequence i. */
static float *drafts_of(const struct ref_run *r, int32_t i)
{
    const struct backend_batch *b = r->batch;
    return ref_state(r->m, b->states != NULL ? b->states[i] : i) + r->m->plan->recurrent_floats +
           (size_t)r->m->cfg.max_drafts * r->step->drafted;
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

/* Returns channel n of row i, or of a row before the first: of the state, then the drafts that came true. */
static float input(const struct ref_run *r, const struct backend_seq_rows *s, int32_t i, uint32_t n, const float *state)
{
    size_t width = r->m->plan->bufs[r->step->src].width;
    int32_t kept = (int32_t)r->step->conv.taps - 1, at = i - s->first + backend_n_true(r->batch, s->seq);
    if (i >= s->first) {
        return ref_row(r, r->step->src, i)[n];
    }
    return at < 0 ? state[(size_t)(at + kept) * width + n] : drafts_of(r, s->seq)[(size_t)at * width + n];
}

/* Writes channel n of the state after row `last`. */
static void leave(const struct ref_run *r, const struct backend_seq_rows *s, int32_t last, uint32_t n,
                  const float *state, float *to)
{
    size_t width = r->m->plan->bufs[r->step->src].width;
    int32_t kept = (int32_t)r->step->conv.taps - 1;
    for (int32_t k = 0; k < kept; k++) { /* ascending, because some can move down in the same memory */
        to[(size_t)k * width + n] = input(r, s, last + 1 - kept + k, n, state);
    }
}

/* Convolves channel n of the rows. copy: the first copy of their states, if any. */
static void convolve(const struct ref_run *r, const struct backend_seq_rows *rows, uint32_t n, int32_t copy,
                     float *state)
{
    const struct backend_batch *b = r->batch;
    const struct plan_step *s = r->step;
    int32_t kept = (int32_t)s->conv.taps - 1;
    const float *w = ref_vector(r, s->w[0]) + (size_t)n * s->conv.taps, *bias = ref_vector(r, s->bias[0]);
    for (int32_t i = rows->first; i < rows->end; i++) {
        double sum = 0;
        for (int32_t j = 0; j <= kept; j++) {
            sum += (double)w[j] * input(r, rows, i - kept + j, n, state);
        }
        ref_row(r, s->dst, i)[n] = ref_math_map(s->conv.map, sum + (bias != NULL ? (double)bias[n] : 0.0));
    }
    for (; copy < b->n_copies && b->copy_rows[copy] < rows->end; copy++) {
        leave(r, rows, b->copy_rows[copy], n, state, state_at(r, b->copy_states[copy]));
    }
    leave(r, rows, rows->certain - 1, n, state, state);
    for (int32_t i = rows->certain; i < rows->end; i++) {
        size_t at = (size_t)(i - rows->certain) * r->m->plan->bufs[s->src].width + n;
        drafts_of(r, rows->seq)[at] = ref_row(r, s->src, i)[n];
    }
}

/* Computes channels [from, to) of all rows. */
void ref_recurrent_conv(const struct ref_run *r, int from, int to)
{
    const struct backend_batch *b = r->batch;
    uint32_t width = r->m->plan->bufs[r->step->src].width;
    struct backend_seq_rows rows = {0};
    for (int32_t copy = 0; rows.end < b->n_rows;) {
        rows = backend_seq_rows_at(b, rows.end);
        float *state = state_of(r, rows.first, r->step->conv.taps - 1, width, from, to);
        for (int n = from; n < to; n++) {
            convolve(r, &rows, (uint32_t)n, copy, state);
        }
        while (copy < b->n_copies && b->copy_rows[copy] < rows.end) {
            copy++;
        }
    }
}

/* A row of a head. */
struct head_row {
    const float *q, *k, *v; /* of a state space C, B and x */
    const float *rates;     /* alphas; dt, of a scan one a column */
    float beta;
};

/* Computes the decay of each row of the state of value head h. */
static void find_decays(const struct ref_run *r, const struct head_row *in, uint32_t h, double *decay)
{
    const struct plan_step *s = r->step;
    uint32_t n = plan_delta_decays(&r->m->plan->delta);
    for (uint32_t j = 0; j < r->m->plan->delta.key_dim; j++) {
        double x = j < n ? (double)in->rates[j] + ref_vector(r, s->bias[0])[h * n + j] : 0;
        decay[j] = j < n ? exp(ref_vector(r, s->w[0])[h] * ref_math_softplus(x)) : decay[0];
    }
}

/* Updates the state [dk][dv] of value head h with a row and computes the head's output [dv]. */
static void delta_row(const struct ref_run *r, const struct head_row *in, uint32_t h, float *state, float *out)
{
    const struct plan_step *s = r->step;
    const struct plan_delta *d = &r->m->plan->delta;
    double beta = 1.0 / (1.0 + exp(-(double)in->beta));
    double query[PLAN_MAX_HEAD], key[PLAN_MAX_HEAD], decay[PLAN_MAX_HEAD], column[PLAN_MAX_HEAD];
    find_decays(r, in, h, decay);
    bring_to_length(in->q, d->key_dim, 1.0 / sqrt(d->key_dim), query);
    bring_to_length(in->k, d->key_dim, 1.0, key);
    for (uint32_t n = 0; n < d->value_dim; n++) {
        double known = 0, y = 0;
        for (uint32_t j = 0; j < d->key_dim; j++) {
            column[j] = decay[j] * state[(size_t)j * d->value_dim + n];
            known += column[j] * key[j];
        }
        double change = beta * (in->v[n] - known);
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

static struct head_row delta_in(const struct ref_run *r, int32_t i, uint32_t h)
{
    const struct plan_step *s = r->step;
    const struct plan_delta *d = &r->m->plan->delta;
    bool is_apart = s->delta.keys != PLAN_NONE;
    uint32_t key = plan_delta_key_head(d, h) * d->key_dim, all = d->n_k_heads * d->key_dim;
    const float *row = ref_row(r, s->src, i);
    return (struct head_row){.q = row + key,
                             .k = (is_apart ? ref_row(r, s->delta.keys, i) : row + all) + key,
                             .v = (is_apart ? ref_row(r, s->delta.values, i) : row + 2 * all) + h * d->value_dim,
                             .rates = ref_row(r, s->delta.alpha, i) + h * plan_delta_decays(d),
                             .beta = ref_row(r, s->delta.beta, i)[h]};
}

/* Updates the state [n][p] of head h with a row and computes the head's output [p]. */
static void ssm_row(const struct ref_run *r, const struct head_row *in, uint32_t h, float *state, float *out)
{
    const struct plan_step *s = r->step;
    const struct plan_ssm *m = &r->m->plan->ssm;
    double dt = ref_math_softplus((double)in->rates[0] + ref_vector(r, s->bias[0])[h]);
    double rate = ref_vector(r, s->w[0])[h], skip = ref_vector(r, s->w[1])[h], decay = exp(dt * rate);
    for (uint32_t n = 0; n < m->head_dim; n++) {
        double y = 0, input = dt * in->v[n];
        for (uint32_t j = 0; j < m->state_dim; j++) {
            float *at = state + (size_t)j * m->head_dim + n;
            double sum = decay * *at + in->k[j] * input;
            y += sum * in->q[j];
            *at = (float)sum;
        }
        out[n] = (float)(y + skip * in->v[n]);
    }
}

static struct head_row ssm_in(const struct ref_run *r, int32_t i, uint32_t h)
{
    const struct plan_ssm *m = &r->m->plan->ssm;
    const float *all = ref_row(r, r->step->src, i); /* x, B and C */
    const float *in = all + m->n_heads * m->head_dim + h / (m->n_heads / m->n_groups) * m->state_dim;
    return (struct head_row){.q = in + m->n_groups * m->state_dim,
                             .k = in,
                             .v = all + h * m->head_dim,
                             .rates = ref_row(r, r->step->ssm.dt, i) + h};
}

/* Updates the state [n][p] of head h with a row and computes its channels of the output. */
static void scan_row(const struct ref_run *r, const struct head_row *in, uint32_t h, float *state, float *out)
{
    const struct plan_step *s = r->step;
    const struct plan_ssm *m = &r->m->plan->ssm;
    size_t first = (size_t)h * m->head_dim;
    const float *a = ref_vector(r, s->w[0]) + first * m->state_dim;
    for (uint32_t n = 0; n < m->head_dim; n++) {
        double dt = ref_math_softplus((double)in->rates[n] + ref_vector(r, s->bias[0])[first + n]);
        double y = (double)ref_vector(r, s->w[1])[first + n] * in->v[n];
        for (uint32_t j = 0; j < m->state_dim; j++) {
            size_t at = (size_t)j * m->head_dim + n;
            double sum = exp(dt * a[at]) * state[at] + in->k[j] * dt * in->v[n];
            y += sum * in->q[j];
            state[at] = (float)sum;
        }
        out[n] = (float)y;
    }
}

static struct head_row scan_in(const struct ref_run *r, int32_t i, uint32_t h)
{
    const struct plan_step *s = r->step;
    size_t first = (size_t)h * r->m->plan->ssm.head_dim;
    return (struct head_row){.q = ref_row(r, s->scan.c, i),
                             .k = ref_row(r, s->scan.b, i),
                             .v = ref_row(r, s->src, i) + first,
                             .rates = ref_row(r, s->scan.dt, i) + first};
}

/* A step that has a state for each head. */
struct head_op {
    struct head_row (*in)(const struct ref_run *r, int32_t i, uint32_t h);
    void (*row)(const struct ref_run *r, const struct head_row *in, uint32_t h, float *state, float *out);
    uint32_t n_keys, n_cols, n_rates;
    bool has_beta;
};

/* Computes row i of head h. */
static void compute_row(const struct ref_run *r, const struct head_op *op, int32_t i, uint32_t h, float *state)
{
    struct head_row in = op->in(r, i, h);
    op->row(r, &in, h, state, ref_row(r, r->step->dst, i) + (size_t)h * op->n_cols);
}

/* Advances the state of head h by the drafts of the last batch that came true, from `rows` on. */
static void advance(const struct ref_run *r, const struct head_op *op, const float *rows, int32_t n, uint32_t h,
                    float *state)
{
    size_t stride = plan_drafted_floats(r->m->plan, r->step);
    float unread[PLAN_MAX_HEAD];
    for (int32_t i = 0; i < n; i++, rows += stride) {
        const float *v = rows + op->n_keys, *rates = v + op->n_cols;
        float beta = op->has_beta ? rates[op->n_rates] : 0;
        op->row(r, &(struct head_row){.q = rows, .k = rows, .v = v, .rates = rates, .beta = beta}, h, state, unread);
    }
}

/* Computes the drafts of head h without changing its state, and keeps what advances it by them in `to`. */
static void compute_drafts(const struct ref_run *r, const struct head_op *op, const struct backend_seq_rows *s,
                           uint32_t h, const float *state, float *to)
{
    size_t stride = plan_drafted_floats(r->m->plan, r->step);
    memcpy(r->scratch, state, (size_t)op->n_keys * op->n_cols * sizeof *state);
    for (int32_t i = s->certain; i < s->end; i++, to += stride) {
        struct head_row in = op->in(r, i, h);
        float *rates = to + op->n_keys + op->n_cols;
        compute_row(r, op, i, h, r->scratch);
        memcpy(to, in.k, op->n_keys * sizeof *to);
        memcpy(to + op->n_keys, in.v, op->n_cols * sizeof *to);
        memcpy(rates, in.rates, op->n_rates * sizeof *to);
        if (op->has_beta) {
            rates[op->n_rates] = in.beta;
        }
    }
}

/* Computes heads [from, to) of all rows. */
static void run_heads(const struct ref_run *r, int from, int to, const struct head_op *op)
{
    const struct backend_batch *b = r->batch;
    size_t head = (size_t)op->n_keys * op->n_cols, begin = (size_t)from * head, end = (size_t)to * head,
           kept = (size_t)r->m->cfg.max_drafts * plan_drafted_floats(r->m->plan, r->step);
    struct backend_seq_rows s = {0};
    for (int32_t copy = 0; s.end < b->n_rows;) {
        s = backend_seq_rows_at(b, s.end);
        float *state = state_of(r, s.first, 1, 0, (int)begin, (int)end), *drafts = drafts_of(r, s.seq);
        for (int h = from; h < to; h++) {
            advance(r, op, drafts + (size_t)h * kept, backend_n_true(b, s.seq), (uint32_t)h, state + (size_t)h * head);
        }
        for (int32_t i = s.first; i < s.certain; i++) {
            for (int h = from; h < to; h++) {
                compute_row(r, op, i, (uint32_t)h, state + (size_t)h * head);
            }
            if (copy < b->n_copies && b->copy_rows[copy] == i) {
                memcpy(state_at(r, b->copy_states[copy++]) + begin, state + begin, (end - begin) * sizeof *state);
            }
        }
        for (int h = from; h < to && s.certain < s.end; h++) {
            compute_drafts(r, op, &s, (uint32_t)h, state + (size_t)h * head, drafts + (size_t)h * kept);
        }
    }
}

void ref_recurrent_delta(const struct ref_run *r, int from, int to)
{
    const struct plan_delta *d = &r->m->plan->delta;
    run_heads(r, from, to,
              &(struct head_op){.in = delta_in,
                                .row = delta_row,
                                .n_keys = d->key_dim,
                                .n_cols = d->value_dim,
                                .n_rates = plan_delta_decays(d),
                                .has_beta = true});
}

void ref_recurrent_ssm(const struct ref_run *r, int from, int to)
{
    const struct plan_ssm *m = &r->m->plan->ssm;
    run_heads(
        r, from, to,
        &(struct head_op){.in = ssm_in, .row = ssm_row, .n_keys = m->state_dim, .n_cols = m->head_dim, .n_rates = 1});
}

void ref_recurrent_scan(const struct ref_run *r, int from, int to)
{
    const struct plan_ssm *m = &r->m->plan->ssm;
    run_heads(
        r, from, to,
        &(struct head_op){
            .in = scan_in, .row = scan_row, .n_keys = m->state_dim, .n_cols = m->head_dim, .n_rates = m->head_dim});
}
