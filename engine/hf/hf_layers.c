/* layer_types, windows, layers without RoPE, and their equivalents in old folders. */
#include "engine/hf/hf_layers.h"

#include "engine/hf/hf_internal.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <string.h>

static void put_pattern(struct hf *h, size_t n, const unsigned char *is_local)
{
    gguf_build_array(&h->b, hf_key(h, "attention.sliding_window_pattern"), GGUF_BOOL, n, is_local);
}

static bool is_local_type(const json_t *v)
{
    const char *type = json_string_value(v);
    return type != NULL && strcmp(type, "sliding_attention") == 0;
}

static size_t count_local(const json_t *types)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        n += is_local_type(json_array_get(types, i));
    }
    return n;
}

static enum err read_types(const struct hf *h, const json_t *types, unsigned char *is_local)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *v = json_array_get(types, i);
        is_local[i] = is_local_type(v);
        if (!is_local[i] && (!json_is_string(v) || strcmp(json_string_value(v), "full_attention") != 0)) {
            char shown[JSON_READ_SHOWN];
            return err_set(h->info, ERR_BAD_CONFIG, "layer_types",
                           "config.json: layer_types[%zu]: expected sliding_attention or full_attention, found %s", i,
                           json_read_show(v, shown));
        }
    }
    return ERR_OK;
}

/* Checks sliding_window of a family with a default. */
static enum err check_window(struct hf *h)
{
    const json_t *v = json_object_get(h->config, "sliding_window");
    if (v == NULL) { /* the reader owns the tree */
        return json_object_set_new((json_t *)h->config, "sliding_window", json_integer(h->family->window)) == 0
                   ? ERR_OK
                   : err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
    }
    return json_is_integer(v) && json_integer_value(v) > 0
               ? ERR_OK
               : hf_bad_value(h, "sliding_window", "1 or more, as some layers have a window", v);
}

enum err hf_add_layer_types(struct hf *h)
{
    const json_t *types = json_read_get(h->config, "layer_types");
    size_t n = json_array_size(types), n_local = count_local(types);
    if (h->family->has_layer_types) {
        return ERR_OK;
    }
    if (types != NULL && !json_is_array(types)) {
        return hf_bad(h, "layer_types", "expected an array of names, one a layer, found %s",
                      json_read_type_name(types));
    }
    unsigned char *is_local = arena_zalloc(&h->b.arena, n + 1);
    TRY_MEM_FOR(is_local != NULL, h->info, "out of memory for %zu layers", n);
    TRY(read_types(h, types, is_local));
    if (h->family->window != 0 && (types == NULL || n_local != 0)) {
        TRY(check_window(h));
    }
    if (types != NULL && json_read_get(h->config, "sliding_window") != NULL &&
        (h->family->window != 0 || n_local != 0)) {
        put_pattern(h, n, is_local);
    }
    return ERR_OK;
}

enum err hf_add_optional_window(struct hf *h)
{
    static const char key[] = "use_sliding_window";
    const json_t *use = json_read_get(h->config, key), *types = json_read_get(h->config, "layer_types");
    uint32_t window, n_layers, first;
    if (use != NULL && !json_is_boolean(use)) {
        return hf_bad_value(h, key, "true or false", use);
    }
    if (!json_is_true(use)) {
        return count_local(types) == 0 ? ERR_OK
                                       : hf_bad_value(h, key, "true, as layer_types has sliding_attention", use);
    }
    if (json_read_get(h->config, "sliding_window") == NULL && json_object_get(h->config, "sliding_window") != NULL) {
        return ERR_OK; /* null */
    }
    TRY(hf_get_u32(h, "sliding_window", 1, INT32_MAX, 4096, &window));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "max_window_layers", 0, INT32_MAX, 28, &first));
    gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window"), window);
    hf_words_add(h, "attention.sliding_window", "sliding_window");
    if (types == NULL) {
        unsigned char *is_local = arena_zalloc(&h->b.arena, n_layers);
        TRY_MEM_FOR(is_local != NULL, h->info, "out of memory for %" PRIu32 " layers", n_layers);
        for (uint32_t i = first; i < n_layers; i++) {
            is_local[i] = true;
        }
        put_pattern(h, n_layers, is_local);
    }
    return ERR_OK;
}

enum err hf_get_flags(const struct hf *h, const char *key, uint32_t n_layers, bool *found,
                      unsigned char out[PLAN_MAX_LAYERS])
{
    const json_t *list = json_read_get(h->config, key);
    *found = list != NULL && !(json_is_array(list) && json_array_size(list) == 0);
    if (*found && (!json_is_array(list) || json_array_size(list) < n_layers)) {
        return hf_bad(h, key, "expected an array of %" PRIu32 " numbers, one a layer, found %s of %zu", n_layers,
                      json_read_type_name(list), json_array_size(list));
    }
    for (uint32_t i = 0; *found && i < n_layers; i++) {
        char shown[JSON_READ_SHOWN];
        const json_t *v = json_array_get(list, i);
        json_int_t n = json_is_boolean(v) ? json_is_true(v) : json_is_integer(v) ? json_integer_value(v) : -1;
        if (n != 0 && n != 1) {
            return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s[%" PRIu32 "]: expected 0 or 1, found %s", key,
                           i, json_read_show(v, shown));
        }
        out[i] = n == 1;
    }
    return ERR_OK;
}

enum err hf_get_rope_layers(const struct hf *h, uint32_t interval, uint32_t *n_layers,
                            unsigned char has_rope[PLAN_MAX_LAYERS])
{
    bool found;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, n_layers));
    TRY(hf_get_u32(h, "no_rope_layer_interval", 1, INT32_MAX, interval, &interval));
    TRY(hf_get_flags(h, "no_rope_layers", *n_layers, &found, has_rope));
    for (uint32_t i = 0; !found && i < *n_layers; i++) {
        has_rope[i] = (i + 1) % interval != 0;
    }
    return ERR_OK;
}

void hf_add_pattern(struct hf *h, const char *key, uint32_t n_layers, const unsigned char *is_set, uint32_t period)
{
    bool is_usual = true;
    for (uint32_t i = 0; i < n_layers; i++) {
        is_usual &= (is_set[i] != 0) == (period == 0 || (i + 1) % period != 0);
    }
    if (!is_usual) {
        gguf_build_array(&h->b, hf_key(h, key), GGUF_BOOL, n_layers, is_set);
    }
}
