/* A growing byte buffer with a limit. Append failures stick, so callers check buf_ok once at the end. Threads: a buf
 * belongs to one thread. */
#ifndef INFCGI_BASE_BUF_H
#define INFCGI_BASE_BUF_H

#include "engine/base/compiler.h"
#include "engine/base/err.h"
#include "engine/base/mem.h"

#include <stddef.h>

struct buf {
    char *data; /* len bytes, then a NUL; NULL before the first append */
    size_t len;
    size_t cap;
    size_t limit_bytes; /* appends beyond it fail; SIZE_MAX / 4: no limit */
    enum mem_purpose purpose;
    enum err err; /* first failure: ERR_NOMEM or ERR_TOO_LARGE; later appends do nothing */
};

/* Initialises an empty buffer. limit_bytes 0: no limit. */
void buf_init(struct buf *b, size_t limit_bytes, enum mem_purpose purpose);
void buf_fini(struct buf *b);

/* Empties the buffer, keeps its memory and clears the error. */
void buf_reset(struct buf *b);

void buf_append(struct buf *b, const void *data, size_t n);
/* appends n bytes, which the caller writes, and a NUL; NULL after a failure */
char *buf_extend(struct buf *b, size_t n);
void buf_cut(struct buf *b, size_t len); /* keeps the first len bytes; at least len are there */
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_add(struct buf *b, const struct buf *part); /* appends part's bytes; a failure of part becomes one of b */
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Returns ERR_OK, or the first failure. */
MUST_CHECK enum err buf_ok(const struct buf *b);

/* Returns the bytes, NUL-terminated, and empties the buffer. The caller frees them with mem_free. Returns NULL after a
 * failure. */
MUST_CHECK char *buf_take(struct buf *b, size_t *len);

#endif
