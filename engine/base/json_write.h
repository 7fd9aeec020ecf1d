/* Writes JSON [RFC 8259] into a buf. json_read.h reads it. Threads: a buf belongs to one thread. */
#ifndef INFCGI_BASE_JSON_WRITE_H
#define INFCGI_BASE_JSON_WRITE_H

#include "engine/base/buf.h"

#include <jansson.h>

/* Writes s[0..n) as a quoted JSON string. Escapes control characters, quote and backslash; invalid UTF-8 bytes become
 * U+FFFD; everything else passes through as UTF-8. */
void json_write_string(struct buf *b, const char *s, size_t n);

/* Writes text's bytes as a JSON string; a failure of text becomes one of b. */
void json_write_buf(struct buf *b, const struct buf *text);

/* Writes a NUL-terminated s as a JSON string; NULL as null. */
void json_write_cstr(struct buf *b, const char *s);

/* Writes the shortest %.9g form that is a JSON number. NaN and infinities, which JSON lacks, become -9999.0, the value
 * that clients expect for a log-probability of minus infinity. */
void json_write_float(struct buf *b, double v);

/* Writes a float that came from a short decimal, such as a temperature: 0.8, not 0.800000012. */
void json_write_setting(struct buf *b, float v);

void json_write_int(struct buf *b, int64_t v);

/* Writes a jansson value, NULL as null: keys in their order, numbers as json_number_text. is_spaced: a space after each
 * ',' and ':', as Python's json.dumps writes. Values nested deeper than JSON_WRITE_DEPTH fail with ERR_JSON_TOO_DEEP in
 * b->err. */
enum { JSON_WRITE_DEPTH = 128 };
void json_write_value(struct buf *b, const json_t *v, bool is_spaced);

#endif
