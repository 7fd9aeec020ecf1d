/* On-load quantisation (--quantize): float matrices become a narrower type when a back end loads them. Threads: as
 * plan.h. */
#ifndef INFCGI_PLAN_PLAN_QUANTIZE_H
#define INFCGI_PLAN_PLAN_QUANTIZE_H

#include "engine/plan/plan.h"

/* Returns the i-th type, such as "q8_0"; the first is "off": weights stay unchanged. NULL after the last. */
const char *plan_quantize_name(int i);

/* Gives every matrix of F32, F16 or BF16 a source that makes rows of `type`: Q8_0 by rounding, others by quantize.h.
 * Unchanged are vectors, matrices whose width is not a multiple of 32, routers of experts, and types that are already
 * narrow. Embedding and head become Q8_0 whatever the type, and so do matrices whose width is not a multiple of its
 * block. A weight that is not finite, or beyond a half, becomes NaN, which a back end detects. `read` of such a source
 * returns the file's weight, so ref does not round. ERR_CONFIG for unknown names, ERR_NOMEM. */
MUST_CHECK enum err plan_quantize(struct plan *p, const char *type, struct err_info *info);

#endif
