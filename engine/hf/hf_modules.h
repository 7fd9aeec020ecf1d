/* How a folder's states become embeddings, as sentence-transformers describes it beside the model: modules.json, which
 * lists the pooling and what stands behind it. Threads: pure functions. */
#ifndef INFCGI_HF_HF_MODULES_H
#define INFCGI_HF_HF_MODULES_H

#include "engine/hf/hf.h"

/* pooling_type, and tensors dense_2, dense_3 .. of layers behind the pooling, as llama.cpp names them, with their keys; a
 * folder without modules.json has 1_Pooling/config.json at most. ERR_BAD_CONFIG names what is not supported; what
 * safetensors_folder_open and json_read_file give, behind the file's name; ERR_NOMEM. */
MUST_CHECK enum err hf_modules_add(struct hf *h);

/* The JSON file of that name in the folder; *out NULL when there is none, else json_decref is the caller's. */
MUST_CHECK enum err hf_modules_read(const struct hf *h, const char *name, json_t **out);

#endif
