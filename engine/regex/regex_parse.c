/* One pass over the pattern with a stack of open groups builds a tree in postfix order (regex_parse_internal.h).
 * regex_fold or regex_look converts it to an expression. */
#include "engine/regex/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/regex/regex_internal.h"

#include <string.h>

enum group_kind { GROUP, GROUP_AHEAD, GROUP_NOT_AHEAD };

struct group {
    enum group_kind kind;
    size_t at;                 /* offset of its parenthesis */
    uint32_t n_whole, n_parts; /* complete alternatives; parts of the current one */
    uint32_t i_whole, i_part;  /* where their nodes begin */
};

struct parser {
    struct regex_reader r;
    struct regex_tree tree;
    struct group groups[REGEX_PARSE_MAX_DEPTH + 1];
    size_t n_groups;
    bool can_repeat; /* the last part can be repeated */
};

enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what)
{
    return err_set_at(r->info, ERR_INVALID_GRAMMAR, at, "the pattern has at byte %zu %s", at, what);
}

/* Appends a node after the subtrees of its children, which begin at the node `first`. */
static enum err put(struct parser *p, struct regex_tree_node node, uint32_t first)
{
    struct regex_tree *t = &p->tree;
    TRY(mem_grow(&t->nodes, t->n, &t->cap, sizeof *t->nodes, MEM_REQUEST));
    node.first = first;
    node.is_plain = node.kind != REGEX_T_BEGIN && node.kind != REGEX_T_END && node.kind != REGEX_T_EDGE &&
                    node.kind != REGEX_T_AHEAD;
    node.has_edge = node.kind == REGEX_T_EDGE;
    for (size_t at = t->n; at > first; at = t->nodes[at - 1].first) {
        node.is_plain = node.is_plain && t->nodes[at - 1].is_plain;
        node.has_edge = node.has_edge || t->nodes[at - 1].has_edge;
    }
    t->looks = t->looks || node.kind == REGEX_T_EDGE || node.kind == REGEX_T_AHEAD ||
               (node.kind == REGEX_T_REPEAT && node.max > 1 && !node.is_plain);
    t->nodes[t->n++] = node;
    return ERR_OK;
}

/* Appends a node without children, the next part of its group. */
static enum err put_part(struct parser *p, struct regex_tree_node node, bool can_repeat)
{
    p->groups[p->n_groups - 1].n_parts++;
    p->can_repeat = can_repeat;
    return put(p, node, (uint32_t)p->tree.n);
}

/* Ends the current alternative. */
static enum err end_sequence(struct parser *p)
{
    struct group *g = &p->groups[p->n_groups - 1];
    if (g->n_parts == 0) {
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_ATOM, .id = REGEX_EMPTY}, (uint32_t)p->tree.n));
    } else if (g->n_parts > 1) {
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_SEQUENCE, .n = g->n_parts}, g->i_part));
    }
    g->n_whole++;
    g->n_parts = 0;
    g->i_part = (uint32_t)p->tree.n;
    p->can_repeat = false;
    return ERR_OK;
}

/* Ends the group, which becomes a part of the enclosing one. */
static enum err end_group(struct parser *p)
{
    TRY(end_sequence(p));
    const struct group g = p->groups[--p->n_groups];
    if (g.n_whole > 1) {
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_EITHER, .n = g.n_whole}, g.i_whole));
    }
    if (g.kind != GROUP) {
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_AHEAD, .n = 1, .min = g.kind == GROUP_NOT_AHEAD},
                g.i_whole));
    }
    if (p->n_groups > 0) {
        p->groups[p->n_groups - 1].n_parts++;
    }
    p->can_repeat = true;
    return ERR_OK;
}

static void begin_group(struct parser *p, enum group_kind kind, size_t at)
{
    uint32_t here = (uint32_t)p->tree.n;
    p->groups[p->n_groups++] = (struct group){.kind = kind, .at = at, .i_whole = here, .i_part = here};
    p->can_repeat = false;
}

/* Reads a name and its >. */
static enum err skip_name(struct regex_reader *r, size_t at)
{
    size_t first = r->at;
    while (r->at < r->n && r->pattern[r->at] != '>' && r->pattern[r->at] != ')') {
        r->at++;
    }
    bool is_name = r->at > first && regex_reader_takes(r, '>');
    return is_name ? ERR_OK : regex_reader_bad(r, at, "a kind of group that is not supported: a name without its >");
}

/* Reads the kind of group after (? that is not followed by a colon. */
static enum err read_group_kind(struct regex_reader *r, size_t at, enum group_kind *kind)
{
    static const struct {
        char c;
        const char *what;
    } others[] = {{'>', "an atomic group, a kind of group that is not supported"},
                  {'#', "a comment, a kind of group that is not supported"},
                  {'(', "a conditional, a kind of group that is not supported"},
                  {'\0', "a kind of group that is not supported"}};
    char c = r->at < r->n ? r->pattern[r->at] : '\0', next = r->n - r->at > 1 ? r->pattern[r->at + 1] : '\0';
    if (c == '=' || c == '!') {
        *kind = c == '=' ? GROUP_AHEAD : GROUP_NOT_AHEAD;
        r->at++;
        return (r->flags & REGEX_NO_ANCHORS) != 0 ? regex_reader_bad(r, at, "a lookahead, which is not supported here")
                                                  : ERR_OK;
    }
    if (c == '<' && (next == '=' || next == '!')) {
        return regex_reader_bad(r, at, "a lookbehind, which is not supported");
    }
    if (c == 'P' && (next == '=' || next == '>')) {
        return regex_reader_bad(r, at, "a back reference, which no regular expression can have");
    }
    bool is_name = c == '<' || (c == 'P' && next == '<');
    r->at += c == '<' ? 1 : 2;
    if (is_name) {
        return skip_name(r, at);
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (others[i].c == c) {
            return regex_reader_bad(r, at, others[i].what);
        }
    }
    return regex_reader_bad(r, at, "flags or another kind of group that is not supported");
}

/* Reads the kind of group after ( and opens the group. */
static enum err open_group(struct parser *p, size_t at)
{
    struct regex_reader *r = &p->r;
    enum group_kind kind = GROUP;
    if (p->n_groups == ARRAY_LEN(p->groups)) {
        return err_set_at(r->info, ERR_GRAMMAR_LIMIT, at, "the pattern has groups nested deeper than %d at byte %zu",
                          REGEX_PARSE_MAX_DEPTH, at);
    }
    if (regex_reader_takes(r, '?') && !regex_reader_takes(r, ':')) {
        TRY(read_group_kind(r, at, &kind));
    }
    begin_group(p, kind, at);
    return ERR_OK;
}

static enum err repeat_last(struct parser *p, size_t at, uint32_t min, uint32_t max)
{
    struct regex_reader *r = &p->r;
    const char *fault = regex_reader_repeat_fault(p->can_repeat, min, max);
    TRY(fault == NULL ? ERR_OK : regex_reader_bad(r, at, fault));
    uint32_t first = p->tree.nodes[p->tree.n - 1].first;
    if (max == 0) {
        p->tree.n = first;
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_ATOM, .id = REGEX_EMPTY}, first));
    } else if (min != 1 || max != 1) {
        TRY(put(p, (struct regex_tree_node){.kind = REGEX_T_REPEAT, .n = 1, .min = min, .max = max}, first));
    }
    regex_reader_takes(r, '?'); /* lazy: affects which match is found, not the set of matches */
    p->can_repeat = false;
    return ERR_OK;
}

/* Reads \b or \B, which are not characters. */
static enum err read_edge(struct parser *p, size_t at)
{
    bool is_not = p->r.pattern[p->r.at++] == 'B';
    return (p->r.flags & REGEX_NO_ANCHORS) != 0
               ? regex_reader_bad(&p->r, at, "\\b or \\B, word boundaries, which are not supported here")
               : put_part(p, (struct regex_tree_node){.kind = REGEX_T_EDGE, .min = is_not}, false);
}

/* Returns what `.` matches. */
static regex_id dot_of(const struct regex_reader *r)
{
    static const struct regex_range in_text[] = {{0, 9}, {11, LAST_CODE_POINT}};
    static const struct regex_range in_line[] = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, LAST_CODE_POINT}};
    if ((r->flags & REGEX_DOT_ALL) != 0) {
        return regex_any_character(r->set);
    }
    return (r->flags & REGEX_DOT_LINE) != 0 ? regex_code_points(r->set, in_text, ARRAY_LEN(in_text))
                                            : regex_code_points(r->set, in_line, ARRAY_LEN(in_line));
}

/* Reads a form that matches characters; r->at is after its first byte, c. */
static enum err read_atom(struct parser *p, char c)
{
    struct regex_reader *r = &p->r;
    regex_id id = REGEX_NONE;
    if (c == '[') {
        TRY(regex_read_class(r, &id));
    } else if (c == '\\') {
        TRY(regex_read_escape(r, &id));
    } else if (c == '.') {
        id = r->dot = r->dot != REGEX_NONE ? r->dot : dot_of(r);
    } else if ((r->flags & REGEX_ANY_CASE) != 0) {
        r->ranges.n = 0;
        TRY(regex_ranges_add(&r->ranges, (unsigned char)c, (unsigned char)c));
        TRY(regex_reader_class(r, false, &id));
    } else {
        size_t first = --r->at;
        regex_reader_character(r);
        id = regex_bytes(r->set, r->pattern + first, r->at - first);
    }
    return put_part(p, (struct regex_tree_node){.kind = REGEX_T_ATOM, .id = id}, true);
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
        return end_group(p);
    case '|':
        return end_sequence(p);
    case '^':
    case '$':
        if ((r->flags & REGEX_NO_ANCHORS) != 0) {
            return regex_reader_bad(r, at, "^ or $, which are not supported here");
        }
        return put_part(p, (struct regex_tree_node){.kind = c == '^' ? REGEX_T_BEGIN : REGEX_T_END}, false);
    case '*':
    case '+':
    case '?':
        return repeat_last(p, at, c == '+', c == '?' ? 1 : REGEX_UNBOUNDED);
    case '{':
        return regex_reader_takes_counts(r, &min, &max) ? repeat_last(p, at, min, max) : read_atom(p, c);
    case '\\':
        return r->at < r->n && (r->pattern[r->at] | 0x20) == 'b' ? read_edge(p, at) : read_atom(p, c);
    default:
        return read_atom(p, c);
    }
}

static enum err parse(struct parser *p, regex_id *out)
{
    struct regex_reader *r = &p->r;
    begin_group(p, GROUP, 0);
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
        TRY(end_group(p));
        enum err err =
            p->tree.looks ? regex_look(r->set, &p->tree, r->flags, out) : regex_fold(r->set, &p->tree, r->flags, out);
        if (err == ERR_NOMEM) {
            return err;
        }
    }
    enum err err = regex_ok(r->set);
    return err == ERR_OK ? ERR_OK
                         : err_set_at(r->info, err, r->at,
                                      "the pattern takes too much work or too many parts%s, read to byte %zu",
                                      p->tree.looks ? " with its lookaheads and word boundaries" : "", r->at);
}

static bool is_ascii(const char *text, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++) {
        all |= (unsigned char)text[i];
    }
    return all < 0x80;
}

enum err regex_parse(struct regex_set *s, const struct regex_pattern *pattern, regex_id *out, struct err_info *info)
{
    const char *text = pattern->text;
    size_t n = pattern->n;
    size_t bad_at = 0;
    *out = REGEX_NONE;
    if (n > REGEX_PARSE_MAX_BYTES) {
        return err_set(info, ERR_GRAMMAR_LIMIT, NULL, "expected a pattern of at most %d bytes, found %zu",
                       REGEX_PARSE_MAX_BYTES, n);
    }
    if (!utf8_valid(text, n, &bad_at)) {
        return err_set_at(info, ERR_INVALID_GRAMMAR, bad_at, "the pattern is not valid UTF-8 at byte %zu", bad_at);
    }
    if ((pattern->flags & REGEX_ANY_CASE) != 0 && !is_ascii(text, n)) {
        return err_set_at(info, ERR_INVALID_GRAMMAR, 0,
                          "expected a pattern of ASCII where upper and lower case are the same, found another");
    }
    struct parser p = {.r = {.set = s, .pattern = text, .n = n, .info = info, .flags = pattern->flags}};
    enum err err = parse(&p, out);
    mem_free(p.tree.nodes);
    mem_free(p.r.ranges.list);
    *out = err == ERR_OK ? *out : REGEX_NONE;
    return err;
}
