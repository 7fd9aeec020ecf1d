#include "engine/schema/schema_decimal.h"

#include "engine/regex/residue.h"

#include <stdio.h>
#include <string.h>

enum { MAX_EXPONENT = 1 << 30 }; /* larger exponents count as this one: texts are shorter */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int64_t read_exponent(const char *s, const char *end)
{
    bool is_negative = s < end && *s == '-';
    int64_t e = 0;
    for (s += s < end && (*s == '-' || *s == '+'); s < end && is_digit(*s); s++) {
        e = MIN_OF(e * 10 + (*s - '0'), (int64_t)MAX_EXPONENT);
    }
    return is_negative ? -e : e;
}

struct schema_decimal schema_decimal_read(const char *text, size_t n)
{
    struct schema_decimal d = {.text = text, .dot = SIZE_MAX};
    size_t first = n, last = 0, dot = n, i = 0;
    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        dot = text[i] == '.' ? i : dot;
        if (text[i] >= '1' && text[i] <= '9') {
            first = MIN_OF(first, i);
            last = i;
        }
    }
    if (first == n) {
        return d;
    }
    dot = MIN_OF(dot, i);
    d.is_negative = text[0] == '-';
    d.from = first;
    d.dot = first < dot && dot < last ? dot : SIZE_MAX;
    d.n = last - first + 1 - (d.dot != SIZE_MAX);
    d.point = first < dot ? (int64_t)(dot - first) : -(int64_t)(first - dot - 1);
    d.point += i < n ? read_exponent(text + i + 1, text + n) : 0;
    return d;
}

bool schema_decimal_of(const json_t *v, struct schema_decimal *out)
{
    const char *text = json_is_number(v) ? json_number_text(v, out->room) : "";
    if (!is_digit(text[text[0] == '-'])) { /* not a number: NaN and similar */
        return false;
    }
    struct schema_decimal d = schema_decimal_read(text, strlen(text));
    if (text == out->room) {
        memcpy(d.room, text, strlen(text) + 1);
        d.text = NULL;
    }
    *out = d;
    return true;
}

unsigned schema_decimal_digit(const struct schema_decimal *d, size_t i)
{
    const char *text = d->text != NULL ? d->text : d->room;
    size_t at = i < d->n ? d->from + i : 0;
    return i < d->n ? (unsigned)(text[at + (at >= d->dot)] - '0') : 0;
}

int schema_decimal_magnitude(const struct schema_decimal *a, const struct schema_decimal *b)
{
    if (a->n == 0 || b->n == 0) {
        return (a->n > 0) - (b->n > 0);
    }
    int order = (a->point > b->point) - (a->point < b->point);
    for (size_t i = 0; order == 0 && i < MAX_OF(a->n, b->n); i++) {
        unsigned x = schema_decimal_digit(a, i), y = schema_decimal_digit(b, i);
        order = (x > y) - (x < y);
    }
    return order;
}

int schema_decimal_compare(const struct schema_decimal *a, const struct schema_decimal *b)
{
    if (a->is_negative != b->is_negative) {
        return a->is_negative ? -1 : 1;
    }
    return a->is_negative ? schema_decimal_magnitude(b, a) : schema_decimal_magnitude(a, b);
}

bool schema_decimal_is_whole(const struct schema_decimal *d) { return d->point >= (int64_t)d->n; }

struct schema_decimal schema_decimal_trunc(const struct schema_decimal *d)
{
    struct schema_decimal whole = *d;
    if (schema_decimal_is_whole(d)) {
        return whole;
    }
    whole.n = (size_t)MAX_OF(d->point, (int64_t)0);
    while (whole.n > 0 && schema_decimal_digit(&whole, whole.n - 1) == 0) {
        whole.n--;
    }
    if (whole.n == 0) {
        whole.point = 0;
        whole.is_negative = false;
    }
    return whole;
}

bool schema_decimal_is_multiple(const struct schema_decimal *d, uint64_t m, unsigned places)
{
    int64_t scale = d->point - (int64_t)d->n + places; /* |d| * 10^places equals the digits * 10^scale */
    uint64_t left = 0;
    if (d->n == 0 || scale < 0) {
        return d->n == 0;
    }
    for (size_t i = 0; i < d->n; i++) {
        left = (left * 10 + schema_decimal_digit(d, i)) % m;
    }
    return residue_mul(left, residue_power_of_ten((uint64_t)scale, m), m) == 0;
}

size_t schema_decimal_key(const struct schema_decimal *d, char *out, size_t cap)
{
    char exponent[32];
    size_t e = (size_t)snprintf(exponent, sizeof exponent, "e%lld", (long long)(d->point - (int64_t)d->n));
    size_t n = d->n == 0 ? 1 : d->is_negative + d->n + e, at = 0;
    if (n + 1 > cap) {
        return n;
    }
    if (d->n == 0) {
        out[at++] = '0';
    } else {
        out[at] = '-';
        at += d->is_negative;
        for (size_t i = 0; i < d->n; i++) {
            out[at++] = (char)('0' + schema_decimal_digit(d, i));
        }
        memcpy(out + at, exponent, e);
        at += e;
    }
    out[at] = '\0';
    return n;
}

size_t schema_decimal_plain(const struct schema_decimal *d, char *out, size_t cap)
{
    int64_t first = MIN_OF(d->point - 1, (int64_t)0),
            end = MAX_OF((int64_t)d->n, d->point); /* digits; before 0: zeros */
    first = d->n == 0 ? 0 : first;
    end = d->n == 0 ? 1 : end;
    int64_t dot = d->n == 0 ? 1 : MAX_OF(d->point, first + 1);
    size_t n = (size_t)(end - first) + (d->is_negative && d->n > 0) + (end > dot), at = 0;
    if (n + 1 > cap) {
        return n;
    }
    if (d->is_negative && d->n > 0) {
        out[at++] = '-';
    }
    for (int64_t i = first; i < end; i++) {
        if (i == dot) {
            out[at++] = '.';
        }
        out[at++] = i < 0 ? '0' : (char)('0' + schema_decimal_digit(d, (size_t)i));
    }
    out[at] = '\0';
    return n;
}
