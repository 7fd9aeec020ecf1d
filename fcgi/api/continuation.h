/* Answers that continue the last message of a conversation, if it is the assistant's. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_CONTINUATION_H
#define INFCGI_FCGI_API_CONTINUATION_H

#include "fcgi/api/params.h"
#include "fcgi/wire/call.h"

/* Sets p->continues, and p->add_generation_prompt accordingly, from checked messages: if the request asks for it, or if
 * the request does not say how its prompt ends and the operator permits it. A last message without text is removed from
 * the messages. ERR_INVALID_VALUE with info->where if it is impossible: both fields are true, or the last message is
 * not the assistant's, is one of several, has calls or has only thinking; ERR_NOMEM. */
MUST_CHECK enum err continuation_read(struct call *c, struct params *p, struct err_info *info);

#endif
