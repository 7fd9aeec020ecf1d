/* How far a lexer state goes on with any plain text. Most tokens are plain text and most states that take long to walk are within
 * strings, so this tells most of what they allow at once. */
#include "engine/grammar/grammar_internal.h"

#include <string.h>

enum { MAX_PAIRS = 512, N_SEEN = 2048 /* a power of two */ };

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
    l->plain = mem_zalloc_array(256 * PLAIN_STATES, sizeof *l->plain, MEM_REQUEST);
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

/* Lexer states with the states of plain text, in the order in which they were come upon. */
struct pairs {
    struct {
        uint32_t state;
        unsigned plain;
    } pairs[MAX_PAIRS];
    uint32_t n;
    uint16_t seen[N_SEEN]; /* pairs plus 1, by state and plain */
};

/* Adds a pair unless it, or one that no token tells apart from it, is there; false: there is no room. */
static bool add_pair(struct pairs *p, const struct lexer *l, uint32_t state, unsigned plain)
{
    struct regex_hash key = l->states[state].near;
    uint32_t at = (uint32_t)(key.a ^ key.a >> 32 ^ plain * 0x9e3779b9u) & (N_SEEN - 1);
    for (; p->seen[at] != 0; at = (at + 1) & (N_SEEN - 1)) {
        uint32_t i = p->seen[at] - 1u;
        const struct regex_hash *other = &l->states[p->pairs[i].state].near;
        if (p->pairs[i].plain == plain && other->a == key.a && other->b == key.b) {
            return true;
        }
    }
    if (p->n == MAX_PAIRS) {
        return false;
    }
    p->pairs[p->n].state = state;
    p->pairs[p->n].plain = plain;
    p->seen[at] = (uint16_t)++p->n;
    return true;
}

/* Adds what a byte makes of the pair i; *goes_on: each of them may be followed. */
static enum err follow(struct pairs *p, struct lexer *l, uint32_t i, bool *goes_on)
{
    uint32_t state = p->pairs[i].state, next;
    unsigned plain = p->pairs[i].plain;
    *goes_on = true;
    for (uint32_t k = l->plain_first[plain]; k < l->plain_first[plain + 1] && *goes_on; k++) {
        TRY(lexer_step(l, state, l->plain[k].byte, &next));
        *goes_on = next != LEXER_DEAD && !l->states[next].accepts && add_pair(p, l, next, l->plain[k].next);
    }
    return ERR_OK;
}

enum err lexer_plain_depth(struct lexer *l, uint32_t state, uint32_t *out)
{
    struct pairs p;
    bool goes_on = true;
    p.n = 0;
    memset(p.seen, 0, sizeof p.seen);
    add_pair(&p, l, state, PLAIN_WHOLE);
    *out = 0;
    for (uint32_t at = 0, end = p.n; at < end && *out < PLAIN_MAX_DEPTH; end = p.n) {
        for (; at < end; at++) {
            TRY(follow(&p, l, at, &goes_on));
            if (!goes_on) {
                return ERR_OK;
            }
        }
        ++*out;
    }
    *out = PLAIN_MAX_DEPTH; /* all that plain text comes to was looked at, or as far as is asked */
    return ERR_OK;
}
