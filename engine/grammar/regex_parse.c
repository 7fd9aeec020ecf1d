/* One pass over the pattern with a stack of open groups. What is read waits on a second stack: of each open group first its whole
 * alternatives, then the parts of the one that is being read; | and ) fold the parts from the right, so that joining
 * them is linear.
 *
 * ^ and $ are no characters. What a part matches is kept by what it asks for: nothing, to begin where the string begins, to end
 * where it ends, or both. Behind a part, ^ asks that the part has matched nothing, so only its empty string is left of it. */
#include "engine/grammar/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/grammar/regex_internal.h"

#include <string.h>

enum { AT_BEGIN = 1, AT_END = 2, N_NEEDS = 4 };

/* by[needs]: what it matches with these needs. */
struct part {
    regex_id by[N_NEEDS];
};

struct group {
    size_t at;              /* of its parenthesis */
    size_t i_whole, i_part; /* on the stack of parts: where its alternatives begin, and the parts of the last */
};

struct parser {
    struct regex_reader r;
    struct part *parts; /* [r.n + 2]: each byte leaves one at most, and so do the ends of the two last alternatives */
    regex_id *ids;      /* [r.n + 2] scratch of a union */
    size_t n_parts;
    struct group groups[REGEX_PARSE_MAX_DEPTH + 1];
    size_t n_groups;
    bool can_repeat; /* the last part is one that may be repeated */
};

enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what)
{
    return err_set_at(r->info, ERR_INVALID_GRAMMAR, at, "the pattern has at byte %zu %s", at, what);
}

bool regex_reader_takes(struct regex_reader *r, char c)
{
    bool is_there = r->at < r->n && r->pattern[r->at] == c;
    r->at += is_there ? 1 : 0;
    return is_there;
}

uint32_t regex_reader_character(struct regex_reader *r)
{
    uint32_t c;
    r->at += utf8_decode(r->pattern + r->at, r->n - r->at, &c, NULL);
    return c;
}

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

/* Ends the alternative that is being read. */
static void fold_sequence(struct parser *p)
{
    struct group *g = &p->groups[p->n_groups - 1];
    struct part whole = free_part(REGEX_EMPTY);
    while (p->n_parts > g->i_part) {
        whole = join(p->r.set, &p->parts[--p->n_parts], &whole);
    }
    p->parts[p->n_parts++] = whole;
    g->i_part = p->n_parts;
    p->can_repeat = false;
}

/* Ends the group; its one part is left. */
static void fold_group(struct parser *p)
{
    fold_sequence(p);
    const struct group *g = &p->groups[--p->n_groups];
    struct part all;
    for (int needs = 0; needs < N_NEEDS; needs++) {
        for (size_t i = g->i_whole; i < p->n_parts; i++) {
            p->ids[i - g->i_whole] = p->parts[i].by[needs];
        }
        all.by[needs] = regex_or_all(p->r.set, p->ids, p->n_parts - g->i_whole);
    }
    p->n_parts = g->i_whole;
    p->parts[p->n_parts++] = all;
    p->can_repeat = true;
}

static void push(struct parser *p, struct part part, bool can_repeat)
{
    p->parts[p->n_parts++] = part;
    p->can_repeat = can_repeat;
}

/* Behind (: what kind of group it is. */
static enum err open_group(struct parser *p, size_t at)
{
    struct regex_reader *r = &p->r;
    if (p->n_groups == ARRAY_LEN(p->groups)) {
        return err_set_at(r->info, ERR_GRAMMAR_LIMIT, at, "the pattern has groups nested deeper than %d at byte %zu",
                          REGEX_PARSE_MAX_DEPTH, at);
    }
    if (regex_reader_takes(r, '?') && !regex_reader_takes(r, ':')) {
        bool is_name = regex_reader_takes(r, '<');
        char c = r->at < r->n ? r->pattern[r->at] : '\0';
        if (c == '=' || c == '!') {
            return regex_reader_bad(r, at, "a look-around, which is not supported");
        }
        size_t first = r->at;
        while (is_name && r->at < r->n && r->pattern[r->at] != '>' && r->pattern[r->at] != ')') {
            r->at++;
        }
        if (!is_name || r->at == first || !regex_reader_takes(r, '>')) {
            return regex_reader_bad(r, at, "a kind of group that is not supported");
        }
    }
    p->groups[p->n_groups++] = (struct group){.at = at, .i_whole = p->n_parts, .i_part = p->n_parts};
    p->can_repeat = false;
    return ERR_OK;
}

/* Digits; what is over the largest count stays there. */
static bool take_number(const struct regex_reader *r, size_t *at, uint32_t *value)
{
    size_t first = *at;
    uint64_t v = 0;
    while (*at < r->n && r->pattern[*at] >= '0' && r->pattern[*at] <= '9') {
        v = v * 10 + (uint64_t)(r->pattern[(*at)++] - '0');
        v = MIN_OF(v, (uint64_t)REGEX_UNBOUNDED - 1);
    }
    *value = (uint32_t)v;
    return *at > first;
}

bool regex_reader_takes_counts(struct regex_reader *r, uint32_t *min, uint32_t *max)
{
    size_t at = r->at;
    if (!take_number(r, &at, min)) {
        return false;
    }
    *max = *min;
    if (at < r->n && r->pattern[at] == ',') {
        at++;
        if (!take_number(r, &at, max)) {
            *max = REGEX_UNBOUNDED;
        }
    }
    if (at == r->n || r->pattern[at] != '}') {
        return false;
    }
    r->at = at + 1;
    return true;
}

static enum err repeat_last(struct parser *p, size_t at, uint32_t min, uint32_t max)
{
    struct regex_reader *r = &p->r;
    if (!p->can_repeat) {
        return regex_reader_bad(r, at, "a repeat of nothing");
    }
    if (min > max) {
        return regex_reader_bad(r, at, "a repeat of which the least is more than the most");
    }
    struct part *last = &p->parts[p->n_parts - 1];
    bool is_once = min == 1 && max == 1;
    if (max > 1 && has_needs(last)) {
        return regex_reader_bad(r, at, "a repeat of a group with ^ or $, which is not supported");
    }
    if (max == 0) {
        *last = free_part(REGEX_EMPTY);
    } else if (has_needs(last) && !is_once) {
        last->by[0] = regex_or(r->set, last->by[0], REGEX_EMPTY);
    } else if (!is_once) {
        *last = free_part(regex_repeat(r->set, last->by[0], min, max));
    }
    regex_reader_takes(r, '?'); /* fewest first: of which match is found, not of what matches */
    p->can_repeat = false;
    return ERR_OK;
}

/* What stands for characters; r->at is behind its first byte, c. */
static enum err read_atom(struct parser *p, char c)
{
    struct regex_reader *r = &p->r;
    regex_id id = REGEX_NONE;
    if (c == '[') {
        TRY(regex_read_class(r, &id));
    } else if (c == '\\') {
        TRY(regex_read_escape(r, &id));
    } else if (c == '.') {
        r->dot = r->dot != REGEX_NONE                   ? r->dot
                 : (r->flags & REGEX_DOT_ALL) != 0  ? regex_any_character(r->set)
                 : (r->flags & REGEX_DOT_LINE) != 0 ? regex_any_but_newline(r->set)
                                                    : regex_any_but_line_ends(r->set);
        id = r->dot;
    } else if ((r->flags & REGEX_ANY_CASE) != 0) {
        r->ranges.n = 0;
        TRY(regex_ranges_add(&r->ranges, (unsigned char)c, (unsigned char)c));
        TRY(regex_reader_class(r, false, &id));
    } else {
        size_t first = --r->at;
        regex_reader_character(r);
        id = regex_bytes(r->set, r->pattern + first, r->at - first);
    }
    push(p, free_part(id), true);
    return ERR_OK;
}

static enum err read_one(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t at = r->at;
    char c = r->pattern[r->at++];
    uint32_t min, max;
    switch (c) {
    case '(':
        return open_group(p, at);
    case ')':
        if (p->n_groups == 1) {
            return regex_reader_bad(r, at, "a ) without its (");
        }
        fold_group(p);
        return ERR_OK;
    case '|':
        fold_sequence(p);
        return ERR_OK;
    case '^':
    case '$':
        if ((r->flags & REGEX_NO_ANCHORS) != 0) {
            return regex_reader_bad(r, at, "^ or $, which are not supported here");
        }
        push(p, free_part(REGEX_NONE), false);
        p->parts[p->n_parts - 1].by[c == '^' ? AT_BEGIN : AT_END] = REGEX_EMPTY;
        return ERR_OK;
    case '*':
        return repeat_last(p, at, 0, REGEX_UNBOUNDED);
    case '+':
        return repeat_last(p, at, 1, REGEX_UNBOUNDED);
    case '?':
        return repeat_last(p, at, 0, 1);
    case '{':
        return regex_reader_takes_counts(r, &min, &max) ? repeat_last(p, at, min, max) : read_atom(p, c);
    default:
        return read_atom(p, c);
    }
}

static bool is_flexible(const struct regex_node *n) { return n->kind == REGEX_K_REPEAT && n->max > n->min; }

/* Behind any text, what is matched may as well begin where the least of its first repeat does: the text before says the rest. So
 * [a-z]{1,255} costs what [a-z] does, and counts nothing. */
static regex_id cut_begin(struct regex_set *s, regex_id r)
{
    for (;;) {
        struct regex_node whole = s->nodes[r];
        regex_id first = whole.kind == REGEX_K_CONCAT ? whole.a : r, rest = whole.kind == REGEX_K_CONCAT ? whole.b : REGEX_EMPTY;
        struct regex_node n = s->nodes[first];
        if (!is_flexible(&n)) {
            return r;
        }
        r = regex_concat(s, regex_repeat(s, n.a, n.min, n.min), rest);
    }
}

/* The same in front of any text, of the last repeat. */
static regex_id cut_end(struct regex_set *s, regex_id r)
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

/* The string around what the pattern matches. */
static regex_id place(struct regex_set *s, const struct part *p, bool is_search)
{
    regex_id any = is_search ? regex_repeat(s, regex_any_character(s), 0, REGEX_UNBOUNDED) : REGEX_EMPTY;
    regex_id out = REGEX_NONE;
    for (int needs = 0; needs < N_NEEDS; needs++) {
        regex_id before = (needs & AT_BEGIN) != 0 ? REGEX_EMPTY : any;
        regex_id behind = (needs & AT_END) != 0 ? REGEX_EMPTY : any;
        regex_id r = before == REGEX_EMPTY ? p->by[needs] : cut_begin(s, p->by[needs]);
        r = behind == REGEX_EMPTY ? r : cut_end(s, r);
        out = regex_or(s, out, regex_concat(s, before, regex_concat(s, r, behind)));
    }
    return out;
}

static enum err parse(struct parser *p, regex_id *out)
{
    struct regex_reader *r = &p->r;
    p->groups[p->n_groups++] = (struct group){.at = 0, .i_whole = 0, .i_part = 0};
    while (r->at < r->n) {
        TRY(read_one(p));
        if (regex_ok(r->set) != ERR_OK) {
            break;
        }
    }
    if (regex_ok(r->set) == ERR_OK && p->n_groups > 1) {
        return regex_reader_bad(r, p->groups[p->n_groups - 1].at, "a ( without its )");
    }
    if (regex_ok(r->set) == ERR_OK) {
        fold_group(p);
        *out = place(r->set, &p->parts[0], (r->flags & REGEX_SEARCH) != 0);
    }
    enum err err = regex_ok(r->set);
    return err == ERR_OK ? ERR_OK
                         : err_set_at(r->info, err, r->at, "the pattern takes too much, read to byte %zu", r->at);
}

static bool is_ascii(const char *text, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++) {
        all |= (unsigned char)text[i];
    }
    return all < 0x80;
}

enum err regex_parse(struct regex_set *s, const char *pattern, size_t n, bool is_search, regex_id *out,
                     struct err_info *info)
{
    return regex_parse_with(s, pattern, n, is_search ? REGEX_SEARCH : 0, out, info);
}

enum err regex_parse_with(struct regex_set *s, const char *pattern, size_t n, unsigned flags, regex_id *out,
                          struct err_info *info)
{
    size_t bad_at = 0;
    *out = REGEX_NONE;
    if (n > REGEX_PARSE_MAX_BYTES) {
        return err_set(info, ERR_GRAMMAR_LIMIT, NULL, "expected a pattern of at most %d bytes, found %zu",
                       REGEX_PARSE_MAX_BYTES, n);
    }
    if (!utf8_valid(pattern, n, &bad_at)) {
        return err_set_at(info, ERR_INVALID_GRAMMAR, bad_at, "the pattern is not valid UTF-8 at byte %zu", bad_at);
    }
    if ((flags & REGEX_ANY_CASE) != 0 && !is_ascii(pattern, n)) {
        return err_set_at(info, ERR_INVALID_GRAMMAR, 0,
                          "expected a pattern of ASCII where upper and lower case are the same, found another");
    }
    struct parser p = {.r = {.set = s, .pattern = pattern, .n = n, .info = info, .flags = flags}};
    p.parts = mem_zalloc_array(n + 2, sizeof *p.parts, MEM_REQUEST);
    p.ids = mem_zalloc_array(n + 2, sizeof *p.ids, MEM_REQUEST);
    enum err err = p.parts != NULL && p.ids != NULL ? parse(&p, out) : ERR_NOMEM;
    mem_free(p.parts);
    mem_free(p.ids);
    mem_free(p.r.ranges.list);
    *out = err == ERR_OK ? *out : REGEX_NONE;
    return err;
}
