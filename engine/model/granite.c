/* Granite 3 and 4 [IBM 2024, "Granite 3.0 Language Models"]: Llama's decoder with four scales: of the embedding, of
 * scores, of each block's result, and of the logits, which are divided by it. Dense or with experts, in Granite 4 with
 * a shared one, with or without RoPE. Most layers of Granite 4 H have a state space instead of attention. Keys:
 * llama.cpp b11434, src/models/granite.cpp and granite-hybrid.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"
#include "engine/tensor/row_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96, KEY_BYTES = 128 };

static enum err read_scales(struct blocks *b)
{
    struct blocks_style *s = &b->style;
    float logit_scale;
    TRY(blocks_get_f32(b, "embedding_scale", 1e-6, 1e6, 1.0, &s->embed_scale));
    TRY(blocks_get_f32(b, "residual_scale", 1e-6, 1e6, 1.0, &s->residual_scale));
    TRY(blocks_get_f32(b, "attention.scale", 1e-6, 1e6, (double)s->attn_scale, &s->attn_scale));
    TRY(blocks_get_f32(b, "logit_scale", 1e-6, 1e6, 1.0, &logit_scale));
    s->logit_scale = 1.0f / logit_scale;
    return ERR_OK;
}

/* Files use "scaling finetuned" to say whether there is RoPE. */
static enum err read_nope(struct blocks *b)
{
    bool has_rope;
    TRY(blocks_get_bool(b, "rope.scaling.finetuned", true, &has_rope));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.is_nope[i] = !has_rope;
    }
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    TRY(read_scales(b));
    TRY(read_nope(b));
    if (b->may_skip_attention) {
        TRY(blocks_read_ssm(b));
    }
    if (b->plan->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = 1, .norms_weights = true, .n_ff = b->h.n_ff};
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

static enum err build_hybrid(struct blocks *b)
{
    b->may_skip_attention = true;
    return build(b);
}

/* --- SafeTensors: Granite 3 ------------------------------------------------------------------------------------- */

/* For all families below. */
#define SCALE_KEYS                                                                                                     \
    {"embedding_multiplier", "embedding_scale", HF_F32}, {"attention_multiplier", "attention.scale", HF_F32},          \
        {"residual_multiplier", "residual_scale", HF_F32},                                                             \
    {                                                                                                                  \
        "logits_scaling", "logit_scale", HF_F32                                                                        \
    }

static const struct hf_key hf_granite_keys[] = {
    SCALE_KEYS,
    {NULL, NULL, HF_U32},
};

static const struct hf_family hf_granite = {
    .architectures = {"GraniteForCausalLM"},
    .arch = "granite",
    .keys = hf_granite_keys,
};

/* Splits gate and up of all experts, which are in one tensor with the gate's rows first. */
static enum err split_experts(struct hf *h)
{
    uint32_t n_layers;
    char from[NAME_BYTES], gate[NAME_BYTES], up[NAME_BYTES];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    for (uint32_t i = 0; i < n_layers; i++) {
        snprintf(from, sizeof from, "model.layers.%" PRIu32 ".block_sparse_moe.input_linear.weight", i);
        snprintf(gate, sizeof gate, "blk.%" PRIu32 ".ffn_gate_exps.weight", i);
        snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up_exps.weight", i);
        TRY(hf_add_expert_halves(h, from, gate, up));
    }
    return ERR_OK;
}

static const struct hf_key hf_granitemoe_keys[] = {
    SCALE_KEYS,
    {"intermediate_size", "feed_forward_length", HF_U32},
    {"intermediate_size", "expert_feed_forward_length", HF_WORD},
    {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_granitemoe_names[] = {
    {"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_gate_exps.weight",
     HF_DROP}, /* for split_experts */
    {"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_up_exps.weight", HF_DROP},
    {"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_granitemoe = {
    .architectures = {"GraniteMoeForCausalLM"},
    .arch = "granitemoe",
    .keys = hf_granitemoe_keys,
    .names = hf_granitemoe_names,
    .finish = split_experts,
};

/* --- SafeTensors: Granite 4, whose folders are all of one architecture ------------------------------------------- */

static bool is_attention(const char *type)
{
    return strcmp(type, "attention") == 0 || strcmp(type, "full_attention") == 0;
}

static bool is_mamba(const char *type) { return strcmp(type, "mamba") == 0 || strcmp(type, "linear_attention") == 0; }

/* Reads which layers have attention; without layer_types none has. */
static enum err read_layers(const struct hf *h, uint32_t n_layers, bool *has_attention)
{
    const json_t *types = json_read_get(h->config, "layer_types");
    if (json_array_size(types) != n_layers) {
        return hf_bad(h, "layer_types", "expected %" PRIu32 " elements, one a layer, found %zu", n_layers,
                      json_array_size(types));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        has_attention[i] = type != NULL && is_attention(type);
        if (type == NULL || !(is_attention(type) || is_mamba(type))) {
            return err_set(h->info, ERR_BAD_CONFIG, "layer_types",
                           "config.json: layer_types[%" PRIu32 "]: expected mamba or attention, found '%.64s'", i,
                           type != NULL ? type : "");
        }
    }
    return ERR_OK;
}

/* Adds KV heads per layer; 0 for layers with a state space. */
static enum err add_kv_heads(struct hf *h)
{
    uint32_t n_layers, n_heads, n_kv_heads, heads[PLAN_MAX_LAYERS];
    bool has_attention[PLAN_MAX_LAYERS];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, n_heads, &n_kv_heads));
    TRY(read_layers(h, n_layers, has_attention));
    for (uint32_t i = 0; i < n_layers; i++) {
        heads[i] = has_attention[i] ? n_kv_heads : 0;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, heads);
    return ERR_OK;
}

static enum err add_rope_type(struct hf *h)
{
    const json_t *v = json_read_get(h->config, "position_embedding_type");
    const char *type = json_string_value(v);
    bool has_rope = type != NULL && strcmp(type, "rope") == 0;
    if (v != NULL && !has_rope && (type == NULL || strcmp(type, "nope") != 0)) {
        return hf_bad(h, "position_embedding_type", "expected rope, nope or null, found '%.64s'",
                      type != NULL ? type : json_read_type_name(v));
    }
    gguf_build_bool(&h->b, hf_key(h, "rope.scaling.finetuned"), has_rope);
    return ERR_OK;
}

/* Splits a matrix that is already added, gate before up: it keeps its first half, and `second` gets the other. */
static enum err halve(struct hf *h, const char *name, const char *second)
{
    struct gguf_tensor *t = gguf_build_find(&h->b, name);
    if (t == NULL || t->n_dims != 2 || t->dims[1] % 2 != 0) {
        return err_set(h->info, t == NULL ? ERR_MISSING_TENSOR : ERR_BAD_TENSOR_SHAPE, name,
                       "shared_mlp.input_linear, here %s: expected a matrix of an even number of rows, found %s", name,
                       t == NULL ? "none" : "another shape");
    }
    uint32_t half = t->source->n_rows / 2;
    const struct row_source *all = t->source;
    struct gguf_tensor other = *t;
    gguf_build_rows(&h->b, t, row_order_row_range(&h->b.arena, all, 0, half), 1);
    gguf_build_rows(&h->b, &other, row_order_row_range(&h->b.arena, all, half, half), 1);
    gguf_build_tensor(&h->b, second, &other);
    return ERR_OK;
}

static enum err split_shared(struct hf *h, const char *end)
{
    uint32_t n_layers;
    char gate[NAME_BYTES], up[NAME_BYTES];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    for (uint32_t i = 0; i < n_layers; i++) {
        snprintf(gate, sizeof gate, "blk.%" PRIu32 ".ffn_gate%s.weight", i, end);
        snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up%s.weight", i, end);
        TRY(halve(h, gate, up));
    }
    return ERR_OK;
}

/* A model without experts uses the shared expert as its feed-forward block. */
static enum err add_feed_forward(struct hf *h)
{
    uint32_t n_experts, n_used, n_ff, n_shared;
    TRY(hf_get_u32(h, "num_local_experts", 0, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    TRY(hf_get_u32(h, "shared_intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_shared));
    if (n_experts == 0) {
        gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), n_shared);
        return split_shared(h, "");
    }
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    TRY(hf_get_u32(h, "num_experts_per_tok", 1, n_experts, UINT64_MAX, &n_used));
    gguf_build_u32(&h->b, hf_key(h, "expert_count"), n_experts);
    gguf_build_u32(&h->b, hf_key(h, "expert_used_count"), n_used);
    gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), n_ff);
    gguf_build_u32(&h->b, hf_key(h, "expert_shared_feed_forward_length"), n_shared);
    TRY(split_experts(h));
    return split_shared(h, "_shexp");
}

static enum err finish_granite4(struct hf *h)
{
    TRY(add_rope_type(h));
    return add_feed_forward(h);
}

static enum err finish_hybrid(struct hf *h)
{
    uint32_t hidden, expand, n_heads, head_dim, n_groups;
    TRY(finish_granite4(h));
    TRY(add_kv_heads(h));
    TRY(blocks_check_limit(h));
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &hidden));
    TRY(hf_get_u32(h, "mamba_expand", 1, PLAN_MAX_WIDTH / hidden, 2, &expand));
    TRY(hf_get_u32(h, "mamba_n_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "mamba_n_groups", 1, n_heads, UINT64_MAX, &n_groups));
    head_dim = hidden * expand / n_heads;
    if (json_is_integer(json_read_get(h->config, "mamba_d_head"))) { /* else "auto" */
        TRY(hf_get_u32(h, "mamba_d_head", 1, PLAN_MAX_HEAD, UINT64_MAX, &head_dim));
    }
    if (head_dim * n_heads != hidden * expand) {
        return hf_bad(h, "mamba_d_head",
                      "expected mamba_expand * hidden_size / mamba_n_heads = %" PRIu32 " / %" PRIu32 ", found %" PRIu32,
                      hidden * expand, n_heads, head_dim);
    }
    gguf_build_u32(&h->b, hf_key(h, "ssm.inner_size"), hidden * expand);
    blocks_shape_ssm(h, n_groups);
    return ERR_OK;
}

/* finish_granite4 and finish_hybrid add the other keys. */
static const struct hf_key hf_granite4_keys[] = {
    SCALE_KEYS,
    {"intermediate_size", NULL, HF_U32},
    {"num_local_experts", "expert_count", HF_WORD},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_key hf_granitehybrid_keys[] = {
    SCALE_KEYS,
    {"intermediate_size", NULL, HF_U32},
    {"num_local_experts", "expert_count", HF_WORD},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", HF_WORD},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"mamba_d_conv", "ssm.conv_kernel", HF_U32},
    {"mamba_d_state", "ssm.state_size", HF_U32},
    {"mamba_n_groups", "ssm.group_count", HF_U32},
    {"mamba_n_heads", "ssm.time_step_rank", HF_U32},
    {NULL, NULL, HF_U32},
};

/* For both families below; a folder without state spaces has no such tensors. */
#define MAMBA_NAMES BLOCKS_SSM_NAMES("model.layers.{}.mamba.")

static const struct hf_name hf_dense_names[] = {
    {"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate.weight", HF_SAME}, /* gate and up */
    {"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down.weight", HF_SAME},
    MAMBA_NAMES,
    {NULL, NULL, HF_SAME},
};

static const struct hf_name hf_experts_names[] = {
    {"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME}, /* gate and up */
    {"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_gate_exps.weight",
     HF_DROP}, /* for split_experts */
    {"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_up_exps.weight", HF_DROP},
    {"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    MAMBA_NAMES,
    {NULL, NULL, HF_SAME},
};

#define FOLDER(family, key_table, name_table, finishes)                                                                \
    {                                                                                                                  \
        .arch = (family), .has_layer_types = true, .keys = (key_table), .names = (name_table), .finish = (finishes)    \
    }
static const struct hf_family folders[2][2] = {
    /* [is_hybrid][has_experts] */
    {FOLDER("granite", hf_granite4_keys, hf_dense_names, finish_granite4),
     FOLDER("granitemoe", hf_granite4_keys, hf_experts_names, finish_granite4)},
    {FOLDER("granitehybrid", hf_granitehybrid_keys, hf_dense_names, finish_hybrid),
     FOLDER("granitehybrid", hf_granitehybrid_keys, hf_experts_names, finish_hybrid)},
};

/* Converters write a folder without state spaces as Granite 3. */
static const struct hf_family *choose(const json_t *config)
{
    const json_t *types = json_read_get(config, "layer_types"), *experts = json_read_get(config, "num_local_experts");
    bool is_hybrid = json_array_size(types) == 0, has_experts = json_integer_value(experts) != 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        is_hybrid |= type == NULL || !is_attention(type);
    }
    return &folders[is_hybrid][has_experts];
}

static const struct hf_family hf_granitehybrid = {
    .architectures = {"GraniteMoeHybridForCausalLM"},
    .arch = "granitehybrid",
    .choose = choose,
};

/* --- the families ------------------------------------------------------------------------------------------------ */

const struct model_family model_granite = {
    .members = "Granite 3 and 4 dense",
    .arch = "granite",
    .hf = {&hf_granite},
    .build = build,
};

const struct model_family model_granitemoe = {
    .members = "Granite 3 MoE, Granite 4 with experts",
    .arch = "granitemoe",
    .hf = {&hf_granitemoe},
    .build = build,
};

const struct model_family model_granitehybrid = {
    .members = "Granite 4 H",
    .arch = "granitehybrid",
    .hf = {&hf_granitehybrid},
    .build = build_hybrid,
};
