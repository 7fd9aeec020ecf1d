/* What `infcgi serve` does between loading and being ready. */
#ifndef INFCGI_CMD_SERVE_WARM_H
#define INFCGI_CMD_SERVE_WARM_H

#include "engine/chat/chat_template.h"
#include "engine/engine.h"

/* Renders, tokenises and computes a little, before any request; t: OPTIONAL. Nothing of it is to be seen afterwards. */
void serve_warm(struct engine *e, const struct chat_template *t);

#endif
