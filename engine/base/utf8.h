/* UTF-8 [RFC 3629]: decode, encode, validate, and find where a stream can be cut. Strings are length-counted; NUL is
 * data. Threads: pure functions. */
#ifndef INFCGI_BASE_UTF8_H
#define INFCGI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu /* decoded from an invalid byte */

/* Decodes the first code point of s[0..n), n >= 1. Returns the bytes consumed, 1 to 4. An invalid or cut sequence
 * yields *cp = UTF8_REPLACEMENT and consumes 1 byte; *valid (OPTIONAL) distinguishes it from a real U+FFFD. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp, bool *valid);

/* Writes cp (<= 0x10FFFF) to out[4]; returns the bytes written, 1 to 4. A surrogate is written as U+FFFD. */
size_t utf8_encode(uint32_t cp, char *out);

/* Returns whether s[0..n) is valid; else *bad_at (OPTIONAL) is the offset of the first bad byte. */
bool utf8_valid(const char *s, size_t n, size_t *bad_at);

/* Returns the bytes at the end of s[0..n) that begin a sequence which more bytes could complete: 0 to 3. */
size_t utf8_incomplete_tail(const char *s, size_t n);

#endif
