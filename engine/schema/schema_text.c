#include "engine/schema/schema_text.h"

#include "engine/base/compiler.h"
#include "engine/regex/regex_parse.h"

#include <string.h>

/* --- formats --------------------------------------------------------------------------------------------------------- */

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DAYS                                                                                                           \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define DATE       "(?:" YEAR "-" DAYS "|" LEAP "-02-29)"
#define TIME       "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define DAY_PARTS  "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)" /* of durations: units are consecutive */
#define TIME_PARTS "(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define ALNUM      "[A-Za-z0-9]"
#define LDH        "[A-Za-z0-9-]"
#define LABEL      ALNUM "(?:" LDH "{0,61}" ALNUM ")?"
/* Without dashes at both the third and the fourth position, as in xn--. A complement would be slow: after such dashes
 * nothing can follow, and finding that out takes a search over all counts of letters and labels. */
#define PLAIN       ALNUM "(?:" LDH "{0,2}" ALNUM "|" LDH "(?:" ALNUM LDH "|-" ALNUM ")" LDH "{0,58}" ALNUM ")?"
#define HOST(label) label "(?:\\." label ")*"
#define ATOM        "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define OCTET       "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4        "[0-9A-Fa-f]{1,4}"
#define PCHAR       "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define NCHAR       "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})" /* without a colon */
#define UCHAR       "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
#define RCHAR       "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
#define SERVER      "//(?:" UCHAR "*@)?" RCHAR "*(?::\\d*)?(?:/" PCHAR "*)*"
#define ROOTED      "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define TAIL        "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define SCHEME      "[A-Za-z][A-Za-z0-9+.-]*:"

/* Characters beyond ASCII that IRIs can contain, as classes. */
#define UCS                                                                                                            \
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}"
#define ICHAR   "(?:[A-Za-z0-9._~!$&'()*+,;=:@" UCS "-]|%[0-9A-Fa-f]{2})"
#define INCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=@" UCS "-]|%[0-9A-Fa-f]{2})"
#define IUCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=:" UCS "-]|%[0-9A-Fa-f]{2})"
#define IRCHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=" UCS "-]|%[0-9A-Fa-f]{2})"
#define ISERVER "//(?:" IUCHAR "*@)?" IRCHAR "*(?::\\d*)?(?:/" ICHAR "*)*"
#define IROOTED "/(?:" ICHAR "+(?:/" ICHAR "*)*)?"
#define ITAIL   "(?:\\?(?:" ICHAR "|[/?\\uE000-\\uF8FF])*)?(?:#(?:" ICHAR "|[/?])*)?"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
/* URI templates [RFC 6570]. */
#define T_LITERAL "[!#$&(-;=?-\\[\\]_a-z~" UCS "\\uE000-\\uF8FF]|%[0-9A-Fa-f]{2}"
#define T_NAME    "(?:\\w|%[0-9A-Fa-f]{2})(?:\\.?(?:\\w|%[0-9A-Fa-f]{2}))*(?::[1-9]\\d{0,3}|\\*)?"
/* A subset of ECMA-262 patterns. Ranges are within digits, upper case or lower case; counts have a minimum of 0 or 1 or
 * no maximum; groups nest five deep. Look-around, references and names are excluded. A regular expression cannot
 * describe all patterns. */
#define R_RANGES                                                                                                       \
    "a-[b-z]|b-[c-z]|c-[d-z]|d-[e-z]|e-[f-z]|f-[g-z]|g-[h-z]|h-[i-z]|i-[j-z]|j-[k-z]|k-[l-z]|l-[m-z]|m-[n"             \
    "-z]|n-[o-z]|o-[p-z]|p-[q-z]|q-[r-z]|r-[s-z]|s-[t-z]|t-[u-z]|u-[v-z]|v-[w-z]|w-[x-z]|x-[y-z]|y-[z-z]|"             \
    "A-[B-Z]|B-[C-Z]|C-[D-Z]|D-[E-Z]|E-[F-Z]|F-[G-Z]|G-[H-Z]|H-[I-Z]|I-[J-Z]|J-[K-Z]|K-[L-Z]|L-[M-Z]|M-[N"             \
    "-Z]|N-[O-Z]|O-[P-Z]|P-[Q-Z]|Q-[R-Z]|R-[S-Z]|S-[T-Z]|T-[U-Z]|U-[V-Z]|V-[W-Z]|W-[X-Z]|X-[Y-Z]|Y-[Z-Z]|"             \
    "0-[1-9]|1-[2-9]|2-[3-9]|3-[4-9]|4-[5-9]|5-[6-9]|6-[7-9]|7-[8-9]|8-[9-9]"
#define R_ESCAPE                                                                                                       \
    "\\\\(?:[dDwWsStnvfr^$\\\\.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Ca-c][0-9A-Fa-f]{3}|p\\{(?:L|Lu|Ll|N|Nd|P|S|Z)\\})"
#define R_CLASS "\\[\\^?(?:[^\\\\\\]\\[^-]|" R_RANGES "|" R_ESCAPE ")*-?\\]"
#define R_ATOM  "[^\\\\^$.*+?()\\[\\]{}|]|\\.|" R_ESCAPE "|" R_CLASS
#define R_COUNT                                                                                                        \
    "(?:(?:[*+?]|\\{(?:0,|1,(?=[1-9]))?\\d{1,3}\\}|\\{\\d{1,3},\\})\\?"                                                \
    "?)?"
#define R_BORDER       "\\^|\\$|\\\\[bB]|\\|"
#define R_0            "(?:(?:" R_ATOM ")" R_COUNT "|" R_BORDER ")*"
#define R_GROUP(inner) "(?:(?:" R_ATOM "|\\((?:\\?:)?" inner "\\))" R_COUNT "|" R_BORDER ")*"

/* Sources: RFC 3339 (dates; no leap seconds), 5321 (mailboxes without quotes), 1123, 2673, 4291, 3986, 3987, 4122, 6570, 6901; 3339
 * appendix A (durations). */
static const struct {
    const char *name, *pattern;
    uint32_t max; /* bytes; 0: unlimited */
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
    {"iri", "^" SCHEME "(?:" ISERVER "|" IROOTED "|" ICHAR "+(?:/" ICHAR "*)*)?" ITAIL "$", 0},
    {"iri-reference",
     "^(?:" SCHEME "(?:" ISERVER "|" IROOTED "|" ICHAR "+(?:/" ICHAR "*)*)?|" ISERVER "|" IROOTED "|" INCHAR
     "+(?:/" ICHAR "*)*)?" ITAIL "$",
     0},
    {"json-pointer", "^" POINTER "$", 0},
    {"relative-json-pointer", "^(?:0|[1-9]\\d*)(?:#|" POINTER ")$", 0},
    {"uri-template", "^(?:" T_LITERAL "|\\{[+#./;?&=,!@|]?" T_NAME "(?:," T_NAME ")*\\})*$", 0},
    {"regex", "^" R_GROUP(R_GROUP(R_GROUP(R_GROUP(R_0)))) "$", 0},
    {"duration", "^P(?:" DAY_PARTS "(?:T" TIME_PARTS ")?|T" TIME_PARTS "|\\d+W)$", 0},
    {"uuid", "^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$", 0},
};

static regex_id parse(struct regex_set *s, const char *pattern)
{
    regex_id r;
    struct err_info ignored;
    return regex_parse(s, &(struct regex_pattern){pattern, strlen(pattern), REGEX_SEARCH}, &r, &ignored) == ERR_OK
               ? r
               : REGEX_NONE;
}

enum schema_format schema_format_of(struct regex_set *s, const char *name, regex_id *out)
{
    static const char *const refused[] = {"idn-email", "idn-hostname"};
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
