/* Command R and Command R7B [Cohere 2024]: attention and feed-forward read one LayerNorm without bias, and both are added
 * to the stream; RoPE on interleaved pairs, tied embeddings, scaled logits. Command R7B and Command A (Cohere2) have three
 * local layers per global one, and no RoPE in global layers. Command R+ has a LayerNorm of each head of Q and K, with
 * weights for each head. Keys: llama.cpp b11434, src/models/command-r.cpp, cohere2.cpp and conversion/command_r.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum { GLOBAL_EVERY = 4 };

/* Reads what both families have. */
static enum err read_common(struct blocks *b)
{
    b->centers = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->ffn_norm = NULL;
    TRY(blocks_get_f32(b, "logit_scale", 0.0, 1e6, 0.0, &s->logit_scale));
    s->logit_scale = s->logit_scale != 0 ? s->logit_scale : 1; /* 0 in a file means none */
    return ERR_OK;
}

static enum err build_command_r(struct blocks *b)
{
    TRY(read_common(b));
    b->style.head_norm = blocks_rows_of(b, "blk.0.attn_q_norm.weight") != 0 ? BLOCKS_NORM_OWN : BLOCKS_NO_HEAD_NORM;
    return blocks_build_decoder(b);
}

static enum err build_cohere2(struct blocks *b)
{
    TRY(read_common(b));
    struct blocks_style *s = &b->style;
    s->local_is_scaled = true;
    TRY(blocks_get_u32(b, "attention.sliding_window", 1, INT32_MAX, UINT64_MAX, &s->window)); /* required */
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        s->is_nope[i] = !s->is_local[i];
    }
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_command_r_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"logit_scale", "logit_scale", HF_F32},
    {"max_position_embeddings", "context_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_command_r_names[] = {
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", HF_AS_F32},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", HF_AS_F32},
    {NULL, NULL, HF_SAME},
};

static const struct hf_key hf_cohere2_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"logit_scale", "logit_scale", HF_F32},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {NULL, NULL, HF_U32},
};

/* Transformers reads none of these, except sliding_window_pattern of folders without layer_types. */
static const struct hf_fixed hf_cohere2_fixed[] = {
    {"rotary_pct", "1"},
    {"use_parallel_block", "true"},
    {"use_gated_activation", "true"},
    {"use_qk_norm", "false"},
    {"position_embedding_type", "rope_gptj"},
    {"order_of_interleaved_layers", "local_attn_first"},
    {"sliding_window_pattern", "4"},
    {"layer_switch", "4"},
    {NULL, NULL},
};

/* The context is model_max_length, if there is one: Command R's max_position_embeddings is shorter. The tensors show
 * whether heads have norms, which must agree with config.json. */
static enum err finish_command_r(struct hf *h)
{
    static const char key[] = "use_qk_norm";
    uint32_t n_ctx;
    TRY(hf_get_u32(h, "max_position_embeddings", 1, UINT32_MAX / 2, UINT64_MAX, &n_ctx));
    TRY(hf_get_u32(h, "model_max_length", 1, UINT32_MAX / 2, n_ctx, &n_ctx));
    gguf_build_u32(&h->b, hf_key(h, "context_length"), n_ctx);
    const json_t *v = json_read_get(h->config, key);
    bool has_norms = gguf_build_find(&h->b, "blk.0.attn_q_norm.weight") != NULL;
    return json_is_true(v) == has_norms
               ? ERR_OK
               : hf_bad_value(h, key,
                              has_norms ? "true, as there is q_norm.weight" : "false, as there is no q_norm.weight", v);
}

static const struct hf_family hf_command_r = {
    .architectures = {"CohereForCausalLM"},
    .arch = "command-r",
    .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625}", /* transformers 5.23, CohereConfig */
    .keys = hf_command_r_keys,
    .names = hf_command_r_names,
    .has_rope_pairs = true,
    .finish = finish_command_r,
};

static const struct hf_family hf_cohere2 = {
    .architectures = {"Cohere2ForCausalLM"},
    .arch = "cohere2",
    .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625}", /* transformers 5.23, Cohere2Config */
    .keys = hf_cohere2_keys,
    .fixed = hf_cohere2_fixed,
    .window = 4096,
    .has_rope_pairs = true,
};

const struct model_family model_command_r = {
    .members = "Command R, Command R+, Aya 23, Aya Expanse 32B",
    .arch = "command-r",
    .hf = {&hf_command_r},
    .build = build_command_r,
};

const struct model_family model_cohere2 = {
    .members = "Command R7B, Command A",
    .arch = "cohere2",
    .hf = {&hf_cohere2},
    .build = build_cohere2,
};
