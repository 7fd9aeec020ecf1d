/* Thinking in requests and prompts: how much, whether it is enabled, and whether it has begun. Threads: a call's
 * own. */
#ifndef INFCGI_FCGI_API_REASONING_H
#define INFCGI_FCGI_API_REASONING_H

#include "fcgi/api/params.h"
#include "fcgi/wire/call.h"

/* Sets *effort to the name of an effort, v, at `where` in the body. NULL: unchanged. ERR_INVALID_TYPE,
 * ERR_INVALID_VALUE. */
MUST_CHECK enum err reasoning_read_effort(const json_t *v, const char *where, const char **effort,
                                          struct err_info *info);

/* Passes the effort (OPTIONAL) to the template; passes "none" also as the switch that Qwen's and GLM's templates have.
 * Values of chat_template_kwargs, which are in `context`, override it. ERR_NOMEM. */
MUST_CHECK enum err reasoning_add_effort(const char *effort, json_t *context);

/* Returns the i-th effort: a names_fn. */
const char *reasoning_effort_name(int i);

/* Adds the operator's --chat-template-kwargs, --reasoning-effort and --reasoning to `context`, unless it has the
 * request's values. Earlier ones in this list override later ones. ERR_NOMEM. */
MUST_CHECK enum err reasoning_add_defaults(const struct call *c, json_t *context, struct err_info *info);

/* Checks that the text is a JSON object for chat_template_kwargs, with members of any type. `what` names it in the
 * message. ERR_CONFIG. */
enum err reasoning_check_kwargs(const char *text, const char *what, struct err_info *info);

/* Determines whether p->prompt has begun or ended thinking, or whether the answer can begin with it. Sets
 * p->thinking and the related fields of p->split. ERR_NOMEM. */
MUST_CHECK enum err reasoning_look(const struct call *c, const json_t *context, struct params *p);

/* Sets the budget of thinking tokens, after reasoning_look: the request's, else that of chat_template_kwargs, else the
 * operator's. ERR_INVALID_VALUE, and errors of engine_tokenize. */
MUST_CHECK enum err reasoning_set_budget(struct call *c, struct params *p, struct err_info *info);

#endif
