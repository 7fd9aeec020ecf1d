#include "fcgi/api/fields.h"

#include "fcgi/wire/call.h"

enum err fields_read(const struct call *c, const struct field_table *table, const json_t *object, void *target,
                     struct err_info *info)
{
    bool is_strict = c->server->conf->strict_api && table->name != NULL;
    return json_in_fields(object, table->rows, table->n, is_strict, target, info);
}

const char *fields_kind_name(enum field_kind kind)
{
    static const char *const names[] = {
        [FIELD_BOOL] = "boolean",    [FIELD_INT] = "integer",     [FIELD_INT32] = "integer", [FIELD_UINT64] = "integer",
        [FIELD_FLOAT] = "number",    [FIELD_STRING] = "string",   [FIELD_LABEL] = "string",  [FIELD_CUSTOM] = "any",
        [FIELD_IGNORED] = "ignored", [FIELD_REFUSED] = "refused",
    };
    return names[kind];
}
