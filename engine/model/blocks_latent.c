/* Multi-head latent attention [DeepSeek-V2, 2.1] in its absorbed form. A position stores one vector in the KV cache: a
 * normed latent c, and a key part k_pe with RoPE that all heads share. With a head's key k = (W_K c, k_pe) and value v
 * = W_V c
 *   q.k = (W_K^T q_nope).c + q_pe.k_pe      and      sum of p v = W_V (sum of p c)
 * so queries are multiplied by W_K^T and outputs by W_V, head by head, and attention itself is over (c, k_pe) with c as
 * the value. Files store W_K^T and W_V as attn_k_b and attn_v_b. Older files and SafeTensors folders store both in
 * attn_kv_b, with W_K not transposed. Keys and names: llama.cpp b11434, src/models/deepseek2.cpp. */
#include "engine/model/blocks.h"

#include "engine/tensor/row_order.h"
#include "engine/tensor/row_turned.h"

#include <math.h>

/* The norms inside of attention do not follow the file's epsilon [DeepSeek-V3, inference/model.py; Hugging Face
 * transformers, modeling_deepseek_v3.py]. */
static const float INNER_EPS = 1e-6f;

/* Reads the number of KV heads: one, which stores the latents, or, in older files, the number of query heads; 0 for
 * layers without attention. */
static enum err read_kv_heads(struct blocks *b)
{
    uint32_t n[PLAN_MAX_LAYERS];
    bool has_any = false;
    TRY(blocks_get_layers(b, "attention.head_count_kv", !b->may_skip_attention, b->h.n_heads, 1, n));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        TRY(blocks_expect(b, n[i] <= 1 || n[i] == b->h.n_heads, "attention.head_count_kv",
                          "expected 1 or head_count %u, found %u", b->h.n_heads, n[i]));
        has_any |= n[i] != 0;
    }
    b->h.n_kv_heads = 1;
    return blocks_expect(b, has_any, "attention.head_count_kv", "expected a layer with attention, found none");
}

enum err blocks_read_latent(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    uint32_t ignored;
    TRY(read_kv_heads(b));
    TRY(blocks_get_u32(b, "rope.dimension_count", 2, PLAN_MAX_HEAD - 4, UINT64_MAX, &h->n_rot));
    TRY(blocks_get_u32(b, "attention.kv_lora_rank", 4, PLAN_MAX_HEAD - h->n_rot, UINT64_MAX, &h->latent_dim));
    TRY(blocks_expect(b, h->latent_dim % 4 == 0, "attention.kv_lora_rank", "expected a multiple of 4, found %u",
                      h->latent_dim));
    TRY(blocks_expect(b, h->n_rot % 4 == 0, "rope.dimension_count", "expected a multiple of 4, found %u", h->n_rot));
    h->head_dim = h->latent_dim + h->n_rot;
    bool is_new =
        blocks_has_key(b, "attention.key_length_mla"); /* then key_length and value_length describe the latent */
    const char *key_name = is_new ? "attention.key_length_mla" : "attention.key_length";
    const char *value_name = is_new ? "attention.value_length_mla" : "attention.value_length";
    TRY(blocks_get_u32(b, key_name, h->n_rot + 1, PLAN_MAX_HEAD, UINT64_MAX, &h->key_dim));
    TRY(blocks_get_u32(b, value_name, 2, PLAN_MAX_HEAD, UINT64_MAX, &h->value_dim));
    if (is_new) {
        TRY(blocks_get_u32(b, "attention.key_length", h->head_dim, h->head_dim, h->head_dim, &ignored));
        if (!b->may_skip_attention) { /* files of Kimi Linear have an unused number */
            TRY(blocks_get_u32(b, "attention.value_length", h->latent_dim, h->latent_dim, h->latent_dim, &ignored));
        }
    }
    return ERR_OK;
}

enum err blocks_read_latent_scale(struct blocks *b)
{
    float factor, log_mul;
    TRY(blocks_get_f32(b, "rope.scaling.factor", 1e-3, 1e6, 1.0, &factor));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0, &log_mul));
    double mscale = factor > 1 ? 1 + (double)log_mul * log(factor) : 1;
    b->style.attn_scale = (float)(mscale * mscale / sqrt(b->h.key_dim));
    return ERR_OK;
}

/* Do queries have no latent of their own, as in V2-Lite? The first layer of the kind decides. */
static bool is_plain(struct blocks *b)
{
    b->plan->layer = 0;
    while (b->style.mixer[b->plan->layer] != BLOCKS_LATENT) {
        b->plan->layer++;
    }
    bool is = blocks_rows_of(b, "blk.%d.attn_q.weight") != 0;
    b->plan->layer = PLAN_NONE;
    return is;
}

enum err blocks_add_latent_bufs(struct blocks *b)
{
    const struct blocks_hparams *h = &b->h;
    if (!is_plain(b)) {
        TRY(blocks_get_u32(b, "attention.q_lora_rank", 1, PLAN_MAX_WIDTH, UINT64_MAX, &b->h.q_latent_dim));
        TRY(plan_add_buf(b->plan, "q_latent", h->q_latent_dim, &b->q_latent));
    }
    TRY(h->n_index_heads != 0 ? blocks_add_index_bufs(b) : ERR_OK);
    TRY(plan_add_buf(b->plan, "q_heads", h->n_heads * h->key_dim, &b->q_heads));
    TRY(plan_add_buf(b->plan, "k", h->head_dim, &b->k));
    return plan_add_buf(b->plan, "v_heads", h->n_heads * h->value_dim, &b->v_heads);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Selects rows [first, first + n) of each head in `whole`, which has n_all rows per head. Returns NULL when out of
 * memory. */
static const struct row_source *take_heads(struct blocks *b, const struct row_source *whole, uint32_t n_all,
                                           uint32_t first, uint32_t n)
{
    uint32_t *heads = arena_alloc(&b->plan->arena, b->h.n_heads * sizeof *heads);
    for (uint32_t i = 0; heads != NULL && i < b->h.n_heads; i++) {
        heads[i] = i * n_all + first;
    }
    return row_order_rows(&b->plan->arena, whole, heads, b->h.n_heads, n);
}

/* Binds W_K^T and W_V from the tensor that holds W_K and W_V head by head. */
static enum err bind_fused(struct blocks *b, plan_weight_id *k, plan_weight_id *v)
{
    const struct blocks_hparams *h = &b->h;
    uint32_t n_nope = h->key_dim - h->n_rot, n_all = n_nope + h->value_dim;
    TRY(blocks_bind(b, "blk.%d.attn_kv_b.weight", h->n_heads * n_all, h->latent_dim, k));
    const char *name = b->plan->weights[*k].name;
    const struct row_source *whole = b->plan->weights[*k].source;
    bool is_float = dtype_info(whole->type)->block_elems == 1;
    const struct row_source *keys = take_heads(b, whole, n_all, 0, n_nope);
    TRY(plan_set_source(b->plan, *k,
                        row_turned_new(&b->plan->arena, keys, n_nope, is_float ? whole->type : DTYPE_F16)));
    return plan_add_weight(b->plan, name, take_heads(b, whole, n_all, n_nope, h->value_dim), v);
}

static enum err bind_absorbed(struct blocks *b, plan_weight_id *k, plan_weight_id *v)
{
    const struct blocks_hparams *h = &b->h;
    if (blocks_rows_of(b, "blk.%d.attn_k_b.weight") == 0) {
        return bind_fused(b, k, v);
    }
    uint32_t n_nope = h->key_dim - h->n_rot;
    TRY(blocks_bind_stack(b, "blk.%d.attn_k_b.weight", h->n_heads, h->latent_dim, n_nope, k));
    return blocks_bind_stack(b, "blk.%d.attn_v_b.weight", h->n_heads, h->value_dim, h->latent_dim, v);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Adds the queries of all heads, through their own latent, if any. */
static enum err add_queries(struct blocks *b, plan_buf_id src)
{
    if (b->h.q_latent_dim == 0) {
        return blocks_add_linear(b, "blk.%d.attn_q", src, b->q_heads);
    }
    TRY(blocks_add_linear(b, "blk.%d.attn_q_a", src, b->q_latent));
    struct plan_step norm = plan_step_of(PLAN_NORM, b->q_latent, b->q_latent);
    norm.eps = INNER_EPS;
    TRY(blocks_bind(b, "blk.%d.attn_q_a_norm.weight", 1, b->h.q_latent_dim, &norm.w[0]));
    TRY(plan_add_step(b->plan, &norm));
    return blocks_add_linear(b, "blk.%d.attn_q_b", b->q_latent, b->q_heads);
}

/* Adds the steps from normed rows (src) to queries in the latent space, stored keys and chosen positions. values: the matrices out of
 * it. */
static enum err add_heads(struct blocks *b, plan_buf_id src, plan_weight_id *values)
{
    TRY(add_queries(b, src));
    TRY(blocks_add_linear(b, "blk.%d.attn_kv_a_mqa", src, b->k));
    struct plan_step into = plan_step_of(PLAN_HEAD_MATMUL, b->q_heads, b->q);
    TRY(bind_absorbed(b, &into.w[0], values));
    TRY(plan_add_step(b->plan, &into));
    struct plan_step heads = plan_step_of(PLAN_HEADS, b->q, b->q);
    heads.heads.rope = blocks_rope_of(b);
    heads.eps = INNER_EPS;
    heads.heads.keys = b->k;
    TRY(blocks_bind(b, "blk.%d.attn_kv_a_norm.weight", 1, b->h.latent_dim, &heads.heads.k_norm));
    TRY(plan_add_step(b->plan, &heads));
    bool has_index = b->h.n_index_heads != 0 && b->style.is_indexed[b->plan->layer];
    return has_index ? blocks_add_index(b, src) : ERR_OK;
}

enum err blocks_add_latent(struct blocks *b)
{
    plan_buf_id src;
    struct plan_step out_of = plan_step_of(PLAN_HEAD_MATMUL, b->att, b->v_heads);
    TRY(blocks_add_pre_norm(b, "blk.%d.attn_norm.weight", &src));
    TRY(add_heads(b, src, &out_of.w[0]));
    TRY(blocks_attend(b));
    TRY(plan_add_step(b->plan, &out_of));
    return blocks_add_output(b, "blk.%d.attn_output", b->v_heads, "blk.%d.post_attention_norm.weight");
}
