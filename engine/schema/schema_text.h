/* Expressions for the string formats of a schema. Threads: as the set's. */
#ifndef INFCGI_SCHEMA_SCHEMA_TEXT_H
#define INFCGI_SCHEMA_SCHEMA_TEXT_H

#include "engine/regex/regex.h"

enum schema_format {
    SCHEMA_FORMAT_UNKNOWN, /* does not restrict values [JSON Schema 2020-12 Validation, section 7] */
    SCHEMA_FORMAT_KNOWN,
    SCHEMA_FORMAT_REFUSED, /* a restriction that infcgi does not enforce */
};

/* *out: the format's strings, of those that RFCs allow most. regex_ok reports the set's errors. */
enum schema_format schema_format_of(struct regex_set *s, const char *name, regex_id *out);

#endif
