/* Expressions for the contents of JSON strings. Each byte of a string has its own spellings, and none begins another
 * one. So each part of an expression is converted separately. Only a complement must be restricted to contents of JSON
 * strings. */
#include "engine/base/hex.h"
#include "engine/regex/regex_internal.h"

#include "engine/base/mem.h"

#include <string.h>

enum { N_NIBBLES = 16 };

/* Returns the digit in both cases. */
static regex_id by_digit(struct regex_set *s, unsigned nibble)
{
    uint64_t bits[4] = {0};
    for (int c = 0; c < 128; c++) {
        bits[c / 64] |= (uint64_t)(hex_value((char)c) == (int)nibble) << c % 64;
    }
    return regex_byte_class(s, bits);
}

static bool has(const uint64_t bits[4], unsigned byte) { return (bits[byte / 64] >> byte % 64 & 1) != 0; }

/* Returns \u0041 etc. for the ASCII bytes of the class. */
static regex_id by_number(struct regex_set *s, const uint64_t bits[4])
{
    regex_id r = REGEX_NONE;
    for (unsigned high = 0; high < 8; high++) {
        regex_id low = REGEX_NONE;
        for (unsigned i = 0; i < N_NIBBLES; i++) {
            low = has(bits, high * N_NIBBLES + i) ? regex_or(s, low, by_digit(s, i)) : low;
        }
        r = regex_or(s, r, regex_concat(s, by_digit(s, high), low));
    }
    return regex_concat(s, regex_bytes(s, "\\u00", 4), r);
}

/* Returns the spellings of one byte of the class. */
static regex_id write_class(struct regex_set *s, const uint64_t bits[4])
{
    static const struct {
        char byte, letter;
    } escapes[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                   {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};
    uint64_t plain[4] = {bits[0] & ~(uint64_t)0xffffffffu, bits[1], bits[2], bits[3]}, letters[4] = {0};
    plain['"' / 64] &= ~((uint64_t)1 << '"' % 64);
    plain['\\' / 64] &= ~((uint64_t)1 << '\\' % 64);
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        if (has(bits, (unsigned char)escapes[i].byte)) {
            letters[escapes[i].letter / 64] |= (uint64_t)1 << escapes[i].letter % 64;
        }
    }
    const regex_id ways[] = {regex_byte_class(s, plain),
                             regex_concat(s, regex_bytes(s, "\\", 1), regex_byte_class(s, letters)),
                             by_number(s, bits)};
    return regex_or_all(s, ways, ARRAY_LEN(ways));
}

/* Returns the contents of any JSON string. */
static regex_id write_all(struct regex_set *s)
{
    const uint64_t bits[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    return regex_repeat(s, write_class(s, bits), 0, REGEX_UNBOUNDED);
}

/* Returns a part's converted form, plus 1; 0: none yet. */
static regex_id made_of(const struct regex_set *s, regex_id r) { return r < s->n_escaped ? s->escaped[r] : 0; }

/* Returns the next part of r that is not converted yet; REGEX_NONE: none. */
static regex_id missing_part(const struct regex_set *s, regex_id r)
{
    const struct regex_node *n = &s->nodes[r];
    if (n->kind <= REGEX_K_CLASS || n->kind == REGEX_K_MULTIPLE) {
        return REGEX_NONE;
    }
    if (n->kind == REGEX_K_LOOP) { /* the loop is created before its parts, which lead back to it */
        regex_id is = s->loops[n->a].is;
        return made_of(s, is) == 0 ? is : REGEX_NONE;
    }
    if (made_of(s, n->a) == 0) {
        return n->a;
    }
    bool has_two = n->kind == REGEX_K_CONCAT || n->kind == REGEX_K_OR || n->kind == REGEX_K_AND;
    return has_two && made_of(s, n->b) == 0 ? n->b : REGEX_NONE;
}

/* Returns r's converted form restricted to contents of JSON strings, which a complement exceeds. Only the whole, and
 * parts that others can follow, need this: text after whole characters that ends like a string has whole characters
 * itself. */
static regex_id whole(struct regex_set *s, regex_id r)
{
    regex_id made = s->escaped[r] - 1;
    return regex_is_whole(s, r) ? made : regex_and(s, write_all(s), made);
}

/* Converts r from its parts' converted forms. */
static regex_id write_node(struct regex_set *s, regex_id r)
{
    const struct regex_node n = s->nodes[r];
    switch ((enum regex_kind)n.kind) {
    case REGEX_K_NONE:
    case REGEX_K_EMPTY:
    case REGEX_K_MULTIPLE: /* only of numbers, which have no escapes */
        return r;
    case REGEX_K_CLASS: {
        const struct regex_class c = s->classes[n.a];
        return write_class(s, c.bits);
    }
    case REGEX_K_CONCAT:
        return regex_concat(s, whole(s, n.a), s->escaped[n.b] - 1);
    case REGEX_K_OR:
        return regex_or(s, s->escaped[n.a] - 1, s->escaped[n.b] - 1);
    case REGEX_K_AND:
        return regex_and(s, s->escaped[n.a] - 1, s->escaped[n.b] - 1);
    case REGEX_K_NOT:
        return regex_not(s, s->escaped[n.a] - 1);
    case REGEX_K_REPEAT:
        return regex_repeat(s, whole(s, n.a), n.min, n.max);
    case REGEX_K_LOOP:
        regex_loop_is(s, s->escaped[r] - 1, s->escaped[s->loops[n.a].is] - 1);
        return s->escaped[r] - 1;
    }
    return REGEX_NONE;
}

/* A loop's parts can lead back to it, so its converted form is created first and defined after them. */
static void begin_loop(struct regex_set *s, regex_id r)
{
    bool is_new;
    const struct regex_hash name = s->loops[s->nodes[r].a].name;
    const uint64_t words[] = {name.a, name.b, 'j'};
    regex_id loop = regex_loop(s, regex_hash_words(words, ARRAY_LEN(words)), s->nodes[r].is_nullable,
                               s->nodes[r].is_whole, &is_new);
    s->escaped[r] = loop + 1;
}

/* Makes room for the converted forms of r and its parts, which all exist. */
static bool make_room(struct regex_set *s)
{
    size_t n = MAX_OF(2 * s->n_escaped, s->n_nodes + 64);
    regex_id *grown = s->n_nodes > s->n_escaped ? mem_realloc(s->escaped, n * sizeof *grown, MEM_GRAMMAR) : s->escaped;
    if (grown == NULL) {
        regex_fail(s, ERR_NOMEM);
        return false;
    }
    if (s->n_nodes > s->n_escaped) {
        memset(grown + s->n_escaped, 0, (n - s->n_escaped) * sizeof *grown);
        s->escaped = grown;
        s->n_escaped = n;
    }
    return true;
}

regex_id regex_json_escaped(struct regex_set *s, regex_id r)
{
    if (s->err != ERR_OK || !make_room(s)) {
        return REGEX_NONE;
    }
    size_t from = s->work.n;
    s->escaped[REGEX_NONE] = REGEX_NONE + 1; /* a part of REGEX_ALL that missing_part cannot represent */
    regex_list_push(s, &s->work, r);
    while (s->work.n > from && s->err == ERR_OK) { /* parts first; shared parts are converted once, across calls */
        regex_id top = s->work.ids[s->work.n - 1];
        if (s->nodes[top].kind == REGEX_K_LOOP && made_of(s, top) == 0) {
            begin_loop(s, top);
        }
        regex_id part = missing_part(s, top);
        if (part != REGEX_NONE) {
            regex_list_push(s, &s->work, part);
        } else {
            regex_id made = write_node(s, top);
            s->escaped[top] = made + 1;
            s->work.n--;
        }
    }
    s->work.n = from;
    return s->err == ERR_OK ? whole(s, r) : REGEX_NONE;
}
