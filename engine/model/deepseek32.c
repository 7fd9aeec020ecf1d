/* DeepSeek-V3.2 [DeepSeek-AI 2025, "DeepSeek-V3.2"] and GLM-5: DeepSeek-V3's decoder, whose attention reads only the positions
 * that an index chooses. In GLM-5.2 most layers read those that an earlier layer chose. Prediction heads of both are left
 * out. Keys: llama.cpp b11434, src/models/deepseek32.cpp, glm-dsa.cpp. Formulas: Hugging Face transformers 5.23,
 * modeling_deepseek_v32.py, modeling_glm_moe_dsa.py. */
#include "engine/model/deepseek2.h"

#include <inttypes.h>
#include <string.h>

enum { SIGMOID = 2 }; /* expert_gating_func */

static enum err read_sizes(struct blocks *b)
{
    b->is_latent = true;
    TRY(blocks_read_hparams(b));
    TRY(blocks_read_latent_scale(b));
    TRY(blocks_skip_predicting(b));
    return blocks_read_index(b);
}

static enum err add(struct blocks *b)
{
    if (b->plan->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = SIGMOID};
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

static enum err build_deepseek(struct blocks *b)
{
    TRY(read_sizes(b));
    b->style.index_is_neox = true;
    return add(b);
}

/* Reads which layers have an index. Files without the key are of GLM-5, where all have one, or, if the context is as long
 * as GLM-5.2's, have its layers. */
static enum err read_types(struct blocks *b)
{
    enum { LONG = 1 << 20, FIRST = 2, PERIOD = 4 };
    static const char key[] = "attention.indexer.types";
    bool found, *is_indexed = b->style.is_indexed;
    TRY(blocks_get_flags(b, key, &found, is_indexed));
    for (uint32_t i = 0; !found && i < b->h.n_layers; i++) {
        is_indexed[i] = b->h.n_ctx_train < LONG || i < FIRST || (i - FIRST) % PERIOD == 0;
    }
    return blocks_expect(b, is_indexed[0], key, "expected 1 for the first layer, found 0");
}

static enum err build_glm(struct blocks *b)
{
    TRY(read_sizes(b));
    TRY(read_types(b));
    TRY(blocks_skip_attention(b, "an index")); /* of no layer: gives each layer its own sizes */
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->plan->kvs[i].index_dim = b->style.is_indexed[i] ? b->h.index_dim : 0;
    }
    return add(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* All layers are of one type. */
static enum err check_types(const struct hf *h)
{
    static const char key[] = "layer_types";
    const json_t *types = json_read_get(h->config, key);
    if (types != NULL && !json_is_array(types)) {
        return hf_bad_value(h, key, "an array of names, one a layer", types);
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        if (!json_read_is(json_array_get(types, i), "indexed_attention")) {
            return hf_bad_value(h, key, "indexed_attention", json_array_get(types, i));
        }
    }
    return ERR_OK;
}

static enum err finish_deepseek(struct hf *h)
{
    TRY(check_types(h));
    return deepseek2_finish(h, 3); /* transformers 5.23, DeepseekV32Config */
}

/* Reads the layers that a list of names, or a string of letters, names. */
static enum err read_names(const struct hf *h, const char *key, uint32_t n_layers, unsigned char *is_indexed)
{
    const json_t *names = json_read_get(h->config, key);
    const char *letters = json_string_value(names);
    size_t n = letters != NULL ? strlen(letters) : json_array_size(names);
    if (n != n_layers) {
        return hf_bad(h, key, "expected %" PRIu32 " layers, found %zu", n_layers, n);
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const json_t *name = json_array_get(names, i);
        is_indexed[i] = letters != NULL ? letters[i] == 'F' : json_read_is(name, "full");
        if (!is_indexed[i] && (letters != NULL ? letters[i] != 'S' : !json_read_is(name, "shared"))) {
            return hf_bad(h, key, "expected full (F) and shared (S), found another name for layer %" PRIu32, i);
        }
    }
    return ERR_OK;
}

/* Adds which layers have an index: those that a list names, or one of each `freq` from layer `offset` on [transformers
 * 5.23, GlmMoeDsaConfig]. */
static enum err finish_glm(struct hf *h)
{
    uint32_t n_layers, freq, offset;
    unsigned char is_indexed[PLAN_MAX_LAYERS];
    const char *key = json_read_get(h->config, "indexer_types") != NULL ? "indexer_types" : "index_topk_pattern";
    TRY(check_types(h));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "index_topk_freq", 0, INT32_MAX, 1, &freq));
    TRY(hf_get_u32(h, "index_skip_topk_offset", 0, INT32_MAX, 2, &offset));
    for (uint32_t i = 0; i < n_layers; i++) {
        is_indexed[i] = i + 1 < offset || (i + 1 - offset) % MAX_OF(freq, 1u) == 0;
    }
    TRY(json_read_get(h->config, key) != NULL ? read_names(h, key, n_layers, is_indexed) : ERR_OK);
    gguf_build_array(&h->b, hf_key(h, "attention.indexer.types"), GGUF_BOOL, n_layers, is_indexed);
    return deepseek2_finish(h, 3);
}

#define INDEX_KEYS                                                                                                     \
    DEEPSEEK2_DENSE_KEY, DEEPSEEK2_KEYS, {"index_n_heads", "attention.indexer.head_count", HF_U32},                    \
        {"index_head_dim", "attention.indexer.key_length", HF_U32},                                                    \
    {                                                                                                                  \
        "index_topk", "attention.indexer.top_k", HF_U32                                                                \
    }

static const struct hf_key hf_deepseek_keys[] = {INDEX_KEYS, {NULL, NULL, HF_U32}};

static const struct hf_key hf_glm_keys[] = {
    INDEX_KEYS,
    {"indexer_types", "attention.indexer.types", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_deepseek_fixed[] = {
    DEEPSEEK2_FIXED,
    {"indexer_rope_interleave", "false"},
    {NULL, NULL},
};

static const struct hf_fixed hf_glm_fixed[] = {
    DEEPSEEK2_FIXED,
    {"indexer_rope_interleave", "true"},
    {NULL, NULL},
};

static const struct hf_name hf_names[] = {DEEPSEEK2_NAMES, BLOCKS_INDEX_NAMES, {NULL, NULL, HF_SAME}};

static const struct hf_family hf_deepseek = {
    .architectures = {"DeepseekV32ForCausalLM"},
    .arch = "deepseek32",
    .defaults =
        "{\"index_topk\": 2048, \"index_head_dim\": 128, \"index_n_heads\": 64, \"num_nextn_predict_layers\": 1}",
    .keys = hf_deepseek_keys,
    .names = hf_names,
    .fixed = hf_deepseek_fixed,
    .has_layer_types = true,
    .has_rope_pairs = true,
    .finish = finish_deepseek,
};

static const struct hf_family hf_glm = {
    .architectures = {"GlmMoeDsaForCausalLM"},
    .arch = "glm-dsa",
    .defaults =
        "{\"index_topk\": 2048, \"index_head_dim\": 128, \"index_n_heads\": 32, \"num_nextn_predict_layers\": 1}",
    .keys = hf_glm_keys,
    .names = hf_names,
    .fixed = hf_glm_fixed,
    .has_layer_types = true,
    .has_rope_pairs = true,
    .finish = finish_glm,
};

const struct model_family model_deepseek32 = {
    .members = "DeepSeek-V3.2",
    .arch = "deepseek32",
    .hf = {&hf_deepseek},
    .build = build_deepseek,
};

const struct model_family model_glm_dsa = {
    .members = "GLM-5",
    .arch = "glm-dsa",
    .hf = {&hf_glm},
    .build = build_glm,
};
