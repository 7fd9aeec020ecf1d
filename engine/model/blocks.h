/* Functions for model families: read hyper-parameters with ranges, bind tensors by name and shape, and build the
 * pre-norm decoder that most families use. Threads: a builder belongs to one thread. */
#ifndef INFCGI_MODEL_BLOCKS_H
#define INFCGI_MODEL_BLOCKS_H

#include "engine/hf/hf.h"
#include "engine/model/model.h"

/* Hyper-parameters of a decoder, checked against each other. */
struct blocks_hparams {
    uint32_t n_embd, n_layers, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_train, n_rot;
    uint32_t n_ff_expert, n_ff_shared; /* widths of a routed expert, and of the shared one (0 = none) */
    uint32_t n_dense_layers;           /* first layers, without experts */
    uint32_t n_expert_latent;          /* width of the rows that routed experts read and write; 0: n_embd */
    /* Latent attention: components of a position's latent, of the queries' latent (0 = none), and of a head's key and
     * value without absorption. latent_dim 0 = full keys and values; else head_dim is latent_dim + n_rot */
    uint32_t latent_dim, q_latent_dim, key_dim, value_dim;
    /* Of the index of latent attention: heads, 0: none; their width; positions that it chooses */
    uint32_t n_index_heads, index_dim, n_chosen;
    float eps;       /* of RMSNorm */
    float freq_base; /* RoPE theta */
};

/* The norm of the steps dt, B and C of selective scans. */
enum blocks_scan_norm {
    BLOCKS_SCAN_NORM,      /* ssm_dt_norm, ssm_b_norm, ssm_c_norm */
    BLOCKS_SCAN_NORM_BARE, /* without weights */
    BLOCKS_NO_SCAN_NORM,
};

enum blocks_head_norm {
    BLOCKS_NO_HEAD_NORM,
    BLOCKS_NORM_EACH, /* each head of Q and K separately, before RoPE: attn_q_norm, attn_k_norm of d */
    BLOCKS_NORM_WIDE, /* all heads of Q together, and of K: attn_q_norm of H*d, attn_k_norm of K*d */
    BLOCKS_NORM_OWN, /* LayerNorm of each head separately, with weights for each: attn_q_norm [H][d], attn_k_norm [K][d] */
    BLOCKS_NORM_AFTER, /* as BLOCKS_NORM_EACH, but after RoPE */
    BLOCKS_NORM_BARE,  /* after RoPE without weights, in layers with RoPE */
};

/* A family's defaults for values that the file omits. */
struct blocks_moe {
    uint32_t n_ff;     /* width of an expert; 0 = required in the file */
    uint32_t n_shared; /* shared experts; their total width is that of n_shared routed ones */
    uint32_t gating;   /* as in expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax over the selected */
    bool norms_weights;
    bool gates_shared; /* the shared expert has a gate, ffn_gate_inp_shexp */
    bool weighs_input; /* as in struct plan_step */
    bool routes_early; /* the router reads the layer's input instead of the experts' */
};

/* The operation that mixes the rows of a sequence in a layer; blocks_decoder.c has its table row. */
enum blocks_mixer {
    BLOCKS_ATTENTION,
    BLOCKS_LATENT,        /* attention over latents */
    BLOCKS_CONV,          /* a short convolution */
    BLOCKS_DELTA,         /* the gated delta rule */
    BLOCKS_KDA,           /* the gated delta rule with a decay per component of a key */
    BLOCKS_SSM,           /* a state space */
    BLOCKS_SCAN,          /* a selective scan */
    BLOCKS_ATTENTION_SSM, /* both, of one norm */
    BLOCKS_NO_MIXER,
    BLOCKS_MIXER_COUNT
};

/* A layer's feed-forward block. */
enum blocks_ffn { BLOCKS_DENSE, BLOCKS_EXPERTS, BLOCKS_NO_FFN, BLOCKS_FFN_COUNT };

/* The factors of PLAN_XIELU in a layer. */
struct blocks_xielu {
    float alpha_p, alpha_n, beta, eps;
};

/* How a family's decoder differs from Llama's; blocks_read_hparams sets it to Llama's. */
struct blocks_style {
    bool is_neox;            /* RoPE on pairs (i, i + n_rot/2); else (2i, 2i+1) */
    bool has_pre_norms;      /* RMSNorm of a block's input: attn_norm, ffn_norm */
    bool has_post_norms;     /* RMSNorm of a block's output before it is added: post_attention_norm, post_ffw_norm */
    bool has_sinks;          /* attn_sinks: one score per head that takes part in its softmax and has no value */
    bool may_have_sinks;     /* only some layers have them */
    bool has_norm_biases;    /* LayerNorm has a bias everywhere */
    bool has_output_bias;    /* of the logits: output.bias */
    bool is_ungated;         /* feed-forward blocks and experts are down(act(up)) */
    bool has_qkv_by_head;    /* attn_qkv has the rows of Q, K and V of each head next to each other */
    bool index_is_neox;      /* RoPE of the index on pairs (i, i + n_rot/2) */
    bool by_distance;        /* scores depend on the distance of positions: struct blocks has slopes or biases */
    bool gate_is_last;       /* of a matrix with the rows of gate and up; else it is first */
    bool gates_attention;    /* sigmoids gate the output of attention: rows of Q are each head's [q | gate] */
    enum plan_map head_gate; /* of attn_gate, whose components are factors of a head's output, or of its components */
    bool yarn_truncates;     /* YaRN blends between whole components */
    bool local_is_scaled;    /* RoPE scaling stretches local layers too */
    bool factors_of_head;    /* rope_freqs has a factor for each pair of a head, also for those that do not rotate */
    enum blocks_head_norm head_norm;
    bool lacks_ssm_norm; /* the gated output of state spaces is not normed */
    enum plan_act act;   /* of the feed-forward gate */
    /* The most that SiLU of a gate can be, and the magnitude of its factor, in routed experts, and in shared ones and
     * dense blocks. 0: no limit. */
    float expert_limit[PLAN_MAX_LAYERS], dense_limit[PLAN_MAX_LAYERS];
    float embed_scale;                /* factor of the embedding */
    float attn_scale;                 /* factor of q.k */
    float value_scale;                /* factor of values, applied to attention's output */
    float residual_scale;             /* factor of a block's output */
    float expert_scale;               /* a further factor of the output of layers with experts, shared ones included */
    float logit_scale;                /* factor of the logits, before the soft-cap */
    float attn_softcap;               /* of q.k; 0 = none */
    float logit_softcap;              /* 0 = none */
    float query_beta;                 /* of plan_rope; 0 = none */
    uint32_t query_period;            /* of plan_rope */
    uint32_t query_lead;              /* of plan_rope */
    bool query_is_nope;               /* query_beta is of layers without RoPE, and of no others */
    uint32_t window;                  /* positions visible in a local layer, including the row's own */
    bool in_chunks;                   /* local layers see chunks of `window` positions (struct plan_step) */
    float local_freq_base;            /* RoPE theta of local layers */
    uint32_t local_n_rot;             /* components of a head that RoPE rotates in local layers; 0: as in others */
    bool first_is_global;             /* the first layer of each period is global; else the last */
    bool head_takes_stream;           /* the prediction head reads, and passes on, rows without the last norm */
    bool first_is_bare;               /* the first layer's attention has no norm, because embed_norm replaces it */
    const struct blocks_xielu *xielu; /* [L], instead of act in ungated blocks; NULL: none */
    const char *embed_norm;           /* of the embedding; NULL: none */
    const char *ffn_norm;    /* name of the norm before the feed-forward block; NULL: it reads what attention reads */
    const char *attn_output; /* name of the matrix after attention, without .weight */
    const char *last_norm;   /* name of the norm after the last layer */
    uint32_t conv_taps;      /* of short convolutions, also before the delta rule and state spaces */
    uint32_t dt_rank;        /* width of the steps of selective scans before their matrix */
    enum blocks_scan_norm scan_norm;
    float scan_eps;        /* of BLOCKS_SCAN_NORM_BARE */
    struct blocks_moe moe; /* blocks_read_moe */
    enum blocks_mixer mixer[PLAN_MAX_LAYERS];
    enum blocks_ffn ffn[PLAN_MAX_LAYERS];
    bool is_local[PLAN_MAX_LAYERS];
    bool is_nope[PLAN_MAX_LAYERS];    /* no RoPE */
    bool is_indexed[PLAN_MAX_LAYERS]; /* has an index; else it reads the positions that the layer before it reads */
};

/* Tables of SafeTensors folders that families share (blocks_hf.c): the key sliding_window; use_sliding_window must
 * be false; experts picked by sigmoids; norms before and after the blocks of Gemma 2 and 3. */
extern const struct hf_key blocks_window_keys[];
extern const struct hf_fixed blocks_no_window[];
extern const struct hf_key blocks_sigmoid_keys[];
extern const struct hf_name blocks_gemma_names[];

/* Rows of a table of names: the tensors of a state space, whose names in the folder begin with `at`, a literal. */
/* clang-format off */
#define BLOCKS_SSM_NAMES(at) \
    {at "in_proj.weight", "blk.{}.ssm_in.weight", HF_SAME}, \
    {at "in_proj.bias", "blk.{}.ssm_in.bias", HF_SAME}, \
    {at "conv1d.weight", "blk.{}.ssm_conv1d.weight", HF_CONV}, \
    {at "conv1d.bias", "blk.{}.ssm_conv1d.bias", HF_SAME}, \
    {at "dt_bias", "blk.{}.ssm_dt.bias", HF_SAME}, \
    {at "A_log", "blk.{}.ssm_a", HF_MINUS_EXP}, \
    {at "D", "blk.{}.ssm_d", HF_SAME}, \
    {at "norm.weight", "blk.{}.ssm_norm.weight", HF_SAME}, \
    {at "out_proj.weight", "blk.{}.ssm_out.weight", HF_SAME}, \
    {at "out_proj.bias", "blk.{}.ssm_out.bias", HF_SAME}
/* clang-format on */

/* Likewise: the tensors of a selective scan, except its norms. */
/* clang-format off */
#define BLOCKS_SCAN_NAMES(at) \
    {at "in_proj.weight", "blk.{}.ssm_in.weight", HF_SAME}, \
    {at "conv1d.weight", "blk.{}.ssm_conv1d.weight", HF_CONV}, \
    {at "conv1d.bias", "blk.{}.ssm_conv1d.bias", HF_SAME}, \
    {at "x_proj.weight", "blk.{}.ssm_x.weight", HF_SAME}, \
    {at "dt_proj.weight", "blk.{}.ssm_dt.weight", HF_SAME}, \
    {at "dt_proj.bias", "blk.{}.ssm_dt.bias", HF_SAME}, \
    {at "A_log", "blk.{}.ssm_a", HF_MINUS_EXP}, \
    {at "D", "blk.{}.ssm_d", HF_SAME}, \
    {at "out_proj.weight", "blk.{}.ssm_out.weight", HF_SAME}
/* clang-format on */

/* Likewise: the tensors of latent attention. */
/* clang-format off */
#define BLOCKS_LATENT_NAMES \
    {"model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.q_a_proj.bias", "blk.{}.attn_q_a.bias", HF_SAME}, \
    {"model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa.bias", "blk.{}.attn_kv_a_mqa.bias", HF_SAME}, \
    {"model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight", HF_UNPACKED}
#define BLOCKS_INDEX_NAMES \
    {"model.layers.{}.self_attn.indexer.wq_b.weight", "blk.{}.indexer.attn_q_b.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.indexer.wk.weight", "blk.{}.indexer.attn_k.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.indexer.k_norm.weight", "blk.{}.indexer.k_norm.weight", HF_SAME}, \
    {"model.layers.{}.self_attn.indexer.k_norm.bias", "blk.{}.indexer.k_norm.bias", HF_SAME}, \
    {"model.layers.{}.self_attn.indexer.weights_proj.weight", "blk.{}.indexer.proj.weight", HF_SAME}
/* clang-format on */

/* Finish folders with state spaces (blocks_hf.c). check_limit rejects limits of their steps dt by time_step_limit;
 * ERR_BAD_CONFIG. shape_ssm gives their vectors GGUF's shapes, [1, heads] and, of the norm, [width / G, G]. */
MUST_CHECK enum err blocks_check_limit(const struct hf *h);
void blocks_shape_ssm(struct hf *h, uint32_t n_groups);

/* Adds sizes of selective scans (blocks_hf.c): channels, and the width of their steps, from the member `rank`, by
 * default or if that is "auto" a sixteenth of hidden_size, rounded up. ERR_BAD_CONFIG. */
MUST_CHECK enum err blocks_add_scan_sizes(struct hf *h, uint32_t channels, const char *rank);

/* Rejects RoPE of local layers, rope_parameters.sliding_attention, that is stretched. ERR_BAD_CONFIG. */
MUST_CHECK enum err blocks_check_local_rope(const struct hf *h);

/* Rejects RoPE of local layers on another part of a head than that of global ones. ERR_BAD_CONFIG. */
MUST_CHECK enum err blocks_check_local_part(const struct hf *h);

/* Rejects a boolean of config.json, `key` (absent: `fallback`), that does not say whether the folder has tensors whose
 * GGUF names end with `end`. ERR_BAD_CONFIG. */
MUST_CHECK enum err blocks_check_has(const struct hf *h, const char *key, bool fallback, const char *end);

/* Folders of Mistral 4 (deepseek2.c), for Mistral 3's, which share an architecture. */
extern const struct hf_family blocks_hf_mistral4;

/* A plan being built. */
struct blocks {
    /* The family itself reads KV heads and feed-forward widths per layer. Set before blocks_read_hparams, which then
     * leaves n_kv_heads 1 and n_ff 0. */
    bool reads_layers;
    /* Layers have their own numbers of heads, plan->kvs: attention.head_count, attention.head_count_kv can be arrays. Set
     * before blocks_read_hparams. h.n_heads, h.n_kv_heads are those of the layer being built. */
    bool heads_by_layer;
    bool may_narrow_values;  /* attention.value_length can be below key_length; set before blocks_read_hparams */
    bool may_skip_attention; /* layers can have 0 KV heads; set before blocks_read_hparams */
    bool may_skip_ffn;       /* layers can have feed-forward width 0; set before blocks_read_hparams */
    bool lacks_rope;         /* attention has no positions; set before blocks_read_hparams */
    /* No layer has attention: plan and h have 0 heads. Set before blocks_read_hparams, with reads_layers. */
    bool lacks_attention;
    const char *eps_key; /* OPTIONAL: of the norms' epsilon, after "<arch>."; set before blocks_read_hparams */
    const char *layers;  /* OPTIONAL: what precedes "blk." in the file's names; set before blocks_read_hparams */
    bool is_latent; /* attention over latents (blocks_latent.c); set by the builder, before hyper-parameters are read */
    const struct gguf *g;
    const struct gguf *head; /* OPTIONAL: has the tensors of the prediction head instead of g */
    /* OPTIONAL: the model that g has a head for, whose embedding it can lack */
    const struct plan *of;
    const struct gguf *of_file;
    uint32_t n_before; /* layers of the plan before those of g: of the model that g has a head for */
    const char *arch;  /* prefix of the hyper-parameter keys */
    uint32_t n_ctx;    /* longest sequence to run */
    bool may_predict;  /* build the prediction head, if the file has one */
    bool predicts;     /* it has one: set by blocks_read_predicting */
    bool centers;      /* LayerNorm instead of RMSNorm everywhere; set before blocks_read_hparams */
    /* By default rows see later rows, and windows extend equally before and after a row. Set before
     * blocks_read_hparams. */
    bool is_encoder;
    struct model_probe *probe; /* OPTIONAL: notes what the file lacks, and zeros take its place (model_nearest.h) */
    struct plan *plan;
    struct blocks_hparams h;
    struct blocks_style style;
    struct err_info *info;
    /* [D] stream, [D] normed, [H*d] queries, [K*d] keys and values if not stored immediately, [H*d] attention output,
     * [F] of dense layers, of the shared expert, [E] router logits, [2k] route, [D] of the S rows */
    /* Latent attention: [q_latent_dim], [H*key_dim] queries before the matrices into the latent space, [H*value_dim]
     * outputs after the matrices out of it; q, k and att are in it */
    plan_buf_id q_latent, q_heads, v_heads;
    /* Its index: [Hi*di], [di], [Hi], [n_chosen] */
    plan_buf_id index_q, index_k, index_weights, chosen;
    plan_buf_id x, norm, q, k, v, att, ff, shared, router, route, last;
    plan_buf_id latent_in, latent_out; /* [n_expert_latent] */
    plan_buf_id conv, conv_gate;       /* [D] each, of short convolutions */
    plan_buf_id att_gate;              /* [H*d], if attention is gated */
    /* Linear attention: q, k and values before and after the convolution; [Hv*dv] output of the rule, and its gate;
     * [Hv] */
    plan_buf_id delta_in, delta_mixed, delta_out, delta_gate, beta, alpha;
    /* Of Kimi Linear: q, k and values before and after their convolutions; [dk] and [dv] before the matrices that make
     * decays (alpha, [Hv*dk]) and gates of them */
    plan_buf_id kda_in[3], kda_mixed[3], kda_decays, kda_gates;
    /* State spaces: x, B and C before and after the convolution; [Hs]; [Hs*p] output, and its gate */
    plan_buf_id ssm_in, ssm_mixed, ssm_dt, ssm_out, ssm_gate;
    plan_buf_id scan_low, scan_b, scan_c; /* of selective scans: [dt_rank], and [n] each */
    plan_weight_id ssm_ones;              /* [Hs*p/G], with several groups */
    plan_weight_id dt_ones, bc_ones;      /* [dt_rank], [n]: with BLOCKS_SCAN_NORM_BARE */
    plan_weight_id head_ones;             /* [d], with BLOCKS_NORM_OWN and BLOCKS_NORM_BARE */
    plan_weight_id embd;                  /* blocks_add_embedding sets it */
    plan_weight_id output;                /* of the logits */
    plan_weight_id by_distance;           /* slopes [H] or biases [H*(2*reach+1)], with style.by_distance */
    uint32_t reach;                       /* of biases; 0: slopes */
    int32_t rope;                         /* table of global layers */
    int32_t index_rope;                   /* of the index of latent attention */
    int32_t local_rope;                   /* of local ones; PLAN_NONE = none */
    int32_t no_rope;                      /* of layers without RoPE; PLAN_NONE = none */
};

/* Returns "<arch>.<key>" in room. */
enum { BLOCKS_KEY_BYTES = 128 };
const char *blocks_key(const struct blocks *b, const char *key, char room[BLOCKS_KEY_BYTES]);

/* Returns ERR_OK if a value fits, else ERR_BAD_HPARAM with "<arch>.<key>: " and the text. */
MUST_CHECK enum err blocks_expect(const struct blocks *b, bool fits, const char *key, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

bool blocks_has_key(const struct blocks *b, const char *key);
MUST_CHECK enum err blocks_get_bool(const struct blocks *b, const char *key, bool fallback, bool *out);

/* Reads "<arch>.<key>" as an integer in [min, max]. An absent key reads as `fallback`; UINT64_MAX makes the key
 * required. ERR_BAD_HPARAM names key, range and value. */
MUST_CHECK enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max,
                                   uint64_t fallback, uint32_t *out);
/* Like blocks_get_u32() for a finite float in [min, max]; fallback NAN makes the key required. */
MUST_CHECK enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback,
                                   float *out);

/* Reads one value per layer in [min, max]: an array of block_count integers, or one for all. Call after block_count is
 * read. */
MUST_CHECK enum err blocks_get_layers(const struct blocks *b, const char *key, uint64_t min, uint64_t max,
                                      uint64_t fallback, uint32_t out[PLAN_MAX_LAYERS]);

/* Returns an array of one element of `type` per layer; *out NULL: there is no such key. Call after block_count is
 * read. */
MUST_CHECK enum err blocks_get_array(const struct blocks *b, const char *key, enum gguf_type type,
                                     const struct gguf_kv **out);

/* Reads one boolean, or 0 or 1, per layer. Without the key sets *found to false and leaves out unchanged. Call after
 * block_count is read. */
MUST_CHECK enum err blocks_get_flags(const struct blocks *b, const char *key, bool *found, bool out[PLAN_MAX_LAYERS]);

/* Marks layers with other mixers, which are `what` in messages, as without attention and without a part of the KV
 * cache. Call after blocks_read_hparams. ERR_BAD_HPARAM if rows see later rows; ERR_NOMEM. */
MUST_CHECK enum err blocks_skip_attention(struct blocks *b, const char *what);

/* Gives layers whose element of attention.head_count_kv is 0 the mixer `other`, the others attention, over latents if
 * b->is_latent, and calls blocks_skip_attention if there are some; otherwise plan->kvs stays NULL. */
MUST_CHECK enum err blocks_read_mixers(struct blocks *b, enum blocks_mixer other, const char *what);

/* Reads the common hyper-parameters into b->h and the plan's dimensions, and makes b->style Llama's. n_ctx is limited
 * to the longest context that the model supports; 0 is replaced as model_build describes. */
MUST_CHECK enum err blocks_read_hparams(struct blocks *b);
/* Reads only the context: n_ctx and the plan's n_ctx_train and n_ctx_max. Part of blocks_read_hparams. */
MUST_CHECK enum err blocks_read_context(struct blocks *b);

/* Reads nextn_predict_layers, the number of last layers, which predict further tokens: h.n_layers is then without them.
 * If b->may_predict, the first of them becomes the plan's prediction head. Call after blocks_read_hparams and after layers
 * have their mixers, before the layers' feed-forward blocks are read. */
MUST_CHECK enum err blocks_read_predicting(struct blocks *b);

/* Leaves out those layers: no prediction head is built. Otherwise like blocks_read_predicting. ERR_BAD_HPARAM if the file
 * is a separate head. */
MUST_CHECK enum err blocks_skip_predicting(struct blocks *b);

/* Reads the window, and which layers are local: <arch>.attention.sliding_window_pattern is an array (true = local) or a
 * period. The last layer of a period is global (the first with style.first_is_global). `period` is the default. Without
 * a window (0) every layer is global. */
MUST_CHECK enum err blocks_read_windows(struct blocks *b, uint32_t window, uint32_t period);

/* Reads which layers have no RoPE: <arch>.attention.rope_pattern is an array (true = RoPE); without it, the last of each
 * `period` layers (the first with style.first_is_global) has none; 0: every layer has RoPE. Call after
 * blocks_read_hparams. */
MUST_CHECK enum err blocks_read_nope(struct blocks *b, uint32_t period);

/* Names below can contain %d, which stands for the number of the layer being built (plan.layer - n_before). Those that
 * begin with "blk." have b->layers before it in the file. */

/* Finds a tensor [n_rows][n_in]; *out NULL: none. ERR_BAD_TENSOR_SHAPE. */
MUST_CHECK enum err blocks_find(const struct blocks *b, const char *name, uint64_t n_in, uint64_t n_rows,
                                const struct row_source **out);

/* Returns the rows of the tensor, regardless of type and width; 0 if it does not exist. */
uint64_t blocks_rows_of(const struct blocks *b, const char *name);

/* Adds the tensor as a weight [n_out][n_in], or as a vector [n_in] if n_out is 1. Absent: ERR_MISSING_TENSOR, or *id =
 * PLAN_NONE if optional. */
MUST_CHECK enum err blocks_bind(struct blocks *b, const char *name, uint32_t n_out, uint32_t n_in, plan_weight_id *id);
MUST_CHECK enum err blocks_bind_optional(struct blocks *b, const char *name, uint32_t n_out, uint32_t n_in,
                                         plan_weight_id *id);

/* Rows, or elements of a vector, [first, first + n) of n_all. */
struct blocks_part {
    uint32_t first, n, n_all;
};
/* Bind some rows of a matrix, as blocks_bind, or some elements of a vector, as blocks_bind_optional. */
MUST_CHECK enum err blocks_bind_rows(struct blocks *b, const char *name, struct blocks_part part, uint32_t n_in,
                                     plan_weight_id *id);
MUST_CHECK enum err blocks_bind_elements(struct blocks *b, const char *name, struct blocks_part part,
                                         plan_weight_id *id);
/* Binds w[i] of a step to rows of "<stem>.weight", for the input s->src, and bias[i] to elements of "<stem>.bias". */
MUST_CHECK enum err blocks_bind_part(struct blocks *b, const char *stem, struct blocks_part part, struct plan_step *s,
                                     int i);

/* Binds inputs [first, first + n_in) of a matrix of n_all inputs. ERR_BAD_TENSOR_SHAPE if a block of the type crosses an
 * edge; otherwise as blocks_bind. */
MUST_CHECK enum err blocks_bind_inputs(struct blocks *b, const char *name, uint32_t n_out, uint32_t first,
                                       uint32_t n_in, uint32_t n_all, plan_weight_id *id);

/* Binds a tensor [n_in, n_out, n], also [n_in, n] if n_out is 1, as one weight of n * n_out rows, or as a vector of n *
 * n_in elements. Otherwise as blocks_bind. */
MUST_CHECK enum err blocks_bind_stack(struct blocks *b, const char *name, uint32_t n, uint32_t n_out, uint32_t n_in,
                                      plan_weight_id *id);

/* Copies a bound vector to out[n_in], for computations at build time. ERR_UNSUPPORTED_TYPE if it is not F32. */
MUST_CHECK enum err blocks_read_vector(const struct blocks *b, plan_weight_id id, float *out);

/* Returns ERR_UNSUPPORTED_TYPE for a weight that must be F32. */
enum err blocks_not_f32(const struct blocks *b, const char *name, enum dtype found);

/* Binds Q (0), K (1), V (2) of a PLAN_QKV step from `from` to `to`, with biases, separate or in one tensor, attn_qkv
 * (blocks_attention.c). */
MUST_CHECK enum err blocks_bind_qkv(struct blocks *b, int from, int to, struct plan_step *qkv);

/* Binds the weights of BLOCKS_NORM_AFTER (blocks_attention.c): k, of the norm of keys before RoPE, and q, of the norm of
 * queries after it. ERR_NOMEM. */
MUST_CHECK enum err blocks_bind_norms_after(struct blocks *b, plan_weight_id *q, plan_weight_id *k);

/* Functions of the decoder's tables of mixers and feed-forward blocks. add_*_bufs: called once if a layer has the kind.
 * add_*: adds a layer's steps, from b->x to b->x. A family with such layers calls read_* after blocks_read_hparams and
 * before blocks_build_decoder: it finds the layers of the kind and reads their hyper-parameters; ERR_BAD_HPARAM. */

/* Latent attention (blocks_latent.c). blocks_read_latent reads head widths; blocks_read_hparams calls it if
 * b->is_latent. blocks_read_latent_scale then reads the scale of q.k. */
MUST_CHECK enum err blocks_read_latent(struct blocks *b);
MUST_CHECK enum err blocks_read_latent_scale(struct blocks *b);
MUST_CHECK enum err blocks_add_latent_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_latent(struct blocks *b);
/* The index of latent attention (blocks_index.c): reads its sizes, after the layers' number is final, and makes every
 * layer one with an index; add_steps: of the layer, from normed rows and b->q_latent, which is normed, to b->chosen. */
MUST_CHECK enum err blocks_read_index(struct blocks *b);
MUST_CHECK enum err blocks_add_index_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_index(struct blocks *b, plan_buf_id src);

/* Mixtures of experts (blocks_moe.c). read: for files with experts (plan->moe.n_experts, read by blocks_read_hparams,
 * is not 0). */
MUST_CHECK enum err blocks_read_moe(struct blocks *b, const struct blocks_moe *as);
/* Makes layers without a router dense; if all are, the plan has no experts. Call after blocks_read_moe. */
void blocks_find_dense(struct blocks *b);
MUST_CHECK enum err blocks_add_expert_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_router(struct blocks *b, plan_buf_id src);
MUST_CHECK enum err blocks_add_experts(struct blocks *b);
/* Binds the experts' gate and up matrices to w: from separate tensors, or from one tensor [D, 2F, E] with each expert's
 * gate rows and then its up rows (ffn_gate_up_exps). Otherwise as blocks_bind_stack. ERR_NOMEM. */
MUST_CHECK enum err blocks_bind_gate_up(struct blocks *b, plan_weight_id w[2]);

/* Short convolutions (blocks_conv.c): layers whose element of attention.head_count_kv is 0. */
MUST_CHECK enum err blocks_read_conv(struct blocks *b);
MUST_CHECK enum err blocks_add_conv_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_conv(struct blocks *b);

/* Linear attention (blocks_delta.c): layers selected by attention.recurrent_layers or full_attention_interval. Calls
 * blocks_read_predicting. is_tiled: as in struct plan_delta. */
MUST_CHECK enum err blocks_read_delta(struct blocks *b, bool is_tiled);
MUST_CHECK enum err blocks_add_delta_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_delta(struct blocks *b);
/* Gated attention: bind Q without the gate's rows; add the gate of attention's output. */
MUST_CHECK enum err blocks_bind_gated_qkv(struct blocks *b, struct plan_step *qkv);
MUST_CHECK enum err blocks_add_attention_gate(struct blocks *b);

/* Kimi Delta Attention (blocks_kda.c): layers whose element of attention.head_count_kv is 0. */
MUST_CHECK enum err blocks_read_kda(struct blocks *b);
MUST_CHECK enum err blocks_add_kda_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_kda(struct blocks *b);

/* State spaces (blocks_ssm.c): layers whose element of attention.head_count_kv is 0; parallel: all layers, next to
 * attention. */
MUST_CHECK enum err blocks_read_ssm(struct blocks *b);
MUST_CHECK enum err blocks_read_parallel_ssm(struct blocks *b);
MUST_CHECK enum err blocks_add_ssm_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_ssm(struct blocks *b);
/* Selective scans (blocks_ssm.c): layers whose element of attention.head_count_kv is 0, or all if b->lacks_attention. */
MUST_CHECK enum err blocks_read_scan(struct blocks *b);
MUST_CHECK enum err blocks_add_scan_bufs(struct blocks *b);
MUST_CHECK enum err blocks_add_scan(struct blocks *b);

/* Reads base and width of RoPE in local layers, by default those of global ones (blocks_rope.c). */
MUST_CHECK enum err blocks_read_local_rope(struct blocks *b);

/* Adds the RoPE tables (blocks_rope.c): for global layers freq_base with the file's scaling, for local layers, if any,
 * local_freq_base. ERR_BAD_HPARAM for unknown scaling types. */
MUST_CHECK enum err blocks_add_ropes(struct blocks *b);
/* Adds one table of b->h.n_rot components. */
MUST_CHECK enum err blocks_add_rope(struct blocks *b, float freq_base, bool is_scaled, int32_t *id);

/* Read the layers after the states (blocks_head.c). dense: reads layers of embeddings, dense_2, dense_3 .., to
 * b->plan->dense; ERR_BAD_TENSOR_SHAPE. rank: reads the head of a reranker, cls and then cls.output, to
 * b->plan->ranker, and sets the plan's pooling unless the file names another one. ERR_MISSING_TENSOR if the file names
 * rank pooling and has no head. */
MUST_CHECK enum err blocks_read_dense(struct blocks *b);
MUST_CHECK enum err blocks_read_rank(struct blocks *b);

/* Builds the whole decoder as b->style describes (blocks_decoder.c): embed; L times (norm, QKV + RoPE, attention,
 * output + residual, norm, gated feed-forward, down + residual); gather, norm, logits (tied to the embedding without
 * output.weight). Uses biases if the file has them. Q, K and V can be in one tensor (attn_qkv), gate and up too
 * (ffn_up, gate first). Then, if b->predicts, the prediction head [DeepSeek-AI 2024, "DeepSeek-V3 Technical Report",
 * 2.2]: a matrix of the embedding and the hidden row before it, both normed; one more layer; norm, logits. Call
 * blocks_read_hparams before. */
MUST_CHECK enum err blocks_build_decoder(struct blocks *b);

/* --- parts of layers ---------------------------------------------------------------------------------------------- */

/* Adds QKV, whose weights are bound, with the norms of heads (blocks_decoder.c). */
MUST_CHECK enum err blocks_add_heads(struct blocks *b, struct plan_step *qkv);

/* Adds ff = the inner part of a dense feed-forward block: up, gated or not (blocks_decoder.c). */
MUST_CHECK enum err blocks_add_up(struct blocks *b, plan_buf_id src);

/* Adds att = attention of q (blocks_attention.c). */
MUST_CHECK enum err blocks_attend(struct blocks *b);

/* Multiplies att by style.head_gate of attn_gate, [H][D] or [H*d][D], of b->norm (blocks_attention.c). */
MUST_CHECK enum err blocks_add_head_gate(struct blocks *b);

/* Returns the RoPE table of the layer (blocks_rope.c). */
int32_t blocks_rope_of(const struct blocks *b);

/* Adds the norm before a block, if the style has one; *src is the block's input (blocks_steps.c). name NULL: the input
 * is that of the block before it. */
MUST_CHECK enum err blocks_add_pre_norm(struct blocks *b, const char *name, plan_buf_id *src);

/* Adds a matmul of src by "<stem>.weight" and "<stem>.bias", if any, whose result is added to b->x, directly or through
 * the norm `post_norm` of a style with such norms, which uses b->norm (blocks_steps.c). */
MUST_CHECK enum err blocks_add_output(struct blocks *b, const char *stem, plan_buf_id src, const char *post_norm);

/* ... times a further factor, if no norm follows (blocks_steps.c). */
MUST_CHECK enum err blocks_add_scaled_output(struct blocks *b, const char *stem, plan_buf_id src, const char *post_norm,
                                             float scale);

/* Adds the embedding of tokens in b->x and sets b->embd. */
MUST_CHECK enum err blocks_add_embedding(struct blocks *b);

/* Binds the bias of the norm with that weight, if the style has such biases; else *id = PLAN_NONE (blocks_steps.c). */
MUST_CHECK enum err blocks_bind_norm_bias(struct blocks *b, const char *name, plan_weight_id *id);

/* Add single steps, for families that list their own (blocks_steps.c). norm: dst = the norm of src times the vector
 * `name`, and its bias; with `adds`, dst += that. matmul: src times the matrix. linear: plus its bias, if any; named as for
 * blocks_add_output. glu: act() of src times `gate`, times src times `up` (OPTIONAL). */
MUST_CHECK enum err blocks_add_norm(struct blocks *b, const char *name, plan_buf_id src, plan_buf_id dst, bool adds);
MUST_CHECK enum err blocks_add_matmul(struct blocks *b, const char *name, plan_buf_id src, plan_buf_id dst);
MUST_CHECK enum err blocks_add_linear(struct blocks *b, const char *stem, plan_buf_id src, plan_buf_id dst);
MUST_CHECK enum err blocks_add_glu(struct blocks *b, const char *gate, const char *up, plan_buf_id src,
                                   plan_buf_id dst);

/* Limits SiLU of a step's gates, and the magnitude of their factors; 0: no limit (blocks_moe.c). */
void blocks_limit(struct plan_step *s, float limit);

/* Returns the buffer of feed-forward blocks with this name and width, which it adds for the first layer that needs it.
 * ERR_BAD_HPARAM if layers have more than BLOCKS_MAX_FF_WIDTHS widths. */
enum { BLOCKS_MAX_FF_WIDTHS = 4 };
MUST_CHECK enum err blocks_get_ff_buf(struct blocks *b, const char *name, uint32_t width, plan_buf_id *id);

/* Returns the buffer of attention with this name and width, likewise. */
MUST_CHECK enum err blocks_get_head_buf(struct blocks *b, const char *name, uint32_t width, plan_buf_id *id);

/* Adds the sum over ranks: after the last step of a block that writes or adds its result to dst, before any step that
 * reads dst. */
MUST_CHECK enum err blocks_add_reduce(struct blocks *b, plan_buf_id dst);

/* Binds a vector of the file times a factor, in memory of the plan. ERR_UNSUPPORTED_TYPE if it is not F32. */
MUST_CHECK enum err blocks_bind_scaled(struct blocks *b, const char *name, uint32_t n, float factor,
                                       plan_weight_id *id);

/* Adds a vector of n ones, in memory of the plan, for norms without weights. */
MUST_CHECK enum err blocks_add_ones(struct blocks *b, const char *name, uint32_t n, plan_weight_id *id);

/* Finds the layer whose keys and values a layer reads if the last n_shared have none: itself, or the last layer of its
 * kind (is_local) before those. ERR_BAD_HPARAM if none exists. */
MUST_CHECK enum err blocks_find_shared(const struct blocks *b, uint32_t n_shared, uint32_t layer, int32_t *out);

/* Add embeddings per layer, with n components: ple [L * n] = (table of ids * sqrt(n) + norm(projection of x / sqrt(D)))
 * / sqrt(2), with projected [L * n] as memory. Then, in a layer, gate [n] = act(gate matrix times src) times its part
 * of ple, and out [D] = the projection of gate. [transformers 5, Gemma3nTextModel.project_per_layer_inputs] */
MUST_CHECK enum err blocks_add_per_layer(struct blocks *b, uint32_t n, plan_buf_id ple, plan_buf_id projected);
MUST_CHECK enum err blocks_add_layer_input(struct blocks *b, plan_buf_id src, plan_buf_id ple, plan_buf_id gate,
                                           plan_buf_id out);

/* Adds the decoder's end: states, and, unless it is bidirectional, gather, norm and logits, by b->embd if embeddings
 * are tied. */
MUST_CHECK enum err blocks_add_end(struct blocks *b);

#endif
