/* The keywords of JSON Schema, drafts 4 to 2020-12, and infcgi's own: the form of their values, and whether they
 * restrict values. Threads: constant. */
#ifndef INFCGI_SCHEMA_SCHEMA_KEYWORD_H
#define INFCGI_SCHEMA_SCHEMA_KEYWORD_H

#include <stdbool.h>

/* The form of a keyword's value. */
enum schema_keyword_form {
    SCHEMA_KEYWORD_ANY,     /* not checked here */
    SCHEMA_KEYWORD_TYPES,   /* the name of a type, or an array of names */
    SCHEMA_KEYWORD_SCHEMA,  /* a schema, true or false */
    SCHEMA_KEYWORD_SCHEMAS, /* an array of 1 or more */
    SCHEMA_KEYWORD_ITEMS,   /* a schema, or an array of schemas (to draft 2019-09) */
    SCHEMA_KEYWORD_NAMED,   /* an object of schemas */
    SCHEMA_KEYWORD_DEPENDS, /* an object of schemas and arrays of strings (to draft 7) */
    SCHEMA_KEYWORD_STRING,
    SCHEMA_KEYWORD_STRINGS,
    SCHEMA_KEYWORD_NAMED_STRINGS, /* an object of arrays of strings */
    SCHEMA_KEYWORD_VALUES,        /* an array */
    SCHEMA_KEYWORD_COUNT,         /* a whole number, 0 or more */
    SCHEMA_KEYWORD_NUMBER,
    SCHEMA_KEYWORD_LIMIT, /* a number, or in draft 4 a boolean */
    SCHEMA_KEYWORD_STEP,  /* a number above 0 */
    SCHEMA_KEYWORD_FLAG
};

struct schema_keyword {
    const char *name;
    enum schema_keyword_form form;
    bool restricts; /* values. Other keywords annotate or name schemas; then and else belong to if. */
};

/* Returns the keyword of this name, or NULL if it has no meaning here. */
const struct schema_keyword *schema_keyword_find(const char *name);

#endif
