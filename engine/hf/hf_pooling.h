/* How a folder's states become embeddings, as sentence-transformers describes it beside the model. Threads: pure
 * functions. */
#ifndef INFCGI_HF_HF_POOLING_H
#define INFCGI_HF_HF_POOLING_H

#include "engine/hf/hf.h"

/* pooling_type from 1_Pooling/config.json, when there is one. ERR_BAD_CONFIG names what is not supported. */
MUST_CHECK enum err hf_add_pooling(struct hf *h);

/* Was there one? */
bool hf_has_pooling(const struct hf *h);

#endif
