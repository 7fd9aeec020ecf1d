/* On-load quantisation: matrices of floats become a narrower type on their way into a back end (--quantize). Threads:
 * as plan.h. */
#ifndef INFCGI_PLAN_PLAN_QUANTIZE_H
#define INFCGI_PLAN_PLAN_QUANTIZE_H

#include "engine/plan/plan.h"

/* The i-th type, "q8_0", the first being "off": weights stay as they are; NULL beyond the last. */
const char *plan_quantize_name(int i);

/* Gives every matrix of F32, F16 or BF16 a source that makes rows of `type`: Q8_0 by rounding, others as quantize.h
 * does. Left alone: vectors, matrices whose width is no multiple of 32, routers of experts, and types that are narrow
 * already. Embedding and head become Q8_0 whatever the type, and so do matrices whose width is no multiple of its
 * block. A weight that is not finite, or beyond a half, becomes NaN, which a back end notices. What `read` of such a
 * source gives is the weight as the file has it, so ref does not round. ERR_CONFIG for names that are not known,
 * ERR_NOMEM. */
MUST_CHECK enum err plan_quantize(struct plan *p, const char *type, struct err_info *info);

#endif
