/* RoPE: plain, linear, dynamic, llama3 [Llama 3.1], yarn [Peng 2023], longrope [Ding 2024]. Names, defaults and
 * formulas: Hugging Face transformers 4.57, modeling_rope_utils.py. Llama 3's formula becomes factors, as in converters
 * to GGUF. */
#include "engine/hf/hf_rope.h"

#include "engine/hf/hf_internal.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { KEY_BYTES = 128, MAX_CTX = 1 << 30 };

/* RoPE of one kind of layers. */
struct rope {
    const json_t *params; /* NULL: plain */
    const char *type;     /* set by add_scaling */
    double theta;
    uint32_t n_rot, n_ctx;
    bool is_stretched; /* theta includes all scaling */
};

static void put_f32(struct hf *h, const char *key, double v) { gguf_build_f32(&h->b, hf_key(h, key), (float)v); }

static void put_u32(struct hf *h, const char *key, uint32_t v) { gguf_build_u32(&h->b, hf_key(h, key), v); }

static void put_type(struct hf *h, const char *type)
{
    gguf_build_str(&h->b, hf_key(h, "rope.scaling.type"), type, strlen(type));
}

/* Reads a positive factor of the parameters. */
static enum err get_factor(const struct hf *h, const struct rope *r, const char *key, double fallback, double *out)
{
    return hf_get_f64(h, r->params, key, 1e-6, 1e9, fallback, out);
}

/* Reads the context before stretching. */
static enum err get_original(const struct hf *h, const struct rope *r, double *out)
{
    double whole;
    TRY(hf_get_f64(h, h->config, "original_max_position_embeddings", 1, MAX_CTX, r->n_ctx, &whole));
    return hf_get_f64(h, r->params, "original_max_position_embeddings", 1, MAX_CTX, whole, out);
}

/* Adds type linear or dynamic. */
static enum err add_factor(struct hf *h, const struct rope *r)
{
    double factor;
    TRY(get_factor(h, r, "factor", NAN, &factor));
    put_type(h, r->type);
    put_f32(h, "rope.scaling.factor", factor);
    return ERR_OK;
}

/* Adds a tensor of n_rot / 2 factors, to fill in. */
static float *add_factors(struct hf *h, const struct rope *r, const char *name)
{
    uint32_t n = r->n_rot / 2;
    float *factors = arena_zalloc(&h->b.arena, (n + 1) * sizeof *factors);
    struct gguf_tensor t = {
        .type = DTYPE_F32, .n_dims = 1, .dims = {n, 1, 1, 1}, .data = factors, .bytes = n * sizeof *factors};
    if (factors != NULL) {
        gguf_build_tensor(&h->b, name, &t);
    } else {
        h->b.err = ERR_NOMEM;
    }
    return factors;
}

static enum err add_llama3(struct hf *h, const struct rope *r)
{
    double factor, low, high, original;
    TRY(get_factor(h, r, "factor", NAN, &factor));
    TRY(get_factor(h, r, "low_freq_factor", NAN, &low));
    TRY(get_factor(h, r, "high_freq_factor", NAN, &high));
    TRY(get_original(h, r, &original));
    if (high <= low) {
        char name[KEY_BYTES];
        return hf_bad(h, hf_path(h, r->params, "high_freq_factor", name),
                      "expected more than low_freq_factor %g, found %g", low, high);
    }
    float *out = add_factors(h, r, "rope_freqs.weight");
    for (uint32_t i = 0; out != NULL && i < r->n_rot / 2; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(r->theta, 2.0 * i / r->n_rot);
        double smooth = fmin(fmax((original / wave - low) / (high - low), 0), 1); /* 1: fast, kept; 0: slow, divided */
        out[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    return ERR_OK;
}

/* Returns how much longer contexts sharpen attention. */
static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static enum err add_yarn(struct hf *h, const struct rope *r)
{
    double factor, original, fast, slow, attn, mscale, mscale_all;
    TRY(get_factor(h, r, "factor", NAN, &factor));
    TRY(get_original(h, r, &original));
    TRY(get_factor(h, r, "beta_fast", 32, &fast));
    TRY(get_factor(h, r, "beta_slow", 1, &slow));
    TRY(hf_get_f64(h, r->params, "mscale", 0, 1e3, 0, &mscale));
    TRY(hf_get_f64(h, r->params, "mscale_all_dim", 0, 1e3, 0, &mscale_all));
    bool has_both = mscale != 0 && mscale_all != 0;
    attn = has_both ? yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all) : yarn_mscale(factor, 1);
    TRY(get_factor(h, r, "attention_factor", attn, &attn));
    put_type(h, "yarn");
    put_f32(h, "rope.scaling.factor", factor);
    put_u32(h, "rope.scaling.original_context_length", (uint32_t)original);
    put_f32(h, "rope.scaling.yarn_beta_fast", fast);
    put_f32(h, "rope.scaling.yarn_beta_slow", slow);
    put_f32(h, "rope.scaling.yarn_attn_factor", attn);
    if (mscale_all != 0) { /* latent attention scales q.k, too; only its files have a tenth [llama.cpp b11434] */
        bool is_latent = json_read_get(h->config, "kv_lora_rank") != NULL;
        put_f32(h, "rope.scaling.yarn_log_multiplier", is_latent ? 0.1 * mscale_all : mscale_all);
    }
    const json_t *truncate = json_read_get(r->params, "truncate");
    if (truncate != NULL) {
        gguf_build_bool(&h->b, hf_key(h, "rope.scaling.yarn_truncate"), !json_is_false(truncate));
    }
    return ERR_OK;
}

static enum err add_factor_list(struct hf *h, const struct rope *r, const char *member, const char *name)
{
    char key[KEY_BYTES];
    const json_t *list = json_read_get(r->params, member);
    size_t n = json_array_size(list);
    hf_path(h, r->params, member, key);
    if (!json_is_array(list) || n != r->n_rot / 2) {
        return hf_bad(h, key, "expected an array of %" PRIu32 " factors, found %zu", r->n_rot / 2, n);
    }
    float *out = add_factors(h, r, name);
    for (size_t i = 0; out != NULL && i < n; i++) {
        double v = json_number_value(json_array_get(list, i)); /* 0 if it is not a number */
        if (!(v > 0) || !isfinite(v)) {
            return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s[%zu]: expected a positive number, found %g",
                           key, i, v);
        }
        out[i] = (float)v;
    }
    return ERR_OK;
}

static enum err add_longrope(struct hf *h, const struct rope *r)
{
    double original, attn;
    TRY(get_original(h, r, &original));
    double stretch = r->n_ctx / original;
    attn = stretch <= 1 || original <= 1 ? 1 : sqrt(1 + log(stretch) / log(original));
    TRY(get_factor(h, r, "attention_factor", attn, &attn));
    put_type(h, "longrope");
    put_u32(h, "rope.scaling.original_context_length", (uint32_t)original);
    put_f32(h, "rope.scaling.attn_factor", attn);
    TRY(add_factor_list(h, r, "long_factor", "rope_factors_long.weight"));
    return add_factor_list(h, r, "short_factor", "rope_factors_short.weight");
}

/* Only the first part of a head's components rotates, with frequencies of the whole width: converters to GGUF stop the
 * others by factors [llama.cpp b11434, conversion/gemma.py]. */
static enum err add_proportional(struct hf *h, const struct rope *r)
{
    double factor, part;
    TRY(get_factor(h, r, "factor", 1, &factor));
    TRY(hf_get_f64(h, r->params, "partial_rotary_factor", 0, 1, 1, &part));
    float *out = add_factors(h, r, "rope_freqs.weight");
    uint32_t n_turning = (uint32_t)(part * r->n_rot / 2);
    for (uint32_t i = 0; out != NULL && i < r->n_rot / 2; i++) {
        out[i] = i < n_turning ? (float)factor : 1e30f;
    }
    return ERR_OK;
}

/* Is the layer of that number, possibly with leading zeros, one of full attention? */
static bool is_global(const struct hf *h, const char *number)
{
    const json_t *types = json_read_get(h->config, "layer_types");
    size_t layer = 0;
    for (; *number >= '0' && *number <= '9' && layer < PLAN_MAX_LAYERS; number++) {
        layer = layer * 10 + (size_t)(*number - '0');
    }
    const char *type = json_string_value(json_array_get(types, layer));
    return types == NULL || (type != NULL && strcmp(type, "full_attention") == 0);
}

enum err hf_get_global(const struct hf *h, const char *name, const char *per_layer, uint32_t fallback, uint32_t *out)
{
    json_t *layers = json_object_get(h->config, "per_layer_config"), *layer;
    const char *number;
    if (json_is_object(layers)) { /* it lists differences from the plain value */
        TRY(hf_get_u32(h, per_layer, 1, PLAN_MAX_WIDTH, fallback, &fallback));
    }
    json_object_foreach(layers, number, layer)
    {
        const json_t *v = json_read_get(layer, per_layer);
        if (is_global(h, number) && json_is_integer(v) && json_integer_value(v) > 0 &&
            json_integer_value(v) <= PLAN_MAX_WIDTH) {
            fallback = (uint32_t)json_integer_value(v);
            break;
        }
    }
    return hf_get_u32(h, name, 1, PLAN_MAX_WIDTH, fallback, out);
}

static enum err add_scaling(struct hf *h, struct rope *r)
{
    static const struct {
        const char *name;
        enum err (*add)(struct hf *h, const struct rope *r); /* NULL: nothing to add */
    } types[] = {{"default", NULL},
                 {"linear", add_factor},
                 {"dynamic", add_factor},
                 {"llama3", add_llama3},
                 {"proportional", add_proportional},
                 {"yarn", add_yarn},
                 {"su", add_longrope},
                 {"longrope", add_longrope},
                 {"mrope", NULL}}; /* three positions per row, equal in text [Wang 2024, "Qwen2-VL", 2.1] */
    const json_t *type = json_read_get(r->params, "rope_type");
    type = type != NULL ? type : json_read_get(r->params, "type");
    const char *name = type == NULL ? "default" : json_string_value(type);
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(types); i++) {
        if (strcmp(name, types[i].name) == 0) {
            r->type = name;
            return types[i].add == NULL ? ERR_OK : types[i].add(h, r);
        }
    }
    char key[KEY_BYTES];
    hf_path(h, r->params, json_read_get(r->params, "rope_type") != NULL ? "rope_type" : "type", key);
    return hf_bad_value(h, key, "default, linear, dynamic, llama3, proportional, yarn, longrope, su or mrope", type);
}

/* Reads the components of a head of which partial_rotary_factor rotate. */
static enum err get_head(const struct hf *h, uint32_t *out)
{
    uint32_t n_embd, n_heads, nope = 0;
    TRY(hf_get_u32(h, "hidden_size", 1, UINT32_MAX, UINT64_MAX, &n_embd));
    TRY(hf_get_u32(h, "num_attention_heads", 1, UINT32_MAX, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "head_dim", 2, 1 << 16, n_embd / n_heads, out));
    TRY(hf_get_u32(h, "qk_rope_head_dim", 2, 1 << 16, *out, out)); /* latent attention */
    if (h->family->rotates_of_key) {
        TRY(hf_get_u32(h, "qk_nope_head_dim", 0, 1 << 16, UINT64_MAX, &nope));
    }
    *out += nope;
    return ERR_OK;
}

/* Reads the number of rotated components of a head. */
static enum err get_rotated(struct hf *h, const json_t *params, uint32_t *out)
{
    uint32_t head_dim, n_rotated;
    double whole, part;
    TRY(get_head(h, &head_dim));
    /* of global layers, which can have wider heads */
    if (json_read_is(json_read_get(params, "rope_type"), "proportional")) {
        TRY(hf_get_global(h, "global_head_dim", "head_dim", HF_GLOBAL_HEAD_DIM, out));
        put_u32(h, "rope.dimension_count", *out);
        return ERR_OK;
    }
    double fallback = h->family->rotary_part != 0 ? h->family->rotary_part : 1;
    if (json_read_get(h->config, "rotary_dim") != NULL) { /* MiniMax-M2 */
        TRY(hf_get_u32(h, "rotary_dim", 2, head_dim, UINT64_MAX, &n_rotated));
        fallback = (double)n_rotated / head_dim;
    }
    TRY(hf_get_f64(h, h->config, "partial_rotary_factor", 0, 1, fallback, &whole));
    TRY(hf_get_f64(h, params, "partial_rotary_factor", 0, 1, whole, &part));
    *out = (uint32_t)(head_dim * part + 1e-6); /* a quotient times its divisor */
    if (part != 1 && (*out < 2 || *out % 2 != 0)) {
        char key[KEY_BYTES];
        bool is_inner = json_read_get(params, "partial_rotary_factor") != NULL;
        return hf_bad(h, hf_path(h, is_inner ? params : h->config, "partial_rotary_factor", key),
                      "expected an even number of 2 or more of the %" PRIu32
                      " components of a head, found %g of them, %" PRIu32,
                      head_dim, part, *out);
    }
    put_u32(h, "rope.dimension_count", *out);
    return ERR_OK;
}

/* Records where the keys come from, for messages. */
static void add_words(struct hf *h, const struct rope *r)
{
    static const char *const words[][2] = {{"rope.freq_base", "rope_theta"},
                                           {"rope.dimension_count", "partial_rotary_factor"},
                                           {"rope.scaling.type", "rope_type"},
                                           {"rope.scaling.factor", "factor"},
                                           {"rope.scaling.original_context_length", "original_max_position_embeddings"},
                                           {"rope.scaling.attn_factor", "attention_factor"},
                                           {"rope.scaling.yarn_attn_factor", "attention_factor"},
                                           {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                           {"rope.scaling.yarn_beta_slow", "beta_slow"},
                                           {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        char name[KEY_BYTES];
        const char *json = words[i][1];
        const json_t *v = json_read_get(r->params, json);
        if (hf_words_find(h, words[i][0]) == NULL) {
            hf_words_add(h, words[i][0], hf_path(h, v != NULL ? r->params : h->config, json, name));
        }
    }
}

/* "dynamic" with alpha increases the base once, for all lengths, and is then plain [transformers 5.23,
 * HunYuanDenseV1RotaryEmbedding]. */
static enum err apply_alpha(const struct hf *h, struct rope *r)
{
    double alpha;
    const json_t *type = json_read_get(r->params, "rope_type");
    type = type != NULL ? type : json_read_get(r->params, "type");
    TRY(hf_get_f64(h, r->params, "alpha", 0, 1e6, 0, &alpha));
    if (alpha == 0 || r->n_rot < 4 || !json_read_is(type, "dynamic")) {
        return ERR_OK;
    }
    r->theta *= pow(alpha, r->n_rot / (r->n_rot - 2.0));
    r->is_stretched = true;
    return ERR_OK;
}

enum err hf_add_sections(struct hf *h, const int32_t fallback[4])
{
    int32_t sections[4];
    const json_t *rope = json_read_get(h->config, "rope_parameters");
    const json_t *list = json_read_get(rope != NULL ? rope : json_read_get(h->config, "rope_scaling"), "mrope_section");
    size_t n = json_array_size(list);
    memcpy(sections, fallback, sizeof sections);
    for (size_t i = 0; list != NULL && i < ARRAY_LEN(sections); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t found = json_is_integer(v) ? json_integer_value(v) : i < n ? -1 : 0;
        if (n == 0 || n > ARRAY_LEN(sections) || found < 0 || found > PLAN_MAX_HEAD) {
            return hf_bad(h, "mrope_section", "expected an array of 1 to 4 integers of 0 to %d, found another",
                          PLAN_MAX_HEAD);
        }
        sections[i] = (int32_t)found;
    }
    gguf_build_array(&h->b, hf_key(h, "rope.dimension_sections"), GGUF_I32, ARRAY_LEN(sections), sections);
    return ERR_OK;
}

enum err hf_add_qwen3vl(struct hf *h)
{
    const json_t *vision = json_read_get(h->root, "vision_config");
    size_t n = json_array_size(json_read_get(vision, "deepstack_visual_indexes"));
    put_u32(h, "n_deepstack_layers", (uint32_t)MIN_OF(n, (size_t)PLAN_MAX_LAYERS));
    return hf_add_sections(h, (const int32_t[4]){24, 20, 20, 0}); /* transformers' default */
}

enum err hf_add_rope(struct hf *h)
{
    const json_t *all = json_read_get(h->config, "rope_parameters");
    const char *key = all != NULL ? "rope_parameters" : "rope_scaling";
    all = json_read_get(h->config, key);
    if (all != NULL && !json_is_object(all)) {
        return hf_bad(h, key, "expected an object, found %s", json_read_type_name(all));
    }
    const json_t *global = json_read_get(all, "full_attention"), *local = json_read_get(all, "sliding_attention");
    double theta, local_theta;
    struct rope r = {.params = global != NULL ? global : all};
    TRY(hf_get_f64(h, h->config, "rope_theta", 1, 1e12, 10000, &theta));
    TRY(hf_get_f64(h, r.params, "rope_theta", 1, 1e12, theta, &r.theta));
    TRY(hf_get_f64(h, h->config, "rope_local_base_freq", 1, 1e12, 0 + r.theta, &local_theta));
    TRY(hf_get_f64(h, local, "rope_theta", 1, 1e12, local_theta, &local_theta));
    TRY(hf_get_u32(h, "max_position_embeddings", 1, MAX_CTX, UINT64_MAX, &r.n_ctx));
    TRY(get_rotated(h, r.params, &r.n_rot));
    add_words(h, &r);
    if (local_theta != r.theta || local != NULL) { /* else the family's default base */
        put_f32(h, "rope.freq_base_swa", local_theta);
    }
    TRY(apply_alpha(h, &r));
    put_f32(h, "rope.freq_base", r.theta);
    return r.is_stretched ? ERR_OK : add_scaling(h, &r);
}
