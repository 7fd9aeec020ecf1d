/* What `tools`, `tool_choice` and the calls of earlier messages must look like. Nothing is enforced on answers: the
 * template shows tools to the model, whose calls come back as text. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_TOOLS_H
#define INFCGI_FCGI_API_TOOLS_H

#include "fcgi/json_in.h"

/* Checks `tools` and `tool_choice` of a request. *shown: the template is to see the tools. ERR_MISSING_PARAMETER,
 * ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER (a choice that would have to be enforced); info->where
 * is the place, as tools[1].function.name. */
MUST_CHECK enum err tools_check(const json_t *root, bool *shown, struct err_info *info);

/* Checks tool_calls, function_call and tool_call_id of a message, each of which may be absent. where: its place, as
 * messages[1]. Fails as tools_check. */
MUST_CHECK enum err tools_check_message(const json_t *message, const char *where, struct err_info *info);

#endif
