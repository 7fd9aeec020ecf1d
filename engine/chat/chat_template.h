/* Runs the chat templates of model files with engine/jinja.
 *
 * Rendering matches Hugging Face transformers' settings of jinja2 (trim_blocks and lstrip_blocks on, final newline
 * dropped, sandboxed) byte for byte. Templates are untrusted data: parser and evaluator use explicit stacks, and steps,
 * depth, memory and output are limited. Templates cannot reach host objects, files or the network.
 *
 * Strings of the context are marked as user text, except bos_token and eos_token. The marks follow the bytes through
 * every operation, so that the caller can keep special tokens from being parsed there.
 *
 * Threads: a template is read-only after chat_template_new; many threads can render it simultaneously. */
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

/* Returns the parsed source, *n bytes without a NUL; borrowed. */
const char *chat_template_source(const struct chat_template *t, size_t *n);

/* Zero-initialise; free with chat_output_fini. */
struct chat_output {
    char *text; /* len bytes, then a NUL */
    size_t len;
    struct span *user; /* sorted, not overlapping, not empty */
    size_t n_user;
};
void chat_output_fini(struct chat_output *o);

/* Returns whether the rendered text begins with a bos that the template, not a user, wrote. Then the tokenizer adds
 * none. */
bool chat_output_has_bos(const struct chat_output *o, const char *bos);

/* Renders with the variables of `context`, a JSON object, borrowed ("messages", "add_generation_prompt", "bos_token",
 * "tools", ...). "bos_token" and "eos_token" must be the caller's, never a client's. strftime_now uses `now`, seconds
 * since 1970 in UTC. ERR_TEMPLATE: the template failed (raise_exception's text, undefined attribute, a limit; info has
 * the position), ERR_NOMEM. On failure *out is empty. */
MUST_CHECK enum err chat_template_render(const struct chat_template *t, const json_t *context, int64_t now,
                                         struct chat_output *out, struct err_info *info);

/* Returns whether the template itself raised this ERR_TEMPLATE (raise_exception). info->offset is then the position in
 * bytes. */
static inline bool chat_template_raised(const struct err_info *info) { return info->offset != ERR_NO_OFFSET; }

/* Selects the error to report of several attempts to render a conversation: the first one that the template raised
 * itself (raise_exception), else the first. Call it with each error in order; *kept begins as zeros. */
void chat_template_keep_error(struct err_info *kept, const struct err_info *later);

#endif
