/* What keys and tensors of GGUF are called in the folder that they were made from, so that errors about them, which
 * builders find and tell in GGUF's words, are told in config.json's. Threads: read-only once the folder is open. */
#ifndef INFCGI_HF_HF_WORDS_H
#define INFCGI_HF_HF_WORDS_H

#include "engine/hf/hf.h"

/* Begins the list, in h's arena. Out of memory is h->b's. */
void hf_words_init(struct hf *h);

/* The key "<arch>.<gguf>" comes from the value `json` of config.json, whether or not that is there. */
void hf_words_add(struct hf *h, const char *gguf, const char *json);

/* The value it comes from, or NULL. */
const char *hf_words_find(const struct hf *h, const char *gguf);

/* The last thing to do: h->tensors live as long as the model. */
void hf_words_done(struct hf *h);

#endif
