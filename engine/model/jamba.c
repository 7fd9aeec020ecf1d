/* Jamba [AI21 2024, "Jamba: A Hybrid Transformer-Mamba Language Model"]: most layers have a selective scan instead of
 * attention, which has no positions; some have experts instead of a dense block of the same width, picked by a softmax
 * whose weights are not divided by their sum. Keys: llama.cpp b11434, src/models/jamba.cpp and conversion/jamba.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>
#include <stdio.h>

enum { SOFTMAX = 1 }; /* expert_gating_func */

static enum err build(struct blocks *b)
{
    b->may_skip_attention = b->lacks_rope = true;
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true; /* files have the order of folders, as there is no RoPE */
    TRY(blocks_read_scan(b));
    struct blocks_moe moe = {.gating = SOFTMAX, .n_ff = b->h.n_ff};
    if (b->plan->moe.n_experts != 0) {
        TRY(blocks_read_moe(b, &moe));
        blocks_find_dense(b); /* the smallest models have one expert, which needs no router */
    }
    return blocks_build_decoder(b);
}

/* --- SafeTensors ------------------------------------------------------------------------------------------------ */

/* Reads a period and an offset below it: one of each `period` layers has the part. */
static enum err read_period(const struct hf *h, const char *period_key, const char *offset_key, uint32_t *period,
                            uint32_t *offset)
{
    TRY(hf_get_u32(h, period_key, 1, INT32_MAX, UINT64_MAX, period));
    return hf_get_u32(h, offset_key, 0, *period - UINT64_C(1), UINT64_MAX, offset);
}

/* Adds KV heads per layer; 0 for layers with a scan. */
static enum err add_kv_heads(struct hf *h)
{
    uint32_t n_layers, n_heads, n_kv_heads, period, offset, heads[PLAN_MAX_LAYERS];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, n_heads, &n_kv_heads));
    TRY(read_period(h, "attn_layer_period", "attn_layer_offset", &period, &offset));
    for (uint32_t i = 0; i < n_layers; i++) {
        heads[i] = i % period == offset ? n_kv_heads : 0;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, heads);
    return ERR_OK;
}

/* Rejects folders whose experts are in other layers than config.json says: the builder looks at the routers. */
static enum err check_experts(const struct hf *h)
{
    uint32_t n_layers, n_experts, period, offset;
    char name[96];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_experts", 1, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    TRY(read_period(h, "expert_layer_period", "expert_layer_offset", &period, &offset));
    for (uint32_t i = 0; i < n_layers; i++) {
        snprintf(name, sizeof name, "model.layers.%" PRIu32 ".feed_forward.router.weight", i);
        bool has = safetensors_folder_find(h->tensors, name) != NULL, must = n_experts > 1 && i % period == offset;
        if (has != must) {
            return hf_bad(h, "expert_layer_period",
                          "expected experts in layer %" PRIu32 ", where the folder has %s, found %s", i,
                          has ? "a router" : "no router", must ? "some" : "none");
        }
    }
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    uint32_t hidden, expand;
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &hidden));
    TRY(hf_get_u32(h, "mamba_expand", 1, PLAN_MAX_WIDTH / hidden, UINT64_MAX, &expand));
    TRY(blocks_add_scan_sizes(h, hidden * expand, "mamba_dt_rank"));
    TRY(blocks_check_has(h, "mamba_conv_bias", true, ".ssm_conv1d.bias"));
    TRY(check_experts(h));
    return add_kv_heads(h);
}

/* finish adds the keys of words. */
static const struct hf_key hf_jamba_keys[] = {
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"mamba_d_conv", "ssm.conv_kernel", HF_U32},
    {"mamba_d_state", "ssm.state_size", HF_U32},
    {"mamba_expand", "ssm.inner_size", HF_WORD},
    {"mamba_dt_rank", "ssm.time_step_rank", HF_WORD},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_jamba_names[] = {
    {"model.final_layernorm.weight", "output_norm.weight", HF_SAME},
    {"model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    BLOCKS_SCAN_NAMES("model.layers.{}.mamba."),
    {"model.layers.{}.mamba.dt_layernorm.weight", "blk.{}.ssm_dt_norm.weight", HF_SAME},
    {"model.layers.{}.mamba.b_layernorm.weight", "blk.{}.ssm_b_norm.weight", HF_SAME},
    {"model.layers.{}.mamba.c_layernorm.weight", "blk.{}.ssm_c_norm.weight", HF_SAME},
    {"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_jamba_fixed[] = {
    {"mamba_proj_bias", "false"},
    {"sliding_window", "none"},
    {NULL, NULL},
};

static const struct hf_family hf_jamba = {
    .architectures = {"JambaForCausalLM"},
    .arch = "jamba",
    /* transformers 5.23, JambaConfig */
    .defaults = "{\"mamba_d_state\": 16, \"mamba_d_conv\": 4, \"mamba_expand\": 2, \"num_experts\": 16,"
                " \"num_experts_per_tok\": 2, \"attn_layer_period\": 8, \"attn_layer_offset\": 4,"
                " \"expert_layer_period\": 2, \"expert_layer_offset\": 1, \"rms_norm_eps\": 1e-6}",
    .has_layer_types = true,
    .keys = hf_jamba_keys,
    .names = hf_jamba_names,
    .fixed = hf_jamba_fixed,
    .finish = finish,
};

const struct model_family model_jamba = {
    .members = "Jamba",
    .arch = "jamba",
    .hf = {&hf_jamba},
    .build = build,
};
