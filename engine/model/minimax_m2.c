/* MiniMax-M2: Llama's decoder with one norm over all heads of Q, and of K, RoPE on a part of each head, on half-split
 * pairs, and experts in every layer, picked by sigmoids with a bias. Keys: llama.cpp b11434, src/models/minimax-m2.cpp
 * and conversion/minimax.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum { SIGMOID = 2 }; /* expert_gating_func */

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_WIDE;
    struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true, .n_ff = b->h.n_ff};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* attn_type_list has a 1 for each layer with attention over all positions, the only kind. */
static enum err finish(struct hf *h)
{
    static const char key[] = "attn_type_list";
    const json_t *list = json_read_get(h->config, key);
    uint32_t n_ff;
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    gguf_build_u32(&h->b, hf_key(h, "expert_feed_forward_length"), n_ff);
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) != 1) {
            char shown[JSON_READ_SHOWN];
            return hf_bad(h, key, "expected only 1, full attention, found %s", json_read_show(v, shown));
        }
    }
    return ERR_OK;
}

static const struct hf_key hf_keys[] = {
    {"intermediate_size", "feed_forward_length", HF_U32},
    {"intermediate_size", "expert_feed_forward_length", HF_WORD},
    {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_fixed[] = {
    {"scoring_func", "sigmoid"},
    {"use_qk_norm", "true"},
    {"qk_norm_type", "per_layer"},
    {"shared_intermediate_size", "0"},
    {NULL, NULL},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_minimax_m2 = {
    .architectures = {"MiniMaxM2ForCausalLM"},
    .arch = "minimax-m2",
    .defaults = "{\"rope_theta\": 5e6}", /* transformers 5.23, MiniMaxM2Config */
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .finish = finish,
};

const struct model_family model_minimax_m2 = {
    .members = "MiniMax-M2",
    .arch = "minimax-m2",
    .hf = {&hf_minimax_m2},
    .build = build,
};
