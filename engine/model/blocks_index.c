/* The index of latent attention [DeepSeek-AI 2025, "DeepSeek-V3.2"]: heads with one key for all, whose weighted scores choose
 * the positions that attention reads. Scores differ from the publisher's by a positive factor, and its keys also by a
 * rotation that leaves products as they are; neither changes what is chosen. Keys and names: llama.cpp b11434,
 * src/models/deepseek32.cpp. */
#include "engine/model/blocks.h"

/* Of the keys' norm [Hugging Face transformers 5.23, DeepseekV32Indexer]. */
static const float NORM_EPS = 1e-6f;

enum { MOST_POSITIONS = 1 << 24 }; /* which floats hold exactly */

enum err blocks_read_index(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    TRY(blocks_get_u32(b, "attention.indexer.head_count", 1, PLAN_MAX_HEADS, UINT64_MAX, &h->n_index_heads));
    TRY(blocks_get_u32(b, "attention.indexer.key_length", h->n_rot, PLAN_MAX_HEAD, UINT64_MAX, &h->index_dim));
    TRY(blocks_expect(b, h->index_dim % 8 == 0, "attention.indexer.key_length", "expected a multiple of 8, found %u",
                      h->index_dim));
    TRY(blocks_get_u32(b, "attention.indexer.top_k", 1, PLAN_MAX_CHOSEN, UINT64_MAX, &h->n_chosen));
    TRY(blocks_expect(b, !b->plan->is_bidirectional, "attention.causal", "expected true with an index, found false"));
    b->plan->index_dim = h->index_dim;
    b->plan->n_ctx_max = MIN_OF(b->plan->n_ctx_max, (uint32_t)MOST_POSITIONS);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        b->style.is_indexed[i] = true;
    }
    return ERR_OK;
}

enum err blocks_add_index_bufs(struct blocks *b)
{
    const struct blocks_hparams *h = &b->h;
    TRY(blocks_expect(b, h->q_latent_dim != 0, "attention.q_lora_rank", "expected a latent of queries, found none"));
    TRY(blocks_add_rope(b, h->freq_base, true, &b->index_rope));
    b->plan->ropes[b->index_rope].first = 0;
    b->plan->ropes[b->index_rope].is_neox = b->style.index_is_neox;
    TRY(plan_add_buf(b->plan, "index_q", h->n_index_heads * h->index_dim, &b->index_q));
    TRY(plan_add_buf(b->plan, "index_k", h->index_dim, &b->index_k));
    TRY(plan_add_buf(b->plan, "index_weights", h->n_index_heads, &b->index_weights));
    return plan_add_buf(b->plan, "chosen", h->n_chosen, &b->chosen);
}

enum err blocks_add_index(struct blocks *b, plan_buf_id src)
{
    uint32_t d = b->h.index_dim;
    struct plan_step norm = plan_step_of(PLAN_NORM, b->index_k, b->index_k);
    norm.norm.centers = true;
    norm.eps = NORM_EPS;
    TRY(blocks_add_matmul(b, "blk.%d.indexer.attn_q_b.weight", b->q_latent, b->index_q));
    TRY(blocks_add_matmul(b, "blk.%d.indexer.proj.weight", src, b->index_weights));
    TRY(blocks_add_matmul(b, "blk.%d.indexer.attn_k.weight", src, b->index_k));
    TRY(blocks_bind(b, "blk.%d.indexer.k_norm.weight", 1, d, &norm.w[0]));
    TRY(blocks_bind(b, "blk.%d.indexer.k_norm.bias", 1, d, &norm.bias[0]));
    TRY(plan_add_step(b->plan, &norm));
    struct plan_step index = plan_step_of(PLAN_INDEX, b->index_q, b->index_q);
    index.heads.keys = b->index_k;
    index.heads.rope = b->index_rope;
    TRY(plan_add_step(b->plan, &index));
    struct plan_step choose = plan_step_of(PLAN_CHOOSE, b->index_q, b->chosen);
    choose.choose.weights = b->index_weights;
    return plan_add_step(b->plan, &choose);
}
