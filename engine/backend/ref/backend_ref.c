/* The reference back end runs the plan with the plainest code: weights dequantized row by row, activations in f32, sums
 * in double, keys and values in f32. It is slow, and defines the results that fast back ends are compared with.
 *
 * The pool's threads share work by output rows or by token rows; sums never depend on the split. */
#include "engine/backend/moe_route.h"
#include "engine/backend/ref/ref_internal.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"

#include <math.h>
#include <string.h>

/* --- steps ------------------------------------------------------------------------------------------------------ */

/* Adds row `row` of weight `id`, if any, to out. */
static void add_row(const struct ref_run *r, plan_weight_id id, int32_t row, float *out)
{
    if (id == PLAN_NONE) {
        return;
    }
    const struct plan_weight *w = &r->m->plan->weights[id];
    ref_math_dequantize(w, (uint32_t)row, r->scratch);
    for (uint32_t k = 0; k < w->n_in; k++) {
        out[k] += r->scratch[k];
    }
}

static void embed_row(const struct ref_run *r, int32_t i)
{
    const struct plan_weight *w = &r->m->plan->weights[r->step->w[0]];
    float *out = ref_row(r, r->step->dst, i);
    ref_math_dequantize(w, (uint32_t)r->batch->tokens[i], out);
    for (uint32_t k = 0; k < w->n_in; k++) {
        out[k] *= r->step->scale;
    }
    add_row(r, r->step->w[1], r->batch->pos[i], out);
    add_row(r, r->step->w[2], 0, out);
}

/* Applies a norm step to a row; out can be x. */
static void norm(const struct ref_run *r, const float *x, float *out)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width, group = r->m->plan->weights[s->w[0]].n_in;
    for (uint32_t at = 0; at < width; at += group) {
        if (s->norm.centers) {
            ref_math_layer_norm(x + at, ref_vector(r, s->w[0]), ref_vector(r, s->bias[0]), s->eps, group, out + at);
        } else {
            ref_math_rmsnorm(x + at, ref_vector(r, s->w[0]), s->eps, group, out + at);
        }
    }
}

static void norm_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    float *dst = ref_row(r, s->dst, i);
    norm(r, ref_row(r, s->src, i), s->adds ? r->scratch : dst);
    for (uint32_t k = 0; s->adds && k < width; k++) {
        dst[k] += r->scratch[k];
    }
}

static void hidden_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    uint32_t width = r->m->plan->bufs[s->src].width;
    const float *x = ref_row(r, s->src, r->batch->hidden_rows[i]);
    float *out = r->batch->hidden + (size_t)i * width;
    if (s->w[0] == PLAN_NONE) {
        memcpy(out, x, width * sizeof *out);
    } else {
        norm(r, x, out);
    }
}

static void gather_row(const struct ref_run *r, int32_t i)
{
    const float *x = ref_row(r, r->step->src, r->batch->logit_rows[i]);
    memcpy(ref_row(r, r->step->dst, i), x, r->m->plan->bufs[r->step->src].width * sizeof *x);
}

static void input_row(const struct ref_run *r, int32_t i)
{
    const struct plan *p = r->m->plan;
    const float *x = r->batch->input + (size_t)i * p->input_width + r->step->edge.first;
    memcpy(ref_row(r, r->step->dst, i), x, p->bufs[r->step->dst].width * sizeof *x);
}

static void output_row(const struct ref_run *r, int32_t i)
{
    const struct plan *p = r->m->plan;
    float *out = r->batch->output;
    if (out != NULL) {
        memcpy(out + (size_t)i * p->output_width + r->step->edge.first, ref_row(r, r->step->src, i),
               p->bufs[r->step->src].width * sizeof *out);
    }
}

static void route_row(const struct ref_run *r, int32_t i)
{
    const struct plan_step *s = r->step;
    moe_route(&r->m->plan->moe, ref_row(r, s->src, i), ref_vector(r, s->w[0]), ref_vector(r, s->w[1]),
              ref_row(r, s->dst, i));
}

/* Returns output n of a matrix for one token row, before the step's other operations. */
static float product(const struct ref_run *r, int k, uint32_t n, const float *x, const float *row)
{
    const float *bias = ref_vector(r, r->step->bias[k]);
    return ref_math_dot(x, row, r->m->plan->weights[r->step->w[k]].n_in) + (bias != NULL ? bias[n] : 0);
}

/* Computes output rows [from, to) for all token rows. */
static void run_matmul(const struct ref_run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    for (uint32_t n = (uint32_t)from; n < (uint32_t)to; n++) {
        ref_math_dequantize(&r->m->plan->weights[s->w[0]], n, r->scratch);
        for (int32_t i = 0; i < ref_rows(r); i++) {
            float y = product(r, 0, n, ref_row(r, s->src, i), r->scratch), *out = &ref_row(r, s->dst, i)[n];
            *out = s->adds ? *out + s->scale * y : y;
        }
    }
}

static void run_glu(const struct ref_run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    bool is_gated = s->w[1] != PLAN_NONE;
    float *gate = r->scratch, *up = gate + r->m->widest;
    for (uint32_t n = (uint32_t)from; n < (uint32_t)to; n++) {
        ref_math_dequantize(&r->m->plan->weights[s->w[0]], n, gate);
        if (is_gated) {
            ref_math_dequantize(&r->m->plan->weights[s->w[1]], n, up);
        }
        for (int32_t i = 0; i < ref_rows(r); i++) {
            const float *x = ref_row(r, s->src, i);
            float y = product(r, 0, n, x, gate);
            ref_row(r, s->dst, i)[n] =
                is_gated ? ref_math_glu(s, y, product(r, 1, n, x, up)) : ref_math_activate(s->act, y);
        }
    }
}

static void run_logits(const struct ref_run *r, int from, int to)
{
    const struct plan_step *s = r->step;
    float cap = s->logits.softcap;
    for (uint32_t n = (uint32_t)from; n < (uint32_t)to; n++) {
        ref_math_dequantize(&r->m->plan->weights[s->w[0]], n, r->scratch);
        for (int32_t i = 0; i < ref_rows(r); i++) {
            float y = s->scale * product(r, 0, n, ref_row(r, s->src, i), r->scratch);
            r->batch->logits[(size_t)i * r->m->plan->n_vocab + n] = cap != 0 ? cap * tanhf(y / cap) : y;
        }
    }
}

static void row_stats(const struct ref_run *r, int32_t i)
{
    const float *x = r->batch->logits + (size_t)i * r->m->plan->n_vocab;
    uint32_t n_logits = plan_n_logits(r->m->plan, r->batch->predicts);
    int32_t best = 0;
    for (uint32_t n = 1; n < n_logits; n++) {
        best = x[n] > x[best] ? (int32_t)n : best;
    }
    double sum = 0;
    for (uint32_t n = 0; n < n_logits; n++) {
        sum += exp((double)x[n] - x[best]);
    }
    r->batch->stats[i] =
        (struct backend_row_stats){.argmax = best, .max = x[best], .logsumexp = (float)(log(sum) + x[best])};
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* How ops run: row by row, or for all rows, split by the dimension that plan_ops.c gives. */
static const struct {
    void (*row)(const struct ref_run *r, int32_t i);
    void (*items)(const struct ref_run *r, int from, int to);
} ref_ops[PLAN_OP_COUNT] = {
    [PLAN_EMBED] = {.row = embed_row},
    [PLAN_NORM] = {.row = norm_row},
    [PLAN_MATMUL] = {.items = run_matmul},
    [PLAN_GLU] = {.items = run_glu},
    [PLAN_QKV] = {.items = ref_attention_qkv},
    [PLAN_HEADS] = {.row = ref_attention_heads_row},
    [PLAN_INDEX] = {.row = ref_index_row},
    [PLAN_CHOOSE] = {.row = ref_index_choose_row},
    [PLAN_HEAD_MATMUL] = {.items = ref_attention_head_matmul},
    [PLAN_ATTENTION] = {.items = ref_attention_heads},
    [PLAN_ROUTE] = {.row = route_row},
    [PLAN_EXPERTS] = {.row = ref_experts_row},
    [PLAN_GATE] = {.row = ref_experts_gate_row},
    [PLAN_MULTIPLY] = {.row = ref_streams_multiply_row},
    [PLAN_XIELU] = {.row = ref_streams_xielu_row},
    [PLAN_SHORT_CONV] = {.items = ref_recurrent_conv},
    [PLAN_DELTA] = {.items = ref_recurrent_delta},
    [PLAN_SSM] = {.items = ref_recurrent_ssm},
    [PLAN_SCAN] = {.items = ref_recurrent_scan},
    [PLAN_SUM] = {.row = ref_streams_sum_row},
    [PLAN_PREDICT] = {.row = ref_streams_predict_row},
    [PLAN_CORRECT] = {.row = ref_streams_correct_row},
    [PLAN_REDUCE] = {.row = ref_streams_reduce_row}, /* after meet_ranks */
    [PLAN_HIDDEN] = {.row = hidden_row},
    [PLAN_GATHER] = {.row = gather_row},
    [PLAN_LOGITS] = {.items = run_logits},
    [PLAN_INPUT] = {.row = input_row},
    [PLAN_OUTPUT] = {.row = output_row},
};

/* Computes a thread's share of a step. */
static void run_step(const struct ref_run *r, int thread, int n_threads)
{
    enum plan_op op = r->step->op;
    bool by_rows = ref_ops[op].row != NULL;
    int from, to;
    pool_share(by_rows ? ref_rows(r) : (int)plan_n_items(r->m->plan, r->step), thread, n_threads, &from, &to);
    for (int i = from; by_rows && i < to; i++) {
        ref_ops[op].row(r, i);
    }
    if (!by_rows) {
        ref_ops[op].items(r, from, to);
    }
}

/* Replaces src by the sums over all ranks; one thread calls reduce. */
static void meet_ranks(const struct ref_run *r, int thread)
{
    struct backend_model *m = r->m;
    if (thread == 0 && m->reduced == ERR_OK) {
        uint32_t width = m->plan->bufs[r->step->src].width;
        m->reduced = m->cfg.reduce(m->cfg.reduce_arg, m->bufs[r->step->src], ref_rows(r), width, width);
    }
    pool_barrier(m->pool);
}

static void run_thread(void *arg, int thread, int n_threads)
{
    struct ref_run r = *(struct ref_run *)arg;
    const struct plan *p = r.m->plan;
    int from, to;
    r.scratch = r.m->scratch + (size_t)thread * r.m->scratch_floats;
    bool predicts = r.batch->predicts;
    int32_t end = plan_end_step(p, predicts, backend_has_results(p, r.batch));
    for (int32_t i = plan_first_step(p, predicts); i < end; i++) {
        r.step = &p->steps[i];
        if (plan_is_idle(r.step)) {
            continue;
        }
        if (plan_ops[r.step->op].over_ranks) {
            meet_ranks(&r, thread);
        }
        run_step(&r, thread, n_threads);
        pool_barrier(r.m->pool);
    }
    pool_share(r.batch->n_logits, thread, n_threads, &from, &to);
    for (int i = from; i < to; i++) {
        row_stats(&r, i);
    }
}

static enum err ref_begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    TRY(backend_check_batch(m->plan, &m->cfg, batch, info));
    struct ref_run run = {.m = m, .batch = batch};
    m->reduced = ERR_OK;
    pool_run(m->pool, run_thread, &run);
    return m->reduced == ERR_OK ? ERR_OK : backend_reduce_failed(m->reduced, info);
}

/* The back end's own form is BACKEND_FLOATS. */
static enum err ref_page_copy(struct backend_model *m, struct backend_page page, enum backend_form form, void *bytes,
                              bool writes, struct err_info *info)
{
    float *at = bytes;
    (void)form;
    (void)info;
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        const struct ref_kv *kv = &m->kvs[i];
        size_t n = kv->heads.layer == i ? KV_PAGE_TOKENS * kv->slot_floats : 0;
        int32_t id = backend_page_id(page, kv->is_local);
        if (id != BACKEND_NO_PAGE) {
            float *floats = m->kv + kv->at + (size_t)id * n;
            memcpy(writes ? floats : at, writes ? at : floats, n * sizeof *floats);
        }
        at += n;
    }
    return ERR_OK;
}

static enum err ref_state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes, struct err_info *info)
{
    (void)info;
    float *own = ref_state(m, state);
    memcpy(writes ? own : bytes, writes ? bytes : own, m->bytes.state);
    return ERR_OK;
}

static enum err no_memory(struct err_info *info)
{
    return err_set(info, ERR_NOMEM, NULL, "out of memory for the reference back end");
}

static void ref_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    if (m == NULL) {
        return;
    }
    pool_free(&m->pool);
    mem_unmap(m->kv, m->pool_bytes, MEM_KV);
    for (int i = 0; i < PLAN_MAX_BUFS; i++) {
        mem_free(m->bufs[i]);
    }
    for (int32_t i = 0; i < m->plan->n_weights && m->vectors != NULL; i++) {
        mem_free(m->vectors[i]);
    }
    mem_free(m->vectors);
    mem_free(m->scratch);
    mem_free(m->kvs);
    mem_free(m);
    *model = NULL;
}

/* Assigns each layer that stores keys and values its offset. */
static void lay_out_kv(struct backend_model *m)
{
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(m->plan, i);
        if (kv.layer != i) {
            m->kvs[i] = kv.layer != PLAN_NONE ? m->kvs[kv.layer] : (struct ref_kv){.at = 0};
            m->kvs[i].heads = kv;
            continue;
        }
        size_t slot = plan_kv_floats(&kv);
        bool is_local = backend_is_local(m->plan, &m->cfg, i);
        m->kvs[i] = (struct ref_kv){.heads = kv, .at = m->recurrent_at, .slot_floats = slot, .is_local = is_local};
        *backend_page_bytes(&m->bytes, is_local) += slot * KV_PAGE_TOKENS * sizeof(float);
        m->recurrent_at +=
            /* Cannot overflow if pool_bytes does not. */
            slot * KV_PAGE_TOKENS * (size_t)backend_n_pages(&m->cfg, is_local);
    }
}

/* Converts norms, biases and similar vectors to floats; false when out of memory. */
static bool read_vectors(struct backend_model *m)
{
    m->vectors = mem_zalloc_array((size_t)m->plan->n_weights + 1, sizeof *m->vectors, MEM_MODEL);
    for (int32_t i = 0; i < m->plan->n_weights && m->vectors != NULL; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        if (w->n_out == 1 && w->type == DTYPE_F32) {
            m->vectors[i] = mem_alloc((size_t)w->row_bytes, MEM_MODEL);
            if (m->vectors[i] == NULL) {
                return false;
            }
            ref_math_dequantize(w, 0, m->vectors[i]);
        }
    }
    return m->vectors != NULL;
}

static const char *ref_kv_type_name(int i) { return i == 0 ? "f32" : NULL; }

/* Computes everything that needs neither a weight nor memory for one. */
static enum err lay_out(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    int only;
    TRY(backend_check_types(p, info));
    TRY(names_choose(ref_kv_type_name, "cache-type-k", m->cfg.k_type, &only, info));
    TRY(names_choose(ref_kv_type_name, "cache-type-v", m->cfg.v_type, &only, info));
    m->kvs = mem_zalloc_array(p->n_layers, sizeof *m->kvs, MEM_MODEL);
    if (m->kvs == NULL) {
        return no_memory(info);
    }
    lay_out_kv(m);
    backend_set_state_bytes(p, &m->cfg, &m->bytes);
    for (int32_t i = 0; i < p->n_bufs; i++) {
        m->bytes.activations += (size_t)m->cfg.max_rows * p->bufs[i].width * sizeof(float);
        m->widest = MAX_OF(m->widest, (size_t)p->bufs[i].width);
    }
    for (int32_t i = 0; i < p->n_weights; i++) {
        const struct plan_weight *w = &p->weights[i];
        m->bytes.weights += (size_t)(w->row_bytes * w->n_out);
        m->widest = w->n_out > 1 ? MAX_OF(m->widest, (size_t)w->n_in) : m->widest;
    }
    m->scratch_floats = MAX_OF(4 * m->widest, backend_drafting_floats(p, &m->cfg));
    if (p->index_dim != 0) { /* scores of the longest sequence that the pages can hold */
        m->scratch_floats = MAX_OF(m->scratch_floats, (size_t)m->cfg.n_pages * KV_PAGE_TOKENS);
    }
    m->bytes.activations += m->scratch_floats * (size_t)m->cfg.n_threads * sizeof(float);
    return backend_pool_bytes(&m->bytes, &m->cfg, &m->pool_bytes, info);
}

static enum err allocate(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    m->kv = mem_map(m->pool_bytes, MEM_KV);
    bool ok = m->kv != NULL || m->pool_bytes == 0;
    m->recurrent = ok ? m->kv + m->recurrent_at : NULL;
    for (int32_t i = 0; i < p->n_bufs && ok; i++) {
        m->bufs[i] = mem_zalloc_array((size_t)m->cfg.max_rows * p->bufs[i].width, sizeof(float), MEM_SCRATCH);
        ok = m->bufs[i] != NULL;
    }
    m->scratch = ok && read_vectors(m)
                     ? mem_zalloc_array(m->scratch_floats * (size_t)m->cfg.n_threads, sizeof(float), MEM_SCRATCH)
                     : NULL;
    return m->scratch != NULL ? ERR_OK : no_memory(info);
}

/* Creates a model without memory. */
static enum err make_model(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                           struct err_info *info)
{
    struct backend_model *m = *out = mem_zalloc(sizeof *m, MEM_MODEL);
    if (m == NULL) {
        return no_memory(info);
    }
    m->plan = plan;
    m->cfg = *cfg;
    enum err err = lay_out(m, info);
    if (err != ERR_OK) {
        ref_close(out);
    }
    return err;
}

static enum err ref_measure(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                            struct err_info *info)
{
    struct backend_model *m;
    TRY(make_model(plan, cfg, &m, info));
    *out =
        (struct backend_measure){.kernels = "ref", .k_type = "f32", .v_type = "f32", .bytes[BACKEND_HOST] = m->bytes};
    ref_close(&m);
    return ERR_OK;
}

static enum err ref_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                         struct err_info *info)
{
    *out = NULL;
    TRY(backend_check_ranks(plan, cfg, info));
    TRY(make_model(plan, cfg, out, info));
    enum err err = allocate(*out, info);
    if (err == ERR_OK) {
        err = pool_new(cfg->n_threads, &(*out)->pool, info);
    }
    if (err != ERR_OK) {
        ref_close(out);
    }
    return err;
}

static void ref_info(const struct backend_model *m, struct backend_info *out)
{
    (void)m;
    *out = (struct backend_info){.pack_note = "", .max_begun = 1};
}

const struct backend backend_ref = {
    .name = "ref",
    .description = "scalar reference: f32 activations and KV, sums in double",
    .kv_type_name = ref_kv_type_name,
    .probe = backend_probe_host,
    .measure = ref_measure,
    .open = ref_open,
    .begin = ref_begin,
    .wait = backend_wait_done,
    .page_copy = ref_page_copy,
    .state_copy = ref_state_copy,
    .info = ref_info,
    .close = ref_close,
};
