/* Calls of tools as a model writes them, read as they come: names, and arguments as pieces of a JSON object;
 * chat_format.h has the forms.
 *
 * What is read is kept back until there is a call for certain: its name is complete and one of the tools', and its
 * arguments have begun. From there on parts are given as they come, each of which goes on with what is JSON so far. Calls
 * of other names are given once the body has ended and all of it was calls. What is given does not depend on how the body
 * was cut.
 *
 * Ownership: chat_call_new borrows format and tools until chat_call_free. Errors: no memory sticks, see chat_call_ok.
 * Threads: one reader belongs to one thread at a time. Source: the models' chat templates. */
#ifndef INFCGI_ENGINE_CHAT_CALL_H
#define INFCGI_ENGINE_CHAT_CALL_H

#include "engine/base/buf.h"
#include "engine/chat/chat_parts.h"

struct chat_call;

/* tools OPTIONAL: whose names are calls, and which values without quotes are strings; NULL: any name is. */
MUST_CHECK enum err chat_call_new(const struct chat_format *format, const json_t *tools, struct chat_call **out);
void chat_call_free(struct chat_call **c);

/* A body begins, what stands between the marks of the format; front[0..n): what stood before it, for chat_call_rest. */
void chat_call_begin(struct chat_call *c, const char *front, size_t n);

/* Takes the next bytes of the body; parts go to the sink, with i_call counted from 0 in each body. False: what comes now
 * is no call, and no more of the body may be fed. A call that was given in part has got its CHAT_CALL_CUT. */
bool chat_call_feed(struct chat_call *c, const char *text, size_t n, chat_part_sink *sink, void *arg);

/* The body has ended, unless it was broken before. False: it was no calls, or the last of them is cut off. */
bool chat_call_finish(struct chat_call *c, chat_part_sink *sink, void *arg);

/* Were parts of this body given? */
bool chat_call_is_told(const struct chat_call *c);

/* What of the front and the body no part has, borrowed until the next call: all of it where none was given; nothing where
 * the body ended within a call. */
const char *chat_call_rest(const struct chat_call *c, size_t *n);

MUST_CHECK enum err chat_call_ok(const struct chat_call *c);

#endif
