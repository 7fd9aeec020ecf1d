/* Mistral 3 and Ministral 3, text only: Llama's decoder with YaRN; beyond the original context, queries grow with the
 * position. Keys: llama.cpp b11434, src/models/mistral3.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    TRY(blocks_get_f32(b, "attention.temperature_scale", 0.0, 1e3, 0.0, &s->query_beta));
    TRY(blocks_get_u32(b, "rope.scaling.original_context_length", 1, UINT32_MAX / 2, b->h.n_ctx_train,
                       &s->query_period));
    s->local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* all layers, if there is a window */
    return blocks_build_decoder(b);
}

static enum err finish(struct hf *h)
{
    const json_t *rope = json_read_get(h->config, "rope_parameters");
    double beta;
    rope = rope != NULL ? rope : json_read_get(h->config, "rope_scaling");
    TRY(hf_get_f64(h, rope, "llama_4_scaling_beta", 0, 1e3, 0, &beta));
    if (beta != 0) {
        gguf_build_f32(&h->b, hf_key(h, "attention.temperature_scale"), (float)beta);
    }
    return ERR_OK;
}

static const struct hf_family hf_mistral3 = {
    .architectures = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"},
    .arch = "mistral3",
    .keys = blocks_window_keys,
    .finish = finish};

const struct model_family model_mistral3 = {
    .members = "Mistral 3, Ministral 3 (text)",
    .arch = "mistral3",
    .hf = {&hf_mistral3},
    .build = build,
};
