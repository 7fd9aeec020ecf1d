/* Selects the experts of a row, identically for every back end. Threads: pure function. */
#ifndef INFCGI_BACKEND_MOE_ROUTE_H
#define INFCGI_BACKEND_MOE_ROUTE_H

#include "engine/plan/plan.h"

/* Converts the router's logits[E] to route[2k]: k weights in the order of selection, best first, then the expert ids as
 * floats. `bias`, [E] or NULL, is added to the scores for the selection [DeepSeek-V3, 2.1.2]. `factors`, [E] or NULL,
 * multiply the final weights [Gemma 4]. NaNs are selected last; with a softmax one NaN makes every weight NaN. Ids are
 * always valid and distinct. */
void moe_route(const struct plan_moe *m, const float *logits, const float *bias, const float *factors, float *route);

#endif
