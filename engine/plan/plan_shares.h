/* What each rank of a plan computes: the first half of plan_shard.h. For each place where ranks can meet it finds the
 * steps that make what is added up there: from the last matrix backwards, buffers whose columns belong together, until
 * only whole ones are read. What they have in common, heads or a width, is a cut. Threads: functions are pure. */
#ifndef INFCGI_PLAN_PLAN_SHARES_H
#define INFCGI_PLAN_PLAN_SHARES_H

#include "engine/plan/plan_ops.h"

/* Cuts: of heads one each, of columns one for each width. */
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

/* What is cut the same way wherever it stands. */
struct plan_shares_cut {
    uint32_t n_items; /* query heads, key heads of the delta rule, groups of heads of state spaces, or columns */
    uint32_t grain;   /* shares begin at multiples of it */
    bool is_whole;    /* cannot be cut after all */
    struct plan_shares_range share;
};

/* What a rank does of a step: some columns of the buffers that are PLAN_PARTS or, when it `sums`, a part of a sum; all
 * of it where there is no cut. */
struct plan_shares_role {
    uint8_t cut;
    bool sums;
};

/* Set the first four, roles to zeros, before plan_shares_find. */
struct plan_shares {
    const struct plan *p; /* checked */
    uint32_t rank, n;
    struct plan_shares_role *roles; /* [n_steps] */
    struct plan_shares_cut cuts[PLAN_SHARES_MAX_CUTS];
    int n_cuts;
};

/* Fills roles and cuts, which but for `share` are those of all ranks. */
void plan_shares_find(struct plan_shares *s);

/* Does the rank have only some of a dimension of a weight of step i? */
bool plan_shares_is_cut(const struct plan_shares *s, int32_t i, enum plan_axis axis);

/* The KV heads that its queries read in a layer of n_kv. */
struct plan_shares_range plan_shares_kv_heads(const struct plan_shares *s, uint32_t n_kv);

/* Value heads of the delta rule that read one key head. */
static inline uint32_t plan_shares_n_each(const struct plan_delta *d) { return d->n_v_heads / d->n_k_heads; }

#endif
