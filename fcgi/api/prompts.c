/* Reads prompts. */
#include "fcgi/api/prompts.h"

#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

/* State while a request's prompts are read. */
struct reader {
    struct call *call;
    const struct prompts_rule *rule;
    struct prompts *out;
    struct err_info *info;
};

static enum err refuse(const struct reader *r, enum err code, const char *found)
{
    return err_set(
        r->info, code, r->rule->field,
        "%s: expected a string, an array of at most %zu strings, an array of token ids, or an array of such arrays; "
        "found %s",
        r->rule->field, r->rule->max, found);
}

/* Rejects the current text, an object or a member of one. */
static enum err refuse_object(const struct reader *r, enum err code, const char *member, const char *expected)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "%s.%s", r->rule->field, member);
    return err_set(r->info, code, where, "%s: expected %s", where, expected);
}

static enum err refuse_empty(const struct reader *r)
{
    return err_set(r->info, ERR_INVALID_VALUE, r->rule->field, "%s: expected at least one token, found an empty text",
                   r->rule->field);
}

static enum err add_text(const struct reader *r, const char *text, size_t n)
{
    size_t i = r->out->n++;
    if (n == 0 && r->rule->refuses_empty) {
        return refuse_empty(r);
    }
    TRY(engine_tokenize(r->call->engine, text, n, true, true, NULL, 0, &r->call->arena, &r->out->ids[i],
                        &r->out->n_ids[i], r->info));
    r->out->has_end[i] = engine_model(r->call->engine)->adds_eos;
    return r->out->n_ids[i] == 0 ? refuse_empty(r) : ERR_OK;
}

enum err prompts_bad_id(const char *field, size_t i, const json_t *v, int64_t n_vocab, struct err_info *info)
{
    char where[ERR_WHERE_BYTES], shown[JSON_READ_SHOWN];
    enum err code = json_in_integer_code(v);
    snprintf(where, sizeof where, "%s[%zu]", field, i);
    return err_set(info, code, where, "%s: expected a token id of this model, 0 to %lld, found %s", where,
                   (long long)n_vocab - 1,
                   code == ERR_INVALID_VALUE ? json_read_show(v, shown) : json_read_type_name(v));
}

/* Adds token ids and the strings between them. If the array begins with a string, that string gets the special tokens
 * of a text's beginning. */
static enum err add_ids(const struct reader *r, const json_t *array)
{
    size_t n = json_array_size(array), i = r->out->n++, n_ids = 0;
    int64_t n_vocab = engine_model(r->call->engine)->n_vocab;
    if (n == 0 && r->rule->refuses_empty) {
        return refuse_empty(r);
    }
    int32_t **parts = arena_zalloc_array(&r->call->arena, n + 1, sizeof *parts);
    size_t *lens = arena_zalloc_array(&r->call->arena, n + 1, sizeof *lens);
    TRY(arena_ok(&r->call->arena));
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(array, k);
        int64_t id;
        bool is_id = json_in_integer(v, &id) && id >= 0 && id < n_vocab;
        if (!is_id && !(json_is_string(v) && r->rule->takes_mixed)) {
            return prompts_bad_id(r->rule->field, k, v, n_vocab, r->info);
        }
        if (json_is_string(v)) {
            TRY(engine_tokenize(r->call->engine, json_string_value(v), json_string_length(v), k == 0, true, NULL, 0,
                                &r->call->arena, &parts[k], &lens[k], r->info));
        }
        n_ids += json_is_string(v) ? lens[k] : 1;
    }
    int32_t *ids = r->out->ids[i] = arena_zalloc_array(&r->call->arena, n_ids + 1, sizeof *ids);
    TRY_MEM(ids != NULL);
    for (size_t k = 0; k < n; k++) {
        int64_t id;
        if (json_in_integer(json_array_get(array, k), &id)) {
            ids[r->out->n_ids[i]++] = (int32_t)id;
        }
        for (size_t j = 0; j < lens[k]; j++) {
            ids[r->out->n_ids[i]++] = parts[k][j];
        }
    }
    return n > 0 && n_ids == 0 ? refuse_empty(r) : ERR_OK;
}

/* Adds llama-server's objects: {"prompt_string": ..}, and {"content": [{"type": "text", "text": ..}]}. */
static enum err add_object(const struct reader *r, const json_t *object)
{
    const json_t *text = json_read_get(object, "prompt_string"), *parts = json_read_get(object, "content"), *part;
    const json_t *media = json_read_get(object, "multimodal_data");
    if (media != NULL && !(json_is_array(media) && json_array_size(media) == 0)) {
        return refuse_object(r, ERR_UNSUPPORTED_PARAMETER, "multimodal_data",
                             "none, because the model reads only text");
    }
    if (json_is_string(text)) {
        return add_text(r, json_string_value(text), json_string_length(text));
    }
    if (text != NULL || !json_is_array(parts)) {
        return refuse_object(r, ERR_INVALID_TYPE, text != NULL ? "prompt_string" : "content",
                             text != NULL ? "a string" : "an array of parts of type text, or a string prompt_string");
    }
    struct buf joined;
    enum err err = ERR_OK;
    size_t i;
    buf_init(&joined, 0, MEM_REQUEST);
    json_array_foreach((json_t *)parts, i, part)
    {
        const json_t *said = json_read_get(part, "text");
        if (!json_read_is(json_object_get(part, "type"), "text") || !json_is_string(said)) {
            err = refuse_object(r, ERR_INVALID_VALUE, "content", "parts of type text with a string text");
            break;
        }
        buf_append(&joined, json_string_value(said), json_string_length(said));
    }
    err = err != ERR_OK ? err : buf_ok(&joined);
    err = err != ERR_OK ? err : add_text(r, joined.data != NULL ? joined.data : "", joined.len);
    buf_fini(&joined);
    return err;
}

static enum err add(const struct reader *r, const json_t *v)
{
    if (json_is_string(v)) {
        return add_text(r, json_string_value(v), json_string_length(v));
    }
    if (json_is_array(v)) {
        return add_ids(r, v);
    }
    return json_is_object(v) && r->rule->takes_mixed ? add_object(r, v)
                                                     : refuse(r, ERR_INVALID_TYPE, json_read_type_name(v));
}

/* Checks whether the array is one text, that is, contains ids. */
static bool has_ids(const json_t *array)
{
    const json_t *v;
    int64_t id;
    size_t i;
    json_array_foreach((json_t *)array, i, v)
    {
        if (json_in_integer(v, &id)) {
            return true;
        }
    }
    return false;
}

enum err prompts_check_length(struct call *c, const struct prompts *p, size_t i, const char *field,
                              struct err_info *info)
{
    if (p->n_ids[i] == 0) {
        return ERR_OK; /* the code that runs the prompt rejects it */
    }
    const struct engine_params shortest = {.max_tokens =
                                               0}; /* the answer's own length is checked when it is submitted */
    enum err err = engine_check_submit(c->engine, p->ids[i], p->n_ids[i], &shortest, info);
    reply_note_context(&c->reply, p->n_ids[i], engine_model(c->engine)->n_ctx);
    if (err != ERR_OK && strcmp(info->where, "prompt") == 0) {
        snprintf(info->where, sizeof info->where, "%s", field);
    }
    return err;
}

enum err prompts_room(struct prompts *p, struct call *c, size_t n)
{
    p->ids = arena_zalloc_array(&c->arena, n, sizeof *p->ids);
    p->n_ids = arena_zalloc_array(&c->arena, n, sizeof *p->n_ids);
    return arena_ok(&c->arena);
}

static enum err read_all(const struct reader *r, const json_t *value, bool is_one, size_t n)
{
    prompts_check check = r->rule->check;
    TRY(prompts_room(r->out, r->call, n));
    r->out->has_end = arena_zalloc_array(&r->call->arena, n, sizeof *r->out->has_end);
    TRY(arena_ok(&r->call->arena));
    for (size_t i = 0; i < n; i++) {
        TRY(add(r, is_one ? value : json_array_get(value, i)));
        TRY(check != NULL ? check(r->call, r->out, i, r->rule->field, r->info) : ERR_OK);
    }
    return ERR_OK;
}

enum err prompts_read(struct prompts *p, struct call *c, const json_t *root, const struct prompts_rule *rule,
                      struct err_info *info)
{
    struct reader r = {.call = c, .rule = rule, .out = p, .info = info};
    const json_t *value = json_read_get(root, rule->field);
    if (value == NULL) {
        return refuse(&r, ERR_MISSING_PARAMETER, "none");
    }
    size_t n = json_array_size(value);
    int64_t id;
    bool is_text = json_is_string(value) || (json_is_object(value) && rule->takes_mixed);
    if (!is_text && (!json_is_array(value) || n == 0)) {
        return refuse(&r, json_is_array(value) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE,
                      json_is_array(value) ? "an empty array" : json_read_type_name(value));
    }
    bool is_one = is_text || (rule->takes_mixed ? has_ids(value) : json_in_integer(json_array_get(value, 0), &id));
    if (!is_one && n > rule->max) {
        return refuse(&r, ERR_INVALID_VALUE, "more");
    }
    return read_all(&r, value, is_one, is_one ? 1 : n);
}
