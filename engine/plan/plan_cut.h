/* Cuts a plan between layers, so that several back ends compute a model in sequence. All buffers that later steps read
 * cross a cut: the stream, and any others that a family keeps for its layers. One part outputs them as rows, and the
 * next part begins with these rows. Parts have no prediction head: its layer has no steps. */
#ifndef INFCGI_PLAN_PLAN_CUT_H
#define INFCGI_PLAN_PLAN_CUT_H

#include "engine/plan/plan.h"

/* Makes a plan of layers first .. last of p, 0 <= first <= last < plan_main_layers(p), checked as p is. It includes the steps before
 * layer 0 if first is 0, and the model's steps after its last layer if last is that layer. Layers keep their numbers, and tokens and
 * positions are those of the whole. The part has only its layers' weights, keys and values, and recurrent state.
 * output_width of a part is input_width of the next. p must outlive *out, which the caller frees with plan_free.
 * ERR_CONFIG names a layer that reads keys and values of one before the cut; ERR_NOMEM. */
MUST_CHECK enum err plan_cut(const struct plan *p, int32_t first, int32_t last, struct plan **out,
                             struct err_info *info);

#endif
