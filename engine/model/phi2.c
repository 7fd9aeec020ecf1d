/* Phi-1.5 and Phi-2 [Li 2023, "Textbooks Are All You Need II"]: attention and a feed-forward block with GELU and without a
 * gate read one LayerNorm, and both are added to the stream; RoPE on a part of each head; biases everywhere, also of the
 * logits. Keys: llama.cpp b11434, src/models/phi2.cpp and conversion/phi.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    b->centers = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->has_norm_biases = true;
    s->has_output_bias = true;
    s->is_ungated = true;
    s->act = PLAN_GELU_TANH;
    s->ffn_norm = NULL;
    return blocks_build_decoder(b);
}

static const struct hf_key hf_phi_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_phi_names[] = {
    {"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", HF_SAME},
    {"model.layers.{}.self_attn.dense.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"model.layers.{}.self_attn.dense.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"model.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"model.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"model.final_layernorm.weight", "output_norm.weight", HF_SAME},
    {"model.final_layernorm.bias", "output_norm.bias", HF_SAME},
    {"lm_head.bias", "output.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_phi_fixed[] = {
    {"qk_layernorm", "false"},
    {"hidden_act", "gelu_new or gelu_pytorch_tanh or gelu_python_tanh or gelu_fast or gelu_accurate"}, /* not gelu */
    {NULL, NULL},
};

static const struct hf_family hf_phi = {
    .architectures = {"PhiForCausalLM"},
    .arch = "phi2",
    .defaults = "{\"layer_norm_eps\": 1e-5}", /* transformers 5.23, PhiConfig */
    .keys = hf_phi_keys,
    .names = hf_phi_names,
    .fixed = hf_phi_fixed,
    .act = HF_GELU_TANH,
    .rotary_part = 0.5,
};

const struct model_family model_phi2 = {
    .members = "Phi-1, Phi-1.5, Phi-2",
    .arch = "phi2",
    .hf = {&hf_phi},
    .build = build,
};
