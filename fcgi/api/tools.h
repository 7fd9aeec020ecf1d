/* Reads and validates `tools`, `tool_choice`, `parallel_tool_calls` and the calls of earlier messages. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_TOOLS_H
#define INFCGI_FCGI_API_TOOLS_H

#include "fcgi/wire/json_in.h"

enum {
    TOOLS_MAX = 512,        /* tools per request: agents with several MCP servers send more than 200 */
    TOOLS_OPENAI_MAX = 128, /* OpenAI's limits */
    TOOLS_OPENAI_MAX_NAME = 64,
};

/* The tools of a request and which of them the answer may call. Zero-initialise; tools_fini frees. */
struct tools {
    json_t *list;   /* owned: {"type": "function", "function": {..}} each, as templates read them; NULL: none */
    json_t *places; /* owned: per tool [path of the function, path of its parameters] in the body */
    json_t *names;  /* owned: functions of the Responses API that are not plain: {"custom": true}, or {"namespace": ..,
                       "name": ..} */
    bool is_openai; /* the body has OpenAI's form, so no places are needed: tools[0].function */
    enum tools_mode { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED } mode;
    json_t *allowed;               /* owned: names of the functions that may be called; NULL: all */
    bool is_named;                 /* the choice names one function: `allowed` has it, and the answer is one call */
    bool is_parallel, is_separate; /* parallel_tool_calls is true; is false */
    bool is_shown;                 /* set by tools_check: the template gets the tools */
};

void tools_fini(struct tools *t);

/* Reads `tools`, `tool_choice` and `parallel_tool_calls` of a body in OpenAI's form. The tools are checked later, by
 * tools_check. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE; info->where is the position, as
 * tool_choice.function.name. */
MUST_CHECK enum err tools_read(const json_t *root, struct tools *t, struct err_info *info);

/* Their parts, for bodies with other forms: parallel_tool_calls alone; a mode, "auto", "none" or "required" (false:
 * another value); the name of a function that may be called, a member of the value at `at`. */
MUST_CHECK enum err tools_read_parallel(const json_t *root, struct tools *t, struct err_info *info);
bool tools_read_mode(const json_t *v, struct tools *t);
MUST_CHECK enum err tools_allow(struct tools *t, json_t *name, const char *at, struct err_info *info);

/* Adds a function, with the paths of it and its parameters in the body. Takes ownership of function; NULL: ERR_NOMEM. */
MUST_CHECK enum err tools_add(struct tools *t, json_t *function, const char *at, const char *parameters_at);

/* Checks tools and choice. as_openai: names and the number of tools must keep OpenAI's narrower limits. Errors as
 * tools_read and, for parameters, as schema_check. */
MUST_CHECK enum err tools_check(struct tools *t, bool as_openai, struct err_info *info);

/* Writes the path of function i of the list, or of its parameters, and returns out. */
const char *tools_place(const struct tools *t, size_t i, bool of_parameters, char out[ERR_WHERE_BYTES]);

/* Returns whether an array of strings has this one. */
bool tools_among(const json_t *names, const json_t *name);

/* Checks the name of a function, a member of the value at `at`: 1 to 128 letters, digits, '_', '-' and '.', as for names
 * of MCP tools [Model Context Protocol 2025-11-25, "Tool Names"]. Fails as tools_read. */
MUST_CHECK enum err tools_check_name(const json_t *name, const char *at, struct err_info *info);

/* Checks tool_calls, function_call and tool_call_id of a message, each of which can be absent. where: its position, as
 * messages[1]. Arguments that are null, "" or "null" become "{}". Fails as tools_read; ERR_NOMEM. */
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
