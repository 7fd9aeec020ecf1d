/* Qwen3 [Qwen Team 2025, "Qwen3 Technical Report", 2]: Qwen2 without its biases and with norms of the heads of Q and K.
 * The text part of Qwen3-VL is the same: its three positions per row are equal in text, and only images add to the
 * first layers (DeepStack). Keys: llama.cpp b11434, src/models/qwen3.cpp and qwen3vl.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"
#include "engine/hf/hf_rope.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->local_is_scaled = true;
    s->head_norm = BLOCKS_NORM_EACH;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* for folders with use_sliding_window */
    return blocks_build_decoder(b);
}

static const struct hf_name hf_names[] = {
    {"score.weight", "cls.output.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_qwen3 = {
    .architectures = {"Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"},
    .arch = "qwen3",
    .names = hf_names,
    .finish = hf_add_optional_window,
};

/* Of the nested text_config, config.json has only differences [transformers 5.23, Qwen3VLTextConfig]. */
static const struct hf_family hf_qwen3vl = {
    .architectures = {"Qwen3VLForConditionalGeneration"},
    .arch = "qwen3vl",
    .defaults = "{\"hidden_size\": 4096, \"intermediate_size\": 22016, \"num_hidden_layers\": 32,"
                " \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"head_dim\": 128,"
                " \"max_position_embeddings\": 128000, \"rms_norm_eps\": 1e-6, \"rope_theta\": 5e5}",
    .finish = hf_add_qwen3vl,
};

const struct model_family model_qwen3 = {
    .members = "Qwen3 0.6B, 1.7B, 4B, 8B, 14B, 32B",
    .arch = "qwen3",
    .hf = {&hf_qwen3},
    .build = build,
};

const struct model_family model_qwen3vl = {
    .members = "Qwen3-VL 2B, 4B, 8B, 32B (text)",
    .arch = "qwen3vl",
    .hf = {&hf_qwen3vl},
    .build = build,
};
