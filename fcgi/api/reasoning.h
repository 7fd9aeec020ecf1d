/* What requests and prompts say of thinking: how much, whether at all, and whether it has begun. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_REASONING_H
#define INFCGI_FCGI_API_REASONING_H

#include "fcgi/api/params.h"
#include "fcgi/wire/call.h"

/* reasoning_effort is shown to the template; "none" also as the switch that Qwen's and GLM's templates have. What
 * chat_template_kwargs says, which is in `context`, counts more. ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_NOMEM. */
MUST_CHECK enum err reasoning_add_effort(const json_t *root, json_t *context, struct err_info *info);

/* The efforts that there are: a names_fn. */
const char *reasoning_effort_name(int i);

/* Shows the template the operator's --chat-template-kwargs, --reasoning-effort and --reasoning, as far as `context`, in which what
 * the request says is, has them not; the first counts most. ERR_NOMEM. */
MUST_CHECK enum err reasoning_add_defaults(const struct call *c, json_t *context, struct err_info *info);

/* Is the text a JSON object, as chat_template_kwargs? Its members may be any JSON. `what` names it in the message. ERR_CONFIG. */
enum err reasoning_check_kwargs(const char *text, const char *what, struct err_info *info);

/* Has the prompt, ids[n], begun the thinking, or ended it, or may the answer begin with it? Sets p->thinking and what p->split needs
 * of that. ERR_NOMEM. */
MUST_CHECK enum err reasoning_look(const struct call *c, const json_t *context, const int32_t *ids, size_t n,
                                   struct params *p);

/* The budget of tokens of thinking, behind reasoning_look: the request's, else that of chat_template_kwargs, else the operator's.
 * ERR_INVALID_VALUE, engine_tokenize's. */
MUST_CHECK enum err reasoning_set_budget(struct call *c, struct params *p, struct err_info *info);

#endif
