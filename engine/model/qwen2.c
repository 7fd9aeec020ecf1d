/* Qwen2 and Qwen2.5: Llama's decoder with biases on Q, K and V and RoPE on half-split pairs. The text part of Qwen2-VL
 * and Qwen2.5-VL is the same: its three positions per row [Wang 2024, "Qwen2-VL", 2.1: M-RoPE] are equal in text. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"
#include "engine/hf/hf_rope.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* for folders with use_sliding_window */
    return blocks_build_decoder(b);
}

static const struct hf_family hf_qwen2 = {
    .architectures = {"Qwen2ForCausalLM"},
    .arch = "qwen2",
    .finish = hf_add_optional_window,
};

static enum err finish_vl(struct hf *h)
{
    TRY(hf_add_optional_window(h));
    return hf_add_sections(h, (const int32_t[4]){16, 24, 24, 0});
}

/* Of a nested text_config, config.json has only differences [transformers 5.23, Qwen2VLTextConfig]. */
static const struct hf_family hf_qwen2vl = {
    .architectures = {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"},
    .arch = "qwen2vl",
    .defaults = "{\"hidden_size\": 8192, \"intermediate_size\": 29568, \"num_hidden_layers\": 80,"
                " \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"max_position_embeddings\": 32768,"
                " \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6}",
    .finish = finish_vl,
};

const struct model_family model_qwen2 = {
    .members = "Qwen2, Qwen2.5, Qwen2.5-Coder",
    .arch = "qwen2",
    .hf = {&hf_qwen2},
    .build = build,
};

const struct model_family model_qwen2vl = {
    .members = "Qwen2-VL, Qwen2.5-VL (text)",
    .arch = "qwen2vl",
    .hf = {&hf_qwen2vl},
    .build = build,
};
