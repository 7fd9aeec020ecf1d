/* Checks that a value has the form of a JSON Schema. Parameters of tools are checked even if no answer must match them,
 * so that no meaningless schema reaches a model. engine/grammar determines which parts can be enforced. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_SCHEMA_CHECK_H
#define INFCGI_FCGI_API_SCHEMA_CHECK_H

#include "fcgi/wire/json_in.h"

/* Checks the keywords of `schema` and of all schemas in it, drafts 4 to 2020-12. Unknown keywords can have any value,
 * and null is absent. at: its position in the request. ERR_INVALID_SCHEMA: info->where is `at` and a JSON pointer,
 * tools[0].function.parameters/properties/a/type. ERR_NOMEM. */
MUST_CHECK enum err schema_check(const json_t *schema, const char *at, struct err_info *info);

#endif
