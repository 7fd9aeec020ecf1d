/* SmolLM3: Llama's decoder; every fourth layer has no positions [NoPE; Yang 2025, "RoPE to NoPE and Back Again"]. GGUF
 * files do not say which layers [llama.cpp b11434, src/models/smollm3.cpp]. For a folder with another pattern,
 * attention.rope_pattern is true for each layer with RoPE. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>

enum { NOPE_EVERY = 4 };

/* Reads which layers have no positions. */
static enum err read_layers(struct blocks *b)
{
    bool found, has_rope[PLAN_MAX_LAYERS];
    TRY(blocks_get_flags(b, "attention.rope_pattern", &found, has_rope));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.is_nope[i] = found ? !has_rope[i] : (i + 1) % NOPE_EVERY == 0;
    }
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    TRY(read_layers(b));
    return blocks_build_decoder(b);
}

/* no_rope_layers has a 1 for each layer with RoPE, and can be longer than the model. Without it, the last of each
 * no_rope_layer_interval layers has none [transformers 5, SmolLM3Config]. */
static enum err finish(struct hf *h)
{
    uint32_t n_layers, interval;
    unsigned char has_rope[PLAN_MAX_LAYERS];
    const json_t *list = json_read_get(h->config, "no_rope_layers");
    bool is_usual = true;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "no_rope_layer_interval", 1, INT32_MAX, NOPE_EVERY, &interval));
    if (list != NULL && (!json_is_array(list) || json_array_size(list) < n_layers)) {
        return hf_bad(h, "no_rope_layers", "expected an array of %" PRIu32 " numbers, one a layer, found %s of %zu",
                      n_layers, json_read_type_name(list), json_array_size(list));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        char shown[JSON_READ_SHOWN];
        const json_t *v = json_array_get(list, i);
        json_int_t n = json_is_boolean(v) ? json_is_true(v) : json_is_integer(v) ? json_integer_value(v) : -1;
        if (list != NULL && n != 0 && n != 1) {
            return err_set(h->info, ERR_BAD_CONFIG, "no_rope_layers",
                           "config.json: no_rope_layers[%" PRIu32 "]: expected 0 or 1, found %s", i,
                           json_read_show(v, shown));
        }
        has_rope[i] = list != NULL ? n == 1 : (i + 1) % interval != 0;
        is_usual &= has_rope[i] == ((i + 1) % NOPE_EVERY != 0);
    }
    if (!is_usual) {
        gguf_build_array(&h->b, hf_key(h, "attention.rope_pattern"), GGUF_BOOL, n_layers, has_rope);
    }
    return ERR_OK;
}

static const struct hf_family hf_smollm3 = {
    .architectures = {"SmolLM3ForCausalLM"},
    .arch = "smollm3",
    .fixed = blocks_no_window,
    .finish = finish,
};

const struct model_family model_smollm3 = {
    .members = "SmolLM3",
    .arch = "smollm3",
    .hf = {&hf_smollm3},
    .build = build,
};
