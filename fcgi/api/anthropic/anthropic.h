/* Anthropic's API: its dialect and its endpoints. Threads: handlers run in the request's thread. */
#ifndef INFCGI_ANTHROPIC_H
#define INFCGI_ANTHROPIC_H

#include "fcgi/wire/call.h"

extern const struct dialect dialect_anthropic;

void api_anthropic_messages(struct call *c);
void api_anthropic_count(struct call *c);
void api_anthropic_models(struct call *c);
void api_anthropic_model(struct call *c);

#endif
