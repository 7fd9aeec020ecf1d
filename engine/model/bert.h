/* Layers of BERT, for encoders that follow it: norms follow the residual sums (post-norm), every row sees its whole
 * text, and there are no logits. Threads: a builder belongs to one thread. */
#ifndef INFCGI_MODEL_BERT_H
#define INFCGI_MODEL_BERT_H

#include "engine/model/blocks.h"

struct bert_kind {
    enum { BERT_LEARNED, BERT_ROPE, BERT_ALIBI } positions;
    enum plan_act act; /* of feed-forward blocks and experts */
    bool is_gated;     /* feed-forward blocks have a gate */
    bool adds_twice;   /* the layer's input is added again after the norm of attention, and normed (attn_norm_2) */
};

/* Reads the hyper-parameters, as blocks_read_hparams. */
MUST_CHECK enum err bert_read_hparams(struct blocks *b);

/* Builds the whole encoder after bert_read_hparams; layers with style.ffn BLOCKS_EXPERTS have experts, for a caller of
 * blocks_read_moe. Errors: as blocks_build_decoder. */
MUST_CHECK enum err bert_build(struct blocks *b, const struct bert_kind *kind);

/* A `finish` of folders: no causal mask, the number of token types. */
MUST_CHECK enum err bert_finish(struct hf *h);

/* ... and of RoBERTa, whose positions begin after the id of padding. */
MUST_CHECK enum err bert_finish_roberta(struct hf *h);

/* Keys of folders: layer_norm_eps, and RoBERTa's. */
extern const struct hf_key bert_hf_keys[];
extern const struct hf_key bert_hf_roberta_keys[];

/* Folders of jina-embeddings-v3 (jina_bert.c), whose publisher's are XLM-RoBERTa's with RoPE. */
extern const struct hf_family bert_hf_jina_v3;

#endif
