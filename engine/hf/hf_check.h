/* Finds values of config.json that contradict each other or the tensors, and reports them in config.json's words.
 * Builders would find most of them too, but report the keys of GGUF. Threads: pure functions. */
#ifndef INFCGI_HF_HF_CHECK_H
#define INFCGI_HF_HF_CHECK_H

#include "engine/hf/hf.h"

/* Checks the values that the family assumes. Call it before anything is read. ERR_BAD_CONFIG names the key, the
 * expected and the found value. */
MUST_CHECK enum err hf_check_values(const struct hf *h);

/* Checks the rest. Call it when h->b has the keys and tensors that need no help of the family. ERR_BAD_CONFIG names the
 * key, the expected and the found value. */
MUST_CHECK enum err hf_check(const struct hf *h);

/* Returns whether config.json ties the output head to the embedding (tie_word_embeddings true, also outside
 * text_config). */
bool hf_says_tied(const struct hf *h);

#endif
