/* The few properties of code points that Python's str methods ask for: case, letters, digits, white space, printable.
 * Tables are generated from Python's Unicode database by jinja_unicode_gen.py. Threads: pure functions. */
#ifndef INFCGI_JINJA_JINJA_UNICODE_H
#define INFCGI_JINJA_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ju_range {
    uint32_t first, last;
};
/* Every stride-th code point of first..last maps to itself + delta. */
struct ju_case {
    uint32_t first, last, stride;
    int32_t delta;
};
/* One code point that maps to two or three; unused ones are 0. */
struct ju_special {
    uint32_t cp, to[3];
};

extern const struct ju_range ju_alpha_ranges[], ju_numeric_ranges[], ju_digit_ranges[], ju_printable_ranges[],
    ju_uppercase_ranges[], ju_lowercase_ranges[], ju_titlecase_ranges[];
extern const size_t n_ju_alpha_ranges, n_ju_numeric_ranges, n_ju_digit_ranges, n_ju_printable_ranges,
    n_ju_uppercase_ranges, n_ju_lowercase_ranges, n_ju_titlecase_ranges;
extern const struct ju_case ju_lower_rows[], ju_upper_rows[];
extern const size_t n_ju_lower_rows, n_ju_upper_rows;
extern const struct ju_special ju_upper_special[], ju_title_special[];
extern const size_t n_ju_upper_special, n_ju_title_special;

bool ju_space(uint32_t cp); /* str.isspace and what str.strip() takes away */
bool ju_alpha(uint32_t cp);
bool ju_alnum(uint32_t cp);
bool ju_numeric(uint32_t cp);
bool ju_digit(uint32_t cp);
bool ju_printable(uint32_t cp); /* repr() shows it as it is */
bool ju_is_upper(uint32_t cp);
bool ju_is_lower(uint32_t cp);
bool ju_is_title(uint32_t cp); /* a digraph whose first letter alone is upper case; neither of the above */

enum ju_to { JU_LOWER, JU_UPPER, JU_TITLE };

/* Writes the mapping of cp to out[3]; returns how many code points it has, 1 to 3. */
size_t ju_map(uint32_t cp, enum ju_to to, uint32_t out[3]);

#endif
