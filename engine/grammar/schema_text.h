/* What scalars of a schema look like: the formats of strings, and numbers within bounds. Threads: as the set's. */
#ifndef INFCGI_GRAMMAR_SCHEMA_TEXT_H
#define INFCGI_GRAMMAR_SCHEMA_TEXT_H

#include "engine/grammar/regex.h"

enum schema_format {
    SCHEMA_FORMAT_UNKNOWN, /* says nothing of values [JSON Schema 2020-12 Validation, section 7] */
    SCHEMA_FORMAT_KNOWN,
    SCHEMA_FORMAT_REFUSED, /* says something that is not enforced here */
};

/* *out: strings of the format, of those that RFCs allow most. What the set fails with, regex_ok says. */
enum schema_format schema_format_of(struct regex_set *s, const char *name, regex_id *out);

/* A bound of numbers. */
struct schema_bound {
    bool is_there, is_open; /* open: the bound itself is not allowed */
    int64_t value;          /* at most SCHEMA_MAX_BOUND from 0 */
};
#define SCHEMA_MAX_BOUND 1000000000000000ll

/* value / 10^places. */
struct schema_decimal {
    int64_t value;
    int places; /* 0 .. SCHEMA_MAX_PLACES */
};
enum { SCHEMA_MAX_PLACES = 12, SCHEMA_MAX_MULTIPLE = 1000 };

/* Numbers as JSON writes them, without an exponent, from `at` on, or up to it; open: without it. */
regex_id schema_numbers_from(struct regex_set *s, struct schema_decimal at, bool is_min, bool is_open);

/* .. that are no integers. */
regex_id schema_fractions(struct regex_set *s);

/* .. that are multiples of m, whose value is 1 .. SCHEMA_MAX_MULTIPLE. */
regex_id schema_multiples(struct regex_set *s, struct schema_decimal m);

/* Numbers as JSON writes them, without an exponent, from min to max; with is_whole without a fraction. */
regex_id schema_numbers(struct regex_set *s, struct schema_bound min, struct schema_bound max, bool is_whole);

#endif
