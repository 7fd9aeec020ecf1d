/* StarCoder2 [Lozhkov 2024, "StarCoder 2 and The Stack v2", 6.1]: Llama's decoder with LayerNorm, biases everywhere, and
 * feed-forward blocks with GELU and without a gate. GGUF files do not say that layers have a window, and then see
 * everything. Keys: llama.cpp b11434, src/models/starcoder2.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    b->centers = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->has_norm_biases = true;
    s->is_ungated = true;
    s->act = PLAN_GELU_TANH;
    s->local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* for folders with sliding_window, then in all layers */
    return blocks_build_decoder(b);
}

static const struct hf_key hf_starcoder2_keys[] = {
    {"norm_epsilon", "attention.layer_norm_epsilon", HF_F32},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_starcoder2_names[] = {
    {"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", HF_SAME},
    {"model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias", HF_SAME},
    {"model.layers.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"model.layers.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"model.norm.bias", "output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_starcoder2_fixed[] = {
    {"hidden_act", "gelu_pytorch_tanh or gelu_new or gelu_python_tanh or gelu_fast or gelu_accurate"}, /* not gelu */
    {NULL, NULL},
};

/* The tensors show whether matrices have biases, which must agree with config.json. */
static enum err finish(struct hf *h)
{
    static const char key[] = "use_bias";
    const json_t *v = json_read_get(h->config, key);
    bool has_biases = gguf_build_find(&h->b, "blk.0.attn_q.bias") != NULL;
    return (v == NULL || json_is_true(v)) == has_biases
               ? ERR_OK
               : hf_bad_value(h, key,
                              has_biases ? "true, as there is q_proj.bias" : "false, as there is no q_proj.bias", v);
}

static const struct hf_family hf_starcoder2 = {
    .architectures = {"Starcoder2ForCausalLM"},
    .arch = "starcoder2",
    .defaults = "{\"norm_epsilon\": 1e-5}", /* transformers 5.23, Starcoder2Config */
    .keys = hf_starcoder2_keys,
    .names = hf_starcoder2_names,
    .fixed = hf_starcoder2_fixed,
    .act = HF_GELU_TANH,
    .finish = finish,
};

const struct model_family model_starcoder2 = {
    .members = "StarCoder2 3B, 7B, 15B",
    .arch = "starcoder2",
    .hf = {&hf_starcoder2},
    .build = build,
};
