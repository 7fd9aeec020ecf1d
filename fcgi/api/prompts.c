/* Reading prompts. */
#include "fcgi/api/prompts.h"

#include <stdio.h>

/* A request being read. */
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

static enum err refuse_empty(const struct reader *r)
{
    return err_set(r->info, ERR_INVALID_VALUE, r->rule->field, "%s: expected at least one token, found an empty text",
                   r->rule->field);
}

static enum err add_text(const struct reader *r, const json_t *v)
{
    size_t i = r->out->n++, n = json_string_length(v);
    if (n == 0 && r->rule->refuses_empty) {
        return refuse_empty(r);
    }
    TRY(engine_tokenize(r->call->engine, json_string_value(v), n, true, true, NULL, 0,
                        fastcgi_has_left(r->call->reply.request), &r->call->arena, &r->out->ids[i], &r->out->n_ids[i],
                        r->info));
    return r->out->n_ids[i] == 0 ? refuse_empty(r) : ERR_OK;
}

enum err prompts_bad_id(const char *field, size_t i, const json_t *v, int64_t n_vocab, struct err_info *info)
{
    char where[ERR_WHERE_BYTES], number[32];
    snprintf(where, sizeof where, "%s[%zu]", field, i);
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
    return err_set(info, json_is_integer(v) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, where,
                   "%s: expected a token id of this model, 0 to %lld, found %s", where, (long long)n_vocab - 1,
                   json_is_integer(v) ? number : json_read_type_name(v));
}

static enum err add_ids(const struct reader *r, const json_t *array)
{
    size_t n = json_array_size(array), i = r->out->n++;
    int64_t n_vocab = engine_model(r->call->engine)->n_vocab;
    if (n == 0 && r->rule->refuses_empty) {
        return refuse_empty(r);
    }
    int32_t *ids = r->out->ids[i] = arena_zalloc_array(&r->call->arena, n + 1, sizeof *ids);
    TRY_MEM(ids != NULL);
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(array, k);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n_vocab) {
            return prompts_bad_id(r->rule->field, k, v, n_vocab, r->info);
        }
        ids[k] = (int32_t)json_integer_value(v);
    }
    r->out->n_ids[i] = n;
    return ERR_OK;
}

static enum err read_all(const struct reader *r, const json_t *value, bool is_one, size_t n)
{
    r->out->ids = arena_zalloc_array(&r->call->arena, n, sizeof *r->out->ids);
    r->out->n_ids = arena_zalloc_array(&r->call->arena, n, sizeof *r->out->n_ids);
    TRY(arena_ok(&r->call->arena));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = is_one ? value : json_array_get(value, i);
        if (!json_is_string(v) && !json_is_array(v)) {
            return refuse(r, ERR_INVALID_TYPE, json_read_type_name(v));
        }
        TRY(json_is_string(v) ? add_text(r, v) : add_ids(r, v));
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
    if (!json_is_string(value) && (!json_is_array(value) || n == 0)) {
        return refuse(&r, json_is_array(value) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE,
                      json_is_array(value) ? "an empty array" : json_read_type_name(value));
    }
    bool is_one = json_is_string(value) || json_is_integer(json_array_get(value, 0));
    if (!is_one && n > rule->max) {
        return refuse(&r, ERR_INVALID_VALUE, "more");
    }
    return read_all(&r, value, is_one, is_one ? 1 : n);
}
