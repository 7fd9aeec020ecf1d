#include "engine/convert/convert_type.h"

#include "engine/base/names.h"

#include <string.h>

/* general.file_type: enum llama_ftype, include/llama.h. A file with one K type except for its head is an _S. */
static const struct convert_type types[] = {
    {"copy", DTYPE_F32, DTYPE_F32, DTYPE_F32, true, 0},        {"f32", DTYPE_F32, DTYPE_F32, DTYPE_F32, false, 0},
    {"f16", DTYPE_F16, DTYPE_F16, DTYPE_F16, false, 1},        {"bf16", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, false, 32},
    {"q8_0", DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, false, 7},    {"q6_k", DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q6_K, false, 18},
    {"q5_k_m", DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q6_K, false, 17}, {"q5_k", DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q5_K, false, 16},
    {"q5_1", DTYPE_Q5_1, DTYPE_Q6_K, DTYPE_Q5_1, false, 9},    {"q5_0", DTYPE_Q5_0, DTYPE_Q6_K, DTYPE_Q5_0, false, 8},
    {"q4_k_m", DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q6_K, false, 15}, {"q4_k", DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q4_K, false, 14},
    {"q4_1", DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_Q4_1, false, 3},    {"q4_0", DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_Q4_0, false, 2},
};

const struct convert_type *convert_type_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(types) ? &types[i] : NULL; }

const char *convert_type_name(int i) { return convert_type_at(i) != NULL ? types[i].name : NULL; }

const struct convert_type *convert_type_find(const char *name)
{
    return convert_type_at(names_find(convert_type_name, name));
}

static bool holds(struct gguf_str name, const char *part)
{
    return memmem(name.data, name.len, part, strlen(part)) != NULL;
}

static bool holds_one_of(struct gguf_str name, const char *const *parts)
{
    for (; *parts != NULL; parts++) {
        if (holds(name, *parts)) {
            return true;
        }
    }
    return false;
}

bool convert_is_vector(const struct gguf_tensor *t) { return t->dims[1] == 1 && t->dims[2] == 1 && t->dims[3] == 1; }

/* Small tensors that need full precision: every converter writes them as F32. */
static bool is_fine(const struct gguf_tensor *t)
{
    static const char *const fine[] = {"_norm.weight",  "ffn_gate_inp",       "ssm_conv1d", "shortconv.conv.weight",
                                       "position_embd", "token_types.weight", NULL};
    return convert_is_vector(t) || holds_one_of(t->name, fine);
}

/* Is t a weight matrix, or a stack of weight matrices? */
static bool is_weight(const struct gguf_tensor *t)
{
    static const char *const others[] = {"altup",      "laurel", "per_layer_model_proj", "ffn_gate_tid2eid",
                                         "attn_rel_b", NULL};
    return gguf_str_ends(t->name, "weight") && !is_fine(t) && !holds_one_of(t->name, others) && t->type != DTYPE_I8 &&
           t->type != DTYPE_I16 && t->type != DTYPE_I32 && t->type != DTYPE_I64 && t->type != DTYPE_F64;
}

/* Returns the layer in the name, 7 for "blk.7." and "enc.blk.7."; 0 if there is none. */
static uint64_t layer_of(struct gguf_str name)
{
    uint64_t layer = 0;
    if (name.len > 4 && memcmp(name.data, "enc.", 4) == 0) {
        name = (struct gguf_str){name.data + 4, name.len - 4};
    }
    for (size_t i = 4; name.len > 4 && memcmp(name.data, "blk.", 4) == 0 && i < name.len && i < 10; i++) {
        if (name.data[i] < '0' || name.data[i] > '9') {
            break;
        }
        layer = layer * 10 + (uint64_t)(name.data[i] - '0');
    }
    return layer;
}

/* Does a tensor among the most sensitive get the larger type? Those of the first and last eighth of the layers and of
 * every third layer between do. */
static bool gets_more(const struct convert_type_model *m, const struct gguf_tensor *t)
{
    uint64_t layer = layer_of(t->name), eighth = m->n_layers / 8;
    bool is_layer = layer < eighth || layer >= 7 * m->n_layers / 8 || (layer - eighth) % 3 == 2;
    return is_layer && (holds(t->name, "attn_v.weight") || holds(t->name, "ffn_down"));
}

/* If rows are not a multiple of a block's length, returns a type of the same kind with smaller blocks. */
static enum dtype fit(enum dtype type, uint64_t n)
{
    if (n % dtype_info(type)->block_elems == 0) {
        return type;
    }
    enum dtype small = DTYPE_Q8_0;
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        small = type == DTYPE_Q4_K ? DTYPE_Q5_0 : DTYPE_Q5_1;
    }
    return n % dtype_info(small)->block_elems == 0 ? small : DTYPE_F16;
}

enum dtype convert_type_of(const struct convert_type *wanted, const struct convert_type_model *m,
                           const struct gguf_tensor *t)
{
    bool is_half = t->type == DTYPE_F16 || t->type == DTYPE_BF16;
    if (m->is_folder && is_half && is_fine(t)) {
        return DTYPE_F32;
    }
    if (wanted->copies || !is_weight(t)) {
        return t->type;
    }
    enum dtype type = wanted->type;
    bool is_head = gguf_str_is(t->name, "output.weight") || (m->is_tied && gguf_str_is(t->name, "token_embd.weight"));
    bool is_mix = wanted->more != wanted->type;
    if (is_head) {
        type = wanted->head;
    } else if (is_mix && holds(t->name, "attn_qkv.weight")) {
        type = wanted->type == DTYPE_Q4_K ? DTYPE_Q5_K : DTYPE_Q6_K;
    } else if (is_mix && gets_more(m, t)) {
        type = wanted->more;
    }
    return fit(type, t->dims[0]);
}
