/* Follows several expressions in parallel. A state is a list of the rests of the expressions, stored once, with a table
 * of the next state per byte. */
#include "engine/grammar/grammar_internal.h"

#include <string.h>

enum { MAX_STATES = 1 << 16, SEARCH_BUDGET = 20000, MAX_TABLE_BYTES = 32 << 20 };

enum err lexer_init(struct lexer *l, struct regex_set *set)
{
    uint32_t dead;
    *l = (struct lexer){.set = set, .near_bytes = GRAMMAR_MAX_TOKEN_BYTES};
    l->byte_class = regex_byte_classes(set, &l->n_classes);
    for (int byte = 255; byte >= 0; byte--) {
        l->byte_of[l->byte_class[byte]] = (unsigned char)byte;
    }
    TRY(lexer_state_of(l, NULL, 0, &dead));
    return lexer_init_plain(l);
}

void lexer_fini(struct lexer *l)
{
    regex_set_free(&l->set);
    mem_free(l->states);
    mem_free(l->parts);
    mem_free(l->next);
    mem_free(l->like);
    table_fini(&l->table);
    mem_free(l->plain);
    mem_free(l->reaches);
    table_fini(&l->reach_table);
}

size_t lexer_bytes(const struct lexer *l)
{
    size_t row = (size_t)l->n_classes;
    return regex_set_bytes(l->set) + l->cap_states * sizeof *l->states + l->cap_parts * sizeof *l->parts +
           l->cap_rows * row * sizeof *l->next + l->cap_likes * row + table_bytes(&l->table) +
           l->cap_reaches * sizeof *l->reaches + table_bytes(&l->reach_table);
}

static uint64_t hash_parts(const struct lexer_part *parts, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ parts[i].index ^ (uint64_t)parts[i].left << 32) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static uint64_t hash_state(const void *lexer, uint32_t i)
{
    const struct lexer *l = lexer;
    return hash_parts(l->parts + l->states[i].first, l->states[i].n);
}

struct state_key {
    const struct lexer *l;
    const struct lexer_part *parts;
    uint32_t n;
};

static ALWAYS_INLINE bool is_state(const void *key, uint32_t i)
{
    const struct state_key *k = key;
    const struct lexer_state *s = &k->l->states[i];
    return s->n == k->n && (k->n == 0 || memcmp(k->l->parts + s->first, k->parts, k->n * sizeof *k->parts) == 0);
}

enum err lexer_state_of(struct lexer *l, const struct lexer_part *parts, uint32_t n, uint32_t *out)
{
    if (l->n_states >= MAX_STATES) {
        return ERR_GRAMMAR_LIMIT;
    }
    uint64_t hash = hash_parts(parts, n);
    *out = table_find(&l->table, hash, is_state, &(struct state_key){l, parts, n});
    if (*out != TABLE_NONE) {
        return ERR_OK;
    }
    TRY_MEM(grammar_reserve((void **)&l->states, l->n_states, 1, &l->cap_states, sizeof *l->states, MEM_GRAMMAR) &&
            grammar_reserve((void **)&l->parts, l->n_parts, n, &l->cap_parts, sizeof *l->parts, MEM_GRAMMAR));
    TRY(table_reserve(&l->table, l->n_states + (size_t)1, hash_state, l, MEM_GRAMMAR));
    struct lexer_state s = {.first = l->n_parts, .n = n, .has_ends = true};
    for (uint32_t i = 0; i < n; i++) {
        l->parts[l->n_parts + i] = parts[i];
        bool ends = regex_is_nullable(l->set, parts[i].left);
        s.accepts |= ends;
        s.has_ends &= !ends || parts[i].index < 64;
        s.ends |= (uint64_t)ends << parts[i].index % 64;
        struct regex_hash h = regex_hash(l->set, regex_near(l->set, parts[i].left, l->near_bytes));
        s.near.a += h.a;
        s.near.b += h.b;
    }
    TRY(regex_ok(l->set));
    l->n_parts += n;
    *out = l->n_states;
    l->states[l->n_states++] = s;
    table_add(&l->table, hash, *out);
    return ERR_OK;
}

/* Records for each class the first class that leads to the same state. */
static void find_likes(struct lexer *l, uint32_t state, unsigned char *like)
{
    unsigned char groups[256] = {0}, first[256];
    int n_groups = 1, n_found = 0;
    const struct lexer_state *s = &l->states[state];
    for (uint32_t i = 0; i < s->n && n_groups < l->n_classes; i++) {
        regex_split_groups(l->set, l->parts[s->first + i].left, groups, &n_groups);
    }
    for (int class = 0; class < l->n_classes; class ++) { /* groups are numbered in the order in which they are found */
        if (groups[class] == n_found) {
            first[n_found++] = (unsigned char)class;
        }
        like[class] = first[groups[class]];
    }
}

static enum err make_row(struct lexer *l, uint32_t state)
{
    size_t row = (size_t)l->n_classes;
    if ((l->n_rows + 1) * row * sizeof *l->next > MAX_TABLE_BYTES) {
        return ERR_GRAMMAR_LIMIT;
    }
    TRY_MEM(grammar_reserve((void **)&l->next, l->n_rows, 1, &l->cap_rows, row * sizeof *l->next, MEM_GRAMMAR) &&
            grammar_reserve((void **)&l->like, l->n_rows, 1, &l->cap_likes, row, MEM_GRAMMAR));
    memset(l->next + l->n_rows * row, 0, row * sizeof *l->next);
    find_likes(l, state, l->like + l->n_rows * row);
    l->states[state].next = ++l->n_rows;
    return regex_ok(l->set);
}

/* Finds the state after a byte of the class. */
static enum err derive(struct lexer *l, uint32_t state, unsigned char byte, uint32_t *out)
{
    struct lexer_part small[64], *parts = small;
    uint32_t n = l->states[state].n, n_left = 0;
    if (n > ARRAY_LEN(small)) {
        parts = mem_zalloc_array(n, sizeof *parts, MEM_GRAMMAR);
    }
    enum err err = parts != NULL ? ERR_OK : ERR_NOMEM;
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        bool none;
        struct lexer_part part = l->parts[l->states[state].first + i];
        part.left = regex_next(l->set, part.left, byte);
        err = regex_is_none(l->set, part.left, SEARCH_BUDGET, &none);
        parts[n_left] = part;
        n_left += !none;
    }
    *out = LEXER_DEAD;
    err = err == ERR_OK && n_left > 0 ? lexer_state_of(l, parts, n_left, out) : err;
    if (parts != small) {
        mem_free(parts);
    }
    return err;
}

/* Finds the class's next state, from the first class like it. */
static enum err fill(struct lexer *l, uint32_t state, size_t row, size_t class)
{
    size_t like = l->like[row + class];
    if (l->next[row + like] == 0) {
        uint32_t next;
        TRY(derive(l, state, l->byte_of[like], &next));
        l->next[row + like] = next + 1;
    }
    l->next[row + class] = l->next[row + like];
    return ERR_OK;
}

enum err lexer_step_anew(struct lexer *l, uint32_t state, unsigned char byte, uint32_t *out)
{
    size_t class = l->byte_class[byte];
    if (l->states[state].next == 0) {
        TRY(make_row(l, state));
    }
    size_t row = (size_t)(l->states[state].next - 1) * (size_t)l->n_classes;
    if (l->next[row + class] == 0) {
        TRY(fill(l, state, row, class));
    }
    *out = l->next[row + class] - 1;
    return ERR_OK;
}
