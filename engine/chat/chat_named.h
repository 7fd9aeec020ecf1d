/* Chat templates by name, for model files without one: common formats, one row each, as short Jinja texts that the same
 * interpreter renders. They contain only what the format needs and reject tool calls and roles other than system, user
 * and assistant. Threads: constant data; all functions are safe from any. */
#ifndef INFCGI_CHAT_CHAT_NAMED_H
#define INFCGI_CHAT_CHAT_NAMED_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/chat/chat_template.h"

struct chat_named;

/* Returns row i, NULL after the last; sorted by name. */
const struct chat_named *chat_named_at(int i);
const char *chat_named_name(const struct chat_named *row); /* "llama3" */
const char *chat_named_name_at(int i);

/* Returns the row of that name, or NULL. */
const struct chat_named *chat_named_find(const char *name);

/* Returns the row for a family's models (general.architecture: "gemma3"). NULL unless all chat models of the family
 * share one format, because a wrong format gives bad answers without an error. */
const struct chat_named *chat_named_of_family(const char *architecture);

/* Appends the row's Jinja text. ERR_NOMEM. */
MUST_CHECK enum err chat_named_source(const struct chat_named *row, struct buf *out);

/* Parses the row's Jinja text; the caller frees it with chat_template_free. ERR_NOMEM. */
MUST_CHECK enum err chat_named_new(const struct chat_named *row, struct chat_template **out, struct err_info *info);

#endif
