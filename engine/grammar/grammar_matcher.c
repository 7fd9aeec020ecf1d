/* A sequence's position in a grammar: columns of Earley's items where lexemes can end, and the rests of the lexemes
 * that began there.
 *
 * A position within a lexeme is a lexer state (grammar_lexer.c) and a base. For each part of the state the base has the
 * lexeme and the column in which it began. Where a part can end, a new column is built from the items that waited for
 * it. Its base has the lexemes that can begin there, together with those that continue. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

enum { MAX_ITEMS = 1 << 22, MAX_COLUMN_ITEMS = 20000, MAX_WORK = 1 << 22, FEW_ITEMS = 24, FIRST_SEEN = 256 };

/* --- a column -------------------------------------------------------------------------------------------------------- */

enum err matcher_spend(struct grammar_matcher *m, uint64_t work)
{
    m->work += work;
    return m->work <= MAX_WORK ? ERR_OK : ERR_GRAMMAR_LIMIT;
}

static bool is_item(const struct matcher_item *item, uint32_t slot, uint32_t origin, uint32_t count)
{
    return item->slot == slot && item->origin == origin && item->count == count;
}

struct item_key {
    const struct grammar_matcher *m;
    uint32_t slot, origin, count;
};

static ALWAYS_INLINE bool is_place(const void *key, size_t at)
{
    const struct item_key *k = key;
    const struct matcher_seen *seen = &k->m->seen[at];
    return seen->stamp != k->m->stamp || is_item(&k->m->items[seen->item], k->slot, k->origin, k->count);
}

/* Returns the entry of the item in m->seen, or the free entry for it. */
static struct matcher_seen *place_of(const struct grammar_matcher *m, uint32_t slot, uint32_t origin, uint32_t count)
{
    uint64_t hash = (slot * 0x9e3779b97f4a7c15u ^ origin * 0xc2b2ae3d27d4eb4fu) + count * 0x165667b19e3779f9u;
    struct item_key key = {m, slot, origin, count};
    return &m->seen[table_probe(m->n_seen - 1, hash >> 32, is_place, &key)];
}

/* Records the new items of the newest column in the table. Any number can be new, because predict() adds all
 * alternatives of a rule without lookups. Without memory for the table, has_item() compares with each item. */
static void note_items(struct grammar_matcher *m, const struct matcher_column *c)
{
    if (2 * c->n >= m->n_seen) {
        uint32_t n = MAX_OF(m->n_seen, (uint32_t)FIRST_SEEN);
        while (2 * c->n >= n) {
            n *= 2; /* c->n <= MAX_COLUMN_ITEMS */
        }
        mem_free(m->seen);
        m->seen = mem_zalloc_array(n, sizeof *m->seen, MEM_REQUEST);
        m->n_seen = m->seen != NULL ? n : 0;
        m->n_noted = 0;
    }
    for (; m->n_seen > 0 && m->n_noted < c->n; m->n_noted++) {
        uint32_t i = c->first + m->n_noted;
        *place_of(m, m->items[i].slot, m->items[i].origin, m->items[i].count) = (struct matcher_seen){i, m->stamp};
    }
}

/* Checks whether the item is in the newest column. */
static bool has_item(struct grammar_matcher *m, uint32_t slot, uint32_t origin, uint32_t count)
{
    const struct matcher_column *c = &m->columns[m->now.n_columns - 1];
    if (c->n > FEW_ITEMS) {
        note_items(m, c);
    }
    if (c->n > FEW_ITEMS && m->n_seen > 0) {
        return place_of(m, slot, origin, count)->stamp == m->stamp;
    }
    for (uint32_t i = c->first; i < m->now.n_items; i++) {
        if (is_item(&m->items[i], slot, origin, count)) {
            return true;
        }
    }
    return false;
}

static enum err push_item(struct grammar_matcher *m, uint32_t slot, uint32_t origin, uint32_t count)
{
    struct matcher_column *c = &m->columns[m->now.n_columns - 1];
    if (m->now.n_items >= MAX_ITEMS || c->n >= MAX_COLUMN_ITEMS) {
        return ERR_GRAMMAR_LIMIT;
    }
    TRY_MEM(grammar_reserve((void **)&m->items, m->now.n_items, 1, &m->cap_items, sizeof *m->items, MEM_REQUEST));
    m->items[m->now.n_items++] = (struct matcher_item){slot, origin, count};
    c->n++;
    return matcher_spend(m, 1);
}

/* Adds an item to the newest column unless it is present. */
static enum err add_item(struct grammar_matcher *m, uint32_t slot, uint32_t origin, uint32_t count)
{
    return has_item(m, slot, origin, count) ? ERR_OK : push_item(m, slot, origin, count);
}

/* Adds items that wait for the members that can come next. */
static enum err add_members(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t origin, uint32_t set)
{
    TRY(matcher_spend(m, r->n));
    for (uint32_t i = 0; i < r->n; i++) {
        TRY(matcher_set_may_add(m, r, set, i) ? add_item(m, r->first + i, origin, set) : ERR_OK);
    }
    return ERR_OK;
}

/* Adds the item after the symbol it waits for. */
static enum err advance(struct grammar_matcher *m, struct matcher_item item)
{
    const struct grammar *g = m->g;
    const struct grammar_rule *r = &g->rules[g->slot_rule[item.slot]];
    if (r->is_set && item.slot == r->first + r->n) {
        return add_members(m, r, item.origin, item.count);
    }
    if (r->is_set) {
        uint32_t set;
        TRY(matcher_set_add(m, r, item.count, item.slot - r->first, &set));
        return add_item(m, r->first + r->n, item.origin, set);
    }
    if (!r->is_repeat) {
        return add_item(m, item.slot + 1, item.origin, 0);
    }
    uint32_t count = r->max == REGEX_UNBOUNDED ? MIN_OF(item.count + 1, r->min) : item.count + 1;
    return add_item(m, item.slot, item.origin, count);
}

/* Advances the items of a column that wait for the symbol; *found: set if there are any. */
static enum err advance_all(struct grammar_matcher *m, uint32_t column, uint32_t symbol, bool *found)
{
    const struct matcher_column from = m->columns[column];
    for (uint32_t i = from.first; i < from.first + from.n; i++) {
        if (m->g->slots[m->items[i].slot] == symbol && matcher_waits(m, &m->items[i])) {
            TRY(advance(m, m->items[i]));
            *found = true;
        }
    }
    return ERR_OK;
}

/* Appends a lexeme to the newest base: it began in a column, and `left` is its rest. */
static enum err push_scan(struct grammar_matcher *m, uint32_t column, uint32_t lexeme, regex_id left)
{
    TRY_MEM(grammar_reserve((void **)&m->scans, m->now.n_scans, 1, &m->cap_scans, sizeof *m->scans, MEM_REQUEST));
    m->scans[m->now.n_scans++] = (struct matcher_scan){column, lexeme, left};
    return ERR_OK;
}

/* Begins a lexeme in this column, once. */
static enum err add_scan(struct grammar_matcher *m, uint32_t lexeme)
{
    if (m->begun[lexeme] == m->stamp) {
        return ERR_OK;
    }
    m->begun[lexeme] = m->stamp;
    return push_scan(m, m->now.n_columns - 1, lexeme, m->g->lexemes[lexeme]);
}

/* Advances the items that waited for the rule in the column where it began. */
static enum err complete(struct grammar_matcher *m, uint32_t rule, uint32_t origin)
{
    uint32_t here = m->now.n_columns - 1;
    bool is_found;
    if (rule == m->g->start) {
        m->columns[here].may_end = true; /* it begins only in the first column */
    }
    if (origin == here) {
        return ERR_OK; /* the rule is nullable: items that wait for it have already advanced */
    }
    TRY(matcher_spend(m, 1 + m->columns[origin].n / 4)); /* each check is cheap */
    return advance_all(m, origin, SYMBOL_RULE | rule, &is_found);
}

static enum err predict(struct grammar_matcher *m, uint32_t rule)
{
    const struct grammar_rule *r = &m->g->rules[rule];
    uint32_t here = m->now.n_columns - 1;
    if (r->is_set) {
        return add_members(m, r, here, SETS_NONE);
    }
    if (r->is_repeat) {
        return add_item(m, r->first, here, 0);
    }
    bool is_there = r->n == 0 || has_item(m, m->g->alternatives[r->first].first, here, 0); /* then all are present */
    for (uint32_t i = 0; i < r->n && !is_there; i++) {
        TRY(push_item(m, m->g->alternatives[r->first + i].first, here, 0));
    }
    return ERR_OK;
}

bool matcher_waits(const struct grammar_matcher *m, const struct matcher_item *item)
{
    const struct grammar_rule *r = &m->g->rules[m->g->slot_rule[item->slot]];
    if (r->is_set) {
        return item->slot < r->first + r->n || matcher_set_may_go_on(m, r, item->count);
    }
    return !r->is_repeat || r->max == REGEX_UNBOUNDED || item->count < r->max;
}

/* Adds the items that an item of the newest column implies. */
static enum err expand(struct grammar_matcher *m, struct matcher_item item)
{
    const struct grammar *g = m->g;
    uint32_t symbol = g->slots[item.slot], rule = g->slot_rule[item.slot], number = SYMBOL_NUMBER(symbol);
    if (SYMBOL_KIND(symbol) == SYMBOL_END) {
        return complete(m, rule, item.origin);
    }
    const struct grammar_rule *r = &g->rules[rule];
    bool is_after = r->is_set && item.slot == r->first + r->n;
    if ((r->is_repeat && item.count >= r->min) || (is_after && matcher_set_may_end(m, r, item.count))) {
        TRY(complete(m, rule, item.origin));
    }
    if (!matcher_waits(m, &item)) {
        return ERR_OK;
    }
    bool is_nullable = false;
    switch (SYMBOL_KIND(symbol)) {
    case SYMBOL_RULE:
        TRY(predict(m, number));
        is_nullable = g->rules[number].is_nullable;
        break;
    case SYMBOL_LEXEME:
        is_nullable = regex_is_nullable(g->lexer.set, g->lexemes[number]);
        if (g->lexemes[number] != REGEX_EMPTY && g->lexemes[number] != REGEX_NONE) {
            TRY(add_scan(m, number));
        }
        break;
    default:
        m->columns[m->now.n_columns - 1].has_tokens = true;
        break;
    }
    return is_nullable && !g->rules[rule].is_repeat ? advance(m, item) : ERR_OK; /* a repeat has no empty iterations */
}

static enum err close_column(struct grammar_matcher *m)
{
    uint32_t first = m->columns[m->now.n_columns - 1].first;
    for (uint32_t i = first; i < m->now.n_items; i++) {
        TRY(expand(m, m->items[i]));
    }
    return ERR_OK;
}

/* Gives the newest column an unused stamp. */
static void new_stamp(struct grammar_matcher *m)
{
    if (++m->stamp == 0) { /* after 2^32 columns stamps repeat */
        mem_free(m->seen);
        m->seen = NULL;
        m->n_seen = 0;
        memset(m->begun, 0, m->g->n_lexemes * sizeof *m->begun);
        m->stamp = 1;
    }
    m->n_noted = 0;
}

static enum err open_column(struct grammar_matcher *m)
{
    TRY_MEM(
        grammar_reserve((void **)&m->columns, m->now.n_columns, 1, &m->cap_columns, sizeof *m->columns, MEM_REQUEST) &&
        grammar_reserve((void **)&m->bases, m->now.n_bases, 1, &m->cap_bases, sizeof *m->bases, MEM_REQUEST));
    new_stamp(m);
    m->columns[m->now.n_columns++] = (struct matcher_column){.first = m->now.n_items};
    m->bases[m->now.n_bases++] = (struct matcher_base){.first = m->now.n_scans, .column = m->now.n_columns - 1};
    return ERR_OK;
}

/* Builds the lexer state of the newest base's scans. */
static enum err close_base(struct grammar_matcher *m, struct matcher_place *out)
{
    struct matcher_base *b = &m->bases[m->now.n_bases - 1];
    b->n = m->now.n_scans - b->first;
    struct lexer_part small[64];
    struct lexer_part *parts = b->n <= ARRAY_LEN(small) ? small : mem_zalloc_array(b->n, sizeof *parts, MEM_REQUEST);
    TRY_MEM(parts != NULL);
    for (uint32_t i = 0; i < b->n; i++) {
        parts[i] = (struct lexer_part){i, m->scans[b->first + i].left};
    }
    out->base = m->now.n_bases - 1;
    enum err err = lexer_state_of(&m->g->lexer, parts, b->n, &out->state);
    if (parts != small) {
        mem_free(parts);
    }
    return err;
}

enum err matcher_begin_column(struct grammar_matcher *m, struct matcher_place at, bool keeps, struct matcher_place *out)
{
    const struct lexer *l = &m->g->lexer;
    bool is_found;
    TRY(open_column(m));
    const struct matcher_base from = m->bases[at.base];
    TRY(matcher_spend(m, l->states[at.state].n));
    for (uint32_t i = 0; i < l->states[at.state].n; i++) {
        const struct lexer_part part = l->parts[l->states[at.state].first + i];
        const struct matcher_scan scan = m->scans[from.first + part.index];
        if (regex_is_nullable(l->set, part.left)) {
            TRY(matcher_spend(m, 1 + m->columns[scan.column].n / 4));
            TRY(advance_all(m, scan.column, SYMBOL_LEXEME | scan.lexeme, &is_found));
        }
        if (keeps && part.left != REGEX_EMPTY) { /* lexemes that continue */
            TRY(push_scan(m, scan.column, scan.lexeme, part.left));
        }
    }
    TRY(close_column(m));
    return close_base(m, out);
}

/* --- a matcher ------------------------------------------------------------------------------------------------------- */

static enum err start(struct grammar_matcher *m)
{
    TRY(open_column(m));
    TRY(predict(m, m->g->start));
    TRY(close_column(m));
    m->now.has_column = true;
    return close_base(m, &m->now.at);
}

enum err grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **out)
{
    struct grammar_matcher *m = *out = mem_zalloc(sizeof *m, MEM_REQUEST);
    TRY_MEM(m != NULL);
    m->g = grammar_ref(g);
    m->v = v;
    m->begun = mem_zalloc_array(g->n_lexemes, sizeof *m->begun, MEM_REQUEST);
    pthread_mutex_lock(&g->lock);
    enum err err = m->begun != NULL ? start(m) : ERR_NOMEM;
    pthread_mutex_unlock(&g->lock);
    if (err != ERR_OK) {
        grammar_matcher_free(out);
    }
    return err;
}

void grammar_matcher_free(struct grammar_matcher **matcher)
{
    struct grammar_matcher *m = *matcher;
    if (m != NULL) {
        grammar_unref(&m->g);
        mem_free(m->items);
        mem_free(m->columns);
        mem_free(m->scans);
        mem_free(m->bases);
        mem_free(m->memo);
        mem_free(m->depths);
        mem_free(m->rows);
        mem_free(m->path);
        matcher_sets_fini(&m->sets);
        mem_free(m->seen);
        mem_free(m->begun);
        mem_free(m);
    }
    *matcher = NULL;
}

enum err matcher_take_byte(struct grammar_matcher *m, unsigned char byte, bool *taken)
{
    uint32_t state;
    TRY(lexer_step(&m->g->lexer, m->now.at.state, byte, &state));
    *taken = state != LEXER_DEAD;
    m->now.has_column = false;
    if (*taken) {
        m->now.at.state = state;
        if (m->g->lexer.states[state].accepts) {
            m->now.has_column = true;
            return matcher_begin_column(m, m->now.at, true, &m->now.at);
        }
    }
    return ERR_OK;
}

enum err matcher_take_token(struct grammar_matcher *m, int32_t id, bool *taken)
{
    *taken = false;
    if (!m->now.has_column || !m->columns[m->bases[m->now.at.base].column].has_tokens) {
        return ERR_OK;
    }
    uint32_t from = m->bases[m->now.at.base].column;
    TRY(open_column(m));
    TRY(advance_all(m, from, SYMBOL_TOKEN | (uint32_t)id, taken));
    TRY(close_column(m));
    return close_base(m, &m->now.at);
}

static enum err take(struct grammar_matcher *m, int32_t id, bool *taken)
{
    const struct grammar_vocab *v = m->v;
    const struct matcher_state before = m->now;
    enum err err = matcher_take_token(m, id, taken);
    if (err == ERR_OK && !*taken && v->is_end[id] == 0) {
        m->now = before;
        *taken = true;
        for (uint32_t i = v->starts[id]; i < v->starts[id + 1] && *taken && err == ERR_OK; i++) {
            err = matcher_take_byte(m, (unsigned char)v->bytes[i], taken);
        }
    }
    if (err != ERR_OK || !*taken) {
        m->now = before;
        return err;
    }
    m->marks[m->n_marks++ % GRAMMAR_MAX_ROLLBACK] = before;
    return ERR_OK;
}

enum err grammar_matcher_accept(struct grammar_matcher *m, int32_t id, bool *taken)
{
    *taken = false;
    if (id < 0 || id >= m->v->n_vocab) {
        return ERR_OK;
    }
    if (m->v->is_end[id] == 1 && grammar_matcher_may_end(m)) {
        m->marks[m->n_marks++ % GRAMMAR_MAX_ROLLBACK] = m->now;
        *taken = true;
        return ERR_OK;
    }
    pthread_mutex_lock(&m->g->lock);
    m->work = 0;
    enum err err = take(m, id, taken);
    pthread_mutex_unlock(&m->g->lock);
    return err;
}

void grammar_matcher_rollback(struct grammar_matcher *m, int n)
{
    for (; n > 0 && m->n_marks > 0; n--) {
        m->now = m->marks[--m->n_marks % GRAMMAR_MAX_ROLLBACK];
    }
}

bool grammar_matcher_may_end(const struct grammar_matcher *m)
{
    return m->now.has_column && m->columns[m->bases[m->now.at.base].column].may_end;
}

bool grammar_matcher_must_end(const struct grammar_matcher *m)
{
    const struct matcher_base *b = &m->bases[m->now.at.base];
    return grammar_matcher_may_end(m) && b->n == 0 && !m->columns[b->column].has_tokens;
}
