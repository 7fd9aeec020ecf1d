/* Tables of request body fields, with their names in docs/openapi.yaml. fcgi/field_tables.c lists them. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_FIELDS_H
#define INFCGI_FCGI_API_FIELDS_H

#include "fcgi/wire/json_in.h"

/* The fields of one body, defined next to its rows. */
struct field_table {
    const char *name; /* name in docs/openapi.yaml; NULL: none, and --strict-api does not reject other fields */
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

struct call;

/* Reads the fields of `object`, the body of the call or a part of it, into `target`. Errors as json_in_fields. */
MUST_CHECK enum err fields_read(const struct call *c, const struct field_table *table, const json_t *object,
                                void *target, struct err_info *info);

/* Returns the type of a field in JSON Schema's words ("boolean", "integer", "number", "string"), or "any", "ignored",
 * "refused". */
const char *fields_kind_name(enum field_kind kind);

#endif
