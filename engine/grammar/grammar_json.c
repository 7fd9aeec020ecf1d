#include "engine/grammar/grammar_json.h"

#include "engine/base/compiler.h"

#include <string.h>

static regex_id bytes(struct regex_set *s, const char *text) { return regex_bytes(s, text, strlen(text)); }

static regex_id class_of(struct regex_set *s, const char *all)
{
    uint64_t bits[4] = {0};
    for (; *all != '\0'; all++) {
        bits[(unsigned char)*all / 64] |= (uint64_t)1 << *all % 64;
    }
    return regex_byte_class(s, bits);
}

static regex_id row(struct regex_set *s, const regex_id *parts, size_t n)
{
    regex_id r = REGEX_EMPTY;
    for (size_t i = n; i > 0; i--) {
        r = regex_concat(s, parts[i - 1], r);
    }
    return r;
}

regex_id grammar_json_spaces(struct grammar_builder *b)
{
    struct regex_set *s = grammar_regexes(b);
    return regex_repeat(s, class_of(s, " \t\r\n"), 0, GRAMMAR_JSON_SPACES);
}

/* \uD83D\uDE00: a surrogate must be followed by its other half. */
static regex_id escape(struct regex_set *s)
{
    regex_id hex = class_of(s, "0123456789abcdefABCDEF"), d = class_of(s, "dD");
    const regex_id other[] = {class_of(s, "0123456789abcefABCEF"), hex, hex, hex};
    const regex_id below[] = {d, class_of(s, "01234567"), hex, hex};
    const regex_id pair[] = {d, class_of(s, "89abAB"), hex, hex, bytes(s, "\\u"), d, class_of(s, "cdefCDEF"), hex, hex};
    const regex_id code[] = {row(s, other, ARRAY_LEN(other)), row(s, below, ARRAY_LEN(below)),
                             row(s, pair, ARRAY_LEN(pair))};
    const regex_id kinds[] = {class_of(s, "\"\\/bfnrt"),
                              regex_concat(s, bytes(s, "u"), regex_or_all(s, code, ARRAY_LEN(code)))};
    return regex_concat(s, bytes(s, "\\"), regex_or_all(s, kinds, ARRAY_LEN(kinds)));
}

regex_id grammar_json_string(struct grammar_builder *b)
{
    static const struct regex_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    struct regex_set *s = grammar_regexes(b);
    regex_id character = regex_or(s, regex_code_points(s, plain, ARRAY_LEN(plain)), escape(s));
    const regex_id parts[] = {bytes(s, "\""), regex_repeat(s, character, 0, REGEX_UNBOUNDED), bytes(s, "\"")};
    return row(s, parts, ARRAY_LEN(parts));
}

regex_id grammar_json_number(struct grammar_builder *b)
{
    struct regex_set *s = grammar_regexes(b);
    regex_id digit = regex_byte_range(s, '0', '9'), digits = regex_repeat(s, digit, 1, REGEX_UNBOUNDED);
    regex_id whole = regex_or(
        s, bytes(s, "0"), regex_concat(s, regex_byte_range(s, '1', '9'), regex_repeat(s, digit, 0, REGEX_UNBOUNDED)));
    const regex_id exponent[] = {class_of(s, "eE"), regex_repeat(s, class_of(s, "+-"), 0, 1), digits};
    const regex_id parts[] = {regex_repeat(s, bytes(s, "-"), 0, 1), whole,
                              regex_repeat(s, regex_concat(s, bytes(s, "."), digits), 0, 1),
                              regex_repeat(s, row(s, exponent, ARRAY_LEN(exponent)), 0, 1)};
    return row(s, parts, ARRAY_LEN(parts));
}

/* Returns `of` between two brackets, separated by commas. */
static symbol_id list(struct grammar_builder *b, const char *open, symbol_id of, const char *close)
{
    struct regex_set *s = grammar_regexes(b);
    regex_id spaces = grammar_json_spaces(b);
    const regex_id comma[] = {spaces, bytes(s, ","), spaces};
    symbol_id more = grammar_sequence(b, (symbol_id[]){grammar_lexeme(b, row(s, comma, ARRAY_LEN(comma))), of}, 2);
    const symbol_id some[] = {grammar_lexeme(b, regex_concat(s, bytes(s, open), spaces)), of,
                              grammar_repeat(b, more, 0, REGEX_UNBOUNDED),
                              grammar_lexeme(b, regex_concat(s, spaces, bytes(s, close)))};
    const regex_id none[] = {bytes(s, open), spaces, bytes(s, close)};
    return grammar_choice(
        b, (symbol_id[]){grammar_sequence(b, some, ARRAY_LEN(some)), grammar_lexeme(b, row(s, none, ARRAY_LEN(none)))},
        2);
}

/* Returns a value; *object: the object among its alternatives. */
static symbol_id make(struct grammar_builder *b, symbol_id *object)
{
    struct regex_set *s = grammar_regexes(b);
    regex_id spaces = grammar_json_spaces(b), string = grammar_json_string(b);
    const regex_id key[] = {string, spaces, bytes(s, ":"), spaces};
    const regex_id scalars[] = {string, grammar_json_number(b), bytes(s, "true"), bytes(s, "false"), bytes(s, "null")};
    symbol_id value = grammar_rule(b);
    *object =
        list(b, "{", grammar_sequence(b, (symbol_id[]){grammar_lexeme(b, row(s, key, ARRAY_LEN(key))), value}, 2), "}");
    const symbol_id kinds[] = {grammar_lexeme(b, regex_or_all(s, scalars, ARRAY_LEN(scalars))), *object,
                               list(b, "[", value, "]")};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        grammar_alternative(b, value, &kinds[i], 1);
    }
    return value;
}

symbol_id grammar_json_value(struct grammar_builder *b)
{
    symbol_id object;
    return make(b, &object);
}

symbol_id grammar_json_object(struct grammar_builder *b)
{
    symbol_id object;
    make(b, &object);
    return object;
}
