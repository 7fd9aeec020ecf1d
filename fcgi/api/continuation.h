/* Answers that go on with the last message of a conversation, the assistant's own. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_CONTINUATION_H
#define INFCGI_FCGI_API_CONTINUATION_H

#include "fcgi/api/params.h"
#include "fcgi/wire/call.h"

/* Sets p->continues, and p->add_generation_prompt to suit it, of messages that were checked: where the request says so, or says
 * nothing of how its prompt ends and the operator does not say otherwise. A message without text, which there is nothing of, leaves the
 * messages. ERR_INVALID_VALUE with info->where where it cannot be: both fields true, the last message not the assistant's or one
 * of several, with calls, or with thinking alone; ERR_NOMEM. */
MUST_CHECK enum err continuation_read(struct call *c, struct params *p, struct err_info *info);

#endif
