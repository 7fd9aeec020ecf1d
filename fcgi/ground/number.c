#include "fcgi/ground/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool number_parse(const char *s, int64_t *out)
{
    bool negative = *s == '-';
    int64_t v = 0;
    s += negative;
    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - (*s - '0')) / 10) {
            return false;
        }
        v = v * 10 + (*s - '0');
    }
    *out = negative ? -v : v;
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
