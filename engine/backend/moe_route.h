/* Which experts a row goes to, the same for every back end. Threads: pure function. */
#ifndef INFCGI_BACKEND_MOE_ROUTE_H
#define INFCGI_BACKEND_MOE_ROUTE_H

#include "engine/plan/plan.h"

/* From the router's logits[E] to route[2k]: k weights in the order the experts were picked, best first, then their ids
 * as floats. `bias`, [E] or NULL, is added to the scores for the picking [DeepSeek-V3, 2.1.2]; `factors`, [E] or
 * NULL, multiply the weights at last [Gemma 4]. NaNs are picked last; with a softmax one makes every weight NaN. Ids
 * are always valid and differ. */
void moe_route(const struct plan_moe *m, const float *logits, const float *bias, const float *factors, float *route);

#endif
