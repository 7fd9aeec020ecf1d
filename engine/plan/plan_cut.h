/* A plan cut between layers, so that several back ends compute a model one behind the other. At a cut lie all buffers
 * that steps behind it read: the stream, and whatever else a family keeps for its layers. They are the rows that one
 * part gives and the next begins with. */
#ifndef INFCGI_PLAN_PLAN_CUT_H
#define INFCGI_PLAN_PLAN_CUT_H

#include "engine/plan/plan.h"

/* A plan of layers first .. last of p, 0 <= first <= last < L, checked as p is: with what stands in front of the first
 * layer if that is 0, and what stands behind the last if that is L - 1. Layers keep their numbers, tokens and positions
 * are those of the whole; it has the weights, keys and values, and recurrent state of its layers alone. output_width of
 * a part is input_width of the next. p must stay as long as *out, which plan_free frees.
 * ERR_CONFIG names a layer that reads keys and values of one in front of the cut; ERR_NOMEM. */
MUST_CHECK enum err plan_cut(const struct plan *p, int32_t first, int32_t last, struct plan **out,
                             struct err_info *info);

#endif
