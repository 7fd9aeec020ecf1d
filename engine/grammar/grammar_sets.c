/* The sets of members that occurred, each stored once: a count in the first word, then a bit for each member. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

enum { MAX_WORDS = 1 << 20 };

void matcher_sets_fini(struct matcher_sets *s)
{
    mem_free(s->words);
    mem_free(s->firsts);
    table_fini(&s->table);
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

static uint64_t hash_words(const uint64_t *words, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

static uint32_t n_words_of(const struct matcher_sets *s, uint32_t i)
{
    return (i + 1 < s->n_sets ? s->firsts[i + 1] : s->n_words) - s->firsts[i];
}

static uint64_t hash_set(const void *sets, uint32_t i)
{
    const struct matcher_sets *s = sets;
    return hash_words(s->words + s->firsts[i], n_words_of(s, i));
}

struct set_key {
    const struct matcher_sets *s;
    const uint64_t *words;
    uint32_t n;
};

static ALWAYS_INLINE bool is_set(const void *key, uint32_t i)
{
    const struct set_key *k = key;
    return n_words_of(k->s, i) == k->n && memcmp(k->s->words + k->s->firsts[i], k->words, k->n * sizeof *k->words) == 0;
}

/* Appends `set` with one more member to the words, without storing it as a set. */
static enum err append(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i)
{
    struct matcher_sets *s = &m->sets;
    uint32_t n = size_of(r);
    if (s->n_words + n > MAX_WORDS) {
        return ERR_GRAMMAR_LIMIT;
    }
    TRY_MEM(grammar_reserve((void **)&s->words, s->n_words, n, &s->cap_words, sizeof *s->words, MEM_REQUEST) &&
            grammar_reserve((void **)&s->firsts, s->n_sets, 1, &s->cap_firsts, sizeof *s->firsts, MEM_REQUEST));
    uint64_t *words = s->words + s->n_words;
    if (set != SETS_NONE) {
        memcpy(words, words_of(m, set), n * sizeof *words);
    } else {
        memset(words, 0, n * sizeof *words);
    }
    uint64_t most = r->max != REGEX_UNBOUNDED ? r->max : r->min; /* larger counts make no difference */
    words[0] = MIN_OF(words[0] + 1, most);
    words[1 + i / 64] |= (uint64_t)1 << i % 64;
    return ERR_OK;
}

enum err matcher_set_add(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i,
                         uint32_t *out)
{
    struct matcher_sets *s = &m->sets;
    TRY(table_reserve(&s->table, s->n_sets + (size_t)1, hash_set, s, MEM_REQUEST));
    TRY(matcher_spend(m, size_of(r)));
    TRY(append(m, r, set, i));
    const uint64_t *words = s->words + s->n_words;
    uint64_t hash = hash_words(words, size_of(r));
    uint32_t found = table_find(&s->table, hash, is_set, &(struct set_key){s, words, size_of(r)});
    if (found == TABLE_NONE) {
        found = s->n_sets++;
        s->firsts[found] = s->n_words;
        s->n_words += size_of(r);
        table_add(&s->table, hash, found);
    }
    *out = found + 1;
    return ERR_OK;
}

/* Counts the required members that are missing. */
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
    bool is_missing = is_new && (is & MEMBER_MUST_BE) != 0; /* the other required members also need room */
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
