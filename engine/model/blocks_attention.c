/* Adds attention's weights and steps, for the decoder and for layers and families that list their own. */
#include "engine/model/blocks.h"

/* One of the matrices that files store separately or in one tensor. */
struct part {
    const char *weight, *bias;             /* separate */
    const char *fused_weight, *fused_bias; /* the tensor that holds all; rows from `at` on */
    uint32_t n_out;
    struct blocks_part at;
};

static enum err bind_matrix(struct blocks *b, const struct part *p, int layer, plan_weight_id *w, plan_weight_id *bias)
{
    uint32_t n_in = b->h.n_embd;
    TRY(blocks_bind_part(b, p->fused_weight, layer, p->at, p->n_out, n_in, true, w));
    TRY(blocks_bind_part(b, p->fused_bias, layer, p->at, 1, p->n_out, true, bias));
    if (*w == PLAN_NONE) {
        TRY(blocks_bind(b, p->weight, layer, p->n_out, n_in, false, w));
    }
    return *bias != PLAN_NONE ? ERR_OK : blocks_bind(b, p->bias, layer, 1, p->n_out, true, bias);
}

enum err blocks_bind_rows_of_qkv(struct blocks *b, int layer, uint32_t q, uint32_t kv, int from, int to,
                                 struct plan_step *qkv)
{
    uint32_t all = q + 2 * kv;
    const char *fused = "blk.%d.attn_qkv.weight", *fused_bias = "blk.%d.attn_qkv.bias";
    const struct part parts[3] = {
        {"blk.%d.attn_q.weight", "blk.%d.attn_q.bias", fused, fused_bias, q, {0, all}},
        {"blk.%d.attn_k.weight", "blk.%d.attn_k.bias", fused, fused_bias, kv, {q, all}},
        {"blk.%d.attn_v.weight", "blk.%d.attn_v.bias", fused, fused_bias, kv, {q + kv, all}},
    };
    for (int i = from; i < to; i++) {
        TRY(bind_matrix(b, &parts[i], layer, &qkv->w[i], &qkv->bias[i]));
    }
    return ERR_OK;
}

enum err blocks_bind_qkv(struct blocks *b, int layer, struct plan_step *qkv)
{
    const struct blocks_hparams *h = &b->h;
    return blocks_bind_rows_of_qkv(b, layer, h->n_heads * h->head_dim, h->n_kv_heads * h->head_dim, 0, 3, qkv);
}

enum err blocks_attend(struct blocks *b, int layer)
{
    struct plan_step att = plan_step_of(PLAN_ATTENTION, b->q, b->att);
    att.scale = b->style.attn_scale;
    att.attention.softcap = b->style.attn_softcap;
    att.attention.window = b->style.is_local[layer] ? (int32_t)b->style.window : 0;
    if (b->is_encoder && att.attention.window > 0) { /* half of it before the row, half after it */
        att.attention.ahead = att.attention.window / 2;
        att.attention.window = att.attention.ahead + 1;
    }
    if (b->style.has_sinks) {
        TRY(blocks_bind(b, "blk.%d.attn_sinks.weight", layer, 1, b->h.n_heads, false, &att.w[0]));
    }
    return plan_add_step(b->plan, &att);
}

enum err blocks_add_attention_output(struct blocks *b, struct plan_step *out, int layer)
{
    uint32_t width = b->plan->bufs[out->src].width, d = b->h.n_embd;
    TRY(blocks_bind(b, "blk.%d.attn_output.weight", layer, d, width, false, &out->w[0]));
    TRY(blocks_bind(b, "blk.%d.attn_output.bias", layer, 1, d, true, &out->bias[0]));
    return blocks_add_to_stream(b, out, "blk.%d.post_attention_norm.weight", layer);
}
