/* Chat templates by name, for model files that bring none: the formats people know, one row each, as short Jinja texts
 * of our own that the same interpreter renders. They hold what the format needs and no more: roles other than system,
 * user and assistant, and tool calls, are refused.
 *
 * Threads: constant data; all functions are safe anywhere. */
#ifndef INFCGI_CHAT_CHAT_NAMED_H
#define INFCGI_CHAT_CHAT_NAMED_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/chat/chat_template.h"

struct chat_named;

/* Row i, NULL past the last; sorted by name. */
const struct chat_named *chat_named_at(int i);
const char *chat_named_name(const struct chat_named *row); /* "llama3" */
const char *chat_named_name_at(int i);

/* The row of that name, NULL when there is none. */
const struct chat_named *chat_named_find(const char *name);

/* The row that the models of a family use (general.architecture: "gemma3"), NULL unless all of the family's chat models
 * share one format: a wrong guess answers badly without an error. */
const struct chat_named *chat_named_of_family(const char *architecture);

/* Appends the row's Jinja text. ERR_NOMEM. */
MUST_CHECK enum err chat_named_source(const struct chat_named *row, struct buf *out);

/* Parses it; free with chat_template_free. ERR_NOMEM. */
MUST_CHECK enum err chat_named_new(const struct chat_named *row, struct chat_template **out, struct err_info *info);

#endif
