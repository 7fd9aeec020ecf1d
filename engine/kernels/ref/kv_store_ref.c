/* Reference kv_store: stores one key and one value in their slot as kv_type.h defines. Other versions must store the
 * same bits, so sums have a fixed order and every step is one rounded f32 operation. */
#include "engine/kernels/isa.h"
#include "engine/kernels/kern.h"

#include "engine/tensor/dtype.h"

#include <math.h>
#include <string.h>

static float saturated(float f)
{
    const float largest = 65504.0f; /* largest half: an infinity in the cache would corrupt rows that must not see it */
    return f > largest ? largest : f < -largest ? -largest : f;
}

/* Returns the norm from sixteen interleaved sums, then by halves, in the order of the vector versions. */
static float norm_of(const float *x, int d)
{
    float sums[16] = {0};
    for (int j = 0; j < d; j++) {
        sums[j % 16] = fmaf(x[j], x[j], sums[j % 16]);
    }
    for (int n = 8; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            sums[i] += sums[i + n];
        }
    }
    return sqrtf(sums[0]);
}

/* Returns the scale of x[0..n), a whole vector (i16) or a block; 0 if all codes are 0. */
static float scale_of(enum kv_type type, bool is_key, const float *x, int n)
{
    float low = 0, high = 0;
    for (int j = 0; j < n; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    float largest = high > -low ? high : -low, scale = largest * (1.0f / KV_I16_VALUE);
    if (type == KV_TYPE_I16 && is_key) {
        float by_norm = norm_of(x, n) * (1.0f / KV_I16_NORM);
        scale = largest * (1.0f / KV_I16_KEY);
        scale = by_norm > scale ? by_norm : scale;
    } else if (type == KV_TYPE_Q8_0) {
        scale = dtype_f16_to_f32(dtype_f32_to_f16(largest * (1.0f / 127.0f)));
    } else if (type == KV_TYPE_Q4_0) {
        scale = dtype_f16_to_f32(dtype_f32_to_f16((high >= -low ? high : low) * -0.125f));
    }
    return fabsf(scale) < KV_SCALE_FLOOR ? 0 : scale;
}

static int code_of(enum kv_type type, float x, float inverse)
{
    float code = rintf(x * inverse);
    if (type == KV_TYPE_Q8_0) {
        code = fminf(127, fmaxf(-127, code));
    } else if (type == KV_TYPE_Q4_0) {
        code = fminf(7, fmaxf(-8, code));
    }
    return (int)code;
}

static void put_scale(const struct kv_side *s, unsigned char *side, int slot, int block, float scale)
{
    unsigned char *scales = side + s->scales;
    if (s->type == KV_TYPE_I16) {
        ((float *)(void *)scales)[slot] = scale;
    } else {
        ((uint16_t *)(void *)scales)[block * KV_PAGE_TOKENS + slot] = dtype_f32_to_f16(scale);
    }
}

/* Writes two adjacent codes of a slot, from pair `pair` on. */
static void put_pair(enum kv_type type, unsigned char *side, size_t pair, int first, int second)
{
    if (type == KV_TYPE_I16) {
        ((int16_t *)(void *)side)[2 * pair] = (int16_t)first;
        ((int16_t *)(void *)side)[2 * pair + 1] = (int16_t)second;
    } else if (type == KV_TYPE_Q8_0) {
        ((int8_t *)side)[2 * pair] = (int8_t)first;
        ((int8_t *)side)[2 * pair + 1] = (int8_t)second;
    } else {
        side[pair] = (unsigned char)((first + 8) | (second + 8) << 4);
    }
}

static void put_key(const struct kv_layout *l, const int *codes, int slot, unsigned char *side)
{
    for (int j = 0; j < l->d; j += 2) {
        put_pair(l->k.type, side, (size_t)(j / 2 * KV_PAGE_TOKENS + slot), codes[j], codes[j + 1]);
    }
}

static void put_value(const struct kv_layout *l, const int *codes, int slot, unsigned char *side)
{
    if (l->v.type == KV_TYPE_Q4_0) {
        for (int j = 0; j < 32 * l->v.n_blocks; j += j % 32 == 15 ? 17 : 1) {
            size_t pair = (size_t)((slot * l->v.n_blocks + j / 32) * 16 + j % 16);
            put_pair(KV_TYPE_Q4_0, side, pair, codes[j], codes[j + 16]);
        }
        return;
    }
    for (int j = 0; j < l->d_value; j++) {
        size_t at = (size_t)kv_value_pair(l->d_value, slot % 16, j) * 2 + (size_t)(slot / 16);
        if (l->v.type == KV_TYPE_I16) {
            ((int16_t *)(void *)side)[at] = (int16_t)codes[j];
        } else {
            ((int8_t *)side)[at] = (int8_t)codes[j];
        }
    }
}

static void store_integers(const struct kv_layout *l, const float *x, bool is_key, bool is_nan, int slot,
                           unsigned char *side)
{
    const struct kv_side *s = is_key ? &l->k : &l->v;
    int codes[KERN_MAX_HEAD] = {0}, block = s->block, d = is_key ? l->d : l->d_value;
    for (int b = 0; b < s->n_blocks; b++) {
        int n = MIN_OF(block, d - b * block);
        float scale = is_nan ? 0 : scale_of(s->type, is_key, x + b * block, n), inverse = scale != 0 ? 1.0f / scale : 0;
        for (int j = b * block; j < b * block + n; j++) {
            codes[j] = is_nan ? 0 : code_of(s->type, x[j], inverse);
        }
        put_scale(s, side, slot, b, is_nan ? NAN : scale);
    }
    (is_key ? put_key : put_value)(l, codes, slot, side);
}

static void store_floats(const struct kv_layout *l, const float *x, bool is_key, int slot, unsigned char *side)
{
    enum kv_type type = is_key ? l->k.type : l->v.type;
    int d = is_key ? l->d : l->d_value;
    for (int j = 0; j < d; j++) {
        bool is_across = is_key && !l->is_latent;
        uint16_t *to =
            (uint16_t *)(void *)side + (is_across ? j * KV_PAGE_TOKENS + slot : kv_value_element(d, slot, j));
        *to = type == KV_TYPE_F16 ? dtype_f32_to_f16(x[j]) : dtype_f32_to_bf16(x[j]);
    }
}

void kern_kv_store_ref(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                       unsigned char *v_page)
{
    float key[KERN_MAX_HEAD] = {0}, value[KERN_MAX_HEAD] = {0};
    bool is_nan = false;
    v = l->is_latent ? k : v;
    for (int j = 0; j < l->d; j++) {
        key[j] = saturated(k[j]);
        is_nan = is_nan || isnan(k[j]);
    }
    for (int j = 0; j < l->d_value; j++) {
        value[j] = saturated(v[j]);
        is_nan = is_nan || isnan(v[j]);
    }
    key[0] = is_nan ? NAN : key[0];
    if (kv_type_is_float(l->k.type)) {
        store_floats(l, key, true, slot, k_page);
    } else {
        store_integers(l, key, true, is_nan, slot, k_page);
    }
    if (l->is_latent) {
        return;
    }
    if (kv_type_is_float(l->v.type)) {
        store_floats(l, value, false, slot, v_page);
    } else {
        store_integers(l, value, false, is_nan, slot, v_page);
    }
}
