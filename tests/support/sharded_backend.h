/* A back end that runs a model as several ranks, each with its shard of the plan (plan_shard.h), on another back end and
 * in a thread of its own. Where ranks meet, the last that comes adds up the rows of all in the order of the ranks. All
 * ranks must come to the same bits, or the batch fails. */
#ifndef INFCGI_TEST_SHARDED_BACKEND_H
#define INFCGI_TEST_SHARDED_BACKEND_H

#include "engine/backend/backend.h"

enum { SHARDED_MAX_RANKS = 8 };

/* One that opens models of `inner` as n ranks, 2 .. SHARDED_MAX_RANKS; one at a time. It has neither measure nor pages
 * that are read and written. */
const struct backend *sharded_backend_of(const struct backend *inner, uint32_t n);

#endif
