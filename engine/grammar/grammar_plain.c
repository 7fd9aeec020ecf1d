/* How far a lexer state goes on with any plain text. Most tokens are plain text and most states that take long to walk are within
 * strings, so this tells most of what they allow at once. */
#include "engine/grammar/grammar_internal.h"

#include <string.h>

enum { MAX_PAIRS = 512, N_SEEN = 2048 /* a power of two */, FIRST_REACHES = 64, SEARCH_BUDGET = 20000, MAX_JOINT = 16 };

/* Bytes from first to last lead from a state to the next [Unicode 15, table 3-7]. */
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
    if (l->plain == NULL) {
        return ERR_NOMEM;
    }
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

/* Expressions with the states of plain text, in the order in which they were come upon. */
struct pairs {
    struct {
        regex_id left;
        unsigned plain;
        struct regex_hash near;
    } pairs[MAX_PAIRS];
    uint32_t n;
    uint16_t seen[N_SEEN]; /* pairs plus 1, by near and plain */
};

/* Adds a pair unless it, or one that no token tells apart from it, is there; false: there is no room. */
static bool add_pair(struct pairs *p, struct lexer *l, regex_id left, unsigned plain)
{
    struct regex_hash near = regex_hash(l->set, regex_near(l->set, left, PLAIN_MAX_DEPTH));
    uint32_t at = (uint32_t)(near.a ^ near.a >> 32 ^ plain * 0x9e3779b9u) & (N_SEEN - 1);
    for (; p->seen[at] != 0; at = (at + 1) & (N_SEEN - 1)) {
        uint32_t i = p->seen[at] - 1u;
        if (p->pairs[i].plain == plain && p->pairs[i].near.a == near.a && p->pairs[i].near.b == near.b) {
            return true;
        }
    }
    if (p->n == MAX_PAIRS) {
        return false;
    }
    p->pairs[p->n].left = left;
    p->pairs[p->n].plain = plain;
    p->pairs[p->n].near = near;
    p->seen[at] = (uint16_t)++p->n;
    return true;
}

/* Bytes that lead on from the pair i, one of each group that leads to the same. Adds what they lead to. *lives: none of them ends
 * it; *goes_on: it ends nowhere, and there is room. */
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

/* Looks as far as all lives, and as far as `wanted`. */
static enum err find_reach(struct lexer *l, regex_id r, uint32_t wanted, struct plain_reach *out)
{
    struct pairs p;
    bool lives = true, goes_on = true;
    uint32_t at = 0;
    p.n = 0;
    memset(p.seen, 0, sizeof p.seen);
    add_pair(&p, l, r, PLAIN_WHOLE);
    *out = (struct plain_reach){.of = r};
    for (unsigned char depth = 1; depth <= PLAIN_MAX_DEPTH && goes_on && (lives || depth <= wanted); depth++) {
        for (uint32_t end = p.n; at < end && goes_on; at++) {
            TRY(follow(&p, l, at, &lives, &goes_on));
        }
        depth = at == p.n && goes_on ? PLAIN_MAX_DEPTH : depth; /* all that plain text comes to was seen */
        out->alive = lives && goes_on ? depth : out->alive;
        out->quiet = goes_on ? depth : out->quiet;
    }
    out->is_whole = !goes_on;
    return ERR_OK;
}

/* --- what was found before ------------------------------------------------------------------------------------------ */

static struct plain_reach *reach_at(const struct lexer *l, regex_id r)
{
    uint32_t at = r * 0x9e3779b9u >> 7 & (l->n_reaches - 1);
    while (l->reaches[at].of != REGEX_NONE && l->reaches[at].of != r) {
        at = (at + 1) & (l->n_reaches - 1);
    }
    return &l->reaches[at];
}

static enum err grow_reaches(struct lexer *l)
{
    struct plain_reach *old = l->reaches;
    uint32_t n = l->n_reaches;
    l->reaches = mem_zalloc_array(n != 0 ? 2 * n : FIRST_REACHES, sizeof *l->reaches, MEM_GRAMMAR);
    if (l->reaches == NULL) {
        l->reaches = old;
        return ERR_NOMEM;
    }
    l->n_reaches = n != 0 ? 2 * n : FIRST_REACHES;
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].of != REGEX_NONE) {
            *reach_at(l, old[i].of) = old[i];
        }
    }
    mem_free(old);
    return ERR_OK;
}

/* `quiet` of what is found is right up to `wanted`. */
static enum err get_reach(struct lexer *l, regex_id r, uint32_t wanted, struct plain_reach *out)
{
    r = regex_near(l->set, r, PLAIN_MAX_DEPTH); /* so that bounds far off make no difference */
    TRY(regex_ok(l->set));
    if (2 * l->n_reached >= l->n_reaches) {
        TRY(grow_reaches(l));
    }
    *out = *reach_at(l, r);
    if (out->of == REGEX_NONE || (!out->is_whole && out->quiet < wanted)) {
        l->n_reached += out->of == REGEX_NONE;
        TRY(find_reach(l, r, wanted, out));
        *reach_at(l, r) = *out;
    }
    return ERR_OK;
}

/* --- a state -------------------------------------------------------------------------------------------------------- */

/* Of the parts together: one may go on where another does not. */
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
    for (uint32_t i = 0; i < s.n; i++) { /* one that lives is enough; none may end */
        TRY(get_reach(l, l->parts[s.first + i].left, 0, &reach));
        alive = MAX_OF(alive, (uint32_t)reach.alive);
        quiet = reach.is_whole ? MIN_OF(quiet, (uint32_t)reach.quiet) : quiet;
    }
    if (alive < PLAIN_MIN_DEPTH && quiet >= PLAIN_MIN_DEPTH && s.n > 1 && s.n <= MAX_JOINT) {
        TRY(get_joint_reach(l, &s, &reach));
        alive = MAX_OF(alive, (uint32_t)reach.alive);
    }
    alive = alive >= PLAIN_MIN_DEPTH ? MIN_OF(alive, quiet) : 0; /* less is of no use */
    for (uint32_t i = 0; i < s.n && alive > 0; i++) {
        TRY(get_reach(l, l->parts[s.first + i].left, alive, &reach));
        quiet = MIN_OF(quiet, (uint32_t)reach.quiet);
    }
    *out = MIN_OF(alive, quiet);
    return ERR_OK;
}
