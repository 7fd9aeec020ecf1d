/* The layout of keys and values in a page of the KV cache, for each type.
 *
 * A page holds KV_PAGE_TOKENS = 32 slots and is one piece of memory: for each layer in turn and each of its KV heads,
 * the keys and then the values (docs/internals/attention.md). d: width of a key or a value, which can differ, D: d rounded
 * up to 16, B = ceil(d / 32): blocks of 32 components; C: 32, or the rest of d (or D) in the last block.
 *
 *   type        keys                                        values
 *   i16         int16 [d/2][32][2], f32 [32] scales         int16 [B][16][C of D][2], f32 [32] scales
 *   f16, bf16   16 bits [d][32]                             16 bits [B][32][C of d]
 *   q8_0        int8 [d/2][32][2], f16 [B][32] scales       int8 [B][16][C of D][2], f16 [32] scales
 *   q4_0        4 bits [d/2][32][2], f16 [B][32] scales     4 bits [32][B][16][2], f16 [B][32] scales
 *
 * Integer keys: [j/2][slot][j%2], so one instruction multiplies a pair of components of 16 keys. Integer values:
 * [block][slot%16][component][slot/16], so one instruction multiplies two slots of 16 components. q4_0:
 * [slot][block][c%16][c/16], because two slots must not share a byte: threads store them at the same time. Components
 * from d on never reach a result. 4 bits: code + 8, the first of a pair in the low half of the byte. An element is code
 * * scale.
 *
 *   i16   One scale per head vector. Keys: max(norm / 46300, largest / 32767), so that integer products with a
 *         query of the same norm cannot leave 32 bits [Cauchy-Schwarz: 46300^2 < 2^31]. Values: largest / 4095.
 *   q8_0  half(largest / 127), of a block (keys) or of the vector (values have no outliers, and attention is faster).
 *   q4_0  half(the component of largest size / -8) of a block.
 *
 * Latents [DeepSeek-V2, 2.1]: the value is the first d_value components of the key, and there are no separate values.
 * Keys are f16 or bf16 in the layout of values, [B][32][C of d].
 *
 * Numbers beyond +-65504, the largest half, are clamped to it, whatever the type. A NaN in a key or value makes the key
 * NaN, so every sequence that sees the position gets NaN. Threads: pure functions. */
#ifndef INFCGI_KV_KV_TYPE_H
#define INFCGI_KV_KV_TYPE_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_PAGE_TOKENS = 32 };

enum kv_type { KV_TYPE_I16, KV_TYPE_F16, KV_TYPE_BF16, KV_TYPE_Q8_0, KV_TYPE_Q4_0, KV_TYPE_COUNT };

/* Keys or values of one head in a page. */
struct kv_side {
    enum kv_type type;
    int block, n_blocks; /* components that share a scale; 0 for f16 and bf16 */
    uint32_t scales;     /* offset of the scales in bytes */
    uint32_t bytes;      /* total size, a multiple of 64 */
};

struct kv_layout {
    int d;       /* width of a key, even */
    int d_value; /* width of a value, even, at most d */
    bool is_latent;
    struct kv_side k, v;
    uint32_t bytes; /* k.bytes + v.bytes; of latents k.bytes, because v is k */
};

struct kv_layout kv_layout_of(enum kv_type k_type, enum kv_type v_type, int d, int d_value);

/* Returns the layout of latents; d and d_value are multiples of 4. type is f16 or bf16; the integer types become
 * f16. */
struct kv_layout kv_layout_of_latents(enum kv_type type, int d, int d_value);

/* Returns kv_layout_of_latents if is_latent, else kv_layout_of. */
struct kv_layout kv_layout_for(enum kv_type k_type, enum kv_type v_type, int d, int d_value, bool is_latent);

/* Returns "i16" ...; NULL after the last type. */
const char *kv_type_name(int type);

static inline bool kv_type_is_float(enum kv_type type) { return type == KV_TYPE_F16 || type == KV_TYPE_BF16; }

static inline int kv_value_width(int d) { return (d + 15) / 16 * 16; }

/* kv_value_pair returns the index of a component pair (slots slot and slot + 16, slot < 16) of integer values other
 * than q4_0; kv_value_element that of an element of float values. */
static inline int kv_value_pair(int d, int slot, int j)
{
    int block = j / 32 * 32, left = kv_value_width(d) - block;
    return block * 16 + slot * (left < 32 ? left : 32) + j - block;
}
static inline int kv_value_element(int d, int slot, int j)
{
    int block = j / 32 * 32, left = d - block;
    return block * KV_PAGE_TOKENS + slot * (left < 32 ? left : 32) + j - block;
}

/* Returns the width that places the elements of values: latents are keys. */
static inline int kv_value_row(const struct kv_layout *l) { return l->is_latent ? l->d : l->d_value; }

/* Return component j of the key or value in a slot, exactly as stored. */
float kv_key_at(const struct kv_layout *l, const unsigned char *k_page, int slot, int j);
float kv_value_at(const struct kv_layout *l, const unsigned char *v_page, int slot, int j);

enum { KV_I16_NORM = 46300, KV_I16_KEY = 32767, KV_I16_VALUE = 4095 };

/* A vector or block counts as zero if its largest component is below this (times a small constant). */
#define KV_SCALE_FLOOR 0x1p-80f

#endif
