/* Chat templates: the templates that model files carry, run by engine/jinja.
 *
 * Rendering follows Hugging Face transformers' settings of jinja2 (trim_blocks and lstrip_blocks on, final newline
 * dropped, sandboxed) byte for byte. Templates are untrusted data: parser and evaluator use explicit stacks, and
 * steps, depth, memory and output are limited. No host object, file or network can be reached.
 *
 * Strings of the context are marked as user text, all but bos_token and eos_token; the marks follow the bytes through
 * every operation, so that the caller can keep special tokens from being parsed there.
 *
 * Threads: a template is read-only after chat_template_new and may be rendered by many threads at once. */
#ifndef INFCGI_CHAT_CHAT_TEMPLATE_H
#define INFCGI_CHAT_CHAT_TEMPLATE_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/span.h"
#include "engine/jinja/jinja.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template;

/* Parses source[0..n). ERR_TEMPLATE with "line:column: what was expected, what was found" in info, ERR_NOMEM. */
MUST_CHECK enum err chat_template_new(const char *source, size_t n, struct chat_template **out, struct err_info *info);
void chat_template_free(struct chat_template **t);

/* The source as it was parsed, *n bytes, no NUL behind them; borrowed. */
const char *chat_template_source(const struct chat_template *t, size_t *n);

/* Zero-initialise; free with chat_output_fini. */
struct chat_output {
    char *text; /* len bytes, then a NUL */
    size_t len;
    struct span *user; /* sorted, not overlapping, not empty */
    size_t n_user;
};
void chat_output_fini(struct chat_output *o);

/* Does the rendered text begin with bos, which a template and no user wrote? Then the tokenizer adds none. */
bool chat_output_has_bos(const struct chat_output *o, const char *bos);

/* Renders with the variables of `context`, a JSON object, borrowed ("messages", "add_generation_prompt", "bos_token",
 * "tools", ...). "bos_token" and "eos_token" must be the caller's, never a client's. strftime_now uses `now`, seconds
 * since 1970 in UTC.
 * ERR_TEMPLATE: the template failed (raise_exception's text, undefined attribute, a limit; info says where), ERR_NOMEM.
 * On failure *out is empty. */
MUST_CHECK enum err chat_template_render(const struct chat_template *t, const json_t *context, int64_t now,
                                         struct chat_output *out, struct err_info *info);

/* Did the template itself raise this ERR_TEMPLATE (raise_exception)? Then info->offset is where, in bytes. */
static inline bool chat_template_raised(const struct err_info *info) { return info->offset != ERR_NO_OFFSET; }

/* Selects the error to report of several attempts to render a conversation: the first one that the template raised
 * itself (raise_exception), else the first. Called with each error in turn; *kept begins as zeros. */
void chat_template_keep_error(struct err_info *kept, const struct err_info *later);

#endif
