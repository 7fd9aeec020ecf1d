/* Storage of index keys. */
#include "engine/kv/index_keys.h"

#include "engine/tensor/dtype.h"

enum { LANES = 16 };

struct index_keys index_keys_of(const struct kv_layout *latents, int d)
{
    return (struct index_keys){
        .type = latents->k.type, .d = d, .bytes = (uint32_t)(d * KV_PAGE_TOKENS) * (uint32_t)sizeof(uint16_t)};
}

static int element(const struct index_keys *x, int slot, int j)
{
    return slot / LANES * x->d * LANES + j * LANES + slot % LANES;
}

void index_keys_store(const struct index_keys *x, const float *key, int slot, unsigned char *keys)
{
    uint16_t *to = (uint16_t *)(void *)keys;
    for (int j = 0; j < x->d; j++) {
        float v = key[j] > 65504.0f ? 65504.0f : key[j] < -65504.0f ? -65504.0f : key[j];
        to[element(x, slot, j)] = x->type == KV_TYPE_F16 ? dtype_f32_to_f16(v) : dtype_f32_to_bf16(v);
    }
}

float index_keys_at(const struct index_keys *x, const unsigned char *keys, int slot, int j)
{
    uint16_t bits = ((const uint16_t *)(const void *)keys)[element(x, slot, j)];
    return x->type == KV_TYPE_F16 ? dtype_f16_to_f32(bits) : dtype_bf16_to_f32(bits);
}
