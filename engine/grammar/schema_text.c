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
#define DAY_PARTS  "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)" /* of durations: none is left out between two */
#define TIME_PARTS "(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
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

/* Sources: RFC 3339 (dates; no leap seconds), 5321 (mailboxes without quotes), 1123, 2673, 4291, 3986, 4122; 3339 appendix A
 * (durations). */
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
    {"duration", "^P(?:" DAY_PARTS "(?:T" TIME_PARTS ")?|T" TIME_PARTS "|\\d+W)$", 0},
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
    static const char *const refused[] = {"idn-email",    "idn-hostname",          "iri",
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
