/* Nemotron-H and Nemotron 3 [NVIDIA 2025, "Nemotron-H"]: layers of one part each, behind one norm: a state space,
 * attention without positions, a dense block down(relu(up)^2), or experts of that form, picked by sigmoids with a bias,
 * next to a shared one; in the largest the routed ones work on rows of a narrower space. Keys: llama.cpp b11434,
 * src/models/nemotron-h.cpp and conversion/nemotron.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>
#include <string.h>

enum { SIGMOID = 2 }; /* expert_gating_func */

/* Sets the parts of layers, whose mixers are read: a feed-forward block if its width is not 0. */
static enum err set_parts(struct blocks *b, const uint32_t *width)
{
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        if (width[i] == 0) {
            b->style.ffn[i] = BLOCKS_NO_FFN;
            continue;
        }
        TRY(blocks_expect(b, b->style.mixer[i] != BLOCKS_ATTENTION, "feed_forward_length",
                          "expected 0 in layer %" PRIu32 ", which has attention, found %" PRIu32, i, width[i]));
        b->style.mixer[i] = BLOCKS_NO_MIXER;
    }
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    static const char rms[] = "attention.layer_norm_rms_epsilon";
    b->may_skip_attention = b->may_skip_ffn = b->lacks_rope = true;
    b->eps_key = blocks_has_key(b, rms) ? rms : "attention.layer_norm_epsilon";
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->act = PLAN_RELU_SQUARED;
    s->is_ungated = true;
    s->ffn_norm = "blk.%d.attn_norm.weight";
    uint32_t width[PLAN_MAX_LAYERS];
    TRY(blocks_read_ssm(b));
    TRY(blocks_get_layers(b, "feed_forward_length", 0, PLAN_MAX_WIDTH, UINT64_MAX, width));
    TRY(blocks_skip_predicting(b));
    if (b->plan->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true, .n_ff = b->h.n_ff, .n_shared = 1};
        TRY(blocks_read_moe(b, &moe));
        TRY(blocks_expect(b, b->h.n_ff_shared != 0, "expert_shared_feed_forward_length",
                          "expected 1 or more, found 0"));
    }
    TRY(set_parts(b, width));
    return blocks_build_decoder(b);
}

/* --- SafeTensors ------------------------------------------------------------------------------------------------ */

/* The parts of layers: their letter in hybrid_override_pattern, and their names in layers_block_type, which transformers
 * writes since version 5. */
static const struct part {
    const char letter, *name, *old_name;
} parts[] = {
    {'M', "linear_attention", "mamba"}, {'*', "full_attention", "attention"}, {'-', "mlp", "mlp"}, {'E', "moe", "moe"}};

static const char types_key[] = "layers_block_type", letters_key[] = "hybrid_override_pattern";

/* Returns how many layers config.json lists. */
static size_t count_layers(const json_t *config)
{
    const json_t *types = json_read_get(config, types_key);
    return types != NULL ? json_array_size(types) : json_string_length(json_read_get(config, letters_key));
}

/* Returns the letter of a layer's part; NUL: no such part. */
static char letter_of(const json_t *config, size_t layer)
{
    const json_t *types = json_read_get(config, types_key);
    const char *letters = json_string_value(json_read_get(config, letters_key));
    const char *name = json_string_value(json_array_get(types, layer));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        bool is_name = name != NULL && (strcmp(name, parts[i].name) == 0 || strcmp(name, parts[i].old_name) == 0);
        if (types != NULL ? is_name : letters != NULL && letters[layer] == parts[i].letter) {
            return parts[i].letter;
        }
    }
    return '\0';
}

static size_t count_letters(const json_t *config, char letter)
{
    size_t n = 0;
    for (size_t i = 0; i < count_layers(config); i++) {
        n += letter_of(config, i) == letter;
    }
    return n;
}

/* Adds num_hidden_layers, which transformers leaves out. */
static enum err prepare(struct hf *h)
{
    static const char key[] = "num_hidden_layers";
    const json_t *n = json_read_get(h->config, key);
    size_t found = count_layers(h->config);
    const char *name = json_read_get(h->config, types_key) != NULL ? types_key : letters_key;
    if (found == 0 || found > PLAN_MAX_LAYERS || (json_is_integer(n) && json_integer_value(n) != (json_int_t)found)) {
        return json_is_integer(n) ? hf_bad(h, name, "expected %" JSON_INTEGER_FORMAT " layers, as %s says, found %zu",
                                           json_integer_value(n), key, found)
                                  : hf_bad(h, name, "expected 1 to %d layers, found %zu", PLAN_MAX_LAYERS, found);
    }
    for (size_t i = 0; i < found; i++) {
        if (letter_of(h->config, i) == '\0') {
            return hf_bad(h, name,
                          "expected linear_attention (M), full_attention (*), mlp (-) or moe (E) as layer %zu,"
                          " found another",
                          i);
        }
    }
    /* the reader owns the tree */
    return n != NULL || json_object_set_new((json_t *)h->config, key, json_integer((json_int_t)found)) == 0
               ? ERR_OK
               : err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
}

/* Adds KV heads and feed-forward widths per layer. */
static enum err add_layers(struct hf *h, const char *width_key)
{
    uint32_t n_layers, n_heads, n_kv_heads, width, kv[PLAN_MAX_LAYERS], ff[PLAN_MAX_LAYERS];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, n_heads, &n_kv_heads));
    TRY(hf_get_u32(h, width_key, 1, PLAN_MAX_WIDTH, UINT64_MAX, &width));
    for (uint32_t i = 0; i < n_layers; i++) {
        char letter = letter_of(h->config, i);
        kv[i] = letter == '*' ? n_kv_heads : 0;
        ff[i] = letter == '-' || letter == 'E' ? width : 0;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, kv);
    gguf_build_array(&h->b, hf_key(h, "feed_forward_length"), GGUF_U32, n_layers, ff);
    return ERR_OK;
}

/* Transformers 5.23 raises steps of prompts, and only of prompts, to time_step_min, which is a value of the
 * initialisation. The published code, vLLM and llama.cpp do not, and neither does infcgi. */
static enum err add_state_spaces(struct hf *h)
{
    uint32_t n_heads, head_dim, n_groups;
    TRY(hf_get_u32(h, "mamba_num_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "mamba_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &head_dim));
    TRY(hf_get_u32(h, "n_groups", 1, n_heads, UINT64_MAX, &n_groups));
    gguf_build_u32(&h->b, hf_key(h, "ssm.inner_size"), n_heads * head_dim);
    gguf_build_bool(&h->b, hf_key(h, "rope.scaling.finetuned"), false); /* as llama.cpp's converter: no RoPE */
    TRY(blocks_check_limit(h));
    TRY(blocks_check_has(h, "use_conv_bias", true, ".ssm_conv1d.bias"));
    TRY(blocks_check_has(h, "use_bias", false, ".ssm_in.bias"));
    blocks_shape_ssm(h, n_groups);
    return ERR_OK;
}

static enum err finish_dense(struct hf *h)
{
    TRY(add_layers(h, "intermediate_size"));
    return add_state_spaces(h);
}

static enum err finish_moe(struct hf *h)
{
    size_t n = count_letters(h->config, '-');
    if (n != 0) {
        return hf_bad(h, json_read_get(h->config, types_key) != NULL ? types_key : letters_key,
                      "expected no mlp next to moe, found %zu", n);
    }
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    TRY(add_layers(h, "moe_intermediate_size"));
    return add_state_spaces(h);
}

/* finish adds the keys of words. */
#define COMMON_KEYS                                                                                                    \
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", HF_F32}, {"rms_norm_eps", NULL, HF_F32},                    \
        {"num_key_value_heads", "attention.head_count_kv", HF_WORD}, {"conv_kernel", "ssm.conv_kernel", HF_U32},       \
        {"ssm_state_size", "ssm.state_size", HF_U32}, {"n_groups", "ssm.group_count", HF_U32},                         \
    {                                                                                                                  \
        "mamba_num_heads", "ssm.time_step_rank", HF_U32                                                                \
    }

static const struct hf_key hf_nemotron_h_keys[] = {
    COMMON_KEYS,
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_key hf_nemotron_h_moe_keys[] = {
    COMMON_KEYS,
    {"intermediate_size", NULL, HF_U32},
    {"moe_intermediate_size", "feed_forward_length", HF_WORD},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_U32},
    {"moe_latent_size", "moe_latent_size", HF_U32},
    {"n_shared_experts", "expert_shared_count", HF_U32},
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"n_group", "expert_group_count", HF_U32},
    {"topk_group", "expert_group_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

/* For both families; one without experts has no such tensors. */
static const struct hf_name hf_nemotron_h_names[] = {
    {"backbone.embeddings.weight", "token_embd.weight", HF_SAME},
    {"backbone.norm_f.weight", "output_norm.weight", HF_SAME},
    {"backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    BLOCKS_SSM_NAMES("backbone.layers.{}.mixer."),
    {"backbone.layers.{}.mixer.q_proj.weight", "blk.{}.attn_q.weight", HF_SAME},
    {"backbone.layers.{}.mixer.k_proj.weight", "blk.{}.attn_k.weight", HF_SAME},
    {"backbone.layers.{}.mixer.v_proj.weight", "blk.{}.attn_v.weight", HF_SAME},
    {"backbone.layers.{}.mixer.o_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"backbone.layers.{}.mixer.up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"backbone.layers.{}.mixer.up_proj.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"backbone.layers.{}.mixer.down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"backbone.layers.{}.mixer.down_proj.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"backbone.layers.{}.mixer.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"backbone.layers.{}.mixer.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"backbone.layers.{}.mixer.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"backbone.layers.{}.mixer.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"backbone.layers.{}.mixer.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"backbone.layers.{}.mixer.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"backbone.layers.{}.mixer.fc1_latent_proj.weight", "blk.{}.ffn_latent_down.weight", HF_SAME},
    {"backbone.layers.{}.mixer.fc2_latent_proj.weight", "blk.{}.ffn_latent_up.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

#define COMMON_FIXED                                                                                                   \
    {"mlp_hidden_act", "relu2"}, {"mamba_hidden_act", "silu or swish"}, {"attention_bias", "false"},                   \
    {                                                                                                                  \
        "sliding_window", "none"                                                                                       \
    }

static const struct hf_fixed hf_nemotron_h_fixed[] = {COMMON_FIXED, {NULL, NULL}};

/* Without biases: those of shared experts and of the narrower space are not known. */
static const struct hf_fixed hf_nemotron_h_moe_fixed[] = {
    COMMON_FIXED,
    {"mlp_bias", "false"},
    {"n_shared_experts", "1"},
    {NULL, NULL},
};

static const struct hf_alias hf_nemotron_h_aliases[] = {
    {"layers_block_type", "layer_types"},
    {"head_dim", "attention_head_dim"},
    {NULL, NULL},
};

#define FOLDER(name, key_table, fixed_table, finishes)                                                                 \
    {                                                                                                                  \
        .arch = (name), .has_layer_types = true, .aliases = hf_nemotron_h_aliases, .defaults = "{\"head_dim\": 128}",  \
        .keys = (key_table), .names = hf_nemotron_h_names, .fixed = (fixed_table), .prepare = prepare,                 \
        .finish = (finishes)                                                                                           \
    }
static const struct hf_family dense_folder =
    FOLDER("nemotron_h", hf_nemotron_h_keys, hf_nemotron_h_fixed, finish_dense);
static const struct hf_family moe_folder =
    FOLDER("nemotron_h_moe", hf_nemotron_h_moe_keys, hf_nemotron_h_moe_fixed, finish_moe);

static const struct hf_family *choose(const json_t *config)
{
    return count_letters(config, 'E') != 0 ? &moe_folder : &dense_folder;
}

static const struct hf_family hf_nemotron_h = {
    .architectures = {"NemotronHForCausalLM"},
    .arch = "nemotron_h",
    .choose = choose,
};

/* --- the families ------------------------------------------------------------------------------------------------ */

const struct model_family model_nemotron_h = {
    .members = "Nemotron-H, Nemotron Nano 2",
    .arch = "nemotron_h",
    .hf = {&hf_nemotron_h},
    .build = build,
};

const struct model_family model_nemotron_h_moe = {
    .members = "Nemotron 3",
    .arch = "nemotron_h_moe",
    .build = build,
};
