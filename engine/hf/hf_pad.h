/* Tables of fewer rows than the vocabulary, whose ids beyond them take row 0 [transformers 5,
 * Gemma3nTextModel.get_per_layer_inputs]. */
#ifndef INFCGI_HF_HF_PAD_H
#define INFCGI_HF_HF_PAD_H

#include "engine/hf/hf.h"

/* Gives the table `name` as many rows as token_embd.weight has, those behind its own with row 0 in them, made when they
 * are read. A table that has them, that is quantised, or whose shape no builder takes, stays as it is; one that is not
 * there too. Call when all tensors are added. ERR_NOMEM. */
MUST_CHECK enum err hf_pad_table(struct hf *h, const char *name);

#endif
