/* What operations are: one row each, which checking, liveness, barriers, dispatch, quantising at load, counting and
 * `infcgi inspect --plan` walk. What an op computes is said at its enumerator in plan.h. Threads: constant; functions
 * are pure. */
#ifndef INFCGI_PLAN_PLAN_OPS_H
#define INFCGI_PLAN_PLAN_OPS_H

#include "engine/plan/plan.h"

/* Of an operand: a buffer reads or writes, a weight does neither. */
enum {
    PLAN_READS = 1 << 0,
    PLAN_WRITES = 1 << 1,
    PLAN_MAY_ADD = 1 << 2, /* written, and read first when the step `adds` */
    PLAN_DECIDES = 1 << 3, /* read to pick what a row goes through: what makes it is not rounded at load */
    PLAN_STREAMS = 1 << 4, /* streams.n buffers, the first of which the operand names */
    PLAN_OPTIONAL = 1 << 5,
    PLAN_VECTOR = 1 << 6,     /* a weight [1][n], f32 */
    PLAN_MULTIPLIES = 1 << 7, /* a weight that rows are multiplied with; others are looked up, or vectors */
    PLAN_ROUNDS = 1 << 8,     /* a weight that plan_quantize rounds to the wanted type .. */
    PLAN_ROUNDS_Q8 = 1 << 9,  /* .. or to Q8_0 whatever that is */
    PLAN_PARTS = 1 << 10,  /* a buffer of which a rank may have some columns, if it has those of the others so marked */
    PLAN_SUMMED = 1 << 11, /* .. over whose columns the result is a sum, to which a rank may bring its part */
};

/* What the length of a dimension counts, so that a rank with some of that has less of it. */
enum plan_axis {
    PLAN_AXIS_NONE,  /* nothing: it is the same in all ranks */
    PLAN_AXIS_SRC,   /* columns of src, .. */
    PLAN_AXIS_DST,   /* .. of dst */
    PLAN_AXIS_GROUP, /* columns normed together, which no rank has some of */
    PLAN_AXIS_HEADS,
    PLAN_AXIS_KV_HEADS,
    PLAN_AXIS_DELTA, /* heads of plan.delta, .. */
    PLAN_AXIS_SSM,   /* .. of plan.ssm */
    PLAN_AXIS_FF,    /* columns inside of each expert, over which the result is a sum */
};

/* A buffer or a weight of a step: its id is at `at` in struct plan_step. Shapes are dimensions, by their numbers in
 * plan_ops.c, of which 0 takes any. */
struct plan_operand {
    const char *name; /* of the field; NULL behind the last */
    uint16_t at;
    uint16_t flags;
    uint8_t width;  /* floats in a row of the buffer, columns of the weight */
    uint8_t rows;   /* of the weight; vectors have 1 */
    uint8_t groups; /* parts of as many rows that belong together: heads, experts; 0 = it is one */
};

/* What the work of a step can be cut by, between threads or devices, besides by rows of the batch. */
enum plan_split { PLAN_BY_ROWS, PLAN_BY_COLUMNS, PLAN_BY_HEADS, PLAN_BY_CHANNELS, PLAN_BY_EXPERTS };

struct plan_check; /* of plan_ops.c */

enum { PLAN_MAX_OPERANDS = 11 };

struct plan_op_info {
    const char *name;                              /* "head matmul" */
    enum err (*check)(const struct plan_check *c); /* OPTIONAL: what the operands do not say; comes before them */
    /* OPTIONAL: each column of what it writes takes all columns that it reads, whatever the operands say. */
    bool (*is_whole)(const struct plan *p, const struct plan_step *s);
    enum plan_split split;
    uint8_t n_items;     /* dimension: parts that the split has */
    uint8_t inner;       /* dimension: width of rows inside of the step, of an expert or a head; 0 = none */
    uint8_t state[3];    /* dimensions whose product are the floats of recurrent state; 0 = none */
    enum plan_rows rows; /* PLAN_LOGIT_ROWS: the step and all behind it */
    bool crosses_rows;   /* reads rows that others wrote: they must be done, and what is behind it must wait */
    bool over_ranks;     /* waits for the other ranks; without src there is nothing to do */
    uint16_t cache;      /* PLAN_READS, PLAN_WRITES: of the KV cache of its layer */
    uint16_t rope;       /* OPTIONAL: where the index of its RoPE table is in struct plan_step */
    struct plan_operand operands[PLAN_MAX_OPERANDS];
};

extern const struct plan_op_info plan_ops[PLAN_OP_COUNT];

/* The step that brings a buffer in from components first .. of the caller's rows, or out to them (plan_cut.h). */
struct plan_step plan_edge_of(bool is_output, plan_buf_id buf, uint32_t first);

/* Walks the operands of a step, all but those that are PLAN_NONE; NULL behind the last. i begins at 0. */
const struct plan_operand *plan_next_operand(const struct plan_step *s, int *i, int32_t *id);

static inline bool plan_is_buf(const struct plan_operand *o) { return (o->flags & (PLAN_READS | PLAN_WRITES)) != 0; }

/* Nothing is to be done for the step: it is where ranks would meet if there were several. */
static inline bool plan_is_idle(const struct plan_step *s) { return plan_ops[s->op].over_ranks && s->src == PLAN_NONE; }

/* PLAN_READS and PLAN_WRITES: what the step does with a buffer. */
int plan_uses(const struct plan_step *s, plan_buf_id buf);

/* Gives the buffers of a step other ids: names[id] for each. */
void plan_rename(struct plan_step *s, const plan_buf_id *names);

/* Does any step from `step` on read what the buffer holds in front of it? */
bool plan_is_read(const struct plan *p, int32_t step, plan_buf_id buf);

/* Of a dimension of an operand, or of `n_items` or `inner`. */
enum plan_axis plan_axis_of(uint8_t dim);

/* Where the id of an operand is in a step. */
int32_t *plan_operand_id(struct plan_step *s, const struct plan_operand *o);

/* Rows that belong together, of a weight of a checked plan; groups of it. */
uint32_t plan_group_rows(const struct plan *p, const struct plan_step *s, const struct plan_operand *o);

/* Parts that a checked step can be split in, besides rows. */
uint32_t plan_n_items(const struct plan *p, const struct plan_step *s);

/* Width of rows inside of a checked step. */
uint32_t plan_inner_floats(const struct plan *p, const struct plan_step *s);

/* Floats of recurrent state that a checked step keeps. */
uint64_t plan_state_floats(const struct plan *p, const struct plan_step *s);

/* The part of a weight that is read for one row, in 0 .. 1: of experts those that are used. */
double plan_weight_share(const struct plan *p, const struct plan_step *s, const struct plan_operand *o);

/* Components of keys that a row at position `pos` reads from the cache in a checked step; 0 of most ops. */
double plan_cache_read(const struct plan *p, const struct plan_step *s, int32_t pos);

/* Checks a step, and nothing beyond it. ERR_BAD_TENSOR_SHAPE and ERR_UNSUPPORTED_TYPE name a weight; ERR_INTERNAL. */
MUST_CHECK enum err plan_ops_check(const struct plan *p, const struct plan_step *s, struct err_info *info);

#endif
