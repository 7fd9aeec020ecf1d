/* Names of tensors in SafeTensors folders and in GGUF files. Threads: pure functions. */
#ifndef INFCGI_HF_HF_NAMES_H
#define INFCGI_HF_HF_NAMES_H

#include "engine/hf/hf.h"

enum { HF_NAME_BYTES = 96 }; /* of a tensor here */

/* The row that knows a tensor of a folder, the family's own or everyone's; the numbers in place of {} go to number[2].
 * NULL: nobody knows it. */
const struct hf_name *hf_names_find(const struct hf_family *family, const char *name, uint32_t number[2]);

/* Does `name` fit the pattern? The numbers in place of {} go to number[2]. */
bool hf_names_fit(const char *pattern, const char *name, uint32_t number[2]);

/* The name as it would be in a model of text alone. */
const char *hf_names_in_text(const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* `pattern` with the layer's number in place of {}. */
void hf_names_write(const char *pattern, uint32_t layer, char out[HF_NAME_BYTES]);

/* The name a tensor of a GGUF file has in folders of the family, as far as the tables know, a * in place of an expert's
 * number; false: they do not. */
bool hf_names_back(const struct hf_family *family, const char *name, char out[HF_NAME_BYTES]);

#endif
