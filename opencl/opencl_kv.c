/* Keys and values in the memory of the device: types, placement, and the conversion of a page to floats and back, with
 * the bits that kernels/heads.cl stores. */
#include "opencl/opencl_internal.h"

#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"

#include <math.h>

enum kv_kind { KV_HALVES, KV_BYTES };

const char *opencl_kv_type_name(int i)
{
    static const char *const names[] = {[KV_HALVES] = "f16", [KV_BYTES] = "q8_0"};
    return i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

/* Reads the types of cfg, without regard to latents. */
static enum err choose(const struct backend_model *m, int *k, int *v, struct err_info *info)
{
    TRY(names_choose(opencl_kv_type_name, "cache-type-k", m->cfg.k_type, k, info));
    return names_choose(opencl_kv_type_name, "cache-type-v", m->cfg.v_type, v, info);
}

enum err opencl_kv_types(const struct backend_model *m, const char **k_type, const char **v_type, struct err_info *info)
{
    int k, v;
    bool is_latent = m->plan->latent_dim != 0;
    TRY(choose(m, &k, &v, info));
    *k_type = opencl_kv_type_name(is_latent ? KV_HALVES : k);
    *v_type = is_latent ? "none" : opencl_kv_type_name(v);
    return ERR_OK;
}

enum err opencl_kv_lay_out(struct backend_model *m, struct err_info *info)
{
    int k, v;
    TRY(choose(m, &k, &v, info));
    m->kvs = mem_zalloc_array(m->plan->n_layers, sizeof *m->kvs, MEM_MODEL);
    TRY_MEM_FOR(m->kvs != NULL, info, "out of memory for the table of layers");
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        struct plan_kv heads = plan_kv_of(m->plan, i);
        struct opencl_kv *kv = &m->kvs[i];
        *kv = (struct opencl_kv){.heads = heads, .keys = OPENCL_NONE, .values = OPENCL_NONE};
        if (heads.layer != i) {
            *kv = heads.layer != PLAN_NONE ? m->kvs[heads.layer] : *kv;
            continue;
        }
        bool is_latent = heads.latent_dim != 0;
        kv->is_local = backend_is_local(m->plan, &m->cfg, i);
        size_t n = (size_t)backend_n_pages(&m->cfg, kv->is_local), d = heads.head_dim;
        size_t halves = VALUE_STRIDE(d) * KV_PAGE_TOKENS * sizeof(uint16_t); /* per head and page */
        kv->k_is_bytes = k == KV_BYTES && !is_latent;
        kv->v_is_bytes = v == KV_BYTES && !is_latent;
        kv->key_bytes = heads.n_kv_heads * (kv->k_is_bytes ? KEY8_BYTES(d) : halves);
        kv->value_bytes = is_latent ? 0 : heads.n_kv_heads * (kv->v_is_bytes ? VALUE8_BYTES(d) : halves);
        *backend_page_bytes(&m->bytes, kv->is_local) += kv->key_bytes + kv->value_bytes;
        m->layer_bytes = MAX_OF(m->layer_bytes, kv->key_bytes + kv->value_bytes);
        TRY(vram_place(m->vram, VRAM_KV, kv->key_bytes * n, "the keys of a layer", &kv->keys, info));
        if (kv->value_bytes != 0) {
            TRY(vram_place(m->vram, VRAM_KV, kv->value_bytes * n, "the values of a layer", &kv->values, info));
        }
    }
    return ERR_OK;
}

/* --- a head's key or value of a slot as floats --------------------------------------------------------------------- */

static float to_half_range(float x) { return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; }

static void move_half(uint16_t *half, float *x, bool is_write)
{
    if (is_write) {
        *half = dtype_f32_to_f16(to_half_range(*x));
    } else {
        *x = dtype_f16_to_f32(*half);
    }
}

/* Returns the scale of x[n]; NaN if x has a NaN. */
static float scale_of(const float *x, uint32_t n)
{
    float largest = 0;
    for (uint32_t j = 0; j < n; j++) {
        float size = fabsf(to_half_range(x[j]));
        largest = isnan(size) || size > largest ? size : largest;
        if (isnan(largest)) {
            break;
        }
    }
    return dtype_f16_to_f32(dtype_f32_to_f16(largest * (1.0f / 127.0f)));
}

static int8_t code_of(float x, float scale)
{
    float code = scale > 0 ? rintf(to_half_range(x) * (1.0f / scale)) : 0;
    return (int8_t)fminf(127, fmaxf(-127, code));
}

/* Converts a key or (in one block of all components) a value: codes of a head's part of a page, and the scales after
 * them. */
static void move_bytes_of(int8_t *codes, uint16_t *scales, uint32_t slot, uint32_t d, bool is_key, float *x,
                          bool is_write)
{
    uint32_t block = is_key ? 32 : d;
    for (uint32_t first = 0; first < d; first += block) {
        uint32_t n = MIN_OF(block, d - first);
        uint16_t *at = &scales[first / block * KV_PAGE_TOKENS + slot];
        if (is_write) {
            *at = dtype_f32_to_f16(scale_of(x + first, n));
        }
        float scale = dtype_f16_to_f32(*at);
        for (uint32_t j = first; j < first + n; j++) {
            int8_t *code = &codes[is_key ? KEY8_AT(slot, j) : VALUE8_AT(d, slot, j)];
            if (is_write) {
                *code = code_of(x[j], scale);
            } else {
                x[j] = (float)*code * scale;
            }
        }
    }
}

float *opencl_kv_convert(const struct opencl_kv *kv, unsigned char *room, float *at, bool is_write)
{
    uint32_t d = kv->heads.head_dim, n = kv->heads.n_kv_heads;
    size_t units = VALUE_STRIDE(d) / 8;
    for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++) {
        for (uint32_t h = 0; h < n; h++, at += d) {
            unsigned char *part = room + kv->key_bytes / n * h;
            for (uint32_t j = 0; j < d && !kv->k_is_bytes; j++) {
                move_half((uint16_t *)(void *)part + (j / 8 * KV_PAGE_TOKENS + slot) * 8 + j % 8, &at[j], is_write);
            }
            if (kv->k_is_bytes) {
                move_bytes_of((int8_t *)part, (uint16_t *)(void *)(part + KEY8_CODES(d)), slot, d, true, at, is_write);
            }
        }
        for (uint32_t h = 0; h < n && kv->value_bytes != 0; h++, at += d) {
            unsigned char *part = room + kv->key_bytes + kv->value_bytes / n * h;
            for (uint32_t j = 0; j < d && !kv->v_is_bytes; j++) {
                move_half((uint16_t *)(void *)part + slot * units * 8 + j, &at[j], is_write);
            }
            if (kv->v_is_bytes) {
                move_bytes_of((int8_t *)part, (uint16_t *)(void *)(part + VALUE8_CODES(d)), slot, d, false, at,
                              is_write);
            }
        }
    }
    return at;
}
