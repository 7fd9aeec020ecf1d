/* Builds large classes of characters, such as Unicode properties, as a tree of UTF-8's bytes. Bytes with the same
 * continuation share a class, and each continuation is one expression. A union of ranges would be searched for each
 * byte. */
#include "engine/regex/regex_internal.h"

enum { BLOCK = 64 };

/* Sorted ranges without surrogates, read in order. */
struct ranges {
    struct regex_set *s;
    const struct regex_range *at, *end;
    regex_id whole[3]; /* all continuations: whole[i] has i bytes */
};

/* Skips ranges below c. */
static void skip(struct ranges *r, uint32_t c)
{
    while (r->at < r->end && r->at->last < c) {
        r->at++;
    }
}

static bool has_none(struct ranges *r, uint32_t first, uint32_t last)
{
    skip(r, first);
    return r->at == r->end || r->at->first > last;
}

static bool has_all(const struct ranges *r, uint32_t first, uint32_t last)
{
    return r->at < r->end && r->at->first <= first && r->at->last >= last;
}

/* Returns a bit per contained character of the BLOCK characters from c on. */
static uint64_t read_block(struct ranges *r, uint32_t c)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        bits |= has_none(r, c + i, c + i) ? 0 : (uint64_t)1 << i;
    }
    return bits;
}

/* Returns bytes first + i, each followed by tails[i]; one part per different tail. */
static regex_id join_tails(struct regex_set *s, unsigned first, const regex_id *tails, size_t n)
{
    size_t from = s->parts.n;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits[4] = {0};
        bool is_first = tails[i] != REGEX_NONE;
        for (size_t k = 0; k < i && is_first; k++) {
            is_first = tails[k] != tails[i];
        }
        for (size_t k = i; k < n && is_first; k++) {
            uint64_t is_in = tails[k] == tails[i];
            bits[(first + k) / 64] |= is_in << (first + k) % 64;
        }
        if (is_first) {
            regex_push_parts(s, REGEX_K_OR, regex_concat(s, regex_byte_class(s, bits), tails[i]));
        }
    }
    return regex_join_parts(s, REGEX_K_OR, from);
}

/* Returns the last byte of the characters from c on. */
static regex_id tail_of_1(struct ranges *r, uint32_t c)
{
    if (has_none(r, c, c + BLOCK - 1) || has_all(r, c, c + BLOCK - 1)) {
        return has_all(r, c, c + BLOCK - 1) ? r->whole[1] : REGEX_NONE;
    }
    const uint64_t bits[4] = {0, 0, read_block(r, c), 0};
    return regex_byte_class(r->s, bits);
}

/* Returns the last two bytes. For c = 0 only characters of three bytes have this form. */
static regex_id tail_of_2(struct ranges *r, uint32_t c)
{
    regex_id tails[BLOCK];
    uint32_t last = c + BLOCK * BLOCK - 1;
    if (has_none(r, c, last) || (has_all(r, c, last) && c > 0)) {
        return has_none(r, c, last) ? REGEX_NONE : r->whole[2];
    }
    for (uint32_t i = 0; i < BLOCK; i++) {
        bool is_short = c + i * BLOCK < 0x800;
        tails[i] = is_short ? REGEX_NONE : tail_of_1(r, c + i * BLOCK);
    }
    return join_tails(r->s, 0x80, tails, BLOCK);
}

/* Returns the last three bytes. */
static regex_id tail_of_3(struct ranges *r, uint32_t c)
{
    regex_id tails[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t first = c + i * BLOCK * BLOCK;
        tails[i] = first < 0x10000 ? REGEX_NONE : tail_of_2(r, first);
    }
    return join_tails(r->s, 0x80, tails, BLOCK);
}

regex_id regex_characters(struct regex_set *s, const struct regex_range *list, size_t n)
{
    struct ranges r = {.s = s, .at = list, .end = list + n};
    regex_id tails[32], parts[4], more = regex_byte_range(s, 0x80, 0xBF);
    const uint64_t ascii[4] = {read_block(&r, 0), read_block(&r, BLOCK), 0, 0};
    r.whole[1] = more;
    r.whole[2] = regex_concat(s, more, more);
    parts[0] = regex_byte_class(s, ascii);
    for (uint32_t i = 0; i < 32; i++) {
        tails[i] = i < 2 ? REGEX_NONE : tail_of_1(&r, i * BLOCK);
    }
    parts[1] = join_tails(s, 0xC0, tails, 32);
    for (uint32_t i = 0; i < 16; i++) {
        tails[i] = tail_of_2(&r, i * BLOCK * BLOCK);
    }
    parts[2] = join_tails(s, 0xE0, tails, 16);
    for (uint32_t i = 0; i < 5; i++) {
        tails[i] = tail_of_3(&r, i * BLOCK * BLOCK * BLOCK);
    }
    parts[3] = join_tails(s, 0xF0, tails, 5);
    return regex_or_all(s, parts, ARRAY_LEN(parts));
}
