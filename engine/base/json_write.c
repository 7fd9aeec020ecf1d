/* The JSON writer appends and escapes; the buf records failures. */
#include "engine/base/json_write.h"

#include "engine/base/json_number.h"
#include "engine/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends the escape of an ASCII character that a JSON string cannot contain. */
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

void json_write_setting(struct buf *b, float v)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", (double)v);
    double exact = strtod(text, NULL); /* the intended double, if six digits identify the float */
    json_write_float(b, (float)exact == v ? exact : (double)v);
}

void json_write_int(struct buf *b, int64_t v) { buf_printf(b, "%" PRId64, v); }

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Writes a scalar, or the beginning of an object or array. */
static void write_begin(struct buf *b, const json_t *v)
{
    char room[JSON_NUMBER_BYTES];
    switch (v == NULL ? JSON_NULL : json_typeof(v)) {
    case JSON_OBJECT:
        buf_putc(b, '{');
        break;
    case JSON_ARRAY:
        buf_putc(b, '[');
        break;
    case JSON_STRING:
        json_write_string(b, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        buf_puts(b, json_number_text(v, room));
        break;
    case JSON_NULL:
        buf_puts(b, "null");
        break;
    default:
        buf_puts(b, json_is_true(v) ? "true" : "false");
    }
}

void json_write_value(struct buf *b, const json_t *v, bool is_spaced)
{
    struct {
        const json_t *v;
        void *member; /* of an object: the next member */
        size_t at;    /* values written so far */
    } stack[JSON_WRITE_DEPTH];
    size_t n = 0;
    const char *comma = is_spaced ? ", " : ",", *colon = is_spaced ? ": " : ":";
    while (b->err == ERR_OK) {
        write_begin(b, v);
        if (json_is_object(v) || json_is_array(v)) {
            if (n == JSON_WRITE_DEPTH) {
                b->err = ERR_JSON_TOO_DEEP;
                return;
            }
            stack[n].v = v;
            stack[n].member = json_object_iter((json_t *)(uintptr_t)v);
            stack[n++].at = 0;
        }
        while (n > 0 && stack[n - 1].at == (json_is_array(stack[n - 1].v) ? json_array_size(stack[n - 1].v)
                                                                          : json_object_size(stack[n - 1].v))) {
            n--;
            buf_putc(b, json_is_array(stack[n].v) ? ']' : '}');
        }
        if (n == 0) {
            return;
        }
        buf_puts(b, stack[n - 1].at++ > 0 ? comma : "");
        if (json_is_array(stack[n - 1].v)) {
            v = json_array_get(stack[n - 1].v, stack[n - 1].at - 1);
            continue;
        }
        void *member = stack[n - 1].member;
        json_write_string(b, json_object_iter_key(member), json_object_iter_key_len(member));
        buf_puts(b, colon);
        v = json_object_iter_value(member);
        stack[n - 1].member = json_object_iter_next((json_t *)(uintptr_t)stack[n - 1].v, member);
    }
}
