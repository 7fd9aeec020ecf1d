/* Reads a model's tool calls as they arrive: names, and arguments as pieces of a JSON object. chat_format.h has the
 * forms.
 *
 * The reader holds text back until a call is certain: its name is complete and one of the tools', and its arguments
 * have begun. From then on it emits parts immediately; each continues the JSON so far. Calls with other names are
 * emitted when the body has ended and all of it was calls. The output does not depend on how the body was cut.
 *
 * Ownership: chat_call_new borrows format and tools until chat_call_free. Errors: lack of memory sticks, see
 * chat_call_ok. Threads: one reader belongs to one thread at a time. Source: the models' chat templates. */
#ifndef INFCGI_ENGINE_CHAT_CALL_H
#define INFCGI_ENGINE_CHAT_CALL_H

#include "engine/base/buf.h"
#include "engine/chat/chat_parts.h"

/* Returns the bytes at the end of s[0..n) that can begin the mark. */
size_t chat_partial_mark(const char *s, size_t n, const char *mark);

struct chat_call;

/* Makes a reader. tools OPTIONAL: the names that are calls, and which values without quotes are strings; NULL: any name
 * is a call. */
MUST_CHECK enum err chat_call_new(const struct chat_format *format, const json_t *tools, struct chat_call **out);
void chat_call_free(struct chat_call **c);

/* Begins a body, the text between the marks of the format; front[0..n): the text before it, for chat_call_rest. */
void chat_call_begin(struct chat_call *c, const char *front, size_t n);

/* Consumes the next bytes of the body; parts go to the sink, with i_call counted from 0 in each body. Returns false if
 * this is not a call; the caller must feed no more of the body. A call emitted in part has then got its
 * CHAT_CALL_CUT. */
bool chat_call_feed(struct chat_call *c, const char *text, size_t n, chat_part_sink *sink, void *arg);

/* Ends the body, unless it has failed. Returns false if it was not calls, or the last call is incomplete. */
bool chat_call_finish(struct chat_call *c, chat_part_sink *sink, void *arg);

/* Returns whether parts of this body were emitted. */
bool chat_call_has_emitted(const struct chat_call *c);

/* Returns the text of the front and the body that no part contains, borrowed until the next call: all of it if none was
 * emitted, nothing if the body ended within a call. */
const char *chat_call_rest(const struct chat_call *c, size_t *n);

MUST_CHECK enum err chat_call_ok(const struct chat_call *c);

#endif
