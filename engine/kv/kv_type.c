/* Names, sizes and element access of the KV types. */
#include "engine/kv/kv_type.h"

#include "engine/tensor/dtype.h"

#include <string.h>

static const char *const names[KV_TYPE_COUNT] = {"i16", "f16", "bf16", "q8_0", "q4_0"};

const char *kv_type_name(int type) { return type >= 0 && type < KV_TYPE_COUNT ? names[type] : NULL; }

static struct kv_side side_of(enum kv_type type, bool is_key, int d)
{
    static const uint32_t code_bits[KV_TYPE_COUNT] = {16, 16, 16, 8, 4};
    struct kv_side s = {.type = type};
    int width = is_key || kv_type_is_float(type) ? d : kv_value_width(d); /* components that a slot occupies */
    if (!kv_type_is_float(type)) {
        bool has_blocks = type == KV_TYPE_Q4_0 || (type == KV_TYPE_Q8_0 && is_key);
        s.block = has_blocks ? 32 : d;
        s.n_blocks = has_blocks ? (d + 31) / 32 : 1;
        width = type == KV_TYPE_Q4_0 && !is_key ? 32 * s.n_blocks : width;
    }
    s.scales = (uint32_t)(width * KV_PAGE_TOKENS) * code_bits[type] / 8;
    s.scales = (s.scales + 63) / 64 * 64;
    size_t scale_bytes = type == KV_TYPE_I16 ? sizeof(float) : sizeof(uint16_t);
    s.bytes = s.scales + (uint32_t)(s.n_blocks * KV_PAGE_TOKENS) * (uint32_t)scale_bytes;
    return s;
}

struct kv_layout kv_layout_of(enum kv_type k_type, enum kv_type v_type, int d, int d_value)
{
    struct kv_layout l = {
        .d = d, .d_value = d_value, .k = side_of(k_type, true, d), .v = side_of(v_type, false, d_value)};
    l.bytes = l.k.bytes + l.v.bytes;
    return l;
}

struct kv_layout kv_layout_of_latents(enum kv_type type, int d, int d_value)
{
    struct kv_layout l = {.d = d, .d_value = d_value, .is_latent = true};
    l.k = l.v = side_of(kv_type_is_float(type) ? type : KV_TYPE_F16, true, d);
    l.bytes = l.k.bytes;
    return l;
}

struct kv_layout kv_layout_for(enum kv_type k_type, enum kv_type v_type, int d, int d_value, bool is_latent)
{
    return is_latent ? kv_layout_of_latents(k_type, d, d_value) : kv_layout_of(k_type, v_type, d, d_value);
}

static float half_or_bf16(enum kv_type type, uint16_t bits)
{
    return type == KV_TYPE_F16 ? dtype_f16_to_f32(bits) : dtype_bf16_to_f32(bits);
}

/* Returns a code: pair number `pair`, first or second half. */
static int code_at(enum kv_type type, const unsigned char *side, size_t pair, int half)
{
    size_t at = 2 * pair + (size_t)half;
    if (type == KV_TYPE_I16) {
        return ((const int16_t *)(const void *)side)[at];
    }
    if (type == KV_TYPE_Q8_0) {
        return ((const int8_t *)side)[at];
    }
    return (half == 0 ? side[pair] & 15 : side[pair] >> 4) - 8;
}

static float scale_at(const struct kv_side *s, const unsigned char *side, int slot, int block)
{
    const unsigned char *scales = side + s->scales;
    return s->type == KV_TYPE_I16
               ? ((const float *)(const void *)scales)[slot]
               : dtype_f16_to_f32(((const uint16_t *)(const void *)scales)[block * KV_PAGE_TOKENS + slot]);
}

float kv_key_at(const struct kv_layout *l, const unsigned char *k_page, int slot, int j)
{
    if (kv_type_is_float(l->k.type)) {
        int at = l->is_latent ? kv_value_element(l->d, slot, j) : j * KV_PAGE_TOKENS + slot;
        return half_or_bf16(l->k.type, ((const uint16_t *)(const void *)k_page)[at]);
    }
    int code = code_at(l->k.type, k_page, (size_t)(j / 2 * KV_PAGE_TOKENS + slot), j % 2);
    return (float)code * scale_at(&l->k, k_page, slot, j / l->k.block);
}

float kv_value_at(const struct kv_layout *l, const unsigned char *v_page, int slot, int j)
{
    if (kv_type_is_float(l->v.type)) {
        int at = kv_value_element(kv_value_row(l), slot, j);
        return half_or_bf16(l->v.type, ((const uint16_t *)(const void *)v_page)[at]);
    }
    int code = l->v.type == KV_TYPE_Q4_0
                   ? code_at(KV_TYPE_Q4_0, v_page, (size_t)((slot * l->v.n_blocks + j / 32) * 16 + j % 16), j / 16 % 2)
                   : code_at(l->v.type, v_page, (size_t)kv_value_pair(l->d_value, slot % 16, j), slot / 16);
    return (float)code * scale_at(&l->v, v_page, slot, j / l->v.block);
}
