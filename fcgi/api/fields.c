#include "fcgi/api/fields.h"

const char *fields_kind_name(enum field_kind kind)
{
    static const char *const names[] = {
        [FIELD_BOOL] = "boolean",    [FIELD_INT] = "integer",     [FIELD_INT32] = "integer", [FIELD_UINT64] = "integer",
        [FIELD_FLOAT] = "number",    [FIELD_STRING] = "string",   [FIELD_LABEL] = "string",  [FIELD_CUSTOM] = "any",
        [FIELD_IGNORED] = "ignored", [FIELD_REFUSED] = "refused",
    };
    return names[kind];
}
