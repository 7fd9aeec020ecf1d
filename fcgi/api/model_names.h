/* Lists of names separated by commas, as --alias and --tags have them. Threads: pure functions. */
#ifndef INFCGI_FCGI_MODEL_NAMES_H
#define INFCGI_FCGI_MODEL_NAMES_H

#include "engine/base/buf.h"

#include <stdbool.h>

enum { MODEL_NAMES_MAX_BYTES = 511 };

/* Is `name` one of the list? Space around names does not count. list OPTIONAL: NULL has none. */
bool model_names_have(const char *list, const char *name);

/* Is `holds` true of one of the names? It is given each, NUL-terminated, until it is; names of more than MODEL_NAMES_MAX_BYTES are
 * left out. list OPTIONAL. */
bool model_names_any(const char *list, bool (*holds)(void *arg, const char *name), void *arg);

/* Appends the name that sorts first, which llama-server takes as the model's id; nothing if there is none. list OPTIONAL. */
void model_names_first(const char *list, struct buf *out);

/* Appends the names as a JSON array, in the order of the list. list OPTIONAL. */
void model_names_write(const char *list, struct buf *out);

#endif
