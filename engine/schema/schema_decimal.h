/* Numbers of a schema as exact decimals, of any length: value, order and remainders are those of the digits, not of a
 * double. Nothing is allocated by the size of an exponent. Threads: pure functions. */
#ifndef INFCGI_SCHEMA_SCHEMA_DECIMAL_H
#define INFCGI_SCHEMA_SCHEMA_DECIMAL_H

#include "engine/base/json_number.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0.d1 d2 .. dn * 10^point, where d1 and dn are not 0; n = 0: zero, whose point is 0 and which has no sign.
 * Fields but n, point and is_negative are private. */
struct schema_decimal {
    char room[JSON_NUMBER_BYTES]; /* of the text, where the value does not carry its own */
    const char *text;             /* NULL: room */
    size_t from, dot; /* of d1 in the text; of the point in it, or SIZE_MAX where it is not among the digits */
    size_t n;
    int64_t point;
    bool is_negative;
};

/* The number v as its text says it (json_number.h); v must outlive the decimal. False: v is no number. */
bool schema_decimal_of(const json_t *v, struct schema_decimal *out);

/* text[0..n), of JSON's form, which is borrowed. */
struct schema_decimal schema_decimal_read(const char *text, size_t n);

/* The i-th digit, 0 .. 9; 0 for i >= n. */
unsigned schema_decimal_digit(const struct schema_decimal *d, size_t i);

/* -1, 0 or 1. By magnitude: without the signs. */
int schema_decimal_compare(const struct schema_decimal *a, const struct schema_decimal *b);
int schema_decimal_magnitude(const struct schema_decimal *a, const struct schema_decimal *b);

bool schema_decimal_is_whole(const struct schema_decimal *d);

/* d without its fraction, towards 0. */
struct schema_decimal schema_decimal_trunc(const struct schema_decimal *d);

/* Is |d| = k * m / 10^places for a whole k? m: 1 .. 2^40. */
bool schema_decimal_is_multiple(const struct schema_decimal *d, uint64_t m, unsigned places);

/* Writes a text that is the same for equal numbers, "-12e3" for -12000.0, NUL-terminated; its length without the NUL, or
 * what it needs where cap is too small. */
size_t schema_decimal_key(const struct schema_decimal *d, char *out, size_t cap);

/* Writes the number without an exponent and without zeros at its end, "-0.00025", NUL-terminated: to out, if it has room for that.
 * Returns the length without the NUL. 0 is "0". */
size_t schema_decimal_plain(const struct schema_decimal *d, char *out, size_t cap);

#endif
