/* The decoder of most families [Touvron 2023, "LLaMA"], with the additions of later ones. */
#include "engine/model/blocks.h"

#include "engine/plan/plan_ops.h"

/* Adds the norm of all heads in `buf`: together, or each head separately, without weights and then times its own. */
static enum err add_head_norm(struct blocks *b, const char *name, plan_buf_id buf)
{
    if (b->style.head_norm == BLOCKS_NORM_WIDE) {
        return blocks_add_norm(b, name, buf, buf, false);
    }
    uint32_t d = b->h.head_dim, n = b->plan->bufs[buf].width / d;
    struct plan_step norm = plan_step_of(PLAN_NORM, buf, buf), product = plan_step_of(PLAN_SUM, buf, buf);
    norm.norm.centers = true;
    norm.eps = b->h.eps;
    norm.w[0] = b->head_ones;
    TRY(plan_add_step(b->plan, &norm));
    TRY(n == 1 ? blocks_bind(b, name, 1, d, &product.w[0]) : blocks_bind_stack(b, name, n, 1, d, &product.w[0]));
    return plan_add_step(b->plan, &product);
}

/* Adds the steps of QKV one by one, for norms that PLAN_QKV lacks. */
static enum err add_separate_heads(struct blocks *b, const struct plan_step *qkv)
{
    const plan_buf_id out[3] = {b->q, b->k, b->v};
    for (int i = 0; i < 3; i++) {
        struct plan_step s = plan_step_of(PLAN_MATMUL, qkv->src, out[i]);
        s.w[0] = qkv->w[i];
        s.bias[0] = qkv->bias[i];
        TRY(plan_add_step(b->plan, &s));
    }
    TRY(add_head_norm(b, "blk.%d.attn_q_norm.weight", b->q));
    TRY(add_head_norm(b, "blk.%d.attn_k_norm.weight", b->k));
    struct plan_step heads = plan_step_of(PLAN_HEADS, b->q, b->q);
    heads.heads.rope = qkv->heads.rope;
    heads.heads.keys = b->k;
    heads.heads.values = b->v;
    return plan_add_step(b->plan, &heads);
}

enum err blocks_add_heads(struct blocks *b, struct plan_step *qkv)
{
    struct plan_step after = plan_step_of(PLAN_NORM, b->q, b->q);
    after.eps = b->h.eps;
    switch (b->style.head_norm) {
    case BLOCKS_NORM_WIDE:
    case BLOCKS_NORM_OWN:
        return add_separate_heads(b, qkv);
    case BLOCKS_NORM_EACH:
        TRY(blocks_bind(b, "blk.%d.attn_q_norm.weight", 1, b->h.head_dim, &qkv->heads.q_norm));
        TRY(blocks_bind(b, "blk.%d.attn_k_norm.weight", 1, b->h.head_dim, &qkv->heads.k_norm));
        return plan_add_step(b->plan, qkv);
    case BLOCKS_NORM_AFTER:
        TRY(blocks_bind_norms_after(b, &after.w[0], &qkv->heads.k_norm));
        TRY(plan_add_step(b->plan, qkv));
        return plan_add_step(b->plan, &after);
    case BLOCKS_NORM_BARE: /* commutes with the rotation, and cancels the factor that RoPE gives all components */
        if (!b->style.is_nope[b->plan->layer]) {
            qkv->heads.q_norm = qkv->heads.k_norm = b->head_ones;
            b->plan->ropes[qkv->heads.rope].mscale = 1.0f;
        }
        break;
    case BLOCKS_NO_HEAD_NORM:
        break;
    }
    return plan_add_step(b->plan, qkv);
}

/* Adds norm, Q K V with RoPE. */
static enum err add_qkv(struct blocks *b)
{
    struct plan_step qkv = plan_step_of(PLAN_QKV, PLAN_NONE, b->q);
    qkv.eps = b->h.eps;
    qkv.heads.rope = blocks_rope_of(b);
    qkv.src = b->x;
    if (b->plan->layer != 0 || !b->style.first_is_bare) {
        TRY(blocks_add_pre_norm(b, "blk.%d.attn_norm.weight", &qkv.src));
    }
    TRY(b->style.gates_attention ? blocks_bind_gated_qkv(b, &qkv) : blocks_bind_qkv(b, 0, 3, &qkv));
    return blocks_add_heads(b, &qkv);
}

/* Adds norm, Q K V with RoPE, attention, output projection + residual. */
static enum err add_attention(struct blocks *b)
{
    TRY(add_qkv(b));
    TRY(blocks_attend(b));
    if (b->style.gates_attention) {
        TRY(blocks_add_attention_gate(b));
    }
    if (b->style.head_gate != PLAN_MAP_NONE) {
        TRY(blocks_add_head_gate(b));
    }
    return blocks_add_scaled_output(b, b->style.attn_output, b->att, "blk.%d.post_attention_norm.weight",
                                    b->style.value_scale);
}

/* Adds attention, and a state space that reads the same norm. */
static enum err add_attention_and_ssm(struct blocks *b)
{
    TRY(add_attention(b));
    return blocks_add_ssm(b);
}

/* Adds up and the activation. */
static enum err add_ungated(struct blocks *b, plan_buf_id src)
{
    const struct blocks_xielu *x = b->style.xielu != NULL ? &b->style.xielu[b->plan->layer] : NULL;
    struct plan_step up = plan_step_of(x != NULL ? PLAN_MATMUL : PLAN_GLU, src, b->ff);
    up.act = b->style.act;
    TRY(blocks_bind_part(b, "blk.%d.ffn_up", (struct blocks_part){0, b->h.n_ff, b->h.n_ff}, &up, 0));
    TRY(plan_add_step(b->plan, &up));
    if (x == NULL) {
        return ERR_OK;
    }
    struct plan_step act = plan_step_of(PLAN_XIELU, PLAN_NONE, b->ff);
    act.xielu.alpha_p = x->alpha_p;
    act.xielu.alpha_n = x->alpha_n;
    act.xielu.beta = x->beta;
    act.xielu.eps = x->eps;
    return plan_add_step(b->plan, &act);
}

/* Adds gate and up, from one tensor or two. */
static enum err add_gated(struct blocks *b, plan_buf_id src)
{
    uint32_t f = b->h.n_ff;
    struct plan_step glu = plan_step_of(PLAN_GLU, src, b->ff);
    glu.act = b->style.act;
    uint64_t up_rows = blocks_rows_of(b, "blk.%d.ffn_up.weight");
    bool is_fused = blocks_rows_of(b, "blk.%d.ffn_gate.weight") == 0 && up_rows != 0 && up_rows != f;
    uint32_t last = is_fused ? f : 0, n_all = is_fused ? 2 * f : f;
    struct blocks_part gate = {b->style.gate_is_last ? last : 0, f, n_all}, up = {last - gate.first, f, n_all};
    TRY(blocks_bind_part(b, is_fused ? "blk.%d.ffn_up" : "blk.%d.ffn_gate", gate, &glu, 0));
    TRY(blocks_bind_part(b, "blk.%d.ffn_up", up, &glu, 1));
    blocks_limit(&glu, b->style.dense_limit[b->plan->layer]);
    return plan_add_step(b->plan, &glu);
}

enum err blocks_add_up(struct blocks *b, plan_buf_id src)
{
    return (b->style.is_ungated ? add_ungated : add_gated)(b, src);
}

/* Adds norm, gate and up, down + residual [Shazeer 2020, "GLU variants"]. */
static enum err add_feed_forward(struct blocks *b)
{
    plan_buf_id src;
    TRY(blocks_add_pre_norm(b, b->style.ffn_norm, &src));
    TRY(blocks_add_up(b, src));
    return blocks_add_output(b, "blk.%d.ffn_down", b->ff, "blk.%d.post_ffw_norm.weight");
}

/* Adds the states after the last norm, from which embeddings are computed. */
static enum err add_hidden(struct blocks *b)
{
    struct plan_step hidden = plan_step_of(PLAN_HIDDEN, b->x, PLAN_NONE);
    hidden.norm.centers = b->centers;
    hidden.eps = b->h.eps;
    TRY(blocks_bind(b, b->style.last_norm, 1, b->h.n_embd, &hidden.w[0]));
    TRY(blocks_bind_norm_bias(b, b->style.last_norm, &hidden.bias[0]));
    return plan_add_step(b->plan, &hidden);
}

static enum err add_logits(struct blocks *b, plan_weight_id weight)
{
    struct plan_step logits = plan_step_of(PLAN_LOGITS, b->last, PLAN_NONE);
    logits.w[0] = weight;
    TRY(b->style.has_output_bias ? blocks_bind(b, "output.bias", 1, b->h.n_vocab, &logits.bias[0]) : ERR_OK);
    logits.scale = b->style.logit_scale;
    logits.logits.softcap = b->style.logit_softcap;
    return plan_add_step(b->plan, &logits);
}

static enum err add_gather(struct blocks *b)
{
    struct plan_step gather = plan_step_of(PLAN_GATHER, b->x, b->last);
    return plan_add_step(b->plan, &gather);
}

/* Adds gather, norm, logits. */
static enum err add_head(struct blocks *b)
{
    TRY(add_gather(b));
    TRY(blocks_add_norm(b, b->style.last_norm, b->last, b->last, false));
    TRY(blocks_bind_optional(b, "output.weight", b->h.n_vocab, b->h.n_embd, &b->output));
    if (b->output == PLAN_NONE) {
        b->output = b->embd; /* tied embeddings: one weight, packed once */
    }
    return add_logits(b, b->output);
}

/* Adds the output of rows for the prediction head. */
static enum err add_edge(struct blocks *b, bool is_output, plan_buf_id buf)
{
    struct plan_step edge = plan_edge_of(is_output, buf, 0);
    edge.feeds_head = is_output && !plan_predicts(b->plan);
    b->plan->input_width = b->plan->output_width = b->h.n_embd;
    return plan_add_step(b->plan, &edge);
}

enum err blocks_add_end(struct blocks *b)
{
    b->plan->layer = PLAN_NONE;
    if (b->predicts) {
        bool takes_stream = b->style.head_takes_stream;
        TRY(takes_stream ? ERR_OK : blocks_add_norm(b, b->style.last_norm, b->x, b->norm, false));
        TRY(add_edge(b, true, takes_stream ? b->x : b->norm));
    }
    TRY(add_hidden(b));
    return b->plan->is_bidirectional ? ERR_OK : add_head(b);
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

/* Keys and values are stored immediately, unless they are separate steps. */
static enum err add_attention_bufs(struct blocks *b)
{
    const struct blocks_hparams *h = &b->h;
    enum blocks_head_norm norm = b->style.head_norm;
    if (norm == BLOCKS_NORM_OWN || norm == BLOCKS_NORM_BARE) {
        TRY(blocks_add_ones(b, "head_ones", h->head_dim, &b->head_ones));
    }
    if (norm != BLOCKS_NORM_WIDE && norm != BLOCKS_NORM_OWN) {
        return ERR_OK;
    }
    TRY(plan_add_buf(b->plan, "k", h->n_kv_heads * h->head_dim, &b->k));
    return plan_add_buf(b->plan, "v", h->n_kv_heads * plan_value_dim(b->plan), &b->v);
}

static enum err add_attention_and_ssm_bufs(struct blocks *b)
{
    TRY(add_attention_bufs(b));
    return blocks_add_ssm_bufs(b);
}

static enum err add_dense_bufs(struct blocks *b) { return plan_add_buf(b->plan, "ff", b->h.n_ff, &b->ff); }

/* Adds nothing, for layers without a part. */
static enum err add_nothing(struct blocks *b)
{
    (void)b;
    return ERR_OK;
}

struct kind {
    enum err (*add_bufs)(struct blocks *b);
    enum err (*add)(struct blocks *b);
};

static const struct kind mixers[BLOCKS_MIXER_COUNT] = {
    [BLOCKS_ATTENTION] = {add_attention_bufs, add_attention},
    [BLOCKS_LATENT] = {blocks_add_latent_bufs, blocks_add_latent},
    [BLOCKS_CONV] = {blocks_add_conv_bufs, blocks_add_conv},
    [BLOCKS_DELTA] = {blocks_add_delta_bufs, blocks_add_delta},
    [BLOCKS_KDA] = {blocks_add_kda_bufs, blocks_add_kda},
    [BLOCKS_SSM] = {blocks_add_ssm_bufs, blocks_add_ssm},
    [BLOCKS_SCAN] = {blocks_add_scan_bufs, blocks_add_scan},
    [BLOCKS_ATTENTION_SSM] = {add_attention_and_ssm_bufs, add_attention_and_ssm},
    [BLOCKS_NO_MIXER] = {add_nothing, add_nothing},
};

static const struct kind ffns[BLOCKS_FFN_COUNT] = {
    [BLOCKS_DENSE] = {add_dense_bufs, add_feed_forward},
    [BLOCKS_EXPERTS] = {blocks_add_expert_bufs, blocks_add_experts},
    [BLOCKS_NO_FFN] = {add_nothing, add_nothing},
};

/* Adds the buffers of the stream and of the kinds of layers in use. */
static enum err add_bufs(struct blocks *b)
{
    const struct blocks_hparams *h = &b->h;
    bool has_mixer[BLOCKS_MIXER_COUNT] = {false}, has_ffn[BLOCKS_FFN_COUNT] = {false};
    for (uint32_t i = 0; i < b->plan->n_layers; i++) {
        has_mixer[b->style.mixer[i]] = has_ffn[b->style.ffn[i]] = true;
    }
    TRY(plan_add_buf(b->plan, "x", h->n_embd, &b->x));
    TRY(plan_add_buf(b->plan, "norm", h->n_embd, &b->norm));
    if (!b->lacks_attention) {
        TRY(plan_add_buf(b->plan, "q", h->n_heads * h->head_dim, &b->q));
        TRY(plan_add_buf(b->plan, "att", h->n_heads * plan_value_dim(b->plan), &b->att));
    }
    for (int i = 0; i < BLOCKS_MIXER_COUNT; i++) {
        TRY(has_mixer[i] ? mixers[i].add_bufs(b) : ERR_OK);
    }
    for (int i = 0; i < BLOCKS_FFN_COUNT; i++) {
        TRY(has_ffn[i] ? ffns[i].add_bufs(b) : ERR_OK);
    }
    return plan_add_buf(b->plan, "last", h->n_embd, &b->last);
}

/* Makes b->h, q and att those of the layer. */
static enum err set_heads(struct blocks *b)
{
    struct plan_kv kv = plan_kv_of(b->plan, b->plan->layer);
    b->h.n_heads = kv.n_heads;
    b->h.n_kv_heads = kv.n_kv_heads;
    TRY(blocks_get_head_buf(b, "q", kv.n_heads * kv.head_dim, &b->q));
    return blocks_get_head_buf(b, "att", kv.n_heads * plan_kv_value_dim(&kv), &b->att);
}

static enum err add_layer(struct blocks *b, uint32_t layer)
{
    b->plan->layer = (int32_t)layer;
    TRY(b->heads_by_layer ? set_heads(b) : ERR_OK);
    if (b->style.ffn[layer] == BLOCKS_EXPERTS && b->style.moe.routes_early) {
        TRY(blocks_add_router(b, b->x));
    }
    TRY(mixers[b->style.mixer[layer]].add(b));
    return ffns[b->style.ffn[layer]].add(b);
}

/* Adds x = half of the matrix times b->norm, normed. */
static enum err add_projection(struct blocks *b, const char *norm, uint32_t first, bool adds)
{
    uint32_t d = b->h.n_embd;
    struct plan_step s = plan_step_of(PLAN_MATMUL, b->norm, b->x);
    s.adds = adds;
    TRY(blocks_add_norm(b, norm, b->norm, b->norm, false));
    TRY(blocks_bind_inputs(b, "blk.%d.nextn.eh_proj.weight", d, first, d, 2 * d, &s.w[0]));
    return plan_add_step(b->plan, &s);
}

/* Adds the prediction head. It can have its own embedding, logits and last norm. */
static enum err add_prediction(struct blocks *b)
{
    static const char *const norms[] = {"blk.%d.nextn.shared_head_norm.weight", "blk.%d.layer_output_norm.weight"};
    uint32_t layer = b->h.n_layers, d = b->h.n_embd;
    plan_weight_id output;
    b->plan->i_predict = b->plan->n_steps;
    b->plan->layer = (int32_t)layer;
    struct plan_step embed = plan_step_of(PLAN_EMBED, PLAN_NONE, b->norm);
    embed.scale = b->style.embed_scale;
    TRY(blocks_bind_optional(b, "blk.%d.nextn.embed_tokens.weight", b->h.n_vocab, d, &embed.w[0]));
    embed.w[0] = embed.w[0] != PLAN_NONE ? embed.w[0] : b->embd;
    TRY(plan_add_step(b->plan, &embed));
    TRY(add_projection(b, "blk.%d.nextn.enorm.weight", 0, false));
    TRY(add_edge(b, false, b->norm));
    TRY(add_projection(b, "blk.%d.nextn.hnorm.weight", d, true));
    TRY(add_layer(b, layer));
    const char *norm = blocks_rows_of(b, norms[0]) != 0   ? norms[0]
                       : blocks_rows_of(b, norms[1]) != 0 ? norms[1]
                                                          : b->style.last_norm;
    TRY(b->style.head_takes_stream ? add_edge(b, true, b->x) : ERR_OK);
    TRY(blocks_add_norm(b, norm, b->x, b->x, false));
    TRY(b->style.head_takes_stream ? ERR_OK : add_edge(b, true, b->x));
    TRY(add_gather(b));
    TRY(blocks_bind_optional(b, "blk.%d.nextn.shared_head_head.weight", b->h.n_vocab, d, &output));
    TRY(add_logits(b, output != PLAN_NONE ? output : b->output));
    b->plan->layer = PLAN_NONE;
    return ERR_OK;
}

enum err blocks_build_decoder(struct blocks *b)
{
    const struct blocks_hparams *h = &b->h;
    TRY(blocks_expect(b, b->plan->moe.n_experts == 0 || b->plan->moe.n_used != 0, "expert_count",
                      "expected 0, found %u", b->plan->moe.n_experts));
    TRY(b->lacks_attention ? ERR_OK : blocks_add_ropes(b));
    TRY(add_bufs(b));
    TRY(blocks_add_embedding(b));
    if (b->style.embed_norm != NULL) {
        TRY(blocks_add_norm(b, b->style.embed_norm, b->x, b->x, false));
    }
    for (uint32_t i = 0; i < h->n_layers; i++) {
        TRY(add_layer(b, i));
    }
    TRY(blocks_add_end(b));
    return b->predicts ? add_prediction(b) : ERR_OK;
}
