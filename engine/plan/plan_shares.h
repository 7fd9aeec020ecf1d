/* Decides what each rank of a plan computes: the first half of plan_shard.h. For each point where ranks can meet it
 * finds the steps that make the sum: from the last matrix backwards through buffers whose columns belong together,
 * until only whole buffers are read. The heads or the width that these steps share are a cut. Threads: functions are
 * pure. */
#ifndef INFCGI_PLAN_PLAN_SHARES_H
#define INFCGI_PLAN_PLAN_SHARES_H

#include "engine/plan/plan_ops.h"

/* Cuts: one per kind of heads, one per width of columns. */
enum {
    PLAN_SHARES_NONE,
    PLAN_SHARES_HEADS,
    PLAN_SHARES_DELTA,
    PLAN_SHARES_SSM,
    PLAN_SHARES_COLUMNS,
    PLAN_SHARES_MAX_CUTS = 16
};

/* Items [from, to). */
struct plan_shares_range {
    uint32_t from, to;
};

/* Everything that is cut the same way. */
struct plan_shares_cut {
    uint32_t n_items; /* query heads, key heads of the delta rule, groups of heads of state spaces, or columns */
    uint32_t grain;   /* shares begin at multiples of it */
    bool is_whole;    /* it cannot be cut after all */
    struct plan_shares_range share;
};

/* A rank's part of a step: some columns of the buffers that are PLAN_PARTS or, if it `sums`, part of a sum; the whole
 * step without a cut. */
struct plan_shares_role {
    uint8_t cut;
    bool sums;
};

/* The caller sets p, rank, n and zeroed roles before plan_shares_find. */
struct plan_shares {
    const struct plan *p; /* checked */
    uint32_t rank, n;
    struct plan_shares_role *roles; /* [n_steps] */
    struct plan_shares_cut cuts[PLAN_SHARES_MAX_CUTS];
    int n_cuts;
};

/* Fills roles and cuts; except `share`, they are equal for all ranks. */
void plan_shares_find(struct plan_shares *s);

/* Returns whether the rank has only part of a dimension of a weight of step i. */
bool plan_shares_is_cut(const struct plan_shares *s, int32_t i, enum plan_axis axis);

/* Returns the KV heads that the rank's queries read in a layer with n_kv. */
struct plan_shares_range plan_shares_kv_heads(const struct plan_shares *s, uint32_t n_kv);

/* Returns the value heads of the delta rule that read one key head. */
static inline uint32_t plan_shares_n_each(const struct plan_delta *d) { return d->n_v_heads / d->n_k_heads; }

#endif
