/* Lists of names separated by commas, as in --alias and --tags. Threads: pure functions. */
#ifndef INFCGI_FCGI_MODEL_NAMES_H
#define INFCGI_FCGI_MODEL_NAMES_H

#include "engine/base/buf.h"

#include <stdbool.h>

enum { MODEL_NAMES_MAX_BYTES = 511 };

/* Returns whether the list contains `name`. Space around names is ignored. list OPTIONAL: NULL is empty. */
bool model_names_have(const char *list, const char *name);

/* Returns whether `holds` is true for a name of the list. Calls it with each NUL-terminated name until it is; skips
 * names of more than MODEL_NAMES_MAX_BYTES. list OPTIONAL. */
bool model_names_any(const char *list, bool (*holds)(void *arg, const char *name), void *arg);

/* Appends the name that sorts first, which llama-server uses as the model's id, or nothing for an empty list. list
 * OPTIONAL. */
void model_names_first(const char *list, struct buf *out);

/* Appends the names as a JSON array, in list order. list OPTIONAL. */
void model_names_write(const char *list, struct buf *out);

#endif
