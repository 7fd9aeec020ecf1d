/* The messages of a chat request. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_MESSAGES_H
#define INFCGI_FCGI_API_MESSAGES_H

#include "fcgi/wire/json_in.h"

/* Checks messages (OPTIONAL: an error) and normalizes them for templates: the role developer becomes system, text parts of content
 * are joined, and absent content becomes null. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE with
 * info->where the position, as messages[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err messages_check(json_t *messages, struct err_info *info);

#endif
