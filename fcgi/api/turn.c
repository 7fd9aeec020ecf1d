#include "fcgi/api/turn.h"

#include <stdio.h>

const char *turn_member(char out[ERR_WHERE_BYTES], const char *at, const char *field)
{
    snprintf(out, ERR_WHERE_BYTES, "%.96s%s%.24s", at, at[0] != '\0' ? "." : "", field);
    return out;
}

const char *turn_element(char out[ERR_WHERE_BYTES], const char *at, size_t i)
{
    snprintf(out, ERR_WHERE_BYTES, "%.96s[%zu]", at, i);
    return out;
}

enum err turn_refuse(const json_t *v, json_type type, const char *where, const char *expected, struct err_info *info)
{
    enum err code = ERR_INVALID_VALUE;
    if (v == NULL || json_is_null(v)) {
        code = ERR_MISSING_PARAMETER;
    } else if (json_typeof(v) != type) {
        code = ERR_INVALID_TYPE;
    }
    return json_in_refuse(code, where, expected, v, info);
}

enum err turn_expect(const json_t *v, json_type type, const char *where, const char *expected, struct err_info *info)
{
    return v != NULL && json_typeof(v) == type ? ERR_OK : turn_refuse(v, type, where, expected, info);
}

json_t *turn_text(const struct buf *text)
{
    return buf_ok(text) == ERR_OK ? json_stringn_nocheck(text->data != NULL ? text->data : "", text->len) : NULL;
}

enum err turn_string(const json_t *object, const char *at, const char *field, json_t **out, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    *out = json_object_get(object, field);
    return turn_expect(*out, JSON_STRING, turn_member(where, at, field), "a string", info);
}

enum err turn_append(json_t *array, json_t *made)
{
    return made != NULL && json_array_append_new(array, made) == 0 ? ERR_OK : ERR_NOMEM;
}

enum err turn_put(json_t *object, const char *name, json_t *made)
{
    return made != NULL && json_object_set_new(object, name, made) == 0 ? ERR_OK : ERR_NOMEM;
}

enum err turn_copy(const json_t *from, const char *name, json_t *to, const char *as)
{
    json_t *v = json_object_get(from, name);
    return v == NULL || json_is_null(v) ? ERR_OK : turn_put(to, as, json_incref(v));
}
