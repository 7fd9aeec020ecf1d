/* Reads escapes and classes of characters. */
#include "engine/base/hex.h"
#include "engine/regex/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/regex/regex_internal.h"
#include "engine/regex/regex_property.h"

#include <string.h>

static const struct regex_range digits[] = {{'0', '9'}};
static const struct regex_range word_characters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* WhiteSpace and LineTerminator [ECMA-262 sections 12.2, 12.3; Zs of Unicode]. */
static const struct regex_range spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                            {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                            {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

/* Reads four digits after \u, or any number in braces; two escaped surrogates are one character. */
static enum err read_unicode(struct regex_reader *r, size_t begin, uint32_t *c)
{
    uint32_t low = 0;
    if (regex_reader_takes(r, '{')) {
        size_t first = r->at;
        *c = 0;
        while (r->at < r->n && hex_value(r->pattern[r->at]) >= 0 && *c <= LAST_CODE_POINT) {
            *c = *c << 4 | (uint32_t)hex_value(r->pattern[r->at++]);
        }
        if (r->at == first || *c > LAST_CODE_POINT || !regex_reader_takes(r, '}')) {
            return regex_reader_bad(r, begin, "\\u{ } without the number of a character");
        }
    } else if (!regex_reader_takes_hex(r, 4, c)) {
        return regex_reader_bad(r, begin, "\\u without four hexadecimal digits");
    } else if (*c >= FIRST_SURROGATE && *c < 0xDC00 && r->n - r->at >= 6 && memcmp(r->pattern + r->at, "\\u", 2) == 0) {
        r->at += 2;
        if (!regex_reader_takes_hex(r, 4, &low) || low < 0xDC00 || low > LAST_SURROGATE) {
            return regex_reader_bad(r, begin, "half a surrogate pair");
        }
        *c = 0x10000 + ((*c - FIRST_SURROGATE) << 10) + (low - 0xDC00);
    }
    bool is_half = *c >= FIRST_SURROGATE && *c <= LAST_SURROGATE;
    return is_half ? regex_reader_bad(r, begin, "half a surrogate pair") : ERR_OK;
}

/* Returns the character of an escape with the letter `e`. */
static enum err read_letter(struct regex_reader *r, size_t begin, char e, uint32_t *c)
{
    static const char letters[] = "tnvfr0", values[] = "\t\n\v\f\r";
    const char *found = strchr(letters, e);
    bool is_digit_next = r->at < r->n && r->pattern[r->at] >= '0' && r->pattern[r->at] <= '9';
    if (found != NULL && (e != '0' || !is_digit_next)) {
        *c = (unsigned char)values[found - letters]; /* the NUL after the values is \0 */
        return ERR_OK;
    }
    if (e == 'x') {
        return regex_reader_takes_hex(r, 2, c) ? ERR_OK
                                               : regex_reader_bad(r, begin, "\\x without two hexadecimal digits");
    }
    if (e == 'u') {
        return read_unicode(r, begin, c);
    }
    if (e == 'c') {
        char of = r->at < r->n ? r->pattern[r->at] : '\0';
        bool is_letter = (of | 0x20) >= 'a' && (of | 0x20) <= 'z';
        r->at += is_letter ? 1 : 0;
        *c = (uint32_t)of & 31;
        return is_letter ? ERR_OK : regex_reader_bad(r, begin, "\\c without a letter");
    }
    if ((e >= '0' && e <= '9') || e == 'k') {
        return regex_reader_bad(r, begin, "a back reference, which no regular expression can have");
    }
    return regex_reader_bad(r, begin, "an escape that does not exist");
}

/* Reads a property's name in braces, or of one letter, after \p or \P. */
static enum err read_property(struct regex_reader *r, size_t begin, bool others)
{
    enum { KEPT_WORK = 100, FOUND_WORK = 15000 };
    struct regex_ranges found = {NULL, 0, 0};
    size_t first = r->at + (r->at < r->n && r->pattern[r->at] == '{'), end = first;
    bool in_braces = first > r->at, was_kept;
    while (in_braces && end < r->n && r->pattern[end] != '}') {
        end++;
    }
    if (first == r->n || end == r->n) {
        return regex_reader_bad(r, begin, "\\p or \\P without the name of a property");
    }
    end += in_braces ? 0 : 1;
    r->at = end + in_braces;
    bool is_not = in_braces && r->pattern[first] == '^'; /* as in PCRE */
    if (++r->n_properties > REGEX_PARSE_MAX_PROPERTIES) {
        return err_set_at(r->info, ERR_GRAMMAR_LIMIT, begin,
                          "expected at most %d properties of characters, read to byte %zu", REGEX_PARSE_MAX_PROPERTIES,
                          begin);
    }
    enum err err = regex_property_add(&found, r->pattern + first + is_not, end - first - is_not, &was_kept);
    if (err == ERR_OK) {
        regex_spend(r->set, was_kept ? KEPT_WORK : FOUND_WORK);
        err = regex_ranges_add_all(&r->ranges, found.list, found.n, others != is_not);
    }
    mem_free(found.list);
    return err == ERR_INVALID_GRAMMAR ? regex_reader_bad(r, begin, "\\p or \\P with a property that is not known")
                                      : err;
}

/* Reads a set, which goes to r->ranges (*is_set), or a character, after a backslash. */
static enum err read_either(struct regex_reader *r, bool in_class, bool *is_set, uint32_t *c)
{
    size_t begin = r->at - 1;
    *is_set = false;
    if (r->at == r->n) {
        return regex_reader_bad(r, begin, "a backslash at the end");
    }
    unsigned char e = (unsigned char)r->pattern[r->at++];
    *is_set = e != '\0' && strchr("dDwWsSpP", e) != NULL;
    switch (e) {
    case 'd':
    case 'D':
        return regex_ranges_add_all(&r->ranges, digits, ARRAY_LEN(digits), e == 'D');
    case 'w':
    case 'W':
        return regex_ranges_add_all(&r->ranges, word_characters, ARRAY_LEN(word_characters), e == 'W');
    case 's':
    case 'S':
        return regex_ranges_add_all(&r->ranges, spaces, ARRAY_LEN(spaces), e == 'S');
    case 'p':
    case 'P':
        return read_property(r, begin, e == 'P');
    default:
        break;
    }
    bool is_letter = (e >= '0' && e <= '9') || ((e | 0x20) >= 'a' && (e | 0x20) <= 'z');
    if (in_class && e == 'b') {
        *c = '\b';
        return ERR_OK;
    }
    *c = e;
    if (is_letter) {
        return read_letter(r, begin, (char)e, c);
    }
    return e > ' ' && e < 0x7F ? ERR_OK : regex_reader_bad(r, begin, "an escape that does not exist");
}

enum err regex_read_escape(struct regex_reader *r, regex_id *out)
{
    bool is_set;
    uint32_t c = 0;
    r->ranges.n = 0;
    TRY(read_either(r, false, &is_set, &c));
    if (!is_set) {
        TRY(regex_ranges_add(&r->ranges, c, c));
    }
    return regex_reader_class(r, false, out);
}

/* Reads one character or set of a class; adds a set immediately. */
static enum err read_member(struct regex_reader *r, bool *is_set, uint32_t *c)
{
    *is_set = false;
    if (regex_reader_takes(r, '\\')) {
        return read_either(r, true, is_set, c);
    }
    *c = regex_reader_character(r);
    return ERR_OK;
}

enum err regex_read_class(struct regex_reader *r, regex_id *out)
{
    size_t begin = r->at - 1;
    bool others = regex_reader_takes(r, '^');
    r->ranges.n = 0;
    while (!regex_reader_takes(r, ']')) {
        size_t at = r->at;
        bool is_set = false, is_set_too = false;
        uint32_t first = 0, last = 0;
        if (at == r->n) {
            return regex_reader_bad(r, begin, "a class without its ]");
        }
        TRY(read_member(r, &is_set, &first));
        last = first;
        bool is_range = r->n - r->at >= 2 && r->pattern[r->at] == '-' && r->pattern[r->at + 1] != ']';
        if (is_range) {
            r->at++;
            TRY(read_member(r, &is_set_too, &last));
        }
        if (is_range && (is_set || is_set_too || last < first)) {
            return regex_reader_bad(r, at, "a range of characters that is none");
        }
        if (!is_set) {
            TRY(regex_ranges_add(&r->ranges, first, last));
        }
    }
    return regex_reader_class(r, others, out);
}
