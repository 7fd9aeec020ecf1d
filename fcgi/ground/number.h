/* Parses numbers that users and the system write: options, headers, files of /proc. The code does not use strtol,
 * because strtol accepts signs and spaces. Threads: pure functions. */
#ifndef INFCGI_GROUND_NUMBER_H
#define INFCGI_GROUND_NUMBER_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>

/* Parses a decimal integer with an optional minus sign. Returns false and leaves *out unchanged for any other text and
 * for a number that does not fit. */
MUST_CHECK bool number_parse(const char *s, int64_t *out);

/* Parses the decimal digits at the start of s and returns their end. Returns NULL and leaves *out unchanged without a
 * digit and for a number that does not fit. */
MUST_CHECK const char *number_parse_digits(const char *s, int64_t *out);

/* Parses a decimal number with an optional fraction and exponent. Returns false for any other text, such as "nan", and
 * for a number that is not finite; *out is then undefined. */
MUST_CHECK bool number_parse_real(const char *s, double *out);

#endif
