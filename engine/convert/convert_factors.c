#include "engine/convert/convert_factors.h"

#include "engine/format/gguf_build.h"
#include "engine/quant/row_factored.h"

#include <stdio.h>

/* Reads the factors of t's matrices. */
static enum err read_factors(const struct gguf_tensor *t, float *out, struct err_info *info)
{
    uint32_t each = (uint32_t)t->dims[1];
    for (uint32_t row = 0; row < t->source->n_rows; row++) {
        float f = row_factored_at(t->source, row);
        out[row / each] = row % each == 0 ? f : out[row / each];
        if (f != out[row / each]) {
            return err_set(
                info, ERR_UNSUPPORTED_TYPE, NULL,
                "tensor '%.*s': expected one factor per matrix to copy NVFP4, found %g and %g in one; choose "
                "another --type",
                (int)t->name.len, t->name.data, (double)out[row / each], (double)f);
        }
    }
    return ERR_OK;
}

static enum err add_weight(struct gguf_build *b, const struct gguf_tensor *t, struct err_info *info)
{
    static const char end[] = "weight";
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    uint64_t n = t->dims[2] * t->dims[3];
    float *factors = arena_zalloc_array(&b->arena, (size_t)n, sizeof *factors);
    TRY_MEM_FOR(factors != NULL, info, "out of memory for the factors of a weight");
    TRY(read_factors(t, factors, info));
    struct gguf_tensor plain = *t, scale = {.type = DTYPE_F32, .n_dims = 1, .dims = {n, 1, 1, 1}, .data = factors};
    plain.type = DTYPE_NVFP4;
    plain.source = row_unfactored_new(&b->arena, t->source);
    TRY_MEM_FOR(plain.source != NULL, info, "out of memory for the directory of the model");
    plain.bytes = plain.source->row_bytes * plain.source->n_rows;
    gguf_build_tensor(b, NULL, &plain);
    scale.bytes = n * sizeof *factors;
    snprintf(name, sizeof name, "%.*sscale", (int)(t->name.len - (sizeof end - 1)), t->name.data);
    gguf_build_tensor(b, name, &scale);
    return ERR_OK;
}

enum err convert_factors_split(const struct gguf *g, struct gguf **out, struct err_info *info)
{
    struct gguf_build b;
    bool has_any = false;
    *out = NULL;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        has_any |= gguf_tensor_at(g, i)->type == DTYPE_NVFP4_SCALED;
    }
    if (!has_any) {
        return ERR_OK;
    }
    gguf_build_init(&b);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        gguf_build_copy(&b, gguf_kv_at(g, i));
    }
    enum err err = ERR_OK;
    for (size_t i = 0; i < gguf_n_tensors(g) && err == ERR_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->type == DTYPE_NVFP4_SCALED) {
            err = add_weight(&b, t, info);
        } else {
            gguf_build_tensor(&b, NULL, t);
        }
    }
    err = err != ERR_OK ? err : gguf_build_finish(&b, NULL, out, info);
    gguf_build_fini(&b);
    return err;
}
