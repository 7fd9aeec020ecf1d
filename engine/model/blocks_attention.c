/* Adds attention's weights and steps, for the decoder and for layers and families that list their own. */
#include "engine/model/blocks.h"

#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"

/* Binds part `i` of attn_qkv with Q, K and V of each head next to each other. */
static enum err bind_by_head(struct blocks *b, int i, plan_weight_id *id)
{
    uint32_t n = b->h.n_heads, d = b->h.head_dim;
    uint32_t *first = arena_alloc(&b->plan->arena, n * sizeof *first);
    TRY(blocks_expect(b, b->h.n_kv_heads == n, "attention.head_count_kv",
                      "expected %u, as attention.head_count, found %u", n, b->h.n_kv_heads));
    TRY(blocks_bind(b, "blk.%d.attn_qkv.weight", 3 * n * d, b->h.n_embd, id));
    for (uint32_t k = 0; first != NULL && k < n; k++) {
        first[k] = (3 * k + (uint32_t)i) * d;
    }
    const struct row_source *all = b->plan->weights[*id].source;
    return plan_set_source(b->plan, *id, first != NULL ? row_order_rows(&b->plan->arena, all, first, n, d) : NULL);
}

enum err blocks_bind_qkv(struct blocks *b, int from, int to, struct plan_step *qkv)
{
    static const char fused[] = "blk.%d.attn_qkv.weight", fused_bias[] = "blk.%d.attn_qkv.bias";
    static const char *const weights[] = {"blk.%d.attn_q.weight", "blk.%d.attn_k.weight", "blk.%d.attn_v.weight"};
    static const char *const biases[] = {"blk.%d.attn_q.bias", "blk.%d.attn_k.bias", "blk.%d.attn_v.bias"};
    const struct blocks_hparams *h = &b->h;
    uint32_t q = h->n_heads * h->head_dim * (b->style.gates_attention ? 2 : 1), k = h->n_kv_heads * h->head_dim;
    uint32_t v = b->plan->value_dim != 0 ? h->n_kv_heads * b->plan->value_dim : k, all = q + k + v;
    const struct blocks_part parts[] = {{0, q, all}, {q, k, all}, {q + k, v, all}};
    bool is_fused = blocks_rows_of(b, fused) != 0, has_fused_bias = blocks_rows_of(b, fused_bias) != 0;
    for (int i = from; i < to; i++) {
        if (b->style.has_qkv_by_head) {
            TRY(bind_by_head(b, i, &qkv->w[i]));
            continue;
        }
        struct blocks_part own = {0, parts[i].n, parts[i].n};
        TRY(blocks_bind_rows(b, is_fused ? fused : weights[i], is_fused ? parts[i] : own, h->n_embd, &qkv->w[i]));
        TRY(blocks_bind_elements(b, has_fused_bias ? fused_bias : biases[i], has_fused_bias ? parts[i] : own,
                                 &qkv->bias[i]));
    }
    return ERR_OK;
}

/* RoPE does not change the root mean square of a head, but its rotation and the product with the weights cannot change
 * places. Only q.k counts, so keys are normed before RoPE without weights, and queries, after it, get the product of
 * both weights, less the factor that RoPE gives the keys. */
enum err blocks_bind_norms_after(struct blocks *b, plan_weight_id *q, plan_weight_id *k)
{
    struct plan *p = b->plan;
    uint32_t d = b->h.head_dim;
    float keys[PLAN_MAX_HEAD], mscale = p->ropes[blocks_rope_of(b)].mscale;
    float *ones = arena_alloc(&p->arena, d * sizeof *ones), *product = arena_alloc(&p->arena, d * sizeof *product);
    TRY_MEM(ones != NULL && product != NULL);
    TRY(blocks_bind(b, "blk.%d.attn_q_norm.weight", 1, d, q));
    TRY(blocks_bind(b, "blk.%d.attn_k_norm.weight", 1, d, k));
    TRY(blocks_read_vector(b, *q, product));
    TRY(blocks_read_vector(b, *k, keys));
    for (uint32_t i = 0; i < d; i++) {
        ones[i] = 1.0f;
        product[i] *= keys[i] / mscale;
    }
    TRY(plan_set_source(p, *k, row_mapped_new(&p->arena, DTYPE_F32, ones, 1, d)));
    return plan_set_source(p, *q, row_mapped_new(&p->arena, DTYPE_F32, product, 1, d));
}

enum err blocks_add_head_gate(struct blocks *b)
{
    static const char name[] = "blk.%d.attn_gate.weight";
    uint64_t rows = blocks_rows_of(b, name);
    uint32_t n_heads = b->h.n_heads, width = b->plan->bufs[b->att].width;
    plan_buf_id gate;
    TRY(blocks_get_head_buf(b, "att gate", rows == n_heads ? n_heads : width, &gate));
    TRY(blocks_add_matmul(b, name, b->norm, gate));
    struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, gate, b->att);
    multiply.multiply.map = b->style.head_gate;
    multiply.multiply.repeats = rows == n_heads ? width / n_heads : 1;
    return plan_add_step(b->plan, &multiply);
}

enum err blocks_attend(struct blocks *b)
{
    struct plan_step att = plan_step_of(PLAN_ATTENTION, b->q, b->att);
    att.scale = b->style.attn_scale;
    att.attention.softcap = b->style.attn_softcap;
    att.attention.in_chunks = b->style.in_chunks && b->style.is_local[b->plan->layer];
    att.attention.window = b->style.is_local[b->plan->layer] ? (int32_t)b->style.window : 0;
    if (b->is_encoder && att.attention.window > 0) { /* half of it before the row, half after it */
        att.attention.ahead = att.attention.window / 2;
        att.attention.window = att.attention.ahead + 1;
    }
    att.attention.chosen = b->h.n_index_heads != 0 ? b->chosen : PLAN_NONE;
    if (b->style.by_distance) {
        att.w[1] = b->by_distance;
        att.attention.reach = b->reach;
    }
    if (b->style.has_sinks || b->style.may_have_sinks) {
        TRY((b->style.has_sinks ? blocks_bind : blocks_bind_optional)(b, "blk.%d.attn_sinks.weight", 1, b->h.n_heads,
                                                                      &att.w[0]));
    }
    return plan_add_step(b->plan, &att);
}
