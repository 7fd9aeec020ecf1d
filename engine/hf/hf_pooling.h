/* How a folder's states are pooled, from the files of sentence-transformers next to the model. Threads: pure
 * functions. */
#ifndef INFCGI_HF_HF_POOLING_H
#define INFCGI_HF_HF_POOLING_H

#include "engine/hf/hf.h"

/* Adds pooling_type from config.json in a folder within the model's. ERR_BAD_CONFIG names what is not supported, or the
 * file if must_be is set and it does not exist; otherwise as hf_modules_read. */
MUST_CHECK enum err hf_add_pooling(struct hf *h, const char *folder, bool must_be);

/* Returns whether there was one. */
bool hf_has_pooling(const struct hf *h);

#endif
