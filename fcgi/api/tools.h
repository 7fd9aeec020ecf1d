/* Validates `tools`, `tool_choice`, `parallel_tool_calls` and the calls of earlier messages. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_TOOLS_H
#define INFCGI_FCGI_API_TOOLS_H

#include "fcgi/wire/json_in.h"

enum {
    TOOLS_MAX = 512,        /* tools per request: agents with several MCP servers send more than 200 */
    TOOLS_OPENAI_MAX = 128, /* OpenAI's limits */
    TOOLS_OPENAI_MAX_NAME = 64,
};

/* Checks these fields of a request. as_openai: names and the number of tools must keep OpenAI's narrower limits.
 * *shown: the template gets the tools. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE; info->where is the
 * position, as tools[1].function.name. Fails as schema_check for parameters. */
MUST_CHECK enum err tools_check(const json_t *root, bool as_openai, bool *shown, struct err_info *info);

/* Checks the member `name` of the value at `at`: 1 to 128 letters, digits, '_', '-' and '.', as for names of MCP tools
 * [Model Context Protocol 2025-11-25, "Tool Names"]. Fails as tools_check. */
MUST_CHECK enum err tools_check_name(const json_t *object, const char *at, struct err_info *info);

/* Checks tool_calls, function_call and tool_call_id of a message, each of which can be absent. where: its position, as
 * messages[1]. Arguments that are null, "" or "null" become "{}". Fails as tools_check; ERR_NOMEM. */
MUST_CHECK enum err tools_check_message(json_t *message, const char *where, struct err_info *info);

/* Completes tools of tools_check: a missing description becomes ""; missing or incomplete parameters get type "object"
 * and empty properties. *out belongs to the caller and shares complete tools; NULL: all are complete. ERR_NOMEM. */
MUST_CHECK enum err tools_fill(const json_t *tools, json_t **out);

/* Parses the arguments of calls in checked messages into objects, with json_read_lenient, if they are the text of an
 * object. Appends to `undo` the data with which tools_close_arguments restores the texts. Other texts stay.
 * ERR_NOMEM. */
MUST_CHECK enum err tools_open_arguments(json_t *messages, json_t *undo);
MUST_CHECK enum err tools_close_arguments(json_t *undo);

#endif
