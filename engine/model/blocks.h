/* What families share: reading hyper-parameters with ranges, binding tensors by name and shape, and the pre-norm
 * decoder that most of them are. Threads: a builder belongs to one thread. */
#ifndef INFCGI_MODEL_BLOCKS_H
#define INFCGI_MODEL_BLOCKS_H

#include "engine/model/model.h"

/* Hyper-parameters of a decoder, checked against each other. */
struct blocks_hparams {
    uint32_t n_embd, n_layers, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_train, n_rot;
    float eps;       /* of RMSNorm */
    float freq_base; /* RoPE theta */
};

/* How a family's decoder differs from Llama's. */
struct blocks_style {
    bool is_neox;          /* RoPE on pairs (i, i + n_rot/2); else (2i, 2i+1) */
    bool has_head_norms;   /* RMSNorm of each head of Q and K before RoPE: attn_q_norm, attn_k_norm */
    bool has_post_norms;   /* RMSNorm of what a block adds to the stream: post_attention_norm, post_ffw_norm */
    enum plan_act act;     /* of the feed-forward gate */
    float embed_scale;     /* times the embedding */
    float attn_scale;      /* times q.k */
    float logit_softcap;   /* 0 = none */
    uint32_t window;       /* positions a local layer sees, itself included */
    float local_freq_base; /* RoPE theta of local layers, which no scaling stretches */
    bool is_local[PLAN_MAX_LAYERS];
};

/* A plan being built. */
struct blocks {
    const struct gguf *g;
    const char *arch; /* prefix of the hyper-parameter keys */
    struct plan *plan;
    struct blocks_hparams h;
    struct blocks_style style;
    struct err_info *info;
    plan_buf_id x, norm, q, att, ff,
        last;           /* [D] stream, [D] normed, [H*d] queries, [H*d] attention out, [F], [D] of the S rows */
    int32_t rope;       /* table of global layers */
    int32_t local_rope; /* of local ones; PLAN_NONE where there are none */
};

/* Reads "<arch>.<key>" as an integer in [min, max]. An absent key gives `fallback`; pass UINT64_MAX to require it.
 * ERR_BAD_HPARAM names key, range and value. */
MUST_CHECK enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max,
                                   uint64_t fallback, uint32_t *out);
/* The same for a finite float in [min, max]; fallback NAN requires it. */
MUST_CHECK enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback,
                                   float *out);

/* Reads the common hyper-parameters into b->h and the plan's dimensions, and makes b->style Llama's. */
MUST_CHECK enum err blocks_read_hparams(struct blocks *b);

/* Finds the tensor `name` (a printf format with the layer number when layer >= 0) and adds it as [n_out][n_in].
 * Absent: ERR_MISSING_TENSOR, or *id = PLAN_NONE when `optional`. */
MUST_CHECK enum err blocks_bind(struct blocks *b, const char *name, int layer, uint32_t n_out, uint32_t n_in,
                                bool optional, plan_weight_id *id);

/* The RoPE tables: of global layers freq_base with linear scaling and the factors of rope_freqs.weight (Llama 3's
 * scaling, baked by the converter); of local layers, where there are any, local_freq_base as it is. ERR_BAD_HPARAM for
 * scaling types that are not known. */
MUST_CHECK enum err blocks_add_ropes(struct blocks *b);

/* The whole pre-norm decoder as b->style says: embed; L times (norm, QKV + RoPE, attention, output + residual, norm,
 * gated feed-forward, down + residual); gather, norm, logits (tied to the embedding when there is no output.weight).
 * Biases of Q, K and V are used where the file has them. Call blocks_read_hparams before. */
MUST_CHECK enum err blocks_build_decoder(struct blocks *b);

#endif
