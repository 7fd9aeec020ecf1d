/* The plan: a model as data. A family builder reads hyper-parameters and lists steps over named buffers of token rows;
 * a back end runs any plan. Shapes are checked once, by plan_check, when the plan is complete.
 *
 * Dimension letters, used in every shape comment of the project:
 *   T token rows of a batch   D model width   H query heads   K KV heads   d head width   F feed-forward width
 *   V vocabulary              L layers        S token rows whose logits are wanted
 * Weights are [rows out][columns in] as in GGUF: y = x W^T. Threads: a plan is read-only once checked. */
#ifndef INFCGI_PLAN_PLAN_H
#define INFCGI_PLAN_PLAN_H

#include "engine/base/err.h"
#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A weight as the file has it, or some rows of it (fused tensors are taken apart by row ranges). */
struct plan_weight {
    const char *name; /* NUL-terminated tensor name, for messages; lives as long as the plan */
    enum dtype type;
    const void *data; /* first row; borrowed from the file's map */
    uint64_t row_bytes;
    uint32_t n_out;       /* rows */
    uint32_t n_in;        /* columns */
    uint64_t file_offset; /* of data in the file, so that its pages can be dropped once packed */
};

/* Index into plan.weights; PLAN_NONE where a step has none. */
typedef int32_t plan_weight_id;
/* Index into plan.bufs. */
typedef int32_t plan_buf_id;
enum { PLAN_NONE = -1 };

enum plan_op {
    PLAN_EMBED,     /* dst[T][n] = scale * rows of w[0] picked by token id */
    PLAN_NORM,      /* dst = rmsnorm(src) * w[0]; or dst += that, when `adds` */
    PLAN_MATMUL,    /* what epilogue says, of src times w[0..] */
    PLAN_ATTENTION, /* dst[T][H*d] = attention of src (queries) over the KV cache of `layer` */
    PLAN_GATHER,    /* dst[S][n] = the rows of src whose logits are wanted; every later step works on S rows */
    PLAN_OP_COUNT
};

enum plan_epilogue {
    PLAN_STORE,  /* dst = y + bias */
    PLAN_ADD,    /* dst += y + bias (residual) */
    PLAN_GLU,    /* dst = act(src w[0]^T + bias[0]) * (src w[1]^T + bias[1]) */
    PLAN_QKV,    /* w[0..2] = Q, K, V: add biases, norm heads (q_norm, k_norm), RoPE; queries to dst, K and V to the KV
                    cache */
    PLAN_LOGITS, /* logits = softcap(scale * y) */
    PLAN_EPILOGUE_COUNT
};

enum plan_act { PLAN_SILU, PLAN_GELU_TANH, PLAN_GELU, PLAN_RELU }; /* the values of enum kern_act */

/* Rotary position embedding [Su 2021]: angle of pair i at position p is p * inv_freq[i], cos and sin times mscale. */
struct plan_rope {
    uint32_t n_rot;        /* components rotated, even, <= d; 0 = no RoPE (NoPE layers) */
    bool is_neox;          /* pairs (i, i + n_rot/2); else (2i, 2i+1) */
    float mscale;          /* 1 unless the scaling says otherwise (YaRN) */
    const float *inv_freq; /* [n_rot/2], scaling applied; of the plan's arena */
};

struct plan_step {
    enum plan_op op;
    enum plan_epilogue epilogue; /* PLAN_MATMUL only */
    int32_t layer;               /* KV layer for PLAN_QKV and PLAN_ATTENTION; for messages elsewhere, -1 = none */
    plan_buf_id src;             /* PLAN_NONE for PLAN_EMBED */
    plan_buf_id dst;             /* PLAN_NONE for PLAN_LOGITS */
    plan_weight_id w[3];
    plan_weight_id bias[3];        /* f32 [1][n_out of w[i]] */
    enum plan_act act;             /* PLAN_GLU */
    float scale;                   /* PLAN_EMBED, PLAN_ATTENTION (of q.k), PLAN_LOGITS */
    bool adds;                     /* PLAN_NORM: a norm behind a block, whose result joins the residual stream dst */
    float eps;                     /* PLAN_NORM; PLAN_QKV's head norms */
    float softcap;                 /* PLAN_ATTENTION, PLAN_LOGITS; 0 = none */
    int32_t window;                /* PLAN_ATTENTION: positions a row sees, itself included; 0 = all before it */
    plan_weight_id q_norm, k_norm; /* PLAN_QKV: f32 [1][d], or PLAN_NONE */
    int32_t rope;                  /* PLAN_QKV: index into plan.ropes */
};

struct plan_buf {
    const char *name;
    uint32_t width; /* floats in a row */
};

enum { PLAN_MAX_BUFS = 16, PLAN_MAX_ROPES = 8 };

/* Largest values a plan may have; hyper-parameters beyond them are refused when the file is read. */
enum {
    PLAN_MAX_LAYERS = 1024,
    PLAN_MAX_WIDTH = 1 << 20,
    PLAN_MAX_HEAD = 512,
    PLAN_MAX_HEADS = 1024,
    PLAN_MAX_VOCAB = 1 << 22,
};

struct plan {
    struct arena arena;  /* owns everything the pointers below reach, but not weight data */
    uint32_t n_vocab;    /* V */
    uint32_t n_embd;     /* D */
    uint32_t n_layers;   /* L */
    uint32_t n_heads;    /* H */
    uint32_t n_kv_heads; /* K */
    uint32_t head_dim;   /* d */
    uint32_t n_ctx_train;
    struct plan_weight *weights;
    int32_t n_weights, cap_weights;
    struct plan_step *steps;
    int32_t n_steps, cap_steps;
    struct plan_buf bufs[PLAN_MAX_BUFS];
    int32_t n_bufs;
    struct plan_rope ropes[PLAN_MAX_ROPES];
    int32_t n_ropes;
};

/* A new, empty plan / its end. */
MUST_CHECK enum err plan_new(struct plan **out);
void plan_free(struct plan **p);

/* Append and return the new index in *id (OPTIONAL for steps); strings are copied. ERR_NOMEM. */
MUST_CHECK enum err plan_add_weight(struct plan *p, const struct plan_weight *w, plan_weight_id *id);
MUST_CHECK enum err plan_add_buf(struct plan *p, const char *name, uint32_t width, plan_buf_id *id);
MUST_CHECK enum err plan_add_rope(struct plan *p, const struct plan_rope *r, int32_t *id);
MUST_CHECK enum err plan_add_step(struct plan *p, const struct plan_step *s);

/* A step with every id PLAN_NONE and scale 1, to fill in. */
struct plan_step plan_step_of(enum plan_op op);

/* Checks every id, width and type of every step against each other. ERR_BAD_TENSOR_SHAPE names the weight. */
MUST_CHECK enum err plan_check(const struct plan *p, struct err_info *info);

const char *plan_op_name(enum plan_op op);

#endif
