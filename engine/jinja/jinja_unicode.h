/* The properties of code points that Python's str methods need: case, letters, digits, white space, printable. Most
 * come from utf8proc; the others are in short tables of Unicode 14, the version of Python 3.11. Threads: pure
 * functions. */
#ifndef INFCGI_JINJA_JINJA_UNICODE_H
#define INFCGI_JINJA_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool ju_space(uint32_t cp); /* str.isspace; str.strip() removes these */
bool ju_alpha(uint32_t cp);
bool ju_alnum(uint32_t cp);
bool ju_numeric(uint32_t cp);
bool ju_digit(uint32_t cp);
bool ju_printable(uint32_t cp); /* repr() shows it unescaped */
bool ju_is_upper(uint32_t cp);
bool ju_is_lower(uint32_t cp);
bool ju_is_title(uint32_t cp); /* a digraph with only the first letter in upper case; neither of the above */

enum ju_to { JU_LOWER, JU_UPPER, JU_TITLE };

/* Writes the mapping of cp to out[3]; returns its number of code points, 1 to 3. */
size_t ju_map(uint32_t cp, enum ju_to to, uint32_t out[3]);

#endif
