/* Splits a template into tokens, in one pass and without backtracking. The lexer handles white-space control
 * (trim_blocks, lstrip_blocks, `-` and `+` marks), raw blocks and comments, so the parser sees only text and code.
 * Source: jinja2 3.1 lexer.py (behavior). Threads: pure. */
#ifndef INFCGI_JINJA_JINJA_LEXER_H
#define INFCGI_JINJA_JINJA_LEXER_H

#include "engine/base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum jtok_kind {
    JT_EOF,
    JT_TEXT,        /* output, unchanged */
    JT_PRINT_BEGIN, /* {{ */
    JT_PRINT_END,   /* }} */
    JT_BLOCK_BEGIN, /* {% */
    JT_BLOCK_END,   /* %} */
    JT_NAME,
    JT_STRING, /* with its quotes */
    JT_INT,
    JT_FLOAT,
    JT_OP, /* one or two characters, see op */
};

/* Two-character operators; a single character is its own value. */
enum { JO_POW = 256, JO_FLOORDIV, JO_EQ, JO_NE, JO_LE, JO_GE };

struct jtok {
    uint8_t kind;      /* enum jtok_kind */
    uint16_t op;       /* JT_OP only */
    uint32_t from, to; /* bytes of the source */
};

struct jtoks {
    struct jtok *at; /* n tokens, the last one is JT_EOF; free with mem_free */
    size_t n, cap;
};

/* Splits source[0..n), whose newlines must be normalized to \n; n < 2^31. ERR_TEMPLATE with "line:column: ..." in info,
 * ERR_NOMEM; then *out is empty. */
MUST_CHECK enum err jinja_lex(const char *source, size_t n, struct jtoks *out, struct err_info *info);

/* Writes "line:column: message" for byte `pos` of the source to info; returns ERR_TEMPLATE. */
enum err jinja_vfail_at(const char *source, size_t pos, struct err_info *info, const char *fmt, va_list args)
    PRINTF_LIKE(4, 0);

#endif
