/* Expressions that are defined in terms of themselves. Repeats with look-ahead need them, because a repeat's body then
 * depends on all text after it. A loop is a node with a name and a definition. */
#include "engine/regex/regex_internal.h"

enum { MAX_TERMS = 64, MAX_COMPARED = 32 };

regex_id regex_loop(struct regex_set *s, struct regex_hash name, bool is_nullable, bool is_whole, bool *is_new)
{
    size_t i = 0;
    while (i < s->n_loops && (s->loops[i].name.a != name.a || s->loops[i].name.b != name.b)) {
        i++;
    }
    *is_new = i == s->n_loops;
    if (!regex_spend(s, 1 + i / 16) ||
        (*is_new && !regex_grow(s, &s->loops, s->n_loops, &s->cap_loops, sizeof *s->loops))) {
        *is_new = false;
        return REGEX_NONE;
    }
    if (*is_new) {
        s->loops[s->n_loops++] = (struct regex_loop){name, REGEX_NONE};
    }
    return regex_node(s, (struct regex_node){.kind = REGEX_K_LOOP,
                                             .a = (uint32_t)i,
                                             .is_nullable = is_nullable,
                                             .is_whole = is_whole,
                                             .has_loop = true});
}

void regex_loop_is(struct regex_set *s, regex_id loop, regex_id is)
{
    if (s->err == ERR_OK) {
        s->loops[s->nodes[loop].a].is = is;
    }
}

static size_t count_parts(const struct regex_set *s, enum regex_kind kind, regex_id r)
{
    size_t n = 0;
    for (regex_id rest = r; rest != REGEX_NONE; n++) {
        regex_take_part(s, kind, &rest);
    }
    return n;
}

static bool is_choice(const struct regex_set *s, regex_id r)
{
    return s->nodes[r].kind == REGEX_K_OR && s->nodes[r].has_loop;
}

static regex_id nth_part(const struct regex_set *s, regex_id r, size_t n)
{
    regex_id part = REGEX_NONE;
    for (size_t i = 0; i <= n; i++) {
        part = regex_take_part(s, REGEX_K_OR, &r);
    }
    return part;
}

/* Returns the intersection of all parts of r, with the choice from each union that `turn` encodes. */
static regex_id make_term(struct regex_set *s, regex_id r, size_t turn)
{
    size_t from = s->parts.n;
    for (regex_id rest = r; rest != REGEX_NONE && s->err == ERR_OK;) {
        regex_id part = regex_take_part(s, REGEX_K_AND, &rest);
        if (is_choice(s, part)) {
            size_t n = count_parts(s, REGEX_K_OR, part);
            part = nth_part(s, part, turn % n);
            turn /= n;
        }
        regex_push_parts(s, REGEX_K_AND, part);
    }
    regex_id term = regex_join(s, REGEX_K_AND, s->parts.ids + from, s->parts.n - from);
    s->parts.n = from;
    return term;
}

/* Both are sorted by id. */
static bool contains_all(const struct regex_set *s, regex_id more, regex_id fewer)
{
    while (fewer != REGEX_NONE) {
        regex_id wanted = regex_take_part(s, REGEX_K_AND, &fewer), found = REGEX_NONE;
        while (more != REGEX_NONE && found < wanted) {
            found = regex_take_part(s, REGEX_K_AND, &more);
        }
        if (found != wanted) {
            return false;
        }
    }
    return true;
}

/* Removes intersections that another part of the union contains. */
static regex_id drop_contained(struct regex_set *s, regex_id r)
{
    size_t from = s->parts.n, n = 0;
    for (regex_id rest = r;
         rest != REGEX_NONE && regex_list_push(s, &s->parts, regex_take_part(s, REGEX_K_OR, &rest));) {
        n++;
    }
    size_t kept = 0;
    regex_id *ids = s->parts.ids + from;
    for (size_t i = 0; i < n && s->err == ERR_OK; i++) {
        bool is_in = false;
        for (size_t k = 0; k < n && !is_in; k++) {
            is_in = k != i && ids[k] != REGEX_NONE && contains_all(s, ids[i], ids[k]);
        }
        kept += !is_in;
        ids[i] = is_in ? REGEX_NONE : ids[i];
    }
    r = kept < n ? regex_join(s, REGEX_K_OR, ids, n) : r;
    s->parts.n = from;
    return s->err == ERR_OK ? r : REGEX_NONE;
}

static regex_id multiply(struct regex_set *s, regex_id r)
{
    size_t n_terms = 1, from = s->work.n;
    for (regex_id rest = r; rest != REGEX_NONE && n_terms <= MAX_TERMS;) {
        regex_id part = regex_take_part(s, REGEX_K_AND, &rest);
        n_terms *= is_choice(s, part) ? count_parts(s, REGEX_K_OR, part) : 1;
    }
    if (n_terms == 1 || n_terms > MAX_TERMS) {
        return r;
    }
    for (size_t turn = 0; turn < n_terms && s->err == ERR_OK; turn++) {
        regex_list_push(s, &s->work, make_term(s, r, turn));
    }
    size_t first = s->parts.n;
    for (size_t i = from; i < s->work.n && s->err == ERR_OK; i++) {
        regex_push_parts(s, REGEX_K_OR, s->work.ids[i]);
    }
    s->work.n = from;
    r = regex_join(s, REGEX_K_OR, s->parts.ids + first, s->parts.n - first);
    s->parts.n = first;
    return r;
}

regex_id regex_loop_order(struct regex_set *s, regex_id r)
{
    if (s->nodes[r].kind == REGEX_K_AND) {
        r = multiply(s, r);
    }
    size_t n = count_parts(s, REGEX_K_OR, r);
    if (s->nodes[r].kind != REGEX_K_OR || n > MAX_COMPARED) {
        return r;
    }
    return regex_spend(s, n * n / 4) ? drop_contained(s, r) : REGEX_NONE;
}
