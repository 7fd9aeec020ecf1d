/* Whether what stands where a JSON Schema is expected has the form of one: a tool's parameters are looked at even where no
 * answer is held to them, so that a schema that says nothing does not reach a model unseen. What of a schema can be
 * enforced is engine/grammar's to say. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_SCHEMA_CHECK_H
#define INFCGI_FCGI_API_SCHEMA_CHECK_H

#include "fcgi/wire/json_in.h"

/* Checks the keywords of `schema` and of all schemas in it, drafts 4 to 2020-12; others say what they like, and null is
 * absent. at: its place in the request. ERR_INVALID_SCHEMA: info->where is `at` and a JSON pointer,
 * tools[0].function.parameters/properties/a/type. ERR_NOMEM. */
MUST_CHECK enum err schema_check(const json_t *schema, const char *at, struct err_info *info);

#endif
