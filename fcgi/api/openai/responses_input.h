/* Requests of OpenAI's Responses API [its reference, "Create a model response"; openresponses.org] as bodies of
 * /v1/chat/completions, so that one path checks and renders both. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_RESPONSES_INPUT_H
#define INFCGI_FCGI_API_RESPONSES_INPUT_H

#include "fcgi/wire/json_in.h"

enum { RESPONSES_MAX_ITEMS = 4096, RESPONSES_ITEM_ID_BYTES = 64 };

/* How the encrypted_content of our reasoning items begins. Behind it is the text: there is nobody to hide it from. */
#define RESPONSES_PLAIN "infcgi-plain:"

/* What a body turns into. responses_chat_fini frees it. */
struct responses_chat {
    json_t *chat; /* model, messages, tools, tool_choice, response_format, sampling */
    json_t
        *places; /* for each of chat's tools its place in the body, as "tools[2].tools[0]"; of custom tools an array of
                     * it and that of their grammar */
    json_t *names; /* of functions that are not plain ones: {"custom": true}, or {"namespace": .., "name": ..} */
};

/* Makes *out of `body`; past: items that came before its input (OPTIONAL, an array).
 *
 * instructions and the system's and developer's messages at the begin become one message, as most templates take one.
 * Thinking, text and calls in a row become one message of the assistant; a call's output comes directly behind the
 * message with the call. A custom tool is a function with one string, `input`, which matches its format where that is a
 * regular expression; tools of a namespace are functions whose names begin with it. Tools of which an agent only says
 * that they could be had (web_search, image_generation, tool_search) are passed over; others that the server would have
 * to run are refused, and so is what is no text.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER with info->where the place in
 * `body`, as input[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err responses_to_chat(const json_t *body, const json_t *past, struct responses_chat *out,
                                      struct err_info *info);
void responses_chat_fini(struct responses_chat *c);

/* Does `include` of the body have this name? */
bool responses_includes(const json_t *body, const char *what);

/* The place of an error in the chat body as one in the body it was made of. chat: the struct responses_chat. */
void responses_name_place(const void *chat, struct err_info *info);

/* The input as an array of items, a new reference: a string is a user's message. NULL: no memory, or of another type. */
json_t *responses_items(const json_t *input);

#endif
