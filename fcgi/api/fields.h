/* Tables of request body fields, with their names in docs/openapi.yaml. fcgi/field_tables.c lists them. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_FIELDS_H
#define INFCGI_FCGI_API_FIELDS_H

#include "fcgi/wire/json_in.h"

/* The fields of one body, defined next to its rows. */
struct field_table {
    const char *name; /* name in docs/openapi.yaml */
    const struct field *rows;
    size_t n;
};

extern const struct field_table fields_of_chat, fields_of_completions; /* params.c */
extern const struct field_table fields_of_responses;
extern const struct field_table fields_of_embeddings;
extern const struct field_table fields_of_rerank, fields_of_score;                /* rank.c */
extern const struct field_table fields_of_tokenize;                               /* tokens.c: also for detokenize */
extern const struct field_table fields_of_ollama_chat, fields_of_ollama_generate; /* ollama_input.c */
extern const struct field_table fields_of_ollama_show, fields_of_ollama_embed;    /* ollama.c */

/* Returns the type of a field in JSON Schema's words ("boolean", "integer", "number", "string"), or "any", "ignored",
 * "refused". */
const char *fields_kind_name(enum field_kind kind);

#endif
