/* System messages for templates that reject them where they are. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_MESSAGES_FOLD_H
#define INFCGI_FCGI_API_MESSAGES_FOLD_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* Folds the system messages of checked messages (messages_check): those at the beginning become one, and each later one
 * becomes text of the user. That text joins the user's messages before and after it; without one it is a user's message.
 * no_system: those at the beginning become text of the user, too.
 *   *out   the caller's, shares unchanged messages; NULL: there is nothing to fold
 * ERR_NOMEM. */
MUST_CHECK enum err messages_fold(const json_t *messages, bool no_system, json_t **out);

#endif
