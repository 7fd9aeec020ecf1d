/* Numbers in text that users and the system write: options, headers, files of /proc. Parsed by hand: strtol takes signs and
 * spaces that nobody meant. Threads: pure functions. */
#ifndef INFCGI_GROUND_NUMBER_H
#define INFCGI_GROUND_NUMBER_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>

/* Parses a decimal integer with an optional minus. Returns false, and leaves *out as it was, for anything else and for a number
 * that does not fit. */
MUST_CHECK bool number_parse(const char *s, int64_t *out);

/* Parses a decimal number with an optional fraction and exponent. Returns false for anything else, such as "nan", and for a number
 * that is not finite; then *out is undefined. */
MUST_CHECK bool number_parse_real(const char *s, double *out);

#endif
