/* Single steps, and common parts of Gemma 3n and 4: layers that read the cache of other layers, and embeddings per
 * layer. Names: llama.cpp b11434, gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

#include "engine/quant/row_mapped.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum err blocks_add_norm(struct blocks *b, const char *name, int layer, plan_buf_id src, plan_buf_id dst, bool adds)
{
    struct plan_step s = plan_step_of(PLAN_NORM, src, dst);
    s.norm.centers = b->centers;
    s.adds = adds;
    s.eps = b->h.eps;
    TRY(blocks_bind(b, name, layer, 1, b->plan->bufs[src].width, false, &s.w[0]));
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_reduce(struct blocks *b, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_REDUCE, PLAN_NONE, dst);
    s.adds = true;
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_pre_norm(struct blocks *b, const char *name, int layer, plan_buf_id *src)
{
    *src = b->style.has_pre_norms ? b->norm : b->x;
    return b->style.has_pre_norms ? blocks_add_norm(b, name, layer, b->x, b->norm, false) : ERR_OK;
}

enum err blocks_add_to_stream(struct blocks *b, struct plan_step *matmul, const char *post_norm, int layer)
{
    bool has_post = b->style.has_post_norms;
    matmul->adds = !has_post;
    matmul->dst = has_post ? b->norm : b->x;
    matmul->scale = has_post ? 1.0f : b->style.residual_scale;
    TRY(plan_add_step(b->plan, matmul));
    TRY(blocks_add_reduce(b, matmul->dst));
    return has_post ? blocks_add_norm(b, post_norm, layer, b->norm, b->x, true) : ERR_OK;
}

enum err blocks_add_matmul(struct blocks *b, const char *name, int layer, enum plan_op op, plan_buf_id src,
                           plan_buf_id dst)
{
    struct plan *p = b->plan;
    struct plan_step s = plan_step_of(op, src, dst);
    s.act = b->style.act;
    TRY(blocks_bind(b, name, layer, p->bufs[dst].width, p->bufs[src].width, false, &s.w[0]));
    return plan_add_step(p, &s);
}

enum err blocks_bind_scaled(struct blocks *b, const char *name, int layer, uint32_t n, float factor, plan_weight_id *id)
{
    struct plan *p = b->plan;
    TRY(blocks_bind(b, name, layer, 1, n, false, id));
    float *scaled = arena_alloc(&p->arena, n * sizeof *scaled);
    TRY_MEM(scaled != NULL);
    TRY(blocks_read_vector(b, *id, scaled));
    for (uint32_t i = 0; i < n; i++) {
        scaled[i] *= factor;
    }
    return plan_set_source(p, *id, row_mapped_new(&p->arena, DTYPE_F32, scaled, 1, n));
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
    return err_set(b->info, ERR_BAD_HPARAM, "attention.shared_kv_layers",
                   "%s.attention.shared_kv_layers: expected fewer, as layer %" PRIu32
                   " finds no layer of its kind before them, found %" PRIu32,
                   b->arch, layer, n_shared);
}

/* The norm's epsilon accounts for 1 / sqrt(D), and existing factors include 1 / sqrt(2). */
enum err blocks_add_per_layer(struct blocks *b, uint32_t n, plan_buf_id ple, plan_buf_id projected)
{
    struct plan_step embed = plan_step_of(PLAN_EMBED, PLAN_NONE, ple);
    embed.scale = (float)sqrt(n / 2.0);
    TRY(blocks_bind(b, "per_layer_token_embd.weight", -1, b->h.n_vocab, b->h.n_layers * n, false, &embed.w[0]));
    TRY(plan_add_step(b->plan, &embed));
    TRY(blocks_add_matmul(b, "per_layer_model_proj.weight", -1, PLAN_MATMUL, b->x, projected));
    struct plan_step norm = plan_step_of(PLAN_NORM, projected, ple);
    norm.adds = true;
    norm.eps = (float)((double)b->h.eps * b->h.n_embd);
    TRY(blocks_bind_scaled(b, "per_layer_proj_norm.weight", -1, n, (float)sqrt(0.5), &norm.w[0]));
    return plan_add_step(b->plan, &norm);
}

enum err blocks_add_layer_input(struct blocks *b, int layer, plan_buf_id src, plan_buf_id ple, plan_buf_id gate,
                                plan_buf_id out)
{
    TRY(blocks_add_matmul(b, "blk.%d.inp_gate.weight", layer, PLAN_GLU, src, gate));
    struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, ple, gate);
    multiply.multiply.first = (uint32_t)layer * b->plan->bufs[gate].width;
    TRY(plan_add_step(b->plan, &multiply));
    return blocks_add_matmul(b, "blk.%d.proj.weight", layer, PLAN_MATMUL, gate, out);
}
