/* What `tools`, `tool_choice`, `parallel_tool_calls` and the calls of earlier messages must look like. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_TOOLS_H
#define INFCGI_FCGI_API_TOOLS_H

#include "fcgi/wire/json_in.h"

enum {
    TOOLS_MAX = 512,        /* tools of a request: agents with several MCP servers send more than 200 */
    TOOLS_OPENAI_MAX = 128, /* OpenAI's limits */
    TOOLS_OPENAI_MAX_NAME = 64,
};

/* Checks these of a request. as_openai: names and the number of tools must keep OpenAI's limits, which are narrower. *shown:
 * the template is to see the tools. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE; info->where is the place, as
 * tools[1].function.name. Fails as schema_check of parameters. */
MUST_CHECK enum err tools_check(const json_t *root, bool as_openai, bool *shown, struct err_info *info);

/* Checks the member `name` of what stands at `at`: 1 to 128 letters, digits, '_', '-' and '.', as names of MCP tools are
 * [Model Context Protocol 2025-11-25, "Tool Names"]. Fails as tools_check. */
MUST_CHECK enum err tools_check_name(const json_t *object, const char *at, struct err_info *info);

/* Checks tool_calls, function_call and tool_call_id of a message, each of which may be absent. where: its place, as
 * messages[1]. Arguments that are null, "" or "null" become "{}". Fails as tools_check; ERR_NOMEM. */
MUST_CHECK enum err tools_check_message(json_t *message, const char *where, struct err_info *info);

/* Makes the tools of tools_check complete: a function without description has "" for it; one without parameters, or
 * whose parameters lack them, has type "object" and empty properties. *out is the caller's and shares complete tools;
 * NULL: all are complete. ERR_NOMEM. */
MUST_CHECK enum err tools_fill(const json_t *tools, json_t **out);

/* Turns the arguments of calls in checked messages that are the text of an object into that object, read by
 * json_read_lenient, and appends to `undo` what tools_close_arguments needs to put the texts back. Other texts stay.
 * ERR_NOMEM. */
MUST_CHECK enum err tools_open_arguments(json_t *messages, json_t *undo);
MUST_CHECK enum err tools_close_arguments(json_t *undo);

#endif
