/* Converts a file's RoPE keys to rotation frequencies: plain [Su 2021], linear interpolation [Chen 2023], NTK by parts
 * with YaRN's attention scale [Peng 2023], dynamic NTK, and factors in files: Llama 3's (rope_freqs, from the
 * converter) and LongRoPE's two sets [Ding 2024].
 * Keys: GGUF specification; defaults: llama.cpp b11434, src/llama-context.cpp; formulas of YaRN and dynamic NTK:
 * Hugging Face transformers 4.57, modeling_rope_utils.py. */
#include "engine/model/blocks.h"

#include <math.h>
#include <string.h>

static const char long_factors[] = "rope_factors_long.weight";

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE, SCALING_DYNAMIC, N_SCALINGS };

static const char *const scaling_names[N_SCALINGS] = {"none", "linear", "yarn", "longrope", "dynamic"};

/* Returns the key of the factor that stretches positions, current or old [llama.cpp b11434, src/llama-model.cpp].
 * Linear: 0 = none. */
static const char *factor_key(const struct blocks *b)
{
    static const char key[] = "rope.scaling.factor", old[] = "rope.scale_linear";
    return !blocks_has_key(b, key) && blocks_has_key(b, old) ? old : key;
}

/* Files with a factor but no type mean linear scaling. */
static enum err read_scaling(const struct blocks *b, enum scaling *out)
{
    char key[BLOCKS_KEY_BYTES];
    struct gguf_str type;
    TRY(gguf_get_str_or_null(b->g, blocks_key(b, "rope.scaling.type", key), &type, b->info));
    bool is_linear = type.len == 0 && blocks_has_key(b, factor_key(b)) && gguf_find_tensor(b->g, long_factors) == NULL;
    *out = is_linear ? SCALING_LINEAR : SCALING_NONE;
    for (int i = 0; i < N_SCALINGS; i++) {
        if (gguf_str_is(type, scaling_names[i])) {
            *out = (enum scaling)i;
            return ERR_OK;
        }
    }
    return type.len == 0 ? ERR_OK
                         : err_set(b->info, ERR_BAD_HPARAM, key,
                                   "%s: expected none, linear, yarn, longrope or dynamic, found '%.*s'", key,
                                   (int)MIN_OF(type.len, (size_t)32), type.data);
}

/* Divides inv_freq by the factors of an F32 tensor. */
static enum err divide_by(struct blocks *b, const char *tensor, bool optional, float *inv_freq, bool *found)
{
    plan_weight_id factors = PLAN_NONE;
    uint32_t n = b->h.n_rot / 2, n_all = b->style.factors_of_head ? b->h.head_dim / 2 : n;
    if (n_all != n) {
        TRY(blocks_bind_elements(b, tensor, (struct blocks_part){0, n, n_all}, &factors));
    } else {
        TRY((optional ? blocks_bind_optional : blocks_bind)(b, tensor, 1, n, &factors));
    }
    *found = factors != PLAN_NONE;
    if (!*found) {
        return ERR_OK;
    }
    const struct plan_weight *w = &b->plan->weights[factors];
    float values[PLAN_MAX_HEAD / 2];
    TRY(blocks_read_vector(b, factors, values));
    for (uint32_t i = 0; i < n; i++) {
        float factor = values[i];
        if (!(factor > 0) || !isfinite(factor)) {
            return err_set(b->info, ERR_BAD_HPARAM, w->name, "%s[%u]: expected a positive factor, found %g", w->name, i,
                           (double)factor);
        }
        inv_freq[i] /= factor;
    }
    return ERR_OK;
}

/* Returns the component that rotates `turns` times over n_orig positions. YaRN blends between two such components. */
static double yarn_dim(const struct blocks *b, double base, double turns, uint32_t n_orig)
{
    return b->h.n_rot * log(n_orig / (turns * 6.283185307179586)) / (2 * log(base));
}

/* Interpolates slow components (divides by factor), keeps fast ones and blends between them. */
static enum err apply_yarn(struct blocks *b, double base, float *inv_freq, float *mscale)
{
    float factor, ext, attn, fast, slow, log_mul;
    uint32_t n_orig;
    TRY(blocks_get_f32(b, factor_key(b), 1.0, 1e6, NAN, &factor));
    TRY(blocks_get_u32(b, "rope.scaling.original_context_length", 1, UINT32_MAX / 2, b->h.n_ctx_train, &n_orig));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_ext_factor", 0.0, 1.0, 1.0, &ext));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0, &fast));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0, &slow));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0, &log_mul));
    TRY(blocks_get_f32(b, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, log_mul != 0 ? 1.0 : 1.0 + 0.1 * log(factor),
                       &attn));
    bool truncates;
    TRY(blocks_get_bool(b, "rope.scaling.yarn_truncate", b->style.yarn_truncates, &truncates)); /* gpt-oss: false */
    double low = yarn_dim(b, base, fast, n_orig), high = yarn_dim(b, base, slow, n_orig);
    low = fmax(truncates ? floor(low) : low, 0);
    high = fmin(truncates ? ceil(high) : high, b->h.n_rot - 1.0);
    high = high == low ? high + 0.001 : high;
    for (uint32_t i = 0; i < b->h.n_rot / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1), kept = (1 - ramp) * ext;
        inv_freq[i] = (float)((double)inv_freq[i] * (kept + (1 - kept) / factor));
    }
    *mscale *= attn;
    return ERR_OK;
}

/* Only dynamic RoPE exceeds the context of the training, by `factor`. */
enum err blocks_read_context(struct blocks *b)
{
    enum scaling scaling;
    float factor = 1;
    uint32_t n_train = b->h.n_ctx_train;
    TRY(read_scaling(b, &scaling));
    if (scaling == SCALING_DYNAMIC) {
        TRY(blocks_get_f32(b, "rope.scaling.factor", 1.0, 1e6, NAN, &factor));
    }
    b->plan->n_ctx_train = n_train;
    b->plan->n_ctx_max = (uint32_t)fmin((double)n_train * (double)factor, UINT32_MAX / 2);
    b->n_ctx = b->n_ctx == 0 ? MIN_OF(n_train, (uint32_t)MODEL_DEFAULT_CTX) : MIN_OF(b->n_ctx, b->plan->n_ctx_max);
    return ERR_OK;
}

/* Increases the base with the longest sequence to run, if it exceeds the context of the training [dynamic NTK;
 * transformers uses each sequence's own length, which leaves keys with another base in the cache]. */
static enum err apply_dynamic(struct blocks *b, double base, float *inv_freq)
{
    float factor;
    uint32_t n_orig = b->h.n_ctx_train, d = b->h.n_rot;
    TRY(blocks_get_f32(b, "rope.scaling.factor", 1.0, 1e6, NAN, &factor));
    if (b->n_ctx > n_orig && d > 2) {
        base *= pow((double)factor * b->n_ctx / n_orig - (factor - 1.0), d / (d - 2.0));
        for (uint32_t i = 0; i < d / 2; i++) {
            inv_freq[i] = (float)pow(base, -2.0 * i / d);
        }
    }
    return ERR_OK;
}

/* Applies the long factors if sequences can exceed the original context, else the short ones. */
static enum err apply_longrope(struct blocks *b, float *inv_freq, float *mscale)
{
    uint32_t n_orig;
    float attn;
    bool found;
    TRY(blocks_get_u32(b, "rope.scaling.original_context_length", 1, UINT32_MAX / 2, b->h.n_ctx_train, &n_orig));
    TRY(blocks_get_f32(b, "rope.scaling.attn_factor", 1e-3, 1e3, 1.0, &attn));
    TRY(divide_by(b, b->n_ctx > n_orig ? long_factors : "rope_factors_short.weight", false, inv_freq, &found));
    *mscale *= attn;
    return ERR_OK;
}

static enum err apply_scaling(struct blocks *b, double base, float *inv_freq, float *mscale)
{
    enum scaling scaling;
    TRY(read_scaling(b, &scaling));
    bool has_factors = gguf_find_tensor(b->g, long_factors) != NULL;
    if (scaling == SCALING_LONGROPE || (scaling == SCALING_NONE && has_factors)) { /* Phi-3's files name no type */
        return apply_longrope(b, inv_freq, mscale);
    }
    if (scaling == SCALING_YARN) {
        TRY(apply_yarn(b, base, inv_freq, mscale));
    } else if (scaling == SCALING_DYNAMIC) {
        TRY(apply_dynamic(b, base, inv_freq));
    } else if (scaling == SCALING_LINEAR) {
        float factor;
        TRY(blocks_get_f32(b, factor_key(b), 0, 1e6, 1.0, &factor));
        factor = factor != 0 ? factor : 1;
        for (uint32_t i = 0; i < b->h.n_rot / 2; i++) {
            inv_freq[i] /= factor;
        }
    }
    bool found;
    return divide_by(b, "rope_freqs.weight", true, inv_freq, &found);
}

enum err blocks_add_rope(struct blocks *b, float freq_base, bool is_scaled, int32_t *id)
{
    uint32_t n = b->h.n_rot / 2;
    float *inv_freq = arena_alloc(&b->plan->arena, n * sizeof *inv_freq);
    TRY_MEM(inv_freq != NULL);
    for (uint32_t i = 0; i < n; i++) {
        inv_freq[i] = (float)pow((double)freq_base, -2.0 * i / b->h.n_rot);
    }
    bool is_neox; /* SafeTensors folders keep the pairs of the training (hf.h) */
    TRY(gguf_get_bool_or(b->g, "infcgi.rope_is_neox", b->style.is_neox, &is_neox, b->info));
    struct plan_rope rope = {.n_rot = b->h.n_rot,
                             .first = b->h.latent_dim, /* 0 without one */
                             .is_neox = is_neox,
                             .mscale = 1.0f,
                             .inv_freq = inv_freq,
                             .query_beta = b->style.query_is_nope ? 0 : b->style.query_beta,
                             .query_period = b->style.query_period,
                             .query_lead = b->style.query_lead};
    if (is_scaled) {
        TRY(apply_scaling(b, freq_base, inv_freq, &rope.mscale));
    }
    return plan_add_rope(b->plan, &rope, id);
}

enum err blocks_read_local_rope(struct blocks *b)
{
    struct blocks_style *s = &b->style;
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_get_u32(b, "rope.dimension_count_swa", 2, b->h.head_dim, b->h.n_rot, &s->local_n_rot));
    return blocks_expect(b, s->local_n_rot % 2 == 0, "rope.dimension_count_swa", "expected an even number, found %u",
                         s->local_n_rot);
}

enum err blocks_add_ropes(struct blocks *b)
{
    const struct blocks_style *s = &b->style;
    bool has_local = false, has_nope = false;
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        has_local |= s->is_local[i];
        has_nope |= s->is_nope[i];
    }
    b->local_rope = b->no_rope = PLAN_NONE;
    TRY(blocks_add_rope(b, b->h.freq_base, true, &b->rope));
    if (has_nope) {
        static const float none;
        struct plan_rope rope = {.mscale = 1.0f, .inv_freq = &none};
        rope.query_beta = s->query_is_nope ? s->query_beta : 0;
        rope.query_period = s->query_period;
        rope.query_lead = s->query_lead;
        TRY(plan_add_rope(b->plan, &rope, &b->no_rope));
    }
    uint32_t n_rot = b->h.n_rot, local_n_rot = s->local_n_rot != 0 ? s->local_n_rot : n_rot;
    bool is_same = s->local_is_scaled && s->local_freq_base == b->h.freq_base && local_n_rot == n_rot;
    b->local_rope = is_same ? b->rope : PLAN_NONE;
    if (!has_local || is_same) {
        return ERR_OK;
    }
    b->h.n_rot = local_n_rot;
    enum err err = blocks_add_rope(b, s->local_freq_base, s->local_is_scaled, &b->local_rope);
    b->h.n_rot = n_rot;
    return err;
}

int32_t blocks_rope_of(const struct blocks *b)
{
    if (b->style.is_nope[b->plan->layer]) {
        return b->no_rope;
    }
    return b->style.is_local[b->plan->layer] ? b->local_rope : b->rope;
}
