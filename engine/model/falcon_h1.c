/* Falcon-H1 [TII 2025, "Falcon-H1"]: Llama's decoder, each layer of which has a state space next to attention: both read
 * one norm, and both are added. Factors of the maximal update parametrization [Yang 2022] are in the weights of GGUF
 * files; of folders they multiply the rows here. Keys: llama.cpp b11434, src/models/falcon-h1.cpp and
 * conversion/falcon_h1.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"
#include "engine/tensor/row_scaled.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->ffn_norm = "blk.%d.ffn_norm"; /* as llama.cpp writes it */
    s->lacks_ssm_norm = blocks_rows_of(b, "blk.0.ssm_norm.weight") == 0;
    TRY(blocks_read_parallel_ssm(b));
    return blocks_build_decoder(b);
}

/* --- SafeTensors ------------------------------------------------------------------------------------------------ */

enum { NAME_BYTES = 96, PARTS = 5 }; /* of the rows of in_proj: z, x, B, C, dt */

/* A tensor's rows before end[i] have factor by[i], those after the last end the last factor. */
struct scaling {
    const char *name;
    int n;
    uint32_t end[PARTS - 1];
    double by[PARTS];
};

static enum err get_factor(const struct hf *h, const char *key, double *out)
{
    return hf_get_f64(h, h->config, key, -1e6, 1e6, 1.0, out);
}

/* Reads an array of n factors; absent: ones. */
static enum err get_factors(const struct hf *h, const char *key, size_t n, double *out)
{
    const json_t *all = json_read_get(h->config, key);
    if (all != NULL && json_array_size(all) != n) {
        return hf_bad(h, key, "expected an array of %zu numbers, found another", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(all, i);
        out[i] = all != NULL ? json_number_value(v) : 1.0;
        if (all != NULL && (!json_is_number(v) || !(fabs(out[i]) <= 1e6))) {
            return hf_bad(h, key, "expected numbers from -1e+06 to 1e+06, found another as number %zu", i);
        }
    }
    return ERR_OK;
}

/* Returns the source's rows times their factors. */
static const struct row_source *scale_rows(struct hf *h, const struct row_source *of, const struct scaling *s)
{
    float *factors = arena_alloc(&h->b.arena, (of->n_rows + (size_t)1) * sizeof *factors);
    int part = 0;
    for (uint32_t i = 0; factors != NULL && i < of->n_rows; i++) {
        while (part + 1 < s->n && i >= s->end[part]) {
            part++;
        }
        factors[i] = (float)s->by[part];
    }
    return row_scaled_new(&h->b.arena, of, factors);
}

/* Scales a matrix; the builder rejects missing ones and other shapes. */
static void scale(struct hf *h, struct gguf_tensor *t, const struct scaling *s)
{
    bool scales = false;
    for (int i = 0; i < s->n; i++) {
        scales |= s->by[i] != 1.0;
    }
    if (scales && t != NULL && t->n_dims == 2 && t->source != NULL) {
        gguf_build_rows(&h->b, t, scale_rows(h, t->source, s), 1);
    }
}

static void scale_in_layer(struct hf *h, uint32_t layer, const struct scaling *s)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", layer, s->name);
    scale(h, gguf_build_find(&h->b, name), s);
}

/* Scales embedding and logits. A tied head becomes a separate matrix if its factor is another one. */
static enum err scale_ends(struct hf *h)
{
    static const char embd_name[] = "token_embd.weight", head_name[] = "output.weight";
    const struct gguf_tensor *embd = gguf_build_find(&h->b, embd_name);
    struct scaling of_embd = {embd_name, 1, {0}, {1}}, of_head = {head_name, 1, {0}, {1}};
    TRY(get_factor(h, "embedding_multiplier", &of_embd.by[0]));
    TRY(get_factor(h, "lm_head_multiplier", &of_head.by[0]));
    bool is_tied = gguf_build_find(&h->b, head_name) == NULL;
    if (is_tied && embd != NULL && of_head.by[0] != of_embd.by[0]) {
        struct gguf_tensor copy = *embd; /* adding it can move the list */
        gguf_build_tensor(&h->b, head_name, &copy);
    }
    scale(h, gguf_build_find(&h->b, head_name), &of_head);
    scale(h, gguf_build_find(&h->b, embd_name), &of_embd);
    return ERR_OK;
}

/* Multiplies the rows of weights by the factors of config.json. Of a product with several, rounding differs from that of
 * transformers, which multiplies activations. */
static enum err scale_weights(struct hf *h, uint32_t inner, uint32_t n_mixed)
{
    double key, in, out, ssm_in, ssm_out, mlp[2], ssm[PARTS];
    uint32_t n_layers;
    TRY(get_factor(h, "key_multiplier", &key));
    TRY(get_factor(h, "attention_in_multiplier", &in));
    TRY(get_factor(h, "attention_out_multiplier", &out));
    TRY(get_factor(h, "ssm_in_multiplier", &ssm_in));
    TRY(get_factor(h, "ssm_out_multiplier", &ssm_out));
    TRY(get_factors(h, "mlp_multipliers", ARRAY_LEN(mlp), mlp));
    TRY(get_factors(h, "ssm_multipliers", ARRAY_LEN(ssm), ssm));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    const struct scaling all[] = {
        {"attn_q", 1, {0}, {in}},
        {"attn_k", 1, {0}, {in * key}},
        {"attn_v", 1, {0}, {in}},
        {"attn_output", 1, {0}, {out}},
        {"ffn_gate", 1, {0}, {mlp[0]}},
        {"ffn_down", 1, {0}, {mlp[1]}},
        {"ssm_out", 1, {0}, {ssm_out}},
        {"ssm_in",
         PARTS,
         {inner, 2 * inner, 2 * inner + n_mixed, 2 * inner + 2 * n_mixed},
         {ssm_in * ssm[0], ssm_in * ssm[1], ssm_in * ssm[2], ssm_in * ssm[3], ssm_in * ssm[4]}},
    };
    for (uint32_t i = 0; i < n_layers * ARRAY_LEN(all); i++) {
        scale_in_layer(h, i / (uint32_t)ARRAY_LEN(all), &all[i % ARRAY_LEN(all)]);
    }
    return scale_ends(h);
}

/* A norm before the gate has no key in GGUF files. */
static enum err check_norm(const struct hf *h)
{
    static const char key[] = "mamba_norm_before_gate";
    bool has_norm = json_is_true(json_read_get(h->config, "mamba_rms_norm"));
    const json_t *before = json_read_get(h->config, key);
    TRY(blocks_check_has(h, "mamba_rms_norm", false, ".ssm_norm.weight"));
    return !has_norm || json_is_false(before) ? ERR_OK
                                              : hf_bad_value(h, key, "false, as mamba_rms_norm is true", before);
}

static enum err finish(struct hf *h)
{
    uint32_t hidden, expand, inner, n_heads, head_dim, n_groups, state;
    TRY(blocks_check_limit(h));
    TRY(check_norm(h));
    TRY(blocks_check_has(h, "mamba_conv_bias", true, ".ssm_conv1d.bias"));
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &hidden));
    TRY(hf_get_u32(h, "mamba_expand", 1, PLAN_MAX_WIDTH / hidden, 2, &expand));
    TRY(hf_get_u32(h, "mamba_d_ssm", 1, PLAN_MAX_WIDTH, (uint64_t)expand * hidden, &inner));
    TRY(hf_get_u32(h, "mamba_n_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "mamba_n_groups", 1, n_heads, UINT64_MAX, &n_groups));
    TRY(hf_get_u32(h, "mamba_d_state", 1, PLAN_MAX_STATE, UINT64_MAX, &state));
    head_dim = inner / n_heads;
    if (json_is_integer(json_read_get(h->config, "mamba_d_head"))) { /* else "auto" */
        TRY(hf_get_u32(h, "mamba_d_head", 1, PLAN_MAX_HEAD, UINT64_MAX, &head_dim));
    }
    if (head_dim * n_heads != inner) {
        return hf_bad(h, "mamba_d_head",
                      "expected mamba_d_ssm / mamba_n_heads = %" PRIu32 " / %" PRIu32 ", found %" PRIu32, inner,
                      n_heads, head_dim);
    }
    gguf_build_u32(&h->b, hf_key(h, "ssm.inner_size"), inner);
    blocks_shape_ssm(h, n_groups);
    return scale_weights(h, inner, n_groups * state);
}

static const struct hf_key hf_falcon_h1_keys[] = {
    {"mamba_d_conv", "ssm.conv_kernel", HF_U32},   {"mamba_d_state", "ssm.state_size", HF_U32},
    {"mamba_n_groups", "ssm.group_count", HF_U32}, {"mamba_n_heads", "ssm.time_step_rank", HF_U32},
    {"mamba_d_ssm", "ssm.inner_size", HF_WORD},    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_falcon_h1_names[] = {
    {"model.final_layernorm.weight", "output_norm.weight", HF_SAME},
    {"model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm", HF_SAME},
    {"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    BLOCKS_SSM_NAMES("model.layers.{}.mamba."),
    {NULL, NULL, HF_SAME},
};

/* Biases are added before transformers applies the factors. */
static const struct hf_fixed hf_falcon_h1_fixed[] = {
    {"attention_bias", "false"},  {"mlp_bias", "false"}, {"mamba_proj_bias", "false"},
    {"projectors_bias", "false"}, {NULL, NULL},
};

static const struct hf_family hf_falcon_h1 = {
    .architectures = {"FalconH1ForCausalLM"},
    .has_layer_types = true,
    .arch = "falcon-h1",
    .keys = hf_falcon_h1_keys,
    .names = hf_falcon_h1_names,
    .fixed = hf_falcon_h1_fixed,
    .finish = finish,
};

const struct model_family model_falcon_h1 = {
    .members = "Falcon-H1",
    .arch = "falcon-h1",
    .hf = {&hf_falcon_h1},
    .build = build,
};
