/* Builds rules and compiles them to one array of slots; an item of Earley's method is an index in it. */
#include "engine/grammar/grammar_internal.h"

#include <string.h>

struct grammar_builder {
    struct grammar *g;
    struct regex_set *set;
    bool borrows; /* the set */
    bool closes_objects;
};

/* Makes room for `more` elements of `size` bytes; NULL: the builder has failed. */
static void *reserve(struct grammar *g, void **array, uint32_t n, uint32_t more, uint32_t *cap, uint32_t most,
                     size_t size)
{
    if (g->err != ERR_OK || more > most || n > most - more) {
        g->err = g->err == ERR_OK ? ERR_GRAMMAR_LIMIT : g->err;
        return NULL;
    }
    if (!grammar_reserve(array, n, more, cap, size, MEM_GRAMMAR)) {
        g->err = ERR_NOMEM;
        return NULL;
    }
    return (char *)*array + n * size;
}

static enum err new_builder(struct grammar_builder **out)
{
    struct grammar_builder *b = *out = mem_zalloc(sizeof *b, MEM_GRAMMAR);
    TRY_MEM(b != NULL);
    b->g = mem_zalloc(sizeof *b->g, MEM_GRAMMAR);
    if (b->g == NULL || pthread_mutex_init(&b->g->lock, NULL) != 0) {
        mem_free(b->g);
        b->g = NULL;
        grammar_builder_free(out);
        return ERR_NOMEM;
    }
    atomic_init(&b->g->refs, 1);
    return ERR_OK;
}

enum err grammar_builder_new(struct grammar_builder **out)
{
    TRY(new_builder(out));
    if (regex_set_new(0, &(*out)->set) != ERR_OK) {
        grammar_builder_free(out);
        return ERR_NOMEM;
    }
    regex_limit_work((*out)->set, GRAMMAR_MAX_WORK);
    return ERR_OK;
}

enum err grammar_builder_new_in(struct regex_set *set, struct grammar_builder **out)
{
    TRY(new_builder(out));
    (*out)->set = set;
    (*out)->borrows = true;
    return ERR_OK;
}

void grammar_close_objects(struct grammar_builder *b) { b->closes_objects = true; }

bool grammar_closes_objects(const struct grammar_builder *b) { return b->closes_objects; }

struct grammar *grammar_ref(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed); /* the caller already holds a reference */
    return g;
}

void grammar_unref(struct grammar **grammar)
{
    struct grammar *g = *grammar;
    *grammar = NULL;
    if (g == NULL || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    struct mem_account *account = g->account;
    lexer_fini(&g->lexer);
    mem_free(g->lexemes);
    mem_free(g->rules);
    mem_free(g->alternatives);
    mem_free(g->slots);
    mem_free(g->slot_rule);
    mem_free(g->slot_is);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
    mem_free(account); /* last, because all other memory was charged to it */
}

void grammar_give_account(struct grammar *g, struct mem_account *account) { g->account = account; }

size_t grammar_bytes(const struct grammar *g)
{
    return sizeof *g + lexer_bytes(&g->lexer) + g->cap_lexemes * sizeof *g->lexemes + g->cap_rules * sizeof *g->rules +
           g->cap_alternatives * sizeof *g->alternatives + g->cap_slots * sizeof *g->slots +
           g->n_slots * sizeof *g->slot_rule + g->cap_slot_is;
}

void grammar_builder_free(struct grammar_builder **builder)
{
    struct grammar_builder *b = *builder;
    if (b != NULL) {
        grammar_unref(&b->g);
        if (!b->borrows) {
            regex_set_free(&b->set);
        }
        mem_free(b);
    }
    *builder = NULL;
}

struct regex_set *grammar_regexes(struct grammar_builder *b) { return b->set; }

/* --- rules -------------------------------------------------------------------------------------------------------- */

symbol_id grammar_lexeme(struct grammar_builder *b, regex_id r)
{
    struct grammar *g = b->g;
    for (uint32_t i = 0; i < MIN_OF(g->n_lexemes, 64u); i++) { /* searches the newest: many rules have the same brace */
        if (g->lexemes[g->n_lexemes - 1 - i] == r) {
            return SYMBOL_LEXEME | (g->n_lexemes - 1 - i);
        }
    }
    regex_id *place =
        reserve(g, (void **)&g->lexemes, g->n_lexemes, 1, &g->cap_lexemes, GRAMMAR_MAX_LEXEMES, sizeof *place);
    if (place == NULL) {
        return SYMBOL_LEXEME;
    }
    *place = r;
    return SYMBOL_LEXEME | g->n_lexemes++;
}

symbol_id grammar_token(struct grammar_builder *b, int32_t id)
{
    (void)b;
    return SYMBOL_TOKEN | (uint32_t)id;
}

symbol_id grammar_rule(struct grammar_builder *b)
{
    struct grammar *g = b->g;
    struct grammar_rule *r = reserve(g, (void **)&g->rules, g->n_rules, 1, &g->cap_rules, GRAMMAR_MAX_RULES, sizeof *r);
    if (r == NULL) {
        return SYMBOL_RULE;
    }
    *r = (struct grammar_rule){.is_repeat = false};
    return SYMBOL_RULE | g->n_rules++;
}

/* Appends symbols to the slots. */
static bool add_slots(struct grammar *g, const symbol_id *parts, size_t n, uint32_t *first)
{
    if (n > GRAMMAR_MAX_SYMBOLS) {
        g->err = g->err == ERR_OK ? ERR_GRAMMAR_LIMIT : g->err;
        return false;
    }
    uint32_t *place =
        reserve(g, (void **)&g->slots, g->n_slots, (uint32_t)n + 1, &g->cap_slots, GRAMMAR_MAX_SYMBOLS, sizeof *place);
    if (place == NULL) {
        return false;
    }
    if (!grammar_reserve((void **)&g->slot_is, g->n_slots, (uint32_t)n + 1, &g->cap_slot_is, 1, MEM_GRAMMAR)) {
        g->err = ERR_NOMEM;
        return false;
    }
    memset(g->slot_is + g->n_slots, 0, n + 1);
    if (n > 0) {
        memcpy(place, parts, n * sizeof *parts);
    }
    place[n] = SYMBOL_END;
    *first = g->n_slots;
    g->n_slots += (uint32_t)n + 1;
    return true;
}

void grammar_alternative(struct grammar_builder *b, symbol_id rule, const symbol_id *parts, size_t n)
{
    struct grammar *g = b->g;
    uint32_t first;
    struct grammar_alternative *a = reserve(g, (void **)&g->alternatives, g->n_alternatives, 1, &g->cap_alternatives,
                                            GRAMMAR_MAX_SYMBOLS, sizeof *a);
    if (a == NULL || !add_slots(g, parts, n, &first)) {
        return;
    }
    struct grammar_rule *r = &g->rules[SYMBOL_NUMBER(rule)];
    *a = (struct grammar_alternative){.first = first, .n = (uint32_t)n, .before = r->last_added};
    r->last_added = ++g->n_alternatives;
}

symbol_id grammar_sequence(struct grammar_builder *b, const symbol_id *parts, size_t n)
{
    if (n == 1) {
        return parts[0];
    }
    symbol_id rule = grammar_rule(b);
    grammar_alternative(b, rule, parts, n);
    return rule;
}

symbol_id grammar_choice(struct grammar_builder *b, const symbol_id *parts, size_t n)
{
    if (n == 1) {
        return parts[0];
    }
    symbol_id rule = grammar_rule(b);
    for (size_t i = 0; i < n; i++) {
        grammar_alternative(b, rule, &parts[i], 1);
    }
    return rule;
}

symbol_id grammar_repeat(struct grammar_builder *b, symbol_id of, uint32_t min, uint32_t max)
{
    uint32_t first;
    if (min == 1 && max == 1) {
        return of;
    }
    if (max == 0) {
        return grammar_sequence(b, NULL, 0);
    }
    symbol_id rule = grammar_rule(b);
    if (add_slots(b->g, &of, 1, &first)) {
        struct grammar_rule *r = &b->g->rules[SYMBOL_NUMBER(rule)];
        *r = (struct grammar_rule){.is_repeat = true, .min = min, .max = max, .first = first};
    }
    return rule;
}

symbol_id grammar_set(struct grammar_builder *b, const struct grammar_member *members, size_t n, symbol_id between,
                      uint32_t min, uint32_t max)
{
    struct grammar *g = b->g;
    symbol_id rule = grammar_rule(b);
    symbol_id *parts = mem_zalloc_array(n + 1, sizeof *parts, MEM_GRAMMAR);
    uint32_t first = 0, n_must = 0;
    for (size_t i = 0; parts != NULL && i < n; i++) {
        parts[i] = members[i].symbol;
        n_must += members[i].must_be;
    }
    if (parts != NULL) {
        parts[n] = between;
    }
    g->err = g->err == ERR_OK && parts == NULL ? ERR_NOMEM : g->err;
    if (g->err == ERR_OK && add_slots(g, parts, n + 1, &first) && g->err == ERR_OK) {
        g->rules[SYMBOL_NUMBER(rule)] = (struct grammar_rule){
            .is_set = true, .min = MAX_OF(min, n_must), .max = max, .n_must = n_must, .first = first, .n = (uint32_t)n};
        for (size_t i = 0; i < n; i++) {
            g->slot_is[first + i] = (unsigned char)((members[i].must_be ? MEMBER_MUST_BE : 0) |
                                                    (members[i].may_repeat ? MEMBER_MAY_REPEAT : 0));
        }
    }
    mem_free(parts);
    return rule;
}

/* --- properties of rules ------------------------------------------------------------------------------------------ */

enum { IS_NULLABLE, IS_PRODUCTIVE };

static bool has(const struct grammar *g, const struct regex_set *set, uint32_t symbol, int what)
{
    uint32_t i = SYMBOL_NUMBER(symbol);
    switch (SYMBOL_KIND(symbol)) {
    case SYMBOL_LEXEME:
        return what == IS_NULLABLE ? regex_is_nullable(set, g->lexemes[i]) : g->lexemes[i] != REGEX_NONE;
    case SYMBOL_RULE:
        return what == IS_NULLABLE ? g->rules[i].is_nullable : g->rules[i].is_productive;
    default:
        return what == IS_PRODUCTIVE;
    }
}

static bool alternative_has(const struct grammar *g, const struct regex_set *set, const struct grammar_alternative *a,
                            int what)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (!has(g, set, g->slots[a->first + i], what)) {
            return false;
        }
    }
    return true;
}

/* Checks whether the possible members so far suffice for the set, or none is needed. */
static bool set_has(const struct grammar *g, const struct regex_set *set, const struct grammar_rule *r, int what)
{
    uint32_t n_can = 0, n_must = 0;
    bool can_repeat = false;
    for (uint32_t i = r->first; i < r->first + r->n && what == IS_PRODUCTIVE; i++) {
        bool can = has(g, set, g->slots[i], IS_PRODUCTIVE);
        n_can += can;
        n_must += can && (g->slot_is[i] & MEMBER_MUST_BE) != 0;
        can_repeat = can_repeat || (can && (g->slot_is[i] & MEMBER_MAY_REPEAT) != 0);
    }
    bool has_between = r->min < 2 || has(g, set, g->slots[r->first + r->n], what);
    if (what == IS_NULLABLE) {
        return r->min == 0;
    }
    return n_must == r->n_must && (n_can >= r->min || can_repeat) && r->min <= r->max && has_between;
}

static bool rule_has(const struct grammar *g, const struct regex_set *set, const struct grammar_rule *r, int what)
{
    if (r->is_set) {
        return set_has(g, set, r, what);
    }
    if (r->is_repeat) {
        return r->min == 0 || has(g, set, g->slots[r->first], what);
    }
    for (uint32_t at = r->last_added; at != 0; at = g->alternatives[at - 1].before) {
        if (alternative_has(g, set, &g->alternatives[at - 1], what)) {
            return true;
        }
    }
    return false;
}

/* Repeats until nothing changes. Each round goes backwards and forwards, because rules often precede or follow the
 * rules that use them. */
static enum err spread(struct grammar *g, struct regex_set *set, int what)
{
    for (bool changes = true; changes;) {
        changes = false;
        TRY(regex_spend(set, (g->n_rules + g->n_slots) / 2) ? ERR_OK : regex_ok(set)); /* each check is cheap */
        for (uint32_t k = 0; k < 2 * g->n_rules; k++) {
            struct grammar_rule *r = &g->rules[k < g->n_rules ? k : 2 * g->n_rules - 1 - k];
            bool *is = what == IS_NULLABLE ? &r->is_nullable : &r->is_productive;
            if (!*is && rule_has(g, set, r, what)) {
                *is = changes = true;
            }
        }
    }
    return ERR_OK;
}

/* Replaces expressions that match nothing by REGEX_NONE. */
static enum err check_lexemes(struct grammar *g, struct regex_set *set)
{
    enum { BUDGET = 20000 };
    for (uint32_t i = 0; i < g->n_lexemes; i++) {
        bool none;
        TRY(regex_is_none(set, g->lexemes[i], BUDGET, &none));
        g->lexemes[i] = none ? REGEX_NONE : g->lexemes[i];
    }
    return regex_ok(set);
}

/* Stores the rules' alternatives consecutively, except alternatives that derive nothing; slots name their rules. */
static enum err settle(struct grammar *g, const struct regex_set *set)
{
    uint32_t n = 0;
    struct grammar_alternative *all = mem_zalloc_array(g->n_alternatives + 1, sizeof *all, MEM_GRAMMAR);
    g->slot_rule = mem_zalloc_array(g->n_slots + 1, sizeof *g->slot_rule, MEM_GRAMMAR);
    if (all == NULL || g->slot_rule == NULL) {
        mem_free(all);
        return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < g->n_rules; i++) {
        struct grammar_rule *r = &g->rules[i];
        if (r->is_set) {
            for (uint32_t k = r->first; k <= r->first + r->n + 1; k++) {
                g->slot_rule[k] = i;
                g->slot_is[k] |= has(g, set, g->slots[k], IS_PRODUCTIVE) ? MEMBER_CAN_BE : 0;
            }
            continue;
        }
        if (r->is_repeat) {
            bool can = has(g, set, g->slots[r->first], IS_PRODUCTIVE);
            r->max = can ? r->max : 0;
            r->min = has(g, set, g->slots[r->first], IS_NULLABLE) ? 0 : r->min;
            g->slot_rule[r->first] = g->slot_rule[r->first + 1] = i;
            continue;
        }
        r->first = n;
        for (uint32_t at = r->last_added; at != 0; at = g->alternatives[at - 1].before) {
            const struct grammar_alternative *a = &g->alternatives[at - 1];
            for (uint32_t k = 0; k <= a->n; k++) {
                g->slot_rule[a->first + k] = i;
            }
            if (alternative_has(g, set, a, IS_PRODUCTIVE)) {
                all[n++] = *a;
            }
        }
        r->n = n - r->first;
    }
    mem_free(g->alternatives);
    g->alternatives = all;
    g->n_alternatives = n;
    return ERR_OK;
}

enum err grammar_derives(struct grammar_builder *b, symbol_id start, bool *out)
{
    TRY(b->g->err);
    TRY(check_lexemes(b->g, b->set));
    TRY(spread(b->g, b->set, IS_PRODUCTIVE));
    *out = has(b->g, b->set, start, IS_PRODUCTIVE);
    return ERR_OK;
}

static enum err finish(struct grammar_builder *b, symbol_id start, struct err_info *info)
{
    struct grammar *g = b->g;
    symbol_id whole = grammar_rule(b);
    grammar_alternative(b, whole, &start, 1);
    TRY(g->err);
    TRY(check_lexemes(g, b->set));
    TRY(spread(g, b->set, IS_NULLABLE));
    TRY(spread(g, b->set, IS_PRODUCTIVE));
    g->start = SYMBOL_NUMBER(whole);
    if (!g->rules[g->start].is_productive) {
        return err_set(info, ERR_INVALID_GRAMMAR, NULL, "the grammar matches no text at all");
    }
    TRY(settle(g, b->set));
    struct regex_set *set = b->set;
    b->set = NULL;
    regex_limit_work(set, SIZE_MAX); /* from now on each mask has its own limit */
    return lexer_init(&g->lexer, set);
}

enum err grammar_finish(struct grammar_builder **b, symbol_id start, struct grammar **out, struct err_info *info)
{
    enum err err = finish(*b, start, info);
    *out = NULL;
    if (err == ERR_OK) {
        *out = (*b)->g;
        (*b)->g = NULL;
    } else if (err == ERR_GRAMMAR_LIMIT) {
        err_set(info, err, NULL,
                "the grammar takes too much work: expected at most %d rules and %d parts of expressions, "
                "derivatives among them",
                GRAMMAR_MAX_RULES, REGEX_MAX_NODES);
    } else if (err == ERR_NOMEM) {
        err_set(info, err, NULL, "out of memory for the grammar");
    }
    grammar_builder_free(b);
    return err;
}
