/* Reads requests of OpenAI's Responses API [its reference, "Create a model response"; openresponses.org]: messages and
 * tools in the form that templates read. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_RESPONSES_INPUT_H
#define INFCGI_FCGI_API_RESPONSES_INPUT_H

#include "fcgi/api/params.h"

enum { RESPONSES_MAX_ITEMS = 4096, RESPONSES_ITEM_ID_BYTES = 64 };

/* Prefix of the encrypted_content of infcgi's reasoning items. Plain text follows, because it need not be hidden from
 * anyone. */
#define RESPONSES_PLAIN "infcgi-plain:"

/* Fills the chat's parts of *p, initialised, from `body`: messages, tools, response format and effort. past: items
 * before its input (OPTIONAL, an array).
 *
 * instructions and the system's and developer's messages at the beginning become one message, because most templates
 * accept one. Consecutive thinking, text and calls become one assistant message. A call's output follows the message
 * with the call directly. A custom tool becomes a function with one string, `input`, which matches the tool's format if
 * that is a regular expression. Tools of a namespace become functions with its name as prefix. Tools that an agent only
 * announces as available (web_search, image_generation, tool_search) are ignored. Other tools that the server would
 * have to run are rejected, and so is content other than text.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER with info->where the position
 * in `body`, as input[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err responses_read(const json_t *body, const json_t *past, struct params *p, struct err_info *info);

/* Returns whether `include` of the body has this name. */
bool responses_includes(const json_t *body, const char *what);

/* Returns the input as an array of items, a new reference; a string becomes a user's message. NULL: out of memory, or
 * another type. */
json_t *responses_items(const json_t *input);

#endif
