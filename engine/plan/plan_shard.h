/* A plan cut for tensor parallelism: the plan of one of several ranks that compute a model together. Each has a share of
 * the query heads with the KV heads they read, of the columns of feed-forward blocks, of each expert's columns, of the
 * heads of linear attention and state spaces; norms, router, embedding and logits are all there in every rank. A block's
 * last matrix gives a rank a part of the block's result, and a reduce step adds the parts of all ranks [Shoeybi
 * 2019, "Megatron-LM", 3].
 *
 * Experts are cut by columns and not dealt out whole: then all ranks have the same work whatever is routed where, and
 * routing stays as it is.
 *
 * Shares are as even as the borders allow: whole blocks of a quantised weight's rows, whole KV heads where there are as
 * many as ranks. What has too few borders is not cut: each rank computes all of it, in all layers where it is heads,
 * else in all blocks of its width, and nothing is added up. So are norms over all heads together, state spaces whose
 * heads are normed together, and gates that look at all columns.
 * Threads: plan_shard may be called from several at once; p is only read. */
#ifndef INFCGI_PLAN_PLAN_SHARD_H
#define INFCGI_PLAN_PLAN_SHARD_H

#include "engine/plan/plan.h"

enum { PLAN_MAX_RANKS = 64 };

/* *out = the plan of rank `rank` of n, checked; the caller's. p is a checked plan that is no shard itself, and outlives
 * it, as its weights are read through p's. All ranks' plans have the same reduce steps. ERR_CONFIG when there is no
 * such rank, or more than PLAN_MAX_RANKS; ERR_NOMEM. */
MUST_CHECK enum err plan_shard(const struct plan *p, uint32_t rank, uint32_t n, struct plan **out,
                               struct err_info *info);

#endif
