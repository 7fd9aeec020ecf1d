/* The small files next to a vocabulary: BOS and EOS, the tokens added around a text, the chat template, and sampling
 * defaults. */
#include "engine/format/tokenizer_json_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ENDS = 64, KEY_BYTES = 128 };

/* Ids that end a generation. */
struct ends {
    uint32_t ids[MAX_ENDS];
    size_t n;
};

static uint32_t n_ids(const struct tokenizer_reader *r) { return MAX_OF(r->vocab.n, r->n_rows); }

/* Checks an id of config.json or generation_config.json. */
static enum err check_id(const struct tokenizer_reader *r, const char *file, const char *key, const json_t *v,
                         uint32_t *out)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id >= (json_int_t)n_ids(r)) {
        char found[32];
        snprintf(found, sizeof found, "%lld", (long long)(json_is_integer(v) ? json_integer_value(v) : 0));
        return err_set(r->info, ERR_BAD_SPECIAL_TOKEN, key, "%s: %s: expected an id of 0 to %" PRIu32 ", found %s",
                       file, key, n_ids(r) - 1, json_is_integer(v) ? found : json_read_type_name(v));
    }
    *out = (uint32_t)id;
    return ERR_OK;
}

static void add_end(struct ends *e, uint32_t id)
{
    for (size_t i = 0; i < e->n; i++) {
        if (e->ids[i] == id) {
            return;
        }
    }
    if (e->n < MAX_ENDS) {
        e->ids[e->n++] = id;
    }
}

/* Appends object[key]: an id or a list of ids. */
static enum err read_ids(const struct tokenizer_reader *r, const char *file, const json_t *object, const char *key,
                         struct ends *out)
{
    const json_t *v = json_read_get(object, key);
    size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (n > MAX_ENDS) {
        return err_set(r->info, ERR_BAD_SPECIAL_TOKEN, key, "%s: %s: expected at most %d ids, found %zu", file, key,
                       MAX_ENDS, n);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t id = 0;
        TRY(check_id(r, file, key, json_is_array(v) ? json_array_get(v, i) : v, &id));
        add_end(out, id);
    }
    return ERR_OK;
}

/* Reads the token that tokenizer_config.json assigns to a role: a text, or an object with one. */
static enum err read_named(const struct tokenizer_reader *r, const char *role, bool must_be, uint32_t *out)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s_token", role);
    const json_t *v = json_read_get(r->settings, key);
    const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;
    *out = TOKENIZER_VOCAB_NONE;
    if (v == NULL || json_is_false(v)) {
        return ERR_OK;
    }
    if (!json_is_string(text)) {
        return err_set(r->info, ERR_BAD_CONFIG, key,
                       "tokenizer_config.json: %s: expected a text or an object with a content, found %s", key,
                       json_read_type_name(v));
    }
    *out = tokenizer_vocab_find(&r->vocab, json_string_value(text), json_string_length(text));
    if (*out == TOKENIZER_VOCAB_NONE && must_be) {
        return err_set(r->info, ERR_BAD_SPECIAL_TOKEN, key,
                       "tokenizer_config.json: %s: expected a token of %s, found '%.64s'", key, r->file,
                       json_string_value(text));
    }
    return ERR_OK;
}

/* Reads a role's id from tokenizer_config.json, else the first in the other files, all of which go to *all. */
static enum err read_role(const struct tokenizer_reader *r, const char *role, struct ends *all, uint32_t *out)
{
    char key[KEY_BYTES];
    TRY(read_named(r, role, true, out));
    snprintf(key, sizeof key, "%s_token_id", role);
    TRY(read_ids(r, "generation_config.json", r->generation, key, all));
    TRY(read_ids(r, "config.json", r->config, key, all));
    TRY(read_ids(r, "config.json", json_read_get(r->config, "text_config"), key, all));
    *out = *out == TOKENIZER_VOCAB_NONE && all->n > 0 ? all->ids[0] : *out;
    return ERR_OK;
}

static void write_id(struct tokenizer_reader *r, const char *role, uint32_t id)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", role);
    if (id != TOKENIZER_VOCAB_NONE) {
        gguf_build_u32(r->b, key, id);
    }
}

/* Writes add_bos_token and similar keys: from the post-processor's template, else from tokenizer_config.json. */
static enum err write_added(struct tokenizer_reader *r, const char *role, uint32_t template_id, uint32_t id)
{
    char key[KEY_BYTES], name[KEY_BYTES];
    bool is_added = template_id != TOKENIZER_VOCAB_NONE;
    snprintf(name, sizeof name, "add_%s_token", role);
    const json_t *v = json_read_get(r->settings, name);
    if (!r->has_template && v != NULL) {
        if (!json_is_boolean(v)) {
            return err_set(r->info, ERR_BAD_CONFIG, name, "tokenizer_config.json: %s: expected a boolean, found %s",
                           name, json_read_type_name(v));
        }
        is_added = json_is_true(v);
    }
    if (is_added && id == TOKENIZER_VOCAB_NONE) {
        return err_set(r->info, ERR_BAD_SPECIAL_TOKEN, name,
                       "tokenizer_config.json: %s: expected a %s_token to add, found none", name, role);
    }
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", role);
    gguf_build_bool(r->b, key, is_added);
    return ERR_OK;
}

enum err tokenizer_json_roles(struct tokenizer_reader *r)
{
    static const struct {
        const char *role, *key;
    } others[] = {{"pad", "padding"}, {"sep", "seperator"}, {"cls", "cls"}, {"mask", "mask"}, {"unk", "unknown"}};
    struct ends begins = {.n = 0}, ends = {.n = 0};
    uint32_t bos, eos, id;
    TRY(read_role(r, "bos", &begins, &bos));
    TRY(read_role(r, "eos", &ends, &eos));
    if (eos != TOKENIZER_VOCAB_NONE) {
        add_end(&ends, eos);
    }
    /* The token that a template adds is BOS, whatever else the files declare. */
    bos = r->first_id != TOKENIZER_VOCAB_NONE ? r->first_id : bos;
    eos = r->last_id != TOKENIZER_VOCAB_NONE ? r->last_id : eos;
    write_id(r, "bos", bos);
    write_id(r, "eos", eos);
    TRY(write_added(r, "bos", r->first_id, bos));
    TRY(write_added(r, "eos", r->last_id, eos));
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (!(r->has_unknown_key && strcmp(others[i].role, "unk") == 0)) {
            TRY(read_named(r, others[i].role, false, &id)); /* optional: an id such as -1 means none */
            write_id(r, others[i].key, id);
        }
    }
    if (ends.n > 0) {
        gguf_build_array(r->b, "infcgi.tokenizer.eog_ids", GGUF_U32, ends.n, ends.ids);
    }
    for (size_t i = 0; i < ends.n; i++) {
        if (ends.ids[i] != eos) { /* another one for programs that read only GGUF's keys */
            write_id(r, "eot", ends.ids[i]);
            break;
        }
    }
    return ERR_OK;
}

/* --- chat template ------------------------------------------------------------------------------------------------ */

static enum err bad_template(const struct tokenizer_reader *r, const char *file, const json_t *v)
{
    return err_set(r->info, ERR_BAD_CONFIG, "chat_template",
                   "%s: chat_template: expected a text, or a list of objects with name and template; found %s", file,
                   v != NULL ? json_read_type_name(v) : "none");
}

static bool is_plain_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_plain = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') ||
                        s[i] == '_' || s[i] == '-';
        if (!is_plain) {
            return false;
        }
    }
    return n > 0 && n < 64;
}

/* Writes a text, or from a list of named texts the one called `default`. */
static enum err write_template(struct tokenizer_reader *r, const char *file, const json_t *v)
{
    if (json_is_string(v)) {
        gguf_build_str(r->b, "tokenizer.chat_template", json_string_value(v), json_string_length(v));
        return ERR_OK;
    }
    if (!json_is_array(v)) {
        return bad_template(r, file, v);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *name = json_object_get(json_array_get(v, i), "name");
        const json_t *text = json_object_get(json_array_get(v, i), "template");
        char key[KEY_BYTES] = "tokenizer.chat_template";
        if (!json_is_string(name) || !json_is_string(text)) {
            return bad_template(r, file, json_array_get(v, i));
        }
        const char *s = json_string_value(name);
        if (!is_plain_name(s, json_string_length(name))) {
            return err_set(r->info, ERR_BAD_CONFIG, "chat_template",
                           "%s: chat_template[%zu].name: expected letters, digits, - and _, found '%.64s'", file, i, s);
        }
        if (strcmp(s, "default") != 0) {
            snprintf(key, sizeof key, "tokenizer.chat_template.%s", s);
        }
        gguf_build_str(r->b, key, json_string_value(text), json_string_length(text));
    }
    return ERR_OK;
}

static enum err write_jinja(struct tokenizer_reader *r, const char *path)
{
    struct buf text;
    buf_init(&text, GGUF_MAX_STRING_BYTES, MEM_GENERAL);
    enum err err = io_read_file(path, GGUF_MAX_STRING_BYTES, &text, r->info);
    if (err == ERR_OK) {
        gguf_build_str(r->b, "tokenizer.chat_template", text.len > 0 ? text.data : "", text.len);
    }
    buf_fini(&text);
    return err;
}

enum err tokenizer_json_chat(struct tokenizer_reader *r)
{
    char path[SAFETENSORS_PATH_BYTES];
    bool is_there;
    TRY(tokenizer_json_path(r, "chat_template.jinja", path, &is_there));
    if (is_there) {
        return write_jinja(r, path);
    }
    const json_t *v = json_read_get(r->settings, "chat_template");
    if (v != NULL) {
        return write_template(r, "tokenizer_config.json", v);
    }
    json_t *file;
    TRY(tokenizer_json_file(r, "chat_template.json", GGUF_MAX_STRING_BYTES, ERR_BAD_CONFIG, &file));
    v = json_read_get(file, "chat_template");
    enum err err = v != NULL ? write_template(r, "chat_template.json", v) : ERR_OK;
    json_decref(file);
    return err;
}

/* --- sampling ----------------------------------------------------------------------------------------------------- */

enum err tokenizer_json_sampling(struct tokenizer_reader *r)
{
    static const struct {
        const char *name, *key;
        bool is_integer;
    } rows[] = {{"temperature", "general.sampling.temp", false},
                {"top_p", "general.sampling.top_p", false},
                {"min_p", "general.sampling.min_p", false},
                {"repetition_penalty", "general.sampling.penalty_repeat", false},
                {"top_k", "general.sampling.top_k", true}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const json_t *v = json_read_get(r->generation, rows[i].name);
        if (v == NULL) {
            continue;
        }
        char shown[JSON_READ_SHOWN];
        double d = json_number_value(v);
        bool is_good = rows[i].is_integer ? json_is_integer(v) && d >= -1 && d <= INT32_MAX
                                          : json_is_number(v) && d >= 0 && d <= 1e6;
        if (!is_good) {
            return err_set(r->info, ERR_BAD_CONFIG, rows[i].name, "generation_config.json: %s: expected %s, found %s",
                           rows[i].name, rows[i].is_integer ? "an integer of -1 or more" : "a number of 0 or more",
                           json_read_show(v, shown));
        }
        if (rows[i].is_integer) {
            int32_t top_k = (int32_t)json_integer_value(v);
            gguf_build_scalar(r->b, rows[i].key, GGUF_I32, &top_k);
        } else {
            gguf_build_f32(r->b, rows[i].key, (float)d);
        }
    }
    return ERR_OK;
}
