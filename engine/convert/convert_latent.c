#include "engine/convert/convert_latent.h"

#include "engine/format/gguf_build.h"
#include "engine/tensor/row_order.h"
#include "engine/tensor/row_turned.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = GGUF_MAX_TENSOR_NAME_BYTES + 1, MAX_SIZE = 1 << 16 };

static const char whole_suffix[] = ".attn_kv_b.weight";

/* Sizes of a head. */
struct sizes {
    char arch[65];
    uint64_t nope, value, rope;
};

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool is_whole(const struct gguf_tensor *t)
{
    return gguf_str_ends(t->name, whole_suffix) && t->dims[2] == 1 && t->dims[3] == 1;
}

static void name_part(const struct gguf_tensor *t, const char *suffix, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%.*s%s", (int)(t->name.len - (sizeof whole_suffix - 1)), t->name.data, suffix);
}

/* Returns n rows of each head from `first` on; NULL if memory is out. */
static const struct row_source *take_heads(struct gguf_build *b, const struct gguf_tensor *t, const struct sizes *z,
                                           uint64_t first, uint64_t n)
{
    uint64_t all = z->nope + z->value, n_heads = t->dims[1] / all;
    uint32_t *rows = arena_alloc(&b->arena, (size_t)n_heads * sizeof *rows);
    for (uint64_t h = 0; rows != NULL && h < n_heads; h++) {
        rows[h] = (uint32_t)(h * all + first);
    }
    return row_order_rows(&b->arena, t->source, rows, (uint32_t)n_heads, (uint32_t)n);
}

static void add_heads(struct gguf_build *b, const struct gguf_tensor *t, const struct sizes *z)
{
    char name[NAME_BYTES];
    struct gguf_tensor keys = {.n_dims = 0}, values = {.n_dims = 0};
    uint64_t n_heads = t->dims[1] / (z->nope + z->value);
    const struct row_source *rows = take_heads(b, t, z, 0, z->nope);
    enum dtype type = t->data != NULL ? t->type : DTYPE_BF16;
    gguf_build_rows(b, &keys, row_turned_new(&b->arena, rows, (uint32_t)z->nope, type), n_heads);
    name_part(t, ".attn_k_b.weight", name);
    gguf_build_tensor(b, name, &keys);
    gguf_build_rows(b, &values, take_heads(b, t, z, z->nope, z->value), n_heads);
    name_part(t, ".attn_v_b.weight", name);
    gguf_build_tensor(b, name, &values);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Finds the heads' sizes; all 0 if g has no such tensors, or they are in blocks. */
static enum err find_sizes(const struct gguf *g, struct sizes *z, struct err_info *info)
{
    struct gguf_str arch;
    char key[128];
    uint64_t key_length;
    *z = (struct sizes){.nope = 0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool is_float = t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16;
        if (is_whole(t) && t->data != NULL && !is_float) {
            return ERR_OK;
        }
    }
    TRY(gguf_get_str_or_null(g, "general.architecture", &arch, info));
    snprintf(z->arch, sizeof z->arch, "%.*s", (int)MIN_OF(arch.len, sizeof z->arch - 1), arch.len > 0 ? arch.data : "");
    snprintf(key, sizeof key, "%s.attention.key_length_mla", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &key_length, info));
    snprintf(key, sizeof key, "%s.attention.value_length_mla", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &z->value, info));
    snprintf(key, sizeof key, "%s.rope.dimension_count", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &z->rope, info));
    bool ok = key_length > z->rope && key_length <= MAX_SIZE && z->value > 0 && z->value <= MAX_SIZE;
    z->nope = ok ? key_length - z->rope : 0;
    return ERR_OK;
}

/* One latent represents all heads' keys and values. */
static void put_keys(struct gguf_build *b, const struct gguf *g, const struct sizes *z, uint64_t n_latent)
{
    static const char *const names[] = {"attention.head_count_kv", "attention.key_length", "attention.value_length"};
    const uint64_t values[] = {1, n_latent + z->rope, n_latent};
    char mine[ARRAY_LEN(names)][128];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(mine[i], sizeof mine[i], "%s.%s", z->arch, names[i]);
        const struct gguf_kv *kv = gguf_find(g, mine[i]);
        if (kv != NULL && kv->type == GGUF_ARRAY) { /* 0 or 1 for each layer already */
            gguf_build_copy(b, kv);
        } else {
            gguf_build_u32(b, mine[i], (uint32_t)values[i]);
        }
    }
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (!gguf_str_is(kv->key, mine[0]) && !gguf_str_is(kv->key, mine[1]) && !gguf_str_is(kv->key, mine[2])) {
            gguf_build_copy(b, kv);
        }
    }
}

enum err convert_latent_split(const struct gguf *g, struct gguf **out, struct err_info *info)
{
    struct sizes z;
    struct gguf_build b;
    uint64_t n_latent = 0;
    *out = NULL;
    TRY(find_sizes(g, &z, info));
    for (size_t i = 0; z.nope != 0 && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (is_whole(t) && (t->dims[1] % (z.nope + z.value) != 0 || t->dims[1] > UINT32_MAX)) {
            return err_set(info, ERR_BAD_TENSOR_SHAPE, NULL,
                           "tensor '%.*s': expected a multiple of %" PRIu64 " rows, found %" PRIu64, (int)t->name.len,
                           t->name.data, z.nope + z.value, t->dims[1]);
        }
        n_latent = is_whole(t) ? t->dims[0] : n_latent;
    }
    if (n_latent == 0) {
        return ERR_OK;
    }
    gguf_build_init(&b);
    put_keys(&b, g, &z, n_latent);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!is_whole(t)) {
            gguf_build_tensor(&b, NULL, t);
        } else {
            add_heads(&b, t, &z);
        }
    }
    return gguf_build_finish(&b, NULL, out, info);
}
