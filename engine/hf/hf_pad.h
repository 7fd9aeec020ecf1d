/* Extends tables with fewer rows than the vocabulary: the ids beyond them use row 0 [transformers 5,
 * Gemma3nTextModel.get_per_layer_inputs]. */
#ifndef INFCGI_HF_HF_PAD_H
#define INFCGI_HF_HF_PAD_H

#include "engine/hf/hf.h"

/* Gives the table `name` as many rows as token_embd.weight has; the added ones are row 0, made when they are read. Does
 * nothing if the table is long enough, quantised, absent, or of a shape that no builder takes. Call it when all tensors
 * are added. ERR_NOMEM. */
MUST_CHECK enum err hf_pad_table(struct hf *h, const char *name);

#endif
