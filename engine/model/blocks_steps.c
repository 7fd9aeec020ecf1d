/* Single steps, and common parts of Gemma 3n and 4: layers that read the cache of other layers, and embeddings per
 * layer. Names: llama.cpp b11434, gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

#include "engine/quant/row_mapped.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96 };

enum err blocks_bind_norm_bias(struct blocks *b, const char *name, plan_weight_id *id)
{
    static const char end[] = ".weight";
    char bias[NAME_BYTES];
    *id = PLAN_NONE;
    if (!b->style.has_norm_biases) {
        return ERR_OK;
    }
    snprintf(bias, sizeof bias, "%.*s.bias", (int)(strlen(name) - (sizeof end - 1)), name);
    return blocks_bind(b, bias, 1, b->h.n_embd, id);
}

enum err blocks_add_norm(struct blocks *b, const char *name, plan_buf_id src, plan_buf_id dst, bool adds)
{
    struct plan_step s = plan_step_of(PLAN_NORM, src, dst);
    s.norm.centers = b->centers;
    s.adds = adds;
    s.eps = b->h.eps;
    TRY(blocks_bind(b, name, 1, b->plan->bufs[src].width, &s.w[0]));
    TRY(blocks_bind_norm_bias(b, name, &s.bias[0]));
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_embedding(struct blocks *b)
{
    struct plan_step s = plan_step_of(PLAN_EMBED, PLAN_NONE, b->x);
    s.scale = b->style.embed_scale;
    TRY(blocks_bind(b, "token_embd.weight", b->h.n_vocab, b->h.n_embd, &s.w[0]));
    b->embd = s.w[0];
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_reduce(struct blocks *b, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_REDUCE, PLAN_NONE, dst);
    s.adds = true;
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_pre_norm(struct blocks *b, const char *name, plan_buf_id *src)
{
    *src = b->style.has_pre_norms ? b->norm : b->x;
    return b->style.has_pre_norms && name != NULL ? blocks_add_norm(b, name, b->x, b->norm, false) : ERR_OK;
}

enum err blocks_add_matmul(struct blocks *b, const char *name, plan_buf_id src, plan_buf_id dst)
{
    struct plan *p = b->plan;
    struct plan_step s = plan_step_of(PLAN_MATMUL, src, dst);
    TRY(blocks_bind(b, name, p->bufs[dst].width, p->bufs[src].width, &s.w[0]));
    return plan_add_step(p, &s);
}

enum err blocks_add_glu(struct blocks *b, const char *gate, const char *up, plan_buf_id src, plan_buf_id dst)
{
    uint32_t n_out = b->plan->bufs[dst].width, n_in = b->plan->bufs[src].width;
    struct plan_step s = plan_step_of(PLAN_GLU, src, dst);
    s.act = b->style.act;
    TRY(blocks_bind(b, gate, n_out, n_in, &s.w[0]));
    TRY(up != NULL ? blocks_bind(b, up, n_out, n_in, &s.w[1]) : ERR_OK);
    blocks_limit(&s, up != NULL && b->plan->layer >= 0 ? b->style.dense_limit[b->plan->layer] : 0);
    return plan_add_step(b->plan, &s);
}

static enum err add_linear(struct blocks *b, const char *stem, struct plan_step *s)
{
    uint32_t n = b->plan->bufs[s->dst].width;
    TRY(blocks_bind_part(b, stem, (struct blocks_part){0, n, n}, s, 0));
    return plan_add_step(b->plan, s);
}

enum err blocks_add_linear(struct blocks *b, const char *stem, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_MATMUL, src, dst);
    return add_linear(b, stem, &s);
}

enum err blocks_add_output(struct blocks *b, const char *stem, plan_buf_id src, const char *post_norm)
{
    return blocks_add_scaled_output(b, stem, src, post_norm, 1.0f);
}

enum err blocks_add_scaled_output(struct blocks *b, const char *stem, plan_buf_id src, const char *post_norm,
                                  float scale)
{
    bool has_post = b->style.has_post_norms;
    struct plan_step s = plan_step_of(PLAN_MATMUL, src, has_post ? b->norm : b->x);
    s.adds = !has_post;
    s.scale = has_post ? 1.0f : b->style.residual_scale * scale;
    TRY(add_linear(b, stem, &s));
    TRY(blocks_add_reduce(b, s.dst));
    return has_post ? blocks_add_norm(b, post_norm, b->norm, b->x, true) : ERR_OK;
}

enum err blocks_bind_scaled(struct blocks *b, const char *name, uint32_t n, float factor, plan_weight_id *id)
{
    struct plan *p = b->plan;
    TRY(blocks_bind(b, name, 1, n, id));
    float *scaled = arena_alloc(&p->arena, n * sizeof *scaled);
    TRY_MEM(scaled != NULL);
    TRY(blocks_read_vector(b, *id, scaled));
    for (uint32_t i = 0; i < n; i++) {
        scaled[i] *= factor;
    }
    return plan_set_source(p, *id, row_mapped_new(&p->arena, DTYPE_F32, scaled, 1, n));
}

enum err blocks_add_ones(struct blocks *b, const char *name, uint32_t n, plan_weight_id *id)
{
    struct plan *p = b->plan;
    float *ones = arena_alloc(&p->arena, n * sizeof *ones);
    TRY_MEM(ones != NULL);
    for (uint32_t i = 0; i < n; i++) {
        ones[i] = 1.0f;
    }
    return plan_add_weight(p, name, row_mapped_new(&p->arena, DTYPE_F32, ones, 1, n), id);
}

enum err blocks_find_shared(const struct blocks *b, uint32_t n_shared, uint32_t layer, int32_t *out)
{
    uint32_t n_own = b->h.n_layers - n_shared;
    *out = (int32_t)layer;
    if (layer < n_own) {
        return ERR_OK;
    }
    for (*out = (int32_t)n_own - 1; *out >= 0; (*out)--) {
        if (b->style.is_local[*out] == b->style.is_local[layer]) {
            return ERR_OK;
        }
    }
    return blocks_expect(b, false, "attention.shared_kv_layers",
                         "expected fewer, as layer %" PRIu32
                         " has no earlier layer of its kind with keys and values, found %" PRIu32,
                         layer, n_shared);
}

/* Finds or adds a buffer; `key`: sets the widths, for messages. */
static enum err get_buf(struct blocks *b, const char *name, uint32_t width, const char *key, plan_buf_id *id)
{
    int n = 0;
    for (*id = 0; *id < b->plan->n_bufs; (*id)++) {
        bool is_one = strcmp(b->plan->bufs[*id].name, name) == 0;
        if (is_one && b->plan->bufs[*id].width == width) {
            return ERR_OK;
        }
        n += is_one;
    }
    TRY(blocks_expect(b, n < BLOCKS_MAX_FF_WIDTHS, key, "expected at most %d different ones, found more",
                      BLOCKS_MAX_FF_WIDTHS));
    return plan_add_buf(b->plan, name, width, id);
}

enum err blocks_get_ff_buf(struct blocks *b, const char *name, uint32_t width, plan_buf_id *id)
{
    return get_buf(b, name, width, "feed_forward_length", id);
}

enum err blocks_get_head_buf(struct blocks *b, const char *name, uint32_t width, plan_buf_id *id)
{
    return get_buf(b, name, width, "attention.head_count", id);
}

/* The norm's epsilon accounts for 1 / sqrt(D), and existing factors include 1 / sqrt(2). */
enum err blocks_add_per_layer(struct blocks *b, uint32_t n, plan_buf_id ple, plan_buf_id projected)
{
    struct plan_step embed = plan_step_of(PLAN_EMBED, PLAN_NONE, ple);
    embed.scale = (float)sqrt(n / 2.0);
    TRY(blocks_bind(b, "per_layer_token_embd.weight", b->h.n_vocab, b->h.n_layers * n, &embed.w[0]));
    TRY(plan_add_step(b->plan, &embed));
    TRY(blocks_add_matmul(b, "per_layer_model_proj.weight", b->x, projected));
    struct plan_step norm = plan_step_of(PLAN_NORM, projected, ple);
    norm.adds = true;
    norm.eps = (float)((double)b->h.eps * b->h.n_embd);
    TRY(blocks_bind_scaled(b, "per_layer_proj_norm.weight", n, (float)sqrt(0.5), &norm.w[0]));
    return plan_add_step(b->plan, &norm);
}

enum err blocks_add_layer_input(struct blocks *b, plan_buf_id src, plan_buf_id ple, plan_buf_id gate, plan_buf_id out)
{
    TRY(blocks_add_glu(b, "blk.%d.inp_gate.weight", NULL, src, gate));
    struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, ple, gate);
    multiply.multiply.first = (uint32_t)b->plan->layer * b->plan->bufs[gate].width;
    TRY(plan_add_step(b->plan, &multiply));
    return blocks_add_matmul(b, "blk.%d.proj.weight", gate, out);
}
