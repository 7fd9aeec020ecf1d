/* ERNIE 4.5 [Baidu 2025, "ERNIE 4.5 Technical Report"]: Llama's decoder with RoPE on interleaved pairs, also in folders.
 * The larger ones have experts in some layers, which a softmax with a bias picks, and shared experts. Keys: llama.cpp
 * b11434, src/models/ernie4-5.cpp and conversion/ernie.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    return blocks_build_decoder(b);
}

/* Of the layers after the leading dense ones, every n-th has experts. */
static enum err build_moe(struct blocks *b)
{
    uint32_t step;
    TRY(blocks_read_hparams(b));
    TRY(blocks_get_u32(b, "interleave_moe_layer_step", 1, PLAN_MAX_LAYERS, 1, &step));
    struct blocks_moe moe = {.gating = 1, .norms_weights = true};
    TRY(blocks_read_moe(b, &moe));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.ffn[i] = (i + 1) % step == 0 ? b->style.ffn[i] : BLOCKS_DENSE;
    }
    return blocks_build_decoder(b);
}

static const struct hf_fixed hf_fixed[] = {
    {"use_bias", "false"},
    {"moe_norm_min", "1e-12"}, /* below any sum of weights */
    {NULL, NULL},
};

static const char hf_defaults[] = "{\"rope_theta\": 5e5}"; /* transformers 5.23, Ernie4_5Config */

static const struct hf_family hf_ernie4_5 = {
    .architectures = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
    .arch = "ernie4_5",
    .defaults = hf_defaults,
    .fixed = hf_fixed,
    .has_rope_pairs = true,
};

static const struct hf_key hf_moe_keys[] = {
    {"moe_num_experts", "expert_count", HF_U32},
    {"moe_k", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"moe_num_shared_experts", "expert_shared_count", HF_U32},
    {"moe_layer_start_index", "leading_dense_block_count", HF_U32},
    {"moe_layer_interval", "interleave_moe_layer_step", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_moe_names[] = {
    {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_FLAT},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Other readers of GGUF files need the shared experts' width. No key is for dense layers after the last one with
 * experts. */
static enum err finish_moe(struct hf *h)
{
    static const char key[] = "moe_layer_end_index";
    const json_t *v = json_read_get(h->config, key);
    uint32_t n_layers, n_shared, n_ff;
    TRY(hf_get_u32(h, "moe_num_shared_experts", 0, PLAN_MAX_EXPERTS, 0, &n_shared));
    TRY(hf_get_u32(h, "moe_intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    gguf_build_u32(&h->b, hf_key(h, "expert_shared_feed_forward_length"), n_shared * n_ff); /* at most 2^30 */
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    if (v != NULL &&
        (!json_is_integer(v) || (json_integer_value(v) != -1 && json_integer_value(v) < (json_int_t)n_layers - 1))) {
        char shown[JSON_READ_SHOWN];
        return hf_bad(h, key, "expected -1 or %" PRIu32 ", the last layer, found %s", n_layers - 1,
                      json_read_show(v, shown));
    }
    return ERR_OK;
}

static const struct hf_family hf_ernie4_5_moe = {
    .architectures = {"Ernie4_5_MoeForCausalLM"},
    .arch = "ernie4_5-moe",
    .defaults = "{\"rope_theta\": 5e5, \"moe_num_shared_experts\": 2, \"moe_layer_start_index\": 1}",
    .keys = hf_moe_keys,
    .names = hf_moe_names,
    .fixed = hf_fixed,
    .has_rope_pairs = true,
    .finish = finish_moe,
};

const struct model_family model_ernie4_5 = {
    .members = "ERNIE 4.5 0.3B",
    .arch = "ernie4_5",
    .hf = {&hf_ernie4_5},
    .build = build,
};

const struct model_family model_ernie4_5_moe = {
    .members = "ERNIE 4.5 21B-A3B, 300B-A47B",
    .arch = "ernie4_5-moe",
    .hf = {&hf_ernie4_5_moe},
    .build = build_moe,
};
