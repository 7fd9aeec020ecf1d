/* dots.llm1 [rednote-hilab 2025, "dots.llm1 Technical Report", 2]: Llama's decoder with norms on heads of Q and K, and,
 * after some dense layers, shared experts and experts picked by sigmoids with a bias. Keys: llama.cpp b11434,
 * src/models/dots1.cpp and conversion/dots1.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum { SIGMOID = 2 }; /* expert_gating_func */

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.head_norm = BLOCKS_NORM_EACH;
    struct blocks_moe moe = {.gating = SIGMOID};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_name hf_dots1_names[] = {
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_dots1_fixed[] = {
    {"scoring_func", "sigmoid or noaux_tc"}, /* published folders say noaux_tc; transformers computes sigmoids */
    {"use_sliding_window", "false"},
    {NULL, NULL},
};

/* Layers from max_window_layers on have a window, if there is one [transformers 5.23, Dots1Config]. */
static enum err finish(struct hf *h)
{
    uint32_t n_layers, n_full;
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "max_window_layers", 0, UINT32_MAX, n_layers, &n_full));
    bool has_window = json_is_integer(json_read_get(h->config, "sliding_window"));
    return n_full >= n_layers || !has_window
               ? ERR_OK
               : hf_bad(h, "max_window_layers", "expected %u, the number of layers, or more, found %u", n_layers,
                        n_full);
}

static const struct hf_family hf_dots1 = {
    .architectures = {"Dots1ForCausalLM"},
    .arch = "dots1",
    .keys = blocks_sigmoid_keys,
    .names = hf_dots1_names,
    .fixed = hf_dots1_fixed,
    .finish = finish,
};

const struct model_family model_dots1 = {
    .members = "dots.llm1",
    .arch = "dots1",
    .hf = {&hf_dots1},
    .build = build,
};
