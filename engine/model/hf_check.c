/* Only what holds in every family, and only keys that are there: what a family makes of an absent one is its builder's
 * affair. */
#include "engine/model/hf_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- values the plan takes for granted --------------------------------------------------------------------------- */

/* Is v the one that n bytes say: a number, true, false, none, or a string? */
static bool is_one(const json_t *v, const char *word, size_t n)
{
    bool is_number = word[0] >= '0' && word[0] <= '9';
    if (is_number || json_is_number(v)) {
        return is_number && json_is_number(v) && json_number_value(v) == strtod(word, NULL);
    }
    const char *said = json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : json_string_value(v);
    return said != NULL && strlen(said) == n && memcmp(said, word, n) == 0;
}

/* One of "this or that"? */
static bool is_any(const json_t *v, const char *words)
{
    static const char between[] = " or ";
    const char *end = strstr(words, between);
    for (; end != NULL; end = strstr(words, between)) {
        if (is_one(v, words, (size_t)(end - words))) {
            return true;
        }
        words = end + sizeof between - 1;
    }
    return is_one(v, words, strlen(words));
}

static enum err bad(const struct hf *h, const char *key, const char *expected, const json_t *found)
{
    char shown[JSON_READ_SHOWN];
    return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s: expected %s, found %s", key, expected,
                   json_read_show(found, shown));
}

static enum err check_fixed(const struct hf *h)
{
    for (const struct hf_fixed *f = h->family->fixed; f != NULL && f->json != NULL; f++) {
        const json_t *v = json_read_get(h->config, f->json);
        if (v != NULL && !is_any(v, f->expected)) {
            return bad(h, f->json, f->expected, v);
        }
    }
    return ERR_OK;
}

/* Several names mean one function [transformers 5, activations.py]; hidden_act of the first Gemma folders says "gelu"
 * and means the other one [configuration_gemma.py]. */
static enum err check_act(const struct hf *h)
{
    static const struct {
        const char *name, *also; /* the first is what messages say */
    } acts[] = {[HF_SILU] = {"silu", "swish or swiglu"},
                [HF_GELU] = {"gelu", "gelu_python"},
                [HF_GELU_TANH] = {"gelu_pytorch_tanh", "gelu_new or gelu_python_tanh or gelu_fast or gelu_accurate"}};
    const char *key = json_read_get(h->config, "hidden_activation") != NULL ? "hidden_activation" : "hidden_act";
    const json_t *v = json_read_get(h->config, key);
    enum hf_act act = h->family->act;
    bool is_old = act == HF_GELU_TANH && strcmp(key, "hidden_act") == 0 && is_any(v, "gelu");
    bool is_known = v == NULL || is_old || is_any(v, acts[act].name) || is_any(v, acts[act].also);
    return is_known ? ERR_OK : bad(h, key, acts[act].name, v);
}

enum err hf_check_values(const struct hf *h)
{
    TRY(check_act(h));
    return check_fixed(h);
}

/* --- values against each other and the tensors ----------------------------------------------------------------- */

static const json_int_t NONE = -1;

/* An integer of config.json, or NONE. What is no integer has been refused where it is needed. */
static json_int_t get(const struct hf *h, const char *key)
{
    const json_t *v = json_read_get(h->config, key);
    return json_is_integer(v) ? json_integer_value(v) : NONE;
}

/* Heads must share the width, and share keys and values, evenly. */
static enum err check_heads(const struct hf *h)
{
    bool is_latent = get(h, "kv_lora_rank") != NONE; /* its heads have widths of their own */
    json_int_t width = get(h, "hidden_size"), heads = get(h, "num_attention_heads"), dim = get(h, "head_dim");
    json_int_t kv_heads = get(h, "num_key_value_heads");
    if (heads < 1) {
        return err_set(h->info, ERR_BAD_CONFIG, "num_attention_heads",
                       "config.json: num_attention_heads: expected 1 or more, found %lld", (long long)heads);
    }
    if (dim == NONE && !is_latent && width % heads != 0) {
        return err_set(h->info, ERR_BAD_CONFIG, "num_attention_heads",
                       "config.json: num_attention_heads: expected a divisor of hidden_size %lld, as there is no "
                       "head_dim, found %lld",
                       (long long)width, (long long)heads);
    }
    if (kv_heads != NONE && (kv_heads < 1 || heads % kv_heads != 0)) {
        return err_set(h->info, ERR_BAD_CONFIG, "num_key_value_heads",
                       "config.json: num_key_value_heads: expected a divisor of num_attention_heads %lld, found %lld",
                       (long long)heads, (long long)kv_heads);
    }
    return ERR_OK;
}

static enum err check_layers(const struct hf *h)
{
    json_int_t layers = get(h, "num_hidden_layers");
    const json_t *types = json_read_get(h->config, "layer_types");
    if (json_is_array(types) && (json_int_t)json_array_size(types) != layers) {
        return err_set(h->info, ERR_BAD_CONFIG, "layer_types",
                       "config.json: layer_types: expected %lld, as num_hidden_layers says, found %zu",
                       (long long)layers, json_array_size(types));
    }
    return ERR_OK;
}

static enum err check_size(const struct hf *h, const char *key, json_int_t found, uint64_t expected, const char *of)
{
    return found == NONE || (found >= 0 && (uint64_t)found == expected)
               ? ERR_OK
               : err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s: expected %" PRIu64 ", %s, found %lld", key,
                         expected, of, (long long)found);
}

/* Widths that tensors of every family have. */
static enum err check_tensors(const struct hf *h)
{
    const struct gguf_tensor *embd = gguf_build_find(&h->b, "token_embd.weight");
    const struct gguf_tensor *out = gguf_build_find(&h->b, "blk.0.attn_output.weight");
    json_int_t heads = get(h, "num_attention_heads"), dim = get(h, "head_dim");
    if (embd != NULL) {
        TRY(check_size(h, "hidden_size", get(h, "hidden_size"), embd->dims[0], "the width of the token embedding"));
        TRY(check_size(h, "vocab_size", get(h, "vocab_size"), embd->dims[1], "the rows of the token embedding"));
    }
    bool has_heads = out != NULL && dim > 0 && dim <= UINT32_MAX && get(h, "kv_lora_rank") == NONE;
    if (has_heads && (uint64_t)heads * (uint64_t)dim != out->dims[0]) {
        return err_set(h->info, ERR_BAD_CONFIG, "head_dim",
                       "config.json: head_dim: expected num_attention_heads %lld times it to be %" PRIu64
                       ", what the first layer's o_proj takes, found %lld",
                       (long long)heads, out->dims[0], (long long)dim);
    }
    return ERR_OK;
}

enum err hf_check(const struct hf *h)
{
    TRY(check_heads(h));
    TRY(check_layers(h));
    return check_tensors(h);
}
