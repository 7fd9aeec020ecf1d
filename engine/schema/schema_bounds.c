/* Combines minimum, maximum, multipleOf and the numbers that `not` names, with exact decimals. */
#include "engine/schema/schema_internal.h"

#include "engine/grammar/grammar_json.h"
#include "engine/regex/residue.h"

#include <stdio.h>

enum { LEAST, GREATEST };

/* The lexer has as many states as a multiple's texts lead to; this limit leaves room for others. */
enum { MAX_STATES = 50000 };

#define TOO_LONG "expected at most 2000 digits before and after the point"
_Static_assert(SCHEMA_MAX_DIGITS == 2000, "TOO_LONG says it");

/* --- reading --------------------------------------------------------------------------------------------------------- */

static const char *const keywords[2][2] = {{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}};

/* Returns an order that is above 0 if a is nearer to the numbers within than b. */
static int order_inwards(const struct schema_decimal *a, const struct schema_decimal *b, int side)
{
    return schema_decimal_compare(a, b) * (side == LEAST ? 1 : -1);
}

/* Before 2019, exclusiveMinimum and exclusiveMaximum were booleans that opened the other keyword's bound. */
static enum err read_bound(struct writer *w, const struct part *p, int side, bool is_exclusive,
                           struct number_limits *out)
{
    const json_t *v = schema_keyword(w, p, keywords[side][is_exclusive]);
    bool is_open = is_exclusive || json_is_true(schema_keyword(w, p, keywords[side][true]));
    struct schema_bound *end = &out->ends[side], found = {.is_there = true, .is_open = is_open};
    if (v == NULL || json_is_boolean(v)) {
        return ERR_OK;
    }
    if (!schema_decimal_of(v, &found.at)) {
        return schema_refuse(w, p->path, keywords[side][is_exclusive], "expected a number");
    }
    int nearer = end->is_there ? order_inwards(&found.at, &end->at, side) : 1;
    if (nearer > 0 || (nearer == 0 && is_open)) {
        *end = found;
        out->paths[side] = p->path;
    }
    return ERR_OK;
}

/* Computes a * b; false: more than steps can hold. */
static bool multiply(uint64_t a, uint64_t b, uint64_t *out)
{
    *out = a * b; /* both are below 2^41 or so */
    return b == 0 || a <= REGEX_MAX_STEP / b;
}

/* Converts the number to m / 10^places. */
static bool to_steps(const struct schema_decimal *d, struct regex_steps *out)
{
    int64_t zeros = d->point - (int64_t)d->n;
    *out = (struct regex_steps){.m = 0};
    for (size_t i = 0; i < d->n + (size_t)MAX_OF(zeros, (int64_t)0); i++) {
        if (!multiply(out->m, 10, &out->m)) {
            return false;
        }
        out->m += schema_decimal_digit(d, i);
    }
    out->places = (unsigned)MIN_OF(MAX_OF(-zeros, (int64_t)0), (int64_t)REGEX_MAX_PLACES + 1);
    return out->m <= REGEX_MAX_STEP && out->places <= REGEX_MAX_PLACES;
}

static bool add_places(struct regex_steps *of, unsigned places)
{
    bool ok = true;
    for (; of->places < places && ok; of->places++) {
        ok = multiply(of->m, 10, &of->m);
    }
    return ok;
}

/* Intersects the multiples of both; false: the steps are too large. */
static bool join_steps(struct regex_steps *a, struct regex_steps b)
{
    unsigned places = MAX_OF(a->places, b.places);
    if (a->m == 0) {
        *a = b;
        return true;
    }
    if (!add_places(a, places) || !add_places(&b, places) ||
        !multiply(a->m / residue_common_divisor(a->m, b.m), b.m, &a->m)) {
        return false;
    }
    for (; a->places > 0 && a->m % 10 == 0; a->places--) {
        a->m /= 10;
    }
    return true;
}

static enum err read_multiple(struct writer *w, const struct part *p, struct number_limits *out)
{
    const json_t *v = schema_keyword(w, p, "multipleOf");
    struct schema_decimal of;
    struct regex_steps steps;
    if (v == NULL) {
        return ERR_OK;
    }
    if (!schema_decimal_of(v, &of) || of.n == 0 || of.is_negative) {
        return schema_refuse(w, p->path, "multipleOf", "expected a number above 0");
    }
    if (!to_steps(&of, &steps) || !join_steps(&out->steps, steps)) {
        return schema_refuse(w, p->path, "multipleOf",
                             "expected at most 2^40 over a power of ten up to 10^500, all of a value's together");
    }
    out->steps_path = p->path;
    return ERR_OK;
}

enum err schema_read_numbers(struct writer *w, const struct parts *list, struct number_limits *out)
{
    *out = (struct number_limits){.steps = {.m = 0}};
    for (size_t i = 0; i < list->n; i++) {
        for (int k = 0; k < 4; k++) {
            TRY(read_bound(w, &list->at[i], k / 2, k % 2 == 1, out));
        }
        TRY(read_multiple(w, &list->at[i], out));
    }
    return ERR_OK;
}

bool schema_allows_number(const struct number_limits *l, const json_t *value)
{
    struct schema_decimal d;
    bool is = schema_decimal_of(value, &d);
    for (int side = LEAST; side <= GREATEST && is; side++) {
        const struct schema_bound *end = &l->ends[side];
        int order = end->is_there ? order_inwards(&d, &end->at, side) : 1;
        is = order > 0 || (order == 0 && !end->is_open);
    }
    return is && (l->steps.m == 0 || schema_decimal_is_multiple(&d, l->steps.m, l->steps.places));
}

/* --- writing --------------------------------------------------------------------------------------------------------- */

/* Checks whether the number's text is within SCHEMA_MAX_DIGITS. */
static bool is_short(const struct schema_decimal *d)
{
    return d->point <= SCHEMA_MAX_DIGITS && (int64_t)d->n - d->point <= SCHEMA_MAX_DIGITS;
}

/* The range of the texts. */
struct text_range {
    struct schema_bound ends[2];
    bool is_whole;
    bool is_capped; /* numbers of more than SCHEMA_MAX_DIGITS digits before the point are excluded */
};

/* Prepares an end of the range. An end that only numbers of more than SCHEMA_MAX_DIGITS digits exceed is dropped. */
static enum err prepare_end(struct writer *w, const struct number_limits *l, int side, struct text_range *r)
{
    struct schema_bound *out = &r->ends[side];
    *out = r->is_whole ? schema_whole_bound(&l->ends[side], side == LEAST) : l->ends[side];
    if (!out->is_there || is_short(&out->at)) {
        return ERR_OK;
    }
    if (out->at.point > SCHEMA_MAX_DIGITS && out->at.is_negative == (side == LEAST)) {
        *out = (struct schema_bound){.is_there = false};
        r->is_capped = true;
        return ERR_OK;
    }
    return schema_refuse(w, l->paths[side], keywords[side][l->ends[side].is_open], TOO_LONG);
}

/* Returns numbers of at most SCHEMA_MAX_DIGITS digits before the point. */
static regex_id of_few_digits(struct regex_set *s)
{
    regex_id digits = regex_repeat(s, regex_byte_range(s, '0', '9'), 1, SCHEMA_MAX_DIGITS);
    regex_id rest = regex_repeat(s, regex_concat(s, regex_bytes(s, ".", 1), REGEX_ALL), 0, 1);
    return regex_concat(s, regex_repeat(s, regex_bytes(s, "-", 1), 0, 1), regex_concat(s, digits, rest));
}

/* Returns the steps of integers from the steps of all numbers; m: 0 = all. */
static struct regex_steps whole_steps(struct regex_steps of)
{
    for (; of.places > 0; of.places--) {
        of.m /= residue_common_divisor(of.m, 10);
    }
    return (struct regex_steps){.m = of.m == 1 ? 0 : of.m, .is_whole = true};
}

static enum err check_states(struct writer *w, const struct number_limits *l, const struct regex_steps *steps,
                             const struct schema_bound ends[2])
{
    char text[160];
    size_t digits = 0;
    for (int side = LEAST; side <= GREATEST; side++) {
        digits = ends[side].is_there ? MAX_OF(digits, (size_t)MAX_OF(ends[side].at.point, (int64_t)1)) : digits;
    }
    if (regex_multiple_states(steps, digits, MAX_STATES) != SIZE_MAX) {
        return ERR_OK;
    }
    snprintf(text, sizeof text,
             "expected an automaton of at most %d states, found more with %zu digits before the point", MAX_STATES,
             digits);
    return schema_refuse(w, l->steps_path, "multipleOf", text);
}

/* Builds the texts of numbers that all parts allow; REGEX_ALL: any number. */
static enum err write_limits(struct writer *w, const struct number_limits *l, bool is_whole, regex_id *out)
{
    struct text_range r = {.is_whole = is_whole};
    const struct schema_bound *min = &r.ends[LEAST], *max = &r.ends[GREATEST];
    struct regex_steps steps = is_whole && l->steps.m != 0 ? whole_steps(l->steps) : l->steps;
    TRY(prepare_end(w, l, LEAST, &r));
    TRY(prepare_end(w, l, GREATEST, &r));
    TRY(steps.m != 0 ? check_states(w, l, &steps, r.ends) : ERR_OK);
    bool is_free = !is_whole && !r.is_capped && steps.m == 0 && !min->is_there && !max->is_there;
    *out = is_free ? REGEX_ALL : schema_numbers(w->s, min, max, is_whole, steps.m != 0 ? &steps : NULL);
    *out = r.is_capped ? regex_and(w->s, *out, of_few_digits(w->s)) : *out;
    return ERR_OK;
}

/* Returns the texts of one number, without an exponent. */
static regex_id texts_of(struct writer *w, const struct schema_decimal *at, bool is_whole)
{
    struct schema_bound end = {.is_there = true, .at = *at};
    regex_id one = schema_numbers(w->s, &end, &end, is_whole, NULL);
    return at->n > 0 ? one : regex_or(w->s, one, regex_concat(w->s, regex_bytes(w->s, "-", 1), one));
}

/* Excludes the numbers of a plain `not`, all in one intersection: one by one takes quadratic time. Exponents are then
 * not allowed, because every number would have to be excluded in each of its forms. */
static enum err leave_out(struct writer *w, const struct part *p, bool is_whole, bool has_exponents, regex_id *r)
{
    static const struct schema_bound none = {.is_there = false};
    struct schema_values of = schema_values_of(schema_is_plain_not(p) ? schema_keyword(w, p, "not") : NULL);
    size_t n = 0;
    regex_id *ids = mem_zalloc_array(schema_n_values(&of) + 1, sizeof *ids, MEM_REQUEST);
    enum err err = ids != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; i < schema_n_values(&of) && err == ERR_OK; i++) {
        struct schema_decimal at;
        if (schema_decimal_of(schema_value_at(&of, i), &at) && (!is_whole || schema_decimal_is_whole(&at))) {
            bool fits = is_short(&at);
            ids[n++] = fits ? texts_of(w, &at, is_whole) : REGEX_NONE;
            err = fits ? regex_ok(w->s) : schema_refuse(w, p->path, "not", TOO_LONG);
        }
    }
    if (err == ERR_OK && n > 0) {
        *r = has_exponents ? regex_and(w->s, *r, schema_numbers(w->s, &none, &none, false, NULL)) : *r;
        *r = regex_and(w->s, *r, regex_not(w->s, regex_or_all(w->s, ids, n)));
    }
    mem_free(ids);
    return err;
}

enum err schema_write_number(struct writer *w, const struct node *node, const struct parts *list, unsigned types)
{
    regex_id r;
    struct number_limits limits;
    bool is_whole = (types & SCHEMA_FRACTION) == 0;
    TRY(schema_read_numbers(w, list, &limits));
    TRY(write_limits(w, &limits, is_whole, &r));
    r = (types & SCHEMA_INTEGER) == 0 ? regex_and(w->s, r, schema_fractions(w->s)) : r;
    bool has_exponents = r == REGEX_ALL;
    r = has_exponents ? grammar_json_number(w->b) : r;
    for (size_t i = 0; i < list->n && !w->is_loose; i++) {
        TRY(leave_out(w, &list->at[i], is_whole, has_exponents, &r));
    }
    schema_put(w, node, grammar_lexeme(w->b, r));
    return ERR_OK;
}
