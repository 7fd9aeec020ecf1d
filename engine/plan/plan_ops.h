/* The table of operations, one row each. Checking, liveness, barriers, dispatch, quantising at load, counting and
 * `infcgi inspect --plan` use it. The enumerators in plan.h define what an op computes. Threads: constant; functions
 * are pure. */
#ifndef INFCGI_PLAN_PLAN_OPS_H
#define INFCGI_PLAN_PLAN_OPS_H

#include "engine/plan/plan.h"

/* Flags of an operand: a buffer reads or writes, a weight does neither. */
enum {
    PLAN_READS = 1 << 0,
    PLAN_WRITES = 1 << 1,
    PLAN_MAY_ADD = 1 << 2, /* written, and read first if the step `adds` */
    PLAN_DECIDES = 1 << 3, /* read to pick a row's experts: the matrix that computes it is not rounded at load */
    PLAN_STREAMS = 1 << 4, /* streams.n buffers; the operand names the first */
    PLAN_OPTIONAL = 1 << 5,
    PLAN_VECTOR = 1 << 6,     /* a weight [1][n], f32 */
    PLAN_MULTIPLIES = 1 << 7, /* a weight that rows are multiplied with; others are looked up, or vectors */
    PLAN_ROUNDS = 1 << 8,     /* a weight that plan_quantize rounds to the requested type ... */
    PLAN_ROUNDS_Q8 = 1 << 9,  /* ... or to Q8_0 whatever that type is */
    /* a buffer that a rank can hold some columns of, if it holds those of the others so marked */
    PLAN_PARTS = 1 << 10,
    PLAN_SUMMED = 1 << 11, /* ... and the result is a sum over its columns, so a rank can compute part of the sum */
};

/* What a dimension counts; a rank that has only some of it has a shorter dimension. */
enum plan_axis {
    PLAN_AXIS_NONE,  /* nothing: equal in all ranks */
    PLAN_AXIS_SRC,   /* columns of src */
    PLAN_AXIS_DST,   /* columns of dst */
    PLAN_AXIS_GROUP, /* columns normed together, which no rank splits */
    PLAN_AXIS_HEADS,
    PLAN_AXIS_KV_HEADS,
    PLAN_AXIS_DELTA, /* heads of plan.delta */
    PLAN_AXIS_SSM,   /* heads of plan.ssm */
    PLAN_AXIS_FF,    /* columns within each expert; the result is a sum over them */
};

/* A buffer or a weight of a step; its id is at offset `at` in struct plan_step. Shapes are dimensions, by their numbers
 * in plan_ops.c; 0 accepts any. */
struct plan_operand {
    const char *name; /* of the field; NULL ends the list */
    uint16_t at;
    uint16_t flags;
    uint8_t width;  /* floats in a row of the buffer, columns of the weight */
    uint8_t rows;   /* of the weight; vectors have 1 */
    uint8_t groups; /* parts of equally many rows that belong together: heads, experts; 0: one part */
};

/* How the work of a step can be split between threads or devices, in addition to rows of the batch. */
enum plan_split { PLAN_BY_ROWS, PLAN_BY_COLUMNS, PLAN_BY_HEADS, PLAN_BY_CHANNELS, PLAN_BY_EXPERTS };

struct plan_check; /* of plan_ops.c */

enum { PLAN_MAX_OPERANDS = 11 };

struct plan_op_info {
    const char *name; /* "head matmul" */
    /* OPTIONAL: checks what the operands do not express; runs before them */
    enum err (*check)(const struct plan_check *c);
    /* OPTIONAL: each column that it writes depends on all columns that it reads, whatever the operands say. */
    bool (*is_whole)(const struct plan *p, const struct plan_step *s);
    enum plan_split split;
    uint8_t n_items;     /* dimension: number of parts of the split */
    uint8_t inner;       /* dimension: width of rows within the step, of an expert or a head; 0: none */
    uint8_t state[3];    /* dimensions whose product is the floats of recurrent state; 0: none */
    uint8_t drafted[4];  /* dimensions whose sum is the floats of a row that an item's state is advanced by */
    enum plan_rows rows; /* PLAN_LOGIT_ROWS: the step and all later ones */
    bool crosses_rows;   /* reads rows that others wrote: they must be done, and later steps must wait */
    bool over_ranks;     /* waits for the other ranks; without src there is nothing to do */
    uint16_t cache;      /* PLAN_READS, PLAN_WRITES: access to the KV cache of its layer */
    uint16_t rope;       /* OPTIONAL: offset of the index of its RoPE table in struct plan_step */
    struct plan_operand operands[PLAN_MAX_OPERANDS];
};

extern const struct plan_op_info plan_ops[PLAN_OP_COUNT];

/* Returns the step that copies a buffer from components first .. of the caller's rows, or to them (plan_cut.h). */
struct plan_step plan_edge_of(bool is_output, plan_buf_id buf, uint32_t first);

/* Iterates over the operands of a step that are not PLAN_NONE; NULL after the last. i begins at 0. */
const struct plan_operand *plan_next_operand(const struct plan_step *s, int *i, int32_t *id);

static inline bool plan_is_buf(const struct plan_operand *o) { return (o->flags & (PLAN_READS | PLAN_WRITES)) != 0; }

/* Returns whether the step does nothing: it marks where several ranks would meet. */
static inline bool plan_is_idle(const struct plan_step *s) { return plan_ops[s->op].over_ranks && s->src == PLAN_NONE; }

/* Returns PLAN_READS and PLAN_WRITES: how the step uses a buffer. */
int plan_uses(const struct plan_step *s, plan_buf_id buf);

/* Renames the buffers of a step: each id becomes names[id]. */
void plan_rename(struct plan_step *s, const plan_buf_id *names);

/* Returns whether any step from `step` on reads what the buffer holds before that step. */
bool plan_is_read(const struct plan *p, int32_t step, plan_buf_id buf);

/* Returns the axis of a dimension of an operand, or of `n_items` or `inner`. */
enum plan_axis plan_axis_of(uint8_t dim);

/* Returns the address of an operand's id in a step. */
int32_t *plan_operand_id(struct plan_step *s, const struct plan_operand *o);

/* Returns the rows of a checked plan's weight that belong together, one of its groups. */
uint32_t plan_group_rows(const struct plan *p, const struct plan_step *s, const struct plan_operand *o);

/* Returns the parts that a checked step can be split into, besides rows. */
uint32_t plan_n_items(const struct plan *p, const struct plan_step *s);

/* Returns the width of rows within a checked step. */
uint32_t plan_inner_floats(const struct plan *p, const struct plan_step *s);

/* Returns whether a step stores keys and values or a state. */
bool plan_stores(const struct plan *p, const struct plan_step *s);

/* Returns the floats of recurrent state that a checked step keeps. */
uint64_t plan_state_floats(const struct plan *p, const struct plan_step *s);

/* Returns the floats of a row that advance the state of one item (plan_n_items) of a checked step: of PLAN_SHORT_CONV
 * the channel; of PLAN_DELTA k, v, alpha and beta; of PLAN_SSM and PLAN_SCAN B, x and dt. In this order. */
uint64_t plan_drafted_floats(const struct plan *p, const struct plan_step *s);

/* Returns the share of a weight that a row reads, in 0 .. 1: of experts the used ones. */
double plan_weight_share(const struct plan *p, const struct plan_operand *o);

/* Returns the share, in 0 .. 1, of the weights' bytes read for a row of the model, without a head: those of experts, if a
 * row does not pick all of them. */
double plan_expert_part(const struct plan *p);

/* Returns the components of keys that a row at position `pos` reads from the cache in a checked step; 0 for most
 * ops. */
double plan_cache_read(const struct plan *p, const struct plan_step *s, int32_t pos);

/* Checks one step. ERR_BAD_TENSOR_SHAPE and ERR_UNSUPPORTED_TYPE name a weight; ERR_INTERNAL. */
MUST_CHECK enum err plan_ops_check(const struct plan *p, const struct plan_step *s, struct err_info *info);

#endif
