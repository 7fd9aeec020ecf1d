/* One pass over the expression, with a small state for the open class. Published tokenizers nest classes at most once;
 * deeper nesting is rejected. */
#include "engine/tokenizer/oniguruma.h"

#include "engine/base/compiler.h"
#include "engine/base/hex.h"

#include <stdbool.h>
#include <string.h>

/* \s: the property White_Space; PCRE2's own \s also has U+180E. */
#define SPACES "\\t-\\r\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define WORD   "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE"
#define HEX    "0-9A-Fa-f"

struct reader {
    const char *s;
    size_t n, at;
    struct err_info *info;
};

static enum err refuse(const struct reader *r, const char *what)
{
    return err_set(r->info, ERR_UNSUPPORTED_PRETOKENIZER, NULL,
                   "a split: expected a pattern that can be run here, found '%.*s' (byte %zu: %s)",
                   (int)MIN_OF(r->n, (size_t)200), r->s, r->at, what);
}

static bool starts(const struct reader *r, const char *what)
{
    size_t len = strlen(what);
    return r->n - r->at >= len && memcmp(r->s + r->at, what, len) == 0;
}

static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* \uHHHH */
static enum err put_code_point(struct reader *r, struct buf *out)
{
    size_t from = r->at + 2;
    if (from + 4 > r->n || hex_value(r->s[from]) < 0 || hex_value(r->s[from + 1]) < 0 ||
        hex_value(r->s[from + 2]) < 0 || hex_value(r->s[from + 3]) < 0) {
        return refuse(r, "expected four hexadecimal digits after \\u");
    }
    buf_puts(out, "\\x{");
    buf_append(out, r->s + from, 4);
    buf_putc(out, '}');
    r->at += 6;
    return ERR_OK;
}

/* \xHH or \x{H..} */
static enum err put_hex(struct reader *r, struct buf *out)
{
    size_t end = r->at + 2;
    bool is_braced = end < r->n && r->s[end] == '{';
    for (end += is_braced; end < r->n && hex_value(r->s[end]) >= 0 && (is_braced || end < r->at + 4); end++) {
    }
    if (is_braced && end < r->n && r->s[end] == '}') {
        end++;
    } else if (is_braced || end != r->at + 4) {
        return refuse(r, "expected hexadecimal digits after \\x");
    }
    buf_append(out, r->s + r->at, end - r->at);
    r->at = end;
    return ERR_OK;
}

/* Writes a class escape: `ranges` within a class, in brackets outside. */
static enum err put_set(struct reader *r, bool in_class, bool negated, const char *ranges, struct buf *out)
{
    if (in_class && negated) {
        return refuse(r, "\\S, \\W and \\H are not supported inside brackets");
    }
    buf_puts(out, in_class ? "" : negated ? "[^" : "[");
    buf_puts(out, ranges);
    buf_puts(out, in_class ? "" : "]");
    r->at += 2;
    return ERR_OK;
}

static bool is_script(const char *name, size_t n)
{
    static const char *const scripts[] = {
        "Arabic",   "Armenian", "Bengali",  "Bopomofo", "Common",    "Cyrillic",  "Devanagari", "Ethiopic",  "Georgian",
        "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",    "Hebrew",    "Hiragana",   "Inherited", "Kannada",
        "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam", "Mongolian", "Myanmar",    "Oriya",     "Sinhala",
        "Syriac",   "Tamil",    "Telugu",   "Thaana",   "Thai",      "Tibetan",   "Yi"};
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        if (strlen(scripts[i]) == n && memcmp(scripts[i], name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Translates the escape at r->at, a backslash. */
static enum err put_escape(struct reader *r, bool in_class, struct buf *out)
{
    if (r->at + 1 >= r->n) {
        return refuse(r, "expected a character after the backslash");
    }
    char c = r->s[r->at + 1];
    switch (c) {
    case 's':
    case 'S':
        return put_set(r, in_class, c == 'S', SPACES, out);
    case 'w':
    case 'W':
        return put_set(r, in_class, c == 'W', WORD, out);
    case 'h':
    case 'H':
        return put_set(r, in_class, c == 'H', HEX, out);
    case 'b': /* PCRE2's uses its own \w; in a class both are a backspace */
        buf_puts(out, in_class ? "\\b" : "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))");
        break;
    case 'u':
        return put_code_point(r, out);
    case 'v':
        buf_puts(out, "\\x0B");
        break;
    case 'x':
        if (r->at + 2 < r->n && r->s[r->at + 2] >= '8' && r->s[r->at + 2] != '{') { /* a byte, not a character */
            return refuse(r, "\\x beyond 7F without braces is not supported");
        }
        return put_hex(r, out);
    case 'p':
    case 'P': {
        const char *end = memchr(r->s + r->at, '}', r->n - r->at);
        if (!starts(&(struct reader){.s = r->s, .n = r->n, .at = r->at + 2}, "{") || end == NULL) {
            return refuse(r, "expected {name} after \\p");
        }
        size_t len = (size_t)(end - (r->s + r->at)) + 1;
        buf_append(out, r->s + r->at, 3);
        buf_puts(out, is_script(r->s + r->at + 3, len - 4) ? "sc:" : ""); /* PCRE2's default is Script_Extensions */
        buf_append(out, r->s + r->at + 3, len - 3);
        r->at += len;
        return ERR_OK;
    }
    default:
        if (is_alnum(c) && strchr(in_class ? "dDnrtfae0" : "dDnrtfaeAzZ0123456789", c) == NULL) {
            return refuse(r, "this escape is not supported");
        }
        buf_append(out, r->s + r->at, 2);
        break;
    }
    r->at += 2;
    return ERR_OK;
}

/* Translates the text within a class's brackets, without nested classes, up to `]`, `[` or `&&`. */
static enum err put_items(struct reader *r, bool at_start, struct buf *out)
{
    while (r->at < r->n) {
        char c = r->s[r->at];
        if (starts(r, "[:")) {
            const char *end = memmem(r->s + r->at, r->n - r->at, ":]", 2);
            if (end == NULL) {
                return refuse(r, "expected :]");
            }
            size_t len = (size_t)(end - (r->s + r->at)) + 2;
            buf_append(out, r->s + r->at, len);
            r->at += len;
        } else if (c == '[' || starts(r, "&&") || (c == ']' && !at_start)) {
            return ERR_OK;
        } else if (c == '\\') {
            TRY(put_escape(r, true, out));
        } else {
            buf_puts(out, c == ']' ? "\\" : "");
            buf_putc(out, c);
            r->at++;
        }
        at_start = false;
    }
    return refuse(r, "expected ] at the end of a class");
}

/* Translates one class without nested ones, including its brackets. */
static enum err put_plain_class(struct reader *r, struct buf *out)
{
    r->at++;
    buf_putc(out, '[');
    if (starts(r, "^")) {
        buf_putc(out, '^');
        r->at++;
    }
    TRY(put_items(r, true, out));
    if (!starts(r, "]")) {
        return refuse(r, "classes nested more than once are not supported");
    }
    r->at++;
    buf_putc(out, ']');
    return ERR_OK;
}

/* Translates the operands of a class: the first one as items, those after each && as look-aheads. */
static enum err put_operands(struct reader *r, struct buf *first, struct buf *others)
{
    for (bool in_first = true, at_start = true; at_start || !starts(r, "]"); at_start = false) {
        if (starts(r, "&&")) {
            r->at += 2;
            in_first = false;
            buf_puts(others, "(?=");
            if (starts(r, "[") && !starts(r, "[:")) {
                TRY(put_plain_class(r, others));
            } else {
                buf_putc(others, '[');
                TRY(put_items(r, false, others));
                buf_putc(others, ']');
            }
            buf_putc(others, ')');
            if (!starts(r, "]") && !starts(r, "&&")) {
                return refuse(r, "expected && or ] after the second part of a class");
            }
        } else if (starts(r, "[^")) {
            return refuse(r, "a negated class inside another is supported only after &&");
        } else if (starts(r, "[") && !starts(r, "[:")) { /* a union: its items are added to the others */
            r->at++;
            TRY(put_items(r, true, first));
            if (!starts(r, "]")) {
                return refuse(r, "classes nested more than once are not supported");
            }
            r->at++;
        } else if (in_first) {
            TRY(put_items(r, at_start, first));
        }
    }
    r->at++;
    return ERR_OK;
}

static enum err put_class(struct reader *r, struct buf *out)
{
    struct buf first, others;
    buf_init(&first, 0, MEM_MODEL);
    buf_init(&others, 0, MEM_MODEL);
    r->at++;
    bool negated = starts(r, "^");
    r->at += negated;
    enum err err = put_operands(r, &first, &others);
    if (others.len == 0) {
        buf_puts(out, negated ? "[^" : "[");
        buf_add(out, &first);
        buf_putc(out, ']');
    } else {
        buf_puts(out, negated ? "(?:(?!" : "(?:");
        buf_add(out, &others);
        buf_putc(out, '[');
        buf_add(out, &first);
        buf_puts(out, negated ? "])[\\x{0}-\\x{10FFFF}])" : "])");
    }
    err = err != ERR_OK ? err : MAX_OF(buf_ok(&first), buf_ok(&others));
    buf_fini(&first);
    buf_fini(&others);
    return err;
}

/* Translates a group's opening, whose options differ: Oniguruma's m is PCRE2's s. */
static enum err put_group(struct reader *r, struct buf *out)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)"};
    if (!starts(r, "(?") && !starts(r, "(*")) {
        buf_putc(out, '(');
        r->at++;
        return ERR_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (starts(r, known[i])) {
            buf_puts(out, known[i]);
            r->at += strlen(known[i]);
            return ERR_OK;
        }
    }
    if (starts(r, "(?m:")) {
        buf_puts(out, "(?s:");
        r->at += 4;
        return ERR_OK;
    }
    return refuse(r, "this kind of group is not supported");
}

/* {,n} is {0,n}. A + after an interval repeats it, but PCRE2 would read it as possessive. */
static enum err put_interval(struct reader *r, struct buf *out)
{
    size_t end = r->at + 1;
    while (end < r->n && ((r->s[end] >= '0' && r->s[end] <= '9') || r->s[end] == ',')) {
        end++;
    }
    bool is_interval = end < r->n && r->s[end] == '}' && end > r->at + 1;
    if (is_interval && end + 1 < r->n && r->s[end + 1] == '+') {
        return refuse(r, "a + after an interval is not supported");
    }
    const char *open = starts(r, "{,") ? "{0" : "{";
    buf_puts(out, is_interval ? open : "\\{");
    r->at++;
    return ERR_OK;
}

enum err oniguruma_to_pcre2(const char *s, size_t n, struct buf *out, struct err_info *info)
{
    struct reader r = {.s = s, .n = n, .info = info};
    while (r.at < n) {
        switch (s[r.at]) {
        case '\\':
            TRY(put_escape(&r, false, out));
            break;
        case '[':
            TRY(put_class(&r, out));
            break;
        case '(':
            TRY(put_group(&r, out));
            break;
        case '{':
            TRY(put_interval(&r, out));
            break;
        default:
            buf_putc(out, s[r.at++]);
            break;
        }
    }
    return buf_ok(out);
}
