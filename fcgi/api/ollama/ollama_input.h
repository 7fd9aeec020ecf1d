/* Reads bodies of Ollama's API [github.com/ollama/ollama, docs/api.md]: messages and tools in the form that templates
 * read, and settings. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_OLLAMA_INPUT_H
#define INFCGI_FCGI_API_OLLAMA_INPUT_H

#include "fcgi/api/params.h"

/* Fills *p, initialised, from c->json, a body of /api/chat or, with is_generate, of /api/generate. p->messages NULL and
 * ERR_OK: the request needs no answer; clients send it to load the model. Errors as params_read. */
MUST_CHECK enum err ollama_read(struct call *c, bool is_generate, struct params *p, struct err_info *info);

/* Returns the length of the model's name without ":latest", which clients append. */
size_t ollama_model_len(const char *model);

#endif
