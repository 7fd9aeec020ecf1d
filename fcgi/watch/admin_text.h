/* What an admin command says, as text: made of its JSON, so that both say the same.
 *
 * An object is a line a member, names aligned, `_` shown as a space; an object in it is indented below its name; an array of objects is a
 * table, any other a line a value. Members whose name ends with _bytes are shown in KiB, MiB or GiB. Threads: safe anywhere. */
#ifndef INFCGI_FCGI_ADMIN_TEXT_H
#define INFCGI_FCGI_ADMIN_TEXT_H

#include "engine/base/buf.h"

#include <jansson.h>

/* Appends the text of `value`. Values deeper than an object in an object are written as JSON. */
void admin_text(const json_t *value, struct buf *out);

#endif
