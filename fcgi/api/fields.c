#include "fcgi/api/fields.h"

#include "engine/base/compiler.h"

static const struct field_table *const tables[] = {
    &fields_of_chat,        &fields_of_completions,     &fields_of_responses,   &fields_of_embeddings,
    &fields_of_rerank,      &fields_of_score,           &fields_of_tokenize,    &fields_of_ollama_chat,
    &fields_of_ollama_show, &fields_of_ollama_generate, &fields_of_ollama_embed,
};

const struct field_table *fields_table_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(tables) ? tables[i] : NULL; }

const char *fields_kind_name(enum field_kind kind)
{
    static const char *const names[] = {
        [FIELD_BOOL] = "boolean",   [FIELD_INT] = "integer",     [FIELD_INT32] = "integer",
        [FIELD_UINT64] = "integer", [FIELD_FLOAT] = "number",    [FIELD_STRING] = "string",
        [FIELD_LABEL] = "string",   [FIELD_CUSTOM] = "any",     [FIELD_IGNORED] = "ignored", [FIELD_REFUSED] = "refused",
    };
    return names[kind];
}
