/* The prediction head of Gemma 4, which its publisher calls an assistant: layers of Gemma 4 in a file of their own that have
 * queries only and read the keys and values of the model, of its last local layer and of its last global one. For a token
 * the head reads the model's embedding of it and, of the row before it, what the model's logits are made of. Its own output
 * takes that place for a guess. It stores nothing, so all rows of a draft have the position of the first: they see what the
 * model's last row sees (plan.guesses_in_place).
 *
 * Files can also have centroids, by which the publisher's code computes logits of a part of the tokens (masked_embd_*); this
 * head, like llama.cpp's, computes all.
 *
 * Formulas: Hugging Face transformers 5.23, modeling_gemma4_assistant.py. Keys, names, and the position and the window of
 * rows: llama.cpp b11434, conversion/gemma.py, src/models/gemma4-assistant.cpp and common/speculative.cpp. */
#include "engine/model/gemma4.h"

#include "engine/plan/plan_ops.h"

#include <inttypes.h>
#include <string.h>

static const char of_arch[] = "gemma4", pre_projection[] = "nextn.pre_projection.weight";

/* --- hyper-parameters --------------------------------------------------------------------------------------------- */

/* Checks that the model is of the family, width and vocabulary of the head. */
static enum err check_model(const struct blocks *b)
{
    struct gguf_str arch;
    uint32_t n_embd;
    TRY(gguf_get_str_or_null(b->of_file, "general.architecture", &arch, b->info));
    if (!gguf_str_is(arch, of_arch)) {
        return err_set(b->info, ERR_UNSUPPORTED_ARCH, "general.architecture",
                       "general.architecture: expected %s of the model, as this is its prediction head, found '%.*s'",
                       of_arch, (int)MIN_OF(arch.len, (size_t)64), arch.data != NULL ? arch.data : "");
    }
    TRY(blocks_get_u32(b, "embedding_length_out", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_embd));
    TRY(blocks_expect(b, n_embd == b->of->n_embd, "embedding_length_out",
                      "expected %" PRIu32 ", the width of the model, found %" PRIu32, b->of->n_embd, n_embd));
    return b->h.n_vocab == b->of->n_vocab ? ERR_OK
                                          : err_set(b->info, ERR_BAD_TENSOR_SHAPE, "token_embd.weight",
                                                    "token_embd.weight: expected %" PRIu32
                                                    " rows, one for each token of the model, found %" PRIu32,
                                                    b->of->n_vocab, b->h.n_vocab);
}

/* Checks that all layers read the model's keys and values, and none has more than a dense block. */
static enum err check_layers(const struct blocks *b)
{
    static const char *const counts[] = {"nextn_predict_layers", "attention.shared_kv_layers"};
    uint32_t n, n_layers = b->h.n_layers;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        TRY(blocks_get_u32(b, counts[i], 0, PLAN_MAX_LAYERS, n_layers, &n));
        TRY(blocks_expect(b, n == n_layers, counts[i], "expected all %" PRIu32 " layers, found %" PRIu32, n_layers, n));
    }
    TRY(blocks_get_u32(b, "embedding_length_per_layer_input", 0, 0, 0, &n));
    TRY(blocks_expect(b, b->plan->moe.n_experts == 0, "expert_count", "expected 0, found %" PRIu32,
                      b->plan->moe.n_experts));
    return blocks_expect(b, n_layers <= PLAN_MAX_LAYERS - b->of->n_layers, "block_count",
                         "expected at most %" PRIu32 " together with the model's, found %" PRIu32,
                         PLAN_MAX_LAYERS - b->of->n_layers, n_layers);
}

/* Finds the last layer of the model that is local, or global; *window: its window. */
static enum err find_layer(const struct blocks *b, bool is_local, struct plan_kv *out, uint32_t *window)
{
    bool found = false;
    for (int32_t i = 0; i < b->of->n_steps; i++) {
        const struct plan_step *s = &b->of->steps[i];
        if (s->op == PLAN_ATTENTION && (s->attention.window > 0) == is_local) {
            *out = plan_kv_of(b->of, s->layer);
            *window = (uint32_t)s->attention.window;
            found = true;
        }
    }
    return blocks_expect(b, found, "attention.sliding_window_pattern",
                         is_local ? "expected no local layers, as the model has none, found one"
                                  : "expected local layers only, as the model has no others, found a global one");
}

/* A row is one position before its token, so its window is shorter by one. */
static enum err check_window(struct blocks *b, uint32_t of_model)
{
    TRY(blocks_expect(b, b->style.window >= 2 && b->style.window <= of_model, "attention.sliding_window",
                      "expected 2 to %" PRIu32 ", as in the model, found %" PRIu32, of_model, b->style.window));
    b->style.window--;
    return ERR_OK;
}

/* Gives a layer the model's keys and values. */
static enum err set_layer(struct gemma4 *m, uint32_t layer, const struct plan_kv *kv)
{
    struct blocks *b = &m->b;
    uint32_t found = m->n_kv_heads[layer - b->n_before];
    b->plan->kvs[layer] = *kv;
    return found == kv->n_kv_heads ? ERR_OK
                                   : err_set(b->info, ERR_BAD_HPARAM, "attention.head_count_kv",
                                             "%s.attention.head_count_kv[%" PRIu32 "]: expected %" PRIu32
                                             ", as in the model, found %" PRIu32,
                                             b->arch, layer - b->n_before, kv->n_kv_heads, found);
}

/* Gives the layers of one kind the model's keys and values. */
static enum err set_kind(struct gemma4 *m, bool is_local)
{
    struct blocks *b = &m->b;
    struct plan_kv kv = {.layer = PLAN_NONE};
    uint32_t dim = is_local ? m->local_dim : b->h.head_dim, window = 0, n = 0;
    const char *key = is_local ? "attention.key_length_swa" : "attention.key_length";
    for (uint32_t i = b->n_before; i < b->plan->n_layers; i++) {
        n += b->style.is_local[i] == is_local;
    }
    if (n == 0) {
        return ERR_OK;
    }
    TRY(find_layer(b, is_local, &kv, &window));
    TRY(blocks_expect(b, dim == kv.head_dim, key, "expected %" PRIu32 ", as in the model, found %" PRIu32, kv.head_dim,
                      dim));
    TRY(blocks_expect(b, b->h.n_heads % kv.n_kv_heads == 0, "attention.head_count",
                      "expected a multiple of the %" PRIu32 " heads of the model's keys, found %" PRIu32, kv.n_kv_heads,
                      b->h.n_heads));
    TRY(is_local ? check_window(b, window) : ERR_OK);
    kv.n_heads = b->h.n_heads;
    for (uint32_t i = b->n_before; i < b->plan->n_layers; i++) {
        TRY(b->style.is_local[i] == is_local ? set_layer(m, i, &kv) : ERR_OK);
    }
    return ERR_OK;
}

/* Puts the head's layers after the model's. */
static enum err set_layers(struct gemma4 *m)
{
    struct blocks *b = &m->b;
    struct plan *p = b->plan;
    uint32_t n = b->h.n_layers;
    b->n_before = b->of->n_layers;
    p->n_layers = b->n_before + n;
    p->kvs = arena_zalloc(&p->arena, p->n_layers * sizeof *p->kvs);
    TRY_MEM(p->kvs != NULL);
    for (uint32_t i = 0; i < b->n_before; i++) {
        p->kvs[i] = plan_kv_of(b->of, (int32_t)i);
    }
    memmove(b->style.is_local + b->n_before, b->style.is_local, n * sizeof *b->style.is_local);
    memmove(m->n_ff + b->n_before, m->n_ff, n * sizeof *m->n_ff);
    TRY(blocks_get_layers(b, "attention.head_count_kv", 1, b->h.n_heads, b->h.n_heads, m->n_kv_heads));
    TRY(set_kind(m, false));
    TRY(set_kind(m, true));
    p->n_heads = MAX_OF(b->h.n_heads, b->of->n_heads);
    p->n_kv_heads = b->of->n_kv_heads;
    p->head_dim = b->of->head_dim;
    return ERR_OK;
}

static enum err read_hparams(struct gemma4 *m)
{
    TRY(gemma4_read_hparams(m));
    TRY(check_model(&m->b));
    TRY(check_layers(&m->b));
    TRY(set_layers(m));
    TRY(gemma4_add_ropes(m));
    for (int32_t i = 0; i < m->b.plan->n_ropes; i++) { /* of the token, not of the row before it */
        m->b.plan->ropes[i].shift = 1;
    }
    return ERR_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Adds the step of the model: its output is what its logits are made of. */
static enum err add_output(struct blocks *b)
{
    plan_buf_id last;
    TRY(plan_add_buf(b->plan, "model", b->of->n_embd, &last));
    struct plan_step input = plan_edge_of(false, last, 0), output = plan_edge_of(true, last, 0);
    input.edge.is_last = true;
    b->plan->input_width = b->plan->output_width = b->of->n_embd;
    TRY(plan_add_step(b->plan, &input));
    return plan_add_step(b->plan, &output);
}

/* Adds the model's embedding of the token; its embedding is its first step. */
static enum err add_embedding(struct blocks *b, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_EMBED, PLAN_NONE, dst);
    const struct plan_step *of = b->of->steps;
    s.scale = of->scale;
    TRY(plan_add_weight(b->plan, "token_embd.weight", b->of->weights[of->w[0]].source, &s.w[0]));
    return plan_add_step(b->plan, &s);
}

/* Adds x = the matrix times the embedding and the output of the row before. */
static enum err add_inputs(struct blocks *b, plan_buf_id embedding, plan_buf_id output)
{
    uint32_t n = b->of->n_embd;
    struct plan_step input = plan_edge_of(false, output, 0);
    TRY(add_embedding(b, embedding));
    TRY(plan_add_step(b->plan, &input));
    for (int i = 0; i < 2; i++) {
        struct plan_step s = plan_step_of(PLAN_MATMUL, i == 0 ? embedding : output, b->x);
        s.adds = i > 0;
        TRY(blocks_bind_inputs(b, pre_projection, b->h.n_embd, (uint32_t)i * n, n, 2 * n, &s.w[0]));
        TRY(plan_add_step(b->plan, &s));
    }
    return ERR_OK;
}

/* Adds the last norm, the output for a guess, and the logits. */
static enum err add_end(struct blocks *b, plan_buf_id output)
{
    struct plan_step gather = plan_step_of(PLAN_GATHER, b->x, b->last), edge = plan_edge_of(true, output, 0);
    struct plan_step logits = plan_step_of(PLAN_LOGITS, b->last, PLAN_NONE);
    TRY(plan_add_step(b->plan, &gather));
    TRY(blocks_add_norm(b, "output_norm.weight", b->last, b->last, false));
    TRY(blocks_add_matmul(b, "nextn.post_projection.weight", b->last, output));
    TRY(plan_add_step(b->plan, &edge));
    TRY(blocks_bind(b, "token_embd.weight", b->h.n_vocab, b->h.n_embd, &logits.w[0]));
    return plan_add_step(b->plan, &logits);
}

static enum err build(struct blocks *b)
{
    struct gemma4 m = {.b = *b};
    plan_buf_id embedding, output;
    struct plan *p = b->plan;
    m.b.reads_layers = true;
    TRY(read_hparams(&m));
    TRY(add_output(&m.b));
    TRY(gemma4_add_bufs(&m));
    TRY(plan_add_buf(p, "embedding", b->of->n_embd, &embedding));
    TRY(plan_add_buf(p, "output", b->of->n_embd, &output));
    p->i_predict = p->n_steps;
    p->layer = (int32_t)m.b.n_before;
    TRY(add_inputs(&m.b, embedding, output));
    for (; p->layer < (int32_t)p->n_layers; p->layer++) {
        TRY(gemma4_add_layer(&m));
    }
    p->layer = PLAN_NONE;
    return add_end(&m.b, output);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key keys[] = {
    {"head_dim", "attention.key_length_swa", HF_U32},
    {"head_dim", "attention.value_length_swa", HF_U32},
    {"head_dim", "rope.dimension_count_swa", HF_U32},
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"global_head_dim", "attention.key_length", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", HF_U32},
    {"num_kv_shared_layers", "attention.shared_kv_layers", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed fixed[] = {
    {"attention_bias", "false"},
    {"enable_moe_block", "false"},
    {NULL, NULL},
};

static const struct hf_name names[] = {
    {"pre_projection.weight", pre_projection, HF_SAME},
    {"post_projection.weight", "nextn.post_projection.weight", HF_SAME},
    {"masked_embedding.centroids.weight", "masked_embd_centroids.weight", HF_DROP},
    {"masked_embedding.token_ordering", "masked_embd_ordering", HF_DROP},
    {"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight", HF_SAME},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static enum err finish(struct hf *h)
{
    const json_t *width = json_read_get(h->root, "backbone_hidden_size");
    if (!json_is_integer(width) || json_integer_value(width) < 1 || json_integer_value(width) > PLAN_MAX_WIDTH) {
        return hf_bad_value(h, "backbone_hidden_size", "the width of the model", width);
    }
    gguf_build_u32(&h->b, hf_key(h, "embedding_length_out"), (uint32_t)json_integer_value(width));
    return gemma4_put_shapes(h);
}

static const struct hf_family hf_gemma4_assistant = {
    .architectures = {"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"},
    .arch = "gemma4-assistant",
    .defaults = gemma4_hf_defaults,
    .keys = keys,
    .names = names,
    .fixed = fixed,
    .act = HF_GELU_TANH,
    .window = 512,
    .finish = finish,
};

const struct model_family model_gemma4_assistant = {
    .members = "assistant of Gemma 4",
    .arch = "gemma4-assistant",
    .hf = {&hf_gemma4_assistant},
    .build = build,
};
