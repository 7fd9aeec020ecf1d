/* Joins the plans of a model and of a draft model, which guesses its tokens [Leviathan 2023, "Fast Inference from
 * Transformers via Speculative Decoding"], into one: the draft's steps become the plan's prediction head. So both have
 * the same pages, prefixes, snapshots and memory. */
#ifndef INFCGI_PLAN_PLAN_JOIN_H
#define INFCGI_PLAN_PLAN_JOIN_H

#include "engine/plan/plan.h"

/* Appends the draft's layers, weights, buffers and steps to p, except those of hidden rows. Both are checked plans
 * without a head; the draft must outlive p. Its vocabulary becomes that of p: tokens beyond p's are left out, and
 * missing ones are copies of its last, which no guess can be. Names of its weights and buffers begin with "draft.".
 *
 * Or the draft is a prediction head (model_build_head): a plan that begins with steps of the model, before i_predict. p
 * gets these steps in its layers. Each input step among them stands for the row that enters its layer, or, without a
 * layer, the row that leaves the last one, or with edge.is_last the row that p's logits are made of. Weights from the
 * same source as p's are p's. If the head's first layer is not 0, the layers before it are p's, and the head's layers can
 * read their keys and values.
 *
 * ERR_CONFIG, with the option draft-model: the draft has no logits, sees later rows, has recurrent states, latent
 * attention or experts of another form than p's, or p has a form that excludes a draft. ERR_NOMEM. On failure p can only
 * be freed. */
MUST_CHECK enum err plan_join(struct plan *p, const struct plan *draft, struct err_info *info);

#endif
