/* Mellum 2 [JetBrains 2026]: Qwen3-MoE's decoder with windows in three of four layers. Only the RoPE of global layers is
 * stretched. Keys: llama.cpp b11434, src/models/mellum.cpp and conversion/mellum.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"
#include "engine/hf/hf_layers.h"

#include <inttypes.h>

enum { GLOBAL_EVERY = 4 };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    struct blocks_moe moe = {.gating = 1, .norms_weights = true};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_mellum_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"sliding_window", "attention.sliding_window", HF_WORD},
    {NULL, NULL, HF_U32},
};

static enum err check_sparse(const struct hf *h)
{
    uint32_t n_dense;
    TRY(hf_get_dense(h, 0, &n_dense));
    return n_dense == 0 ? ERR_OK
                        : hf_bad(h, "mlp_layer_types", "expected only sparse, found %" PRIu32 " dense layers", n_dense);
}

static enum err check_rope(const struct hf *h)
{
    static const char key[] = "rope_parameters";
    const json_t *all = json_read_get(h->config, key);
    if (!json_is_object(all)) {
        return hf_bad_value(h, key, "an object", all);
    }
    TRY(blocks_check_local_rope(h));
    return blocks_check_local_part(h);
}

/* Adds the window, which is needed if some layers have one. Without layer_types none has [transformers 5.23,
 * MellumConfig]. */
static enum err finish(struct hf *h)
{
    const json_t *types = json_read_get(h->config, "layer_types");
    uint32_t window;
    bool has_local = false;
    TRY(check_sparse(h));
    TRY(check_rope(h));
    if (json_is_false(json_read_get(h->config, "use_sliding_window"))) {
        TRY(hf_add_optional_window(h)); /* rejects layers with a window */
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        has_local |= json_read_is(json_array_get(types, i), "sliding_attention");
    }
    if (has_local) {
        TRY(hf_get_u32(h, "sliding_window", 1, INT32_MAX, UINT64_MAX, &window));
        gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window"), window);
    }
    return ERR_OK;
}

static const struct hf_family hf_mellum = {
    .architectures = {"MellumForCausalLM"},
    .arch = "mellum",
    .defaults = "{\"sliding_window\": 1024, \"head_dim\": 128}",
    .keys = hf_mellum_keys,
    .finish = finish,
};

const struct model_family model_mellum = {
    .members = "Mellum 2 12B-A2.5B",
    .arch = "mellum",
    .hf = {&hf_mellum},
    .build = build,
};
