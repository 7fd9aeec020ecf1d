/* Only what holds in every family, and only keys that are there: what a family makes of an absent one is its builder's
 * affair. */
#include "engine/model/hf_check.h"

#include <inttypes.h>

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
