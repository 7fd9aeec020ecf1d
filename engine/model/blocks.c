/* Hyper-parameters, binding, and the pre-norm decoder [Touvron 2023, "LLaMA"] with what later families added. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 128 };

enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                        uint32_t *out)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    uint64_t v = fallback;
    if (fallback == UINT64_MAX) {
        TRY(gguf_get_u64(b->g, full, &v, b->info));
    } else {
        TRY(gguf_get_u64_or(b->g, full, fallback, &v, b->info));
    }
    if (v < min || v > max) {
        return err_set(b->info, ERR_BAD_HPARAM, full, "%s: expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, full,
                       min, max, v);
    }
    *out = (uint32_t)v;
    return ERR_OK;
}

enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback, float *out)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    double v = fallback;
    if (isnan(fallback)) {
        TRY(gguf_get_f64(b->g, full, &v, b->info));
    } else {
        TRY(gguf_get_f64_or(b->g, full, fallback, &v, b->info));
    }
    if (!(v >= min && v <= max)) { /* also catches NaN */
        return err_set(b->info, ERR_BAD_HPARAM, full, "%s: expected %g to %g, found %g", full, min, max, v);
    }
    *out = (float)v;
    return ERR_OK;
}

enum err blocks_read_hparams(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    const struct gguf_tensor *embd = gguf_find_tensor(b->g, "token_embd.weight");
    if (embd == NULL || embd->n_dims != 2 || embd->dims[1] > PLAN_MAX_VOCAB) {
        return err_set(b->info, embd == NULL ? ERR_MISSING_TENSOR : ERR_BAD_TENSOR_SHAPE, "token_embd.weight",
                       "token_embd.weight: expected two dimensions and at most %d rows, found %s", PLAN_MAX_VOCAB,
                       embd == NULL ? "no such tensor" : "something else");
    }
    h->n_vocab = (uint32_t)embd->dims[1];
    TRY(blocks_get_u32(b, "embedding_length", 1, PLAN_MAX_WIDTH, UINT64_MAX, &h->n_embd));
    TRY(blocks_get_u32(b, "block_count", 1, PLAN_MAX_LAYERS, UINT64_MAX, &h->n_layers));
    TRY(blocks_get_u32(b, "context_length", 1, UINT32_MAX / 2, UINT64_MAX, &h->n_ctx_train));
    TRY(blocks_get_u32(b, "feed_forward_length", 1, PLAN_MAX_WIDTH, UINT64_MAX, &h->n_ff));
    TRY(blocks_get_u32(b, "attention.head_count", 1, PLAN_MAX_HEADS, UINT64_MAX, &h->n_heads));
    TRY(blocks_get_u32(b, "attention.head_count_kv", 1, h->n_heads, h->n_heads, &h->n_kv_heads));
    if (h->n_heads % h->n_kv_heads != 0) {
        return err_set(b->info, ERR_BAD_HPARAM, "attention.head_count_kv",
                       "%s.attention.head_count_kv: expected a divisor of head_count %u, found %u", b->arch, h->n_heads,
                       h->n_kv_heads);
    }
    uint64_t default_dim = h->n_embd % h->n_heads == 0 ? h->n_embd / h->n_heads : UINT64_MAX;
    TRY(blocks_get_u32(b, "attention.key_length", 4, PLAN_MAX_HEAD, default_dim, &h->head_dim));
    uint32_t value_dim;
    TRY(blocks_get_u32(b, "attention.value_length", h->head_dim, h->head_dim, h->head_dim, &value_dim));
    TRY(blocks_get_u32(b, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->n_rot));
    if (h->head_dim % 4 != 0) {
        return err_set(b->info, ERR_BAD_HPARAM, "attention.key_length",
                       "%s.attention.key_length: expected a multiple of 4, found %u", b->arch, h->head_dim);
    }
    if (h->n_rot % 2 != 0) {
        return err_set(b->info, ERR_BAD_HPARAM, "rope.dimension_count",
                       "%s.rope.dimension_count: expected an even number, found %u", b->arch, h->n_rot);
    }
    TRY(blocks_get_f32(b, "attention.layer_norm_rms_epsilon", 1e-12, 1.0, NAN, &h->eps));
    TRY(blocks_get_f32(b, "rope.freq_base", 1.0, 1e12, 10000.0, &h->freq_base));
    b->style =
        (struct blocks_style){.act = PLAN_SILU, .embed_scale = 1, .attn_scale = (float)(1.0 / sqrt(h->head_dim))};
    struct plan *p = b->plan;
    p->n_vocab = h->n_vocab;
    p->n_embd = h->n_embd;
    p->n_layers = h->n_layers;
    p->n_heads = h->n_heads;
    p->n_kv_heads = h->n_kv_heads;
    p->head_dim = h->head_dim;
    p->n_ctx_train = h->n_ctx_train;
    return ERR_OK;
}

/* Writes a tensor name with its layer number; the format is one of ours, never the file's. */
static void tensor_name(char *out, size_t cap, const char *name, int layer)
{
    const char *at = layer >= 0 ? strstr(name, "%d") : NULL;
    if (at == NULL) {
        snprintf(out, cap, "%s", name);
    } else {
        snprintf(out, cap, "%.*s%d%s", (int)(at - name), name, layer, at + 2);
    }
}

enum err blocks_bind(struct blocks *b, const char *name, int layer, uint32_t n_out, uint32_t n_in, bool optional,
                     plan_weight_id *id)
{
    char full[KEY_BYTES];
    tensor_name(full, sizeof full, name, layer);
    *id = PLAN_NONE;
    const struct gguf_tensor *t = gguf_find_tensor(b->g, full);
    if (t == NULL) {
        return optional ? ERR_OK
                        : err_set(b->info, ERR_MISSING_TENSOR, full, "%s: expected a tensor [%u, %u], found none", full,
                                  n_in, n_out);
    }
    if (t->dims[0] != n_in || t->dims[1] != n_out || t->dims[2] != 1 || t->dims[3] != 1) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, full,
                       "%s: expected [%u, %u], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", full, n_in,
                       n_out, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    struct plan_weight w = {.name = full,
                            .type = t->type,
                            .data = t->data,
                            .row_bytes = t->bytes / n_out,
                            .n_out = n_out,
                            .n_in = n_in,
                            .file_offset = t->offset};
    return plan_add_weight(b->plan, &w, id);
}

/* Multiplies inv_freq by the scaling that the file asks for. */
static enum err scale_rope(struct blocks *b, float *inv_freq)
{
    char key[KEY_BYTES];
    struct gguf_str type;
    snprintf(key, sizeof key, "%s.rope.scaling.type", b->arch);
    TRY(gguf_get_str_or_null(b->g, key, &type, b->info));
    bool is_linear = type.len == 6 && memcmp(type.data, "linear", 6) == 0;
    bool is_none = type.len == 0 || (type.len == 4 && memcmp(type.data, "none", 4) == 0);
    if (!is_linear && !is_none) {
        return err_set(b->info, ERR_BAD_HPARAM, key, "%s: expected none or linear, found '%.*s'", key,
                       (int)MIN_OF(type.len, (size_t)32), type.data);
    }
    if (is_linear) {
        float factor;
        TRY(blocks_get_f32(b, "rope.scaling.factor", 1e-3, 1e6, 1.0, &factor));
        for (uint32_t i = 0; i < b->h.n_rot / 2; i++) {
            inv_freq[i] /= factor;
        }
    }
    plan_weight_id factors;
    TRY(blocks_bind(b, "rope_freqs.weight", -1, 1, b->h.n_rot / 2, true, &factors));
    if (factors == PLAN_NONE) {
        return ERR_OK;
    }
    const struct plan_weight *w = &b->plan->weights[factors];
    if (w->type != DTYPE_F32) {
        return err_set(b->info, ERR_UNSUPPORTED_TYPE, w->name, "%s: expected F32, found %s", w->name,
                       dtype_info(w->type)->name);
    }
    for (uint32_t i = 0; i < b->h.n_rot / 2; i++) {
        float factor;
        memcpy(&factor, (const char *)w->data + i * sizeof factor, sizeof factor);
        if (!(factor > 0) || !isfinite(factor)) {
            return err_set(b->info, ERR_BAD_HPARAM, w->name,
                           "rope_freqs.weight[%u]: expected a positive factor, found %g", i, (double)factor);
        }
        inv_freq[i] /= factor;
    }
    return ERR_OK;
}

static enum err add_rope(struct blocks *b, float freq_base, bool is_scaled, int32_t *id)
{
    uint32_t n = b->h.n_rot / 2;
    float *inv_freq = arena_alloc(&b->plan->arena, n * sizeof *inv_freq);
    if (inv_freq == NULL) {
        return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        inv_freq[i] = (float)pow((double)freq_base, -2.0 * i / b->h.n_rot);
    }
    if (is_scaled) {
        TRY(scale_rope(b, inv_freq));
    }
    struct plan_rope rope = {.n_rot = b->h.n_rot, .is_neox = b->style.is_neox, .mscale = 1.0f, .inv_freq = inv_freq};
    return plan_add_rope(b->plan, &rope, id);
}

enum err blocks_add_ropes(struct blocks *b)
{
    b->local_rope = PLAN_NONE;
    TRY(add_rope(b, b->h.freq_base, true, &b->rope));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        if (b->style.is_local[i]) {
            return add_rope(b, b->style.local_freq_base, false, &b->local_rope);
        }
    }
    return ERR_OK;
}

/* dst = norm of src; into the stream it is added. */
static enum err add_norm(struct blocks *b, const char *name, int layer, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_NORM);
    s.adds = dst == b->x;
    s.src = src;
    s.dst = dst;
    s.eps = b->h.eps;
    TRY(blocks_bind(b, name, layer, 1, b->h.n_embd, false, &s.w[0]));
    return plan_add_step(b->plan, &s);
}

/* A matmul whose result joins the residual stream: straight away, or through a norm (`post_norm`) behind it, for which
 * b->norm is free. */
static enum err add_to_stream(struct blocks *b, struct plan_step *matmul, const char *post_norm, int layer)
{
    matmul->epilogue = b->style.has_post_norms ? PLAN_STORE : PLAN_ADD;
    matmul->dst = b->style.has_post_norms ? b->norm : b->x;
    TRY(plan_add_step(b->plan, matmul));
    return b->style.has_post_norms ? add_norm(b, post_norm, layer, b->norm, b->x) : ERR_OK;
}

/* norm, Q K V with RoPE, attention, output projection + residual. */
static enum err add_attention(struct blocks *b, int layer)
{
    const struct blocks_hparams *h = &b->h;
    bool is_local = b->style.is_local[layer];
    uint32_t q_rows = h->n_heads * h->head_dim, kv_rows = h->n_kv_heads * h->head_dim;
    TRY(add_norm(b, "blk.%d.attn_norm.weight", layer, b->x, b->norm));
    struct plan_step qkv = plan_step_of(PLAN_MATMUL);
    qkv.epilogue = PLAN_QKV;
    qkv.layer = layer;
    qkv.src = b->norm;
    qkv.dst = b->q;
    qkv.eps = h->eps;
    qkv.rope = is_local ? b->local_rope : b->rope;
    TRY(blocks_bind(b, "blk.%d.attn_q.weight", layer, q_rows, h->n_embd, false, &qkv.w[0]));
    TRY(blocks_bind(b, "blk.%d.attn_k.weight", layer, kv_rows, h->n_embd, false, &qkv.w[1]));
    TRY(blocks_bind(b, "blk.%d.attn_v.weight", layer, kv_rows, h->n_embd, false, &qkv.w[2]));
    TRY(blocks_bind(b, "blk.%d.attn_q.bias", layer, 1, q_rows, true, &qkv.bias[0]));
    TRY(blocks_bind(b, "blk.%d.attn_k.bias", layer, 1, kv_rows, true, &qkv.bias[1]));
    TRY(blocks_bind(b, "blk.%d.attn_v.bias", layer, 1, kv_rows, true, &qkv.bias[2]));
    if (b->style.has_head_norms) {
        TRY(blocks_bind(b, "blk.%d.attn_q_norm.weight", layer, 1, h->head_dim, false, &qkv.q_norm));
        TRY(blocks_bind(b, "blk.%d.attn_k_norm.weight", layer, 1, h->head_dim, false, &qkv.k_norm));
    }
    TRY(plan_add_step(b->plan, &qkv));

    struct plan_step att = plan_step_of(PLAN_ATTENTION);
    att.layer = layer;
    att.src = b->q;
    att.dst = b->att;
    att.scale = b->style.attn_scale;
    att.window = is_local ? (int32_t)b->style.window : 0;
    TRY(plan_add_step(b->plan, &att));

    struct plan_step out = plan_step_of(PLAN_MATMUL);
    out.src = b->att;
    TRY(blocks_bind(b, "blk.%d.attn_output.weight", layer, h->n_embd, q_rows, false, &out.w[0]));
    TRY(blocks_bind(b, "blk.%d.attn_output.bias", layer, 1, h->n_embd, true, &out.bias[0]));
    return add_to_stream(b, &out, "blk.%d.post_attention_norm.weight", layer);
}

/* norm, gate and up, down + residual [Shazeer 2020, "GLU variants"]. */
static enum err add_feed_forward(struct blocks *b, int layer)
{
    const struct blocks_hparams *h = &b->h;
    TRY(add_norm(b, "blk.%d.ffn_norm.weight", layer, b->x, b->norm));
    struct plan_step glu = plan_step_of(PLAN_MATMUL);
    glu.epilogue = PLAN_GLU;
    glu.act = b->style.act;
    glu.src = b->norm;
    glu.dst = b->ff;
    TRY(blocks_bind(b, "blk.%d.ffn_gate.weight", layer, h->n_ff, h->n_embd, false, &glu.w[0]));
    TRY(blocks_bind(b, "blk.%d.ffn_up.weight", layer, h->n_ff, h->n_embd, false, &glu.w[1]));
    TRY(plan_add_step(b->plan, &glu));

    struct plan_step down = plan_step_of(PLAN_MATMUL);
    down.src = b->ff;
    TRY(blocks_bind(b, "blk.%d.ffn_down.weight", layer, h->n_embd, h->n_ff, false, &down.w[0]));
    return add_to_stream(b, &down, "blk.%d.post_ffw_norm.weight", layer);
}

/* gather, norm, logits. */
static enum err add_head(struct blocks *b, plan_weight_id embd)
{
    struct plan_step gather = plan_step_of(PLAN_GATHER);
    gather.src = b->x;
    gather.dst = b->last;
    TRY(plan_add_step(b->plan, &gather));
    TRY(add_norm(b, "output_norm.weight", -1, b->last, b->last));
    struct plan_step logits = plan_step_of(PLAN_MATMUL);
    logits.epilogue = PLAN_LOGITS;
    logits.softcap = b->style.logit_softcap;
    logits.src = b->last;
    TRY(blocks_bind(b, "output.weight", -1, b->h.n_vocab, b->h.n_embd, true, &logits.w[0]));
    if (logits.w[0] == PLAN_NONE) {
        logits.w[0] = embd; /* tied embeddings: one weight, packed once */
    }
    return plan_add_step(b->plan, &logits);
}

enum err blocks_build_decoder(struct blocks *b)
{
    TRY(blocks_add_ropes(b));
    const struct blocks_hparams *h = &b->h;
    uint32_t q_width = h->n_heads * h->head_dim;
    TRY(plan_add_buf(b->plan, "x", h->n_embd, &b->x));
    TRY(plan_add_buf(b->plan, "norm", h->n_embd, &b->norm));
    TRY(plan_add_buf(b->plan, "q", q_width, &b->q));
    TRY(plan_add_buf(b->plan, "att", q_width, &b->att));
    TRY(plan_add_buf(b->plan, "ff", h->n_ff, &b->ff));
    TRY(plan_add_buf(b->plan, "last", h->n_embd, &b->last));
    struct plan_step embed = plan_step_of(PLAN_EMBED);
    embed.dst = b->x;
    embed.scale = b->style.embed_scale;
    TRY(blocks_bind(b, "token_embd.weight", -1, h->n_vocab, h->n_embd, false, &embed.w[0]));
    TRY(plan_add_step(b->plan, &embed));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        TRY(add_attention(b, (int)i));
        TRY(add_feed_forward(b, (int)i));
    }
    return add_head(b, embed.w[0]);
}
