#include "fcgi/tables.h"

#include "engine/base/compiler.h"

const struct field_table *const field_tables[] = {
    &fields_of_chat,        &fields_of_completions,     &fields_of_responses,    &fields_of_embeddings,
    &fields_of_rerank,      &fields_of_score,           &fields_of_tokenize,     &fields_of_ollama_chat,
    &fields_of_ollama_show, &fields_of_ollama_generate, &fields_of_ollama_embed,
};

const int field_tables_n = ARRAY_LEN(field_tables);
