/* GLM-4-0414 [GLM Team 2024, "ChatGLM", 2]: Llama's decoder with biases on Q, K and V, norms before and after attention
 * and feed-forward, gate and up in one tensor, and RoPE on half of each head, on interleaved pairs. GGUF files of models
 * that see (GLM-4.1V) have half-split pairs. Keys: llama.cpp b11434, src/models/glm4.cpp and conversion/glm.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.has_post_norms = true;
    b->style.is_neox = blocks_has_key(b, "rope.dimension_sections");
    b->may_predict = false; /* files of GLM-OCR have a prediction head that no program runs */
    TRY(blocks_read_predicting(b));
    return blocks_build_decoder(b);
}

static const struct hf_name hf_names[] = {
    {"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_glm4 = {
    .architectures = {"Glm4ForCausalLM"},
    .arch = "glm4",
    .names = hf_names,
    .rotary_part = 0.5,
    .has_rope_pairs = true,
};

const struct model_family model_glm4 = {
    .members = "GLM-4-9B-0414, GLM-4-32B-0414, GLM-Z1",
    .arch = "glm4",
    .hf = {&hf_glm4},
    .build = build,
};
