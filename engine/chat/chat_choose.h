/* Chooses a model's chat template: the operator's, the model file's, or the only format of its family. Never guesses.
 * Threads: safe from any. */
#ifndef INFCGI_CHAT_CHAT_CHOOSE_H
#define INFCGI_CHAT_CHAT_CHOOSE_H

#include "engine/chat/chat_template.h"

/* Loads the operator's choice: a format's name (chat_named.h), else the path of a Jinja file. ERR_CONFIG of
 * "chat-template", ERR_NOMEM. On failure *out is NULL; else the caller frees it with chat_template_free. */
MUST_CHECK enum err chat_choose_named(const char *name_or_path, struct chat_template **out, struct err_info *info);

/* Loads source[0..n) of the model file or, if source is NULL, the format of its family (general.architecture). *format
 * is then that format's constant name, else NULL. ERR_TEMPLATE, ERR_NO_TEMPLATE, ERR_NOMEM; *out as for
 * chat_choose_named. */
MUST_CHECK enum err chat_choose_own(const char *source, size_t n, const char *architecture, struct chat_template **out,
                                    const char **format, struct err_info *info);

#endif
