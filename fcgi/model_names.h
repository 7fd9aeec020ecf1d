/* Lists of names separated by commas, as --alias and --tags have them. Threads: pure functions. */
#ifndef INFCGI_FCGI_MODEL_NAMES_H
#define INFCGI_FCGI_MODEL_NAMES_H

#include "engine/base/buf.h"

#include <stdbool.h>

/* Is `name` one of the list? Space around names does not count. list OPTIONAL: NULL has none. */
bool model_names_have(const char *list, const char *name);

/* Appends the name that sorts first, which llama-server takes as the model's id; nothing if there is none. list OPTIONAL. */
void model_names_first(const char *list, struct buf *out);

/* Appends the names as a JSON array, in the order of the list. list OPTIONAL. */
void model_names_write(const char *list, struct buf *out);

#endif
