/* Shared by the files of the reference back end only. Rows are token rows of the batch; from and to bound a thread's
 * share of a step's output rows, heads or channels.
 * Threads: the functions can run simultaneously on parts that do not overlap. */
#ifndef INFCGI_BACKEND_REF_INTERNAL_H
#define INFCGI_BACKEND_REF_INTERNAL_H

#include "engine/backend/backend.h"

/* Keys and values that a layer reads: [page][slot][2][K*d] from `at` on, a position's keys, then its values; latents:
 * [page][slot][d], a position's latent, then its index key. */
struct ref_kv {
    struct plan_kv heads;
    bool is_local; /* its pages are window pages */
    size_t at, slot_floats;
};

struct backend_model {
    const struct plan *plan;
    struct pool *pool;
    struct backend_config cfg;
    struct ref_kv *kvs; /* [L] */
    float **vectors;    /* [n_weights] F32 weights of one row; NULL for others */
    struct backend_bytes bytes;
    float *kv;
    size_t pool_bytes, recurrent_at; /* of kv: bytes of all pages; first float of the recurrent states after them */
    float *recurrent;                /* [state] of bytes.state and bytes.drafts (backend_set_state_bytes) */
    float *bufs[PLAN_MAX_BUFS];      /* [max_rows][width] */
    float *scratch;                  /* [thread][widest input] dequantized row, then [thread][scratch of attention] */
    size_t scratch_floats;           /* of one thread */
    size_t widest;                   /* of all buffers and weight rows */
    enum err reduced;                /* result of backend_config.reduce in this batch */
};

/* One thread's view of one batch. */
struct ref_run {
    struct backend_model *m;
    const struct backend_batch *batch;
    const struct plan_step *step;
    /* of the thread: four times the widest row, a head's state while drafts are computed, or scores of positions */
    float *scratch;
};

/* Returns a recurrent state. */
static inline float *ref_state(const struct backend_model *m, int32_t id)
{
    return m->recurrent + (size_t)id * ((m->bytes.state + m->bytes.drafts) / sizeof(float));
}

/* Returns the number of rows of the current step. */
static inline int32_t ref_rows(const struct ref_run *r)
{
    const int32_t n[] = {[PLAN_ALL_ROWS] = r->batch->n_rows,
                         [PLAN_LOGIT_ROWS] = r->batch->n_logits,
                         [PLAN_HIDDEN_ROWS] = r->batch->n_hidden};
    return n[r->step->rows];
}

static inline float *ref_row(const struct ref_run *r, plan_buf_id id, int32_t row)
{
    return r->m->bufs[id] + (size_t)row * r->m->plan->bufs[id].width;
}

static inline const float *ref_vector(const struct ref_run *r, plan_weight_id id)
{
    return id == PLAN_NONE ? NULL : r->m->vectors[id];
}

/* Returns the heads of the current step's layer. */
static inline const struct plan_kv *ref_heads(const struct ref_run *r) { return &r->m->kvs[r->step->layer].heads; }

/* Returns the keys and values of a position in the current step's layer. */
static inline float *ref_kv_at(const struct ref_run *r, int32_t seq, int32_t pos)
{
    const struct ref_kv *kv = &r->m->kvs[r->step->layer];
    int32_t page = backend_table(r->batch, kv->is_local, seq)[pos / KV_PAGE_TOKENS];
    size_t slot = (size_t)page * KV_PAGE_TOKENS + (size_t)(pos % KV_PAGE_TOKENS);
    return r->m->kv + kv->at + slot * kv->slot_floats;
}

/* --- arithmetic, with sums in double ------------------------------------------------------------------------------ */

/* Writes row `row` of w to out[n_in]. */
void ref_math_dequantize(const struct plan_weight *w, uint32_t row, float *out);
float ref_math_dot(const float *a, const float *b, uint32_t n);
/* Returns the variance of x[n], and its mean. */
double ref_math_variance(const float *x, uint32_t n, double *mean);
/* Write the norm of x[n] to out[n], which can be x; w[n] and bias[n] can be NULL. */
void ref_math_rmsnorm(const float *x, const float *w, float eps, uint32_t n, float *out);
void ref_math_layer_norm(const float *x, const float *w, const float *bias, float eps, uint32_t n, float *out);
float ref_math_activate(enum plan_act act, float x);
float ref_math_glu(const struct plan_step *s, float gate, float up); /* with the step's limits */
float ref_math_map(enum plan_map how, double v);
double ref_math_softplus(double x); /* log(1 + exp(x)) */

/* Rotates the components of a head that the table selects, in place (ref_attention.c). */
void ref_attention_rotate(const struct plan_rope *rope, int32_t pos, float *head);

/* --- steps: plan.h defines them ------------------------------------------------------------------------ */

/* Compute heads [from, to) of the step's Q, K and V; of the queries; for all rows. */
void ref_attention_qkv(const struct ref_run *r, int from, int to);
void ref_attention_heads(const struct ref_run *r, int from, int to);
/* Compute heads, or channels, [from, to) of all rows. */
void ref_attention_head_matmul(const struct ref_run *r, int from, int to);
void ref_recurrent_conv(const struct ref_run *r, int from, int to);
void ref_recurrent_delta(const struct ref_run *r, int from, int to);
void ref_recurrent_ssm(const struct ref_run *r, int from, int to);
void ref_recurrent_scan(const struct ref_run *r, int from, int to);

/* Compute row i. */
void ref_attention_heads_row(const struct ref_run *r, int32_t i);
void ref_index_row(const struct ref_run *r, int32_t i);
void ref_index_choose_row(const struct ref_run *r, int32_t i);
void ref_experts_row(const struct ref_run *r, int32_t i);
void ref_experts_gate_row(const struct ref_run *r, int32_t i);
void ref_streams_multiply_row(const struct ref_run *r, int32_t i);
void ref_streams_xielu_row(const struct ref_run *r, int32_t i);
void ref_streams_sum_row(const struct ref_run *r, int32_t i);
void ref_streams_reduce_row(const struct ref_run *r, int32_t i); /* src holds the sums over all ranks */
void ref_streams_predict_row(const struct ref_run *r, int32_t i);
void ref_streams_correct_row(const struct ref_run *r, int32_t i);

#endif
