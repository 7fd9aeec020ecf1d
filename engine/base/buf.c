/* The growing buffer doubles its memory and never shrinks it. */
#include "engine/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_BYTES = 128 };
#define NO_LIMIT (SIZE_MAX / 4) /* so that lengths can be added and doubled without overflow */

void buf_init(struct buf *b, size_t limit_bytes, enum mem_purpose purpose)
{
    *b = (struct buf){.limit_bytes = limit_bytes == 0 ? NO_LIMIT : MIN_OF(limit_bytes, NO_LIMIT), .purpose = purpose};
}

void buf_fini(struct buf *b)
{
    mem_free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
    b->err = ERR_OK;
}

/* Makes room for n more bytes and a NUL; returns false after a failure. */
static bool reserve(struct buf *b, size_t n)
{
    if (b->err != ERR_OK) {
        return false;
    }
    if (n > b->limit_bytes - MIN_OF(b->len, b->limit_bytes)) {
        b->err = ERR_TOO_LARGE;
        return false;
    }
    size_t need = b->len + n + 1;
    if (need <= b->cap) {
        return true;
    }
    size_t cap = MAX_OF(b->cap * 2, (size_t)FIRST_BYTES);
    cap = MAX_OF(cap, need);
    char *data = mem_realloc(b->data, cap, b->purpose);
    if (data == NULL) {
        b->err = ERR_NOMEM;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_append(struct buf *b, const void *data, size_t n)
{
    if (!reserve(b, n)) {
        return;
    }
    if (n != 0) {
        memcpy(b->data + b->len, data, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
}

char *buf_extend(struct buf *b, size_t n)
{
    if (!reserve(b, n)) {
        return NULL;
    }
    b->len += n;
    b->data[b->len] = '\0';
    return b->data + b->len - n;
}

void buf_cut(struct buf *b, size_t len)
{
    if (len < b->len) {
        b->len = len;
        b->data[len] = '\0';
    }
}

void buf_puts(struct buf *b, const char *s) { buf_append(b, s, strlen(s)); }

void buf_putc(struct buf *b, char c) { buf_append(b, &c, 1); }

void buf_add(struct buf *b, const struct buf *part)
{
    buf_append(b, part->data, part->len);
    b->err = b->err != ERR_OK ? b->err : part->err;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
}

enum err buf_ok(const struct buf *b) { return b->err; }

char *buf_take(struct buf *b, size_t *len)
{
    if (b->err != ERR_OK || !reserve(b, 0)) {
        return NULL;
    }
    char *data = b->data;
    data[b->len] = '\0';
    *len = b->len;
    b->data = NULL;
    b->len = b->cap = 0;
    return data;
}
