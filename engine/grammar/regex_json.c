/* Expressions for what stands between the quotes of a JSON string. Each byte of a string is written in ways of its own, of which
 * none begins another, so each part of an expression becomes that of its ways by itself; only a complement has to stay among what
 * is a string at all. */
#include "engine/grammar/regex_internal.h"

#include "engine/base/mem.h"

enum { N_NIBBLES = 16 };

static regex_id hex_digit(struct regex_set *s, unsigned nibble)
{
    uint64_t bits[4] = {0};
    const char both[2] = {"0123456789abcdef"[nibble], "0123456789ABCDEF"[nibble]};
    for (int i = 0; i < 2; i++) {
        bits[both[i] / 64] |= (uint64_t)1 << both[i] % 64;
    }
    return regex_byte_class(s, bits);
}

static bool has(const uint64_t bits[4], unsigned byte) { return (bits[byte / 64] >> byte % 64 & 1) != 0; }

/* \u0041 for the ASCII ones. */
static regex_id by_number(struct regex_set *s, const uint64_t bits[4])
{
    regex_id r = REGEX_NONE;
    for (unsigned high = 0; high < 8; high++) {
        regex_id low = REGEX_NONE;
        for (unsigned i = 0; i < N_NIBBLES; i++) {
            low = has(bits, high * N_NIBBLES + i) ? regex_or(s, low, hex_digit(s, i)) : low;
        }
        r = regex_or(s, r, regex_concat(s, hex_digit(s, high), low));
    }
    return regex_concat(s, regex_bytes(s, "\\u00", 4), r);
}

/* The ways to write one byte of the class. */
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

/* Any string. */
static regex_id write_all(struct regex_set *s)
{
    const uint64_t bits[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    return regex_repeat(s, write_class(s, bits), 0, REGEX_UNBOUNDED);
}

/* What r becomes, of what its parts became. */
static regex_id write_node(struct regex_set *s, regex_id r, const regex_id *ways)
{
    const struct regex_node n = s->nodes[r];
    switch ((enum regex_kind)n.kind) {
    case REGEX_K_NONE:
    case REGEX_K_EMPTY:
    case REGEX_K_MULTIPLE: /* of numbers alone, which have no escapes */
        return r;
    case REGEX_K_CLASS: {
        const struct regex_class c = s->classes[n.a];
        return write_class(s, c.bits);
    }
    case REGEX_K_CONCAT:
        return regex_concat(s, ways[n.a], ways[n.b]);
    case REGEX_K_OR:
        return regex_or(s, ways[n.a], ways[n.b]);
    case REGEX_K_AND:
        return regex_and(s, ways[n.a], ways[n.b]);
    case REGEX_K_NOT:
        return regex_and(s, write_all(s), regex_not(s, ways[n.a]));
    case REGEX_K_REPEAT:
        return regex_repeat(s, ways[n.a], n.min, n.max);
    }
    return REGEX_NONE;
}

regex_id regex_json_escaped(struct regex_set *s, regex_id r)
{
    if (s->err != ERR_OK) {
        return REGEX_NONE;
    }
    regex_id *ways = mem_zalloc_array((size_t)r + 1, sizeof *ways, MEM_REQUEST), made = REGEX_NONE;
    unsigned char *is_part = mem_zalloc((size_t)r + 1, MEM_REQUEST);
    if (ways == NULL || is_part == NULL) {
        s->err = ERR_NOMEM;
    } else {
        is_part[r] = 1;
        for (size_t id = (size_t)r + 1; id-- > 0;) { /* parts have lower ids than what they are a part of */
            if (is_part[id] != 0) {
                is_part[s->nodes[id].kind == REGEX_K_CLASS ? REGEX_NONE : s->nodes[id].a] = 1;
                is_part[s->nodes[id].b] = 1;
            }
        }
        for (size_t id = 0; id <= r; id++) {
            ways[id] = is_part[id] != 0 ? write_node(s, (regex_id)id, ways) : REGEX_NONE;
        }
        made = ways[r];
    }
    mem_free(ways);
    mem_free(is_part);
    return s->err == ERR_OK ? made : REGEX_NONE;
}
