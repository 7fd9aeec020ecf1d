#include "engine/grammar/schema_text.h"

#include "engine/base/compiler.h"
#include "engine/grammar/regex_parse.h"

#include <string.h>

/* --- formats --------------------------------------------------------------------------------------------------------- */

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DAYS                                                                                                           \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define DATE   "(?:" YEAR "-" DAYS "|" LEAP "-02-29)"
#define TIME   "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define ALNUM  "[A-Za-z0-9]"
#define LDH    "[A-Za-z0-9-]"
#define LABEL  ALNUM "(?:" LDH "{0,61}" ALNUM ")?"
/* Without dashes at both the third and the fourth place, as xn-- has. Not said by a complement: behind such dashes nothing can follow,
 * and that would be found by looking through all counts of letters and labels. */
#define PLAIN        ALNUM "(?:" LDH "{0,2}" ALNUM "|" LDH "(?:" ALNUM LDH "|-" ALNUM ")" LDH "{0,58}" ALNUM ")?"
#define HOST(label)  label "(?:\\." label ")*"
#define ATOM   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define OCTET  "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4   "[0-9A-Fa-f]{1,4}"
#define PCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define NCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})" /* without a colon */
#define UCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
#define RCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
#define SERVER "//(?:" UCHAR "*@)?" RCHAR "*(?::\\d*)?(?:/" PCHAR "*)*"
#define ROOTED "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define TAIL   "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"

/* Sources: RFC 3339 (dates; no leap seconds), 5321 (mailboxes without quotes), 1123, 2673, 4291, 3986, 4122. */
static const struct {
    const char *name, *pattern;
    uint32_t max; /* bytes; 0 = any number */
} formats[] = {
    {"date", "^" DATE "$", 0},
    {"time", "^" TIME "$", 0},
    {"date-time", "^" DATE "T" TIME "$", 0},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" HOST(LABEL) "$", 254},
    {"hostname", "^" HOST(PLAIN) "$", 253},
    {"ipv4", "^" OCTET "(?:\\." OCTET "){3}$", 0},
    {"ipv6",
     "^(?:(?:" HEX4 ":){7}" HEX4 "|(?:" HEX4 ":){1,7}:|(?:" HEX4 ":){1,6}:" HEX4 "|(?:" HEX4 ":){1,5}(?::" HEX4
     "){1,2}|(?:" HEX4 ":){1,4}(?::" HEX4 "){1,3}|(?:" HEX4 ":){1,3}(?::" HEX4 "){1,4}|(?:" HEX4 ":){1,2}(?::" HEX4
     "){1,5}|" HEX4 ":(?::" HEX4 "){1,6}|:(?:(?::" HEX4 "){1,7}|:))$",
     0},
    {"uri", "^" SCHEME "(?:" SERVER "|" ROOTED "|" PCHAR "+(?:/" PCHAR "*)*)?" TAIL "$", 0},
    {"uri-reference",
     "^(?:" SCHEME "(?:" SERVER "|" ROOTED "|" PCHAR "+(?:/" PCHAR "*)*)?|" SERVER "|" ROOTED "|" NCHAR "+(?:/" PCHAR
     "*)*)?" TAIL "$",
     0},
    {"uuid", "^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$", 0},
};

static regex_id parse(struct regex_set *s, const char *pattern)
{
    regex_id r;
    struct err_info ignored;
    return regex_parse(s, pattern, strlen(pattern), true, &r, &ignored) == ERR_OK ? r : REGEX_NONE;
}

enum schema_format schema_format_of(struct regex_set *s, const char *name, regex_id *out)
{
    static const char *const refused[] = {"duration",      "idn-email",    "idn-hostname",          "iri",
                                          "iri-reference", "json-pointer", "relative-json-pointer", "regex",
                                          "uri-template"};
    *out = REGEX_NONE;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (strcmp(name, refused[i]) == 0) {
            return SCHEMA_FORMAT_REFUSED;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        if (strcmp(name, formats[i].name) == 0) {
            *out = parse(s, formats[i].pattern);
            *out = formats[i].max != 0
                       ? regex_and(s, *out, regex_repeat(s, regex_byte_range(s, 0, 127), 0, formats[i].max))
                       : *out;
            return SCHEMA_FORMAT_KNOWN;
        }
    }
    return SCHEMA_FORMAT_UNKNOWN;
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

enum { MAX_DIGITS = 20 };

static int count_digits(uint64_t v)
{
    int n = 1;
    for (; v >= 10; v /= 10) {
        n++;
    }
    return n;
}

static uint64_t power_of_ten(int n)
{
    uint64_t v = 1;
    while (n-- > 0) {
        v *= 10;
    }
    return v;
}

static regex_id digit(struct regex_set *s, unsigned first, unsigned last)
{
    return first <= last ? regex_byte_range(s, '0' + first, '0' + last) : REGEX_NONE;
}

/* from .. to of n digits each: those with the first one's digits up to one that is higher, with the last one's up to one that is
 * lower, and what is between. */
static regex_id same_length(struct regex_set *s, uint64_t from, uint64_t to, int n)
{
    unsigned a[MAX_DIGITS], b[MAX_DIGITS];
    for (int i = n - 1; i >= 0; i--, from /= 10, to /= 10) {
        a[i] = (unsigned)(from % 10);
        b[i] = (unsigned)(to % 10);
    }
    regex_id low = REGEX_EMPTY, high = REGEX_EMPTY, rest = REGEX_EMPTY;
    int common = 0;
    while (common < n && a[common] == b[common]) {
        common++;
    }
    for (int i = n - 1; i > common; i--) {
        low = regex_or(s, regex_concat(s, digit(s, a[i], a[i]), low), regex_concat(s, digit(s, a[i] + 1, 9), rest));
        regex_id below = b[i] > 0 ? digit(s, 0, b[i] - 1) : REGEX_NONE;
        high = regex_or(s, regex_concat(s, digit(s, b[i], b[i]), high), regex_concat(s, below, rest));
        rest = regex_concat(s, digit(s, 0, 9), rest);
    }
    regex_id r = REGEX_EMPTY;
    if (common < n) {
        const regex_id parts[] = {regex_concat(s, digit(s, a[common], a[common]), low),
                                  regex_concat(s, digit(s, a[common] + 1, b[common] - 1), rest),
                                  regex_concat(s, digit(s, b[common], b[common]), high)};
        r = regex_or_all(s, parts, ARRAY_LEN(parts));
    }
    for (int i = common; i > 0; i--) {
        r = regex_concat(s, digit(s, a[i - 1], a[i - 1]), r);
    }
    return r;
}

/* Whole numbers from .. to, without leading zeros; to: UINT64_MAX = all above. */
static regex_id whole(struct regex_set *s, uint64_t from, uint64_t to)
{
    regex_id r = REGEX_NONE;
    if (from > to) {
        return r;
    }
    int first = count_digits(from), last = to != UINT64_MAX ? count_digits(to) : first;
    for (int n = first; n <= last; n++) {
        uint64_t least = n == first ? from : power_of_ten(n - 1);
        uint64_t most = n < last || to == UINT64_MAX ? power_of_ten(n) - 1 : to;
        r = regex_or(s, r, same_length(s, least, most, n));
    }
    if (to == UINT64_MAX) {
        regex_id more = regex_repeat(s, digit(s, 0, 9), (uint32_t)first, REGEX_UNBOUNDED);
        r = regex_or(s, r, regex_concat(s, digit(s, 1, 9), more));
    }
    return r;
}

/* .0 or nothing; .05; any or nothing. */
static regex_id fraction(struct regex_set *s, bool may_be_zero, bool may_be_more)
{
    regex_id zeros = regex_repeat(s, digit(s, 0, 0), 0, REGEX_UNBOUNDED),
             any = regex_repeat(s, digit(s, 0, 9), 0, REGEX_UNBOUNDED);
    regex_id point = regex_bytes(s, ".", 1);
    regex_id none = regex_repeat(s, regex_concat(s, point, regex_concat(s, digit(s, 0, 0), zeros)), 0, 1);
    regex_id some = regex_concat(s, point, regex_concat(s, zeros, regex_concat(s, digit(s, 1, 9), any)));
    return regex_or(s, may_be_zero ? none : REGEX_NONE, may_be_more ? some : REGEX_NONE);
}

/* Numbers of 0 and more, without a sign; to: UINT64_MAX = all above. */
static regex_id positive(struct regex_set *s, uint64_t from, bool from_open, uint64_t to, bool to_open, bool is_whole)
{
    if (is_whole) {
        return to == UINT64_MAX ? whole(s, from + from_open, to)
               : to < to_open   ? REGEX_NONE
                                : whole(s, from + from_open, to - to_open);
    }
    if (from > to) {
        return REGEX_NONE;
    }
    regex_id any = fraction(s, true, true);
    regex_id at_from = from < to ? fraction(s, !from_open, true) : fraction(s, !from_open && !to_open, false);
    regex_id r = regex_concat(s, whole(s, from, from), at_from);
    if (from < to && to != UINT64_MAX) {
        r = regex_or(s, r, regex_concat(s, whole(s, from + 1, to - 1), any));
        return regex_or(s, r, regex_concat(s, whole(s, to, to), fraction(s, !to_open, false)));
    }
    return from < to ? regex_or(s, r, regex_concat(s, whole(s, from + 1, to), any)) : r;
}

regex_id schema_numbers(struct regex_set *s, struct schema_bound min, struct schema_bound max, bool is_whole)
{
    regex_id r = REGEX_NONE;
    if (!max.is_there || max.value >= 0) {
        bool has_min = min.is_there && min.value >= 0;
        r = positive(s, has_min ? (uint64_t)min.value : 0, has_min && min.is_open,
                     max.is_there ? (uint64_t)max.value : UINT64_MAX, max.is_there && max.is_open, is_whole);
    }
    if (!min.is_there || min.value < 0) { /* and what is below 0, turned */
        bool has_max = max.is_there && max.value <= 0;
        regex_id below =
            positive(s, has_max ? (uint64_t)-max.value : 0, has_max && max.is_open,
                     min.is_there ? (uint64_t)-min.value : UINT64_MAX, min.is_there && min.is_open, is_whole);
        r = regex_or(s, r, regex_concat(s, regex_bytes(s, "-", 1), below));
    }
    return r;
}

/* --- decimals ---------------------------------------------------------------------------------------------------------- */

/* The digits behind the point, without zeros at the end; how many. */
static int digits_of(uint64_t fraction, int places, unsigned out[SCHEMA_MAX_PLACES])
{
    int n = places;
    for (int i = places - 1; i >= 0; i--, fraction /= 10) {
        out[i] = (unsigned)(fraction % 10);
    }
    while (n > 0 && out[n - 1] == 0) {
        n--;
    }
    return n;
}

/* A point and digits that say more than d[0..n), n > 0, or less; and d itself, unless is_open. */
static regex_id fraction_beyond(struct regex_set *s, const unsigned *d, int n, bool is_more, bool is_open)
{
    regex_id any = regex_repeat(s, digit(s, 0, 9), 0, REGEX_UNBOUNDED),
             zeros = regex_repeat(s, digit(s, 0, 0), 0, REGEX_UNBOUNDED);
    regex_id some = regex_concat(s, zeros, regex_concat(s, digit(s, 1, 9), any));
    regex_id r = is_more ? (is_open ? some : any) : (is_open ? REGEX_NONE : zeros);
    for (int i = n - 1; i >= 0; i--) { /* r: what may stand behind d[0 .. i] */
        regex_id here = is_more ? digit(s, d[i] + 1, 9) : d[i] > 0 ? digit(s, 0, d[i] - 1) : REGEX_NONE;
        bool may_end = !is_more && i > 0; /* with less than d */
        r = regex_or(s, regex_concat(s, digit(s, d[i], d[i]), r), regex_concat(s, here, any));
        r = may_end ? regex_or(s, r, REGEX_EMPTY) : r;
    }
    return regex_concat(s, regex_bytes(s, ".", 1), r);
}

/* Numbers without a sign, of the value and beyond. */
static regex_id beyond(struct regex_set *s, uint64_t value, int places, bool is_more, bool is_open)
{
    unsigned d[SCHEMA_MAX_PLACES];
    uint64_t front = value / power_of_ten(places);
    int n = digits_of(value % power_of_ten(places), places, d);
    regex_id any = fraction(s, true, true), here;
    if (n == 0) {
        here = is_more ? fraction(s, !is_open, true) : fraction(s, !is_open, false);
    } else {
        here = fraction_beyond(s, d, n, is_more, is_open);
        here = is_more ? here : regex_or(s, here, fraction(s, true, false));
    }
    regex_id others = is_more ? whole(s, front + 1, UINT64_MAX) : front > 0 ? whole(s, 0, front - 1) : REGEX_NONE;
    return regex_or(s, regex_concat(s, whole(s, front, front), here), regex_concat(s, others, any));
}

regex_id schema_numbers_from(struct regex_set *s, struct schema_decimal at, bool is_min, bool is_open)
{
    bool is_negative = at.value < 0;
    uint64_t value = is_negative ? (uint64_t)-at.value : (uint64_t)at.value;
    regex_id all = regex_concat(s, whole(s, 0, UINT64_MAX), fraction(s, true, true));
    regex_id minus = regex_bytes(s, "-", 1);
    if (is_min && !is_negative) {
        return beyond(s, value, at.places, true, is_open);
    }
    if (is_min) {
        return regex_or(s, all, regex_concat(s, minus, beyond(s, value, at.places, false, is_open)));
    }
    if (is_negative || value == 0) {
        regex_id below = regex_concat(s, minus, beyond(s, value, at.places, true, is_open));
        return is_negative || is_open ? below : regex_or(s, below, beyond(s, 0, 0, false, false));
    }
    return regex_or(s, beyond(s, value, at.places, false, is_open), regex_concat(s, minus, all));
}

regex_id schema_fractions(struct regex_set *s)
{
    regex_id minus = regex_repeat(s, regex_bytes(s, "-", 1), 0, 1);
    return regex_concat(s, minus, regex_concat(s, whole(s, 0, UINT64_MAX), fraction(s, false, true)));
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

regex_id schema_multiples(struct regex_set *s, struct schema_decimal m)
{
    regex_id r = REGEX_NONE, front = whole(s, 0, UINT64_MAX), point = regex_bytes(s, ".", 1);
    regex_id zeros = regex_repeat(s, digit(s, 0, 0), 0, REGEX_UNBOUNDED);
    for (int k = 0; k <= m.places; k++) { /* by digits behind the point; those that are not there are zeros */
        uint64_t of = (uint64_t)m.value / common_divisor((uint64_t)m.value, power_of_ten(m.places - k));
        regex_id digits = regex_repeat(s, digit(s, 0, 9), (uint32_t)k, (uint32_t)k);
        regex_id behind = k > 0 ? regex_concat(s, point, digits) : REGEX_EMPTY;
        regex_id one = regex_and(s, regex_concat(s, front, behind), regex_multiple(s, (uint32_t)of));
        if (k == m.places) { /* and zeros, which no longer count */
            regex_id more = regex_concat(s, point, regex_concat(s, digit(s, 0, 0), zeros));
            one = regex_concat(s, one, k > 0 ? zeros : regex_repeat(s, more, 0, 1));
        }
        r = regex_or(s, r, one);
    }
    return regex_concat(s, regex_repeat(s, regex_bytes(s, "-", 1), 0, 1), r);
}
