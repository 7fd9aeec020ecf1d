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

static const struct hf_family hf_ministral3 = {
    .architectures = {"Ministral3ForCausalLM"},
    .arch = "mistral3",
    .keys = blocks_window_keys,
    .finish = finish,
};

/* Of a nested text_config, config.json has only differences [transformers 5.23, Ministral3Config, MistralConfig]. */
#define FOLDER(its_defaults)                                                                                           \
    {                                                                                                                  \
        .arch = "mistral3", .defaults = (its_defaults), .keys = blocks_window_keys, .finish = finish                   \
    }
#define DEFAULTS(more)                                                                                                    \
    "{\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_attention_heads\": 32, \"num_key_value_heads\": 8," more \
    "}"
static const struct hf_family of_ministral3 = FOLDER(DEFAULTS(" \"num_hidden_layers\": 34, \"head_dim\": 128,"
                                                              " \"max_position_embeddings\": 262144,"
                                                              " \"rms_norm_eps\": 1e-5"));
static const struct hf_family of_mistral = FOLDER(DEFAULTS(" \"num_hidden_layers\": 32,"
                                                           " \"max_position_embeddings\": 131072,"
                                                           " \"rms_norm_eps\": 1e-6, \"sliding_window\": 4096"));

/* The text part of a model that sees is of one of three kinds. */
static const struct hf_family *choose(const json_t *config)
{
    const json_t *type = json_read_get(config, "model_type");
    return json_read_is(type, "mistral4")  ? &blocks_hf_mistral4
           : json_read_is(type, "mistral") ? &of_mistral
                                           : &of_ministral3;
}

static const struct hf_family hf_mistral3 = {
    .architectures = {"Mistral3ForConditionalGeneration"},
    .arch = "mistral3",
    .choose = choose,
};

const struct model_family model_mistral3 = {
    .members = "Mistral Small 3.1, 3.2, Ministral 3 (text)",
    .arch = "mistral3",
    .hf = {&hf_ministral3, &hf_mistral3},
    .build = build,
};
