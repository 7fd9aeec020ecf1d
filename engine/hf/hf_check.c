/* Checks only what holds in every family, and only keys that exist: absent keys are the family builder's concern. */
#include "engine/hf/hf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values that the plan assumes --------------------------------------------------------------------------------- */

/* Does v equal the word of n bytes: a number, true, false, none, or a string? */
static bool is_one(const json_t *v, const char *word, size_t n)
{
    bool is_number = word[0] >= '0' && word[0] <= '9';
    if (is_number || json_is_number(v)) {
        return is_number && json_is_number(v) && json_number_value(v) == strtod(word, NULL);
    }
    const char *said = json_string_value(v);
    if (json_is_boolean(v)) {
        said = json_is_true(v) ? "true" : "false";
    }
    return said != NULL && strlen(said) == n && memcmp(said, word, n) == 0;
}

/* Does v equal one of "this or that"? */
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
    char name[128];
    return hf_bad_value(h, hf_path(h, h->config, key, name), expected, found);
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

/* Several names mean one function [transformers 5, activations.py]. hidden_act of the first Gemma folders says "gelu"
 * but means the tanh form [configuration_gemma.py]. */
static enum err check_act(const struct hf *h)
{
    static const struct {
        const char *name, *also; /* messages use the first */
    } acts[] = {[HF_SILU] = {"silu", "swish or swiglu"},
                [HF_GELU] = {"gelu", "gelu_python"},
                [HF_GELU_TANH] = {"gelu_pytorch_tanh", "gelu_new or gelu_python_tanh or gelu_fast or gelu_accurate"},
                [HF_RELU_SQUARED] = {"relu2", "relu2"},
                [HF_XIELU] = {"xielu", "xielu"}};
    const char *key = json_read_get(h->config, "hidden_activation") != NULL ? "hidden_activation" : "hidden_act";
    const json_t *v = json_read_get(h->config, key);
    enum hf_act act = h->family->act;
    bool is_old = act == HF_GELU_TANH && strcmp(key, "hidden_act") == 0 && is_any(v, "gelu");
    bool is_known = h->family->has_act || v == NULL || is_old || is_any(v, acts[act].name) || is_any(v, acts[act].also);
    return is_known ? ERR_OK : bad(h, key, acts[act].name, v);
}

/* --- two ways to say one thing ------------------------------------------------------------------------------------ */

/* Rejects two different numbers for one value, under two names or in two objects. */
static enum err check_same(const struct hf *h, const json_t *a, const char *name, const json_t *b, const char *other)
{
    char expected[JSON_READ_SHOWN], found[JSON_READ_SHOWN];
    if (!json_is_number(a) || !json_is_number(b) || json_number_value(a) == json_number_value(b)) {
        return ERR_OK;
    }
    return hf_bad(h, name, "expected %s, as %s says, found %s", json_read_show(b, expected), other,
                  json_read_show(a, found));
}

/* Returns the type of RoPE, NULL if none is set. */
static const char *rope_type(const json_t *params)
{
    const json_t *type = json_read_get(params, "rope_type");
    const char *name = json_string_value(type != NULL ? type : json_read_get(params, "type"));
    return name != NULL && strcmp(name, "su") == 0 ? "longrope" : name; /* its old name */
}

/* Checks one object of parameters, `name`. */
static enum err check_rope(const struct hf *h, const json_t *params, const char *name)
{
    const char *type = rope_type(params), *old = json_string_value(json_read_get(params, "type"));
    json_int_t max = json_integer_value(json_read_get(h->config, "max_position_embeddings"));
    const json_t *fast = json_read_get(params, "beta_fast"), *slow = json_read_get(params, "beta_slow");
    double original = json_number_value(json_read_get(params, "original_max_position_embeddings"));
    bool is_yarn = type != NULL && strcmp(type, "yarn") == 0, is_long = type != NULL && strcmp(type, "longrope") == 0;
    old = old != NULL && strcmp(old, "su") == 0 ? "longrope" : old;
    if (type != NULL && old != NULL && strcmp(type, old) != 0) {
        return err_set(h->info, ERR_BAD_CONFIG, "rope_type",
                       "config.json: %s.rope_type: expected '%.64s', as type says, found '%.64s'", name, old, type);
    }
    double n_fast = fast != NULL ? json_number_value(fast) : 32;
    double n_slow = slow != NULL ? json_number_value(slow) : 1;
    if (is_yarn && json_is_number(fast != NULL ? fast : slow) && n_fast < n_slow) {
        return err_set(h->info, ERR_BAD_CONFIG, "beta_fast",
                       "config.json: %s.beta_fast: expected beta_slow %g or more, found %g", name, n_slow, n_fast);
    }
    if ((is_yarn || is_long) && max > 0 && original > (double)max) {
        return err_set(h->info, ERR_BAD_CONFIG, "original_max_position_embeddings",
                       "config.json: %s.original_max_position_embeddings: expected at most max_position_embeddings "
                       "%lld, found %g",
                       name, (long long)max, original);
    }
    return ERR_OK;
}

/* Checks rope_scaling next to rope_parameters: common keys must agree. */
static enum err check_rope_objects(const struct hf *h, const json_t *parameters, json_t *scaling)
{
    const char *key, *type = rope_type(scaling), *other = rope_type(parameters);
    json_t *v;
    if (type != NULL && other != NULL && strcmp(type, other) != 0) {
        return err_set(h->info, ERR_BAD_CONFIG, "rope_scaling",
                       "config.json: rope_scaling.rope_type: expected '%.64s', as rope_parameters says, found '%.64s'",
                       other, type);
    }
    json_object_foreach(scaling, key, v)
    {
        char name[96];
        snprintf(name, sizeof name, "rope_scaling.%.64s", key);
        TRY(check_same(h, v, name, json_read_get(parameters, key), "rope_parameters"));
    }
    return ERR_OK;
}

/* Rejects parameters that transformers and another reader would take from different objects. */
static enum err check_ropes(const struct hf *h)
{
    static const struct {
        const char *key, *kind, *of_kind; /* name for all layers; for a kind of layers */
    } twice[] = {{"rope_theta", "full_attention", "rope_theta"},
                 {"partial_rotary_factor", "full_attention", "partial_rotary_factor"},
                 {"rope_local_base_freq", "sliding_attention", "rope_theta"}};
    const json_t *parameters = json_read_get(h->config, "rope_parameters");
    json_t *scaling = json_object_get(h->config, "rope_scaling");
    const char *name = parameters != NULL ? "rope_parameters" : "rope_scaling";
    const json_t *all = parameters != NULL ? parameters : scaling;
    TRY(check_rope_objects(h, parameters, scaling));
    TRY(check_rope(h, all, name));
    for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
        const json_t *of_kind = json_read_get(all, twice[i].kind);
        const json_t *v = of_kind != NULL ? json_read_get(of_kind, twice[i].of_kind) : json_read_get(all, twice[i].key);
        TRY(check_same(h, json_read_get(h->config, twice[i].key), twice[i].key, v, name));
        char full[96];
        snprintf(full, sizeof full, "%s.%s", name, twice[i].kind);
        TRY(check_rope(h, of_kind, full));
    }
    return ERR_OK;
}

static enum err check_booleans(const struct hf *h)
{
    static const char *const keys[] = {"tie_word_embeddings", "attention_bias", "mlp_bias"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *v = json_read_get(h->config, keys[i]);
        if (v != NULL && !json_is_boolean(v)) {
            return bad(h, keys[i], "true or false", v);
        }
    }
    return ERR_OK;
}

enum err hf_check_values(const struct hf *h)
{
    TRY(check_act(h));
    TRY(check_fixed(h));
    TRY(check_booleans(h));
    return check_ropes(h);
}

/* --- values against each other and the tensors -------------------------------------------------------------------- */

static const json_int_t NONE = INT64_MIN;

/* Returns an integer of config.json, or NONE. Other types were rejected where the value is needed. */
static json_int_t get(const struct hf *h, const char *key)
{
    const json_t *v = json_read_get(h->config, key);
    return json_is_integer(v) ? json_integer_value(v) : NONE;
}

/* Heads must divide the width evenly, and share keys and values evenly. */
static enum err check_heads(const struct hf *h)
{
    bool is_latent = get(h, "kv_lora_rank") != NONE; /* its heads have separate widths */
    json_int_t width = get(h, "hidden_size"), heads = get(h, "num_attention_heads"), dim = get(h, "head_dim");
    json_int_t kv_heads = get(h, "num_key_value_heads");
    if (heads < 1) {
        return hf_bad(h, "num_attention_heads", "expected 1 or more, found %lld", (long long)heads);
    }
    if (dim == NONE && !is_latent && width % heads != 0) {
        return hf_bad(h, "num_attention_heads",
                      "expected a divisor of hidden_size %lld, as there is no head_dim, found %lld", (long long)width,
                      (long long)heads);
    }
    if (kv_heads != NONE && (kv_heads < 1 || heads % kv_heads != 0)) {
        return hf_bad(h, "num_key_value_heads", "expected a divisor of num_attention_heads %lld, found %lld",
                      (long long)heads, (long long)kv_heads);
    }
    return ERR_OK;
}

static enum err check_layers(const struct hf *h)
{
    json_int_t layers = get(h, "num_hidden_layers");
    const json_t *types = json_read_get(h->config, "layer_types");
    if (json_is_array(types) && (json_int_t)json_array_size(types) != layers) {
        return hf_bad(h, "layer_types", "expected %lld, as num_hidden_layers says, found %zu", (long long)layers,
                      json_array_size(types));
    }
    return ERR_OK;
}

static enum err check_size(const struct hf *h, const char *key, json_int_t found, uint64_t expected, const char *of)
{
    char name[128];
    if (found == NONE || (found >= 0 && (uint64_t)found == expected)) {
        return ERR_OK;
    }
    return hf_bad(h, hf_path(h, h->config, key, name), "expected %" PRIu64 ", %s, found %lld", expected, of,
                  (long long)found);
}

/* The embedding can have rows beyond the vocabulary, to fill whole blocks. */
static enum err check_vocab(const struct hf *h, uint64_t rows)
{
    json_int_t found = get(h, "vocab_size");
    const json_t *v = json_read_get(h->config, "vocab_size");
    if (v != NULL && found == NONE) {
        return bad(h, "vocab_size", "an integer", v);
    }
    return found == NONE || (found > 0 && (uint64_t)found <= rows)
               ? ERR_OK
               : hf_bad(h, "vocab_size", "expected 1 to %" PRIu64 ", the rows of the token embedding, found %lld", rows,
                        (long long)found);
}

/* Does attention, or a feed-forward block, have a bias? Some models have one only for Q, K and V. */
static bool has_bias(const struct hf *h, const char *block)
{
    bool found = false;
    for (size_t i = 0; i < h->b.n_tensors && !found; i++) {
        struct gguf_str name = h->b.tensors[i].name; /* NUL-terminated by gguf_build */
        found = strstr(name.data, block) != NULL && gguf_str_ends(name, ".bias");
    }
    return found;
}

static enum err check_biases(const struct hf *h)
{
    static const char *const rows[][2] = {{"attention_bias", ".attn_"}, {"mlp_bias", ".ffn_"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (json_is_true(json_read_get(h->config, rows[i][0])) && !has_bias(h, rows[i][1])) {
            return bad(h, rows[i][0], "false, as the folder has no such biases", json_true());
        }
    }
    return ERR_OK;
}

/* Does the folder contain a whole language model? Embedding models have no head, whatever they say of tying. */
static bool has_text_head(const struct hf *h)
{
    static const char *const kinds[] = {"ForCausalLM", "ForConditionalGeneration"};
    const char *name = json_string_value(json_array_get(json_object_get(h->root, "architectures"), 0));
    bool is_whole = false;
    for (size_t i = 0; i < ARRAY_LEN(kinds) && name != NULL; i++) {
        is_whole |= strstr(name, kinds[i]) != NULL;
    }
    return is_whole && !h->has_pooling && safetensors_folder_find(h->tensors, "embed_tokens.weight") == NULL;
}

bool hf_says_tied(const struct hf *h)
{
    static const char key[] = "tie_word_embeddings";
    return json_is_true(json_read_get(h->config, key)) || json_is_true(json_read_get(h->root, key));
}

static enum err check_head(const struct hf *h)
{
    static const char key[] = "tie_word_embeddings";
    const json_t *said = json_read_get(h->config, key);
    bool is_tied = said == NULL || hf_says_tied(h);
    bool has_head = gguf_build_find(&h->b, "output.weight") != NULL;
    return is_tied || has_head || !has_text_head(h) ? ERR_OK : bad(h, key, "true, as there is no lm_head.weight", said);
}

/* Checks widths of tensors that every family has. */
static enum err check_tensors(const struct hf *h)
{
    const struct gguf_tensor *embd = gguf_build_find(&h->b, "token_embd.weight");
    const struct gguf_tensor *out = gguf_build_find(&h->b, "blk.0.attn_output.weight");
    const char *key = get(h, "v_head_dim") != NONE ? "v_head_dim" : "head_dim";
    json_int_t heads = get(h, "num_attention_heads"), dim = get(h, key);
    if (embd != NULL) {
        TRY(check_size(h, "hidden_size", get(h, "hidden_size"), embd->dims[0], "the width of the token embedding"));
        TRY(check_vocab(h, embd->dims[1]));
    }
    bool has_heads = out != NULL && dim > 0 && dim <= UINT32_MAX && get(h, "kv_lora_rank") == NONE &&
                     !hf_has_key(h->family, "num_attention_heads");
    if (has_heads && (uint64_t)heads * (uint64_t)dim != out->dims[0]) {
        return hf_bad(h, key,
                      "expected num_attention_heads %lld times it to be %" PRIu64
                      ", what the first layer's o_proj takes, found %lld",
                      (long long)heads, out->dims[0], (long long)dim);
    }
    return ERR_OK;
}

/* Checks rows of K and inputs of o_proj and down_proj of the first layer, unless the family counts them itself. */
static enum err check_first_layer(const struct hf *h)
{
    const struct gguf_tensor *k = gguf_build_find(&h->b, "blk.0.attn_k.weight"),
                             *out = gguf_build_find(&h->b, "blk.0.attn_output.weight"),
                             *down = gguf_build_find(&h->b, "blk.0.ffn_down.weight");
    json_int_t heads = get(h, "num_attention_heads"), kv_heads = get(h, "num_key_value_heads");
    json_int_t dim = get(h, "head_dim"), width = get(h, "intermediate_size");
    bool is_latent = get(h, "kv_lora_rank") != NONE;
    if (dim == NONE && out != NULL && !is_latent && out->dims[0] % (uint64_t)heads == 0) {
        dim = get(h, "hidden_size") / heads;
        if ((uint64_t)dim * (uint64_t)heads != out->dims[0]) {
            return hf_bad(h, "head_dim",
                          "expected %" PRIu64 ", as the first layer's o_proj takes %" PRIu64
                          " of num_attention_heads %lld, found none",
                          out->dims[0] / (uint64_t)heads, out->dims[0], (long long)heads);
        }
    }
    kv_heads = kv_heads == NONE ? heads : kv_heads;
    bool has_kv = k != NULL && dim > 0 && !is_latent && !hf_has_key(h->family, "num_key_value_heads");
    if (has_kv && (uint64_t)kv_heads * (uint64_t)dim != k->dims[1]) {
        char shown[JSON_READ_SHOWN];
        return hf_bad(
            h, "num_key_value_heads",
            "expected that many heads of %lld to be the %" PRIu64 " rows of the first layer's k_proj, found %s",
            (long long)dim, k->dims[1], json_read_show(json_read_get(h->config, "num_key_value_heads"), shown));
    }
    if (down != NULL && !hf_has_key(h->family, "intermediate_size")) {
        return check_size(h, "intermediate_size", width, down->dims[0], "what the first layer's down_proj takes");
    }
    return ERR_OK;
}

/* Returns the first tensor of that name in any layer. */
static const struct gguf_tensor *find_in_layers(const struct hf *h, const char *end)
{
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        if (gguf_str_ends(h->b.tensors[i].name, end)) {
            return &h->b.tensors[i];
        }
    }
    return NULL;
}

/* Checks number and width of experts, under the family's names. */
static enum err check_experts(const struct hf *h)
{
    static const struct {
        const char *key, *tensor;
        int dim;
        const char *of;
    } rows[] = {
        {"expert_count", ".ffn_gate_inp.weight", 1, "the rows of the router"},
        {"expert_feed_forward_length", ".ffn_down_exps.weight", 0, "what an expert's down_proj takes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct gguf_tensor *t = find_in_layers(h, rows[i].tensor);
        const char *json = hf_words_find(h, rows[i].key);
        if (t != NULL && json != NULL) {
            TRY(check_size(h, json, get(h, json), t->dims[rows[i].dim], rows[i].of));
        }
    }
    return ERR_OK;
}

enum err hf_check(const struct hf *h)
{
    TRY(h->family->lacks_attention ? ERR_OK : check_heads(h));
    TRY(check_layers(h));
    TRY(check_biases(h));
    TRY(check_head(h));
    TRY(check_tensors(h));
    TRY(check_first_layer(h));
    return check_experts(h);
}
