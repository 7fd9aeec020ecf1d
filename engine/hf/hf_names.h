/* Maps names of tensors between SafeTensors folders and GGUF files. Threads: pure functions. */
#ifndef INFCGI_HF_HF_NAMES_H
#define INFCGI_HF_HF_NAMES_H

#include "engine/hf/hf.h"

enum { HF_NAME_BYTES = 96 }; /* of a tensor in GGUF */

/* Returns the row for a tensor of a folder, from the family's table or the common one; number[2] gets the numbers that
 * {} stands for. NULL: unknown. */
const struct hf_name *hf_names_find(const struct hf_family *family, const char *name, uint32_t number[2]);

/* Returns whether `name` matches the pattern; number[2] gets the numbers that {} stands for. */
bool hf_names_fit(const char *pattern, const char *name, uint32_t number[2]);

/* Returns the name that the tensor has in a text-only model. */
const char *hf_names_in_text(const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* Writes `pattern` with {} replaced by the layer's number. */
void hf_names_write(const char *pattern, uint32_t layer, char out[HF_NAME_BYTES]);

/* Writes the name that a GGUF tensor has in folders of the family, with * for an expert's number. Returns false if the
 * tables do not know it. */
bool hf_names_back(const struct hf_family *family, const char *name, char out[HF_NAME_BYTES]);

#endif
