/* `tool_choice`, `strict` and `parallel_tool_calls`: what they ask of an answer, as a grammar. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_TOOL_CHOICE_H
#define INFCGI_FCGI_API_TOOL_CHOICE_H

#include "fcgi/api/params.h"

/* Does a request, checked by tools_check, ask for something that has to be enforced? *is_forced: the answer is a call and
 * nothing else. */
bool tool_choice_binds(const json_t *root, bool *is_forced);

/* Makes p->gen.grammar of it; before p->root goes. The other fields that ask for a grammar have none beside it:
 * ERR_INVALID_VALUE. Schemas that cannot be enforced: as engine_grammar_json_schema; info->where is the place in the
 * request. */
MUST_CHECK enum err tool_choice_grammar(struct params *p, struct engine *e, struct err_info *info);

#endif
