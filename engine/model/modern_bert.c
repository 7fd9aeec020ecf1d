/* ModernBERT [Warner 2024, "Smarter, Better, Faster, Longer"], an encoder for embeddings and ranking: Llama's layers
 * with bias-free LayerNorm before the blocks, GELU gates and RoPE. Every third layer sees the whole text; the others
 * see half a window on both sides and have their own RoPE base. The embedding has a norm, which replaces the first
 * layer's.
 *
 * Keys, tensors and defaults: llama.cpp b11434, src/models/modern-bert.cpp and conversion/bert.py. llama.cpp
 * approximates GELU by tanh; here it uses the error function, as in transformers. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <string.h>

enum { GLOBAL_EVERY = 3 };
static const double LOCAL_FREQ_BASE = 10000.0;

/* Reads the gates' activation, by its name in transformers. */
static enum err read_act(struct blocks *b)
{
    static const struct {
        const char *name;
        enum plan_act act;
    } acts[] = {{"gelu", PLAN_GELU}, {"silu", PLAN_SILU}};
    static const char key[] = "modern-bert.hidden_activation";
    struct gguf_str name;
    b->style.act = PLAN_GELU;
    TRY(gguf_get_str_or_null(b->g, key, &name, b->info));
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        if (name.data == NULL || gguf_str_is(name, acts[i].name)) {
            b->style.act = acts[i].act;
            return ERR_OK;
        }
    }
    return err_set(b->info, ERR_BAD_HPARAM, key, "%s: expected gelu or silu, found '%.*s'", key,
                   (int)MIN_OF(name.len, (size_t)32), name.data);
}

static enum err build(struct blocks *b)
{
    b->centers = b->is_encoder = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->embed_norm = "token_embd_norm.weight";
    s->first_is_bare = blocks_rows_of(b, "blk.0.attn_norm.weight") == 0;
    s->first_is_global = true;
    TRY(read_act(b));
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, LOCAL_FREQ_BASE, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    return blocks_build_decoder(b);
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

/* Reads layers from layer_types, or their period in folders before transformers 5; and the states a reranker uses. */
static enum err finish(struct hf *h)
{
    uint32_t every;
    gguf_build_bool(&h->b, hf_key(h, "attention.causal"), false); /* llama.cpp's reader assumes no default */
    TRY(hf_get_u32(h, "global_attn_every_n_layers", 1, PLAN_MAX_LAYERS, GLOBAL_EVERY, &every));
    if (json_read_get(h->config, "layer_types") == NULL) {
        gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window_pattern"), every);
    }
    const json_t *act = json_read_get(h->config, "hidden_activation"),
                 *states = json_read_get(h->config, "classifier_pooling");
    if (json_is_string(act)) {
        gguf_build_str(&h->b, hf_key(h, "hidden_activation"), json_string_value(act), json_string_length(act));
    }
    bool is_mean = json_is_string(states) && strcmp(json_string_value(states), "mean") == 0;
    if (states != NULL && !is_mean && !(json_is_string(states) && strcmp(json_string_value(states), "cls") == 0)) {
        return hf_bad_value(h, "classifier_pooling", "cls or mean", states);
    }
    gguf_build_u32(&h->b, hf_key(h, "classifier.pooling_type"), is_mean ? PLAN_POOL_MEAN : PLAN_POOL_CLS);
    return ERR_OK;
}

static const struct hf_alias hf_aliases[] = {
    {"rope_theta", "global_rope_theta"},
    {"rope_local_base_freq", "local_rope_theta"},
    {"sliding_window", "local_attention"},
    {NULL, NULL},
};

/* Defaults of the base models, which a config.json can leave out [transformers 5, ModernBertConfig]. */
static const char hf_defaults[] = "{\"norm_eps\": 1e-5, \"rope_theta\": 160000, \"rope_local_base_freq\": 10000}";

static const struct hf_key hf_keys[] = {
    {"norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"hidden_activation", "hidden_activation", HF_WORD},
    {"classifier_pooling", "classifier.pooling_type", HF_WORD},
    {"global_attn_every_n_layers", "attention.sliding_window_pattern", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_fixed[] = {
    {"norm_bias", "false"}, {"attention_bias", "false"}, {"mlp_bias", "false"}, {"classifier_activation", "gelu"},
    {NULL, NULL},
};

static const struct hf_name hf_names[] = {
    {"embeddings.tok_embeddings.weight", "token_embd.weight", HF_SAME},
    {"embeddings.norm.weight", "token_embd_norm.weight", HF_SAME},
    {"final_norm.weight", "output_norm.weight", HF_SAME},
    {"layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    {"layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"layers.{}.attn.Wo.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"layers.{}.mlp_norm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"layers.{}.mlp.Wi.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"layers.{}.mlp.Wo.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"head.dense.weight", "cls.weight", HF_SAME}, /* of rerankers */
    {"head.dense.bias", "cls.bias", HF_SAME},
    {"head.norm.weight", "cls.norm.weight", HF_SAME},
    {"classifier.weight", "cls.output.weight", HF_SAME},
    {"classifier.bias", "cls.output.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_modern_bert = {
    .architectures = {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
    .arch = "modern-bert",
    .prefix = "model.",
    .aliases = hf_aliases,
    .defaults = hf_defaults,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .act = HF_GELU,
    .has_act = true,
    .window = 128,
    .finish = finish,
};

const struct model_family model_modern_bert = {
    .members = "ModernBERT, GTE and Granite Embedding of its kind; for embeddings and ranking",
    .arch = "modern-bert",
    .hf = {&hf_modern_bert},
    .build = build,
};
