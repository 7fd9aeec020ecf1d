/* Gemma 3n, text only: Gemma 3's blocks with these changes.
 *
 * - The stream has several rows of the model's width (AltUp [Baykal 2023]): a layer predicts all of them from all, runs
 *   its blocks on the active one, and corrects all by the result.
 * - A block of low rank (Laurel) runs next to attention; the sum of both is divided by sqrt(2).
 * - In the first layers, feed-forward gates only pass outliers.
 * - Each layer has embeddings, which are added to all rows of the stream except the first.
 * - Values are normed without a weight, and q.k is not scaled.
 * - The last layers use the keys and values of the last layer of their kind that has some.
 *
 * Formulas: Hugging Face transformers 5, modeling_gemma3n.py. Keys, names and shapes of GGUF: llama.cpp b11434,
 * conversion/gemma.py and src/models/gemma3n.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"
#include "engine/tensor/row_order.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    GLOBAL_EVERY = 5, /* one global layer after four local ones */
    WINDOW = 512,
    OWN_LAYERS = 20, /* layers with keys and values, if the file does not say: in both sizes, of 30 and 35 layers */
    PER_LAYER = 256,
    SPARSE_LAYERS = 10,
    OTHER_BUFS = 10, /* in addition to those of the stream and of feed-forward blocks */
    KEY_BYTES = 128,
};
_Static_assert((int)PLAN_MAX_STREAMS + 2 * (int)BLOCKS_MAX_FF_WIDTHS + (int)OTHER_BUFS <= (int)PLAN_MAX_BUFS,
               "a file may ask for more buffers than a plan has");
static const double LOCAL_FREQ_BASE = 10000.0;
static const double SOFTCAP = 30.0;
static const double SPARSITY = 0.95;
static const double MAX_CUTOFF = 40.0; /* beyond every quantile of doubles */
static const float MIN_SQUARE = 1e-5f; /* of a row scaled to another's magnitude */

/* A plan being built. The stream is x[n_streams]. */
struct gemma3n {
    struct blocks b;
    uint32_t n_streams, active, n_shared, n_ple; /* n_ple: width of a layer's part of the per-layer embeddings */
    uint32_t n_ff[PLAN_MAX_LAYERS];
    bool is_sparse[PLAN_MAX_LAYERS];
    float cutoff[PLAN_MAX_LAYERS];        /* of sparse layers, in standard deviations */
    plan_buf_id x[PLAN_MAX_STREAMS];      /* [D] each, consecutive */
    plan_buf_id y, t;                     /* [D] the layer's result for the active row; a temporary */
    plan_buf_id routes, low;              /* [n_streams] logits of the router; [rank] */
    plan_buf_id ple, ple_projected, gate; /* [L*P], [L*P], [P] */
};

/* --- hyper-parameters ----------------------------------------------------------------------------------------- */

/* Returns the quantile p, 0 < p < 1, of the normal distribution, in standard deviations. */
static double quantile(double p)
{
    double low = -MAX_CUTOFF, high = MAX_CUTOFF;
    for (int i = 0; i < 100; i++) {
        double z = (low + high) / 2;
        *(0.5 * erfc(-z * sqrt(0.5)) < p ? &low : &high) = z;
    }
    return (low + high) / 2;
}

/* Reads activation_sparsity_scale: a cutoff per layer, -inf for layers that pass everything. */
static enum err read_cutoffs(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    static const char key[] = "activation_sparsity_scale";
    const struct gguf_kv *kv;
    TRY(blocks_get_array(b, key, GGUF_F32, &kv));
    if (kv == NULL) {
        for (uint32_t i = 0; i < SPARSE_LAYERS && b->h.n_layers > SPARSE_LAYERS; i++) {
            m->is_sparse[i] = true;
            m->cutoff[i] = (float)quantile(SPARSITY);
        }
        return ERR_OK;
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        double cutoff = gguf_elem_f64(kv, i);
        m->is_sparse[i] = cutoff != -INFINITY;
        m->cutoff[i] = m->is_sparse[i] ? (float)cutoff : 0;
        if (!(m->cutoff[i] >= -MAX_CUTOFF && m->cutoff[i] <= MAX_CUTOFF)) { /* also catches NaN */
            return err_set(b->info, ERR_BAD_HPARAM, key, "gemma3n.%s[%u]: expected %g to %g, or -inf, found %g", key, i,
                           -MAX_CUTOFF, MAX_CUTOFF, cutoff);
        }
    }
    return ERR_OK;
}

static enum err set_heads(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    struct blocks_hparams *h = &b->h;
    struct plan *p = b->plan;
    TRY(blocks_get_u32(b, "attention.head_count_kv", 1, h->n_heads, h->n_heads, &h->n_kv_heads));
    TRY(blocks_expect(b, h->n_heads % h->n_kv_heads == 0, "attention.head_count_kv",
                      "expected a divisor of attention.head_count %" PRIu32 ", found %" PRIu32, h->n_heads,
                      h->n_kv_heads));
    p->n_kv_heads = h->n_kv_heads;
    p->kvs = arena_zalloc(&p->arena, h->n_layers * sizeof *p->kvs);
    TRY_MEM(p->kvs != NULL);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        p->kvs[i] = (struct plan_kv){.n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim};
        TRY(blocks_find_shared(b, m->n_shared, i, &p->kvs[i].layer));
    }
    return ERR_OK;
}

static enum err read_hparams(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    struct blocks_hparams *h = &b->h;
    struct blocks_style *s = &b->style;
    TRY(blocks_read_hparams(b));
    s->is_neox = true;
    s->act = PLAN_GELU_TANH;
    s->attn_scale = 1.0f;
    s->embed_scale = sqrtf((float)h->n_embd);
    uint32_t n_own = MIN_OF(h->n_layers, (uint32_t)OWN_LAYERS);
    TRY(blocks_get_f32(b, "final_logit_softcapping", 0.0, 1e6, SOFTCAP, &s->logit_softcap));
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, LOCAL_FREQ_BASE, &s->local_freq_base));
    TRY(blocks_read_windows(b, WINDOW, GLOBAL_EVERY));
    TRY(blocks_get_u32(b, "attention.shared_kv_layers", 0, h->n_layers - 1, h->n_layers - n_own, &m->n_shared));
    TRY(blocks_get_u32(b, "altup.num_inputs", 2, PLAN_MAX_STREAMS, 4, &m->n_streams));
    TRY(blocks_get_u32(b, "altup.active_idx", 0, m->n_streams - 1, 0, &m->active));
    TRY(blocks_get_u32(b, "embedding_length_per_layer_input", 1, PLAN_MAX_WIDTH / h->n_layers, PER_LAYER, &m->n_ple));
    TRY(blocks_get_layers(b, "feed_forward_length", 1, PLAN_MAX_WIDTH, UINT64_MAX, m->n_ff));
    TRY(read_cutoffs(m));
    return set_heads(m);
}

/* --- buffers and tables --------------------------------------------------------------------------------------- */

static enum err add_bufs(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    const struct blocks_hparams *h = &b->h;
    uint64_t rank = blocks_rows_of(b, "blk.0.laurel_l.weight");
    if (rank > PLAN_MAX_WIDTH) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, "blk.0.laurel_l.weight",
                       "blk.0.laurel_l.weight: expected at most %d rows, found %" PRIu64, PLAN_MAX_WIDTH, rank);
    }
    for (uint32_t i = 0; i < m->n_streams; i++) {
        TRY(plan_add_buf(b->plan, "x", h->n_embd, &m->x[i]));
    }
    b->x = m->x[0];
    TRY(plan_add_buf(b->plan, "y", h->n_embd, &m->y));
    TRY(plan_add_buf(b->plan, "t", h->n_embd, &m->t));
    TRY(plan_add_buf(b->plan, "q", h->n_heads * h->head_dim, &b->q));
    TRY(plan_add_buf(b->plan, "att", h->n_heads * h->head_dim, &b->att));
    TRY(plan_add_buf(b->plan, "routes", m->n_streams, &m->routes));
    TRY(plan_add_buf(b->plan, "low", rank != 0 ? (uint32_t)rank : 1, &m->low)); /* 0: binding reports it */
    TRY(plan_add_buf(b->plan, "per-layer", h->n_layers * m->n_ple, &m->ple));
    TRY(plan_add_buf(b->plan, "projected", h->n_layers * m->n_ple, &m->ple_projected));
    TRY(plan_add_buf(b->plan, "gate", m->n_ple, &m->gate));
    return plan_add_buf(b->plan, "last", h->n_embd, &b->last);
}

/* --- steps ---------------------------------------------------------------------------------------------------- */

/* Adds dst = scale * (src, plus dst if `adds`). */
static enum err add_sum(struct gemma3n *m, plan_buf_id src, plan_buf_id dst, bool adds, double scale)
{
    struct plan_step s = plan_step_of(PLAN_SUM, src, dst);
    s.adds = adds;
    s.scale = (float)scale;
    return plan_add_step(m->b.plan, &s);
}

/* Adds dst = src scaled to the magnitude of row 0 of the stream, or dst += that. */
static enum err add_levelled(struct gemma3n *m, plan_buf_id src, plan_buf_id dst, bool adds)
{
    TRY(add_sum(m, src, dst, adds, 1));
    struct plan_step *s = &m->b.plan->steps[m->b.plan->n_steps - 1];
    s->sum.level = m->x[0];
    s->eps = MIN_SQUARE;
    return ERR_OK;
}

/* Adds dst = src times matrix i of a stack [D, D, n_streams - 1]. */
static enum err add_projection(struct gemma3n *m, const char *name, uint32_t i, plan_buf_id src, plan_buf_id dst)
{
    struct blocks *b = &m->b;
    uint32_t d = b->h.n_embd;
    struct plan_step s = plan_step_of(PLAN_MATMUL, src, dst);
    TRY(blocks_bind_stack(b, name, m->n_streams - 1, d, d, &s.w[0]));
    const struct row_source *all = b->plan->weights[s.w[0]].source;
    TRY(plan_set_source(b->plan, s.w[0], row_order_row_range(&b->plan->arena, all, i * d, d)));
    return plan_add_step(b->plan, &s);
}

/* Adds the stream and the per-layer embeddings of a token. */
static enum err add_embeddings(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    TRY(blocks_add_embedding(b));
    TRY(blocks_add_per_layer(b, m->n_ple, m->ple, m->ple_projected));
    for (uint32_t i = 1; i < m->n_streams; i++) {
        TRY(add_projection(m, "altup_proj.weight", i - 1, b->x, m->x[i]));
        TRY(add_levelled(m, m->x[i], m->x[i], false));
    }
    return ERR_OK;
}

/* Adds routes = the router's logits for a row; their tanh are its modes. */
static enum err add_router(struct gemma3n *m, plan_buf_id src)
{
    struct blocks *b = &m->b;
    struct plan_step norm = plan_step_of(PLAN_NORM, src, m->t);
    norm.eps = b->h.eps;
    TRY(blocks_bind_scaled(b, "blk.%d.altup_router_norm.weight", b->h.n_embd, 1.0f / (float)b->h.n_embd, &norm.w[0]));
    TRY(plan_add_step(b->plan, &norm));
    return blocks_add_matmul(b, "blk.%d.altup_router.weight", m->t, m->routes);
}

/* Predicts all rows of the stream from all. */
static enum err add_prediction(struct gemma3n *m)
{
    uint32_t n = m->n_streams;
    TRY(add_router(m, m->x[m->active]));
    struct plan_step s = plan_step_of(PLAN_PREDICT, m->routes, m->x[0]);
    s.streams.n = n;
    TRY(blocks_bind_stack(&m->b, "blk.%d.altup_predict_coef.weight", n * n, 1, n, &s.w[0]));
    return plan_add_step(m->b.plan, &s);
}

/* Corrects all rows of the stream by y. */
static enum err add_correction(struct gemma3n *m)
{
    uint32_t n = m->n_streams;
    TRY(add_router(m, m->y));
    struct plan_step s = plan_step_of(PLAN_CORRECT, m->y, m->x[0]);
    s.streams.routes = m->routes;
    s.streams.first = m->active;
    s.streams.n = n;
    TRY(blocks_bind_stack(&m->b, "blk.%d.altup_correct_coef.weight", n, 1, n, &s.w[0]));
    return plan_add_step(m->b.plan, &s);
}

/* Adds att = attention of y, the normed row. */
static enum err add_heads(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    struct plan_step qkv = plan_step_of(PLAN_QKV, m->y, b->q);
    qkv.eps = b->h.eps;
    qkv.heads.rope = blocks_rope_of(b);
    qkv.heads.norms_values = true;
    bool stores = plan_kv_of(b->plan, b->plan->layer).layer == b->plan->layer;
    TRY(blocks_bind_qkv(b, 0, stores ? 3 : 1, &qkv));
    TRY(blocks_bind(b, "blk.%d.attn_q_norm.weight", 1, b->h.head_dim, &qkv.heads.q_norm));
    if (stores) {
        TRY(blocks_bind(b, "blk.%d.attn_k_norm.weight", 1, b->h.head_dim, &qkv.heads.k_norm));
    }
    TRY(plan_add_step(b->plan, &qkv));
    return blocks_attend(b);
}

/* Adds y = (row + attention + Laurel's) / sqrt(2), with Laurel's = y + norm(a matrix of low rank times y), y the normed
 * row. */
static enum err add_attention(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", m->x[m->active], m->y, false));
    TRY(add_heads(m));
    TRY(blocks_add_matmul(b, "blk.%d.laurel_l.weight", m->y, m->low));
    TRY(blocks_add_matmul(b, "blk.%d.laurel_r.weight", m->low, m->t));
    TRY(blocks_add_norm(b, "blk.%d.laurel_post_norm.weight", m->t, m->y, true));
    TRY(blocks_add_matmul(b, "blk.%d.attn_output.weight", b->att, m->t));
    TRY(blocks_add_reduce(b, m->t));
    TRY(blocks_add_norm(b, "blk.%d.post_attention_norm.weight", m->t, m->y, true));
    return add_sum(m, m->x[m->active], m->y, true, sqrt(0.5));
}

/* Adds y += the gated feed-forward block of y. */
static enum err add_feed_forward(struct gemma3n *m)
{
    static const char gate[] = "blk.%d.ffn_gate.weight", up[] = "blk.%d.ffn_up.weight";
    struct blocks *b = &m->b;
    int32_t layer = b->plan->layer;
    plan_buf_id ff;
    TRY(blocks_get_ff_buf(b, "ff", m->n_ff[layer], &ff));
    TRY(blocks_add_norm(b, "blk.%d.ffn_norm.weight", m->y, m->t, false));
    if (m->is_sparse[layer]) {
        struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, ff, PLAN_NONE);
        multiply.multiply.map = PLAN_MAP_GELU_TANH;
        multiply.multiply.is_sparse = true;
        multiply.multiply.cutoff = m->cutoff[layer];
        TRY(blocks_get_ff_buf(b, "up", m->n_ff[layer], &multiply.dst));
        TRY(blocks_add_matmul(b, gate, m->t, ff));
        TRY(blocks_add_matmul(b, up, m->t, multiply.dst));
        TRY(plan_add_step(b->plan, &multiply));
        ff = multiply.dst;
    } else {
        TRY(blocks_add_glu(b, gate, up, m->t, ff));
    }
    TRY(blocks_add_matmul(b, "blk.%d.ffn_down.weight", ff, m->t));
    TRY(blocks_add_reduce(b, m->t));
    return blocks_add_norm(b, "blk.%d.post_ffw_norm.weight", m->t, m->y, true);
}

/* The active row gates the layer's part of the per-layer embeddings, which is added to all rows except the first. */
static enum err add_layer_input(struct gemma3n *m)
{
    struct blocks *b = &m->b;
    TRY(add_sum(m, m->x[m->active], m->t, false, 1));
    struct plan_step *scaled = &b->plan->steps[b->plan->n_steps - 1];
    TRY(blocks_bind(b, "blk.%d.altup_correct_scale.weight", 1, b->h.n_embd, &scaled->w[0]));
    TRY(blocks_add_layer_input(b, m->t, m->ple, m->gate, m->t));
    for (uint32_t i = 1; i < m->n_streams; i++) {
        TRY(blocks_add_norm(b, "blk.%d.post_norm.weight", m->t, m->x[i], true));
    }
    return ERR_OK;
}

/* Averages the rows of the stream; all except the first go through a matrix and are scaled to its magnitude. */
static enum err add_mean(struct gemma3n *m)
{
    for (uint32_t i = 1; i < m->n_streams; i++) {
        TRY(add_projection(m, "altup_unembd_proj.weight", i - 1, m->x[i], m->t));
        TRY(add_levelled(m, m->t, m->y, i > 1));
    }
    return add_sum(m, m->y, m->x[0], true, 1.0 / m->n_streams);
}

static enum err build(struct blocks *b)
{
    struct gemma3n m = {.b = *b};
    m.b.reads_layers = true;
    TRY(read_hparams(&m));
    TRY(blocks_add_ropes(&m.b));
    TRY(add_bufs(&m));
    TRY(add_embeddings(&m));
    for (int i = 0; i < (int)m.b.h.n_layers; i++) {
        m.b.plan->layer = i;
        TRY(add_prediction(&m));
        TRY(add_attention(&m));
        TRY(add_feed_forward(&m));
        TRY(add_correction(&m));
        TRY(add_layer_input(&m));
    }
    m.b.plan->layer = PLAN_NONE;
    TRY(add_mean(&m));
    return blocks_add_end(&m.b);
}

/* --- SafeTensors folders --------------------------------------------------------------------------------------- */

static const struct hf_key hf_gemma3n_keys[] = {
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"final_logit_softcapping", "final_logit_softcapping", HF_CAP},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", HF_U32},
    {"num_kv_shared_layers", "attention.shared_kv_layers", HF_U32},
    {"activation_sparsity_pattern", "activation_sparsity_scale", HF_WORD},
    {"altup_num_inputs", "altup.num_inputs", HF_U32},
    {"altup_active_idx", "altup.active_idx", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_gemma3n_fixed[] = {
    {"altup_correct_scale", "true"},
    {"attention_bias", "false"},
    {NULL, NULL},
};

static const struct hf_name hf_gemma3n_names[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", HF_SAME},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", HF_SAME},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", HF_SAME},
    {"model.altup_projections.{}.weight", "altup_proj.weight", HF_STACK},
    {"model.altup_unembed_projections.{}.weight", "altup_unembd_proj.weight", HF_STACK},
    {"model.layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight", HF_SAME},
    {"model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight", HF_AS_F32},
    {"model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight", HF_AS_F32},
    {"model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight", HF_SAME},
    {"model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight", HF_SAME},
    {"model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight", HF_SAME},
    {"model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight", HF_SAME},
    {"model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight", HF_SAME},
    {"model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight", HF_SAME},
    {"model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight", HF_SAME},
    {"model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight", HF_SAME},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Returns a list with one number per layer; NULL: none. */
static enum err get_list(const struct hf *h, const char *key, uint32_t n_layers, const json_t **out)
{
    *out = json_read_get(h->config, key);
    if (*out != NULL && (!json_is_array(*out) || json_array_size(*out) != n_layers)) {
        return hf_bad(h, key, "expected %" PRIu32 " elements, one a layer, found %s of %zu", n_layers,
                      json_read_type_name(*out), json_array_size(*out));
    }
    return ERR_OK;
}

/* intermediate_size is one number, or one per layer. */
static enum err put_widths(struct hf *h, uint32_t n_layers)
{
    uint32_t widths[PLAN_MAX_LAYERS];
    const json_t *list;
    if (!json_is_array(json_read_get(h->config, "intermediate_size"))) {
        TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &widths[0]));
        gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), widths[0]);
        return ERR_OK;
    }
    TRY(get_list(h, "intermediate_size", n_layers, &list));
    for (uint32_t i = 0; i < n_layers; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > PLAN_MAX_WIDTH) {
            return err_set(h->info, ERR_BAD_CONFIG, "intermediate_size",
                           "config.json: intermediate_size[%" PRIu32 "]: expected 1 to %d, found %lld", i,
                           PLAN_MAX_WIDTH, (long long)json_integer_value(v));
        }
        widths[i] = (uint32_t)json_integer_value(v);
    }
    gguf_build_array(&h->b, hf_key(h, "feed_forward_length"), GGUF_U32, n_layers, widths);
    return ERR_OK;
}

/* Converts the share of a layer's gates that becomes 0 to a cutoff. */
static enum err put_cutoffs(struct hf *h, uint32_t n_layers)
{
    float cutoffs[PLAN_MAX_LAYERS];
    const json_t *list;
    TRY(get_list(h, "activation_sparsity_pattern", n_layers, &list));
    for (uint32_t i = 0; list != NULL && i < n_layers; i++) {
        const json_t *v = json_array_get(list, i);
        double share = json_number_value(v);
        if (!json_is_number(v) || !(share >= 0 && share < 1)) {
            return err_set(h->info, ERR_BAD_CONFIG, "activation_sparsity_pattern",
                           "config.json: activation_sparsity_pattern[%" PRIu32
                           "]: expected a number from 0 to below 1, found %g",
                           i, share);
        }
        cutoffs[i] = share > 0 ? (float)quantile(share) : -INFINITY;
    }
    if (list != NULL) {
        gguf_build_array(&h->b, hf_key(h, "activation_sparsity_scale"), GGUF_F32, n_layers, cutoffs);
    }
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(put_widths(h, n_layers));
    TRY(put_cutoffs(h, n_layers));
    return hf_pad_table(h, "per_layer_token_embd.weight");
}

static const struct hf_family hf_gemma3n = {
    .architectures = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
    .arch = "gemma3n",
    .defaults = "{\"rope_theta\": 1e6, \"rope_local_base_freq\": 1e4}",
    .keys = hf_gemma3n_keys,
    .names = hf_gemma3n_names,
    .fixed = hf_gemma3n_fixed,
    .act = HF_GELU_TANH,
    .window = 512,
    .finish = finish,
};

const struct model_family model_gemma3n = {
    .members = "Gemma 3n E2B, E4B (text)",
    .arch = "gemma3n",
    .hf = {&hf_gemma3n},
    .build = build,
};
