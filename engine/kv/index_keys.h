/* Index keys [DeepSeek-AI 2025, "DeepSeek-V3.2"] in a page: one per position, after the page's latents (kv_type.h) and in their
 * type, 16 bits [2][d][16]. So a page's keys are two panels of 16 rows (engine/quant/panel.h). Threads: pure functions. */
#ifndef INFCGI_KV_INDEX_KEYS_H
#define INFCGI_KV_INDEX_KEYS_H

#include "engine/kv/kv_type.h"

struct index_keys {
    enum kv_type type; /* f16 or bf16 */
    int d;             /* width of a key, a multiple of 8; 0: there are none */
    uint32_t bytes;    /* of a page's keys, a multiple of 64 */
};

/* Returns the layout of keys of d components next to latents. */
struct index_keys index_keys_of(const struct kv_layout *latents, int d);

/* Store a key of d floats in a slot, and return component j as stored. Numbers and NaNs are treated as those of latents.
 * Writing touches no byte of another slot, so threads can store in one page. keys: the page's keys. */
void index_keys_store(const struct index_keys *x, const float *key, int slot, unsigned char *keys);
float index_keys_at(const struct index_keys *x, const unsigned char *keys, int slot, int j);

#endif
