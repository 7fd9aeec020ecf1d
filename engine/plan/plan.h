/* The plan: a model as data. A family builder reads hyper-parameters and lists steps over named buffers of token rows;
 * a back end runs any plan. plan_check checks all shapes once, when the plan is complete.
 *
 * Dimension letters in shape comments of the whole project:
 *
 *   T token rows of a batch   D model width   H query heads   K KV heads   d head width   F feed-forward width
 *   V vocabulary              L layers        S token rows whose logits are needed
 *   E token rows whose states are needed, for embeddings
 *
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

/* A weight: rows of a source, however they are stored. */
struct plan_weight {
    const char *name;                /* NUL-terminated tensor name, for messages; lives as long as the plan */
    const struct row_source *source; /* borrowed; the fields below are the source's */
    enum dtype type;
    uint64_t row_bytes;
    uint32_t n_out; /* rows */
    uint32_t n_in;  /* columns */
};

/* Index into plan.weights; PLAN_NONE: none. */
typedef int32_t plan_weight_id;
/* Index into plan.bufs. */
typedef int32_t plan_buf_id;
enum { PLAN_NONE = -1 };

/* What a step does. A row of plan_ops.c has its operands, weights and shapes. */
enum plan_op {
    /* dst[T][n] = scale * rows of w[0] picked by token id, plus rows of w[1] picked by position (OPTIONAL), plus row 0
     * of w[2] (OPTIONAL) */
    PLAN_EMBED,
    /* dst = rmsnorm(src) * w[0]. If w[0] has fewer elements, it belongs to each group of that many components, and
     * groups are normed separately. With norm.centers, which does not add, LayerNorm [Ba 2016]: of src less its mean,
     * plus bias[0] (OPTIONAL, without groups) */
    PLAN_NORM,
    PLAN_MATMUL, /* dst = scale * (src times w[0] + bias[0]); without adds, scale is 1 */
    PLAN_GLU,    /* dst = act(src times w[0] + bias[0]) * (src times w[1] + bias[1]); without w[1], only act() */
    /* w[0..2] = Q, K, V: add biases, norm heads (heads.q_norm, k_norm), RoPE; queries to dst, K and V to the KV cache.
     * w[2] can be w[1]: values are then the keys before norm and RoPE. Without w[1] and w[2]: the layer reads the keys
     * and values of another one */
    PLAN_QKV,
    /* The end of PLAN_QKV if Q, K and V are separate steps: queries src = dst in place, heads.keys and heads.values to
     * the KV cache. With a latent_dim there are no values, and k_norm applies to the first latent_dim components of a
     * key. Without keys: as PLAN_QKV without w[1] */
    PLAN_HEADS,
    /* RoPE of index heads, which choose positions: of the queries src = dst [T][Hi*di] in place, and of heads.keys [T][di],
     * which go to the KV cache of `layer`, whose index_dim is di [DeepSeek-AI 2025, "DeepSeek-V3.2"] */
    PLAN_INDEX,
    /* dst[T][k] = the k positions that a row's attention reads, ascending: those with the largest scores of all that the
     * row sees, and the lower ones of equal scores; NaNs are largest. The score of position t is the sum over the index
     * heads h of choose.weights[T][Hi]_h * max(0, q_h . key_t), of the queries src[T][Hi*di] and the index keys of
     * `layer`. A row that sees at most k positions has them all, and then -1. */
    PLAN_CHOOSE,
    /* For each head of src[T][H*a], to dst[T][H*b]: the first n components through a matrix of this head, followed by
     * the remaining components unchanged. w[0] holds the H matrices [b - (a - n)][n] */
    PLAN_HEAD_MATMUL,
    /* dst[T][H*value width] = attention of src (queries [T][H*d]) over the KV cache of `layer`, q.k times scale. w[0], f32
     * [1][H] (OPTIONAL): sinks, scores without values. w[1], f32 [1][H*(2R+1)] (OPTIONAL, without w[0]), changes scores by
     * the distance of a position from the row's. If R = attention.reach is 0, it holds slopes of ALiBi [Press 2021].
     * Otherwise it holds what a head adds for distances -R .. R; farther ones count as R [Raffel 2019, "Exploring the Limits
     * of Transfer Learning", 2.1]. With attention.chosen [T][k] (OPTIONAL), of latents, a row sees only these positions, the
     * first MIN(k, position + 1) of its list. */
    PLAN_ATTENTION,
    /* dst[T][2k] = weights, then ids, of the k experts that plan.moe picks by the logits src[T][E]. w[0], f32 [1][E]
     * (OPTIONAL), is added only for picking; weights are then multiplied by their experts' elements of w[1], f32 [1][E]
     * (OPTIONAL) */
    PLAN_ROUTE,
    /* dst[T][D] = scale * the sum over the experts of experts.route of weight * (w[2] h + bias[2]) with h = act(w[0]
     * src + bias[0]) * (w[1] src + bias[1]), without w[1] only act(); w and bias hold all experts' rows in order */
    PLAN_EXPERTS,
    PLAN_GATE, /* dst[T][n] *= sigmoid(src . w[0]), one factor per row */
    /* dst[T][n] *= scale, and by multiply.map() of components multiply.first .. first + n / repeats - 1 of src
     * (OPTIONAL), each of which multiplies `repeats` consecutive components. If multiply.is_sparse, map() gets max(0, x -
     * (mean + cutoff * std)) of these, with their mean and their (population) standard deviation: of normally distributed
     * components those below the cutoff become 0 [Gemma 3n: transformers 5, Gemma3nTextMLP._gaussian_topk] */
    PLAN_MULTIPLY,
    /* dst[T][n] = xIELU of itself [Huang & Schlag 2024, "Deriving Activation Functions Using Integration"]: alpha_p x^2 +
     * beta x for x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x, with the factors of step.xielu */
    PLAN_XIELU,
    /* dst[T][n] = conv.map(bias[0] + the sum over j < taps of w[0][n][j] * src[t - taps + 1 + j][n]), added in this
     * order, the bias (OPTIONAL) last; rows before position 0 are zeros. The recurrent state is the last taps - 1 rows
     * of src. [Poli 2023, "Hyena": short convolutions] */
    PLAN_SHORT_CONV,
    /* dst[T][Hv*dv] = the gated delta rule [Yang 2024, "Gated Delta Networks"] with plan.delta, for each value head,
     * row by row: S = exp(w[0] softplus(alpha + bias[0])) S; S += k (sigmoid(beta) (v - S^T k))^T; y = S^T q /
     * sqrt(dk); with w[1], f32 [1][dv] (OPTIONAL), the RMSNorm of y times it. src[T][2 Hk*dk + Hv*dv] holds q, k and v;
     * q and k are normalised to length 1 first. delta.beta and delta.alpha: [T][Hv]; w[0] (negative) and bias[0]: f32
     * [1][Hv]. The recurrent state is S [Hv][dk][dv]. With delta.keys and delta.values (both OPTIONAL), src[T][Hk*dk]
     * holds only q, and they hold k and v. With plan.delta.decays_keys, delta.alpha [T][Hv*dk] and bias[0] have a
     * component for each row of S, which decays by its own factor [Kimi Team 2025, "Kimi Linear"]. Both need Hk = Hv. */
    PLAN_DELTA,
    /* dst[T][Hs*p] = the selective state space of Mamba-2 [Dao & Gu 2024, "Transformers are SSMs"] with plan.ssm, for
     * each head h of group g, row by row: dt = softplus(ssm.dt + bias[0]); S = exp(dt w[0]) S + B_g (dt x)^T; y = S^T
     * C_g + w[1] x. src[T][Hs*p + 2 G*n] holds x, B and C; ssm.dt [T][Hs]; w[0] (negative), w[1] and bias[0]: f32
     * [1][Hs]. The recurrent state is S [Hs][n][p]. */
    PLAN_SSM,
    /* dst[T][Hs*p] = the selective scan of Mamba-1 [Gu & Dao 2023, "Mamba"] with plan.ssm, whose G is 1, for each channel c,
     * row by row: dt = softplus(scan.dt_c + bias[0]_c); S_j = exp(dt A_j) S_j + B_j dt x_c; y = the sum over j < n of C_j
     * S_j, plus w[1]_c x_c. src[T][Hs*p] is x; scan.dt [T][Hs*p]; scan.b and scan.c [T][n] are B and C; w[0] is A
     * (negative), f32 [1][Hs*n*p], in the order of the state; w[1] and bias[0]: f32 [1][Hs*p]. Heads only divide the
     * channels. The recurrent state is S [Hs][n][p]. */
    PLAN_SCAN,
    /* dst[T][n] = scale * (y, plus dst if `adds`) with y = src times w[0], f32 [1][n] (OPTIONAL). sum.level [T][n]
     * (OPTIONAL) sets the magnitude of y: y then times sqrt(mean(level^2) / max(mean(src^2), eps)). dst can be src, but
     * not the level. */
    PLAN_SUM,
    /* Alternating updates [Baykal 2023], for a model whose stream is streams.n rows of one width: buffers dst, dst + 1
     * .. = x_0, x_1 .., each predicted from all: x_i += the sum over j of c[i][j] x_j with c = w[0] tanh(src),
     * src[T][n], w[0] f32 [1][n^3]: rows c[0][0], c[0][1] .. [transformers 5, Gemma3nTextAltUp] */
    PLAN_PREDICT,
    /* ... and corrected by the output of a block for x_first: x_i += (1 + c[i]) (src - x_first), with the old x_first
     * and c = w[0] tanh(streams.routes), src[T][D], routes[T][n], w[0] f32 [1][n^2] */
    PLAN_CORRECT,
    /* dst = scale * the sum over all ranks of src [T][n], if several ranks compute a model together and src is this
     * rank's part (plan_shard.h). Without src, and then it adds: marks where ranks would meet, after the additions to
     * dst since the last one; with a single rank there is nothing to do. */
    PLAN_REDUCE,
    PLAN_HIDDEN, /* hidden[E][D] = PLAN_NORM of the requested rows of src; without w[0] those rows unchanged */
    PLAN_GATHER, /* dst[S][n] = the rows of src whose logits are needed; every later step works on S rows */
    /* logits[S][V] = softcap(scale * (src times w[0] + bias[0])), by logits.softcap; with logits.is_reduced only those
     * of plan.guess_ids, the first n_guess_ids of each V */
    PLAN_LOGITS,
    /* At the edge of a cut plan (plan_cut.h) or of a prediction head: dst[T][n] = components edge.first .. edge.first +
     * n - 1 of the caller's rows input[T][plan.input_width] ... */
    PLAN_INPUT,
    PLAN_OUTPUT, /* ... and those of output[T][plan.output_width] = src[T][n] */
    PLAN_OP_COUNT
};

/* The function applied to the elements of a factor or of a convolution. */
enum plan_map {
    PLAN_MAP_NONE,
    PLAN_MAP_SIGMOID,
    PLAN_MAP_SILU,
    PLAN_MAP_GELU_TANH, /* of factors only, and the only one of a sparse factor */
    PLAN_MAP_SOFTPLUS,  /* of factors only: log(1 + exp(x)) */
    PLAN_MAP_COUNT
};

/* As enum kern_act. */
enum plan_act { PLAN_SILU, PLAN_GELU_TANH, PLAN_GELU, PLAN_RELU, PLAN_CLAMPED, PLAN_RELU_SQUARED };

/* Rotary position embedding [Su 2021]: angle of pair i at position p is p * inv_freq[i], cos and sin times mscale. With
 * query_beta != 0, query heads are then multiplied by 1 + query_beta * log(1 + floor((p + query_lead) / query_period)):
 * attention that stays sharp far beyond the original context [Llama 4]. */
struct plan_rope {
    uint32_t n_rot;        /* components rotated, even, <= d; 0: no RoPE (NoPE layers) */
    uint32_t first;        /* the first rotated component of a head */
    bool is_neox;          /* pairs (i, i + n_rot/2); else (2i, 2i+1) */
    float mscale;          /* 1 unless the scaling sets it (YaRN) */
    const float *inv_freq; /* [n_rot/2], scaling applied; in the plan's arena */
    float query_beta;      /* 0: none */
    uint32_t query_period; /* >= 1 with query_beta */
    int32_t shift;         /* added to the positions of rows, for angles alone */
    uint32_t query_lead;   /* 0 or 1 */
};

enum plan_gating {
    PLAN_SOFTMAX,       /* weights are the softmax over all experts */
    PLAN_SIGMOID,       /* each expert's weight is separate */
    PLAN_SOFTMAX_PICKED /* experts are picked by logits, weights are the softmax over the picked */
};

/* Mixture of experts [Shazeer 2017]: their number and how a row's experts are picked. Ties go to the lower id. */
struct plan_moe {
    uint32_t n_experts; /* E; 0: no such layers */
    uint32_t n_used;    /* k <= E */
    /* Only experts of the best groups of consecutive ones are picked [DeepSeek-V2, 2.1.2]; 1: all are one group. A
     * group ranks by its best expert, or with by_two by the sum of its two best. */
    uint32_t n_groups, n_groups_used;
    bool by_two;
    enum plan_gating gating;
    bool norms_weights; /* divide weights by their sum */
    float weights_scale;
};

/* Heads of PLAN_DELTA. */
struct plan_delta {
    uint32_t n_k_heads, n_v_heads; /* Hk, Hv: Hv is a multiple of Hk */
    uint32_t key_dim, value_dim;   /* dk, dv; 0: no such layers */
    bool is_tiled;                 /* value head h reads key head h mod Hk; else h / (Hv / Hk) */
    bool decays_keys;              /* each component of a key has its own decay; else all of a head have one */
};

/* Heads of PLAN_SSM and PLAN_SCAN. */
struct plan_ssm {
    uint32_t n_heads, n_groups;   /* Hs, G: a divisor; G runs of consecutive heads each share B and C */
    uint32_t head_dim, state_dim; /* p, n; 0: no such layers */
};

/* The rows of a batch that a step works on. */
enum plan_rows { PLAN_ALL_ROWS /* T */, PLAN_LOGIT_ROWS /* S */, PLAN_HIDDEN_ROWS /* E */ };

/* Ids are PLAN_NONE if a step has none. A field that several ops have means the same in all of them; fields of one op
 * are in the union, in a member named after it. */
struct plan_step {
    enum plan_op op;
    int32_t layer;   /* the layer it belongs to, whose keys and values it reads or writes; PLAN_NONE: none */
    plan_buf_id src; /* the buffer it reads ... */
    plan_buf_id dst; /* ... and the one it writes */
    plan_weight_id w[3];
    plan_weight_id bias[3]; /* f32 [1][n_out of w[i]] */
    bool adds;              /* the result is added to dst: dst += */
    float scale;            /* a factor of the result; of q.k in attention */
    float eps;              /* of its norms; the least mean square that they divide by */
    enum plan_act act;      /* of gates */
    /* Of PLAN_GLU and PLAN_EXPERTS with w[1]: the most that act() gets, and the magnitude of the factor of its result. 0:
     * no limit. As SiLU rises where it is positive, a limit of its result is one of its argument. */
    float gate_limit, up_limit;
    enum plan_rows rows; /* set by plan_check */
    uint64_t recurrent;  /* first float of the step's state within a sequence's; set by plan_check */
    uint64_t drafted;    /* floats of a drafted row that steps before it keep (plan_drafted_floats) */
    bool feeds_head;     /* a step of the model that only its prediction head needs */
    union {
        struct {
            bool centers; /* LayerNorm */
        } norm;           /* PLAN_NORM, PLAN_HIDDEN */
        struct {
            plan_buf_id keys, values;      /* only PLAN_HEADS */
            plan_weight_id q_norm, k_norm; /* f32 [1][d] */
            int32_t rope;                  /* index into plan.ropes */
            bool norms_values;             /* also norms each head of the values, without a weight */
        } heads;                           /* PLAN_QKV, PLAN_HEADS; PLAN_INDEX, without values and norms */
        struct {
            plan_buf_id weights;
        } choose;
        struct {
            float softcap;  /* of q.k; 0: none */
            int32_t window; /* positions a row sees, itself and earlier ones; 0: all */
            int32_t ahead;  /* later positions it sees, in a bidirectional plan with a window */
            int32_t skips;  /* first positions that only their own rows see, in a causal plan */
            uint32_t reach; /* R of w[1], at most PLAN_MAX_REACH; 0: slopes */
            /* Positions are cut into chunks of `window`, from 0 on, and a row only sees those of its chunk, in a
             * causal plan [Meta 2025, "Llama 4"]. */
            bool in_chunks;
            plan_buf_id chosen;
        } attention;
        struct {
            plan_buf_id route;
            bool weighs_input; /* weights are factors of src instead; with w[1], without bias[0] and bias[1] */
        } experts;
        struct {
            enum plan_map map;
            uint32_t first, repeats; /* repeats 0: 1; more only without GELU */
            bool is_sparse;
            float cutoff; /* in standard deviations */
        } multiply;
        struct {
            float alpha_p, alpha_n, beta, eps;
        } xielu;
        struct {
            uint32_t taps;     /* 2 .. PLAN_MAX_TAPS */
            enum plan_map map; /* none or SiLU */
        } conv;
        struct {
            plan_buf_id beta, alpha, keys, values;
        } delta;
        struct {
            plan_buf_id dt;
        } ssm;
        struct {
            plan_buf_id dt, b, c;
        } scan;
        struct {
            plan_buf_id level;
        } sum;
        struct {
            uint32_t n, first;  /* n: 2 .. PLAN_MAX_STREAMS */
            plan_buf_id routes; /* only PLAN_CORRECT */
        } streams;              /* PLAN_PREDICT, PLAN_CORRECT */
        struct {
            float softcap;   /* 0: none */
            bool is_reduced; /* of a prediction head */
        } logits;
        struct {
            uint32_t first;
            bool is_last; /* of PLAN_INPUT in a head's own plan: the row that logits are made of (plan_join.h) */
        } edge;           /* PLAN_INPUT, PLAN_OUTPUT */
    };
};

/* How the states of a sequence's rows become its embedding. */
enum plan_pooling {
    PLAN_POOL_NONE, /* the file does not say */
    PLAN_POOL_MEAN,
    PLAN_POOL_CLS,  /* the first row's */
    PLAN_POOL_LAST, /* the last row's */
    PLAN_POOL_RANK, /* a score instead, by struct plan_ranker */
    PLAN_POOL_EACH, /* each row's own: one vector per token */
};

/* The activation after a layer's matrix. */
enum plan_dense_act {
    PLAN_DENSE_NONE,
    PLAN_DENSE_TANH,
    PLAN_DENSE_RELU,
    PLAN_DENSE_GELU,
    PLAN_DENSE_SILU,
    PLAN_DENSE_SIGMOID,
    PLAN_DENSE_ACT_COUNT
};

/* A layer applied to a sequence's pooled states: y = act(weight x + bias), with `norm` its LayerNorm. It is not packed,
 * because it is computed outside of the back end. */
struct plan_dense {
    const struct row_source *weight; /* [n_out][n_in] */
    const struct row_source *bias;   /* [1][n_out], OPTIONAL */
    const struct row_source *norm;   /* [1][n_out], OPTIONAL */
    enum plan_dense_act act;
    float eps; /* of the norm */
};

enum { PLAN_MAX_DENSE = 4 };

/* Layers, each as wide as the output of the one before; the first takes D. n 0: none. */
struct plan_head {
    struct plan_dense layers[PLAN_MAX_DENSE];
    int n;
};

/* How a pair of texts in one sequence becomes a number: the score that the head computes from the pooled states, or of
 * two scores, for "yes" and "no", the first less the second. */
struct plan_ranker {
    struct plan_head head;    /* n 0: the model is not a reranker */
    enum plan_pooling states; /* PLAN_POOL_MEAN, PLAN_POOL_CLS or PLAN_POOL_LAST */
    uint32_t n_segments;      /* 2: rows of the second text have ids from V / 2 on; else 1 */
    bool has_one_separator;   /* one separator between the texts, whatever the vocabulary */
};

/* The attention of a layer: its heads, and the layer whose keys and values it reads. */
struct plan_kv {
    uint32_t n_heads;    /* H; 0 in plan.kvs: as in struct plan */
    uint32_t n_kv_heads; /* K */
    uint32_t head_dim;   /* d */
    uint32_t value_dim;  /* as in struct plan */
    uint32_t latent_dim; /* as in struct plan */
    uint32_t index_dim;  /* as in struct plan */
    /* The layer whose part of the cache it reads: this one, which stores them, or an earlier one with the same KV heads,
     * which does; PLAN_NONE: no attention. */
    int32_t layer;
};

struct plan_buf {
    const char *name;
    uint32_t width; /* floats in a row */
};

enum { PLAN_MAX_BUFS = 48, PLAN_MAX_ROPES = 16 };

/* Limits of a plan; the reader rejects files whose hyper-parameters exceed them. */
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
    PLAN_MAX_REACH = 1024,
    PLAN_MAX_CHOSEN = 1 << 16,
};

struct plan {
    struct arena arena;        /* owns all memory that pointers below reach, except weight data */
    uint32_t n_vocab;          /* V */
    uint32_t n_embd;           /* D */
    uint32_t n_layers;         /* L */
    uint64_t recurrent_floats; /* recurrent state of a sequence, all layers; 0: none; set by plan_check */
    uint64_t drafted_floats;   /* that advance it by a drafted row, all layers; set by plan_check */
    uint32_t n_heads;          /* H */
    uint32_t n_kv_heads;       /* K */
    uint32_t head_dim;         /* d */
    uint32_t value_dim;        /* width of a value, at most d, without a latent_dim; 0: d */
    /* 0, or: the value of a position is the first latent_dim components of its key, and only keys are stored, of one KV
     * head [DeepSeek-V2, 2.1: multi-head latent attention in its absorbed form]. */
    uint32_t latent_dim;
    /* With a latent_dim: 0, or the width of the index key (PLAN_INDEX) that a position stores after its latent. */
    uint32_t index_dim;
    /* OPTIONAL [L], in the arena: each layer's heads, instead of n_heads, n_kv_heads, head_dim, value_dim, latent_dim and
     * index_dim, which then are those of the widest layer. Read it through plan_kv_of. */
    struct plan_kv *kvs;
    int32_t layer; /* of steps being added; PLAN_NONE before the first and after the last */
    uint32_t n_ctx_train;
    uint32_t n_ctx_max; /* longest sequence it can be built for: n_ctx_train, or more if RoPE defines how */
    /* A row sees all rows of its sequence, which must be in one batch, from position 0 on. */
    bool is_bidirectional;
    bool has_logits;                    /* a step computes logits; set by plan_check */
    bool has_hidden;                    /* a step computes hidden rows; set by plan_check */
    bool is_shard;                      /* a step sums over ranks; set by plan_check */
    uint32_t input_width, output_width; /* floats of rows that PLAN_INPUT reads and PLAN_OUTPUT writes; 0: none */
    /* First step of the prediction head; 0: none. Only batches that predict run its steps, and only its steps. Its layers
     * come after the model's. */
    int32_t i_predict;
    /* Steps up to the last one that stores keys, values or a state, of the model and of its prediction head: a batch
     * without results needs no others. Set by plan_check. */
    int32_t n_storing, n_storing_predict;
    /* The prediction head stores nothing, and its layers read keys and values of the model's. A row of it then has the
     * position of the row before its token: it sees what that row sees. So has each row of a guess after it. Inputs and
     * outputs are of rows with logits. Set by plan_check. */
    bool guesses_in_place;
    /* The tokens that the prediction head can guess, in the order of its logits; 0 and NULL: all. In the arena. */
    const int32_t *guess_ids;
    uint32_t n_guess_ids;
    uint32_t rank, n_ranks; /* the shard's rank and their number (plan_shard.h); 0 and 0 for a whole plan */
    enum plan_pooling pooling;
    struct plan_head dense; /* for embeddings, after the pooling */
    struct plan_ranker ranker;
    struct plan_moe moe;
    struct plan_delta delta;
    struct plan_ssm ssm;
    struct plan_weight *weights;
    struct plan_step *steps;
    size_t cap_weights, cap_steps;
    int32_t n_weights, n_steps;
    struct plan_buf bufs[PLAN_MAX_BUFS];
    int32_t n_bufs;
    struct plan_rope ropes[PLAN_MAX_ROPES];
    int32_t n_ropes;
};

/* Returns the key head that a value head of PLAN_DELTA reads. */
static inline uint32_t plan_delta_key_head(const struct plan_delta *d, uint32_t v_head)
{
    return d->is_tiled ? v_head % d->n_k_heads : v_head / (d->n_v_heads / d->n_k_heads);
}

/* Returns the decays of a head. */
static inline uint32_t plan_delta_decays(const struct plan_delta *d) { return d->decays_keys ? d->key_dim : 1; }

/* Returns whether the plan has a prediction head. */
static inline bool plan_predicts(const struct plan *p) { return p->i_predict != 0; }

/* Return how many steps and layers the model has, without those of its prediction head. */
static inline int32_t plan_main_steps(const struct plan *p) { return plan_predicts(p) ? p->i_predict : p->n_steps; }
static inline uint32_t plan_main_layers(const struct plan *p)
{
    return plan_predicts(p) ? (uint32_t)p->steps[p->i_predict].layer : p->n_layers;
}

/* Returns how many logits a row has. */
static inline uint32_t plan_n_logits(const struct plan *p, bool predicts)
{
    return predicts && p->n_guess_ids != 0 ? p->n_guess_ids : p->n_vocab;
}

/* Return the first step that a batch of the model, or of its head, needs, and the one after its last; has_results: it
 * returns logits, hidden rows or output. */
static inline int32_t plan_first_step(const struct plan *p, bool predicts) { return predicts ? p->i_predict : 0; }
static inline int32_t plan_end_step(const struct plan *p, bool predicts, bool has_results)
{
    if (!has_results) {
        return predicts ? p->n_storing_predict : p->n_storing;
    }
    return predicts ? p->n_steps : plan_main_steps(p);
}

/* Returns the first position that a row of an attention step sees, apart from skipped ones; can be negative. */
static inline int32_t plan_first_seen(const struct plan_step *s, int32_t pos)
{
    int32_t window = s->attention.window;
    return window == 0 ? 0 : s->attention.in_chunks ? pos / window * window : pos - window + 1;
}

/* Returns the attention of a layer, 0 <= layer < L. */
static inline struct plan_kv plan_kv_of(const struct plan *p, int32_t layer)
{
    struct plan_kv kv = {.n_heads = p->n_heads,
                         .n_kv_heads = p->n_kv_heads,
                         .head_dim = p->head_dim,
                         .value_dim = p->value_dim,
                         .latent_dim = p->latent_dim,
                         .index_dim = p->index_dim,
                         .layer = layer};
    if (p->kvs != NULL) {
        kv = p->kvs[layer];
        kv.n_heads = kv.n_heads != 0 ? kv.n_heads : p->n_heads;
    }
    return kv;
}

/* Returns the query heads of a step's layer, or the plan's if it has none. */
static inline uint32_t plan_heads_of(const struct plan *p, const struct plan_step *s)
{
    return s->layer != PLAN_NONE ? plan_kv_of(p, s->layer).n_heads : p->n_heads;
}

/* Return the width of a value; for a plan with different layers that of the widest. */
static inline uint32_t plan_kv_value_dim(const struct plan_kv *kv)
{
    return kv->latent_dim != 0 ? kv->latent_dim : kv->value_dim != 0 ? kv->value_dim : kv->head_dim;
}
static inline uint32_t plan_value_dim(const struct plan *p)
{
    return p->latent_dim != 0 ? p->latent_dim : p->value_dim != 0 ? p->value_dim : p->head_dim;
}

/* Returns how many numbers the keys, values and index keys of a position are. */
static inline uint32_t plan_kv_floats(const struct plan_kv *kv)
{
    return kv->latent_dim != 0 ? kv->head_dim + kv->index_dim : kv->n_kv_heads * (kv->head_dim + plan_kv_value_dim(kv));
}

/* Makes a new, empty plan / frees it. */
MUST_CHECK enum err plan_new(struct plan **out);
void plan_free(struct plan **p);

/* Append an entry and return its index in *id (OPTIONAL); strings are copied. ERR_NOMEM, also for a NULL source. */
MUST_CHECK enum err plan_add_weight(struct plan *p, const char *name, const struct row_source *source,
                                    plan_weight_id *id);
/* Replaces the source of a weight; otherwise like plan_add_weight. */
MUST_CHECK enum err plan_set_source(struct plan *p, plan_weight_id id, const struct row_source *source);
MUST_CHECK enum err plan_add_buf(struct plan *p, const char *name, uint32_t width, plan_buf_id *id);
MUST_CHECK enum err plan_add_rope(struct plan *p, const struct plan_rope *r, int32_t *id);
MUST_CHECK enum err plan_add_step(struct plan *p, const struct plan_step *s); /* of p->layer, if s has no layer */

/* Returns a step with every other id PLAN_NONE and scale 1, to fill in. */
struct plan_step plan_step_of(enum plan_op op, plan_buf_id src, plan_buf_id dst);

/* Checks ids, widths and types of all steps against each other. ERR_BAD_TENSOR_SHAPE names the weight. */
MUST_CHECK enum err plan_check(struct plan *p, struct err_info *info);

/* Removes the prediction head of a checked plan, if it has one. Fails as plan_check does. */
MUST_CHECK enum err plan_drop_prediction(struct plan *p, struct err_info *info);

/* Returns how many positions a row of a checked plan sees, itself included; earlier ones need not be kept. Returns 0
 * unless all layers with keys and values have windows, none looks ahead and no state passes from row to row. */
int32_t plan_window(const struct plan *p);

/* Returns the longest window of local layers, which have one while other layers see everything. Returns 0 without such
 * layers, or if the plan is bidirectional or a state passes from row to row. */
int32_t plan_local_window(const struct plan *p);

/* Returns how many positions, itself included, a row of a checked plan sees of the keys and values that `layer` stores;
 * 0: all, or the plan is bidirectional. */
int32_t plan_layer_window(const struct plan *p, int32_t layer);

const char *plan_op_name(enum plan_op op);

/* Returns the name of pooling i + 1: "mean", "cls", "last", "rank", "none" (PLAN_POOL_EACH); NULL for "the file does
 * not say" and after the last. */
const char *plan_pooling_name(int i);

/* Returns the name of an enum plan_dense_act, "none", "tanh" ..; NULL after the last. */
const char *plan_dense_act_name(int act);

/* Returns how many numbers a head outputs; `n_embd` if it has no layers. */
uint32_t plan_head_width(const struct plan_head *h, uint32_t n_embd);

#endif
