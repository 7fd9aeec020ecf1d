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
        *kv = (struct opencl_kv){.heads = heads};
        if (heads.layer != i) {
            *kv = heads.layer != PLAN_NONE ? m->kvs[heads.layer] : *kv;
            kv->heads = heads;
            continue;
        }
        bool is_latent = heads.latent_dim != 0;
        kv->is_local = backend_is_local(m->plan, &m->cfg, i);
        size_t n = (size_t)backend_n_pages(&m->cfg, kv->is_local), d = heads.head_dim, dv = plan_kv_value_dim(&heads);
        size_t slots = KV_PAGE_TOKENS * sizeof(uint16_t); /* of halves, per head and page */
        kv->k_is_bytes = k == KV_BYTES && !is_latent;
        kv->v_is_bytes = v == KV_BYTES && !is_latent;
        kv->key_bytes = heads.n_kv_heads * (kv->k_is_bytes ? KEY8_BYTES(d) : VALUE_STRIDE(d) * slots);
        kv->value_bytes = is_latent ? heads.index_dim * slots
                                    : heads.n_kv_heads * (kv->v_is_bytes ? VALUE8_BYTES(dv) : VALUE_STRIDE(dv) * slots);
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

/* A slot of a head's keys or values in a page. */
struct slot {
    unsigned char *part; /* the head's part of the page */
    uint32_t i, d;       /* the slot; components */
    bool is_key, is_write;
};

static void move_halves(const struct slot *s, float *x)
{
    for (uint32_t j = 0; j < s->d; j++) {
        uint32_t at = s->is_key ? (j / 8 * KV_PAGE_TOKENS + s->i) * 8 + j % 8 : s->i * VALUE_STRIDE(s->d) + j;
        uint16_t *half = (uint16_t *)(void *)s->part + at;
        if (s->is_write) {
            *half = dtype_f32_to_f16(to_half_range(x[j]));
        } else {
            x[j] = dtype_f16_to_f32(*half);
        }
    }
}

/* Converts codes and the scales after them; a value is one block. */
static void move_bytes(const struct slot *s, float *x)
{
    uint32_t d = s->d, block = s->is_key ? 32 : d;
    int8_t *codes = (int8_t *)s->part;
    uint16_t *scales = (uint16_t *)(void *)(s->part + (s->is_key ? KEY8_CODES(d) : VALUE8_CODES(d)));
    for (uint32_t first = 0; first < d; first += block) {
        uint32_t n = MIN_OF(block, d - first);
        uint16_t *at = &scales[first / block * KV_PAGE_TOKENS + s->i];
        if (s->is_write) {
            *at = dtype_f32_to_f16(scale_of(x + first, n));
        }
        float scale = dtype_f16_to_f32(*at);
        for (uint32_t j = first; j < first + n; j++) {
            int8_t *code = &codes[s->is_key ? KEY8_AT(s->i, j) : VALUE8_AT(d, s->i, j)];
            if (s->is_write) {
                *code = code_of(x[j], scale);
            } else {
                x[j] = (float)*code * scale;
            }
        }
    }
}

void opencl_kv_convert(const struct opencl_kv *kv, unsigned char *room, float *at, bool is_write)
{
    uint32_t n = kv->heads.n_kv_heads;
    for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++) {
        for (uint32_t h = 0; h < (kv->value_bytes != 0 ? 2 : 1) * n; h++) { /* keys, then values */
            bool is_index = h >= n && kv->heads.latent_dim != 0, is_key = h < n || is_index;
            uint32_t d = is_index ? kv->heads.index_dim : is_key ? kv->heads.head_dim : plan_kv_value_dim(&kv->heads);
            unsigned char *part =
                h < n ? room + kv->key_bytes / n * h : room + kv->key_bytes + kv->value_bytes / n * (h - n);
            const struct slot s = {part, slot, d, is_key, is_write};
            if (is_key ? kv->k_is_bytes : kv->v_is_bytes) {
                move_bytes(&s, at);
            } else {
                move_halves(&s, at);
            }
            at += d;
        }
    }
}
