/* Gemma 4, text only: Gemma 3's decoder with these changes.
 *
 * - Global layers have their own width and number of heads, and their values can be the keys before norm and RoPE.
 * - Values are normed without a weight, and q.k is not scaled.
 * - The last layers use the keys and values of the last layer of their kind that has some, and can have wider
 *   feed-forward blocks.
 * - Per-layer embeddings: a second table has a short vector per token and layer. A projection of the first embedding is
 *   added to it, and the stream gates it, after the feed-forward block.
 * - Experts run next to the dense feed-forward block, each with a factor.
 * - A factor multiplies the stream after each layer.
 *
 * Formulas: Hugging Face transformers 5, modeling_gemma4.py. Keys, names and shapes of GGUF: llama.cpp b11434,
 * conversion/gemma.py and src/models/gemma4.cpp. */
#include "engine/model/gemma4.h"

#include "engine/hf/hf_rope.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    GLOBAL_EVERY = 6, /* one global layer after five local ones */
    NAME_BYTES = 128,
};
static const double LOCAL_FREQ_BASE = 10000.0;

/* --- hyper-parameters ----------------------------------------------------------------------------------------- */

static enum err set_heads(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    struct plan *p = b->plan;
    p->kvs = arena_zalloc(&p->arena, b->h.n_layers * sizeof *p->kvs);
    TRY_MEM(p->kvs != NULL);
    p->head_dim = MAX_OF(b->h.head_dim, m->local_dim);
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        struct plan_kv *kv = &p->kvs[i];
        TRY(blocks_find_shared(b, m->n_shared, i, &kv->layer));
        kv->n_kv_heads = m->n_kv_heads[i];
        kv->head_dim = b->style.is_local[i] ? m->local_dim : b->h.head_dim;
        p->n_kv_heads = MAX_OF(p->n_kv_heads, kv->n_kv_heads);
        if (b->h.n_heads % kv->n_kv_heads != 0 || p->kvs[kv->layer].n_kv_heads != kv->n_kv_heads) {
            return err_set(b->info, ERR_BAD_HPARAM, "attention.head_count_kv",
                           "gemma4.attention.head_count_kv[%" PRIu32
                           "]: expected a divisor of attention.head_count %" PRIu32 ", that of layer %" PRId32
                           ", found %" PRIu32,
                           i, b->h.n_heads, kv->layer, kv->n_kv_heads);
        }
    }
    return ERR_OK;
}

enum err gemma4_read_hparams(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    struct blocks_hparams *h = &b->h;
    struct blocks_style *s = &b->style;
    TRY(blocks_read_hparams(b));
    uint32_t value_dim;
    s->is_neox = true;
    s->act = PLAN_GELU_TANH;
    s->attn_scale = 1.0f;
    s->embed_scale = sqrtf((float)h->n_embd);
    TRY(blocks_get_f32(b, "final_logit_softcapping", 0.0, 1e6, 0.0, &s->logit_softcap));
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, LOCAL_FREQ_BASE, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    TRY(blocks_get_u32(b, "attention.key_length_swa", 4, PLAN_MAX_HEAD, h->head_dim, &m->local_dim));
    TRY(blocks_get_u32(b, "attention.value_length_swa", m->local_dim, m->local_dim, m->local_dim, &value_dim));
    TRY(blocks_expect(b, m->local_dim % 4 == 0, "attention.key_length_swa", "expected a multiple of 4, found %" PRIu32,
                      m->local_dim));
    return blocks_get_layers(b, "feed_forward_length", 1, PLAN_MAX_WIDTH, UINT64_MAX, m->n_ff);
}

/* Reads what other models of these layers lack. */
static enum err read_model(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    const struct blocks_hparams *h = &b->h;
    TRY(blocks_get_u32(b, "attention.shared_kv_layers", 0, h->n_layers - 1, 0, &m->n_shared));
    TRY(blocks_get_u32(b, "embedding_length_per_layer_input", 0, PLAN_MAX_WIDTH / h->n_layers, 0, &m->n_ple));
    TRY(blocks_get_layers(b, "attention.head_count_kv", 1, h->n_heads, h->n_heads, m->n_kv_heads));
    if (b->plan->moe.n_experts != 0) {
        TRY(blocks_read_moe(b, &(struct blocks_moe){.gating = 1, .norms_weights = true}));
    }
    return set_heads(m);
}

/* --- buffers and tables --------------------------------------------------------------------------------------- */

enum err gemma4_add_bufs(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    const struct blocks_hparams *h = &b->h;
    const uint32_t widths[2] = {h->n_heads * h->head_dim, h->n_heads * m->local_dim};
    TRY(plan_add_buf(b->plan, "x", h->n_embd, &b->x));
    TRY(plan_add_buf(b->plan, "norm", h->n_embd, &b->norm));
    for (int i = 0; i < 2; i++) {
        TRY(plan_add_buf(b->plan, "q", widths[i], &m->q[i]));
        TRY(plan_add_buf(b->plan, "att", widths[i], &m->att[i]));
    }
    if (m->n_ple != 0) {
        TRY(plan_add_buf(b->plan, "per-layer", h->n_layers * m->n_ple, &m->ple));
        TRY(plan_add_buf(b->plan, "projected", h->n_layers * m->n_ple, &m->ple_projected));
        TRY(plan_add_buf(b->plan, "gate", m->n_ple, &m->gate));
    }
    if (b->plan->moe.n_experts != 0) {
        TRY(plan_add_buf(b->plan, "dense", h->n_embd, &m->dense));
        TRY(plan_add_buf(b->plan, "experts", h->n_embd, &m->experts));
        TRY(blocks_add_expert_bufs(b));
    }
    return plan_add_buf(b->plan, "last", h->n_embd, &b->last);
}

/* Global layers rotate by the file's factors, which leave most components unchanged; local ones use plain RoPE. */
enum err gemma4_add_ropes(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    TRY(blocks_add_rope(b, b->h.freq_base, true, &b->rope));
    TRY(blocks_get_u32(b, "rope.dimension_count_swa", 2, m->local_dim, m->local_dim, &b->h.n_rot));
    TRY(blocks_expect(b, b->h.n_rot % 2 == 0, "rope.dimension_count_swa", "expected an even number, found %" PRIu32,
                      b->h.n_rot));
    return blocks_add_rope(b, b->style.local_freq_base, false, &b->local_rope);
}

/* --- steps ---------------------------------------------------------------------------------------------------- */

/* A result for the stream is added to it. */
static enum err add_norm(struct gemma4 *m, const char *name, plan_buf_id src, plan_buf_id dst)
{
    return blocks_add_norm(&m->b, name, src, dst, dst == m->b.x);
}

/* Adds norm, Q K V with RoPE, attention, output projection, norm + residual. */
static enum err add_attention(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    int32_t layer = b->plan->layer;
    bool is_local = b->style.is_local[layer];
    struct plan_kv kv = plan_kv_of(b->plan, layer);
    uint32_t d = kv.head_dim, n_embd = b->h.n_embd;
    b->q = m->q[is_local];
    b->att = m->att[is_local];
    TRY(add_norm(m, "blk.%d.attn_norm.weight", b->x, b->norm));
    struct plan_step qkv = plan_step_of(PLAN_QKV, b->norm, b->q);
    qkv.eps = b->h.eps;
    qkv.heads.rope = blocks_rope_of(b);
    qkv.heads.norms_values = true;
    TRY(blocks_bind(b, "blk.%d.attn_q.weight", b->h.n_heads * d, n_embd, &qkv.w[0]));
    TRY(blocks_bind(b, "blk.%d.attn_q_norm.weight", 1, d, &qkv.heads.q_norm));
    if (kv.layer == layer) {
        TRY(blocks_bind(b, "blk.%d.attn_k.weight", kv.n_kv_heads * d, n_embd, &qkv.w[1]));
        TRY(blocks_bind(b, "blk.%d.attn_k_norm.weight", 1, d, &qkv.heads.k_norm));
        TRY((is_local ? blocks_bind : blocks_bind_optional)(b, "blk.%d.attn_v.weight", kv.n_kv_heads * d, n_embd,
                                                            &qkv.w[2]));
        qkv.w[2] = qkv.w[2] == PLAN_NONE ? qkv.w[1] : qkv.w[2];
    }
    TRY(plan_add_step(b->plan, &qkv));
    TRY(blocks_attend(b));
    TRY(blocks_add_matmul(b, "blk.%d.attn_output.weight", b->att, b->norm));
    TRY(blocks_add_reduce(b, b->norm));
    return add_norm(m, "blk.%d.post_attention_norm.weight", b->norm, b->x);
}

/* Adds norm, router, experts, norm, and adds the result to that of the dense block. */
static enum err add_experts(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    uint32_t n_experts = b->plan->moe.n_experts, d = b->h.n_embd;
    struct plan_step norm = plan_step_of(PLAN_NORM, b->x, b->norm);
    norm.eps = b->h.eps;
    TRY(blocks_bind_scaled(b, "blk.%d.ffn_gate_inp.scale", d, (float)(1.0 / sqrt(d)), &norm.w[0]));
    TRY(plan_add_step(b->plan, &norm));
    TRY(blocks_add_matmul(b, "blk.%d.ffn_gate_inp.weight", b->norm, b->router));
    struct plan_step route = plan_step_of(PLAN_ROUTE, b->router, b->route);
    TRY(blocks_bind_optional(b, "blk.%d.ffn_down_exps.scale", 1, n_experts, &route.w[1]));
    TRY(plan_add_step(b->plan, &route));

    TRY(add_norm(m, "blk.%d.pre_ffw_norm_2.weight", b->x, b->norm));
    struct plan_step experts = plan_step_of(PLAN_EXPERTS, b->norm, m->experts);
    experts.act = b->style.act;
    experts.experts.route = b->route;
    TRY(blocks_bind_gate_up(b, experts.w));
    TRY(blocks_bind_stack(b, "blk.%d.ffn_down_exps.weight", n_experts, d, b->h.n_ff_expert, &experts.w[2]));
    TRY(plan_add_step(b->plan, &experts));
    TRY(blocks_add_reduce(b, m->experts));
    return blocks_add_norm(b, "blk.%d.post_ffw_norm_2.weight", m->experts, m->dense, true);
}

/* Adds norm, gate and up, down; next to them experts, if there are some; norm + residual. */
static enum err add_feed_forward(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    bool has_experts = b->plan->moe.n_experts != 0;
    plan_buf_id ff;
    TRY(add_norm(m, "blk.%d.ffn_norm.weight", b->x, b->norm));
    TRY(blocks_get_ff_buf(b, "ff", m->n_ff[b->plan->layer], &ff));
    TRY(blocks_add_glu(b, "blk.%d.ffn_gate.weight", "blk.%d.ffn_up.weight", b->norm, ff));
    TRY(blocks_add_matmul(b, "blk.%d.ffn_down.weight", ff, b->norm));
    TRY(blocks_add_reduce(b, b->norm));
    if (has_experts) {
        TRY(add_norm(m, "blk.%d.post_ffw_norm_1.weight", b->norm, m->dense));
        TRY(add_experts(m));
    }
    return add_norm(m, "blk.%d.post_ffw_norm.weight", has_experts ? m->dense : b->norm, b->x);
}

/* Adds the factor of the stream after a layer. */
static enum err add_layer_scale(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    plan_weight_id id;
    TRY(blocks_bind_optional(b, "blk.%d.layer_output_scale.weight", 1, 1, &id));
    if (id == PLAN_NONE) {
        return ERR_OK;
    }
    const struct plan_weight *w = &b->plan->weights[id];
    struct plan_step s = plan_step_of(PLAN_MULTIPLY, PLAN_NONE, b->x);
    TRY(blocks_read_vector(b, id, &s.scale));
    if (!isfinite(s.scale)) {
        return err_set(b->info, ERR_BAD_HPARAM, w->name, "%s: expected a finite factor, found %g", w->name,
                       (double)s.scale);
    }
    return s.scale == 1.0f ? ERR_OK : plan_add_step(b->plan, &s);
}

enum err gemma4_add_layer(struct gemma4 *m)
{
    TRY(add_attention(m));
    TRY(add_feed_forward(m));
    if (m->n_ple != 0) {
        /* The stream gates the layer's part of the per-layer embeddings, which is normed and added to it. */
        TRY(blocks_add_layer_input(&m->b, m->b.x, m->ple, m->gate, m->b.norm));
        TRY(add_norm(m, "blk.%d.post_norm.weight", m->b.norm, m->b.x));
    }
    return add_layer_scale(m);
}

static enum err build(struct blocks *b)
{
    struct gemma4 m = {.b = *b};
    m.b.reads_layers = true;
    TRY(gemma4_read_hparams(&m));
    TRY(read_model(&m));
    TRY(gemma4_add_ropes(&m));
    TRY(gemma4_add_bufs(&m));
    TRY(blocks_add_embedding(&m.b));
    TRY(m.n_ple != 0 ? blocks_add_per_layer(&m.b, m.n_ple, m.ple, m.ple_projected) : ERR_OK);
    for (int i = 0; i < (int)m.b.h.n_layers; i++) {
        m.b.plan->layer = i;
        TRY(gemma4_add_layer(&m));
    }
    return blocks_add_end(&m.b);
}

/* --- SafeTensors folders --------------------------------------------------------------------------------------- */

static const struct hf_key hf_gemma4_keys[] = {
    {"head_dim", "attention.key_length_swa", HF_U32},
    {"head_dim", "attention.value_length_swa", HF_U32},
    {"head_dim", "rope.dimension_count_swa", HF_U32},
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"global_head_dim", "attention.key_length", HF_WORD},
    {"num_experts", "expert_count", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"final_logit_softcapping", "final_logit_softcapping", HF_CAP},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", HF_U32},
    {"num_kv_shared_layers", "attention.shared_kv_layers", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"top_k_experts", "expert_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_gemma4_fixed[] = {
    {"attention_bias", "false"},
    {NULL, NULL},
};

static const struct hf_name hf_gemma4_names[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", HF_SAME},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", HF_SAME},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", HF_SAME},
    {"model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight", HF_SAME},
    {"model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight", HF_SAME},
    {"model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight", HF_SAME},
    {"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight", HF_SAME},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight", HF_SAME},
    {"model.layers.{}.router.proj.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale", HF_SAME},
    {"model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale", HF_SAME},
    {"model.layers.{}.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight", HF_SAME},
    {"model.layers.{}.experts.down_proj", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Writes one value per layer: `other` if `is_other` marks it. */
static enum err put_layers(struct hf *h, const char *key, uint32_t n_layers, const bool *is_other, uint32_t value,
                           uint32_t other)
{
    uint32_t values[PLAN_MAX_LAYERS];
    for (uint32_t i = 0; i < n_layers; i++) {
        values[i] = is_other[i] ? other : value;
    }
    gguf_build_array(&h->b, hf_key(h, key), GGUF_U32, n_layers, values);
    return ERR_OK;
}

enum err gemma4_put_shapes(struct hf *h)
{
    bool is_global[PLAN_MAX_LAYERS], is_wide[PLAN_MAX_LAYERS];
    uint32_t n_layers, n_shared, n_ff, n_kv, n_global_kv, dim;
    const json_t *types = json_read_get(h->config, "layer_types");
    bool has_double = json_is_true(json_read_get(h->config, "use_double_wide_mlp"));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_kv_shared_layers", 0, n_layers, 0, &n_shared));
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH / 2, UINT64_MAX, &n_ff));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_kv));
    TRY(hf_get_global(h, "global_head_dim", "head_dim", HF_GLOBAL_HEAD_DIM, &dim));
    TRY(hf_get_global(h, "num_global_key_value_heads", "num_key_value_heads", n_kv, &n_global_kv));
    n_global_kv = json_is_false(json_read_get(h->config, "attention_k_eq_v")) ? n_kv : n_global_kv;
    for (uint32_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        is_global[i] =
            types == NULL ? i % GLOBAL_EVERY == GLOBAL_EVERY - 1 : type != NULL && strcmp(type, "full_attention") == 0;
        is_wide[i] = has_double && i >= n_layers - n_shared;
    }
    gguf_build_u32(&h->b, hf_key(h, "attention.key_length"), dim);
    gguf_build_u32(&h->b, hf_key(h, "attention.value_length"), dim);
    TRY(put_layers(h, "attention.head_count_kv", n_layers, is_global, n_kv, n_global_kv));
    return put_layers(h, "feed_forward_length", n_layers, is_wide, n_ff, 2 * n_ff);
}

static enum err finish(struct hf *h)
{
    uint32_t n_experts;
    const char *sees_ahead = json_string_value(json_read_get(h->config, "use_bidirectional_attention"));
    if (sees_ahead != NULL && strcmp(sees_ahead, "vision") != 0) { /* "vision": images only */
        return hf_bad(h, "use_bidirectional_attention", "expected none or vision, found '%.64s'", sees_ahead);
    }
    TRY(gemma4_put_shapes(h));
    if (json_read_get(h->config, "hidden_size_per_layer_input") ==
        NULL) { /* llama.cpp requires the key even for none */
        gguf_build_u32(&h->b, hf_key(h, "embedding_length_per_layer_input"), 0);
    }
    if (!json_is_true(json_read_get(h->config, "enable_moe_block"))) {
        return ERR_OK;
    }
    TRY(hf_get_u32(h, "num_experts", 1, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    gguf_build_u32(&h->b, hf_key(h, "expert_count"), n_experts);
    return ERR_OK;
}

/* Without the key, RoPE is not plain [transformers 5.23, Gemma4TextConfig]. */
const char gemma4_hf_defaults[] =
    "{\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e4},"
    " \"full_attention\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}}}";

static const struct hf_family hf_gemma4 = {
    .architectures = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForCausalLM",
                      "Gemma4UnifiedForConditionalGeneration"},
    .arch = "gemma4",
    .defaults = gemma4_hf_defaults,
    .keys = hf_gemma4_keys,
    .names = hf_gemma4_names,
    .fixed = hf_gemma4_fixed,
    .act = HF_GELU_TANH,
    .window = 512,
    .finish = finish,
};

const struct model_family model_gemma4 = {
    .members = "Gemma 4 E2B, E4B, 12B, 26B-A4B, 31B (text)",
    .arch = "gemma4",
    .hf = {&hf_gemma4},
    .build = build,
};
