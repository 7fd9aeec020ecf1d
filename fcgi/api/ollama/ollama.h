/* Ollama's API: its dialect and its endpoints. Threads: handlers run in the request's thread. */
#ifndef INFCGI_OLLAMA_H
#define INFCGI_OLLAMA_H

#include "fcgi/wire/call.h"

extern const struct dialect dialect_ollama;

void api_ollama_chat(struct call *c);
void api_ollama_generate(struct call *c);
void api_ollama_embed(struct call *c);
void api_ollama_embeddings(struct call *c);
void api_ollama_show(struct call *c);
void api_ollama_tags(struct call *c);
void api_ollama_ps(struct call *c);
void api_ollama_version(struct call *c);

#endif
