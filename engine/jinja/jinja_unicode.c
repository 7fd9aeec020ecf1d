/* Look-ups in the generated tables. Final sigma is not special-cased: U+03A3 always lowers to U+03C3. */
#include "engine/jinja/jinja_unicode.h"

static bool in_ranges(const struct ju_range *r, size_t n, uint32_t cp)
{
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        if (cp > r[mid].last) {
            lo = mid + 1;
        } else if (cp < r[mid].first) {
            n = mid;
        } else {
            return true;
        }
    }
    return false;
}

bool ju_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

bool ju_alpha(uint32_t cp) { return in_ranges(ju_alpha_ranges, n_ju_alpha_ranges, cp); }

bool ju_alnum(uint32_t cp) { return ju_alpha(cp) || ju_numeric(cp); }

bool ju_numeric(uint32_t cp) { return in_ranges(ju_numeric_ranges, n_ju_numeric_ranges, cp); }

bool ju_digit(uint32_t cp) { return in_ranges(ju_digit_ranges, n_ju_digit_ranges, cp); }

bool ju_printable(uint32_t cp)
{
    return cp < 0x7F ? cp >= 0x20 : in_ranges(ju_printable_ranges, n_ju_printable_ranges, cp);
}

static uint32_t map_case(const struct ju_case *r, size_t n, uint32_t cp)
{
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        if (cp > r[mid].last) {
            lo = mid + 1;
        } else if (cp < r[mid].first) {
            n = mid;
        } else {
            return (cp - r[mid].first) % r[mid].stride == 0 ? (uint32_t)((int32_t)cp + r[mid].delta) : cp;
        }
    }
    return cp;
}

bool ju_is_upper(uint32_t cp) { return in_ranges(ju_uppercase_ranges, n_ju_uppercase_ranges, cp); }

bool ju_is_lower(uint32_t cp) { return in_ranges(ju_lowercase_ranges, n_ju_lowercase_ranges, cp); }

bool ju_is_title(uint32_t cp) { return in_ranges(ju_titlecase_ranges, n_ju_titlecase_ranges, cp); }

static size_t map_special(const struct ju_special *s, size_t n, uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; i < n; i++) {
        if (s[i].cp == cp) {
            size_t k = 0;
            for (; k < 3 && s[i].to[k] != 0; k++) {
                out[k] = s[i].to[k];
            }
            return k;
        }
    }
    return 0;
}

size_t ju_map(uint32_t cp, enum ju_to to, uint32_t out[3])
{
    out[0] = cp;
    if (cp < 0x80) {
        bool lower = cp >= 'a' && cp <= 'z';
        bool upper = cp >= 'A' && cp <= 'Z';
        out[0] = to == JU_LOWER ? (upper ? cp + 32 : cp) : (lower ? cp - 32 : cp);
        return 1;
    }
    if (to == JU_LOWER) {
        out[0] = map_case(ju_lower_rows, n_ju_lower_rows, cp);
        if (cp == 0x130) { /* the one code point whose lower case is two */
            out[0] = 'i';
            out[1] = 0x307;
            return 2;
        }
        return 1;
    }
    size_t n = to == JU_UPPER ? map_special(ju_upper_special, n_ju_upper_special, cp, out)
                              : map_special(ju_title_special, n_ju_title_special, cp, out);
    if (n == 0) {
        out[0] = map_case(ju_upper_rows, n_ju_upper_rows, cp);
        n = 1;
    }
    return n;
}
