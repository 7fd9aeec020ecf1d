/* `tool_choice`, `strict` and `parallel_tool_calls`: their constraints on an answer, as a grammar. Threads: a call's
 * own. */
#ifndef INFCGI_FCGI_API_TOOL_CHOICE_H
#define INFCGI_FCGI_API_TOOL_CHOICE_H

#include "fcgi/api/params.h"

/* Returns whether the tools, checked by tools_check, require enforcement. *is_forced: the answer must be a call and
 * nothing else. */
bool tool_choice_binds(const struct tools *t, bool *is_forced);

/* Returns `parallel_tool_calls` of the request or its default: true, but false for a template without tool support,
 * because such models repeat the first call until the tokens end. llama-server's default is false for every model. */
bool tool_choice_is_parallel(const struct tools *t, const struct chat_format *format);

/* Builds p->gen.grammar from them, before the call's JSON is freed. ERR_INVALID_VALUE: the request also has a
 * constraint. Schemas that cannot be enforced fail as engine_grammar_json_schema; info->where is the position in the
 * request. */
MUST_CHECK enum err tool_choice_grammar(struct params *p, struct engine *e, struct err_info *info);

#endif
