/* One pass: pieces are built while the text is read. */
#include "engine/grammar/grammar_gbnf.h"

#include "engine/base/utf8.h"
#include "engine/grammar/grammar_pieces.h"

#include <string.h>

struct parser {
    struct regex_reader r;
    struct grammar_pieces p; /* the names' numbers are rules */
    size_t n_names;
    bool can_repeat;
};

static enum err bad(const struct parser *p, size_t at, const char *what)
{
    size_t line, column;
    grammar_text_place(p->r.pattern, at, &line, &column);
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

static bool is_word(char c) { return grammar_is_word(c) || c == '-'; }

/* Reads a name and returns its rule; creates the rule if it is new. */
static enum err read_name(struct parser *p, struct grammar_name **out)
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
    *out = grammar_name_at(&p->p, text, n);
    if ((*out)->text == NULL) {
        if (p->n_names++ == GRAMMAR_NAMES_MOST) {
            return err_set_at(r->info, ERR_GRAMMAR_LIMIT, r->at, "expected at most %d rules", GRAMMAR_NAMES_MOST);
        }
        **out = (struct grammar_name){.text = text, .n = n, .id = grammar_rule(p->p.b)};
    }
    return ERR_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static void push(struct parser *p, bool is_regex, uint32_t id)
{
    grammar_pieces_push(&p->p, is_regex, id);
    p->can_repeat = true;
}

static enum err open_group(struct parser *p, size_t at)
{
    p->can_repeat = false;
    return grammar_pieces_open(&p->p, at)
               ? ERR_OK
               : err_set_at(p->r.info, ERR_GRAMMAR_LIMIT, at, "expected groups nested at most %d deep, at byte %zu",
                            GRAMMAR_PIECES_MAX_DEPTH, at);
}

static enum err repeat_last(struct parser *p, size_t at, uint32_t min, uint32_t max)
{
    const char *fault = regex_reader_repeat_fault(p->can_repeat, min, max);
    TRY(fault == NULL ? ERR_OK : bad(p, at, fault));
    grammar_pieces_repeat(&p->p, min, max);
    return ERR_OK;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

/* Reads one character of a text or class. */
static enum err read_character(struct parser *p, uint32_t *c)
{
    size_t at = p->r.at;
    char e;
    if (grammar_read_character(&p->r, "tnr", "\t\n\r", c, &e)) {
        return ERR_OK;
    }
    if (e == 'x' || e == 'u' || e == 'U') {
        return bad(p, at, "an escape that is no character");
    }
    *c = (unsigned char)e;
    return e > ' ' && e < 0x7F && (!grammar_is_word(e) || e == '_') ? ERR_OK
                                                                    : bad(p, at, "an escape that does not exist");
}

/* Reads a text after its opening quotation mark. */
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
        p->p.ids[n++] = regex_bytes(r->set, utf8, utf8_encode(c, utf8));
    }
    regex_id all = REGEX_EMPTY;
    for (; n > 0; n--) {
        all = regex_concat(r->set, p->p.ids[n - 1], all);
    }
    push(p, true, all);
    return ERR_OK;
}

/* Reads a class after [. */
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
    push(p, true, id);
    return ERR_OK;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static enum err read_one(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t at = r->at;
    uint32_t min, max;
    struct grammar_name *name;
    char c = r->pattern[r->at++];
    switch (c) {
    case '"':
        return read_text(p);
    case '[':
        return read_class(p);
    case '.':
        r->dot = r->dot != REGEX_NONE ? r->dot : regex_any_character(r->set);
        push(p, true, r->dot);
        return ERR_OK;
    case '(':
        return open_group(p, at);
    case ')':
        if (p->p.n_groups == 1) {
            return bad(p, at, "a ) without its (");
        }
        grammar_pieces_close(&p->p);
        p->can_repeat = true;
        return ERR_OK;
    case '|':
        grammar_pieces_or(&p->p);
        p->can_repeat = false;
        skip_space(p, true);
        return ERR_OK;
    case '*':
    case '+':
    case '?':
        return repeat_last(p, at, c == '+', c == '?' ? 1 : REGEX_UNBOUNDED);
    case '{':
        return regex_reader_takes_counts(r, &min, &max) ? repeat_last(p, at, min, max)
                                                        : bad(p, at, "expected {n}, {n,} or {n,m}");
    default:
        r->at = at;
        TRY(read_name(p, &name));
        push(p, false, name->id);
        return ERR_OK;
    }
}

/* Reads name ::= alternatives, up to the end of the line. */
static enum err read_rule(struct parser *p)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at;
    struct grammar_name *name;
    TRY(read_name(p, &name));
    skip_space(p, false);
    if (r->n - r->at < 3 || memcmp(r->pattern + r->at, "::=", 3) != 0) {
        return bad(p, r->at, "expected ::= after the name of a rule");
    }
    if (name->is_defined) {
        return bad(p, begin, "a duplicate rule");
    }
    name->is_defined = true;
    r->at += 3;
    skip_space(p, true);
    TRY(open_group(p, begin));
    while (r->at < r->n && (p->p.n_groups > 1 || (r->pattern[r->at] != '\n' && r->pattern[r->at] != '\r'))) {
        TRY(read_one(p));
        TRY(regex_ok(r->set));
        skip_space(p, p->p.n_groups > 1);
    }
    if (p->p.n_groups > 1) {
        return bad(p, p->p.groups[p->p.n_groups - 1].at, "a ( without its )");
    }
    grammar_pieces_close(&p->p);
    symbol_id body = grammar_pieces_symbol(&p->p, p->p.list[--p->p.n]);
    grammar_alternative(p->p.b, name->id, &body, 1);
    return regex_ok(r->set);
}

static enum err parse(struct parser *p, symbol_id *root)
{
    struct regex_reader *r = &p->r;
    bool has_root = false;
    for (skip_space(p, true); r->at < r->n; skip_space(p, true)) {
        TRY(read_rule(p));
    }
    for (size_t i = 0; i < GRAMMAR_NAMES; i++) {
        const struct grammar_name *x = &p->p.names[i];
        if (x->text != NULL && !x->is_defined) {
            return err_set_at(r->info, ERR_INVALID_GRAMMAR, (uint64_t)(x->text - r->pattern),
                              "the grammar names a rule that it does not have: %.*s", (int)MIN_OF(x->n, 100u), x->text);
        }
        if (x->text != NULL && x->n == 4 && memcmp(x->text, "root", 4) == 0) {
            has_root = true;
            *root = x->id;
        }
    }
    return has_root ? ERR_OK : err_set(r->info, ERR_INVALID_GRAMMAR, NULL, "the grammar has no rule root");
}

enum err grammar_gbnf(struct grammar_builder *b, const char *text, size_t n, symbol_id *root, struct err_info *info)
{
    struct parser p = {.r = {.pattern = text, .n = n, .info = info}};
    *root = 0;
    enum err err = grammar_pieces_init(&p.p, b, &p.r);
    err = err == ERR_OK ? parse(&p, root) : err;
    return grammar_pieces_fini(&p.p, &p.r, err);
}
