/* What families share: reading hyper-parameters with ranges, binding tensors by name and shape, and the pre-norm
 * decoder that most of them are. Threads: a builder belongs to one thread. */
#ifndef INFCGI_MODEL_BLOCKS_H
#define INFCGI_MODEL_BLOCKS_H

#include "engine/model/model.h"

/* Hyper-parameters of a decoder, checked against each other. */
struct blocks_hparams {
    uint32_t n_embd, n_layers, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_train, n_rot;
    uint32_t n_ff_expert, n_ff_shared; /* widths of a routed expert, and of the shared one, 0 = there is none */
    uint32_t n_dense_layers;           /* the first layers, which have no experts */
    /* Latent attention: components of a position's latent, of the queries' (0 = none), of a head's key and value as
     * they would be without absorption. latent_dim 0 = keys and values in full; else head_dim is latent_dim + n_rot */
    uint32_t latent_dim, q_latent_dim, key_dim, value_dim;
    float eps;       /* of RMSNorm */
    float freq_base; /* RoPE theta */
};

enum blocks_head_norm {
    BLOCKS_NO_HEAD_NORM,
    BLOCKS_NORM_EACH, /* each head of Q and K by itself, before RoPE: attn_q_norm, attn_k_norm of d */
    BLOCKS_NORM_WIDE, /* all heads of Q together, and of K: attn_q_norm of H*d, attn_k_norm of K*d */
};

/* What a family takes for granted where the file does not say. */
struct blocks_moe {
    uint32_t n_ff;     /* width of an expert; 0 = the file must say */
    uint32_t n_shared; /* shared experts, as wide together as so many routed ones */
    uint32_t gating;   /* as in expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax over the picked */
    bool norms_weights;
    bool gates_shared; /* the shared expert has a gate, ffn_gate_inp_shexp */
};

/* What brings the rows of a sequence together in a layer; its row is in blocks_decoder.c. */
enum blocks_mixer {
    BLOCKS_ATTENTION,
    BLOCKS_LATENT, /* attention over latents */
    BLOCKS_CONV,   /* a short convolution */
    BLOCKS_DELTA,  /* the gated delta rule */
    BLOCKS_SSM,    /* a state space */
    BLOCKS_MIXER_COUNT
};

/* A layer's feed-forward block. */
enum blocks_ffn { BLOCKS_DENSE, BLOCKS_EXPERTS, BLOCKS_FFN_COUNT };

/* How a family's decoder differs from Llama's; blocks_read_hparams sets it to Llama's. */
struct blocks_style {
    bool is_neox;         /* RoPE on pairs (i, i + n_rot/2); else (2i, 2i+1) */
    bool has_pre_norms;   /* RMSNorm of what a block reads: attn_norm, ffn_norm */
    bool has_post_norms;  /* RMSNorm of what a block adds to the stream: post_attention_norm, post_ffw_norm */
    bool has_sinks;       /* attn_sinks: a score a head that takes part in its softmax and has no value */
    bool gates_attention; /* what attention gives is let through by sigmoids: rows of Q are each head's [q | gate] */
    bool yarn_truncates;  /* YaRN blends between whole components */
    bool local_is_scaled; /* RoPE scaling stretches local layers too */
    enum blocks_head_norm head_norm;
    enum plan_act act;      /* of the feed-forward gate */
    float embed_scale;      /* times the embedding */
    float attn_scale;       /* times q.k */
    float residual_scale;   /* times what a block adds to the stream */
    float logit_scale;      /* times the logits, before the soft-cap */
    float attn_softcap;     /* of q.k; 0 = none */
    float logit_softcap;    /* 0 = none */
    float query_beta;       /* of plan_rope; 0 = none */
    uint32_t query_period;  /* of plan_rope */
    uint32_t window;        /* positions a local layer sees, itself included */
    float local_freq_base;  /* RoPE theta of local layers */
    bool first_is_global;   /* of each period of layers the first is global; else the last */
    bool first_is_bare;     /* nothing norms what attention of the first layer reads: embed_norm did */
    const char *embed_norm; /* of the embedding; NULL: there is none */
    const char *ffn_norm;   /* name of the norm in front of the feed-forward block */
    const char *last_norm;  /* and of the one behind the last layer */
    uint32_t conv_taps;     /* of short convolutions, also in front of the delta rule and of state spaces */
    struct blocks_moe moe;  /* blocks_read_moe */
    enum blocks_mixer mixer[PLAN_MAX_LAYERS];
    enum blocks_ffn ffn[PLAN_MAX_LAYERS];
    bool is_local[PLAN_MAX_LAYERS];
    bool is_nope[PLAN_MAX_LAYERS]; /* no RoPE */
};

/* A plan being built. */
struct blocks {
    /* The family reads KV heads and feed-forward widths layer by layer itself; set before blocks_read_hparams, which
     * then leaves n_kv_heads 1 and n_ff 0. */
    bool reads_layers;
    bool may_skip_attention; /* a layer may have 0 KV heads; set before blocks_read_hparams */
    bool is_latent; /* attention over latents (blocks_latent.c); set by the builder, before hyper-parameters are read */
    const struct gguf *g;
    const char *arch; /* prefix of the hyper-parameter keys */
    uint32_t n_ctx;   /* longest sequence that will be run */
    bool centers;     /* LayerNorm instead of RMSNorm everywhere; set before blocks_read_hparams */
    /* Rows see those behind them where the file does not say, and windows reach as far behind a row as before it; set
     * before blocks_read_hparams. */
    bool is_encoder;
    struct plan *plan;
    struct blocks_hparams h;
    struct blocks_style style;
    struct err_info *info;
    /* [D] stream, [D] normed, [H*d] queries, [K*d] keys and values where they are not stored at once, [H*d] attention
     * out, [F] of dense layers, of the shared expert, [E] logits of the router, [2k] route, [D] of the S rows */
    /* Latent attention: [q_latent_dim], [H*key_dim] queries before and [H*value_dim] outputs behind the matrices that
     * lead into and out of the latent space; q, k and att are in it */
    plan_buf_id q_latent, q_heads, v_heads;
    plan_buf_id x, norm, q, k, v, att, ff, shared, router, route, last;
    plan_buf_id conv, conv_gate; /* [D] each, of short convolutions */
    plan_buf_id att_gate;        /* [H*d], where attention is gated */
    /* Linear attention: q, k and values before and behind the convolution; [Hv*dv] what the rule gives, and its gate;
     * [Hv] */
    plan_buf_id delta_in, delta_mixed, delta_out, delta_gate, beta, alpha;
    /* State spaces: x, B and C before and behind the convolution; [Hs]; [Hs*p] what comes out, and its gate */
    plan_buf_id ssm_in, ssm_mixed, ssm_dt, ssm_out, ssm_gate;
    plan_weight_id ssm_ones; /* [Hs*p/G], where there are several groups */
    int32_t rope;            /* table of global layers */
    int32_t local_rope;      /* of local ones; PLAN_NONE where there are none */
    int32_t no_rope;         /* of layers without RoPE; PLAN_NONE where there are none */
};

/* Reads "<arch>.<key>" as an integer in [min, max]. An absent key gives `fallback`; pass UINT64_MAX to require it.
 * ERR_BAD_HPARAM names key, range and value. */
MUST_CHECK enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max,
                                   uint64_t fallback, uint32_t *out);
/* The same for a finite float in [min, max]; fallback NAN requires it. */
MUST_CHECK enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback,
                                   float *out);

/* One value a layer, in [min, max]: an array of so many integers, or one for all. Call after block_count is read. */
MUST_CHECK enum err blocks_get_layers(const struct blocks *b, const char *key, uint64_t min, uint64_t max,
                                      uint64_t fallback, uint32_t out[PLAN_MAX_LAYERS]);

/* One boolean a layer; *found false, and out as it was, where there is no such key. Call after block_count is read. */
MUST_CHECK enum err blocks_get_flags(const struct blocks *b, const char *key, bool *found, bool out[PLAN_MAX_LAYERS]);

/* The plan has no attention and no place in the KV cache of layers with other mixers. Call after blocks_read_hparams.
 * ERR_NOMEM. */
MUST_CHECK enum err blocks_skip_attention(struct blocks *b);

/* Reads the common hyper-parameters into b->h and the plan's dimensions, and makes b->style Llama's. n_ctx becomes the
 * longest context that the model can be built for where that is less, or, where it is 0, what model_build says. */
MUST_CHECK enum err blocks_read_hparams(struct blocks *b);
/* The part of it that is about the context: n_ctx and the plan's n_ctx_train and n_ctx_max. */
MUST_CHECK enum err blocks_read_context(struct blocks *b);

/* Which layers are local: <arch>.attention.sliding_window_pattern, an array (true = local) or a period, whose last
 * layer is global (the first with style.first_is_global); `period` when the file does not say. Reads the window first;
 * without one (0) every layer is global. */
MUST_CHECK enum err blocks_read_windows(struct blocks *b, uint32_t window, uint32_t period);

/* Finds the tensor `name` (a printf format with the layer number when layer >= 0) and adds it as [n_out][n_in].
 * Absent: ERR_MISSING_TENSOR, or *id = PLAN_NONE when `optional`. */
MUST_CHECK enum err blocks_bind(struct blocks *b, const char *name, int layer, uint32_t n_out, uint32_t n_in,
                                bool optional, plan_weight_id *id);

/* Rows of the tensor, of whatever type and width; 0 when there is none. */
uint64_t blocks_rows_of(const struct blocks *b, const char *name, int layer);

/* Rows [first, first + n_out) of a tensor of n_all rows, or, of a vector (n_out 1), elements [first, first + n_in) of
 * n_all. Otherwise as blocks_bind. */
struct blocks_part {
    uint32_t first, n_all;
};
MUST_CHECK enum err blocks_bind_part(struct blocks *b, const char *name, int layer, struct blocks_part part,
                                     uint32_t n_out, uint32_t n_in, bool optional, plan_weight_id *id);

/* A tensor [n_in, n_out, n], or [n_in, n] when n_out is 1, as one weight of n * n_out rows, or as a vector of n * n_in
 * elements. Otherwise as blocks_bind. */
MUST_CHECK enum err blocks_bind_stack(struct blocks *b, const char *name, int layer, uint32_t n, uint32_t n_out,
                                      uint32_t n_in, bool optional, plan_weight_id *id);

/* out[n_in] = a vector that is bound, for what becomes of it before the plan is run. ERR_UNSUPPORTED_TYPE when it is not
 * F32. */
MUST_CHECK enum err blocks_read_vector(const struct blocks *b, plan_weight_id id, float *out);

/* Weights and biases of a PLAN_QKV step, each by itself or all in one tensor (attn_qkv). rows_of_qkv: with q rows of
 * queries, kv rows of keys and as many of values, only Q (0), K (1), V (2) from `from` up to `to` (blocks_attention.c). */
MUST_CHECK enum err blocks_bind_rows_of_qkv(struct blocks *b, int layer, uint32_t q, uint32_t kv, int from, int to,
                                            struct plan_step *qkv);
MUST_CHECK enum err blocks_bind_qkv(struct blocks *b, int layer, struct plan_step *qkv);

/* Rows of the decoder's tables of mixers and feed-forward blocks: add_bufs, once, when a layer is such; add, its steps,
 * from b->x to b->x. What a family with such layers calls before blocks_build_decoder is `read`, after
 * blocks_read_hparams: it says which layers are such, and reads their hyper-parameters; ERR_BAD_HPARAM. */

/* Latent attention (blocks_latent.c). read: head widths, in blocks_read_hparams, which b->is_latent makes do so; and
 * then the scale of q.k. */
MUST_CHECK enum err blocks_read_latent(struct blocks *b);
MUST_CHECK enum err blocks_read_latent_scale(struct blocks *b);
MUST_CHECK enum err blocks_add_latent_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_latent(struct blocks *b, int layer);

/* Mixtures of experts (blocks_moe.c). read: of a file with experts (plan->moe.n_experts, which blocks_read_hparams
 * reads, is not 0). */
MUST_CHECK enum err blocks_read_moe(struct blocks *b, const struct blocks_moe *as);
MUST_CHECK enum err blocks_add_expert_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_experts(struct blocks *b, int layer);
/* w = the experts' gate and up matrices: each by itself, or of each expert the rows of its gate and then those of its
 * up in one tensor [D, 2F, E] (ffn_gate_up_exps). Otherwise as blocks_bind_stack. ERR_NOMEM. */
MUST_CHECK enum err blocks_bind_gate_up(struct blocks *b, int layer, plan_weight_id w[2]);

/* Short convolutions (blocks_conv.c): layers whose element of attention.head_count_kv is 0. */
MUST_CHECK enum err blocks_read_conv(struct blocks *b);
MUST_CHECK enum err blocks_add_conv_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_conv(struct blocks *b, int layer);

/* `n` runs of `rows` rows each, of which the first begins at row `first`, the next `step` rows behind it. */
struct blocks_runs {
    uint32_t first, step, n, rows;
};
/* Runs of rows, in the order given, of a tensor of n_all rows: for tensors that hold several weights head by head, in
 * turns. Otherwise as blocks_bind. ERR_NOMEM. */
MUST_CHECK enum err blocks_bind_runs(struct blocks *b, const char *name, int layer, const struct blocks_runs *runs,
                                     int n_runs, uint32_t n_all, uint32_t n_in, plan_weight_id *id);

/* Linear attention (blocks_delta.c): layers that attention.recurrent_layers or full_attention_interval says. Leaves out
 * the last nextn_predict_layers layers. is_tiled: as in struct plan_delta. */
MUST_CHECK enum err blocks_read_delta(struct blocks *b, bool is_tiled);
MUST_CHECK enum err blocks_add_delta_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_delta(struct blocks *b, int layer);
/* Attention whose output a gate lets through: Q without the gate's rows; and the gate, of what attention gave. */
MUST_CHECK enum err blocks_bind_gated_qkv(struct blocks *b, int layer, struct plan_step *qkv);
MUST_CHECK enum err blocks_add_attention_gate(struct blocks *b, int layer);

/* State spaces (blocks_ssm.c): layers whose element of attention.head_count_kv is 0. */
MUST_CHECK enum err blocks_read_ssm(struct blocks *b);
MUST_CHECK enum err blocks_add_ssm_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_ssm(struct blocks *b, int layer);

/* The RoPE tables (blocks_rope.c): of global layers freq_base with the file's scaling, of local layers, where there are
 * any, local_freq_base. ERR_BAD_HPARAM for scaling types that are not known. */
MUST_CHECK enum err blocks_add_ropes(struct blocks *b);
/* One table of b->h.n_rot components. */
MUST_CHECK enum err blocks_add_rope(struct blocks *b, float freq_base, bool is_scaled, int32_t *id);

/* Reads what stands behind the states (blocks_head.c). dense: layers of embeddings, dense_2, dense_3 .., into
 * b->plan->dense; ERR_BAD_TENSOR_SHAPE. rank: the head of a reranker, cls.output and cls before it, into
 * b->plan->ranker, and sets the plan's pooling, of a file that says of no other pooling; ERR_MISSING_TENSOR when the file
 * says rank and has none. */
MUST_CHECK enum err blocks_read_dense(struct blocks *b);
MUST_CHECK enum err blocks_read_rank(struct blocks *b);

/* The whole decoder as b->style says (blocks_decoder.c): embed; L times (norm, QKV + RoPE, attention, output +
 * residual, norm, gated feed-forward, down + residual); gather, norm, logits (tied to the embedding when there is no
 * output.weight). Biases are used where the file has them; Q, K and V may stand in one tensor (attn_qkv), gate and up
 * too (ffn_up, gate first). Call blocks_read_hparams before. */
MUST_CHECK enum err blocks_build_decoder(struct blocks *b);

/* --- parts of layers ---------------------------------------------------------------------------------------------- */

/* att = attention of q (blocks_attention.c). */
MUST_CHECK enum err blocks_attend(struct blocks *b, int layer);

/* The matrix behind attention, of out->src (blocks_attention.c). */
MUST_CHECK enum err blocks_add_attention_output(struct blocks *b, struct plan_step *out, int layer);

/* The RoPE table of a layer (blocks_rope.c). */
int32_t blocks_rope_of(const struct blocks *b, int layer);

/* The norm in front of a block, where the style has one; *src is what the block reads (blocks_steps.c). */
MUST_CHECK enum err blocks_add_pre_norm(struct blocks *b, const char *name, int layer, plan_buf_id *src);

/* A matmul whose result joins b->x, straight away, or through a norm (`post_norm`) behind it, for which b->norm is
 * free (blocks_steps.c). */
MUST_CHECK enum err blocks_add_to_stream(struct blocks *b, struct plan_step *matmul, const char *post_norm, int layer);

/* Single steps, for families that list their own (blocks_steps.c). norm: dst = the norm of src times the vector `name`,
 * or dst += that when `adds`. matmul: src times the matrix; with PLAN_GLU, act() of that. */
MUST_CHECK enum err blocks_add_norm(struct blocks *b, const char *name, int layer, plan_buf_id src, plan_buf_id dst,
                                    bool adds);
MUST_CHECK enum err blocks_add_matmul(struct blocks *b, const char *name, int layer, enum plan_op op, plan_buf_id src,
                                      plan_buf_id dst);

/* Where ranks meet: behind the last step of a block that writes or adds its result to dst, in front of all that reads it.
 */
MUST_CHECK enum err blocks_add_reduce(struct blocks *b, plan_buf_id dst);

/* Binds a vector of the file times a factor, in memory of the plan. ERR_UNSUPPORTED_TYPE when it is not F32. */
MUST_CHECK enum err blocks_bind_scaled(struct blocks *b, const char *name, int layer, uint32_t n, float factor,
                                       plan_weight_id *id);

/* The layer whose keys and values a layer reads where the last n_shared have none: its own, or the last one of its
 * kind (is_local) before them. ERR_BAD_HPARAM when there is none. */
MUST_CHECK enum err blocks_find_shared(const struct blocks *b, uint32_t n_shared, uint32_t layer, int32_t *out);

/* Embeddings of each layer, of n components: ple [L * n] = (table of ids * sqrt(n) + norm(projection of x / sqrt(D))) /
 * sqrt(2); projected [L * n] is used. Then, in a layer, gate [n] = act(gate matrix times src) times its part of ple,
 * and out [D] = the projection of that. [transformers 5, Gemma3nTextModel.project_per_layer_inputs] */
MUST_CHECK enum err blocks_add_per_layer(struct blocks *b, uint32_t n, plan_buf_id ple, plan_buf_id projected);
MUST_CHECK enum err blocks_add_layer_input(struct blocks *b, int layer, plan_buf_id src, plan_buf_id ple,
                                           plan_buf_id gate, plan_buf_id out);

/* Its end: states, and, of what is not bidirectional, gather, norm and logits. embd: for tied embeddings. */
MUST_CHECK enum err blocks_add_end(struct blocks *b, plan_weight_id embd);

#endif
