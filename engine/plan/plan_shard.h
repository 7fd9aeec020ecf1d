/* Cuts a plan for tensor parallelism: makes the plan of one of several ranks that compute a model together. Each rank
 * has a share of:
 *
 * - the query heads, with the KV heads they read;
 * - the columns of feed-forward blocks, and of each expert;
 * - the heads of linear attention and state spaces.
 *
 * Every rank has all norms, the router, embedding and logits. The last matrix of a block computes a rank's part of the
 * block's result, and a reduce step adds the parts of all ranks [Shoeybi 2019, "Megatron-LM", 3].
 *
 * Experts are cut by columns, not distributed whole: so all ranks have equal work whatever the routing, and routing is
 * unchanged.
 *
 * Shares are as even as the boundaries allow: whole blocks of a quantised weight's rows, and whole KV heads if there
 * are no fewer than ranks. A dimension with too few boundaries is not cut. Then each rank computes all of it, for heads
 * in all layers, for columns in all blocks of that width, and nothing is summed. This also applies to norms over all
 * heads together, state spaces whose heads are normed together, and gates that look at all columns.
 *
 * Threads: several can call plan_shard simultaneously; it only reads p. */
#ifndef INFCGI_PLAN_PLAN_SHARD_H
#define INFCGI_PLAN_PLAN_SHARD_H

#include "engine/plan/plan.h"

enum { PLAN_MAX_RANKS = 64 };

/* Makes the plan of rank `rank` of n, checked; the caller owns *out. p is a checked plan that is not a shard and
 * has no prediction head; it must outlive *out, which reads weights through p's. All ranks' plans have the same reduce
 * steps. ERR_CONFIG if the rank does not exist, n exceeds PLAN_MAX_RANKS or p is another plan; ERR_NOMEM. */
MUST_CHECK enum err plan_shard(const struct plan *p, uint32_t rank, uint32_t n, struct plan **out,
                               struct err_info *info);

#endif
