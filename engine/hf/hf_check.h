/* Values of config.json that contradict each other or the tensors, told in the words of config.json: the builders,
 * which would find most of them too, speak of the keys of GGUF. Threads: pure functions. */
#ifndef INFCGI_HF_HF_CHECK_H
#define INFCGI_HF_HF_CHECK_H

#include "engine/hf/hf.h"

/* To be called before anything is read: values that the family takes for granted. ERR_BAD_CONFIG names the key, the
 * wanted and the found value. */
MUST_CHECK enum err hf_check_values(const struct hf *h);

/* To be called when the keys and tensors that need no family's help are in h->b. ERR_BAD_CONFIG names the key, the
 * wanted and the found value. */
MUST_CHECK enum err hf_check(const struct hf *h);

/* Does config.json say that the output head is the embedding (tie_word_embeddings true, also outside text_config)? */
bool hf_says_tied(const struct hf *h);

#endif
