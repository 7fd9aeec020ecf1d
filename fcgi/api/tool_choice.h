/* `tool_choice`, `strict` and `parallel_tool_calls`: what they ask of an answer, as a grammar. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_TOOL_CHOICE_H
#define INFCGI_FCGI_API_TOOL_CHOICE_H

#include "fcgi/api/params.h"

/* Does a request, checked by tools_check, ask for something that has to be enforced? *is_forced: the answer is a call and
 * nothing else. */
bool tool_choice_binds(const json_t *root, bool *is_forced);

/* What `parallel_tool_calls` of the request says, or its default: true, but false for a template that knows no tools, whose model
 * repeats the first call to the end of its tokens. llama-server's default is false for every model. */
bool tool_choice_is_parallel(const json_t *root, const struct chat_format *format);

/* Makes p->gen.grammar of it; before p->root goes. The other fields that ask for a grammar have none beside it:
 * ERR_INVALID_VALUE. Schemas that cannot be enforced: as engine_grammar_json_schema; info->where is the place in the
 * request. */
MUST_CHECK enum err tool_choice_grammar(struct params *p, struct engine *e, struct err_info *info);

#endif
