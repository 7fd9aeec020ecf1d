/* The plan: a model as data. A family builder reads hyper-parameters and lists steps over named buffers of token rows;
 * a back end runs any plan. Shapes are checked once, by plan_check, when the plan is complete.
 *
 * Dimension letters, used in every shape comment of the project:
 *   T token rows of a batch   D model width   H query heads   K KV heads   d head width   F feed-forward width
 *   V vocabulary              L layers        S token rows whose logits are wanted
 *   E token rows whose states are wanted, for embeddings
 * Weights are [rows out][columns in] as in GGUF: y = x W^T. Threads: a plan is read-only once checked. */
#ifndef INFCGI_PLAN_PLAN_H
#define INFCGI_PLAN_PLAN_H

#include "engine/base/err.h"
#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"
#include "engine/tensor/row_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A weight: rows of a source, whatever stores them. */
struct plan_weight {
    const char *name;                /* NUL-terminated tensor name, for messages; lives as long as the plan */
    const struct row_source *source; /* borrowed; the rest is what it says of itself */
    enum dtype type;
    uint64_t row_bytes;
    uint32_t n_out; /* rows */
    uint32_t n_in;  /* columns */
};

/* Index into plan.weights; PLAN_NONE where a step has none. */
typedef int32_t plan_weight_id;
/* Index into plan.bufs. */
typedef int32_t plan_buf_id;
enum { PLAN_NONE = -1 };

/* What a step does. Its operands, weights and shapes are a row of plan_ops.c. */
enum plan_op {
    PLAN_EMBED, /* dst[T][n] = scale * rows of w[0] picked by token id, plus rows of w[1] picked by position (OPTIONAL),
                   plus row 0 of w[2] (OPTIONAL) */
    PLAN_NORM, /* dst = rmsnorm(src) * w[0]. A w[0] of fewer elements is that of each group of so many components, which
                  is normed by itself. With norm.centers, which does not add, LayerNorm [Ba 2016]: of src less its mean,
                  plus bias[0] (OPTIONAL) */
    PLAN_MATMUL, /* dst = scale * (src times w[0] + bias[0]); without adds, scale is 1 */
    PLAN_GLU,    /* dst = act(src times w[0] + bias[0]) * (src times w[1] + bias[1]); without w[1], act() alone */
    PLAN_QKV,    /* w[0..2] = Q, K, V: add biases, norm heads (heads.q_norm, k_norm), RoPE; queries to dst, K and V to
                    the KV cache. w[2] may be w[1]: values are then what keys were before norm and RoPE. Without w[1]
                    and w[2]: of a layer that reads the keys and values of another */
    PLAN_HEADS,  /* the end of PLAN_QKV where Q, K and V are steps of their own: queries src = dst in place, heads.keys
                   and heads.values to the KV cache. With a latent_dim there are no values, and k_norm is of the first
                   latent_dim components of a key. Without keys, as without w[1] in PLAN_QKV */
    /* Head by head of src[T][H*a], to dst[T][H*b]: the first n components through a matrix of the head's own, then
       those behind them as they are: w[0] holds the H matrices [b - (a - n)][n] */
    PLAN_HEAD_MATMUL,
    PLAN_ATTENTION, /* dst[T][H*value width] = attention of src (queries [T][H*d]) over the KV cache of `layer`, q.k
                       times scale; w[0] f32 [1][H], OPTIONAL: a score for each head that takes part in its softmax and
                       has no value (attention sinks) */
    PLAN_ROUTE,     /* dst[T][2k] = weights, then ids, of the k experts that plan.moe picks by the logits src[T][E], to
                       which w[0], f32 [1][E], is added for the picking alone (OPTIONAL); weights are then multiplied by
                       their experts' elements of w[1], f32 [1][E] (OPTIONAL) */
    PLAN_EXPERTS,   /* dst[T][D] = scale * the sum over the experts of experts.route of weight * (w[2] h + bias[2]) with
                       h = act(w[0] src + bias[0]) * (w[1] src + bias[1]); w and bias hold all experts' rows in order */
    PLAN_GATE,      /* dst[T][n] *= sigmoid(src . w[0]), one factor a row */
    PLAN_MULTIPLY,  /* dst[T][n] *= scale, and by multiply.map() of components multiply.first .. first + n - 1 of src
                       (OPTIONAL). When multiply.is_sparse, what map() gets of these is max(0, x - (mean + cutoff *
                       std)), with their mean and their (population) standard deviation: of normally distributed ones
                       those below the cutoff go to 0 [Gemma 3n: transformers 5, Gemma3nTextMLP._gaussian_topk] */
    /* dst[T][n] = conv.map(bias[0] + the sum over j < taps of w[0][n][j] * src[t - taps + 1 + j][n]), added in this
       order, the bias (OPTIONAL) last; rows before position 0 are zeros. The recurrent state is the last taps - 1 rows
       of src. [Poli 2023, "Hyena": short convolutions] */
    PLAN_SHORT_CONV,
    /* dst[T][Hv*dv] = the gated delta rule [Yang 2024, "Gated Delta Networks"] with plan.delta, for each value head,
       row by row: S = exp(w[0] softplus(alpha + bias[0])) S; S += k (sigmoid(beta) (v - S^T k))^T; y = S^T q /
       sqrt(dk); with w[1], f32 [1][dv] (OPTIONAL), the RMSNorm of y times it. src[T][2 Hk*dk + Hv*dv] holds q, k and v,
       of which q and k are brought to length 1 first; delta.beta and delta.alpha [T][Hv]; w[0] (negative) and bias[0]:
       f32 [1][Hv]. The recurrent state is S [Hv][dk][dv]. */
    PLAN_DELTA,
    /* dst[T][Hs*p] = the selective state space of Mamba-2 [Dao & Gu 2024, "Transformers are SSMs"] with plan.ssm, for
       each head h of group g, row by row: dt = softplus(ssm.dt + bias[0]); S = exp(dt w[0]) S + B_g (dt x)^T; y = S^T
       C_g + w[1] x. src[T][Hs*p + 2 G*n] holds x, B and C; ssm.dt [T][Hs]; w[0] (negative), w[1] and bias[0]: f32
       [1][Hs]. The recurrent state is S [Hs][n][p]. */
    PLAN_SSM,
    /* dst[T][n] = scale * (y, plus dst when `adds`) with y = src times w[0], f32 [1][n] (OPTIONAL), which sum.level
       [T][n] (OPTIONAL) brings to its magnitude: y then times sqrt(mean(level^2) / max(mean(src^2), eps)). dst may be
       src, and not be the level. */
    PLAN_SUM,
    /* Alternating updates [Baykal 2023], of a model whose stream is streams.n rows of one width: buffers dst,
       dst + 1 .. = x_0, x_1 .., each predicted from all: x_i += the sum over j of c[i][j] x_j with c = w[0] tanh(src),
       src[T][n], w[0] f32 [1][n^3]: rows c[0][0], c[0][1] .. [transformers 5, Gemma3nTextAltUp] */
    PLAN_PREDICT,
    /* ... and corrected by what a block made of x_first: x_i += (1 + c[i]) (src - x_first), x_first as it was, with
       c = w[0] tanh(streams.routes), src[T][D], routes[T][n], w[0] f32 [1][n^2] */
    PLAN_CORRECT,
    /* dst = scale * the sum over all ranks of src [T][n], where several ranks compute a model together and src is what
       this one has of it (plan_shard.h). Without src, and then it adds: the place where they would meet, behind what
       was added to dst since the last; there is one rank alone, and nothing to do. */
    PLAN_REDUCE,
    PLAN_HIDDEN, /* hidden[E][D] = what PLAN_NORM makes of the rows of src that are wanted; without w[0] those rows as
                    they are */
    PLAN_GATHER, /* dst[S][n] = the rows of src whose logits are wanted; every later step works on S rows */
    PLAN_LOGITS, /* logits[S][V] = softcap(scale * src times w[0]), by logits.softcap */
    /* Where a plan was cut (plan_cut.h): dst[T][n] = components edge.first .. edge.first + n - 1 of the caller's rows
       input[T][plan.input_width] ... */
    PLAN_INPUT,
    PLAN_OUTPUT, /* ... and those of output[T][plan.output_width] = src[T][n] */
    PLAN_OP_COUNT
};

/* What becomes of the elements of a factor, or of a convolution. */
enum plan_map {
    PLAN_MAP_NONE,
    PLAN_MAP_SIGMOID,
    PLAN_MAP_SILU,
    PLAN_MAP_GELU_TANH, /* of factors alone, and the only one of a sparse one */
    PLAN_MAP_COUNT
};

enum plan_act { PLAN_SILU, PLAN_GELU_TANH, PLAN_GELU, PLAN_RELU, PLAN_CLAMPED }; /* as enum kern_act */

/* Rotary position embedding [Su 2021]: angle of pair i at position p is p * inv_freq[i], cos and sin times mscale. With
 * query_beta != 0, query heads are then multiplied by 1 + query_beta * log(1 + floor(p / query_period)): attention that
 * stays sharp far beyond the original context [Llama 4]. */
struct plan_rope {
    uint32_t n_rot;        /* components rotated, even, <= d; 0 = no RoPE (NoPE layers) */
    uint32_t first;        /* component of a head where they begin */
    bool is_neox;          /* pairs (i, i + n_rot/2); else (2i, 2i+1) */
    float mscale;          /* 1 unless the scaling says otherwise (YaRN) */
    const float *inv_freq; /* [n_rot/2], scaling applied; of the plan's arena */
    float query_beta;      /* 0 = none */
    uint32_t query_period; /* >= 1 with query_beta */
};

enum plan_gating {
    PLAN_SOFTMAX,       /* weights are the softmax over all experts */
    PLAN_SIGMOID,       /* each expert's by itself */
    PLAN_SOFTMAX_PICKED /* experts are picked by logits, weights are the softmax over the picked */
};

/* Mixture of experts [Shazeer 2017]: how many there are and how a row's are picked. Ties go to the lower id. */
struct plan_moe {
    uint32_t n_experts; /* E; 0 = no such layers */
    uint32_t n_used;    /* k <= E */
    /* Experts are picked from the best groups of consecutive ones alone [DeepSeek-V2, 2.1.2]; 1 = all are one group. A
     * group is as good as its best expert, or with by_two its two best together. */
    uint32_t n_groups, n_groups_used;
    bool by_two;
    enum plan_gating gating;
    bool norms_weights; /* weights are divided by their sum */
    float weights_scale;
};

/* Heads of PLAN_DELTA. */
struct plan_delta {
    uint32_t n_k_heads, n_v_heads; /* Hk, Hv: a multiple */
    uint32_t key_dim, value_dim;   /* dk, dv; 0 = no such layers */
    bool is_tiled;                 /* value head h reads key head h mod Hk; else h / (Hv / Hk) */
};

/* Heads of PLAN_SSM. */
struct plan_ssm {
    uint32_t n_heads, n_groups;   /* Hs, G: a divisor; consecutive heads are a group and share B and C */
    uint32_t head_dim, state_dim; /* p, n; 0 = no such layers */
};

/* The rows of a batch that a step works on. */
enum plan_rows { PLAN_ALL_ROWS /* T */, PLAN_LOGIT_ROWS /* S */, PLAN_HIDDEN_ROWS /* E */ };

/* Ids are PLAN_NONE where a step has none. What several ops have means the same in all of them; what is an op's own
 * stands in the union, under a name of its own. */
struct plan_step {
    enum plan_op op;
    int32_t layer;   /* that it is a part of, and whose keys and values it reads or writes; PLAN_NONE = of none */
    plan_buf_id src; /* what is read .. */
    plan_buf_id dst; /* .. and written */
    plan_weight_id w[3];
    plan_weight_id bias[3]; /* f32 [1][n_out of w[i]] */
    bool adds;              /* the result joins what dst holds: dst += */
    float scale;            /* a factor of the result; of q.k in attention */
    float eps;              /* of the norms in it; the least mean square that is divided by */
    enum plan_act act;      /* of gates */
    enum plan_rows rows;    /* found by plan_check */
    uint64_t recurrent;     /* first float of the step's state in that of a sequence; found by plan_check */
    union {
        struct {
            bool centers; /* LayerNorm */
        } norm;           /* PLAN_NORM, PLAN_HIDDEN */
        struct {
            plan_buf_id keys, values;      /* PLAN_HEADS alone */
            plan_weight_id q_norm, k_norm; /* f32 [1][d] */
            int32_t rope;                  /* index into plan.ropes */
            bool norms_values;             /* each head of the values too, by a norm without a weight */
        } heads;                           /* PLAN_QKV, PLAN_HEADS */
        struct {
            float softcap;  /* of q.k; 0 = none */
            int32_t window; /* positions a row sees, itself and those before it; 0 = all there are */
            int32_t ahead;  /* positions behind it, of a bidirectional plan with a window */
        } attention;
        struct {
            plan_buf_id route;
        } experts;
        struct {
            enum plan_map map;
            uint32_t first;
            bool is_sparse;
            float cutoff; /* in standard deviations */
        } multiply;
        struct {
            uint32_t taps;     /* 2 .. PLAN_MAX_TAPS */
            enum plan_map map; /* none or SiLU */
        } conv;
        struct {
            plan_buf_id beta, alpha;
        } delta;
        struct {
            plan_buf_id dt;
        } ssm;
        struct {
            plan_buf_id level;
        } sum;
        struct {
            uint32_t n, first;  /* n: 2 .. PLAN_MAX_STREAMS */
            plan_buf_id routes; /* PLAN_CORRECT alone */
        } streams;              /* PLAN_PREDICT, PLAN_CORRECT */
        struct {
            float softcap; /* 0 = none */
        } logits;
        struct {
            uint32_t first;
        } edge; /* PLAN_INPUT, PLAN_OUTPUT */
    };
};

/* How the states of a sequence's rows become its embedding. */
enum plan_pooling {
    PLAN_POOL_NONE, /* the file does not say */
    PLAN_POOL_MEAN,
    PLAN_POOL_CLS,  /* the first row's */
    PLAN_POOL_LAST, /* the last row's */
    PLAN_POOL_RANK, /* a number instead, as struct plan_ranker says */
    PLAN_POOL_EACH, /* each row's own: a vector for each token */
};

/* What stands behind a layer's matrix. */
enum plan_dense_act {
    PLAN_DENSE_NONE,
    PLAN_DENSE_TANH,
    PLAN_DENSE_RELU,
    PLAN_DENSE_GELU,
    PLAN_DENSE_SILU,
    PLAN_DENSE_SIGMOID,
    PLAN_DENSE_ACT_COUNT
};

/* A layer of what a sequence's states were pooled to: y = act(weight x + bias), and with `norm` the LayerNorm of it. Not
 * packed: it is computed outside of the back end. */
struct plan_dense {
    const struct row_source *weight; /* [n_out][n_in] */
    const struct row_source *bias;   /* [1][n_out], OPTIONAL */
    const struct row_source *norm;   /* [1][n_out], OPTIONAL */
    enum plan_dense_act act;
    float eps; /* of the norm */
};

enum { PLAN_MAX_DENSE = 4 };

/* Layers, each as wide as the one before it gives; the first takes D. n 0: there are none. */
struct plan_head {
    struct plan_dense layers[PLAN_MAX_DENSE];
    int n;
};

/* How a pair of texts that stand in one sequence becomes a number: the score that the head makes of the pooled states; of
 * two scores, those of "yes" and "no", the first less the second. */
struct plan_ranker {
    struct plan_head head;    /* n 0: the model ranks nothing */
    enum plan_pooling states; /* PLAN_POOL_MEAN, PLAN_POOL_CLS or PLAN_POOL_LAST */
    uint32_t n_segments;      /* 2: rows of the second text have ids of V / 2 and more; else 1 */
    bool has_one_separator;   /* between the texts, whatever the vocabulary */
};

/* The attention of a layer: its heads, and whose keys and values it reads. */
struct plan_kv {
    uint32_t n_kv_heads; /* K */
    uint32_t head_dim;   /* d */
    uint32_t latent_dim; /* as in struct plan */
    /* The layer in whose part of the cache they are: this one, which stores them, or one before it, of the same heads,
     * which does; PLAN_NONE: there is no attention. */
    int32_t layer;
};

struct plan_buf {
    const char *name;
    uint32_t width; /* floats in a row */
};

enum { PLAN_MAX_BUFS = 24, PLAN_MAX_ROPES = 8 };

/* Largest values a plan may have; hyper-parameters beyond them are refused when the file is read. */
enum {
    PLAN_MAX_LAYERS = 1024,
    PLAN_MAX_WIDTH = 1 << 20,
    PLAN_MAX_HEAD = 576,
    PLAN_MAX_HEADS = 1024,
    PLAN_MAX_VOCAB = 1 << 22,
    PLAN_MAX_EXPERTS = 1024,
    PLAN_MAX_EXPERTS_USED = 64,
    PLAN_MAX_TAPS = 16,
    PLAN_MAX_STREAMS = 6,
    PLAN_MAX_STATE = 1024,
};

struct plan {
    struct arena arena;        /* owns everything the pointers below reach, but not weight data */
    uint32_t n_vocab;          /* V */
    uint32_t n_embd;           /* D */
    uint32_t n_layers;         /* L */
    uint64_t recurrent_floats; /* recurrent state of a sequence, all layers; 0 = none; found by plan_check */
    uint32_t n_heads;          /* H */
    uint32_t n_kv_heads;       /* K */
    uint32_t head_dim;         /* d */
    /* 0, or: the value of a position is the first latent_dim components of its key, and only keys are stored, of one KV
     * head [DeepSeek-V2, 2.1: multi-head latent attention in its absorbed form]. */
    uint32_t latent_dim;
    /* OPTIONAL [L]: each layer's own heads, in place of n_kv_heads, head_dim and latent_dim, which then are those of
     * the widest; of the arena. Read through plan_kv_of. */
    struct plan_kv *kvs;
    int32_t layer; /* of the steps that are added; PLAN_NONE in front of the first and behind the last */
    uint32_t n_ctx_train;
    uint32_t n_ctx_max; /* longest sequence it can be built for: n_ctx_train, or more where RoPE says how */
    /* A row sees all rows of its sequence, which must stand in one batch, from position 0 on. */
    bool is_bidirectional;
    bool has_logits;                    /* a step gives logits; found by plan_check */
    bool has_hidden;                    /* a step gives hidden rows; found by plan_check */
    bool is_shard;                      /* a step sums over ranks; found by plan_check */
    uint32_t input_width, output_width; /* floats of the rows that PLAN_INPUT reads and PLAN_OUTPUT gives; 0 = none */
    uint32_t rank, n_ranks;             /* whose shard it is (plan_shard.h); 0 and 0 of a whole plan */
    enum plan_pooling pooling;
    struct plan_head dense; /* of embeddings, behind the pooling */
    struct plan_ranker ranker;
    struct plan_moe moe;
    struct plan_delta delta;
    struct plan_ssm ssm;
    struct plan_weight *weights;
    int32_t n_weights, cap_weights;
    struct plan_step *steps;
    int32_t n_steps, cap_steps;
    struct plan_buf bufs[PLAN_MAX_BUFS];
    int32_t n_bufs;
    struct plan_rope ropes[PLAN_MAX_ROPES];
    int32_t n_ropes;
};

/* The key head that a value head of PLAN_DELTA reads. */
static inline uint32_t plan_delta_key_head(const struct plan_delta *d, uint32_t v_head)
{
    return d->is_tiled ? v_head % d->n_k_heads : v_head / (d->n_v_heads / d->n_k_heads);
}

/* The attention of a layer, 0 <= layer < L. */
static inline struct plan_kv plan_kv_of(const struct plan *p, int32_t layer)
{
    return p->kvs != NULL
               ? p->kvs[layer]
               : (struct plan_kv){
                     .n_kv_heads = p->n_kv_heads, .head_dim = p->head_dim, .latent_dim = p->latent_dim, .layer = layer};
}

/* Width of a value; of the widest, when layers differ. */
static inline uint32_t plan_kv_value_dim(const struct plan_kv *kv)
{
    return kv->latent_dim != 0 ? kv->latent_dim : kv->head_dim;
}
static inline uint32_t plan_value_dim(const struct plan *p) { return p->latent_dim != 0 ? p->latent_dim : p->head_dim; }

/* A new, empty plan / its end. */
MUST_CHECK enum err plan_new(struct plan **out);
void plan_free(struct plan **p);

/* Append and return the new index in *id (OPTIONAL for steps); strings are copied. ERR_NOMEM, also for a NULL source. */
MUST_CHECK enum err plan_add_weight(struct plan *p, const char *name, const struct row_source *source,
                                    plan_weight_id *id);
/* The weight has other rows from now on; else as plan_add_weight. */
MUST_CHECK enum err plan_set_source(struct plan *p, plan_weight_id id, const struct row_source *source);
MUST_CHECK enum err plan_add_buf(struct plan *p, const char *name, uint32_t width, plan_buf_id *id);
MUST_CHECK enum err plan_add_rope(struct plan *p, const struct plan_rope *r, int32_t *id);
MUST_CHECK enum err plan_add_step(struct plan *p, const struct plan_step *s); /* of p->layer, if it says of none */

/* A step with every other id PLAN_NONE and scale 1, to fill in. */
struct plan_step plan_step_of(enum plan_op op, plan_buf_id src, plan_buf_id dst);

/* Checks every id, width and type of every step against each other. ERR_BAD_TENSOR_SHAPE names the weight. */
MUST_CHECK enum err plan_check(struct plan *p, struct err_info *info);

/* Positions that a row of a checked plan sees at most, itself counted, where all layers with keys and values have windows, none
 * looks ahead and no state goes from row to row; else 0. What lies further back need not be kept. */
int32_t plan_window(const struct plan *p);

/* The longest window of local layers, those with one, where others see everything, the plan is not bidirectional and no state goes from
 * row to row; else 0. */
int32_t plan_local_window(const struct plan *p);

/* Positions that a row of a checked plan sees at most of the keys and values that `layer` stores, itself counted; 0: all, or the plan
 * is bidirectional. */
int32_t plan_layer_window(const struct plan *p, int32_t layer);

const char *plan_op_name(enum plan_op op);

/* The name of pooling i + 1: "mean", "cls", "last", "rank", "none" (PLAN_POOL_EACH); NULL for "the file does not say" and
 * beyond the last. */
const char *plan_pooling_name(int i);

/* The name of an enum plan_dense_act, "none", "tanh" ..; NULL beyond the last. */
const char *plan_dense_act_name(int act);

/* Numbers that a head gives; `n_embd` when it has no layers. */
uint32_t plan_head_width(const struct plan_head *h, uint32_t n_embd);

#endif
