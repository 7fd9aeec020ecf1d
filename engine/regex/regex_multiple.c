/* The automaton of multiples. A state is the remainder of the digits so far, followed by zeros for the remaining
 * digits: left * 10^e % m, with e the number of remaining digits. These form a number below 10^e, which must equal the
 * missing amount. So a dead state is detected without a search, and states with the same continuation are equal. For
 * example, m = 1000 has 4 states, because only trailing zeros count [Alexeev 2004, "Minimal DFAs for testing
 * divisibility"]. */
#include "engine/regex/regex_internal.h"

#include "engine/regex/residue.h"

enum shape {
    IN_WHOLE,       /* digits of the whole part, and a fraction */
    FRACTION_FIRST, /* after the point: a digit must follow */
    IN_FRACTION
};

enum { UNBOUNDED = 0xffff };

struct state {
    struct regex_steps of;
    enum shape shape;
    uint64_t sum;      /* left * 10^e % m */
    uint32_t min, max; /* IN_WHOLE: remaining digits; max: or UNBOUNDED */
    uint32_t extra;    /* IN_WHOLE: min + extra digits is the minimum, and e counts these and places */
    uint32_t places;   /* else: e */
};

/* Checks whether e digits can form the missing amount. */
static bool can_reach(uint64_t sum, uint64_t m, uint32_t e)
{
    uint64_t missing = sum != 0 ? m - sum : 0;
    for (; e > 0 && missing > 0; e--) {
        missing /= 10;
    }
    return missing == 0;
}

static uint32_t more_digits(const struct state *t)
{
    return t->shape == IN_WHOLE ? t->min + t->extra + t->of.places : t->places;
}

static regex_id make(struct regex_set *s, struct state t)
{
    uint64_t m = t.of.m;
    while (t.shape == IN_WHOLE && !can_reach(t.sum, m, more_digits(&t)) && t.min + t.extra < t.max) {
        t.extra++; /* at most 13 times: 10^13 > m */
        t.sum = residue_mul(t.sum, 10 % m, m);
    }
    if (!can_reach(t.sum, m, more_digits(&t))) {
        return REGEX_NONE;
    }
    bool can_end = t.sum == 0 && t.shape != FRACTION_FIRST && (t.shape == IN_FRACTION || t.min + t.extra == 0);
    return regex_node(
        s, (struct regex_node){.kind = REGEX_K_MULTIPLE,
                               .min = (uint32_t)(m - 1),
                               .max = (uint32_t)t.sum,
                               .a = (uint32_t)((m - 1) >> 32 | t.sum >> 32 << 8 | (uint64_t)t.of.places << 16) |
                                    (uint32_t)t.shape << 25 | (uint32_t)t.of.is_whole << 27 | t.extra << 28,
                               .b = t.shape == IN_WHOLE ? t.min | t.max << 16 : t.places,
                               .is_nullable = can_end,
                               .is_plain = true});
}

static struct state unpack(const struct regex_node *n)
{
    struct state t = {.of = {.m = ((uint64_t)(n->a & 0xff) << 32 | n->min) + 1,
                             .places = n->a >> 16 & 0x1ff,
                             .is_whole = (n->a >> 27 & 1) != 0},
                      .shape = (enum shape)(n->a >> 25 & 3),
                      .sum = (uint64_t)(n->a >> 8 & 0xff) << 32 | n->max};
    if (t.shape == IN_WHOLE) {
        t.min = n->b & 0xffff;
        t.max = n->b >> 16;
        t.extra = n->a >> 28;
    } else {
        t.places = n->b;
    }
    return t;
}

/* So that no two of these bytes share a class. */
static void split_bytes(struct regex_set *s)
{
    for (unsigned c = '0'; c <= '9'; c++) {
        regex_byte_range(s, c, c);
    }
    regex_byte_range(s, '.', '.');
}

regex_id regex_multiple_whole(struct regex_set *s, const struct regex_steps *of, uint64_t left, uint32_t min,
                              uint32_t max)
{
    split_bytes(s);
    return make(s,
                (struct state){.of = *of,
                               .shape = IN_WHOLE,
                               .sum = residue_mul(left % of->m, residue_power_of_ten(min + of->places, of->m), of->m),
                               .min = min,
                               .max = max == REGEX_UNBOUNDED ? UNBOUNDED : max});
}

regex_id regex_multiple_fraction(struct regex_set *s, const struct regex_steps *of, uint64_t left, unsigned places)
{
    split_bytes(s);
    return make(s, (struct state){.of = *of,
                                  .shape = IN_FRACTION,
                                  .sum = residue_mul(left % of->m, residue_power_of_ten(places, of->m), of->m),
                                  .places = places});
}

regex_id regex_multiple_next(struct regex_set *s, const struct regex_node *n, unsigned char byte)
{
    struct state t = unpack(n);
    uint64_t m = t.of.m;
    uint32_t e = more_digits(&t);
    bool is_end = t.shape == IN_WHOLE && t.min + t.extra == 0;
    if (byte == '.' && is_end && !t.of.is_whole) {
        t.shape = FRACTION_FIRST;
        t.places = t.of.places;
        return make(s, t);
    }
    if (byte < '0' || byte > '9' || (is_end && t.max == 0)) {
        return REGEX_NONE;
    }
    uint64_t digit = (uint64_t)(byte - '0') % m;
    if (t.shape != IN_WHOLE) {
        t.shape = IN_FRACTION;
        if (e == 0) {
            return byte == '0' ? make(s, t) : REGEX_NONE;
        }
        t.places--;
        t.sum = (t.sum + residue_mul(digit, residue_power_of_ten(e - 1, m), m)) % m;
        return make(s, t);
    }
    if (is_end) { /* one more digit than the minimum: shift the remainder */
        t.sum = (residue_mul(t.sum, 10 % m, m) + residue_mul(digit, residue_power_of_ten(e, m), m)) % m;
    } else {
        t.sum = (t.sum + residue_mul(digit, residue_power_of_ten(e - 1, m), m)) % m;
        t.extra -= t.min == 0;
    }
    t.min -= t.min > 0;
    t.max -= t.max != UNBOUNDED;
    return make(s, t);
}

size_t regex_multiple_states(const struct regex_steps *of, size_t digits, size_t most)
{
    uint64_t power = 1;  /* 10^e, limited to m */
    uint64_t common = 1; /* the greatest common divisor of 10^e and m: sums are its multiples */
    size_t n = 0;
    for (size_t e = 0; n <= most; e++) {
        uint64_t below = MIN_OF(power, of->m);
        n += (size_t)(below / common + (below % common != 0));
        if (power >= of->m && e >= digits + of->places) {
            return n;
        }
        power = power >= of->m ? power : power * 10;
        common = residue_common_divisor(common * 10, of->m);
    }
    return SIZE_MAX;
}
