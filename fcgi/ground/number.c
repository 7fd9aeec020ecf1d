#include "fcgi/ground/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *number_parse_digits(const char *s, int64_t *out)
{
    const char *at = s;
    int64_t v = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (v > (INT64_MAX - (*at - '0')) / 10) {
            return NULL;
        }
        v = v * 10 + (*at - '0');
    }
    if (at == s) {
        return NULL;
    }
    *out = v;
    return at;
}

bool number_parse(const char *s, int64_t *out)
{
    bool is_negative = *s == '-';
    int64_t v;
    const char *end = number_parse_digits(s + is_negative, &v);
    if (end == NULL || *end != '\0') {
        return false;
    }
    *out = is_negative ? -v : v;
    return true;
}

bool number_parse_real(const char *s, double *out)
{
    char *end;
    if (*s == '\0' || s[strspn(s, "+-.0123456789eE")] != '\0') { /* strtod also accepts spaces, "nan" and hexadecimal */
        return false;
    }
    *out = strtod(s, &end);
    return *end == '\0' && isfinite(*out);
}
