/* Llama 4, text only [Meta 2025, "The Llama 4 herd"]: Llama's decoder, whose layers see chunks of 8192 positions, except
 * that every fourth sees all of them, without RoPE and with queries that grow with the position; norms of the heads of Q
 * and K without weights, after RoPE; in every n-th layer a shared expert and routed ones, picked by their logits, whose
 * sigmoids are factors of the experts' input. Keys: llama.cpp b11434, src/models/llama4.cpp, whose files have neither the
 * chunks nor what they replace. A folder that differs from these constants adds attention.sliding_window (0: no chunks),
 * attention.sliding_window_pattern, attention.rope_pattern, attention.temperature_scale, attention.temperature_length and
 * attention.norms_heads. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    GLOBAL_EVERY = 4,
    CHUNK = 8192,
    SIGMOID = 2,       /* expert_gating_func */
    BARE_EXPERTS = 128 /* the larger size has no norms of heads, which its files do not say */
};

static const double TEMPERATURE = 0.1;

/* Every n-th layer has experts; 0: none has. */
static enum err read_experts(struct blocks *b)
{
    uint32_t step;
    TRY(blocks_get_u32(b, "interleave_moe_layer_step", 0, PLAN_MAX_LAYERS, UINT64_MAX, &step));
    if (step == 0 || b->plan->moe.n_experts == 0) {
        b->plan->moe.n_experts = 0;
        return blocks_expect(b, b->h.n_ff != 0, "feed_forward_length", "expected 1 or more, found 0");
    }
    struct blocks_moe moe = {.gating = SIGMOID, .n_shared = 1, .weighs_input = true};
    TRY(blocks_read_moe(b, &moe));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.ffn[i] = (i + 1) % step == 0 ? BLOCKS_EXPERTS : BLOCKS_DENSE;
    }
    return blocks_expect(b, step == 1 || b->h.n_ff != 0, "feed_forward_length", "expected 1 or more, found 0");
}

static enum err build(struct blocks *b)
{
    bool norms_heads;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    TRY(blocks_get_bool(b, "attention.norms_heads", b->plan->moe.n_experts != BARE_EXPERTS, &norms_heads));
    TRY(read_experts(b));
    s->head_norm = norms_heads ? BLOCKS_NORM_BARE : BLOCKS_NO_HEAD_NORM;
    s->local_is_scaled = true;
    s->in_chunks = true;
    TRY(blocks_get_u32(b, "attention.sliding_window", 0, INT32_MAX, CHUNK, &s->window));
    TRY(s->window != 0 ? blocks_read_windows(b, CHUNK, GLOBAL_EVERY) : ERR_OK);
    TRY(blocks_read_nope(b, s->window != 0 ? GLOBAL_EVERY : 0));
    s->query_is_nope = true;
    s->query_lead = 1;
    TRY(blocks_get_f32(b, "attention.temperature_scale", 0.0, 1e3, s->window != 0 ? TEMPERATURE : 0, &s->query_beta));
    TRY(blocks_get_u32(b, "attention.temperature_length", 1, UINT32_MAX / 2, CHUNK, &s->query_period));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* Finds the layers that see chunks: without layer_types, those with RoPE do. */
static enum err read_chunks(const struct hf *h, uint32_t n_layers, const unsigned char *has_rope,
                            unsigned char is_local[PLAN_MAX_LAYERS], bool *has_any)
{
    static const char key[] = "layer_types";
    const json_t *types = json_read_get(h->config, key);
    *has_any = false;
    for (uint32_t i = 0; i < n_layers; i++) {
        char shown[JSON_READ_SHOWN];
        const json_t *v = json_array_get(types, i);
        is_local[i] = types != NULL ? json_read_is(v, "chunked_attention") : has_rope[i];
        *has_any |= is_local[i] != 0;
        if (types != NULL && !is_local[i] && !json_read_is(v, "full_attention")) {
            return err_set(h->info, ERR_BAD_CONFIG, key,
                           "config.json: layer_types[%" PRIu32
                           "]: expected chunked_attention or full_attention, found %s",
                           i, json_read_show(v, shown));
        }
    }
    return ERR_OK;
}

/* Adds the layers with chunks, and those with RoPE, in *has_chunks whether there are some. */
static enum err add_layers(struct hf *h, bool *has_chunks)
{
    static const char key[] = "attention_chunk_size";
    unsigned char has_rope[PLAN_MAX_LAYERS], is_local[PLAN_MAX_LAYERS];
    const json_t *size = json_object_get(h->config, key);
    uint32_t n_layers, chunk;
    TRY(hf_get_rope_layers(h, GLOBAL_EVERY, &n_layers, has_rope));
    TRY(read_chunks(h, n_layers, has_rope, is_local, has_chunks));
    TRY(hf_get_u32(h, key, 1, INT32_MAX, CHUNK, &chunk));
    if (*has_chunks && json_is_null(size)) {
        return hf_bad_value(h, key, "1 or more, as some layers have chunks", size);
    }
    chunk = *has_chunks ? chunk : 0;
    if (chunk != CHUNK) {
        gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window"), chunk);
    }
    if (*has_chunks) {
        hf_add_pattern(h, "attention.sliding_window_pattern", n_layers, is_local, GLOBAL_EVERY);
    }
    hf_add_pattern(h, "attention.rope_pattern", n_layers, has_rope, *has_chunks ? GLOBAL_EVERY : 0);
    return ERR_OK;
}

/* Adds what the attention of layers differs in from that of published models. */
static enum err add_attention(struct hf *h)
{
    const json_t *tuning = json_read_get(h->config, "attn_temperature_tuning");
    bool has_chunks, is_tuned = tuning == NULL || json_is_true(tuning) || json_integer_value(tuning) != 0;
    uint32_t period;
    double scale;
    if (tuning != NULL && !json_is_boolean(tuning) && !json_is_integer(tuning)) {
        return hf_bad_value(h, "attn_temperature_tuning", "true or false", tuning);
    }
    TRY(hf_get_f64(h, h->config, "attn_scale", 0, 1e3, TEMPERATURE, &scale));
    TRY(hf_get_u32(h, "floor_scale", 1, UINT32_MAX / 2, CHUNK, &period));
    TRY(add_layers(h, &has_chunks));
    scale = is_tuned ? scale : 0;
    if (scale != (has_chunks ? TEMPERATURE : 0)) {
        gguf_build_f32(&h->b, hf_key(h, "attention.temperature_scale"), (float)scale);
    }
    if (period != CHUNK) {
        gguf_build_u32(&h->b, hf_key(h, "attention.temperature_length"), period);
    }
    return ERR_OK;
}

/* moe_layers lists the layers with experts, and replaces interleave_moe_layer_step, the only one that files have. */
static enum err check_moe_layers(const struct hf *h, uint32_t n_layers, uint32_t step)
{
    static const char key[] = "moe_layers";
    const json_t *list = json_read_get(h->config, key);
    size_t n = step != 0 ? n_layers / step : 0;
    bool fits = list == NULL || (json_is_array(list) && json_array_size(list) == n);
    for (size_t i = 0; list != NULL && fits && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        fits = json_is_integer(v) && json_integer_value(v) == (json_int_t)((i + 1) * step - 1);
    }
    return fits
               ? ERR_OK
               : hf_bad(h, key,
                        "expected the last of each %" PRIu32 " layers, as interleave_moe_layer_step says, found others",
                        step);
}

/* Adds a layer's experts, unless each has its own tensors. */
static enum err add_experts(struct hf *h, uint32_t layer, uint32_t n_embd, uint32_t n_ff)
{
    char from[SAFETENSORS_MAX_NAME_BYTES + 1], gate[64], up[64], down[64];
    snprintf(gate, sizeof gate, "blk.%" PRIu32 ".ffn_gate_exps.weight", layer);
    snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up_exps.weight", layer);
    snprintf(down, sizeof down, "blk.%" PRIu32 ".ffn_down_exps.weight", layer);
    if (gguf_build_find(&h->b, gate) != NULL) {
        return ERR_OK;
    }
    const char *prefix = h->config == h->root ? "" : "language_model.";
    snprintf(from, sizeof from, "%smodel.layers.%" PRIu32 ".feed_forward.experts.gate_up_proj", prefix, layer);
    TRY(hf_add_experts(h, from, 2 * n_ff, n_embd, true, (const char *const[]){gate, up}));
    snprintf(from, sizeof from, "%smodel.layers.%" PRIu32 ".feed_forward.experts.down_proj", prefix, layer);
    return hf_add_experts(h, from, n_embd, n_ff, true, (const char *const[]){down, NULL});
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers, n_embd, n_ff, n_experts, step;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_embd));
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH / 2, UINT64_MAX, &n_ff));
    TRY(hf_get_u32(h, "num_local_experts", 0, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    TRY(hf_get_u32(h, "interleave_moe_layer_step", 0, PLAN_MAX_LAYERS, UINT64_MAX, &step));
    TRY(check_moe_layers(h, n_layers, step));
    TRY(add_attention(h));
    const json_t *norms = json_read_get(h->config, "use_qk_norm");
    if (norms != NULL && !json_is_boolean(norms)) {
        return hf_bad_value(h, "use_qk_norm", "true or false", norms);
    }
    if (json_is_false(norms) != (n_experts == BARE_EXPERTS)) {
        gguf_build_bool(&h->b, hf_key(h, "attention.norms_heads"), !json_is_false(norms));
    }
    for (uint32_t i = 0; step != 0 && n_experts != 0 && i < n_layers; i++) {
        TRY((i + 1) % step == 0 ? add_experts(h, i, n_embd, n_ff) : ERR_OK);
    }
    return ERR_OK;
}

static const struct hf_key hf_keys[] = {
    {"intermediate_size", "expert_feed_forward_length", HF_U32},
    {"intermediate_size_mlp", "feed_forward_length", HF_U32},
    {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", HF_U32},
    {"attention_chunk_size", "attention.sliding_window", HF_WORD},
    {"attn_scale", "attention.temperature_scale", HF_WORD},
    {"floor_scale", "attention.temperature_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", HF_DROP},
    {"model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight", HF_DROP},
    {"model.layers.{}.feed_forward.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.feed_forward.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.feed_forward.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Of a nested text_config, config.json can have only differences [transformers 5.23, Llama4TextConfig]. */
static const char hf_defaults[] =
    "{\"hidden_size\": 5120, \"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"num_hidden_layers\": 48,"
    " \"num_attention_heads\": 40, \"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 131072,"
    " \"rms_norm_eps\": 1e-5, \"num_experts_per_tok\": 1, \"num_local_experts\": 16, \"interleave_moe_layer_step\": 1,"
    " \"rope_theta\": 5e5}";

static const struct hf_family hf_llama4 = {
    .architectures = {"Llama4ForConditionalGeneration", "Llama4ForCausalLM"},
    .arch = "llama4",
    .defaults = hf_defaults,
    .keys = hf_keys,
    .names = hf_names,
    .has_layer_types = true,
    .has_rope_pairs = true,
    .finish = finish,
};

const struct model_family model_llama4 = {
    .members = "Llama 4 Scout, Maverick (text)",
    .arch = "llama4",
    .hf = {&hf_llama4},
    .build = build,
};
