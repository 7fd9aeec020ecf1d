/* Which members of a set were there, kept once each: a count in the first word, and a bit for each member behind it. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

enum { FIRST_TABLE = 64, MAX_WORDS = 1 << 20 };

void matcher_sets_fini(struct matcher_sets *s)
{
    mem_free(s->words);
    mem_free(s->firsts);
    mem_free(s->table);
}

static uint32_t size_of(const struct grammar_rule *r) { return 1 + (r->n + 63) / 64; }

static const uint64_t *words_of(const struct grammar_matcher *m, uint32_t set)
{
    return set != SETS_NONE ? m->sets.words + m->sets.firsts[set - 1] : NULL;
}

static uint64_t count_of(const struct grammar_matcher *m, uint32_t set)
{
    return set != SETS_NONE ? words_of(m, set)[0] : 0;
}

static bool is_in(const uint64_t *words, uint32_t i) { return words != NULL && (words[1 + i / 64] >> i % 64 & 1) != 0; }

static uint32_t place_of(const struct matcher_sets *s, const uint64_t *words, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    uint32_t at = (uint32_t)h & (s->n_table - 1);
    while (s->table[at] != 0) {
        uint32_t set = s->table[at] - 1, first = s->firsts[set];
        uint32_t end = set + 1 < s->n_sets ? s->firsts[set + 1] : s->n_words;
        if (end - first == n && memcmp(s->words + first, words, n * sizeof *words) == 0) {
            break;
        }
        at = (at + 1) & (s->n_table - 1);
    }
    return at;
}

static enum err grow(struct matcher_sets *s)
{
    uint32_t *old = s->table, n = s->n_table != 0 ? 2 * s->n_table : FIRST_TABLE;
    uint32_t *table = mem_zalloc_array(n, sizeof *table, MEM_REQUEST);
    if (table == NULL) {
        return ERR_NOMEM;
    }
    s->table = table;
    s->n_table = n;
    for (uint32_t i = 0; i < s->n_sets; i++) {
        uint32_t end = i + 1 < s->n_sets ? s->firsts[i + 1] : s->n_words;
        s->table[place_of(s, s->words + s->firsts[i], end - s->firsts[i])] = i + 1;
    }
    mem_free(old);
    return ERR_OK;
}

/* Appends `set` with one more member to the words; it is no set yet. */
static enum err append(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i)
{
    struct matcher_sets *s = &m->sets;
    uint32_t n = size_of(r);
    if (s->n_words + n > MAX_WORDS) {
        return ERR_GRAMMAR_LIMIT;
    }
    if (!grammar_reserve((void **)&s->words, s->n_words, n, &s->cap_words, sizeof *s->words, MEM_REQUEST) ||
        !grammar_reserve((void **)&s->firsts, s->n_sets, 1, &s->cap_firsts, sizeof *s->firsts, MEM_REQUEST)) {
        return ERR_NOMEM;
    }
    uint64_t *words = s->words + s->n_words;
    if (set != SETS_NONE) {
        memcpy(words, words_of(m, set), n * sizeof *words);
    } else {
        memset(words, 0, n * sizeof *words);
    }
    uint64_t most = r->max != REGEX_UNBOUNDED ? r->max : r->min; /* beyond it nothing asks how many */
    words[0] = MIN_OF(words[0] + 1, most);
    words[1 + i / 64] |= (uint64_t)1 << i % 64;
    return ERR_OK;
}

enum err matcher_set_add(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i,
                         uint32_t *out)
{
    struct matcher_sets *s = &m->sets;
    TRY(2 * (s->n_sets + 1) > s->n_table ? grow(s) : ERR_OK);
    TRY(matcher_spend(m, size_of(r)));
    TRY(append(m, r, set, i));
    uint32_t at = place_of(s, s->words + s->n_words, size_of(r));
    if (s->table[at] == 0) {
        s->firsts[s->n_sets] = s->n_words;
        s->n_words += size_of(r);
        s->table[at] = ++s->n_sets;
    }
    *out = s->table[at];
    return ERR_OK;
}

/* Members that must be there and are not. */
static uint32_t count_missing(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set)
{
    const uint64_t *words = words_of(m, set);
    uint32_t n = r->n_must;
    for (uint32_t i = 0; i < r->n && r->n_must > 0 && words != NULL; i++) {
        n -= (m->g->slot_is[r->first + i] & MEMBER_MUST_BE) != 0 && is_in(words, i);
    }
    return n;
}

bool matcher_set_may_add(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i)
{
    unsigned char is = m->g->slot_is[r->first + i];
    bool is_new = !is_in(words_of(m, set), i);
    if ((is & MEMBER_CAN_BE) == 0 || (!is_new && (is & MEMBER_MAY_REPEAT) == 0)) {
        return false;
    }
    if (r->max == REGEX_UNBOUNDED) {
        return true;
    }
    bool is_missing = is_new && (is & MEMBER_MUST_BE) != 0; /* the others that must be there need places, too */
    return count_of(m, set) + count_missing(m, r, set) + !is_missing <= r->max;
}

bool matcher_set_may_go_on(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set)
{
    bool may = false;
    for (uint32_t i = 0; i < r->n && !may && (m->g->slot_is[r->first + r->n] & MEMBER_CAN_BE) != 0; i++) {
        may = matcher_set_may_add(m, r, set, i);
    }
    return may;
}

bool matcher_set_may_end(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set)
{
    return count_of(m, set) >= r->min && count_missing(m, r, set) == 0;
}
