/* kv_store for every vector ISA: include after a vec_<isa>.h. Exact to ref/kv_store_ref.c: the same operations on the
 * same 16 interleaved sums. Vectors compute the codes; stores to a slot are single, because its elements are not
 * contiguous. */
#ifndef INFCGI_KERNELS_VEC_KV_STORE_VEC_H
#define INFCGI_KERNELS_VEC_KV_STORE_VEC_H

#include "engine/kernels/kern.h"

#include "engine/tensor/dtype.h"

#include <math.h>
#include <string.h>

/* The codes of one key or value, and the scales of its blocks. */
struct kv_codes {
    int32_t code[KERN_MAX_HEAD + 16];
    float scale[KERN_MAX_HEAD / 32];
};

static inline vec vec_saturate_half(vec v) { return vec_min(vec_set1(65504.0f), vec_max(vec_set1(-65504.0f), v)); }

/* Returns the scale of x[0..n), already clamped to +-65504; 0 if all codes are 0. */
static float kv_scale_of(enum kv_type type, bool is_key, const float *x, int n)
{
    vec low = vec_set1(0), high = vec_set1(0), sums[16 / VEC_LANES];
    for (int i = 0; i < 16 / VEC_LANES; i++) {
        sums[i] = vec_set1(0);
    }
    for (int j = 0; j < n; j += VEC_LANES) {
        vec v = vec_load_part(x + j, (size_t)(n - j));
        low = vec_min(v, low);
        high = vec_max(v, high);
        sums[j / VEC_LANES % (16 / VEC_LANES)] = vec_fma(v, v, sums[j / VEC_LANES % (16 / VEC_LANES)]);
    }
    float top = vec_max_lane(high), bottom = vec_max_lane(vec_sub(vec_set1(0), low));
    float largest = top > bottom ? top : bottom, scale = largest * (1.0f / KV_I16_VALUE);
    if (type == KV_TYPE_I16 && is_key) {
        float norm = sqrtf(vec_sum(VEC_LANES == 16 ? sums[0] : vec_add(sums[0], sums[16 / VEC_LANES - 1])));
        scale = fmaxf(norm * (1.0f / KV_I16_NORM), largest * (1.0f / KV_I16_KEY));
    } else if (type == KV_TYPE_Q8_0) {
        scale = dtype_f16_to_f32(dtype_f32_to_f16(largest * (1.0f / 127.0f)));
    } else if (type == KV_TYPE_Q4_0) {
        scale = dtype_f16_to_f32(dtype_f32_to_f16((top >= bottom ? top : -bottom) * -0.125f));
    }
    return fabsf(scale) < KV_SCALE_FLOOR ? 0 : scale;
}

/* Encodes x: d floats, followed by 16 that can be read and written. */
static void kv_encode(const struct kv_side *s, bool is_key, bool is_nan, const float *x, int d, struct kv_codes *out)
{
    enum kv_type type = s->type;
    int block = s->block;
    for (int j = is_nan ? 0 : d / VEC_LANES * VEC_LANES; j < s->n_blocks * s->block; j += VEC_LANES) {
        ivec_store(out->code + j, ivec_set1(0)); /* codes after d, or all */
    }
    for (int b = 0; b < s->n_blocks; b++) {
        const float *from = x + b * block;
        int n = MIN_OF(block, d - b * block);
        float scale = is_nan ? 0 : kv_scale_of(type, is_key, from, n);
        vec inverse = vec_set1(scale != 0 ? 1.0f / scale : 0);
        out->scale[b] = is_nan ? NAN : scale;
        for (int j = 0; j < n && !is_nan; j += VEC_LANES) {
            vec v = vec_mul(vec_load_part(from + j, (size_t)(n - j)), inverse);
            if (type == KV_TYPE_Q8_0) {
                v = vec_min(vec_set1(127), vec_max(vec_set1(-127), v));
            } else if (type == KV_TYPE_Q4_0) {
                v = vec_min(vec_set1(7), vec_max(vec_set1(-8), v));
            }
            ivec_store(out->code + b * block + j, vec_to_int(v));
        }
    }
}

static void kv_put_scales(const struct kv_side *s, const struct kv_codes *c, int slot, unsigned char *side)
{
    void *scales = side + s->scales;
    if (s->type == KV_TYPE_I16) {
        ((float *)scales)[slot] = c->scale[0];
        return;
    }
    for (int b = 0; b < s->n_blocks; b++) {
        ((uint16_t *)scales)[b * KV_PAGE_TOKENS + slot] = dtype_f32_to_f16(c->scale[b]);
    }
}

static void kv_put_key(const struct kv_layout *l, const struct kv_codes *c, int slot, unsigned char *side)
{
    for (int j = 0; j < l->d / 2; j++) {
        size_t pair = (size_t)(j * KV_PAGE_TOKENS + slot);
        uint32_t first = (uint32_t)c->code[2 * j], second = (uint32_t)c->code[2 * j + 1];
        if (l->k.type == KV_TYPE_I16) {
            uint32_t both = (first & 0xFFFF) | second << 16;
            memcpy(side + pair * sizeof both, &both, sizeof both);
        } else if (l->k.type == KV_TYPE_Q8_0) {
            uint16_t both = (uint16_t)((first & 0xFF) | second << 8);
            memcpy(side + pair * sizeof both, &both, sizeof both);
        } else {
            side[pair] = (unsigned char)((first + 8) | (second + 8) << 4);
        }
    }
}

static void kv_put_value(const struct kv_layout *l, const struct kv_codes *c, int slot, unsigned char *side)
{
    if (l->v.type == KV_TYPE_Q4_0) {
        for (int j = 0; j < l->v.n_blocks * 16; j++) {
            const int32_t *code = c->code + j / 16 * 32 + j % 16;
            side[slot * l->v.n_blocks * 16 + j] = (unsigned char)((code[0] + 8) | (code[16] + 8) << 4);
        }
        return;
    }
    for (int from = 0; from < l->d_value; from += 32) { /* a block is contiguous */
        size_t at = (size_t)kv_value_pair(l->d_value, slot % 16, from) * 2 + (size_t)(slot / 16);
        for (int j = from; j < MIN_OF(l->d_value, from + 32); j++, at += 2) {
            if (l->v.type == KV_TYPE_I16) {
                ((int16_t *)(void *)side)[at] = (int16_t)c->code[j];
            } else {
                ((int8_t *)side)[at] = (int8_t)c->code[j];
            }
        }
    }
}

/* Like dtype_f32_to_bf16, but x must not be infinite. */
static inline uint16_t kv_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(f != f ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void kv_put_floats(const struct kv_layout *l, const float *x, bool is_key, int slot, unsigned char *side)
{
    bool is_f16 = (is_key ? l->k.type : l->v.type) == KV_TYPE_F16;
    uint16_t bits[KERN_MAX_HEAD];
    int d = is_key ? l->d : l->d_value;
    for (int j = 0; j < d; j += VEC_LANES) {
        size_t n = (size_t)(d - j);
        for (size_t i = 0; !is_f16 && i < n && i < VEC_LANES; i++) {
            bits[j + (int)i] = kv_bf16(x[j + (int)i]);
        }
        if (is_f16) {
            vec_store_f16_part(bits + j, vec_load_part(x + j, n), n);
        }
    }
    uint16_t *to = (uint16_t *)(void *)side;
    bool is_across = is_key && !l->is_latent;
    for (int j = 0; is_across && j < d; j++) {
        to[j * KV_PAGE_TOKENS + slot] = bits[j];
    }
    for (int j = 0; !is_across && j < d; j += 32) {
        memcpy(to + kv_value_element(d, slot, j), bits + j, (size_t)MIN_OF(32, d - j) * sizeof *to);
    }
}

static void kv_put(const struct kv_layout *l, bool is_key, bool is_nan, const float *x, int slot, unsigned char *side)
{
    const struct kv_side *s = is_key ? &l->k : &l->v;
    struct kv_codes c;
    if (kv_type_is_float(s->type)) {
        kv_put_floats(l, x, is_key, slot, side);
        return;
    }
    kv_encode(s, is_key, is_nan, x, is_key ? l->d : l->d_value, &c);
    (is_key ? kv_put_key : kv_put_value)(l, &c, slot, side);
    kv_put_scales(s, &c, slot, side);
}

static void vec_kv_store(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                         unsigned char *v_page)
{
    float key[KERN_MAX_HEAD + 16], value[KERN_MAX_HEAD + 16];
    vec probe = vec_set1(0); /* NaN if any component is */
    v = l->is_latent ? k : v;
    for (int j = 0; j < l->d; j += VEC_LANES) {
        vec x = vec_saturate_half(vec_load_part(k + j, (size_t)(l->d - j)));
        probe = vec_fma(x, vec_set1(0), probe);
        vec_store(key + j, x);
    }
    for (int j = 0; j < l->d_value; j += VEC_LANES) {
        vec x = vec_saturate_half(vec_load_part(v + j, (size_t)(l->d_value - j)));
        probe = vec_fma(x, vec_set1(0), probe);
        vec_store(value + j, x);
    }
    bool is_nan = isnan(vec_sum(probe));
    key[0] = is_nan ? NAN : key[0];
    kv_put(l, true, is_nan, key, slot, k_page);
    if (!l->is_latent) {
        kv_put(l, false, is_nan, value, slot, v_page);
    }
}

#endif
