/* Numbers within bounds, and multiples, as expressions over their texts: JSON numbers without an exponent. All bounds
 * are exact decimals. An expression's size grows with the digits of its bounds. Threads: as the set's. */
#ifndef INFCGI_SCHEMA_SCHEMA_NUMBER_H
#define INFCGI_SCHEMA_SCHEMA_NUMBER_H

#include "engine/regex/regex.h"
#include "engine/schema/schema_decimal.h"

/* One end of a range; open: excludes the bound itself. */
struct schema_bound {
    bool is_there, is_open;
    struct schema_decimal at; /* at most SCHEMA_MAX_DIGITS before and after the point */
};
enum { SCHEMA_MAX_DIGITS = 2000 };

/* Returns the same bound for integers: without a fraction. */
struct schema_bound schema_whole_bound(const struct schema_bound *b, bool is_min);

/* Returns the texts of numbers from min to max. is_whole: integers without a fraction. of: multiples, NULL: all
 * numbers; its is_whole must equal is_whole. regex_ok reports the set's errors. */
regex_id schema_numbers(struct regex_set *s, const struct schema_bound *min, const struct schema_bound *max,
                        bool is_whole, const struct regex_steps *of);

/* Returns the texts of numbers that are not integers. */
regex_id schema_fractions(struct regex_set *s);

#endif
