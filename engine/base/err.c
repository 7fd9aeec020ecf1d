/* The error table and the two functions that fill an err_info. They do not log. */
#include "engine/base/err.h"

#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    const char *code;
    const char *text;
};

static const struct err_row err_rows[ERR_COUNT] = {
#define ERR_ROW(name, code_, text_) [name] = {.code = (code_), .text = (text_)},
    ERR_LIST(ERR_ROW)
#undef ERR_ROW
};

static const struct err_row *row_of(enum err code)
{
    return &err_rows[(unsigned)code < ERR_COUNT ? code : ERR_INTERNAL];
}

const char *err_code(enum err code) { return row_of(code)->code; }
const char *err_text(enum err code) { return row_of(code)->text; }

/* Makes s printable in place: messages quote names from files and requests, and appear in terminals and logs as one
 * line. ASCII controls become '?', as does each byte that is not UTF-8. The second byte of C1 controls (C2 80 .. C2 9F)
 * becomes a plain Latin-1 character, which keeps the length. */
static void make_printable(char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t used = utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid || cp < 0x20 || cp == 0x7F) {
            s[i] = '?';
        } else if (cp >= 0x80 && cp < 0xA0) {
            s[i + 1] = (char)0xBF; /* U+00BF, an inverted question mark */
        }
        i += used;
    }
}

/* Formats into out[cap], cut at a UTF-8 boundary. */
static void format_cut(char *out, size_t cap, const char *fmt, va_list args)
{
    int n = vsnprintf(out, cap, fmt, args);
    if (n < 0) {
        out[0] = '\0';
    } else if ((size_t)n >= cap) {
        size_t kept = cap - 1;
        kept -= utf8_incomplete_tail(out, kept);
        out[kept] = '\0';
    }
    make_printable(out);
}

static void fill(struct err_info *info, enum err code, const char *where, const char *fmt, va_list args)
{
    if (info == NULL) {
        return;
    }
    info->code = code;
    info->offset = ERR_NO_OFFSET;
    info->where[0] = '\0';
    if (where != NULL) {
        snprintf(info->where, sizeof info->where, "%s", where);
        size_t n = strlen(info->where);
        info->where[n - utf8_incomplete_tail(info->where, n)] = '\0';
        make_printable(info->where);
    }
    format_cut(info->text, sizeof info->text, fmt, args);
}

enum err err_set(struct err_info *info, enum err code, const char *where, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(info, code, where, fmt, args);
    va_end(args);
    return code;
}

enum err err_set_at(struct err_info *info, enum err code, uint64_t offset, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(info, code, NULL, fmt, args);
    va_end(args);
    if (info != NULL) {
        info->offset = offset;
    }
    return code;
}

void err_name_file(struct err_info *info, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (info != NULL) {
        struct err_info said = *info;
        err_set(info, said.code, said.where, "%s: %s", slash != NULL ? slash + 1 : path, said.text);
        info->offset = said.offset;
    }
}
