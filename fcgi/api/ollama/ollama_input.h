/* Converts bodies of Ollama's API to bodies of /v1/chat/completions [github.com/ollama/ollama, docs/api.md]. Threads:
 * pure functions. */
#ifndef INFCGI_FCGI_API_OLLAMA_INPUT_H
#define INFCGI_FCGI_API_OLLAMA_INPUT_H

#include "fcgi/wire/json_in.h"

/* Builds *chat, owned by the caller, from a body of /api/chat or, with is_generate, of /api/generate. NULL and ERR_OK:
 * the request needs no answer; clients send it to load the model. Errors as json_in_fields. */
MUST_CHECK enum err ollama_to_chat(const json_t *body, bool is_generate, bool strict, json_t **chat,
                                   struct err_info *info);

/* Returns the length of the model's name without ":latest", which clients append. */
size_t ollama_model_len(const char *model);

#endif
