/* UTF-8 decoding, because every stream boundary and every error text needs the same few rules. Does not normalise. */
#include "engine/base/utf8.h"

/* Returns the length of the sequence that `lead` starts, 0 if it starts none (continuation bytes, C0, C1, F5..FF). */
static size_t sequence_length(unsigned char lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return 2;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        return 3;
    }
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* Is `b` a legal second byte after `lead`? Excludes overlong forms, surrogates and values over U+10FFFF. */
static bool second_byte_ok(unsigned char lead, unsigned char b)
{
    switch (lead) {
    case 0xE0:
        return b >= 0xA0 && b <= 0xBF;
    case 0xED:
        return b >= 0x80 && b <= 0x9F;
    case 0xF0:
        return b >= 0x90 && b <= 0xBF;
    case 0xF4:
        return b >= 0x80 && b <= 0x8F;
    default:
        return (b & 0xC0) == 0x80;
    }
}

/* Returns how many bytes of the sequence at s are present and legal, up to its full length `need`. */
static size_t legal_prefix(const unsigned char *s, size_t n, size_t need)
{
    size_t have = 1;
    while (have < need && have < n) {
        bool ok = have == 1 ? second_byte_ok(s[0], s[1]) : (s[have] & 0xC0) == 0x80;
        if (!ok) {
            break;
        }
        have++;
    }
    return have;
}

size_t utf8_decode(const char *str, size_t n, uint32_t *cp, bool *valid)
{
    const unsigned char *s = (const unsigned char *)str;
    size_t need = sequence_length(s[0]);
    bool ok = need != 0 && legal_prefix(s, n, need) == need;
    if (valid != NULL) {
        *valid = ok;
    }
    if (!ok) {
        *cp = UTF8_REPLACEMENT;
        return 1;
    }
    static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t value = s[0] & lead_mask[need];
    for (size_t i = 1; i < need; i++) {
        value = value << 6 | (s[i] & 0x3Fu);
    }
    *cp = value;
    return need;
}

size_t utf8_encode(uint32_t cp, char *out)
{
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        cp = UTF8_REPLACEMENT;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : 3 + (size_t)(cp >= 0x10000);
    for (size_t i = n - 1; i > 0; i--, cp >>= 6) {
        out[i] = (char)(0x80 | (cp & 0x3F));
    }
    out[0] = (char)(leads[n] | cp);
    return n;
}

bool utf8_valid(const char *s, size_t n, size_t *bad_at)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool ok;
        size_t used = utf8_decode(s + i, n - i, &cp, &ok);
        if (!ok) {
            if (bad_at != NULL) {
                *bad_at = i;
            }
            return false;
        }
        i += used;
    }
    return true;
}

size_t utf8_incomplete_tail(const char *str, size_t n)
{
    const unsigned char *s = (const unsigned char *)str;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t need = sequence_length(s[n - back]);
        if (need > back) {
            return legal_prefix(s + n - back, back, need) == back ? back : 0;
        }
        if (need != 0) {
            return 0;
        }
    }
    return 0;
}
