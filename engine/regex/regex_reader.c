#include "engine/regex/regex_reader.h"

#include "engine/base/hex.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/regex/regex_internal.h"
#include "engine/regex/regex_parse_internal.h"

#include <stdlib.h>

/* --- text -------------------------------------------------------------------------------------------------------- */

bool regex_reader_takes(struct regex_reader *r, char c)
{
    bool is_there = r->at < r->n && r->pattern[r->at] == c;
    r->at += is_there ? 1 : 0;
    return is_there;
}

uint32_t regex_reader_character(struct regex_reader *r)
{
    uint32_t c;
    r->at += utf8_decode(r->pattern + r->at, r->n - r->at, &c, NULL);
    return c;
}

bool regex_reader_takes_hex(struct regex_reader *r, size_t n, uint32_t *value)
{
    *value = 0;
    if (r->n - r->at < n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        int digit = hex_value(r->pattern[r->at + i]);
        if (digit < 0) {
            return false;
        }
        *value = *value << 4 | (uint32_t)digit;
    }
    r->at += n;
    return true;
}

bool regex_reader_takes_number(struct regex_reader *r, uint32_t *value)
{
    size_t first = r->at;
    uint64_t v = 0;
    for (; r->at < r->n && r->pattern[r->at] >= '0' && r->pattern[r->at] <= '9'; r->at++) {
        v = MIN_OF(v * 10 + (uint64_t)(r->pattern[r->at] - '0'), (uint64_t)REGEX_UNBOUNDED - 1);
    }
    *value = (uint32_t)v;
    return r->at > first;
}

bool regex_reader_takes_counts(struct regex_reader *r, uint32_t *min, uint32_t *max)
{
    size_t first = r->at;
    bool has_min = regex_reader_takes_number(r, min);
    *max = *min;
    if (has_min && regex_reader_takes(r, ',') && !regex_reader_takes_number(r, max)) {
        *max = REGEX_UNBOUNDED;
    }
    bool is_whole = has_min && regex_reader_takes(r, '}');
    r->at = is_whole ? r->at : first;
    return is_whole;
}

const char *regex_reader_repeat_fault(bool can_repeat, uint32_t min, uint32_t max)
{
    if (!can_repeat) {
        return "a repeat of nothing";
    }
    return min > max ? "a repeat whose minimum exceeds its maximum" : NULL;
}

/* --- classes of characters --------------------------------------------------------------------------------------- */

enum { FEW_RANGES = 24 };

enum err regex_ranges_add(struct regex_ranges *to, uint32_t first, uint32_t last)
{
    TRY(mem_grow(&to->list, to->n, &to->cap, sizeof *to->list, MEM_REQUEST));
    to->list[to->n++] = (struct regex_range){first, last};
    return ERR_OK;
}

enum err regex_ranges_add_all(struct regex_ranges *to, const struct regex_range *list, size_t n, bool others)
{
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (!others) {
            TRY(regex_ranges_add(to, list[i].first, list[i].last));
        } else if (list[i].first > next) {
            TRY(regex_ranges_add(to, next, list[i].first - 1));
        }
        next = list[i].last + 1;
    }
    return others && next <= LAST_CODE_POINT ? regex_ranges_add(to, next, LAST_CODE_POINT) : ERR_OK;
}

static int order_ranges(const void *a, const void *b)
{
    const struct regex_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the ranges and joins adjacent ones. */
static void merge(struct regex_ranges *r)
{
    size_t n = 0;
    if (r->n > 1) {
        qsort(r->list, r->n, sizeof *r->list, order_ranges);
    }
    for (size_t i = 0; i < r->n; i++) {
        if (n > 0 && r->list[i].first <= r->list[n - 1].last + 1) {
            r->list[n - 1].last = MAX_OF(r->list[n - 1].last, r->list[i].last);
        } else {
            r->list[n++] = r->list[i];
        }
    }
    r->n = n;
}

/* A union in one step is linear; one that grows range by range has as many forms as ranges. */
static enum err one_of(struct regex_set *s, const struct regex_ranges *ranges, regex_id *out)
{
    regex_id *ids = mem_zalloc_array(ranges->n, sizeof *ids, MEM_REQUEST);
    TRY_MEM(ids != NULL);
    for (size_t i = 0; i < ranges->n; i++) {
        ids[i] = regex_code_points(s, &ranges->list[i], 1);
    }
    *out = regex_or_all(s, ids, ranges->n);
    mem_free(ids);
    return regex_ok(s);
}

/* Builds a class of many ranges, with a cache: classes of properties are often repeated, and slow to build. *is_new:
 * not from the cache. */
static enum err one_of_many(struct regex_set *s, const struct regex_ranges *ranges, bool *is_new, regex_id *out)
{
    struct regex_hash name = {ranges->n, 0};
    for (size_t i = 0; i < ranges->n; i++) {
        const uint64_t words[] = {name.a, name.b, (uint64_t)ranges->list[i].first << 32 | ranges->list[i].last};
        name = regex_hash_words(words, ARRAY_LEN(words));
    }
    for (size_t i = 0; i < N_REGEX_WIDES; i++) {
        if (s->wides[i].id != REGEX_NONE && s->wides[i].ranges.a == name.a && s->wides[i].ranges.b == name.b) {
            *out = s->wides[i].id;
            return ERR_OK;
        }
    }
    *is_new = true;
    *out = regex_characters(s, ranges->list, ranges->n);
    s->wides[s->n_wides++ % N_REGEX_WIDES] = (struct regex_wide){name, *out};
    return regex_ok(s);
}

/* Adds the other case of each ASCII letter of the ranges. */
static enum err add_cases(struct regex_ranges *r)
{
    for (size_t i = 0, n = r->n; i < n; i++) {
        for (uint32_t first = 'A'; first <= 'a'; first += 'a' - 'A') {
            uint32_t other = first ^ ('a' - 'A'), from = MAX_OF(r->list[i].first, first);
            uint32_t to = MIN_OF(r->list[i].last, first + 25);
            TRY(from <= to ? regex_ranges_add(r, from - first + other, to - first + other) : ERR_OK);
        }
    }
    return ERR_OK;
}

/* UTF-8 has no surrogates, so ranges across them are cut. *n_wide: number of ranges beyond ASCII, weighted by their
 * cost. */
static enum err cut_surrogates(const struct regex_ranges *all, struct regex_ranges *cut, size_t *n_wide)
{
    for (size_t i = 0; i < all->n; i++) {
        struct regex_range x = all->list[i];
        TRY(x.first < FIRST_SURROGATE ? regex_ranges_add(cut, x.first, MIN_OF(x.last, FIRST_SURROGATE - 1u)) : ERR_OK);
        TRY(x.last > LAST_SURROGATE ? regex_ranges_add(cut, MAX_OF(x.first, LAST_SURROGATE + 1u), x.last) : ERR_OK);
        *n_wide += x.last <= 0x7F ? 0 : x.last - x.first < 64 || all->n > FEW_RANGES ? 1 : 4;
    }
    return ERR_OK;
}

static enum err too_wide(struct regex_reader *r)
{
    return err_set_at(r->info, ERR_GRAMMAR_LIMIT, r->at,
                      "expected at most %d ranges of characters beyond ASCII, read to byte %zu", REGEX_PARSE_MAX_WIDE,
                      r->at);
}

enum err regex_reader_class(struct regex_reader *r, bool others, regex_id *out)
{
    struct regex_ranges all = {NULL, 0, 0}, cut = {NULL, 0, 0};
    size_t n_wide = 0;
    bool is_new = false;
    TRY((r->flags & REGEX_ANY_CASE) != 0 ? add_cases(&r->ranges) : ERR_OK);
    merge(&r->ranges);
    enum err err = regex_ranges_add_all(&all, r->ranges.list, r->ranges.n, others);
    err = err == ERR_OK ? cut_surrogates(&all, &cut, &n_wide) : err;
    if (err == ERR_OK && cut.n <= FEW_RANGES) {
        r->n_wide += n_wide;
        err = r->n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : one_of(r->set, &cut, out);
    } else if (err == ERR_OK) {
        err = n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : one_of_many(r->set, &cut, &is_new, out);
        r->n_wide += is_new ? n_wide : 0;
        err = err == ERR_OK && r->n_wide > REGEX_PARSE_MAX_WIDE ? too_wide(r) : err;
    }
    mem_free(all.list);
    mem_free(cut.list);
    r->ranges.n = 0;
    return err;
}
