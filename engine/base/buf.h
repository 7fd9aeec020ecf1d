/* A growing byte buffer with a limit. Append failures stick: check buf_ok once at the end, not after each call.
 * Threads: a buf belongs to one thread. */
#ifndef INFCGI_BASE_BUF_H
#define INFCGI_BASE_BUF_H

#include "engine/base/compiler.h"
#include "engine/base/err.h"
#include "engine/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* len bytes, then a NUL; NULL while nothing was appended */
    size_t len;
    size_t cap;
    size_t limit_bytes; /* appends beyond it fail; SIZE_MAX / 4 stands for none */
    enum mem_purpose purpose;
    enum err err; /* first failure: ERR_NOMEM or ERR_TOO_LARGE; later appends do nothing */
};

/* limit_bytes 0 means no limit. */
void buf_init(struct buf *b, size_t limit_bytes, enum mem_purpose purpose);
void buf_fini(struct buf *b);

/* Empties the buffer, keeps its memory, clears the error. */
void buf_reset(struct buf *b);

void buf_append(struct buf *b, const void *data, size_t n);
char *buf_extend(struct buf *b,
                 size_t n); /* appends n bytes and a NUL, which the caller writes there; NULL after a failure */
void buf_cut(struct buf *b, size_t len); /* keeps the first len bytes, of at least as many */
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_add(struct buf *b, const struct buf *part); /* what part holds; a failure of part is one of b */
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ERR_OK, or the first failure. */
MUST_CHECK enum err buf_ok(const struct buf *b);

/* Takes the bytes out (NUL behind them; free with mem_free); the buffer is empty afterwards. NULL after a failure. */
MUST_CHECK char *buf_take(struct buf *b, size_t *len);

#endif
