/* Factors of NVFP4 weights: the F32 tensor "X.scale", one element or one per expert, multiplies "X.weight" [llama.cpp
 * b11434, src/llama-model.cpp]. */
#include "engine/format/gguf_internal.h"
#include "engine/quant/row_factored.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the tensor with the factors of t, or NULL. */
static const struct gguf_tensor *find_scale(const struct gguf *g, const struct gguf_tensor *t)
{
    static const char end[] = "weight";
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    if (t->type != DTYPE_NVFP4 || !gguf_str_ends(t->name, ".weight")) {
        return NULL;
    }
    snprintf(name, sizeof name, "%.*sscale", (int)(t->name.len - (sizeof end - 1)), t->name.data);
    return gguf_find_tensor(g, name);
}

static enum err check_scale(const struct gguf_tensor *scale, const struct gguf_tensor *t, struct err_info *info)
{
    uint64_t n = scale->dims[0], n_matrices = t->dims[2] * t->dims[3];
    if (scale->type != DTYPE_F32) {
        return err_set(info, ERR_UNSUPPORTED_TYPE, NULL, "tensor '%.*s': expected F32, found %s", (int)scale->name.len,
                       scale->name.data, dtype_info(scale->type)->name);
    }
    if (scale->dims[1] != 1 || scale->dims[2] != 1 || scale->dims[3] != 1 || (n != 1 && n != n_matrices)) {
        return err_set(info, ERR_BAD_SHAPE, NULL,
                       "tensor '%.*s': expected 1 element, or %" PRIu64 " for each matrix of '%.*s', found %" PRIu64
                       " and further dimensions %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                       (int)scale->name.len, scale->name.data, n_matrices, (int)t->name.len, t->name.data, n,
                       scale->dims[1], scale->dims[2], scale->dims[3]);
    }
    const float *factors = (const float *)scale->data;
    for (uint64_t i = 0; i < n; i++) {
        float size = fabsf(factors[i]);
        if (size != 0 && !(size >= ROW_FACTORED_LEAST && size <= ROW_FACTORED_MOST)) {
            return err_set(info, ERR_BAD_HPARAM, NULL,
                           "tensor '%.*s': expected 0 or sizes from 2^-22 to 2^8, found %g in element %" PRIu64,
                           (int)scale->name.len, scale->name.data, (double)factors[i], i);
        }
    }
    return ERR_OK;
}

/* Gives t the rows that its factors multiply. */
static enum err join(struct gguf *g, struct gguf_tensor *t, const struct gguf_tensor *scale, struct err_info *info)
{
    TRY(check_scale(scale, t, info));
    if (t->source->n_in != t->dims[0] || t->source->n_rows / t->dims[3] / t->dims[2] != t->dims[1]) {
        return ERR_OK; /* too large for rows; readers reject it */
    }
    uint64_t each = scale->dims[0] == 1 ? t->source->n_rows : t->dims[1];
    t->source = row_factored_new(&g->arena, t->source, scale->data, (uint32_t)each);
    TRY_MEM_FOR(t->source != NULL, info, "out of memory for the directory of the model file");
    t->type = t->source->type;
    t->data = NULL;
    return ERR_OK;
}

enum err gguf_join_scales(struct gguf *g, struct err_info *info)
{
    bool has_any = false;
    for (size_t i = 0; i < g->n_tensors; i++) {
        has_any |= g->tensors[i].type == DTYPE_NVFP4;
    }
    if (!has_any) {
        return ERR_OK;
    }
    bool *is_joined = mem_zalloc_array(g->n_tensors + 1, sizeof *is_joined, MEM_MODEL);
    TRY_MEM_FOR(is_joined != NULL, info, "out of memory for %zu tensors", g->n_tensors);
    enum err err = ERR_OK;
    size_t n_joined = 0;
    arena_init(&g->arena, 4096, 0, MEM_MODEL);
    for (size_t i = 0; i < g->n_tensors && err == ERR_OK; i++) {
        const struct gguf_tensor *scale = find_scale(g, &g->tensors[i]);
        if (scale != NULL) {
            n_joined++;
            is_joined[scale - g->tensors] = true;
            err = join(g, &g->tensors[i], scale, info);
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < g->n_tensors && n_joined > 0 && err == ERR_OK; i++) {
        g->tensors[n] = g->tensors[i];
        n += !is_joined[i];
    }
    if (n_joined > 0 && err == ERR_OK) {
        g->n_tensors = n;
        (void)gguf_index_tensors(g); /* the names were different before */
    }
    mem_free(is_joined);
    return err;
}
