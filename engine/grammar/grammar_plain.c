/* Finds how far a lexer state continues with any plain text. Most tokens are plain text, and most states that are slow
 * to walk are within strings, so this decides most tokens without a walk. */
#include "engine/grammar/grammar_internal.h"

#include <string.h>

enum { MAX_PAIRS = 512, N_SEEN = 2 * MAX_PAIRS /* a power of two */, SEARCH_BUDGET = 20000, MAX_JOINT = 16 };

/* Bytes from first to last lead from a state to the next one [Unicode 15, table 3-7]. */
static const struct plain_arc {
    unsigned char state, first, last, next;
} arcs[] = {
    {0, 0x20, 0x21, 0}, {0, 0x23, 0x5b, 0}, {0, 0x5d, 0x7f, 0}, {0, 0xc2, 0xdf, 1}, {0, 0xe0, 0xe0, 4},
    {0, 0xe1, 0xec, 2}, {0, 0xed, 0xed, 5}, {0, 0xee, 0xef, 2}, {0, 0xf0, 0xf0, 6}, {0, 0xf1, 0xf3, 3},
    {0, 0xf4, 0xf4, 7}, {1, 0x80, 0xbf, 0}, {2, 0x80, 0xbf, 1}, {3, 0x80, 0xbf, 2}, {4, 0xa0, 0xbf, 1},
    {5, 0x80, 0x9f, 1}, {6, 0x90, 0xbf, 2}, {7, 0x80, 0x8f, 2},
};

unsigned plain_step(unsigned state, unsigned char byte)
{
    for (size_t i = 0; i < ARRAY_LEN(arcs); i++) {
        if (arcs[i].state == state && byte >= arcs[i].first && byte <= arcs[i].last) {
            return arcs[i].next;
        }
    }
    return PLAIN_NOT;
}

enum err lexer_init_plain(struct lexer *l)
{
    uint32_t n = 0;
    l->plain = mem_zalloc_array(256 * PLAIN_STATES, sizeof *l->plain, MEM_GRAMMAR);
    TRY_MEM(l->plain != NULL);
    for (unsigned state = 0; state < PLAIN_STATES; state++) {
        unsigned char seen[256] = {0}; /* of a class: bit `next` */
        l->plain_first[state] = n;
        for (unsigned byte = 0; byte < 256; byte++) {
            unsigned next = plain_step(state, (unsigned char)byte), class = l->byte_class[byte];
            if (next != PLAIN_NOT && (seen[class] >> next & 1) == 0) {
                seen[class] |= (unsigned char)(1u << next);
                l->plain[n++] = (struct plain_byte){(unsigned char)byte, (unsigned char)next};
            }
        }
    }
    l->plain_first[PLAIN_STATES] = n;
    return ERR_OK;
}

/* --- one expression ------------------------------------------------------------------------------------------------- */

/* Expressions with the states of plain text, in the order in which they were found. */
struct pairs {
    struct {
        regex_id left;
        unsigned plain;
        struct regex_hash near;
    } pairs[MAX_PAIRS];
    uint32_t n;
    struct table seen; /* of pairs by near and plain */
    uint32_t slots[N_SEEN];
};

struct pair_key {
    const struct pairs *p;
    unsigned plain;
    struct regex_hash near;
};

static ALWAYS_INLINE bool is_pair(const void *key, uint32_t i)
{
    const struct pair_key *k = key;
    const struct regex_hash *near = &k->p->pairs[i].near;
    return k->p->pairs[i].plain == k->plain && near->a == k->near.a && near->b == k->near.b;
}

/* Adds a pair unless it, or one that no token distinguishes from it, is present; false: no room. */
static bool add_pair(struct pairs *p, struct lexer *l, regex_id left, unsigned plain)
{
    struct regex_hash near = regex_hash(l->set, regex_near(l->set, left, PLAIN_MAX_DEPTH));
    uint64_t hash = near.a ^ near.a >> 32 ^ plain * 0x9e3779b9u;
    if (table_find(&p->seen, hash, is_pair, &(struct pair_key){p, plain, near}) != TABLE_NONE) {
        return true;
    }
    if (p->n == MAX_PAIRS) {
        return false;
    }
    p->pairs[p->n].left = left;
    p->pairs[p->n].plain = plain;
    p->pairs[p->n].near = near;
    table_add(&p->seen, hash, p->n++);
    return true;
}

/* Follows the bytes from the pair i, one per group with the same next state, and adds the next pairs. *lives: no byte
 * ends the expression. *goes_on: it ends nowhere, and there is room. */
static enum err follow(struct pairs *p, struct lexer *l, uint32_t i, bool *lives, bool *goes_on)
{
    regex_id left = p->pairs[i].left;
    unsigned plain = p->pairs[i].plain;
    unsigned char groups[256] = {0}, seen[256] = {0}; /* of a group: bit `next` */
    int n_groups = 1;
    regex_split_groups(l->set, left, groups, &n_groups);
    for (uint32_t k = l->plain_first[plain]; k < l->plain_first[plain + 1] && *goes_on; k++) {
        const struct plain_byte step = l->plain[k];
        unsigned char *is_seen = &seen[groups[l->byte_class[step.byte]]];
        bool none;
        if ((*is_seen >> step.next & 1) == 0) {
            *is_seen |= (unsigned char)(1u << step.next);
            regex_id next = regex_next(l->set, left, step.byte);
            TRY(regex_is_none(l->set, next, SEARCH_BUDGET, &none));
            *lives = *lives && !none;
            *goes_on = none || (!regex_is_nullable(l->set, next) && add_pair(p, l, next, step.next));
        }
    }
    return regex_ok(l->set);
}

/* Searches as long as all pairs live, up to the depth `wanted`. */
static enum err find_reach(struct lexer *l, regex_id r, uint32_t wanted, struct plain_reach *out)
{
    struct pairs p;
    bool lives = true, goes_on = true;
    uint32_t at = 0;
    p.n = 0;
    memset(p.slots, 0, sizeof p.slots);
    table_use(&p.seen, p.slots, N_SEEN);
    add_pair(&p, l, r, PLAIN_WHOLE);
    *out = (struct plain_reach){.of = r};
    for (unsigned char depth = 1; depth <= PLAIN_MAX_DEPTH && goes_on && (lives || depth <= wanted); depth++) {
        for (uint32_t end = p.n; at < end && goes_on; at++) {
            TRY(follow(&p, l, at, &lives, &goes_on));
        }
        depth = at == p.n && goes_on ? PLAIN_MAX_DEPTH : depth; /* all pairs that plain text leads to were visited */
        out->alive = lives && goes_on ? depth : out->alive;
        out->quiet = goes_on ? depth : out->quiet;
    }
    out->is_whole = !goes_on;
    return ERR_OK;
}

/* --- cached results ----------------------------------------------------------------------------------------------- */

static uint64_t hash_of(regex_id r) { return r * 0x9e3779b9u >> 7; }
static uint64_t hash_reach(const void *lexer, uint32_t i)
{
    return hash_of(((const struct lexer *)lexer)->reaches[i].of);
}

struct reach_key {
    const struct lexer *l;
    regex_id of;
};

static ALWAYS_INLINE bool is_reach(const void *key, uint32_t i)
{
    const struct reach_key *k = key;
    return k->l->reaches[i].of == k->of;
}

/* `quiet` of the result is exact up to `wanted`. */
static enum err get_reach(struct lexer *l, regex_id r, uint32_t wanted, struct plain_reach *out)
{
    r = regex_near(l->set, r, PLAIN_MAX_DEPTH); /* so that distant bounds make no difference */
    TRY(regex_ok(l->set));
    uint32_t i = table_find(&l->reach_table, hash_of(r), is_reach, &(struct reach_key){l, r});
    if (i != TABLE_NONE && (l->reaches[i].is_whole || l->reaches[i].quiet >= wanted)) {
        *out = l->reaches[i];
        return ERR_OK;
    }
    if (i == TABLE_NONE) {
        TRY_MEM(
            grammar_reserve((void **)&l->reaches, l->n_reaches, 1, &l->cap_reaches, sizeof *l->reaches, MEM_GRAMMAR));
        TRY(table_reserve(&l->reach_table, l->n_reaches + (size_t)1, hash_reach, l, MEM_GRAMMAR));
    }
    TRY(find_reach(l, r, wanted, out));
    if (i == TABLE_NONE) {
        i = l->n_reaches++;
        table_add(&l->reach_table, hash_of(r), i);
    }
    l->reaches[i] = *out;
    return ERR_OK;
}

/* --- a state -------------------------------------------------------------------------------------------------------- */

/* Computes the reach of all parts together: one can continue where another does not. */
static enum err get_joint_reach(struct lexer *l, const struct lexer_state *s, struct plain_reach *out)
{
    regex_id all = REGEX_NONE;
    for (uint32_t i = 0; i < s->n; i++) {
        all = regex_or(l->set, all, l->parts[s->first + i].left);
    }
    TRY(regex_ok(l->set));
    return get_reach(l, all, 0, out);
}

enum err lexer_plain_depth(struct lexer *l, uint32_t state, uint32_t *out)
{
    const struct lexer_state s = l->states[state];
    struct plain_reach reach;
    uint32_t alive = 0, quiet = PLAIN_MAX_DEPTH;
    for (uint32_t i = 0; i < s.n; i++) { /* one live part is enough; none can end */
        TRY(get_reach(l, l->parts[s.first + i].left, 0, &reach));
        alive = MAX_OF(alive, (uint32_t)reach.alive);
        quiet = reach.is_whole ? MIN_OF(quiet, (uint32_t)reach.quiet) : quiet;
    }
    if (alive < PLAIN_MIN_DEPTH && quiet >= PLAIN_MIN_DEPTH && s.n > 1 && s.n <= MAX_JOINT) {
        TRY(get_joint_reach(l, &s, &reach));
        alive = MAX_OF(alive, (uint32_t)reach.alive);
    }
    alive = alive >= PLAIN_MIN_DEPTH ? MIN_OF(alive, quiet) : 0; /* a smaller depth is useless */
    for (uint32_t i = 0; i < s.n && alive > 0; i++) {
        TRY(get_reach(l, l->parts[s.first + i].left, alive, &reach));
        quiet = MIN_OF(quiet, (uint32_t)reach.quiet);
    }
    *out = MIN_OF(alive, quiet);
    return ERR_OK;
}
