/* Layers of Gemma 4 for its model (gemma4.c) and for its prediction head (gemma4_assistant.c). Threads: a builder belongs
 * to one thread. */
#ifndef INFCGI_MODEL_GEMMA4_H
#define INFCGI_MODEL_GEMMA4_H

#include "engine/model/blocks.h"

/* A plan being built. Local layers have separate buffers for queries and attention's results. */
struct gemma4 {
    struct blocks b;
    uint32_t local_dim, n_shared, n_ple; /* n_ple: width of a layer's part of the per-layer embeddings, 0: none */
    uint32_t n_ff[PLAN_MAX_LAYERS], n_kv_heads[PLAN_MAX_LAYERS];
    plan_buf_id q[2], att[2];             /* of global layers, of local ones */
    plan_buf_id ple, ple_projected, gate; /* [L*P], [L*P], [P] */
    plan_buf_id dense, experts;           /* [D] results of the dense block and of the experts, if there are some */
};

/* Reads what all layers have in common, after m->b.reads_layers is set; b.plan->kvs stays the caller's. Errors: as
 * blocks_read_hparams. */
MUST_CHECK enum err gemma4_read_hparams(struct gemma4 *m);

/* Add the RoPE tables and the buffers. ERR_BAD_HPARAM, ERR_NOMEM. */
MUST_CHECK enum err gemma4_add_ropes(struct gemma4 *m);
MUST_CHECK enum err gemma4_add_bufs(struct gemma4 *m);

/* Adds the layer m->b.plan->layer, from b.x to b.x. A layer that stores no keys and values (plan->kvs) has queries only.
 * Errors: as blocks_bind; ERR_BAD_HPARAM. */
MUST_CHECK enum err gemma4_add_layer(struct gemma4 *m);

/* Writes widths and numbers of heads, and widths of feed-forward blocks, of a folder. ERR_BAD_CONFIG. */
MUST_CHECK enum err gemma4_put_shapes(struct hf *h);

/* Members that config.json of these models can leave out. */
extern const char gemma4_hf_defaults[];

#endif
