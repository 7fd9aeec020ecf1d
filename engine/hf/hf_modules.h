/* How a folder's states become embeddings, from the files of sentence-transformers next to the model: modules.json
 * lists the pooling and the layers after it. Threads: pure functions. */
#ifndef INFCGI_HF_HF_MODULES_H
#define INFCGI_HF_HF_MODULES_H

#include "engine/hf/hf.h"

/* Adds pooling_type, and tensors dense_2, dense_3 .. of layers after the pooling, named as by llama.cpp, with their
 * keys. Without modules.json reads only 1_Pooling/config.json, if it exists. ERR_BAD_CONFIG names what is not
 * supported; errors of safetensors_folder_open and json_read_file, after the file's name; ERR_NOMEM. */
MUST_CHECK enum err hf_modules_add(struct hf *h);

/* Reads a JSON file of the folder. *out is NULL if it does not exist; else the caller calls json_decref. */
MUST_CHECK enum err hf_modules_read(const struct hf *h, const char *name, json_t **out);

#endif
