/* Numbers of a schema as exact decimals of any length. Value, order and remainders are those of the digits, not of a
 * double. No allocation depends on an exponent's size. Threads: pure functions. */
#ifndef INFCGI_SCHEMA_SCHEMA_DECIMAL_H
#define INFCGI_SCHEMA_SCHEMA_DECIMAL_H

#include "engine/base/json_number.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0.d1 d2 .. dn * 10^point; d1 and dn are not 0. n = 0: zero, with point 0 and without a sign. Only n, point and
 * is_negative are public. */
struct schema_decimal {
    char room[JSON_NUMBER_BYTES]; /* the text, if the value does not carry its own */
    const char *text;             /* NULL: room */
    size_t from, dot; /* offset of d1 in the text; offset of the point, or SIZE_MAX if it is not among the digits */
    size_t n;
    int64_t point;
    bool is_negative;
};

/* Reads the number v from its text (json_number.h); v must outlive the decimal. Returns false if v is not a number. */
bool schema_decimal_of(const json_t *v, struct schema_decimal *out);

/* Reads text[0..n), a JSON number, which is borrowed. */
struct schema_decimal schema_decimal_read(const char *text, size_t n);

/* Returns the i-th digit, 0 .. 9; 0 for i >= n. */
unsigned schema_decimal_digit(const struct schema_decimal *d, size_t i);

/* Return -1, 0 or 1. schema_decimal_magnitude compares without the signs. */
int schema_decimal_compare(const struct schema_decimal *a, const struct schema_decimal *b);
int schema_decimal_magnitude(const struct schema_decimal *a, const struct schema_decimal *b);

bool schema_decimal_is_whole(const struct schema_decimal *d);

/* Returns d without its fraction, rounded towards 0. */
struct schema_decimal schema_decimal_trunc(const struct schema_decimal *d);

/* Returns whether |d| = k * m / 10^places for a whole k. m: 1 .. 2^40. */
bool schema_decimal_is_multiple(const struct schema_decimal *d, uint64_t m, unsigned places);

/* Writes a NUL-terminated text that is the same for equal numbers, "-12e3" for -12000.0. Returns its length without the
 * NUL, also if cap is too small. */
size_t schema_decimal_key(const struct schema_decimal *d, char *out, size_t cap);

/* Writes the number without an exponent and trailing zeros, "-0.00025", NUL-terminated, if out has room for it. Returns
 * the length without the NUL. 0 is "0". */
size_t schema_decimal_plain(const struct schema_decimal *d, char *out, size_t cap);

#endif
