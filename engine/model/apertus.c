/* Apertus [Swiss AI 2025, "Apertus: Democratizing Open and Compliant LLMs", 2.1]: Llama's decoder with norms of the heads
 * of Q and K, and feed-forward blocks without a gate. Their activation, xIELU, has trained factors in each layer. Keys:
 * llama.cpp b11434, src/models/apertus.cpp and conversion/llama.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96, N_FACTORS = 4 };

/* Keys are without the architecture. A file has the numbers that a softplus makes factors of, as they were trained. */
static const struct {
    const char *key, *name; /* in GGUF, and in a folder */
    double fallback;        /* NAN: required [transformers 5.23, XIELUActivation] */
} factors[N_FACTORS] = {{"xielu.alpha_p", "alpha_p", NAN},
                        {"xielu.alpha_n", "alpha_n", NAN},
                        {"xielu.beta", "beta", 0.5},
                        {"xielu.eps", "eps", -1e-6}};
enum { ALPHA_P, ALPHA_N, BETA, EPS };

static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

/* Reads one number per layer, or one for all. */
static enum err read_layers(const struct blocks *b, const char *key, double out[PLAN_MAX_LAYERS])
{
    const double most = 1e4;
    const struct gguf_kv *kv = gguf_find(b->g, key);
    bool is_list = kv != NULL && kv->type == GGUF_ARRAY;
    double one = 0;
    TRY(is_list ? gguf_get_array(b->g, key, GGUF_F32, &kv, b->info) : gguf_get_f64(b->g, key, &one, b->info));
    if (is_list && kv->n != b->h.n_layers) {
        return err_set(b->info, ERR_BAD_HPARAM, key, "%s: expected %" PRIu32 " elements, one a layer, found %" PRIu64,
                       key, b->h.n_layers, kv->n);
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        out[i] = is_list ? gguf_elem_f64(kv, i) : one;
        if (!(fabs(out[i]) <= most)) {
            return err_set(b->info, ERR_BAD_HPARAM, key, "%s[%" PRIu32 "]: expected %g to %g, found %g", key, i, -most,
                           most, out[i]);
        }
    }
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    double values[N_FACTORS][PLAN_MAX_LAYERS];
    TRY(blocks_read_hparams(b));
    struct blocks_xielu *x = arena_alloc(&b->plan->arena, b->h.n_layers * sizeof *x);
    TRY_MEM(x != NULL);
    for (int k = 0; k < N_FACTORS; k++) {
        TRY(read_layers(b, factors[k].key, values[k]));
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        x[i] = (struct blocks_xielu){.alpha_p = (float)softplus(values[ALPHA_P][i]),
                                     .alpha_n = (float)(values[BETA][i] + softplus(values[ALPHA_N][i])),
                                     .beta = (float)values[BETA][i],
                                     .eps = (float)values[EPS][i]};
    }
    b->style.is_neox = true;
    b->style.head_norm = BLOCKS_NORM_EACH;
    b->style.is_ungated = true;
    b->style.xielu = x;
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* Reads the only element of a tensor, or `fallback` if there is none. */
static enum err read_one(const struct hf *h, const char *name, double fallback, float *out)
{
    const struct st_tensor *t = safetensors_folder_find(h->tensors, name);
    enum dtype type;
    uint16_t half = 0;
    if (t == NULL) {
        *out = (float)fallback;
        return !isnan(fallback) ? ERR_OK : hf_bad_tensor(h, ERR_MISSING_TENSOR, name, "expected, found none");
    }
    TRY(hf_float_type(h, t, &type));
    uint64_t bytes = type == DTYPE_F32 ? sizeof *out : sizeof half;
    if (t->bytes != bytes) {
        return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, name, "expected one element, found another shape");
    }
    memcpy(type == DTYPE_F32 ? (void *)out : &half, t->data, bytes);
    if (type != DTYPE_F32) {
        *out = type == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
    }
    return ERR_OK;
}

/* Adds the factors, which are tensors in a folder. Without RoPE parameters, transformers has some of Llama 3's kind. */
static enum err finish(struct hf *h)
{
    uint32_t n_layers;
    float values[PLAN_MAX_LAYERS];
    char name[NAME_BYTES];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    for (int k = 0; k < N_FACTORS; k++) {
        for (uint32_t i = 0; i < n_layers; i++) {
            snprintf(name, sizeof name, "model.layers.%" PRIu32 ".mlp.act_fn.%s", i, factors[k].name);
            TRY(read_one(h, name, factors[k].fallback, &values[i]));
        }
        gguf_build_array(&h->b, factors[k].key, GGUF_F32, n_layers, values);
    }
    bool has_rope =
        json_read_get(h->config, "rope_parameters") != NULL || json_read_get(h->config, "rope_scaling") != NULL;
    return has_rope ? ERR_OK : hf_bad(h, "rope_parameters", "expected an object, found none");
}

static const struct hf_name hf_apertus_names[] = {
    {"model.layers.{}.attention_layernorm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    {"model.layers.{}.feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_apertus = {
    .architectures = {"ApertusForCausalLM"},
    .arch = "apertus",
    .defaults = "{\"rms_norm_eps\": 1e-5, \"rope_theta\": 1.2e7}", /* transformers 5.23, ApertusConfig */
    .names = hf_apertus_names,
    .act = HF_XIELU,
    .finish = finish,
};

const struct model_family model_apertus = {
    .members = "Apertus 8B, 70B",
    .arch = "apertus",
    .hf = {&hf_apertus},
    .build = build,
};
