/* One pass with a stack of open groups, as regex_parse has; a piece is an expression for as long as no rule is named in it. */
#include "engine/grammar/grammar_gbnf.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/grammar/regex_parse_internal.h"

#include <string.h>

enum { N_NAMES = 1 << 15 }; /* places of the table, more than twice GRAMMAR_MAX_RULES */

struct piece {
    bool is_regex;
    uint32_t id; /* regex_id or symbol_id */
};

struct group {
    size_t at, i_whole, i_part; /* on the stack of pieces: where its alternatives begin, and the parts of the last */
};

struct name {
    const char *text; /* of the grammar's text; NULL: free */
    size_t n;
    symbol_id rule;
    bool is_defined;
};

struct parser {
    struct regex_reader r;
    struct grammar_builder *b;
    struct piece *pieces; /* [r.n + 2]: each byte leaves one at most, and so does the end of an alternative */
    uint32_t *ids;        /* [r.n + 2] scratch */
    struct name *names;   /* [N_NAMES] by hash */
    size_t n_names, n_pieces, n_groups;
    struct group groups[GRAMMAR_GBNF_MAX_DEPTH + 1];
    bool can_repeat;
};

static enum err bad(const struct parser *p, size_t at, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += p->r.pattern[i] == '\n' ? 1 : 0;
    }
    return err_set_at(p->r.info, ERR_INVALID_GRAMMAR, at, "line %zu of the grammar, byte %zu: %s", line, at, what);
}

static void skip_space(struct parser *p, bool lines)
{
    struct regex_reader *r = &p->r;
    while (r->at < r->n) {
        char c = r->pattern[r->at];
        if (c == '#') {
            while (r->at < r->n && r->pattern[r->at] != '\n' && r->pattern[r->at] != '\r') {
                r->at++;
            }
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            r->at++;
        } else {
            return;
        }
    }
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The rule of the name that stands here, made when it is new. */
static enum err read_name(struct parser *p, struct name **out)
{
    struct regex_reader *r = &p->r;
    const char *text = r->pattern + r->at;
    size_t n = 0;
    while (r->at < r->n && is_word(r->pattern[r->at])) {
        r->at++;
        n++;
    }
    if (n == 0) {
        return bad(p, r->at, "expected a name, a text in quotes, a class or a group");
    }
    size_t i = hash64(text, n, 0) % N_NAMES;
    while (p->names[i].text != NULL && (p->names[i].n != n || memcmp(p->names[i].text, text, n) != 0)) {
        i = (i + 1) % N_NAMES;
    }
    *out = &p->names[i];
    if ((*out)->text == NULL) {
        if (p->n_names++ == GRAMMAR_MAX_RULES) {
            return err_set_at(r->info, ERR_GRAMMAR_LIMIT, r->at, "expected at most %d rules", GRAMMAR_MAX_RULES);
        }
        **out = (struct name){.text = text, .n = n, .rule = grammar_rule(p->b)};
    }
    return ERR_OK;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static void push(struct parser *p, bool is_regex, uint32_t id, bool can_repeat)
{
    p->pieces[p->n_pieces++] = (struct piece){is_regex, id};
    p->can_repeat = can_repeat;
}

static symbol_id symbol_of(struct parser *p, struct piece x) { return x.is_regex ? grammar_lexeme(p->b, x.id) : x.id; }

/* Ends an alternative: expressions side by side become one. */
static void fold_sequence(struct parser *p)
{
    struct group *g = &p->groups[p->n_groups - 1];
    size_t top = p->n_pieces, n = 0;
    regex_id run = REGEX_EMPTY;
    while (top > g->i_part) { /* from the right, as joining is linear so; ids: from the right too */
        struct piece x = p->pieces[--top];
        if (x.is_regex) {
            run = regex_concat(p->r.set, x.id, run);
            continue;
        }
        if (run != REGEX_EMPTY) {
            p->ids[n++] = grammar_lexeme(p->b, run);
        }
        p->ids[n++] = x.id;
        run = REGEX_EMPTY;
    }
    p->n_pieces = g->i_part;
    if (n == 0) {
        push(p, true, run, false);
    } else {
        if (run != REGEX_EMPTY) {
            p->ids[n++] = grammar_lexeme(p->b, run);
        }
        for (size_t i = 0; i < n / 2; i++) {
            uint32_t id = p->ids[i];
            p->ids[i] = p->ids[n - 1 - i];
            p->ids[n - 1 - i] = id;
        }
        push(p, false, grammar_sequence(p->b, p->ids, n), false);
    }
    g->i_part = p->n_pieces;
}

/* Ends the group; its one piece is left. */
static void fold_group(struct parser *p)
{
    fold_sequence(p);
    const struct group *g = &p->groups[--p->n_groups];
    size_t n = 0, n_symbols = 0;
    for (size_t i = g->i_whole; i < p->n_pieces; i++) {
        if (p->pieces[i].is_regex) {
            p->ids[n++] = p->pieces[i].id;
        } else {
            p->pieces[g->i_whole + n_symbols++] = p->pieces[i];
        }
    }
    struct piece plain = {true, n == 0 ? REGEX_NONE : regex_or_all(p->r.set, p->ids, n)};
    p->n_pieces = g->i_whole;
    if (n_symbols == 0) {
        push(p, true, plain.id, true);
        return;
    }
    for (size_t i = 0; i < n_symbols; i++) {
        p->ids[i] = p->pieces[g->i_whole + i].id;
    }
    if (n > 0) {
        p->ids[n_symbols++] = symbol_of(p, plain);
    }
    push(p, false, grammar_choice(p->b, p->ids, n_symbols), true);
}

static enum err open_group(struct parser *p, size_t at)
{
    if (p->n_groups == ARRAY_LEN(p->groups)) {
        return err_set_at(p->r.info, ERR_GRAMMAR_LIMIT, at, "expected groups nested at most %d deep, at byte %zu",
                          GRAMMAR_GBNF_MAX_DEPTH, at);
    }
    p->groups[p->n_groups++] = (struct group){at, p->n_pieces, p->n_pieces};
    p->can_repeat = false;
    return ERR_OK;
}

static enum err repeat_last(struct parser *p, size_t at, uint32_t min, uint32_t max)
{
    if (!p->can_repeat) {
        return bad(p, at, "a repeat of nothing");
    }
    if (min > max) {
        return bad(p, at, "a repeat of which the least is more than the most");
    }
    struct piece *x = &p->pieces[p->n_pieces - 1];
    x->id = x->is_regex ? regex_repeat(p->r.set, x->id, min, max) : grammar_repeat(p->b, x->id, min, max);
    return ERR_OK;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

/* One character of a text or class. */
static enum err read_character(struct parser *p, uint32_t *c)
{
    static const char letters[] = "tnr", values[] = "\t\n\r";
    struct regex_reader *r = &p->r;
    size_t at = r->at;
    if (!regex_reader_takes(r, '\\')) {
        *c = regex_reader_character(r);
        return ERR_OK;
    }
    char e = r->at < r->n ? r->pattern[r->at++] : '\0';
    const char *letter = e == '\0' ? NULL : strchr(letters, e);
    if (letter != NULL) {
        *c = (unsigned char)values[letter - letters];
        return ERR_OK;
    }
    if (e == 'x' || e == 'u' || e == 'U') {
        bool is_there = regex_reader_takes_hex(r, e == 'x' ? 2 : e == 'u' ? 4 : 8, c);
        bool is_character = is_there && *c <= 0x10FFFF && (*c < 0xD800 || *c > 0xDFFF);
        return is_character ? ERR_OK : bad(p, at, "an escape that is no character");
    }
    *c = (unsigned char)e;
    return e > ' ' && e < 0x7F && (!is_word(e) || e == '-' || e == '_') ? ERR_OK
                                                                        : bad(p, at, "an escape that does not exist");
}

/* Behind a quotation mark. */
static enum err read_text(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at - 1, n = 0;
    while (!regex_reader_takes(r, '"')) {
        uint32_t c = 0;
        if (r->at == r->n || r->pattern[r->at] == '\n') {
            return bad(p, begin, "a text without its quotation mark at the end");
        }
        TRY(read_character(p, &c));
        char utf8[4];
        p->ids[n++] = regex_bytes(r->set, utf8, utf8_encode(c, utf8));
    }
    regex_id all = REGEX_EMPTY;
    for (; n > 0; n--) {
        all = regex_concat(r->set, p->ids[n - 1], all);
    }
    push(p, true, all, true);
    return ERR_OK;
}

/* Behind [. */
static enum err read_class(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at - 1;
    bool others = regex_reader_takes(r, '^');
    regex_id id = REGEX_NONE;
    while (!regex_reader_takes(r, ']')) {
        uint32_t first = 0, last = 0;
        size_t at = r->at;
        if (at == r->n) {
            return bad(p, begin, "a class without its ]");
        }
        TRY(read_character(p, &first));
        last = first;
        if (r->n - r->at >= 2 && r->pattern[r->at] == '-' && r->pattern[r->at + 1] != ']') {
            r->at++;
            TRY(read_character(p, &last));
        }
        if (last < first) {
            return bad(p, at, "a range of characters that is none");
        }
        TRY(regex_ranges_add(&r->ranges, first, last));
    }
    TRY(regex_reader_class(r, others, &id));
    push(p, true, id, true);
    return ERR_OK;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static enum err read_one(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t at = r->at;
    uint32_t min, max;
    struct name *name;
    switch (r->pattern[r->at++]) {
    case '"':
        return read_text(p);
    case '[':
        return read_class(p);
    case '.':
        r->dot = r->dot != REGEX_NONE ? r->dot : regex_any_character(r->set);
        push(p, true, r->dot, true);
        return ERR_OK;
    case '(':
        return open_group(p, at);
    case ')':
        if (p->n_groups == 1) {
            return bad(p, at, "a ) without its (");
        }
        fold_group(p);
        return ERR_OK;
    case '|':
        fold_sequence(p);
        skip_space(p, true);
        return ERR_OK;
    case '*':
        return repeat_last(p, at, 0, REGEX_UNBOUNDED);
    case '+':
        return repeat_last(p, at, 1, REGEX_UNBOUNDED);
    case '?':
        return repeat_last(p, at, 0, 1);
    case '{':
        return regex_reader_takes_counts(r, &min, &max) ? repeat_last(p, at, min, max)
                                                        : bad(p, at, "expected {n}, {n,} or {n,m}");
    default:
        r->at = at;
        TRY(read_name(p, &name));
        push(p, false, name->rule, true);
        return ERR_OK;
    }
}

/* name ::= alternatives, up to the end of the line. */
static enum err read_rule(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at;
    struct name *name;
    TRY(read_name(p, &name));
    skip_space(p, false);
    if (r->n - r->at < 3 || memcmp(r->pattern + r->at, "::=", 3) != 0) {
        return bad(p, r->at, "expected ::= behind the name of a rule");
    }
    if (name->is_defined) {
        return bad(p, begin, "a rule that stands twice");
    }
    name->is_defined = true;
    r->at += 3;
    skip_space(p, true);
    TRY(open_group(p, begin));
    while (r->at < r->n && (p->n_groups > 1 || (r->pattern[r->at] != '\n' && r->pattern[r->at] != '\r'))) {
        TRY(read_one(p));
        TRY(regex_ok(r->set));
        skip_space(p, p->n_groups > 1);
    }
    if (p->n_groups > 1) {
        return bad(p, p->groups[p->n_groups - 1].at, "a ( without its )");
    }
    fold_group(p);
    symbol_id body = symbol_of(p, p->pieces[--p->n_pieces]);
    grammar_alternative(p->b, name->rule, &body, 1);
    return regex_ok(r->set);
}

static enum err parse(struct parser *p, symbol_id *root)
{
    struct regex_reader *r = &p->r;
    bool has_root = false;
    for (skip_space(p, true); r->at < r->n; skip_space(p, true)) {
        TRY(read_rule(p));
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct name *x = &p->names[i];
        if (x->text != NULL && !x->is_defined) {
            return err_set_at(r->info, ERR_INVALID_GRAMMAR, (uint64_t)(x->text - r->pattern),
                              "the grammar names a rule that it does not have: %.*s", (int)MIN_OF(x->n, 100u), x->text);
        }
        if (x->text != NULL && x->n == 4 && memcmp(x->text, "root", 4) == 0) {
            has_root = true;
            *root = x->rule;
        }
    }
    return has_root ? ERR_OK : err_set(r->info, ERR_INVALID_GRAMMAR, NULL, "the grammar has no rule root");
}

enum err grammar_gbnf(struct grammar_builder *b, const char *text, size_t n, symbol_id *root, struct err_info *info)
{
    size_t bad_at = 0;
    *root = 0;
    if (n > GRAMMAR_GBNF_MAX_BYTES) {
        return err_set(info, ERR_GRAMMAR_LIMIT, NULL, "expected a grammar of at most %d bytes, found %zu",
                       GRAMMAR_GBNF_MAX_BYTES, n);
    }
    if (!utf8_valid(text, n, &bad_at)) {
        return err_set_at(info, ERR_INVALID_GRAMMAR, bad_at, "the grammar is not valid UTF-8 at byte %zu", bad_at);
    }
    struct parser p = {.r = {.set = grammar_regexes(b), .pattern = text, .n = n, .info = info}, .b = b};
    p.pieces = mem_zalloc_array(n + 2, sizeof *p.pieces, MEM_REQUEST);
    p.ids = mem_zalloc_array(n + 2, sizeof *p.ids, MEM_REQUEST);
    p.names = mem_zalloc_array(N_NAMES, sizeof *p.names, MEM_REQUEST);
    enum err err = p.pieces != NULL && p.ids != NULL && p.names != NULL ? parse(&p, root) : ERR_NOMEM;
    if (err == regex_ok(p.r.set) && err != ERR_OK) {
        err_set_at(info, err, p.r.at, "the grammar takes too much, read to byte %zu", p.r.at);
    }
    mem_free(p.pieces);
    mem_free(p.ids);
    mem_free(p.names);
    mem_free(p.r.ranges.list);
    return err;
}
