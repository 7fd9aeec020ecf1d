/* Renders a conversation through the model's chat template, in the form that the template accepts. Threads: the
 * request's. */
#ifndef INFCGI_FCGI_API_CHAT_RENDER_H
#define INFCGI_FCGI_API_CHAT_RENDER_H

#include "fcgi/api/params.h"

/* Renders `context` (engine_chat_context; messages of messages_check, tools of tools_check) and tokenizes the text to
 * p->prompt. Forms are tried in this order, each only if the template fails on those before it:
 *   - arguments of earlier calls as objects, then as the strings they came as
 *   - tools with the members that they lack (tools_fill)
 *   - content of messages with calls at the end of their thinking (thoughts_join), if the template raised an error itself
 *   - system messages folded (messages_fold), if the template raised an error itself
 * If the template does not support tools, messages describe those of p that are shown, and earlier calls become text if
 * the template fails on them. The context keeps the last form. Fails as engine_chat; if every form fails, with the
 * error that chat_template_keep_error selects. */
MUST_CHECK enum err chat_render(struct call *c, json_t *context, struct params *p, struct err_info *info);

#endif
