/* Builds a range of magnitudes digit by digit, from its last place to its first. A bound's digits are followed as long
 * as the number has the same digits. After a digit differs to the inside, the rest is free. Places count from the first
 * digit of the whole part, across the point. */
#include "engine/schema/schema_number.h"

#include "engine/base/mem.h"

enum { LOW, HIGH };
#define DEAD UINT64_MAX /* remainder after digits that begin no multiple */

/* Numbers with n_whole digits before the point that begin like one or both ends. */
struct range {
    struct regex_set *s;
    const struct regex_steps *of;       /* NULL: all numbers */
    const struct schema_bound *ends[2]; /* NULL: unbounded */
    size_t n_whole, n;                  /* n: also the fraction's places that are followed */
    bool is_whole;
};

static regex_id digits(struct regex_set *s, unsigned first, unsigned last)
{
    return first <= last ? regex_byte_range(s, '0' + first, '0' + last) : REGEX_NONE;
}

static regex_id many_digits(struct regex_set *s, uint32_t min, uint32_t max)
{
    return regex_repeat(s, digits(s, 0, 9), min, max);
}

/* Return the number of digits before and after the point. */
static size_t whole_digits(const struct schema_decimal *d) { return d->point > 1 ? (size_t)d->point : 1; }
static size_t fraction_digits(const struct schema_decimal *d)
{
    return (int64_t)d->n > d->point ? (size_t)((int64_t)d->n - d->point) : 0;
}

/* Returns the digit at a place if n_whole digits are before the point. */
static unsigned digit_at(const struct schema_decimal *d, size_t n_whole, size_t place)
{
    int64_t i = (int64_t)place - ((int64_t)n_whole - d->point);
    return i < 0 ? 0 : schema_decimal_digit(d, (size_t)i);
}

/* Returns nothing, or a point and digits. */
static regex_id any_fraction(struct regex_set *s)
{
    regex_id some = regex_concat(s, regex_bytes(s, ".", 1), many_digits(s, 1, REGEX_UNBOUNDED));
    return regex_repeat(s, some, 0, 1);
}

/* --- free digits --------------------------------------------------------------------------------------------------- */

/* Returns min .. max digits of the whole part and their continuation. left: the remainder of the digits so far. */
static regex_id free_whole(const struct range *r, uint64_t left, uint32_t min, uint32_t max)
{
    if (r->of != NULL) {
        return regex_multiple_whole(r->s, r->of, left, min, max);
    }
    return regex_concat(r->s, many_digits(r->s, min, max), r->is_whole ? REGEX_EMPTY : any_fraction(r->s));
}

/* Returns the continuation after the first `place` places, ignoring the bounds. */
static regex_id free_rest(const struct range *r, size_t place, uint64_t left)
{
    if (left == DEAD) {
        return REGEX_NONE;
    }
    if (place <= r->n_whole) {
        return free_whole(r, left, (uint32_t)(r->n_whole - place), (uint32_t)(r->n_whole - place));
    }
    if (r->of == NULL) {
        return many_digits(r->s, 0, REGEX_UNBOUNDED);
    }
    size_t after = place - r->n_whole;
    return regex_multiple_fraction(r->s, r->of, left, after < r->of->places ? (unsigned)(r->of->places - after) : 0);
}

/* Returns the remainder of the digits of the first place + 1 places. */
static uint64_t advance(const struct range *r, size_t place, uint64_t left, unsigned digit)
{
    if (r->of == NULL || left == DEAD) {
        return left;
    }
    bool counts = place < r->n_whole + r->of->places;
    return counts ? (left * 10 + digit) % r->of->m : digit == 0 ? left : DEAD;
}

/* Returns one of the digits at the place and its continuation. */
static regex_id free_from(const struct range *r, size_t place, uint64_t left, unsigned first, unsigned last)
{
    if (r->of == NULL) {
        return regex_concat(r->s, digits(r->s, first, last), free_rest(r, place + 1, left));
    }
    regex_id one[10];
    size_t n = 0;
    for (unsigned d = first; d <= last; d++) {
        one[n++] = regex_concat(r->s, digits(r->s, d, d), free_rest(r, place + 1, advance(r, place, left, d)));
    }
    return regex_or_all(r->s, one, n);
}

/* Returns digits of a fraction that are not all 0. Multiples only have the counted places. */
static regex_id positive_rest(const struct range *r, size_t place, uint64_t left)
{
    struct regex_set *s = r->s;
    if (r->of == NULL) {
        return regex_concat(s, regex_repeat(s, digits(s, 0, 0), 0, REGEX_UNBOUNDED),
                            regex_concat(s, digits(s, 1, 9), many_digits(s, 0, REGEX_UNBOUNDED)));
    }
    regex_id rest = REGEX_NONE;
    size_t last = r->n_whole + r->of->places;
    for (size_t at = last; at > place && left != DEAD; at--) { /* from the last counted place */
        uint64_t zeros = left;
        for (size_t i = place; i + 1 < at; i++) {
            zeros = advance(r, i, zeros, 0);
        }
        rest = regex_or(s, regex_concat(s, digits(s, 0, 0), rest), free_from(r, at - 1, zeros, 1, 9));
    }
    return rest;
}

/* --- along the ends -------------------------------------------------------------------------------------------------- */

/* Checks whether the end's number has no more digits after the first `place` places. */
static bool is_over(const struct range *r, int side, size_t place)
{
    const struct schema_decimal *d = &r->ends[side]->at;
    return (int64_t)place >= (int64_t)d->n + (int64_t)r->n_whole - d->point || d->n == 0;
}

/* Checks whether a number can end here if its digits so far equal those of the followed ends. */
static bool can_end(const struct range *r, size_t place, uint64_t left)
{
    bool can = r->of == NULL || regex_is_nullable(r->s, free_rest(r, place, left));
    if (r->ends[LOW] != NULL) {
        can = can && is_over(r, LOW, place) && !r->ends[LOW]->is_open;
    }
    if (r->ends[HIGH] != NULL) {
        can = can && (!is_over(r, HIGH, place) || !r->ends[HIGH]->is_open);
    }
    return can;
}

/* Returns the continuation after all followed places. */
static regex_id last_rest(const struct range *r, uint64_t left)
{
    if (r->is_whole) {
        return can_end(r, r->n, left) ? REGEX_EMPTY : REGEX_NONE;
    }
    if (r->ends[HIGH] != NULL) {
        return can_end(r, r->n, left) ? regex_repeat(r->s, digits(r->s, 0, 0), 0, REGEX_UNBOUNDED) : REGEX_NONE;
    }
    return r->ends[LOW]->is_open ? positive_rest(r, r->n, left) : free_rest(r, r->n, left);
}

/* Returns the continuation from a place on; `same` follows the digit of the ends. left: the remainder of the digits
 * before the place. */
static regex_id from_place(const struct range *r, size_t place, uint64_t left, regex_id same)
{
    unsigned low = r->ends[LOW] != NULL ? digit_at(&r->ends[LOW]->at, r->n_whole, place) : 0;
    unsigned high = r->ends[HIGH] != NULL ? digit_at(&r->ends[HIGH]->at, r->n_whole, place) : 9;
    unsigned own = r->ends[LOW] != NULL ? low : high, first = low, last = high;
    first += r->ends[LOW] != NULL;
    last -= r->ends[LOW] == NULL; /* high is at least 0: then first exceeds last */
    first = r->ends[LOW] == NULL && place == 0 && r->n_whole > 1 ? 1 : first;
    regex_id others = own == 0 && r->ends[LOW] == NULL ? REGEX_NONE : free_from(r, place, left, first, last);
    regex_id here = regex_or(r->s, regex_concat(r->s, digits(r->s, own, own), same), others);
    if (place < r->n_whole || r->is_whole) {
        return here;
    }
    here = place == r->n_whole ? regex_concat(r->s, regex_bytes(r->s, ".", 1), here) : here;
    return can_end(r, place, left) ? regex_or(r->s, here, REGEX_EMPTY) : here;
}

/* left[i]: the remainder of the end's first i digits. NULL: no memory; the set records it. */
static uint64_t *follow(const struct range *r, const struct schema_decimal *end)
{
    uint64_t *left = mem_zalloc_array(r->n + 1, sizeof *left, MEM_REQUEST);
    for (size_t i = 0; left != NULL && i < r->n; i++) {
        left[i + 1] = advance(r, i, left[i], digit_at(end, r->n_whole, i));
    }
    if (left == NULL) {
        regex_fail(r->s, ERR_NOMEM);
    }
    return left;
}

/* Returns the continuation from the place on, for numbers whose earlier digits equal those of r's only end. */
static regex_id along(const struct range *r, size_t place)
{
    const struct schema_bound *end = r->ends[LOW] != NULL ? r->ends[LOW] : r->ends[HIGH];
    uint64_t *left = follow(r, &end->at);
    regex_id rest = left != NULL ? last_rest(r, left[r->n]) : REGEX_NONE;
    for (size_t i = r->n; left != NULL && i > place; i--) {
        rest = from_place(r, i - 1, left[i - 1], rest);
    }
    mem_free(left);
    return rest;
}

/* Returns numbers with as many digits before the point as both ends: the digits that both share, then one of either or
 * between. */
static regex_id between(const struct range *r)
{
    const struct schema_decimal *low = &r->ends[LOW]->at, *high = &r->ends[HIGH]->at;
    uint64_t *left = follow(r, low);
    size_t common = 0;
    while (common < r->n && digit_at(low, r->n_whole, common) == digit_at(high, r->n_whole, common)) {
        common++;
    }
    regex_id rest = left != NULL && common == r->n ? last_rest(r, left[common]) : REGEX_NONE;
    if (common < r->n && left != NULL) {
        struct range lower = *r, higher = *r;
        lower.ends[HIGH] = higher.ends[LOW] = NULL;
        unsigned a = digit_at(low, r->n_whole, common), b = digit_at(high, r->n_whole, common);
        const regex_id parts[] = {regex_concat(r->s, digits(r->s, a, a), along(&lower, common + 1)),
                                  a + 1 < b ? free_from(r, common, left[common], a + 1, b - 1) : REGEX_NONE,
                                  regex_concat(r->s, digits(r->s, b, b), along(&higher, common + 1))};
        rest = regex_or_all(r->s, parts, ARRAY_LEN(parts));
    }
    for (size_t i = common + (common < r->n); left != NULL && i > 0; i--) { /* and the digits before it */
        size_t place = i - 1;
        if (place < common) {
            unsigned own = digit_at(low, r->n_whole, place);
            rest = regex_concat(r->s, digits(r->s, own, own), rest);
        }
        if (place >= r->n_whole) {
            rest = place == r->n_whole ? regex_concat(r->s, regex_bytes(r->s, ".", 1), rest) : rest;
            rest = can_end(r, place, left[place]) ? regex_or(r->s, rest, REGEX_EMPTY) : rest;
        }
    }
    mem_free(left);
    return rest;
}

/* --- magnitudes ------------------------------------------------------------------------------------------------------ */

/* Returns numbers of min .. max digits before the point, at least 2. */
static regex_id of_lengths(const struct range *r, size_t min, size_t max)
{
    regex_id one[9];
    if (min > max) {
        return REGEX_NONE;
    }
    uint32_t most = max == SIZE_MAX ? REGEX_UNBOUNDED : (uint32_t)max - 1;
    if (r->of == NULL) {
        return regex_concat(r->s, digits(r->s, 1, 9), free_whole(r, 0, (uint32_t)min - 1, most));
    }
    for (unsigned d = 1; d <= 9; d++) {
        one[d - 1] = regex_concat(r->s, digits(r->s, d, d), free_whole(r, d % r->of->m, (uint32_t)min - 1, most));
    }
    return regex_or_all(r->s, one, ARRAY_LEN(one));
}

/* Returns numbers without a sign from low on, up to high if it is set. */
static regex_id magnitudes(struct range r, const struct schema_bound *low, const struct schema_bound *high)
{
    size_t n_low = whole_digits(&low->at), n_high = high->is_there ? whole_digits(&high->at) : SIZE_MAX;
    size_t n_fraction = MAX_OF(fraction_digits(&low->at), high->is_there ? fraction_digits(&high->at) : 0);
    int order = high->is_there ? schema_decimal_magnitude(&low->at, &high->at) : -1;
    if (order > 0 || (order == 0 && (low->is_open || high->is_open))) {
        return REGEX_NONE;
    }
    n_fraction = r.is_whole ? 0 : MAX_OF(n_fraction, (size_t)1);
    r.n_whole = n_low;
    r.n = n_low + n_fraction;
    r.ends[LOW] = low;
    r.ends[HIGH] = n_high == n_low ? high : NULL;
    if (n_high == n_low) {
        return between(&r);
    }
    regex_id all[3] = {along(&r, 0), of_lengths(&r, n_low + 1, n_high == SIZE_MAX ? n_high : n_high - 1), REGEX_NONE};
    if (high->is_there) {
        r.n_whole = n_high;
        r.n = n_high + n_fraction;
        r.ends[LOW] = NULL;
        r.ends[HIGH] = high;
        all[2] = along(&r, 0);
    }
    return regex_or_all(r.s, all, ARRAY_LEN(all));
}

struct schema_bound schema_whole_bound(const struct schema_bound *b, bool is_min)
{
    struct schema_bound whole = *b;
    if (b->is_there && !schema_decimal_is_whole(&b->at)) {
        whole.at = schema_decimal_trunc(&b->at);
        whole.is_open = b->at.is_negative != is_min; /* then the end without its fraction is outside */
    }
    return whole;
}

regex_id schema_numbers(struct regex_set *s, const struct schema_bound *min, const struct schema_bound *max,
                        bool is_whole, const struct regex_steps *of)
{
    static const struct schema_bound zero = {.is_there = true};
    struct range r = {.s = s, .of = of, .is_whole = is_whole};
    const struct schema_bound low = is_whole ? schema_whole_bound(min, true) : *min;
    const struct schema_bound high = is_whole ? schema_whole_bound(max, false) : *max;
    regex_id all[2] = {REGEX_NONE, REGEX_NONE};
    if (!high.is_there || !high.at.is_negative) {
        all[0] = magnitudes(r, low.is_there && !low.at.is_negative ? &low : &zero, &high);
    }
    bool has_negatives = !low.is_there || low.at.is_negative;
    if (has_negatives) { /* includes -0 if 0 is in the range */
        bool is_below = high.is_there && (high.at.is_negative || high.at.n == 0);
        all[1] = regex_concat(s, regex_bytes(s, "-", 1), magnitudes(r, is_below ? &high : &zero, &low));
    }
    return regex_or_all(s, all, ARRAY_LEN(all));
}

regex_id schema_fractions(struct regex_set *s)
{
    regex_id zeros = regex_repeat(s, digits(s, 0, 0), 0, REGEX_UNBOUNDED), any = many_digits(s, 0, REGEX_UNBOUNDED);
    const regex_id rows[] = {digits(s, 0, 0), regex_concat(s, digits(s, 1, 9), any)};
    regex_id some = regex_concat(s, zeros, regex_concat(s, digits(s, 1, 9), any));
    regex_id number =
        regex_concat(s, regex_or_all(s, rows, ARRAY_LEN(rows)), regex_concat(s, regex_bytes(s, ".", 1), some));
    return regex_concat(s, regex_repeat(s, regex_bytes(s, "-", 1), 0, 1), number);
}
