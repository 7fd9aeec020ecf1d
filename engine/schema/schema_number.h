/* Numbers within bounds, and multiples, as expressions over their texts: JSON's numbers without an exponent. All bounds are
 * exact decimals; an expression grows with the digits of its bounds. Threads: as the set's. */
#ifndef INFCGI_SCHEMA_SCHEMA_NUMBER_H
#define INFCGI_SCHEMA_SCHEMA_NUMBER_H

#include "engine/regex/regex.h"
#include "engine/schema/schema_decimal.h"

/* One end of a range; open: the bound itself is outside. */
struct schema_bound {
    bool is_there, is_open;
    struct schema_decimal at; /* SCHEMA_MAX_DIGITS before and after the point, at most */
};
enum { SCHEMA_MAX_DIGITS = 2000 };

/* The same bound for integers: without a fraction. */
struct schema_bound schema_whole_bound(const struct schema_bound *b, bool is_min);

/* Texts of numbers from min to max. is_whole: integers, without a fraction. of: multiples, or NULL for all numbers; it is
 * whole just as is_whole says. What the set fails with, regex_ok says. */
regex_id schema_numbers(struct regex_set *s, const struct schema_bound *min, const struct schema_bound *max,
                        bool is_whole, const struct regex_steps *of);

/* Texts of numbers that are no integers. */
regex_id schema_fractions(struct regex_set *s);

#endif
