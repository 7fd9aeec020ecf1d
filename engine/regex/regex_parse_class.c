/* Escapes and classes of characters: sets of code points, which are sorted, negated for [^ or \D, and converted to an
 * expression. */
#include "engine/base/hex.h"
#include "engine/regex/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/regex/regex_internal.h"
#include "engine/regex/regex_property.h"

#include <stdlib.h>
#include <string.h>

enum { FEW_RANGES = 24, LAST_CODE_POINT = 0x10FFFF, FIRST_SURROGATE = 0xD800, LAST_SURROGATE = 0xDFFF };

static const struct regex_range digits[] = {{'0', '9'}};
static const struct regex_range word_characters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* WhiteSpace and LineTerminator [ECMA-262 sections 12.2, 12.3; Zs of Unicode]. */
static const struct regex_range spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                            {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                            {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

enum err regex_ranges_add(struct regex_ranges *to, uint32_t first, uint32_t last)
{
    if (to->n == to->cap) {
        size_t cap = to->cap == 0 ? 16 : 2 * to->cap;
        struct regex_range *grown = mem_realloc(to->list, cap * sizeof *grown, MEM_REQUEST);
        TRY_MEM(grown != NULL);
        to->list = grown;
        to->cap = cap;
    }
    to->list[to->n++] = (struct regex_range){first, last};
    return ERR_OK;
}

/* Adds the ranges of list[0..n), which are sorted, or all other characters. */
static enum err add_all(struct regex_ranges *to, const struct regex_range *list, size_t n, bool others)
{
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (!others) {
            TRY(regex_ranges_add(to, list[i].first, list[i].last));
        } else if (list[i].first > next) {
            TRY(regex_ranges_add(to, next, list[i].first - 1));
        }
        next = list[i].last + 1;
    }
    return others && next <= LAST_CODE_POINT ? regex_ranges_add(to, next, LAST_CODE_POINT) : ERR_OK;
}

static int order_ranges(const void *a, const void *b)
{
    const struct regex_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the ranges and joins adjacent ones. */
static void merge(struct regex_ranges *r)
{
    size_t n = 0;
    if (r->n > 1) {
        qsort(r->list, r->n, sizeof *r->list, order_ranges);
    }
    for (size_t i = 0; i < r->n; i++) {
        if (n > 0 && r->list[i].first <= r->list[n - 1].last + 1) {
            r->list[n - 1].last = MAX_OF(r->list[n - 1].last, r->list[i].last);
        } else {
            r->list[n++] = r->list[i];
        }
    }
    r->n = n;
}

/* A union in one step is linear; one that grows range by range has as many forms as ranges. */
static enum err one_of(struct regex_set *s, const struct regex_ranges *ranges, regex_id *out)
{
    regex_id *ids = mem_zalloc_array(ranges->n, sizeof *ids, MEM_REQUEST);
    TRY_MEM(ids != NULL);
    for (size_t i = 0; i < ranges->n; i++) {
        ids[i] = regex_code_points(s, &ranges->list[i], 1);
    }
    *out = regex_or_all(s, ids, ranges->n);
    mem_free(ids);
    return regex_ok(s);
}

/* Builds a class of many ranges, with a cache: classes of properties are often repeated, and slow to build. *is_new:
 * not from the cache. */
static enum err one_of_many(struct regex_set *s, const struct regex_ranges *ranges, bool *is_new, regex_id *out)
{
    struct regex_hash name = {ranges->n, 0};
    for (size_t i = 0; i < ranges->n; i++) {
        const uint64_t words[] = {name.a, name.b, (uint64_t)ranges->list[i].first << 32 | ranges->list[i].last};
        name = regex_hash_words(words, ARRAY_LEN(words));
    }
    for (size_t i = 0; i < N_REGEX_WIDES; i++) {
        if (s->wides[i].id != REGEX_NONE && s->wides[i].ranges.a == name.a && s->wides[i].ranges.b == name.b) {
            *out = s->wides[i].id;
            return ERR_OK;
        }
    }
    *is_new = true;
    *out = regex_characters(s, ranges->list, ranges->n);
    s->wides[s->n_wides++ % N_REGEX_WIDES] = (struct regex_wide){name, *out};
    return regex_ok(s);
}

/* Adds the other case of each ASCII letter of the ranges. */
static enum err add_cases(struct regex_ranges *r)
{
    for (size_t i = 0, n = r->n; i < n; i++) {
        for (uint32_t first = 'A'; first <= 'a'; first += 'a' - 'A') {
            uint32_t other = first ^ ('a' - 'A'), from = MAX_OF(r->list[i].first, first);
            uint32_t to = MIN_OF(r->list[i].last, first + 25);
            TRY(from <= to ? regex_ranges_add(r, from - first + other, to - first + other) : ERR_OK);
        }
    }
    return ERR_OK;
}

/* UTF-8 has no surrogates, so ranges across them are cut. *n_wide: number of ranges beyond ASCII, weighted by their
 * cost. */
static enum err cut_surrogates(const struct regex_ranges *all, struct regex_ranges *cut, size_t *n_wide)
{
    for (size_t i = 0; i < all->n; i++) {
        struct regex_range x = all->list[i];
        TRY(x.first < FIRST_SURROGATE ? regex_ranges_add(cut, x.first, MIN_OF(x.last, FIRST_SURROGATE - 1u)) : ERR_OK);
        TRY(x.last > LAST_SURROGATE ? regex_ranges_add(cut, MAX_OF(x.first, LAST_SURROGATE + 1u), x.last) : ERR_OK);
        *n_wide += x.last <= 0x7F ? 0 : x.last - x.first < 64 || all->n > FEW_RANGES ? 1 : 4;
    }
    return ERR_OK;
}

static enum err too_wide(struct regex_reader *r)
{
    return err_set_at(r->info, ERR_GRAMMAR_LIMIT, r->at,
                      "expected at most %d ranges of characters beyond ASCII, read to byte %zu", REGEX_PARSE_MAX_WIDE,
                      r->at);
}

enum err regex_reader_class(struct regex_reader *r, bool others, regex_id *out)
{
    struct regex_ranges all = {NULL, 0, 0}, cut = {NULL, 0, 0};
    size_t n_wide = 0;
    bool is_new = false;
    TRY((r->flags & REGEX_ANY_CASE) != 0 ? add_cases(&r->ranges) : ERR_OK);
    merge(&r->ranges);
    enum err err = add_all(&all, r->ranges.list, r->ranges.n, others);
    err = err == ERR_OK ? cut_surrogates(&all, &cut, &n_wide) : err;
    if (err == ERR_OK && cut.n <= FEW_RANGES) {
        r->n_wide += n_wide;
        err = r->n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : one_of(r->set, &cut, out);
    } else if (err == ERR_OK) {
        err = n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : one_of_many(r->set, &cut, &is_new, out);
        r->n_wide += is_new ? n_wide : 0;
        err = err == ERR_OK && r->n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : err;
    }
    mem_free(all.list);
    mem_free(cut.list);
    r->ranges.n = 0;
    return err;
}

bool regex_reader_takes_hex(struct regex_reader *r, size_t n, uint32_t *value)
{
    *value = 0;
    if (r->n - r->at < n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        int digit = hex_value(r->pattern[r->at + i]);
        if (digit < 0) {
            return false;
        }
        *value = *value << 4 | (uint32_t)digit;
    }
    r->at += n;
    return true;
}

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
        err = add_all(&r->ranges, found.list, found.n, others != is_not);
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
        return add_all(&r->ranges, digits, ARRAY_LEN(digits), e == 'D');
    case 'w':
    case 'W':
        return add_all(&r->ranges, word_characters, ARRAY_LEN(word_characters), e == 'W');
    case 's':
    case 'S':
        return add_all(&r->ranges, spaces, ARRAY_LEN(spaces), e == 'S');
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

regex_id regex_any_but_line_ends(struct regex_set *s)
{
    static const struct regex_range ranges[] = {
        {0, 9}, {11, 12}, {14, 0x2027}, {0x202A, FIRST_SURROGATE - 1}, {LAST_SURROGATE + 1, LAST_CODE_POINT}};
    return regex_code_points(s, ranges, ARRAY_LEN(ranges));
}

regex_id regex_any_but_newline(struct regex_set *s)
{
    static const struct regex_range ranges[] = {
        {0, 9}, {11, FIRST_SURROGATE - 1}, {LAST_SURROGATE + 1, LAST_CODE_POINT}};
    return regex_code_points(s, ranges, ARRAY_LEN(ranges));
}

regex_id regex_any_character(struct regex_set *s)
{
    static const struct regex_range ranges[] = {{0, FIRST_SURROGATE - 1}, {LAST_SURROGATE + 1, LAST_CODE_POINT}};
    if (s->any_character == REGEX_NONE) {
        s->any_character = regex_code_points(s, ranges, ARRAY_LEN(ranges));
    }
    return s->err == ERR_OK ? s->any_character : REGEX_NONE;
}
