/* One state per byte. Open objects and arrays are bits, so the scan neither allocates nor recurses. */
#include "engine/base/json_scan.h"

#include "engine/base/hex.h"

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool go(struct json_scan *s, enum json_scan_state state)
{
    s->state = state;
    return true;
}

static bool is_in_array(const struct json_scan *s) { return s->depth > 0 && (s->is_array >> (s->depth - 1) & 1) != 0; }

static bool open_one(struct json_scan *s, bool is_array)
{
    if (s->depth == JSON_SCAN_DEPTH) {
        return false;
    }
    uint64_t bit = (uint64_t)1 << s->depth++;
    s->is_array = is_array ? s->is_array | bit : s->is_array & ~bit;
    s->is_first = true;
    return go(s, is_array ? JSON_SCAN_VALUE : JSON_SCAN_KEY);
}

static bool close_one(struct json_scan *s, char c)
{
    if ((c == ']') != is_in_array(s)) {
        return false;
    }
    s->depth--;
    return go(s, s->depth == 0 ? JSON_SCAN_WHOLE : JSON_SCAN_AFTER);
}

static bool begin_string(struct json_scan *s, bool is_key)
{
    s->is_key = is_key;
    s->n_more = 0;
    s->high = 0;
    return go(s, JSON_SCAN_STRING);
}

static bool begin_word(struct json_scan *s, const char *rest)
{
    s->word = rest;
    return go(s, JSON_SCAN_WORD);
}

static bool begin_value(struct json_scan *s, char c)
{
    if (c == ']' && s->is_first) {
        return close_one(s, c);
    }
    s->is_first = false;
    switch (c) {
    case '{':
    case '[':
        return open_one(s, c == '[');
    case '"':
        return begin_string(s, false);
    case 't':
        return begin_word(s, "rue");
    case 'f':
        return begin_word(s, "alse");
    case 'n':
        return begin_word(s, "ull");
    case '-':
        return go(s, JSON_SCAN_MINUS);
    case '0':
        return go(s, JSON_SCAN_ZERO);
    default:
        return is_digit(c) && go(s, JSON_SCAN_DIGIT);
    }
}

static bool after_value(struct json_scan *s, char c)
{
    if (is_space(c)) {
        return true;
    }
    if (c == ',') {
        s->is_first = false;
        return go(s, is_in_array(s) ? JSON_SCAN_VALUE : JSON_SCAN_KEY);
    }
    return (c == '}' || c == ']') && close_one(s, c);
}

/* Handles a byte of a multi-byte character [RFC 3629]. */
static bool in_character(struct json_scan *s, unsigned char c)
{
    if (s->n_more > 0) {
        bool is_fit = c >= s->least && c <= s->most;
        s->n_more--;
        s->least = 0x80;
        s->most = 0xBF;
        return is_fit;
    }
    if (c < 0xC2 || c > 0xF4) {
        return false;
    }
    s->n_more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    s->least = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    s->most = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return true;
}

static bool in_string(struct json_scan *s, char c)
{
    unsigned char byte = (unsigned char)c;
    if (byte >= 0x80 || s->n_more > 0) {
        return in_character(s, byte);
    }
    if (c == '"') {
        return go(s, s->is_key ? JSON_SCAN_COLON : JSON_SCAN_AFTER);
    }
    return byte >= 0x20 && (c != '\\' || go(s, JSON_SCAN_ESCAPE));
}

static bool begin_hex(struct json_scan *s)
{
    s->n_hex = s->code = 0;
    return go(s, JSON_SCAN_HEX);
}

static bool in_escape(struct json_scan *s, char c)
{
    switch (c) {
    case 'u':
        return begin_hex(s);
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return go(s, JSON_SCAN_STRING);
    default:
        return false;
    }
}

/* Surrogates come in pairs. */
static bool in_hex(struct json_scan *s, char c)
{
    int digit = hex_value(c);
    if (digit < 0) {
        return false;
    }
    s->code = s->code * 16 + (unsigned)digit;
    if (++s->n_hex < 4) {
        return true;
    }
    bool is_high = s->code >= 0xD800 && s->code < 0xDC00, is_low = s->code >= 0xDC00 && s->code < 0xE000;
    if (is_low != (s->high != 0)) {
        return false;
    }
    s->high = is_high ? s->code : 0;
    return go(s, is_high ? JSON_SCAN_LOW : JSON_SCAN_STRING);
}

/* Handles a byte that can continue a number; any other byte ends it. */
static bool in_number(struct json_scan *s, char c)
{
    bool has_digits = s->state == JSON_SCAN_ZERO || s->state == JSON_SCAN_DIGIT;
    if (is_digit(c)) {
        switch (s->state) {
        case JSON_SCAN_MINUS:
            return go(s, c == '0' ? JSON_SCAN_ZERO : JSON_SCAN_DIGIT);
        case JSON_SCAN_ZERO:
            return false;
        case JSON_SCAN_POINT:
            return go(s, JSON_SCAN_FRACTION);
        case JSON_SCAN_E:
        case JSON_SCAN_SIGN:
            return go(s, JSON_SCAN_EXPONENT);
        default:
            return true;
        }
    }
    if (c == '.' && has_digits) {
        return go(s, JSON_SCAN_POINT);
    }
    if ((c == 'e' || c == 'E') && (has_digits || s->state == JSON_SCAN_FRACTION)) {
        return go(s, JSON_SCAN_E);
    }
    if ((c == '+' || c == '-') && s->state == JSON_SCAN_E) {
        return go(s, JSON_SCAN_SIGN);
    }
    bool is_number = has_digits || s->state == JSON_SCAN_FRACTION || s->state == JSON_SCAN_EXPONENT;
    return is_number && (is_space(c) || c == ',' || c == '}' || c == ']') && go(s, JSON_SCAN_AFTER) &&
           after_value(s, c);
}

static bool in_word(struct json_scan *s, char c)
{
    if (c != *s->word) {
        return false;
    }
    s->word++;
    return *s->word != '\0' || go(s, JSON_SCAN_AFTER);
}

static bool take(struct json_scan *s, char c)
{
    switch (s->state) {
    case JSON_SCAN_NOTHING:
        return is_space(c) || (c == '{' && open_one(s, false));
    case JSON_SCAN_WHOLE:
        return false;
    case JSON_SCAN_KEY:
        return is_space(c) || (c == '"' ? begin_string(s, true) : c == '}' && s->is_first && close_one(s, c));
    case JSON_SCAN_COLON:
        s->is_first = false;
        return is_space(c) || (c == ':' && go(s, JSON_SCAN_VALUE));
    case JSON_SCAN_VALUE:
        return is_space(c) || begin_value(s, c);
    case JSON_SCAN_AFTER:
        return after_value(s, c);
    case JSON_SCAN_STRING:
        return in_string(s, c);
    case JSON_SCAN_ESCAPE:
        return in_escape(s, c);
    case JSON_SCAN_HEX:
        return in_hex(s, c);
    case JSON_SCAN_LOW:
        return c == '\\' && go(s, JSON_SCAN_LOW_U);
    case JSON_SCAN_LOW_U:
        return c == 'u' && begin_hex(s);
    case JSON_SCAN_WORD:
        return in_word(s, c);
    default:
        return in_number(s, c);
    }
}

size_t json_scan_feed(struct json_scan *s, const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && take(s, text[i])) {
        i++;
    }
    return i;
}
