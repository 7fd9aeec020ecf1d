/* From bodies of Ollama's API to bodies of /v1/chat/completions [github.com/ollama/ollama, docs/api.md]. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_OLLAMA_INPUT_H
#define INFCGI_FCGI_API_OLLAMA_INPUT_H

#include "fcgi/wire/json_in.h"

/* Makes *chat, the caller's, of a body of /api/chat, or, with is_generate, of /api/generate. NULL and ERR_OK: there is
 * nothing to answer, as clients that want the model loaded send it. Errors as json_in_fields. */
MUST_CHECK enum err ollama_to_chat(const json_t *body, bool is_generate, bool strict, json_t **chat,
                                   struct err_info *info);

/* The model's name without ":latest", which clients add: its length. */
size_t ollama_model_len(const char *model);

#endif
