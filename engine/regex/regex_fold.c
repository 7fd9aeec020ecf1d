/* Converts patterns without look-ahead and word boundaries to expressions.
 *
 * ^ and $ are not characters. The strings of a part are stored by their needs: nothing, to begin at the string's begin,
 * to end at its end, or both. After a part, ^ needs that the part matched nothing, so only its empty string remains. */
#include "engine/regex/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/regex/regex_internal.h"

enum { AT_BEGIN = 1, AT_END = 2, N_NEEDS = 4 };

/* by[needs]: the strings that it matches with these needs. */
struct part {
    regex_id by[N_NEEDS];
};

struct folder {
    struct regex_set *s;
    struct part *parts; /* a stack of converted parts that have no parent yet */
    regex_id *ids;      /* scratch of a union */
    size_t n_parts;
};

static struct part free_part(regex_id id) { return (struct part){{id, REGEX_NONE, REGEX_NONE, REGEX_NONE}}; }

static bool has_needs(const struct part *p)
{
    return p->by[AT_BEGIN] != REGEX_NONE || p->by[AT_END] != REGEX_NONE || p->by[AT_BEGIN | AT_END] != REGEX_NONE;
}

static regex_id empty_of(struct regex_set *s, regex_id id)
{
    return regex_is_nullable(s, id) ? REGEX_EMPTY : REGEX_NONE;
}

static struct part join(struct regex_set *s, const struct part *a, const struct part *b)
{
    struct part out = free_part(REGEX_NONE);
    for (int x = 0; x < N_NEEDS; x++) {
        for (int y = 0; y < N_NEEDS; y++) {
            regex_id left = a->by[x], right = b->by[y];
            if (left == REGEX_NONE || right == REGEX_NONE) {
                continue;
            }
            left = (y & AT_BEGIN) != 0 ? empty_of(s, left) : left;
            right = (x & AT_END) != 0 ? empty_of(s, right) : right;
            out.by[x | y] = regex_or(s, out.by[x | y], regex_concat(s, left, right));
        }
    }
    return out;
}

static bool is_flexible(const struct regex_node *n) { return n->kind == REGEX_K_REPEAT && n->max > n->min; }

/* After any text, [a-z]{1,255} costs the same as [a-z] and counts nothing. */
regex_id regex_cut_begin(struct regex_set *s, regex_id r)
{
    for (;;) {
        struct regex_node whole = s->nodes[r];
        bool is_first = whole.kind == REGEX_K_CONCAT;
        struct regex_node n = is_first ? s->nodes[whole.a] : whole;
        if (!is_flexible(&n)) {
            return r;
        }
        r = regex_concat(s, regex_repeat(s, n.a, n.min, n.min), is_first ? whole.b : REGEX_EMPTY);
    }
}

regex_id regex_cut_end(struct regex_set *s, regex_id r)
{
    size_t from = s->parts.n;
    for (bool more = true; more;) {
        while (s->nodes[r].kind == REGEX_K_CONCAT && regex_list_push(s, &s->parts, s->nodes[r].a)) {
            r = s->nodes[r].b;
        }
        struct regex_node n = s->nodes[r];
        more = s->err == ERR_OK && (is_flexible(&n) || (r == REGEX_EMPTY && s->parts.n > from));
        if (more) {
            r = r == REGEX_EMPTY ? s->parts.ids[--s->parts.n] : regex_repeat(s, n.a, n.min, n.min);
        }
    }
    while (s->parts.n > from) {
        r = regex_concat(s, s->parts.ids[--s->parts.n], r);
    }
    return r;
}

regex_id regex_follows(struct regex_set *s, unsigned flags)
{
    if ((flags & REGEX_SEARCH) == 0) {
        return REGEX_EMPTY;
    }
    return (flags & REGEX_OPEN) != 0 ? REGEX_ALL : regex_repeat(s, regex_any_character(s), 0, REGEX_UNBOUNDED);
}

regex_id regex_after_any(struct regex_set *s, regex_id any, regex_id r)
{
    return r == REGEX_ALL ? r : regex_concat(s, any, r);
}

/* Returns the strings around the pattern's matches. */
static regex_id place(struct regex_set *s, const struct part *p, unsigned flags)
{
    regex_id any = regex_follows(s, flags & ~(unsigned)REGEX_OPEN), follows = regex_follows(s, flags);
    regex_id out = REGEX_NONE;
    for (int needs = 0; needs < N_NEEDS; needs++) {
        regex_id before = (needs & AT_BEGIN) != 0 ? REGEX_EMPTY : any;
        regex_id after = (needs & AT_END) != 0 ? REGEX_EMPTY : follows;
        regex_id r = before == REGEX_EMPTY ? p->by[needs] : regex_cut_begin(s, p->by[needs]);
        r = after == REGEX_EMPTY ? r : regex_cut_end(s, r);
        out = regex_or(s, out, regex_after_any(s, before, regex_concat(s, r, after)));
    }
    return out;
}

/* Concatenates from the right, which is linear. */
static void fold_sequence(struct folder *f, size_t n)
{
    struct part whole = free_part(REGEX_EMPTY);
    for (size_t i = 0; i < n; i++) {
        whole = join(f->s, &f->parts[--f->n_parts], &whole);
    }
    f->parts[f->n_parts++] = whole;
}

static void fold_either(struct folder *f, size_t n)
{
    struct part all;
    const struct part *of = &f->parts[f->n_parts - n];
    for (int needs = 0; needs < N_NEEDS; needs++) {
        for (size_t i = 0; i < n; i++) {
            f->ids[i] = of[i].by[needs];
        }
        all.by[needs] = regex_or_all(f->s, f->ids, n);
    }
    f->n_parts -= n;
    f->parts[f->n_parts++] = all;
}

/* A part with needs repeats at most once: regex_look handles more. */
static void fold_repeat(struct folder *f, uint32_t min, uint32_t max)
{
    struct part *last = &f->parts[f->n_parts - 1];
    if (!has_needs(last)) {
        *last = free_part(regex_repeat(f->s, last->by[0], min, max));
    } else if (min == 0) {
        last->by[0] = regex_or(f->s, last->by[0], REGEX_EMPTY);
    }
}

static void fold_one(struct folder *f, const struct regex_tree_node *t)
{
    switch ((enum regex_tree_kind)t->kind) {
    case REGEX_T_SEQUENCE:
        fold_sequence(f, t->n);
        break;
    case REGEX_T_EITHER:
        fold_either(f, t->n);
        break;
    case REGEX_T_REPEAT:
        fold_repeat(f, t->min, t->max);
        break;
    default:
        f->parts[f->n_parts] = free_part(t->kind == REGEX_T_ATOM ? t->id : REGEX_NONE);
        if (t->kind != REGEX_T_ATOM) {
            f->parts[f->n_parts].by[t->kind == REGEX_T_BEGIN ? AT_BEGIN : AT_END] = REGEX_EMPTY;
        }
        f->n_parts++;
    }
}

enum err regex_fold(struct regex_set *s, const struct regex_tree *tree, unsigned flags, regex_id *out)
{
    struct folder f = {.s = s};
    f.parts = mem_zalloc_array(tree->n, sizeof *f.parts, MEM_REQUEST);
    f.ids = mem_zalloc_array(tree->n, sizeof *f.ids, MEM_REQUEST);
    enum err err = f.parts != NULL && f.ids != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; i < tree->n && err == ERR_OK; i++) {
        fold_one(&f, &tree->nodes[i]);
        err = regex_ok(s);
    }
    *out = err == ERR_OK ? place(s, &f.parts[0], flags) : REGEX_NONE;
    mem_free(f.parts);
    mem_free(f.ids);
    return err != ERR_OK ? err : regex_ok(s);
}
