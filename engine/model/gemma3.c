/* Gemma 3, text only [Gemma Team 2025, "Gemma 3 Technical Report", 2]: Llama's decoder with a scaled embedding, norms
 * of the heads of Q and K, norms behind attention and feed-forward as well as in front, GELU gates, and layers of two
 * kinds: local ones see a window of the nearest positions and rotate by their own base, every sixth sees everything.
 * Files hold norm weights with the 1 of Gemma's (1 + w) already added.
 * Keys and their defaults: llama.cpp b11434, src/models/gemma3.cpp and conversion/gemma.py. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    GLOBAL_EVERY = 6, /* one global layer behind five local ones */
    LAYERS_27B = 62,  /* the size whose queries are scaled by D/H and not by d */
};
static const double LOCAL_FREQ_BASE = 10000.0;

/* A file may name the kind of each layer (array, true = local) or another period. */
static enum err read_pattern(struct blocks *b)
{
    const char *key = "gemma3.attention.sliding_window_pattern";
    const struct gguf_kv *kv = gguf_find(b->g, key);
    if (kv == NULL || kv->type != GGUF_ARRAY) {
        uint32_t period;
        TRY(blocks_get_u32(b, "attention.sliding_window_pattern", 1, PLAN_MAX_LAYERS, GLOBAL_EVERY, &period));
        for (uint32_t i = 0; i < b->h.n_layers; i++) {
            b->style.is_local[i] = i % period != period - 1;
        }
        return ERR_OK;
    }
    TRY(gguf_get_array(b->g, key, GGUF_BOOL, &kv, b->info));
    if (kv->n != b->h.n_layers) {
        return err_set_at(b->info, ERR_BAD_HPARAM, kv->offset, "%s: expected %u elements, one a layer, found %" PRIu64,
                          key, b->h.n_layers, kv->n);
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.is_local[i] = gguf_elem_i64(kv, i) != 0;
    }
    return ERR_OK;
}

static enum err build(const struct gguf *g, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "gemma3", .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    struct blocks_style *s = &b.style;
    s->is_neox = true;
    s->has_head_norms = true;
    s->has_post_norms = true;
    s->act = PLAN_GELU_TANH;
    s->embed_scale = sqrtf((float)b.h.n_embd);
    if (b.h.n_layers == LAYERS_27B) {
        s->attn_scale = (float)(1.0 / sqrt((double)b.h.n_embd / b.h.n_heads));
    }
    TRY(blocks_get_f32(&b, "final_logit_softcapping", 0.0, 1e6, 0.0, &s->logit_softcap));
    TRY(blocks_get_f32(&b, "rope.freq_base_swa", 1.0, 1e12, LOCAL_FREQ_BASE, &s->local_freq_base));
    TRY(blocks_get_u32(&b, "attention.sliding_window", 0, INT32_MAX, 0, &s->window));
    if (s->window != 0) { /* else every layer is global */
        TRY(read_pattern(&b));
    }
    return blocks_build_decoder(&b);
}

const struct model_family model_gemma3 = {
    .name = "gemma3",
    .members = "Gemma 3 270M, 1B, 4B, 12B, 27B (text)",
    .arch = "gemma3",
    .build = build,
};
