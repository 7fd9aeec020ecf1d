/* What strings of a schema's formats look like. Threads: as the set's. */
#ifndef INFCGI_SCHEMA_SCHEMA_TEXT_H
#define INFCGI_SCHEMA_SCHEMA_TEXT_H

#include "engine/regex/regex.h"

enum schema_format {
    SCHEMA_FORMAT_UNKNOWN, /* says nothing of values [JSON Schema 2020-12 Validation, section 7] */
    SCHEMA_FORMAT_KNOWN,
    SCHEMA_FORMAT_REFUSED, /* says something that is not enforced here */
};

/* *out: strings of the format, of those that RFCs allow most. What the set fails with, regex_ok says. */
enum schema_format schema_format_of(struct regex_set *s, const char *name, regex_id *out);

#endif
