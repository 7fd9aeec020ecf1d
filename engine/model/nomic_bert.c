/* Nomic BERT [Nussbaum 2024, "Nomic Embed"]: BERT with RoPE and a gated block. Its second version [Nussbaum 2025,
 * "Training Sparse Mixture Of Experts Text Embedding Models"] has no gate, and experts in each n-th layer: shares of a
 * softmax over all, not divided, and one bias for all. Keys and tensors: llama.cpp b11434, src/models/nomic-bert.cpp,
 * nomic-bert-moe.cpp and conversion/bert.py, which leaves that bias out. */
#include "engine/model/bert.h"
#include "engine/tensor/row_turned.h"

#include <inttypes.h>
#include <stdio.h>

static enum err build(struct blocks *b)
{
    TRY(bert_read_hparams(b));
    return bert_build(b, &(struct bert_kind){.positions = BERT_ROPE, .act = PLAN_SILU, .is_gated = true});
}

static enum err build_moe(struct blocks *b)
{
    uint32_t every;
    TRY(bert_read_hparams(b));
    TRY(blocks_expect(b, b->plan->moe.n_experts != 0, "expert_count", "expected 1 or more, found 0"));
    TRY(blocks_read_moe(b, &(struct blocks_moe){.n_ff = b->h.n_ff, .gating = 1}));
    TRY(blocks_get_u32(b, "moe_every_n_layers", 2, PLAN_MAX_LAYERS, UINT64_MAX, &every));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.ffn[i] = i % every == 1 ? BLOCKS_EXPERTS : BLOCKS_DENSE;
    }
    return bert_build(b, &(struct bert_kind){.positions = BERT_ROPE, .act = PLAN_GELU});
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

/* Rejects the makers' variants that this plan does not compute. */
static enum err finish_nomic(struct hf *h)
{
    static const char *const refused[] = {"prenorm", "rotary_emb_interleaved", "rotary_scaling_factor",
                                          "rotary_emb_scale_base"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const json_t *v = json_read_get(h->config, refused[i]);
        if (json_is_true(v) || json_number_value(v) != 0) {
            return hf_bad(h, refused[i], "expected none, found %s", json_read_type_name(v));
        }
    }
    return bert_finish(h);
}

/* Keys of the makers' code, from before transformers supported it. If there are two lengths, the training length is
 * used. */
static const struct hf_alias hf_nomic_aliases[] = {
    {"hidden_size", "n_embd"},
    {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"max_position_embeddings", "max_trained_positions"},
    {"max_position_embeddings", "n_positions"},
    {"layer_norm_eps", "layer_norm_epsilon"},
    {"hidden_act", "activation_function"},
    {"rope_theta", "rotary_emb_base"},
    {"partial_rotary_factor", "rotary_emb_fraction"},
    {NULL, NULL},
};

/* Names of the makers, which transformers 5 saves, too. */
static const struct hf_name hf_nomic_names[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME},
    {"emb_ln.weight", "token_embd_norm.weight", HF_SAME},
    {"emb_ln.bias", "token_embd_norm.bias", HF_SAME},
    {"encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"encoder.layers.{}.attn.out_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    {"encoder.layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias", HF_SAME}, /* of the second version, as further ones */
    {"encoder.layers.{}.attn.out_proj.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layers.{}.mlp.router.layer.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"encoder.layers.{}.mlp.experts.mlp.w1", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"encoder.layers.{}.mlp.experts.mlp.w2", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"encoder.layers.{}.mlp.experts.bias", "blk.{}.ffn_exps.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Gives the experts' matrices GGUF's shapes: up is [E F][D] in the folder, and so is down, transposed. */
static enum err shape_experts(struct hf *h, uint32_t layer, uint32_t n_experts)
{
    static const char *const names[] = {"blk.%" PRIu32 ".ffn_up_exps.weight", "blk.%" PRIu32 ".ffn_down_exps.weight"};
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        char name[64];
        snprintf(name, sizeof name, names[k], layer);
        struct gguf_tensor *t = gguf_build_find(&h->b, name);
        if (t == NULL) {
            continue; /* the builder reports it */
        }
        uint64_t width = t->dims[1] / n_experts;
        if (t->n_dims != 2 || t->dims[1] % n_experts != 0 || width > PLAN_MAX_WIDTH) {
            return hf_bad(h, "num_experts", "expected a divisor of the %" PRIu64 " rows of %s, found %" PRIu32,
                          t->dims[1], k == 0 ? "w1" : "w2", n_experts);
        }
        const struct row_source *rows = t->source;
        rows = k == 0 ? rows : row_turned_new(&h->b.arena, rows, (uint32_t)width, t->type);
        gguf_build_rows(&h->b, t, rows, n_experts);
        t->n_dims = 3;
    }
    return ERR_OK;
}

/* The published model says 2048 positions and was trained on 512 [llama.cpp b11434, conversion/bert.py]. */
static enum err finish_moe(struct hf *h)
{
    uint32_t n_experts, n_layers, every, n_ctx;
    TRY(hf_get_u32(h, "num_experts", 1, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "moe_every_n_layers", 2, PLAN_MAX_LAYERS, UINT64_MAX, &every));
    TRY(hf_get_u32(h, "max_position_embeddings", 1, UINT32_MAX / 2, UINT64_MAX, &n_ctx));
    gguf_build_u32(&h->b, hf_key(h, "context_length"), n_ctx == 2048 ? 512 : n_ctx);
    for (uint32_t i = 1; i < n_layers; i += every) {
        TRY(shape_experts(h, i, n_experts));
    }
    return finish_nomic(h);
}

static const struct hf_key hf_moe_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"num_experts", "expert_count", HF_U32},
    {"moe_top_k", "expert_used_count", HF_U32},
    {"moe_every_n_layers", "moe_every_n_layers", HF_U32},
    {"max_position_embeddings", "context_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_moe_fixed[] = {
    {"moe_normalize_expert_weights", "false"},
    {"expert_choice_router", "false"},
    {"num_shared_experts", "0"},
    {"ffn_div", "1"},
    {"use_rms_norm", "false"},
    {NULL, NULL},
};

static const struct hf_family hf_nomic_moe = {
    .architectures = {"NomicBertModel"},
    .arch = "nomic-bert-moe",
    .aliases = hf_nomic_aliases,
    .keys = hf_moe_keys,
    .names = hf_nomic_names,
    .fixed = hf_moe_fixed,
    .act = HF_GELU,
    .finish = finish_moe,
};

static const struct hf_family *choose(const json_t *config);

static const struct hf_family hf_nomic = {
    .architectures = {"NomicBertModel"},
    .choose = choose,
    .arch = "nomic-bert",
    .aliases = hf_nomic_aliases,
    .keys = bert_hf_keys,
    .names = hf_nomic_names,
    .finish = finish_nomic,
};

static const struct hf_family *choose(const json_t *config)
{
    const json_t *every = json_read_get(config, "moe_every_n_layers");
    return every == NULL || (json_is_number(every) && json_number_value(every) == 0) ? &hf_nomic : &hf_nomic_moe;
}

const struct model_family model_nomic_bert = {
    .members = "Nomic Embed Text v1, v1.5; for embeddings",
    .arch = "nomic-bert",
    .hf = {&hf_nomic},
    .build = build,
};

const struct model_family model_nomic_bert_moe = {
    .members = "Nomic Embed Text v2; for embeddings",
    .arch = "nomic-bert-moe",
    .hf = {&hf_nomic_moe},
    .build = build_moe,
};
