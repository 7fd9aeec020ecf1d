/* Builds an enumeration's words as one expression: a tree of their bytes, built from its leaves. Common prefixes are
 * stored once, and so are common suffixes, because equal expressions are one [Daciuk 2000, "Incremental construction of
 * minimal acyclic finite-state automata"]. The next byte is found without searching all words. */
#include "engine/regex/regex_internal.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The position after the first bytes of the current word. */
struct place {
    size_t first; /* of its arcs, which end at those of the next position */
    bool ends;    /* a word ends here */
};

/* A byte and its continuation. */
struct arc {
    unsigned char byte;
    regex_id left;
};

struct tree {
    struct regex_set *s;
    struct place *places; /* [the longest word + 1] */
    struct arc *arcs;     /* at most [256 * (the longest word + 1)], allocated on use */
    size_t n_arcs, cap_arcs;
};

static int by_bytes(const void *a, const void *b)
{
    const struct regex_word *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, MIN_OF(x->n, y->n));
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* Returns the continuation of a position: its arcs, merged if they have the same target, and the end. */
static regex_id close_place(struct tree *t, const struct place *p)
{
    struct regex_set *s = t->s;
    struct arc *arcs = t->arcs + p->first;
    size_t n = t->n_arcs - p->first, from = s->parts.n;
    t->n_arcs = p->first;
    if (n == 1 && !p->ends) {
        return regex_concat(s, regex_byte(s, arcs[0].byte), arcs[0].left);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t bits[4] = {0};
        size_t others = i + 1; /* arcs that are left */
        bits[arcs[i].byte / 64] |= (uint64_t)1 << arcs[i].byte % 64;
        for (size_t k = i + 1; k < n; k++) {
            if (arcs[k].left == arcs[i].left) {
                bits[arcs[k].byte / 64] |= (uint64_t)1 << arcs[k].byte % 64;
            } else {
                arcs[others++] = arcs[k];
            }
        }
        n = others;
        regex_push_parts(s, REGEX_K_OR, regex_concat(s, regex_byte_class(s, bits), arcs[i].left));
    }
    if (p->ends) {
        regex_push_parts(s, REGEX_K_OR, REGEX_EMPTY);
    }
    return regex_join_parts(s, REGEX_K_OR, from);
}

/* Closes the positions after `keep` bytes of the word, the deepest first. */
static bool close_after(struct tree *t, const struct regex_word *word, size_t keep)
{
    for (size_t i = word->n; i > keep; i--) {
        regex_id left = close_place(t, &t->places[i]);
        if (mem_grow(&t->arcs, t->n_arcs, &t->cap_arcs, sizeof *t->arcs, MEM_REQUEST) != ERR_OK) {
            return false;
        }
        t->arcs[t->n_arcs++] = (struct arc){(unsigned char)word->bytes[i - 1], left};
    }
    return true;
}

static bool put_words(struct tree *t, const struct regex_word *words, size_t n)
{
    bool ok = true;
    t->places[0] = (struct place){0, false};
    for (size_t i = 0; i < n && ok; i++) {
        const struct regex_word *word = &words[i], *before = i > 0 ? &words[i - 1] : NULL;
        size_t common = 0, most = before != NULL ? MIN_OF(before->n, word->n) : 0;
        while (common < most && before->bytes[common] == word->bytes[common]) {
            common++;
        }
        ok = before == NULL || close_after(t, before, common);
        for (size_t k = common + 1; k <= word->n; k++) {
            t->places[k] = (struct place){t->n_arcs, false};
        }
        t->places[word->n].ends = true;
        ok = ok && regex_spend(t->s, 1 + word->n / 8); /* the visited part of the word */
    }
    return ok && close_after(t, &words[n - 1], 0);
}

regex_id regex_words(struct regex_set *s, struct regex_word *words, size_t n)
{
    struct tree t = {.s = s};
    size_t longest = 0;
    bool is_sorted = true;
    regex_id r = REGEX_NONE;
    for (size_t i = 0; i < n; i++) {
        longest = MAX_OF(longest, words[i].n);
        is_sorted = is_sorted && (i == 0 || by_bytes(&words[i - 1], &words[i]) <= 0);
    }
    if (n == 0 || s->err != ERR_OK) {
        return REGEX_NONE;
    }
    if (!is_sorted) {
        qsort(words, n, sizeof *words, by_bytes);
    }
    t.places = mem_zalloc_array(longest + 1, sizeof *t.places, MEM_REQUEST);
    if (t.places != NULL && put_words(&t, words, n)) {
        r = close_place(&t, &t.places[0]);
    } else {
        regex_fail(s, ERR_NOMEM);
    }
    mem_free(t.places);
    mem_free(t.arcs);
    return r;
}
