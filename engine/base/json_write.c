/* The JSON writer: appends, escapes, never fails by itself (the buf remembers). */
#include "engine/base/json_write.h"

#include "engine/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Appends the escape of one ASCII character that JSON may not hold as it is. */
static void write_escape(struct buf *b, unsigned char c)
{
    static const char *const short_forms[0x20] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r"};
    if (c == '"') {
        buf_puts(b, "\\\"");
    } else if (c == '\\') {
        buf_puts(b, "\\\\");
    } else if (c < 0x20 && short_forms[c] != NULL) {
        buf_puts(b, short_forms[c]);
    } else {
        buf_printf(b, "\\u%04x", c);
    }
}

void json_write_string(struct buf *b, const char *s, size_t n)
{
    buf_putc(b, '"');
    size_t plain_from = 0; /* start of the run that needs no change */
    size_t i = 0;
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        bool valid = true;
        size_t used = 1;
        if (c >= 0x80) {
            uint32_t cp;
            used = utf8_decode(s + i, n - i, &cp, &valid);
        }
        bool plain = valid && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
        if (!plain) {
            buf_append(b, s + plain_from, i - plain_from);
            if (valid) {
                write_escape(b, c);
            } else {
                buf_puts(b, "\xEF\xBF\xBD"); /* U+FFFD */
            }
            plain_from = i + used;
        }
        i += used;
    }
    buf_append(b, s + plain_from, n - plain_from);
    buf_putc(b, '"');
}

void json_write_buf(struct buf *b, const struct buf *text)
{
    json_write_string(b, text->data != NULL ? text->data : "", text->len);
    b->err = b->err != ERR_OK ? b->err : text->err;
}

void json_write_cstr(struct buf *b, const char *s)
{
    if (s == NULL) {
        buf_puts(b, "null");
    } else {
        json_write_string(b, s, strlen(s));
    }
}

void json_write_float(struct buf *b, double v)
{
    if (!isfinite(v)) {
        buf_puts(b, "-9999.0");
        return;
    }
    size_t before = b->len;
    buf_printf(b, "%.9g", v);
    if (b->err == ERR_OK && strpbrk(b->data + before, ".e") == NULL) {
        buf_puts(b, ".0");
    }
}

void json_write_int(struct buf *b, int64_t v) { buf_printf(b, "%" PRId64, v); }
