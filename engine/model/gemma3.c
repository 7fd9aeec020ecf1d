/* Gemma 3, text only [Gemma Team 2025, "Gemma 3 Technical Report", 2]: Llama's decoder with a scaled embedding, norms
 * of the heads of Q and K, norms before and after attention and feed-forward, and GELU gates. Local layers see a window
 * of the nearest positions and have their own RoPE base; every sixth layer sees everything. Norm weights in files
 * already include the 1 of Gemma's (1 + w). Keys and their defaults: llama.cpp b11434, src/models/gemma3.cpp and
 * conversion/gemma.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <math.h>

enum {
    GLOBAL_EVERY = 6, /* one global layer after five local ones */
    LAYERS_27B = 62,  /* in this size queries are scaled by D/H instead of d */
};
static const double LOCAL_FREQ_BASE = 10000.0;

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    s->has_post_norms = true;
    s->act = PLAN_GELU_TANH;
    s->embed_scale = sqrtf((float)b->h.n_embd);
    if (b->h.n_layers == LAYERS_27B) {
        s->attn_scale = (float)(1.0 / sqrt((double)b->h.n_embd / b->h.n_heads));
    }
    TRY(blocks_get_f32(b, "final_logit_softcapping", 0.0, 1e6, 0.0, &s->logit_softcap));
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, LOCAL_FREQ_BASE, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    TRY(blocks_get_f32(b, "attention.scale", 1e-6, 1e6, (double)s->attn_scale, &s->attn_scale));
    return blocks_build_decoder(b);
}

/* EmbeddingGemma [Schechter Vera 2025]: the same, but rows also see later ones, in local layers as far as earlier ones,
 * and layers follow the pooling (blocks_head.c). */
static enum err build_embedding(struct blocks *b)
{
    b->is_encoder = true;
    return build(b);
}

static const struct hf_key hf_gemma3_keys[] = {
    {"query_pre_attn_scalar", "attention.scale", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"final_logit_softcapping", "final_logit_softcapping", HF_CAP},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_gemma3_fixed[] = {
    {"attn_logit_softcapping", "none"},
    {"use_bidirectional_attention", "false"},
    {"sliding_window_pattern", "6"}, /* of folders without layer_types */
    {NULL, NULL},
};

/* For the 4B and larger models, config.json has only differences [transformers 5.23, Gemma3TextConfig]. */
static const char hf_gemma3_defaults[] =
    "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, \"max_position_embeddings\": 131072,"
    " \"rms_norm_eps\": 1e-6, \"query_pre_attn_scalar\": 256, \"rope_theta\": 1e6,"
    " \"rope_local_base_freq\": 1e4}";

static const struct hf_family hf_gemma3 = {
    .architectures = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
    .arch = "gemma3",
    .defaults = hf_gemma3_defaults,
    .keys = hf_gemma3_keys,
    .names = blocks_gemma_names,
    .fixed = hf_gemma3_fixed,
    .act = HF_GELU_TANH,
    .window = 4096,
    .norms_plus_one = true,
    .finish = hf_add_query_scale,
};

/* Text models without a head: EmbeddingGemma's, whose config.json says that they look ahead, and decoders for
 * embeddings. */
static const struct hf_family *choose_headless(const json_t *config);

static const struct hf_key hf_gemma_embedding_keys[] = {
    {"query_pre_attn_scalar", "attention.scale", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_gemma_embedding_fixed[] = {
    {"attn_logit_softcapping", "none"},
    {"sliding_window_pattern", "6"},
    {NULL, NULL},
};

static const struct hf_family hf_gemma_embedding = {
    .architectures = {"Gemma3TextModel"},
    .arch = "gemma-embedding",
    .choose = choose_headless,
    .defaults = hf_gemma3_defaults,
    .keys = hf_gemma_embedding_keys,
    .names = blocks_gemma_names,
    .fixed = hf_gemma_embedding_fixed,
    .act = HF_GELU_TANH,
    .window = 4096,
    .norms_plus_one = true,
    .finish = hf_add_query_scale,
};

static const struct hf_family *choose_headless(const json_t *config)
{
    return json_is_true(json_read_get(config, "use_bidirectional_attention")) ? &hf_gemma_embedding : &hf_gemma3;
}

const struct model_family model_gemma_embedding = {
    .members = "EmbeddingGemma; for embeddings",
    .arch = "gemma-embedding",
    .hf = {&hf_gemma_embedding},
    .build = build_embedding,
};

const struct model_family model_gemma3 = {
    .members = "Gemma 3 270M, 1B, 4B, 12B, 27B (text)",
    .arch = "gemma3",
    .hf = {&hf_gemma3},
    .build = build,
};
