/* Jina's encoders of BERT's structure. jina-embeddings-v2 [Guenther 2023, "Jina Embeddings 2"] has ALiBi in both
 * directions and gated blocks; its models of code also norm all heads of Q and K, and add a layer's input twice.
 * jina-embeddings-v3 [Sturua 2024, "jina-embeddings-v3"] is XLM-RoBERTa with RoPE; its adapters for tasks are not
 * read. Keys and tensors: llama.cpp b11434, src/models/bert.cpp, jina-bert-v2.cpp and conversion/bert.py.
 *
 * A matrix of gate and up has the gate first, in models of code last, as in the publisher's code; llama.cpp reads it
 * first there, too. */
#include "engine/model/bert.h"

static enum err build_v2(struct blocks *b)
{
    TRY(bert_read_hparams(b));
    bool is_of_code = blocks_rows_of(b, "blk.0.attn_norm_2.weight") != 0;
    bool has_gate = blocks_rows_of(b, "blk.0.ffn_gate.weight") != 0;
    b->style.has_norm_biases = true;
    b->style.gate_is_last = is_of_code;
    if (blocks_rows_of(b, "blk.0.attn_q_norm.weight") != 0) {
        b->style.head_norm = BLOCKS_NORM_WIDE;
    }
    return bert_build(b,
                      &(struct bert_kind){.positions = BERT_ALIBI,
                                          .act = PLAN_GELU,
                                          .is_gated = has_gate || blocks_rows_of(b, "blk.0.ffn_up.weight") != b->h.n_ff,
                                          .adds_twice = is_of_code});
}

static enum err build_v3(struct blocks *b)
{
    TRY(bert_read_hparams(b));
    return bert_build(b, &(struct bert_kind){.positions = BERT_ROPE, .act = PLAN_GELU});
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

static const struct hf_fixed hf_v2_fixed[] = {
    {"position_embedding_type", "alibi"},
    {"feed_forward_type", "geglu or original"},
    {"is_decoder", "false"},
    {NULL, NULL},
};

static const struct hf_name hf_v2_names[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight", HF_SAME},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.layer_norm_q.weight", "blk.{}.attn_q_norm.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.layer_norm_q.bias", "blk.{}.attn_q_norm.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.layer_norm_k.weight", "blk.{}.attn_k_norm.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.layer_norm_k.bias", "blk.{}.attn_k_norm.bias", HF_SAME},
    {"encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    {"encoder.layer.{}.mlp.gated_layers.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layer.{}.mlp.wo.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layer.{}.mlp.wo.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layer.{}.mlp.layernorm.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layer.{}.mlp.layernorm.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {"encoder.layer.{}.layer_norm_1.weight", "blk.{}.attn_norm_2.weight", HF_SAME}, /* of code, as further ones */
    {"encoder.layer.{}.layer_norm_1.bias", "blk.{}.attn_norm_2.bias", HF_SAME},
    {"encoder.layer.{}.mlp.up_gated_layer.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layer.{}.mlp.up_layer.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layer.{}.mlp.down_layer.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layer.{}.mlp.down_layer.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layer.{}.layer_norm_2.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layer.{}.layer_norm_2.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_v2 = {
    .architectures = {"JinaBertModel", "JinaBertForMaskedLM"},
    .arch = "jina-bert-v2",
    .prefix = "bert.",
    .keys = bert_hf_keys,
    .names = hf_v2_names,
    .fixed = hf_v2_fixed,
    .act = HF_GELU,
    .finish = bert_finish,
};

const struct model_family model_jina_bert_v2 = {
    .members = "Jina Embeddings v2; for embeddings",
    .arch = "jina-bert-v2",
    .hf = {&hf_v2},
    .build = build_v2,
};

static const struct hf_alias hf_v3_aliases[] = {
    {"rope_theta", "rotary_emb_base"}, /* of the publisher's own folder */
    {NULL, NULL},
};

static const struct hf_fixed hf_v3_fixed[] = {
    {"position_embedding_type", "rotary"},
    {"is_decoder", "false"},
    {NULL, NULL},
};

/* A matrix as transformers saves it, and in the publisher's folder, next to the adapters. */
#define MATRIX(name, gguf)                                                                                             \
    {name ".weight", gguf ".weight", HF_SAME}, { name ".parametrizations.weight.original", gguf ".weight", HF_SAME }

static const struct hf_name hf_v3_names[] = {
    MATRIX("embeddings.word_embeddings", "token_embd"),
    MATRIX("embeddings.token_type_embeddings", "token_types"),
    {"emb_ln.weight", "token_embd_norm.weight", HF_SAME},
    {"emb_ln.bias", "token_embd_norm.bias", HF_SAME},
    MATRIX("encoder.layers.{}.mixer.Wqkv", "blk.{}.attn_qkv"),
    {"encoder.layers.{}.mixer.Wqkv.bias", "blk.{}.attn_qkv.bias", HF_SAME},
    MATRIX("encoder.layers.{}.mixer.out_proj", "blk.{}.attn_output"),
    {"encoder.layers.{}.mixer.out_proj.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    MATRIX("encoder.layers.{}.mlp.fc1", "blk.{}.ffn_up"),
    {"encoder.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias", HF_SAME},
    MATRIX("encoder.layers.{}.mlp.fc2", "blk.{}.ffn_down"),
    {"encoder.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

const struct hf_family bert_hf_jina_v3 = {
    .architectures = {"JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"},
    .arch = "jina-bert-v3",
    .prefix = "roberta.",
    .aliases = hf_v3_aliases,
    .keys = bert_hf_roberta_keys,
    .names = hf_v3_names,
    .fixed = hf_v3_fixed,
    .act = HF_GELU,
    .finish = bert_finish_roberta,
};

const struct model_family model_jina_bert_v3 = {
    .members = "Jina Embeddings v3; for embeddings",
    .arch = "jina-bert-v3",
    .hf = {&bert_hf_jina_v3},
    .build = build_v3,
};
