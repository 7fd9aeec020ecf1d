/* Which chat template a model is used with: the operator's, the model file's, or the one format of its family. Never a
 * guess.
 *
 * Threads: safe anywhere. */
#ifndef INFCGI_CHAT_CHAT_CHOOSE_H
#define INFCGI_CHAT_CHAT_CHOOSE_H

#include "engine/chat/chat_template.h"

/* The operator's word: a format's name (chat_named.h), else the path of a Jinja file. ERR_CONFIG of "chat-template",
 * ERR_NOMEM. On failure *out is NULL; else the caller's, to chat_template_free. */
MUST_CHECK enum err chat_choose_named(const char *name_or_path, struct chat_template **out, struct err_info *info);

/* Without one: source[0..n) of the model file, else (NULL) the format of its family (general.architecture); then
 * *format is the format's name, which is constant, else NULL. ERR_TEMPLATE, ERR_NO_TEMPLATE, ERR_NOMEM; *out as above. */
MUST_CHECK enum err chat_choose_own(const char *source, size_t n, const char *architecture, struct chat_template **out,
                                    const char **format, struct err_info *info);

#endif
