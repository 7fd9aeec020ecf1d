/* Formats the JSON of an admin command as text, so that both forms have the same content.
 *
 * An object is one line per member, with names aligned and `_` shown as a space. A nested object is indented below its
 * name. An array of objects is a table; any other array is one line per value. Members whose name ends with _bytes are
 * shown in KiB, MiB or GiB. Threads: safe anywhere. */
#ifndef INFCGI_FCGI_ADMIN_TEXT_H
#define INFCGI_FCGI_ADMIN_TEXT_H

#include "engine/base/buf.h"

#include <jansson.h>

/* Appends the text of `value`. Values nested deeper than an object in an object are written as JSON. */
void admin_text(const json_t *value, struct buf *out);

#endif
