/* The template lexer: a loop over text, comments, raw blocks and code. Brackets are only counted, so nothing is
 * recursive. */
#include "engine/jinja/jinja_lexer.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct lexer {
    const char *s;
    size_t n, i;
    bool at_line_start; /* at the start, or after a newline */
    struct jtoks *out;
    struct err_info *info;
};

enum err jinja_vfail_at(const char *source, size_t pos, struct err_info *info, const char *fmt, va_list args)
{
    unsigned long line = 1;
    unsigned long column = 1;
    for (size_t i = 0; i < pos; i++) {
        if (source[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)source[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    char text[ERR_TEXT_BYTES];
    vsnprintf(text, sizeof text, fmt, args);
    return err_set(info, ERR_TEMPLATE, NULL, "%lu:%lu: %s", line, column, text);
}

/* Fails at byte `pos` of the template. */
static enum err fail(const struct lexer *l, size_t pos, const char *fmt, ...) PRINTF_LIKE(3, 4);

static enum err fail(const struct lexer *l, size_t pos, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    enum err err = jinja_vfail_at(l->s, pos, l->info, fmt, args);
    va_end(args);
    return err;
}

static enum err push(struct lexer *l, enum jtok_kind kind, size_t from, size_t to, unsigned op)
{
    struct jtoks *t = l->out;
    enum err err = mem_grow(&t->at, t->n, &t->cap, sizeof *t->at, MEM_GENERAL);
    TRY_MEM_FOR(err == ERR_OK, l->info, "no memory for the tokens of the chat template");
    t->at[t->n++] =
        (struct jtok){.kind = (uint8_t)kind, .op = (uint16_t)op, .from = (uint32_t)from, .to = (uint32_t)to};
    return ERR_OK;
}

static bool has(const struct lexer *l, size_t at, const char *word)
{
    size_t k = strlen(word);
    return at <= l->n && l->n - at >= k && memcmp(l->s + at, word, k) == 0;
}

/* Returns the first byte from `at` on that begins no white space, by Python's definition, which exceeds ASCII. */
static size_t skip_space(const struct lexer *l, size_t at)
{
    while (at < l->n) {
        uint32_t cp;
        size_t k = utf8_decode(l->s + at, l->n - at, &cp, NULL);
        if (!ju_space(cp)) {
            break;
        }
        at += k;
    }
    return at;
}

/* Returns the end of s[from..to) without trailing white space. */
static size_t trim_right(const struct lexer *l, size_t from, size_t to)
{
    size_t end = from;
    for (size_t at = from; at < to;) {
        if (l->s[at] == ' ' || l->s[at] == '\n') { /* the most frequent cases */
            at++;
            continue;
        }
        uint32_t cp;
        at += utf8_decode(l->s + at, to - at, &cp, NULL);
        if (!ju_space(cp)) {
            end = at;
        }
    }
    return end;
}

/* Emits the text before a tag at s[to]. sign: the character after the tag's first two; is_print: {{. */
static enum err push_text(struct lexer *l, size_t from, size_t to, char sign, bool is_print)
{
    if (sign == '-') {
        to = trim_right(l, from, to);
    } else if (sign != '+' && !is_print) {
        size_t line = to;
        while (line > from && l->s[line - 1] != '\n') {
            line--;
        }
        if ((line > from || l->at_line_start) && trim_right(l, line, to) == line) {
            to = line;
        }
    }
    return to > from ? push(l, JT_TEXT, from, to, 0) : ERR_OK;
}

/* Returns the offset after a tag's end if s[at..] ends a tag whose last two characters are `end`, else 0. trim: an end
 * without a mark also consumes one newline. */
static size_t tag_end(const struct lexer *l, size_t at, const char *end, bool trim, bool plus)
{
    if (at < l->n && l->s[at] == '-' && has(l, at + 1, end)) {
        return skip_space(l, at + 3);
    }
    if (plus && at < l->n && l->s[at] == '+' && has(l, at + 1, end)) {
        return at + 3;
    }
    if (has(l, at, end)) {
        return at + 2 + (trim && at + 2 < l->n && l->s[at + 2] == '\n');
    }
    return 0;
}

static void move_to(struct lexer *l, size_t to)
{
    l->i = to;
    l->at_line_start = to > 0 && l->s[to - 1] == '\n';
}

static enum err lex_comment(struct lexer *l)
{
    size_t begin = l->i;
    char sign = begin + 2 < l->n ? l->s[begin + 2] : ' ';
    for (size_t at = begin + 2 + (sign == '-' || sign == '+'); at + 2 <= l->n; at++) {
        size_t end = tag_end(l, at, "#}", true, true);
        if (end != 0) {
            move_to(l, end);
            return ERR_OK;
        }
    }
    if (begin + 2 + (sign == '-' || sign == '+') == l->n) { /* jinja2 treats this as an empty comment */
        move_to(l, l->n);
        return ERR_OK;
    }
    return fail(l, begin, "expected the end of the comment, found the end of the template");
}

/* Returns the offset after `{% raw %}` if one begins at `at`, else 0. */
static size_t raw_begin(const struct lexer *l, size_t at)
{
    at += 2;
    at += at < l->n && (l->s[at] == '-' || l->s[at] == '+');
    at = skip_space(l, at);
    if (!has(l, at, "raw")) {
        return 0;
    }
    return tag_end(l, skip_space(l, at + 3), "%}", false, false);
}

static enum err lex_raw(struct lexer *l, size_t body)
{
    size_t begin = l->i;
    move_to(l, body);
    if (body == l->n) {
        return ERR_OK; /* as with comments */
    }
    for (size_t at = body; at + 2 <= l->n; at++) {
        if (!has(l, at, "{%")) {
            continue;
        }
        char sign = at + 2 < l->n ? l->s[at + 2] : ' ';
        size_t word = skip_space(l, at + 2 + (sign == '-' || sign == '+'));
        size_t end = has(l, word, "endraw") ? tag_end(l, skip_space(l, word + 6), "%}", true, true) : 0;
        if (end != 0) {
            TRY(push_text(l, body, at, sign, false));
            move_to(l, end);
            return ERR_OK;
        }
    }
    return fail(l, begin, "expected {%% endraw %%}, found the end of the template");
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static char at_char(const struct lexer *l, size_t at) { return at < l->n ? l->s[at] : '\0'; }

/* Reads digits with single underscores between them; returns the end. */
static size_t digits(const struct lexer *l, size_t at)
{
    while (is_digit(at_char(l, at)) || (at_char(l, at) == '_' && is_digit(at_char(l, at + 1)))) {
        at++;
    }
    return at;
}

static enum err lex_number(struct lexer *l)
{
    size_t from = l->i;
    size_t end = digits(l, from);
    bool is_float = false;
    if (from == 0 || l->s[from - 1] != '.') {
        if (at_char(l, end) == '.' && is_digit(at_char(l, end + 1))) {
            end = digits(l, end + 1);
            is_float = true;
        }
        char sign = at_char(l, end + 1);
        size_t exponent = end + 1 + (sign == '+' || sign == '-');
        if ((at_char(l, end) == 'e' || at_char(l, end) == 'E') && is_digit(at_char(l, exponent))) {
            end = digits(l, exponent);
            is_float = true;
        }
    }
    char base = at_char(l, from + 1) | 0x20;
    if (!is_float && l->s[from] == '0' && (base == 'x' || base == 'o' || base == 'b') &&
        is_word(at_char(l, from + 2))) {
        end = from + 2;
        while (is_word(at_char(l, end))) {
            end++;
        }
    }
    if (!is_float && l->s[from] == '0' && is_digit(l->s[end - 1]) && !(base == 'x' || base == 'o' || base == 'b')) {
        end = from; /* 007 is 00 and 7 */
        while (at_char(l, end) == '0' || (at_char(l, end) == '_' && at_char(l, end + 1) == '0')) {
            end++;
        }
    }
    l->i = end;
    return push(l, is_float ? JT_FLOAT : JT_INT, from, end, 0);
}

static enum err lex_string(struct lexer *l)
{
    size_t from = l->i;
    char quote = l->s[from];
    size_t at = from + 1;
    while (at < l->n && l->s[at] != quote) {
        at += l->s[at] == '\\' ? 2 : 1;
    }
    if (at >= l->n) {
        return fail(l, from, "expected the closing quote of a string, found the end of the template");
    }
    l->i = at + 1;
    return push(l, JT_STRING, from, at + 1, 0);
}

static enum err lex_operator(struct lexer *l, int *nest)
{
    static const struct {
        const char *text;
        unsigned op;
    } doubles[] = {{"**", JO_POW}, {"//", JO_FLOORDIV}, {"==", JO_EQ}, {"!=", JO_NE}, {"<=", JO_LE}, {">=", JO_GE}};
    size_t from = l->i;
    for (size_t k = 0; k < ARRAY_LEN(doubles); k++) {
        if (has(l, from, doubles[k].text)) {
            l->i += 2;
            return push(l, JT_OP, from, from + 2, doubles[k].op);
        }
    }
    char c = l->s[from];
    if (c == '\0' || strchr("+-*/%~()[]{}<>=.:|,;", c) == NULL) {
        return fail(l, from, "unexpected character '%.*s'", c >= ' ' && c < 127 ? 1 : 0, &c);
    }
    *nest += strchr("([{", c) != NULL;
    *nest -= strchr(")]}", c) != NULL;
    if (*nest < 0) {
        return fail(l, from, "unexpected '%c'", c);
    }
    l->i++;
    return push(l, JT_OP, from, from + 1, (unsigned char)c);
}

/* Reads the inside of {{ }} or {% %}, including its end. */
static enum err lex_code(struct lexer *l, bool is_print)
{
    int nest = 0;
    for (;;) {
        size_t end = 0;
        if (nest == 0) {
            end = is_print ? tag_end(l, l->i, "}}", false, false) : tag_end(l, l->i, "%}", true, true);
        }
        if (end != 0) {
            TRY(push(l, is_print ? JT_PRINT_END : JT_BLOCK_END, l->i, l->i + 2, 0));
            move_to(l, end);
            return ERR_OK;
        }
        l->i = skip_space(l, l->i);
        if (l->i >= l->n) {
            return ERR_OK; /* the parser reports the expected token */
        }
        if (nest == 0 && tag_end(l, l->i, is_print ? "}}" : "%}", false, !is_print) != 0) {
            continue;
        }
        char c = l->s[l->i];
        if (is_digit(c)) {
            TRY(lex_number(l));
        } else if (is_word(c)) {
            size_t from = l->i;
            while (is_word(at_char(l, l->i))) {
                l->i++;
            }
            TRY(push(l, JT_NAME, from, l->i, 0));
        } else if (c == '\'' || c == '"') {
            TRY(lex_string(l));
        } else {
            TRY(lex_operator(l, &nest));
        }
    }
}

static enum err lex_all(struct lexer *l)
{
    while (l->i < l->n) {
        size_t tag = l->i;
        while (tag < l->n &&
               !(l->s[tag] == '{' && tag + 1 < l->n && strchr("{%#", l->s[tag + 1]) != NULL && l->s[tag + 1] != '\0')) {
            tag++;
        }
        if (tag == l->n) {
            TRY(push(l, JT_TEXT, l->i, l->n, 0));
            break;
        }
        char kind = l->s[tag + 1];
        char sign = at_char(l, tag + 2);
        TRY(push_text(l, l->i, tag, sign, kind == '{'));
        l->i = tag;
        size_t raw = kind == '%' ? raw_begin(l, tag) : 0;
        if (raw != 0) {
            TRY(lex_raw(l, raw));
        } else if (kind == '#') {
            TRY(lex_comment(l));
        } else {
            TRY(push(l, kind == '{' ? JT_PRINT_BEGIN : JT_BLOCK_BEGIN, tag, tag + 2, 0));
            l->i = tag + 2 + (sign == '-' || sign == '+');
            TRY(lex_code(l, kind == '{'));
        }
    }
    return push(l, JT_EOF, l->n, l->n, 0);
}

enum err jinja_lex(const char *source, size_t n, struct jtoks *out, struct err_info *info)
{
    *out = (struct jtoks){0};
    struct lexer l = {.s = source, .n = n, .at_line_start = true, .out = out, .info = info};
    enum err e = lex_all(&l);
    if (e != ERR_OK) {
        mem_free(out->at);
        *out = (struct jtoks){0};
    }
    return e;
}
