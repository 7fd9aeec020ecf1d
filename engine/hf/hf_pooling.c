/* Names: sentence-transformers 5, models/Pooling.py. */
#include "engine/hf/hf_pooling.h"

#include "engine/hf/hf_modules.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 128 };

/* Old files have one boolean per kind, new ones a name; numbers are GGUF's. */
static const struct {
    const char *flag, *name;
    uint32_t type; /* 0: not supported */
} modes[] = {
    {"pooling_mode_mean_tokens", "mean", 1},
    {"pooling_mode_cls_token", "cls", 2},
    {"pooling_mode_lasttoken", "lasttoken", 3},
    {"pooling_mode_max_tokens", "max", 0},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", 0},
    {"pooling_mode_weightedmean_tokens", "weightedmean", 0},
};

static enum err add_mode(struct hf *h, const json_t *config, const char *file)
{
    const char *name = json_string_value(json_read_get(config, "pooling_mode")), *found = NULL;
    uint32_t type = 0;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (name != NULL ? strcmp(name, modes[i].name) == 0 : json_is_true(json_read_get(config, modes[i].flag))) {
            n++;
            type = modes[i].type;
            found = modes[i].name;
        }
    }
    if (n != 1 || type == 0) { /* several kinds would be concatenated in one vector */
        return err_set(h->info, ERR_BAD_CONFIG, "pooling_mode",
                       "%s: pooling_mode: expected one of mean, cls, lasttoken; found %s%.64s", file,
                       n > 1 ? "several, the last " : "",
                       found != NULL  ? found
                       : name != NULL ? name
                                      : "none");
    }
    char key[KEY_BYTES];
    gguf_build_u32(&h->b, hf_key(h, "pooling_type", key), type);
    return ERR_OK;
}

bool hf_has_pooling(const struct hf *h)
{
    char key[KEY_BYTES];
    hf_key(h, "pooling_type", key);
    bool found = false;
    for (size_t i = 0; i < h->b.n_kv && !found; i++) {
        const struct gguf_str *s = &h->b.kv[i].key;
        found = s->len == strlen(key) && memcmp(s->data, key, s->len) == 0;
    }
    return found;
}

enum err hf_add_pooling(struct hf *h, const char *folder, bool must_be)
{
    char file[256];
    json_t *config;
    snprintf(file, sizeof file, "%.200s/config.json", folder);
    TRY(hf_modules_read(h, file, &config));
    if (config == NULL) {
        return must_be ? err_set(h->info, ERR_BAD_CONFIG, folder, "%s: expected, found none", file) : ERR_OK;
    }
    enum err err = add_mode(h, config, file);
    json_decref(config);
    return err;
}
