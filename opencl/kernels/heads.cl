/* Heads of queries, keys and values: norms, RoPE, and storing of keys and values in the cache.
 *
 * The cache of a layer, halves: keys [page][KV head][unit of 8 components][slot][8], values [page][KV head][slot]
 * [components, rounded up to 8]. Bytes: as shared.h says.
 *   -DK8= -DV8=  keys, values as bytes: 0 or 1 */
#define WG       64
#define MAX_HEAD 576

#if K8
#define KEY_T char
#else
#define KEY_T half
#endif
#if V8
#define VALUE_T char
#else
#define VALUE_T half
#endif

/* Returns the magnitude for the scale of bytes; a NaN makes it infinite, and thus the scale and all values NaN. */
static inline float size_of(float x) { return isnan(x) ? INFINITY : fabs(to_half_range(x)); }

static inline float scale_of(float largest)
{
    ushort bits;
    vstore_half(isinf(largest) ? NAN : largest * (1.0f / 127.0f), 0, (half *)&bits);
    return half_of(bits);
}

static inline char code_of(float x, float scale)
{
    return scale > 0.0f ? (char)clamp(rint(to_half_range(x) * (1.0f / scale)), -127.0f, 127.0f) : 0;
}

/* A work-group computes a head of a row: a query, key or value head, in this order. q_first, k_first, v_first: component
 * of the row at which heads begin. k_norm_n: components that a norm of keys covers, as q_norm covers all. d_key: width of a
 * query or key, d_value: of a value. */
__kernel GROUP(WG, 1) void heads(__global const int *restrict batch, __global const float *q, uint q_stride,
                                 uint q_first, __global const float *k, uint k_stride, uint k_first,
                                 __global const float *v, uint v_stride, uint v_first, __global float *out,
                                 uint out_stride, __global KEY_T *restrict keys, __global VALUE_T *restrict values,
                                 int at_table, uint n_heads, uint n_kv_heads, uint d_key, uint d_value,
                                 __global const float *restrict q_norm, int has_q_norm, __global const float *restrict k_norm, uint k_norm_n, int norms_values,
                                 float eps, int rope, uint n_rot, uint rope_first, int is_neox)
{
    __local float head[MAX_HEAD];
    __local float room[WG];
    const uint lid = get_local_id(0), which = get_group_id(0), row = get_group_id(2);
    const uint part = which < n_heads ? 0 : which < n_heads + n_kv_heads ? 1 : 2;
    const uint d = part == 2 ? d_value : d_key;
    const uint h = part == 0 ? which : (which - n_heads) % n_kv_heads;
    __global const float *x = part == 0   ? q + (size_t)row * q_stride + q_first
                              : part == 1 ? k + (size_t)row * k_stride + k_first
                                          : v + (size_t)row * v_stride + v_first;
    for (uint j = lid; j < d; j += WG) {
        head[j] = x[(size_t)h * d + j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint n = part == 0 ? (has_q_norm ? d : 0) : part == 1 ? k_norm_n : norms_values ? d : 0;
    float sum = 0.0f;
    for (uint j = lid; j < n; j += WG) {
        sum += head[j] * head[j];
    }
    const float scale = 1.0f / sqrt(group_sum(sum, lid, WG, room) / max(n, 1u) + eps);
    for (uint j = lid; j < n; j += WG) {
        float y = head[j] * scale;
        head[j] = part == 0 ? y * q_norm[j] : part == 1 ? y * k_norm[j] : y;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    rotate_head(head + rope_first, batch, rope, row, part < 2 ? n_rot : 0, is_neox, lid, WG);
    barrier(CLK_LOCAL_MEM_FENCE);
#if V8
    float size = 0.0f;
    for (uint j = lid; j < d; j += WG) {
        size = fmax(size, size_of(head[j]));
    }
    const float value_scale = scale_of(group_max(size, lid, WG, room));
#endif
    if (part == 0) {
        const int at = batch[BATCH_AT_QUERY_SCALES + rope];
        const float query_scale = at != 0 ? as_float(batch[at + row]) : 1.0f;
        for (uint j = lid; j < d; j += WG) {
            out[(size_t)row * out_stride + (size_t)h * d + j] = head[j] * query_scale;
        }
        return;
    }
    const uint pos = batch[batch[BATCH_AT_POS] + row], slot = pos % KV_SLOTS;
    const size_t page = batch[batch[batch[at_table] + row] + pos / KV_SLOTS];
    const size_t at = page * n_kv_heads + h;
    for (uint j = lid; j < d; j += WG) {
        if (part == 1) {
#if K8
            float largest = 0.0f;
            for (uint i = j / 32 * 32; i < min(j / 32 * 32 + 32, d); i++) {
                largest = fmax(largest, size_of(head[i]));
            }
            const float key_scale = scale_of(largest);
            __global char *to = keys + at * KEY8_BYTES(d);
            to[KEY8_AT(slot, j)] = code_of(head[j], key_scale);
            if (j % 32 == 0) {
                vstore_half(key_scale, j / 32 * KV_SLOTS + slot, (__global half *)(to + KEY8_CODES(d)));
            }
#else
            vstore_half(to_half_range(head[j]), ((at * ((d + 7) / 8) + j / 8) * KV_SLOTS + slot) * 8 + j % 8, keys);
#endif
        } else {
#if V8
            __global char *to = values + at * VALUE8_BYTES(d);
            to[VALUE8_AT(d, slot, j)] = code_of(head[j], value_scale);
            if (j == 0) {
                vstore_half(value_scale, slot, (__global half *)(to + VALUE8_CODES(d)));
            }
#else
            vstore_half(to_half_range(head[j]), (at * KV_SLOTS + slot) * VALUE_STRIDE(d) + j, values);
#endif
        }
    }
}
