/* The type of each tensor of a converted model: the rules of llama.cpp's llama-quantize, for its plain and its _M mixes
 * [b11434, src/llama-quant.cpp]. Threads: constant data and pure functions. */
#ifndef INFCGI_CONVERT_CONVERT_TYPE_H
#define INFCGI_CONVERT_CONVERT_TYPE_H

#include "engine/format/gguf.h"

struct convert_type {
    const char *name;   /* "q4_k_m", of --type */
    enum dtype type;    /* of most weights */
    enum dtype head;    /* of the output matrix, and of token embeddings that replace it */
    enum dtype more;    /* of the tensors most sensitive to errors; == type if there is no mix */
    bool copies;        /* keeps all types */
    uint32_t file_type; /* general.file_type */
};

/* Returns the i-th row of the table; NULL after the last. */
const struct convert_type *convert_type_at(int i);
const char *convert_type_name(int i);
const struct convert_type *convert_type_find(const char *name); /* NULL: no such type */

/* Facts about the model that apply to all its tensors. */
struct convert_type_model {
    bool is_folder; /* SafeTensors: small 16-bit tensors become F32, as everywhere in GGUF */
    bool is_tied;   /* no output.weight */
    uint64_t n_layers;
};

/* Returns whether t has only one row. Files also write vectors with trailing dimensions of 1. */
bool convert_is_vector(const struct gguf_tensor *t);

/* Returns the type of t in the new file. */
enum dtype convert_type_of(const struct convert_type *wanted, const struct convert_type_model *m,
                           const struct gguf_tensor *t);

#endif
