/* Which type each tensor of a converted model gets: the rules of llama.cpp's llama-quantize, in its plain and its _M
 * mixes [b11434, src/llama-quant.cpp]. Threads: constant data and pure functions. */
#ifndef INFCGI_CONVERT_CONVERT_TYPE_H
#define INFCGI_CONVERT_CONVERT_TYPE_H

#include "engine/format/gguf.h"

struct convert_type {
    const char *name;   /* "q4_k_m", of --type */
    enum dtype type;    /* of most weights */
    enum dtype head;    /* of the output matrix, and of token embeddings that stand for it */
    enum dtype more;    /* of the tensors that feel errors most; == type where there is no mix */
    bool copies;        /* types stay as they are */
    uint32_t file_type; /* general.file_type */
};

/* i-th row of the table; NULL beyond the last. */
const struct convert_type *convert_type_at(int i);
const char *convert_type_name(int i);
const struct convert_type *convert_type_find(const char *name); /* NULL: no such type */

/* What is common to all tensors of a model. */
struct convert_type_model {
    bool is_folder; /* SafeTensors: small tensors of 16 bits become F32, as everywhere in GGUF */
    bool is_tied;   /* no output.weight */
    uint64_t n_layers;
};

/* Is t one row, and no more? Files write vectors with trailing dimensions of 1, too. */
bool convert_is_vector(const struct gguf_tensor *t);

/* The type of t in the new file. */
enum dtype convert_type_of(const struct convert_type *wanted, const struct convert_type_model *m,
                           const struct gguf_tensor *t);

#endif
