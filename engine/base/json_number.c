/* A number with digits is a jansson real with a longer block: the allocator passed to jansson adds room for the digits
 * to the single block that json_real requests, and mem_account_size distinguishes such a block from a plain real. */
#include "engine/base/json_number.h"

#include "engine/base/mem.h"
#include "engine/base/mem_account.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t real_bytes;                /* of a plain real; 0: jansson does not use mem.h */
static _Thread_local size_t extra_bytes; /* to add to the next block */

static void *take(size_t bytes)
{
    return mem_alloc(bytes + extra_bytes, mem_account_current() != NULL ? MEM_REQUEST : MEM_GENERAL);
}

void json_number_use_mem(void)
{
    json_set_alloc_funcs(take, mem_free);
    json_t *v = json_real(0);
    real_bytes = v != NULL ? mem_account_size(v) : 0;
    json_decref(v);
}

const char *json_number_digits(const json_t *v)
{
    bool has = json_is_real(v) && real_bytes > 0 && mem_account_size(v) > real_bytes;
    return has ? (const char *)v + real_bytes : NULL;
}

bool json_number_is_wide(const json_t *v)
{
    const char *digits = json_number_digits(v);
    return digits != NULL && strpbrk(digits, ".eENI") == NULL;
}

bool json_number_is_beyond(const json_t *v)
{
    return json_number_digits(v) != NULL && fabs(json_real_value(v)) >= 0x1p63;
}

json_t *json_number_new(double value, const char *digits, size_t n)
{
    extra_bytes = real_bytes > 0 ? n + 1 : 0;
    json_t *v = json_real(value);
    extra_bytes = 0;
    if (v != NULL && real_bytes > 0) {
        char *to = (char *)v + real_bytes;
        memcpy(to, digits, n);
        to[n] = '\0';
    }
    return v;
}

/* --- decimals ----------------------------------------------------------------------------------------------------- */

/* 0.d1d2.. * 10^exponent: d1 is at `at`, the last digit other than 0 before `end`; a point can be between them. */
struct decimal {
    const char *at, *end; /* equal: the number is 0 */
    int64_t exponent;
    ptrdiff_t n_digits; /* in [at, end), without the point */
};

enum { MAX_EXPONENT = 1 << 30 }; /* larger ones count as this; texts are shorter */

static int64_t exponent_of(const char *s, const char *end)
{
    bool is_negative = s < end && *s == '-';
    int64_t e = 0;
    for (s += s < end && (*s == '-' || *s == '+'); s < end; s++) {
        e = MIN_OF(e * 10 + (*s - '0'), (int64_t)MAX_EXPONENT);
    }
    return is_negative ? -e : e;
}

static struct decimal decimal_of(const char *s, size_t n)
{
    const char *end = s + n, *e = s, *point = NULL;
    struct decimal d = {0};
    for (; e < end && *e != 'e' && *e != 'E'; e++) {
        point = *e == '.' ? e : point;
        if (*e >= '1' && *e <= '9') {
            d.at = d.at == NULL ? e : d.at;
            d.end = e + 1;
        }
    }
    if (d.at != NULL) {
        point = point == NULL ? e : point;
        d.exponent = (d.at < point ? point - d.at : point + 1 - d.at) + (e < end ? exponent_of(e + 1, end) : 0);
        d.n_digits = d.end - d.at - (d.at < point && point < d.end);
    }
    return d;
}

bool json_number_is_exact(double value, const char *text, size_t n)
{
    struct decimal a = decimal_of(text, n);
    if (value == 0 || a.at == NULL) {
        return value == 0 && a.at == NULL;
    }
    if (a.n_digits > DBL_DECIMAL_DIG) {
        return false; /* shortest forms have at most 17 digits */
    }
    if (a.n_digits <= DBL_DIG && fabs(value) >= DBL_MIN && fabs(value) < DBL_MAX) {
        return true; /* a double preserves this many digits [IEEE 754] */
    }
    char shortest[JSON_NUMBER_BYTES];
    json_number_shortest(value, shortest);
    struct decimal b = decimal_of(shortest, strlen(shortest));
    bool same = a.exponent == b.exponent;
    while (same && a.at < a.end && b.at < b.end) {
        a.at += *a.at == '.';
        b.at += *b.at == '.';
        same = *a.at++ == *b.at++;
    }
    return same && a.at == a.end && b.at == b.end;
}

/* Writes value with n digits, as d.ddde+xx. Returns whether that text reads back as value. */
static bool survives(double value, int n, char sci[JSON_NUMBER_BYTES])
{
    snprintf(sci, JSON_NUMBER_BYTES, "%.*e", n - 1, value);
    return strtod(sci, NULL) == value;
}

/* Writes value with the fewest digits that read back as value, as d.ddde+xx. */
static void shortest_digits(double value, char sci[JSON_NUMBER_BYTES])
{
    int n = DBL_DIG;             /* for a normal double these are a shorter form plus zeros, if one exists [IEEE 754] */
    if (fabs(value) < DBL_MIN) { /* here doubles are evenly spaced: if n digits suffice, so do more */
        int enough = DBL_DECIMAL_DIG;
        for (n = 1; n < enough;) {
            int middle = (n + enough) / 2;
            bool survived = survives(value, middle, sci);
            enough = survived ? middle : enough;
            n = survived ? n : middle + 1;
        }
    }
    while (!survives(value, n, sci) && n < DBL_DECIMAL_DIG) { /* 17 digits always suffice */
        n++;
    }
    char *point = strchr(sci, '.'), *e = strchr(sci, 'e'), *end = e;
    while (point != NULL && end[-1] == '0') {
        end--;
    }
    end -= end - 1 == point;
    memmove(end, e, strlen(e) + 1);
}

char *json_number_shortest(double value, char out[JSON_NUMBER_BYTES])
{
    char sci[JSON_NUMBER_BYTES];
    shortest_digits(value, sci);
    const char *digits = sci + (sci[0] == '-');
    const char *e = strchr(sci, 'e');
    int exponent = (e[1] == '-' ? -1 : 1) * (int)((e[2] - '0') * 10 + (e[3] - '0'));
    if (e[4] != '\0') {
        exponent = exponent * 10 + (e[1] == '-' ? -1 : 1) * (e[4] - '0');
    }
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, JSON_NUMBER_BYTES, "%.*se%c%02d", (int)(e - sci), sci, exponent < 0 ? '-' : '+', abs(exponent));
        return out;
    }
    char *o = out;
    if (sci[0] == '-') {
        *o++ = '-';
    }
    int n = (int)(e - digits) - (digits[1] == '.'); /* digits */
    if (exponent < 0) {
        o += snprintf(o, 8, "0.%.*s", -exponent - 1, "0000");
    }
    for (int i = 0; i < MAX_OF(n, exponent + 1); i++) {
        if (exponent >= 0 && i == exponent + 1) {
            *o++ = '.';
        }
        *o++ = i < n ? digits[i + (i > 0)] : '0';
    }
    if (exponent >= 0 && n <= exponent + 1) {
        *o++ = '.';
        *o++ = '0';
    }
    *o = '\0';
    return out;
}

const char *json_number_text(const json_t *v, char room[JSON_NUMBER_BYTES])
{
    const char *digits = json_number_digits(v);
    if (digits != NULL) {
        return digits;
    }
    if (json_is_real(v)) {
        return json_number_shortest(json_real_value(v), room);
    }
    snprintf(room, JSON_NUMBER_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    return room;
}
