/* How a folder's states become one, as sentence-transformers describes it beside the model. Threads: pure functions. */
#ifndef INFCGI_HF_HF_POOLING_H
#define INFCGI_HF_HF_POOLING_H

#include "engine/hf/hf.h"

/* pooling_type from config.json in a folder within the model's. ERR_BAD_CONFIG names what is not supported, or the file
 * if it must be there and is not; otherwise as hf_modules_read. */
MUST_CHECK enum err hf_add_pooling(struct hf *h, const char *folder, bool must_be);

/* Was there one? */
bool hf_has_pooling(const struct hf *h);

#endif
