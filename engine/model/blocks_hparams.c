/* Reads the hyper-parameters of all families and checks them against each other. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads whether rows see later rows, and how states become an embedding [llama.cpp b11434, include/llama.h:
 * LLAMA_POOLING_TYPE_]. */
static enum err read_pooling(struct blocks *b)
{
    enum { NONE, MEAN, CLS, LAST, RANK };
    uint32_t type;
    bool is_causal;
    TRY(blocks_get_bool(b, "attention.causal", !b->is_encoder, &is_causal));
    TRY(blocks_get_u32(b, "pooling_type", NONE, RANK, NONE, &type));
    b->plan->is_bidirectional = !is_causal;
    TRY(blocks_expect(b, !b->is_encoder || !is_causal, "attention.causal", "expected false, found true"));
    b->plan->pooling = (enum plan_pooling)type;
    TRY(blocks_read_dense(b));
    return type == RANK || type == NONE ? blocks_read_rank(b) : ERR_OK;
}

/* Reads one number, or one per layer: the same, or 0 if the layer has no attention. */
static enum err read_kv_heads(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    uint32_t n[PLAN_MAX_LAYERS];
    TRY(blocks_get_layers(b, "attention.head_count_kv", !b->may_skip_attention, h->n_heads, h->n_heads, n));
    h->n_kv_heads = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        if (n[i] != 0 && h->n_kv_heads != 0 && n[i] != h->n_kv_heads) {
            return err_set(b->info, ERR_BAD_HPARAM, "attention.head_count_kv",
                           "%s.attention.head_count_kv[%u]: expected %u, as in earlier layers, found %u", b->arch, i,
                           h->n_kv_heads, n[i]);
        }
        h->n_kv_heads = n[i] != 0 ? n[i] : h->n_kv_heads;
    }
    return blocks_expect(b, h->n_kv_heads != 0, "attention.head_count_kv",
                         "expected a layer with attention, found none");
}

/* Reads the width of feed-forward blocks: one number, or one per layer: the same, or 0 if the layer has no such block. */
static enum err read_widths(struct blocks *b)
{
    bool has_experts = b->plan->moe.n_experts != 0; /* then possibly no layer is dense */
    uint32_t n[PLAN_MAX_LAYERS];
    if (!b->may_skip_ffn) {
        return blocks_get_u32(b, "feed_forward_length", !has_experts, PLAN_MAX_WIDTH, has_experts ? 0 : UINT64_MAX,
                              &b->h.n_ff);
    }
    TRY(blocks_get_layers(b, "feed_forward_length", 0, PLAN_MAX_WIDTH, UINT64_MAX, n));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        if (n[i] != 0 && b->h.n_ff != 0 && n[i] != b->h.n_ff) {
            return err_set(b->info, ERR_BAD_HPARAM, "feed_forward_length",
                           "%s.feed_forward_length[%u]: expected %u, as in earlier layers, found %u", b->arch, i,
                           b->h.n_ff, n[i]);
        }
        b->h.n_ff = n[i] != 0 ? n[i] : b->h.n_ff;
    }
    return ERR_OK;
}

/* Reads the numbers of heads per layer; b->h gets the largest. */
static enum err read_layer_heads(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    uint32_t n_heads[PLAN_MAX_LAYERS], n_kv[PLAN_MAX_LAYERS];
    struct plan_kv *kvs = arena_zalloc(&b->plan->arena, h->n_layers * sizeof *kvs);
    TRY_MEM_FOR(kvs != NULL, b->info, "out of memory for %u layers", h->n_layers);
    b->plan->kvs = kvs;
    TRY(blocks_get_layers(b, "attention.head_count", 1, PLAN_MAX_HEADS, UINT64_MAX, n_heads));
    TRY(blocks_get_layers(b, "attention.head_count_kv", 1, PLAN_MAX_HEADS, UINT64_MAX, n_kv));
    h->n_heads = h->n_kv_heads = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        TRY(blocks_expect(b, n_heads[i] % n_kv[i] == 0, "attention.head_count_kv",
                          "expected a divisor of attention.head_count, in layer %u %u, found %u", i, n_heads[i],
                          n_kv[i]));
        kvs[i] = (struct plan_kv){.n_heads = n_heads[i], .n_kv_heads = n_kv[i], .layer = (int32_t)i};
        h->n_heads = MAX_OF(h->n_heads, n_heads[i]);
        h->n_kv_heads = MAX_OF(h->n_kv_heads, n_kv[i]);
    }
    return ERR_OK;
}

/* Reads number and width of the heads. */
static enum err read_heads(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    if (b->is_latent) {
        return blocks_read_latent(b);
    }
    if (!b->heads_by_layer) {
        h->n_kv_heads = 1;
        TRY(b->reads_layers ? ERR_OK : read_kv_heads(b));
    }
    TRY(blocks_expect(b, b->heads_by_layer || h->n_heads % h->n_kv_heads == 0, "attention.head_count_kv",
                      "expected a divisor of attention.head_count %u, found %u", h->n_heads, h->n_kv_heads));
    TRY(blocks_expect(b, h->n_embd % h->n_heads == 0 || blocks_has_key(b, "attention.key_length"),
                      "attention.head_count",
                      "expected a divisor of embedding_length %u, as there is no attention.key_length, found %u",
                      h->n_embd, h->n_heads));
    TRY(blocks_get_u32(b, "attention.key_length", 4, PLAN_MAX_HEAD, h->n_embd / h->n_heads, &h->head_dim));
    uint32_t d = h->head_dim, value_dim;
    TRY(blocks_get_u32(b, "attention.value_length", b->may_narrow_values ? 4 : d, d, d, &value_dim));
    TRY(blocks_expect(b, value_dim == d || value_dim % 4 == 0, "attention.value_length",
                      "expected a multiple of 4, found %u", value_dim));
    b->plan->value_dim = value_dim != d ? value_dim : 0;
    h->n_rot = h->head_dim;
    if (!b->lacks_rope) {
        TRY(blocks_get_u32(b, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->n_rot));
    }
    return blocks_expect(b, h->head_dim % 4 == 0, "attention.key_length", "expected a multiple of 4, found %u",
                         h->head_dim);
}

/* Reads all of attention; a model without it has 0 heads. */
static enum err read_attention(struct blocks *b)
{
    if (b->lacks_attention) {
        return ERR_OK;
    }
    TRY(b->heads_by_layer ? read_layer_heads(b)
                          : blocks_get_u32(b, "attention.head_count", 1, PLAN_MAX_HEADS, UINT64_MAX, &b->h.n_heads));
    TRY(read_heads(b));
    return blocks_expect(b, b->h.n_rot % 2 == 0, "rope.dimension_count", "expected an even number, found %u",
                         b->h.n_rot);
}

/* Rejects layers beyond block_count, because infcgi would serve half a model. */
static enum err check_layers(const struct blocks *b)
{
    char before[16];
    snprintf(before, sizeof before, "%sblk.", b->layers != NULL ? b->layers : "");
    for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
        struct gguf_str name = gguf_tensor_at(b->g, i)->name;
        uint32_t layer = 0;
        size_t at = strlen(before);
        if (name.len < at || memcmp(name.data, before, at) != 0) {
            continue;
        }
        for (; at < name.len && name.data[at] >= '0' && name.data[at] <= '9' && layer < UINT32_MAX / 16; at++) {
            layer = layer * 10 + (uint32_t)(name.data[at] - '0');
        }
        TRY(blocks_expect(b, layer < b->h.n_layers, "block_count",
                          "expected %" PRIu32 " or more, as there is %.*s, found %" PRIu32, layer + 1, (int)name.len,
                          name.data, b->h.n_layers));
    }
    return ERR_OK;
}

/* Reads the number of tokens: the rows of the embedding. */
static enum err read_vocab(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    const struct gguf_tensor *embd = gguf_find_tensor(b->g, "token_embd.weight");
    if (embd == NULL && b->of != NULL) {
        h->n_vocab = b->of->n_vocab;
        return ERR_OK;
    }
    bool is_matrix = embd != NULL && embd->n_dims >= 2 && embd->dims[2] == 1 && embd->dims[3] == 1;
    if (!is_matrix || embd->dims[1] > PLAN_MAX_VOCAB) {
        return err_set(b->info, embd == NULL ? ERR_MISSING_TENSOR : ERR_BAD_TENSOR_SHAPE, "token_embd.weight",
                       "token_embd.weight: expected two dimensions and at most %d rows, found %s", PLAN_MAX_VOCAB,
                       embd == NULL ? "no such tensor" : "something else");
    }
    h->n_vocab = (uint32_t)embd->dims[1];
    return ERR_OK;
}

enum err blocks_read_hparams(struct blocks *b)
{
    struct blocks_hparams *h = &b->h;
    uint32_t said = 0;
    TRY(read_vocab(b));
    TRY(blocks_get_u32(b, "vocab_size", 1, h->n_vocab, h->n_vocab, &said)); /* the embedding can be padded */
    TRY(blocks_get_u32(b, "embedding_length", 1, PLAN_MAX_WIDTH, UINT64_MAX, &h->n_embd));
    TRY(blocks_get_u32(b, "block_count", 1, PLAN_MAX_LAYERS, UINT64_MAX, &h->n_layers));
    TRY(check_layers(b));
    TRY(blocks_get_u32(b, "context_length", 1, UINT32_MAX / 2, UINT64_MAX, &h->n_ctx_train));
    TRY(blocks_get_u32(b, "expert_count", 0, PLAN_MAX_EXPERTS, 0, &b->plan->moe.n_experts));
    if (!b->reads_layers) {
        TRY(read_widths(b));
    }
    TRY(read_attention(b));
    const char *eps = b->centers ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    TRY(blocks_get_f32(b, b->eps_key != NULL ? b->eps_key : eps, 1e-13, 1.0, NAN, &h->eps));
    TRY(read_pooling(b));
    TRY(blocks_get_f32(b, "rope.freq_base", 1.0, 1e12, 10000.0, &h->freq_base));
    TRY(blocks_read_context(b));
    b->style = (struct blocks_style){.has_pre_norms = true,
                                     .yarn_truncates = true,
                                     .act = PLAN_SILU,
                                     .embed_scale = 1,
                                     .attn_scale = h->head_dim != 0 ? (float)(1.0 / sqrt(h->head_dim)) : 1,
                                     .value_scale = 1,
                                     .residual_scale = 1,
                                     .expert_scale = 1,
                                     .logit_scale = 1,
                                     .local_freq_base = h->freq_base,
                                     .ffn_norm = "blk.%d.ffn_norm.weight",
                                     .attn_output = "blk.%d.attn_output",
                                     .last_norm = "output_norm.weight"};
    for (uint32_t k = 0; k < h->n_layers; k++) {
        b->style.mixer[k] = b->is_latent ? BLOCKS_LATENT : BLOCKS_ATTENTION;
        b->style.is_nope[k] = b->lacks_rope;
    }
    struct plan *p = b->plan;
    p->n_vocab = h->n_vocab;
    p->n_embd = h->n_embd;
    p->n_layers = h->n_layers;
    p->n_heads = h->n_heads;
    p->n_kv_heads = h->n_kv_heads;
    p->head_dim = h->head_dim;
    p->latent_dim = h->latent_dim;
    for (uint32_t i = 0; b->heads_by_layer && i < h->n_layers; i++) {
        p->kvs[i].head_dim = h->head_dim;
        p->kvs[i].value_dim = p->value_dim;
    }
    return ERR_OK;
}

enum err blocks_read_predicting(struct blocks *b)
{
    uint32_t n;
    TRY(blocks_get_u32(b, "nextn_predict_layers", 0, b->h.n_layers - 1, 0, &n));
    b->h.n_layers -= n;
    b->plan->layer = (int32_t)b->h.n_layers;
    b->predicts =
        b->may_predict && (n != 0 || b->head != NULL) && blocks_rows_of(b, "blk.%d.nextn.eh_proj.weight") != 0;
    b->plan->layer = PLAN_NONE;
    b->plan->n_layers = b->h.n_layers + b->predicts;
    if (b->predicts) {
        b->style.mixer[b->h.n_layers] = b->is_latent ? BLOCKS_LATENT : BLOCKS_ATTENTION;
    }
    return ERR_OK;
}

enum err blocks_skip_predicting(struct blocks *b)
{
    b->may_predict = false;
    TRY(blocks_read_predicting(b));
    return blocks_expect(b, b->head == NULL, "nextn_predict_layers",
                         "prediction heads of this family are not supported; expected another draft model");
}

enum err blocks_read_windows(struct blocks *b, uint32_t window, uint32_t period)
{
    char key[BLOCKS_KEY_BYTES];
    bool has_pattern = period < PLAN_MAX_LAYERS; /* the family has local layers, which need a window */
    bool says = blocks_has_key(b, "attention.sliding_window");
    TRY(blocks_get_u32(b, "attention.sliding_window", says && has_pattern, INT32_MAX, window, &b->style.window));
    const struct gguf_kv *kv = gguf_find(b->g, blocks_key(b, "attention.sliding_window_pattern", key));
    if (b->style.window == 0) {
        return ERR_OK;
    }
    TRY(blocks_expect(b, !b->plan->is_bidirectional || b->is_encoder, "attention.causal",
                      "expected true with a sliding window, found false"));
    if (kv == NULL || kv->type != GGUF_ARRAY) {
        TRY(blocks_get_u32(b, "attention.sliding_window_pattern", 1, PLAN_MAX_LAYERS, period, &period));
        for (uint32_t i = 0; i < b->h.n_layers; i++) {
            b->style.is_local[i] = i % period != (b->style.first_is_global ? 0 : period - 1);
        }
        return ERR_OK;
    }
    bool found;
    return blocks_get_flags(b, "attention.sliding_window_pattern", &found, b->style.is_local);
}

enum err blocks_read_nope(struct blocks *b, uint32_t period)
{
    bool found, has_rope[PLAN_MAX_LAYERS];
    TRY(blocks_get_flags(b, "attention.rope_pattern", &found, has_rope));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.is_nope[i] =
            found ? !has_rope[i] : period != 0 && i % period == (b->style.first_is_global ? 0 : period - 1);
    }
    return ERR_OK;
}
