/* JSON numbers beyond int64 and double. A parsed number is one of:
 *
 * - a JSON_INTEGER, if the text is an integer that int64 holds;
 * - a JSON_REAL, if the shortest decimal form of its double has the value of the text: 0.1, 1.10, 1e22;
 * - a JSON_REAL that also carries the text ("digits"): an integer beyond int64, or a decimal that no double represents
 *   by its shortest form: 18446744073709551615, 0.1234567890123456789, 1e400. Its json_real_value is the nearest finite
 *   double.
 *
 * So code that ignores digits works with the rounded value, and json_is_integer is false beyond int64. The digits are
 * in the value's own block of memory and live as long as it does. json_copy and json_deep_copy of the number itself,
 * json_equal, json_dumps and json_real_set ignore them; copies of objects and arrays share their values and so keep
 * them. json_write_value (json_write.h) writes them. Threads: pure functions, except json_number_use_mem. */
#ifndef INFCGI_BASE_JSON_NUMBER_H
#define INFCGI_BASE_JSON_NUMBER_H

#include "engine/base/compiler.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Makes jansson allocate through mem.h: as MEM_REQUEST while a request is answered, else as MEM_GENERAL. Call it before
 * any other use of jansson, because older values could not be freed. Without it numbers carry no digits. */
void json_number_use_mem(void);

/* Returns the digits that v carries, NUL-terminated, as written: a JSON number (an integer if it has none of ".eE"), or
 * "NaN", "Infinity", "-Infinity" from json_read_lenient. Returns NULL if v carries none, is not a number, or is
 * NULL. */
const char *json_number_digits(const json_t *v);

/* Returns whether v is an integer that carries digits, so beyond int64. v can be NULL. */
bool json_number_is_wide(const json_t *v);

/* Returns whether v is a number of any form that carries digits and is 2^63 or more, or less than -2^63. v can be
 * NULL. */
bool json_number_is_beyond(const json_t *v);

/* Returns a new JSON_REAL of a finite value that carries digits[0..n). NULL if memory is out. */
MUST_CHECK json_t *json_number_new(double value, const char *digits, size_t n);

/* Returns whether the shortest form of value, the double nearest to the number in text[0..n), denotes exactly that
 * number. text has JSON's form. Linear in n. */
bool json_number_is_exact(double value, const char *text, size_t n);

/* Writes Python's repr of a finite double: the shortest digits that read back as the same double. Returns out. */
enum { JSON_NUMBER_BYTES = 40 };
char *json_number_shortest(double value, char out[JSON_NUMBER_BYTES]);

/* Returns the decimal text of any JSON number: its digits, the int64, or the shortest form of the double; "0" if v is
 * not a number. The text is in room or in v. */
const char *json_number_text(const json_t *v, char room[JSON_NUMBER_BYTES]);

#endif
