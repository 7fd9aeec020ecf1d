/* A back end that runs a model as several ranks, each with its shard of the plan (plan_shard.h), on another back end
 * and in its own thread. Where ranks meet, the last to arrive sums the rows of all ranks in rank order. A batch fails
 * if the ranks' results differ in any bit. */
#ifndef INFCGI_TEST_SHARDED_BACKEND_H
#define INFCGI_TEST_SHARDED_BACKEND_H

#include "engine/backend/backend.h"

enum { SHARDED_MAX_RANKS = 8 };

/* Returns a back end that opens models of `inner` as n ranks, 2 .. SHARDED_MAX_RANKS; one at a time. It has neither
 * measure nor page_copy. */
const struct backend *sharded_backend_of(const struct backend *inner, uint32_t n);

#endif
