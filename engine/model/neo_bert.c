/* NeoBERT [Le Breton 2025, "NeoBERT: A Next-Generation BERT"], an encoder for embeddings and ranking: Llama's layers,
 * whose rows see the whole text, with Q, K and V of each head next to each other in one matrix.
 *
 * Keys and tensors: llama.cpp b11434, src/models/neo-bert.cpp and conversion/bert.py. It reads that matrix as all
 * heads' Q, then K, then V; here heads are as in the publisher's model.py, which also has the head of rerankers. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    b->is_encoder = true;
    TRY(blocks_read_hparams(b));
    b->style.has_qkv_by_head = true;
    b->style.last_norm = "enc.output_norm.weight";
    return blocks_build_decoder(b);
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

/* The width of feed-forward blocks is two thirds of intermediate_size, rounded down, then up to a multiple of 8. */
static enum err finish(struct hf *h)
{
    uint32_t n;
    gguf_build_bool(&h->b, hf_key(h, "attention.causal"), false);
    TRY(hf_get_u32(h, "intermediate_size", 2, PLAN_MAX_WIDTH, UINT64_MAX, &n));
    gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), (2 * n / 3 + 7) / 8 * 8);
    bool ranks = gguf_build_find(&h->b, "cls.output.weight") != NULL;
    if (!h->has_pooling && !ranks) {
        gguf_build_u32(&h->b, hf_key(h, "pooling_type"), PLAN_POOL_CLS);
    }
    return ERR_OK;
}

static const struct hf_alias hf_aliases[] = {
    {"max_position_embeddings", "max_length"},
    {"head_dim", "dim_head"},
    {NULL, NULL},
};

/* The defaults of its class. */
static const char hf_defaults[] = "{\"norm_eps\": 1e-6, \"max_position_embeddings\": 1024}";

static const struct hf_key hf_keys[] = {
    {"norm_eps", "attention.layer_norm_rms_epsilon", HF_F32},
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

/* Variants of the publisher's training code. */
static const struct hf_fixed hf_fixed[] = {
    {"rms_norm", "true"}, {"rope", "true"}, {"ngpt", "false"}, {"hidden_act", "swiglu or SwiGLU or silu"}, {NULL, NULL},
};

static const struct hf_name hf_names[] = {
    {"encoder.weight", "token_embd.weight", HF_SAME},
    {"layer_norm.weight", "enc.output_norm.weight", HF_SAME},
    {"transformer_encoder.{}.attention_norm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    {"transformer_encoder.{}.qkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"transformer_encoder.{}.wo.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"transformer_encoder.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"transformer_encoder.{}.ffn.w12.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"transformer_encoder.{}.ffn.w3.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"dense.weight", "cls.weight", HF_SAME}, /* of rerankers */
    {"dense.bias", "cls.bias", HF_SAME},
    {"classifier.weight", "cls.output.weight", HF_SAME},
    {"classifier.bias", "cls.output.bias", HF_SAME},
    {"decoder.weight", NULL, HF_DROP}, /* of masked tokens */
    {"decoder.bias", NULL, HF_DROP},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_neo_bert = {
    .architectures = {"NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification"},
    .arch = "neo-bert",
    .prefix = "model.",
    .aliases = hf_aliases,
    .defaults = hf_defaults,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .has_act = true,
    .has_rope_pairs = true,
    .finish = finish,
};

const struct model_family model_neo_bert = {
    .members = "NeoBERT; for embeddings and ranking",
    .arch = "neo-bert",
    .hf = {&hf_neo_bert},
    .build = build,
};
