/* EuroBERT [Boizard 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages"], an encoder for embeddings:
 * Llama's layers, whose rows see the whole text. Keys and tensors: llama.cpp b11434, src/models/eurobert.cpp; folders:
 * transformers 5, modeling_eurobert.py. */
#include "engine/model/blocks.h"

static enum err build(struct blocks *b)
{
    b->is_encoder = true;
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    return blocks_build_decoder(b);
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

static enum err finish(struct hf *h)
{
    gguf_build_bool(&h->b, hf_key(h, "attention.causal"), false); /* llama.cpp's reader assumes no default */
    return ERR_OK;
}

static const struct hf_name hf_names[] = {
    {"lm_head.weight", NULL, HF_DROP}, /* of masked tokens */
    {"lm_head.bias", NULL, HF_DROP},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_eurobert = {
    .architectures = {"EuroBertModel", "EuroBertForMaskedLM"},
    .arch = "eurobert",
    .names = hf_names,
    .finish = finish,
};

const struct model_family model_eurobert = {
    .members = "EuroBERT; for embeddings",
    .arch = "eurobert",
    .hf = {&hf_eurobert},
    .build = build,
};
