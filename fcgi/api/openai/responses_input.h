/* Converts requests of OpenAI's Responses API [its reference, "Create a model response"; openresponses.org] to bodies
 * of /v1/chat/completions, so that one path checks and renders both. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_RESPONSES_INPUT_H
#define INFCGI_FCGI_API_RESPONSES_INPUT_H

#include "fcgi/wire/json_in.h"

enum { RESPONSES_MAX_ITEMS = 4096, RESPONSES_ITEM_ID_BYTES = 64 };

/* Prefix of the encrypted_content of infcgi's reasoning items. Plain text follows, because it need not be hidden from
 * anyone. */
#define RESPONSES_PLAIN "infcgi-plain:"

/* The result of the conversion; responses_chat_fini frees it. */
struct responses_chat {
    json_t *chat; /* model, messages, tools, tool_choice, response_format, sampling */
    /* For each of chat's tools its position in the body, as "tools[2].tools[0]"; for custom tools an array of it and the
     * position of their grammar. */
    json_t *places;
    json_t *names; /* functions that are not plain: {"custom": true}, or {"namespace": .., "name": ..} */
};

/* Builds *out from `body`. past: items before its input (OPTIONAL, an array).
 *
 * instructions and the system's and developer's messages at the beginning become one message, because most templates
 * accept one. Consecutive thinking, text and calls become one assistant message. A call's output follows the message
 * with the call directly. A custom tool becomes a function with one string, `input`, which matches the tool's format if
 * that is a regular expression. Tools of a namespace become functions with its name as prefix. Tools that an agent only
 * announces as available (web_search, image_generation, tool_search) are ignored. Other tools that the server would
 * have to run are rejected, and so is content other than text.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER with info->where the position
 * in `body`, as input[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err responses_to_chat(const json_t *body, const json_t *past, struct responses_chat *out,
                                      struct err_info *info);
void responses_chat_fini(struct responses_chat *c);

/* Returns whether `include` of the body has this name. */
bool responses_includes(const json_t *body, const char *what);

/* Translates the position of an error in the chat body to the one in the original body. chat: the struct
 * responses_chat. */
void responses_name_place(const void *chat, struct err_info *info);

/* Returns the input as an array of items, a new reference; a string becomes a user's message. NULL: out of memory, or
 * another type. */
json_t *responses_items(const json_t *input);

#endif
