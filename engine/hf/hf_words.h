/* Maps keys and tensors of GGUF to their names in the folder, so that builders' errors, in GGUF's words, reach the user
 * in config.json's. Threads: read-only once the folder is open. */
#ifndef INFCGI_HF_HF_WORDS_H
#define INFCGI_HF_HF_WORDS_H

#include "engine/hf/hf.h"

/* Begins the list, in h's arena. If memory is out, h->b records it. */
void hf_words_init(struct hf *h);

/* Records that the key "<arch>.<gguf>" comes from the value `json` of config.json, whether or not that exists. */
void hf_words_add(struct hf *h, const char *gguf, const char *json);

/* Returns the value it comes from, or NULL. */
const char *hf_words_find(const struct hf *h, const char *gguf);

/* Ends the list; call it last. h->tensors live as long as the model. */
void hf_words_done(struct hf *h);

#endif
