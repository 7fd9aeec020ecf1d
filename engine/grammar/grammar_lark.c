/* Reads the text in one pass to steps, because names can be used before their definition. Then it builds the terminals,
 * referenced ones first, and then the rules. */
#include "engine/grammar/grammar_lark.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/grammar/grammar_pieces.h"
#include "engine/regex/regex_parse.h"

#include <string.h>

/* An operation on the pieces. */
struct step {
    enum { STEP_OPEN, STEP_OR, STEP_CLOSE, STEP_REPEAT, STEP_REGEX, STEP_NAME } what;
    uint32_t a, b; /* minimum and maximum; an expression; a definition */
};

struct definition {
    const char *name;        /* NULL: of %ignore */
    size_t n, at;            /* at: offset of the definition, or of the first use */
    size_t first, end, next; /* its steps; the next one to search for names */
    bool is_terminal, is_said, is_waiting, is_made;
    uint32_t id;   /* of a rule its symbol, of a terminal its expression .. */
    regex_id used; /* .. and its form in rules; REGEX_NONE: not built yet */
};

enum { MAX_PATTERNS = 1000 /* each can take 50 us */ };
enum { MAX_QUOTED = 1 << 24 }; /* expressions that quoting visits: about 50 ms */

struct parser {
    struct regex_reader r;
    struct grammar_pieces p; /* the names' numbers are definitions */
    struct definition *all;  /* [r.n / 2 + 2]: each takes at least two bytes */
    size_t n_all;
    struct step *steps; /* [2 * r.n + 8] */
    size_t n_steps;
    uint32_t *waiting;                         /* [r.n / 2 + 2] */
    char opened[GRAMMAR_PIECES_MAX_DEPTH + 2]; /* [depth] the brackets of open groups */
    size_t depth;
    bool can_repeat, is_quoted;
    size_t n_patterns, n_quoted; /* counted against MAX_* */
    regex_id ignored;            /* the text that can follow a terminal, quoted if needed */
};

static enum err bad(const struct parser *p, size_t at, const char *what)
{
    size_t line, column;
    grammar_text_place(p->r.pattern, at, &line, &column);
    return err_set_at(p->r.info, ERR_INVALID_GRAMMAR, at, "line %zu, column %zu of the grammar: %s", line, column,
                      what);
}

/* --- words ------------------------------------------------------------------------------------------------------------ */

static bool is_next(const struct parser *p, const char *text)
{
    size_t n = strlen(text);
    return p->r.n - p->r.at >= n && memcmp(p->r.pattern + p->r.at, text, n) == 0;
}

static bool takes(struct parser *p, const char *text)
{
    bool is = is_next(p, text);
    p->r.at += is ? strlen(text) : 0;
    return is;
}

static void skip_space(struct parser *p, bool lines)
{
    struct regex_reader *r = &p->r;
    while (r->at < r->n) {
        char c = r->pattern[r->at];
        if (c == '#' || is_next(p, "//")) {
            while (r->at < r->n && r->pattern[r->at] != '\n') {
                r->at++;
            }
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || (lines && c == '\n')) {
            r->at++;
        } else {
            return;
        }
    }
}

/* Checks for the end of a definition: the end of a line, unless the next line with content begins with |. */
static bool is_at_end(struct parser *p)
{
    skip_space(p, p->depth > 1);
    size_t at = p->r.at;
    bool is_line = at == p->r.n || p->r.pattern[at] == '\n';
    if (is_line) {
        skip_space(p, true);
        is_line = !is_next(p, "|");
        p->r.at = is_line ? at : p->r.at;
    }
    return is_line;
}

static size_t word_length(const struct parser *p)
{
    const struct regex_reader *r = &p->r;
    size_t n = 0;
    while (r->at + n < r->n &&
           (grammar_is_word(r->pattern[r->at + n]) || (n > 0 && r->pattern[r->at + n] == '-' && r->at + n + 1 < r->n &&
                                                       grammar_is_word(r->pattern[r->at + n + 1])))) {
        n++;
    }
    return n;
}

/* Reads a name and returns its definition; creates it if it is new. */
static enum err take_name(struct parser *p, struct definition **out)
{
    const char *text = p->r.pattern + p->r.at;
    size_t n = word_length(p), at = p->r.at, first = 0;
    while (first < n && text[first] == '_') {
        first++;
    }
    if (first == n || (text[first] >= '0' && text[first] <= '9')) {
        return bad(p, at, "expected a name, a text in quotes, a /pattern/ or a group");
    }
    struct grammar_name *name = grammar_name_at(&p->p, text, n);
    if (name->text == NULL) {
        if (p->n_all >= GRAMMAR_NAMES_MOST) {
            return err_set_at(p->r.info, ERR_GRAMMAR_LIMIT, at, "expected at most %d names", GRAMMAR_NAMES_MOST);
        }
        *name = (struct grammar_name){.text = text, .n = n, .id = (uint32_t)p->n_all};
        p->all[p->n_all++] = (struct definition){
            .name = text, .n = n, .at = at, .is_terminal = text[first] >= 'A' && text[first] <= 'Z'};
    }
    p->r.at += n;
    *out = &p->all[name->id];
    return ERR_OK;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static void add(struct parser *p, struct step step, bool can_repeat)
{
    p->steps[p->n_steps++] = step;
    p->can_repeat = can_repeat;
}

static enum err open_group(struct parser *p, size_t at, char bracket)
{
    if (p->depth > GRAMMAR_PIECES_MAX_DEPTH) {
        return err_set_at(p->r.info, ERR_GRAMMAR_LIMIT, at, "expected groups nested at most %d deep, at byte %zu",
                          GRAMMAR_PIECES_MAX_DEPTH, at);
    }
    p->opened[p->depth++] = bracket;
    add(p, (struct step){.what = STEP_OPEN}, false);
    return ERR_OK;
}

/* [ ] is optional. */
static enum err close_group(struct parser *p, size_t at, char bracket)
{
    if (p->opened[p->depth - 1] != bracket) {
        return bad(p, at, "a closing bracket without its opening one");
    }
    p->depth--;
    add(p, (struct step){.what = STEP_CLOSE}, true);
    if (bracket == '[') {
        add(p, (struct step){STEP_REPEAT, 0, 1}, true);
    }
    return ERR_OK;
}

static enum err add_repeat(struct parser *p, size_t at, uint32_t min, uint32_t max)
{
    const char *fault = regex_reader_repeat_fault(p->can_repeat, min, max);
    TRY(fault == NULL ? ERR_OK : bad(p, at, fault));
    add(p, (struct step){STEP_REPEAT, min, max}, true);
    return ERR_OK;
}

/* Reads n or n..m after ~. */
static enum err read_tilde(struct parser *p, size_t at)
{
    uint32_t min, max;
    skip_space(p, false);
    if (!regex_reader_takes_number(&p->r, &min)) {
        return bad(p, at, "expected ~n or ~n..m");
    }
    max = min;
    skip_space(p, false);
    if (takes(p, "..")) {
        skip_space(p, false);
        if (!regex_reader_takes_number(&p->r, &max)) {
            return bad(p, at, "expected ~n or ~n..m");
        }
    }
    return add_repeat(p, at, min, max);
}

/* Reads counts after {. */
static enum err read_braces(struct parser *p, size_t at)
{
    uint32_t min = 0, max = REGEX_UNBOUNDED;
    skip_space(p, false);
    bool has_min = regex_reader_takes_number(&p->r, &min), has_max = false;
    skip_space(p, false);
    bool has_comma = takes(p, ",");
    skip_space(p, false);
    if (has_comma) {
        has_max = regex_reader_takes_number(&p->r, &max);
        max = has_max ? max : REGEX_UNBOUNDED;
        skip_space(p, false);
    } else {
        max = min;
    }
    return (has_min || has_max) && takes(p, "}")
               ? add_repeat(p, at, min, max)
               : bad(p, at, "expected {n}, {n,}, {,m} or {n,m}; templates are not supported");
}

/* --- texts and patterns ----------------------------------------------------------------------------------------------- */

/* Reads one character of a text. */
static enum err read_character(struct parser *p, uint32_t *c)
{
    size_t at = p->r.at;
    char e;
    bool is_read = grammar_read_character(&p->r, "nrtf\"\\/'", "\n\r\t\f\"\\/'", c, &e);
    return is_read ? ERR_OK : bad(p, at, "an escape that does not exist");
}

/* Reads a text after its opening quotation mark; the characters go to p->p.ids, which has room for all. */
static enum err read_text(struct parser *p, size_t *n)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at - 1;
    for (*n = 0; !regex_reader_takes(r, '"'); ++*n) {
        if (r->at == r->n || r->pattern[r->at] == '\n') {
            return bad(p, begin, "a text without its quotation mark at the end");
        }
        TRY(read_character(p, &p->p.ids[*n]));
    }
    return ERR_OK;
}

/* Reads "text", "text"i or "a".."z" after the first quotation mark. */
static enum err read_texts(struct parser *p, size_t at)
{
    struct regex_reader *r = &p->r;
    size_t n, n_last;
    regex_id all = REGEX_EMPTY;
    TRY(read_text(p, &n));
    uint32_t first = n > 0 ? p->p.ids[0] : 0;
    if (takes(p, "..")) {
        if (n != 1 || !takes(p, "\"")) {
            return bad(p, at, "a range whose ends are not one character each");
        }
        TRY(read_text(p, &n_last));
        if (n_last != 1 || p->p.ids[0] < first) {
            return bad(p, at, "a range of characters that is none");
        }
        r->flags = 0;
        TRY(regex_ranges_add(&r->ranges, first, p->p.ids[0]));
        TRY(regex_reader_class(r, false, &all));
    } else {
        bool any_case =
            r->at < r->n && r->pattern[r->at] == 'i' && (r->at + 1 == r->n || !grammar_is_word(r->pattern[r->at + 1]));
        r->at += any_case;
        r->flags = any_case ? REGEX_ANY_CASE : 0;
        for (size_t i = n; i > 0; i--) {
            regex_id one;
            if (any_case && p->p.ids[i - 1] >= 0x80) {
                return bad(p, at, "expected a text of ASCII before i, found another");
            }
            char utf8[4];
            one = regex_bytes(r->set, utf8, utf8_encode(p->p.ids[i - 1], utf8));
            if (any_case) {
                TRY(regex_ranges_add(&r->ranges, p->p.ids[i - 1], p->p.ids[i - 1]));
                TRY(regex_reader_class(r, false, &one));
            }
            all = regex_concat(r->set, one, all);
        }
    }
    add(p, (struct step){STEP_REGEX, all, 0}, true);
    return ERR_OK;
}

/* Reads flags; returns false if one is unknown. */
static bool take_flags(const char *text, size_t n, unsigned *flags)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        *flags |= text[i] == 'i' ? REGEX_ANY_CASE : text[i] == 's' ? REGEX_DOT_ALL : 0;
        ok = ok && strchr("ismu", text[i]) != NULL; /* m: concerns ^ and $; u: always on */
    }
    return ok;
}

/* Reads a pattern after /. */
static enum err read_pattern(struct parser *p, size_t at)
{
    struct regex_reader *r = &p->r;
    size_t begin = r->at, end;
    unsigned flags = REGEX_DOT_LINE | REGEX_NO_ANCHORS;
    struct err_info why = {0};
    regex_id id = REGEX_NONE;
    while (r->at < r->n && r->pattern[r->at] != '/' && r->pattern[r->at] != '\n') {
        r->at += r->pattern[r->at] == '\\' && r->at + 1 < r->n ? 2 : 1;
    }
    end = r->at;
    if (!takes(p, "/")) {
        return bad(p, at, "a pattern without its / at the end");
    }
    size_t n_flags = 0, n_inner = 0;
    while (r->at + n_flags < r->n && grammar_is_word(r->pattern[r->at + n_flags])) {
        n_flags++;
    }
    bool ok = take_flags(r->pattern + r->at, n_flags, &flags);
    r->at += n_flags;
    if (end - begin > 3 && memcmp(r->pattern + begin, "(?", 2) == 0) { /* (?i) before the whole pattern */
        while (begin + 2 + n_inner < end && r->pattern[begin + 2 + n_inner] >= 'a' &&
               r->pattern[begin + 2 + n_inner] <= 'z') {
            n_inner++;
        }
        if (n_inner > 0 && r->pattern[begin + 2 + n_inner] == ')') {
            ok = take_flags(r->pattern + begin + 2, n_inner, &flags) && ok;
            begin += n_inner + 3;
        }
    }
    if (!ok) {
        return bad(p, at, "a pattern with other flags than i, s, m and u");
    }
    if (p->n_patterns++ == MAX_PATTERNS) {
        return err_set_at(r->info, ERR_GRAMMAR_LIMIT, at, "expected at most %d patterns, read to byte %zu",
                          MAX_PATTERNS, at);
    }
    flags &= (flags & REGEX_DOT_ALL) != 0 ? ~(unsigned)REGEX_DOT_LINE : ~0u;
    enum err err = regex_parse(r->set, &(struct regex_pattern){r->pattern + begin, end - begin, flags}, &id, &why);
    if (err == ERR_INVALID_GRAMMAR) {
        return bad(p, at, why.text);
    }
    add(p, (struct step){STEP_REGEX, id, 0}, true);
    return err == ERR_OK ? ERR_OK : err_set_at(r->info, err, at, "%s", why.text);
}

/* --- definitions ------------------------------------------------------------------------------------------------------ */

static enum err read_alias(struct parser *p, size_t at)
{
    skip_space(p, false);
    size_t n = word_length(p);
    p->r.at += n;
    p->can_repeat = false;
    skip_space(p, false);
    bool is_last = p->r.at == p->r.n || strchr("\n|)]", p->r.pattern[p->r.at]) != NULL;
    return n > 0 && is_last ? ERR_OK : bad(p, at, "expected one name after ->");
}

static enum err read_one(struct parser *p)
{
    struct regex_reader *r = &p->r;
    struct definition *named;
    size_t at = r->at;
    char c = r->pattern[r->at++];
    switch (c) {
    case '"':
        return read_texts(p, at);
    case '/':
        return read_pattern(p, at);
    case '(':
    case '[':
        return open_group(p, at, c);
    case ')':
    case ']':
        return close_group(p, at, c == ')' ? '(' : '[');
    case '|':
        add(p, (struct step){.what = STEP_OR}, false);
        return ERR_OK;
    case '*':
    case '+':
    case '?':
        return add_repeat(p, at, c == '+', c == '?' ? 1 : REGEX_UNBOUNDED);
    case '~':
        return read_tilde(p, at);
    case '{':
        return read_braces(p, at);
    case '-':
        return takes(p, ">") ? read_alias(p, at) : bad(p, at, "expected -> and a name");
    case '<':
        return bad(p, at, "a token in < >, which is not supported");
    default:
        r->at = at;
        TRY(take_name(p, &named));
        add(p, (struct step){STEP_NAME, (uint32_t)(named - p->all), 0}, true);
        return ERR_OK;
    }
}

/* Reads alternatives up to the end of a definition. */
static enum err read_body(struct parser *p, struct definition *d)
{
    size_t at = p->r.at;
    d->first = p->n_steps;
    p->depth = 0;
    TRY(open_group(p, at, ':'));
    while (!is_at_end(p)) {
        TRY(read_one(p));
        TRY(regex_ok(p->r.set));
    }
    if (p->depth > 1) {
        return bad(p, at, "an opening bracket without a closing one");
    }
    add(p, (struct step){.what = STEP_CLOSE}, false);
    d->end = p->n_steps;
    d->next = d->first;
    return ERR_OK;
}

/* Reads name: alternatives. */
static enum err read_definition(struct parser *p)
{
    struct definition *d;
    uint32_t ignored;
    size_t at = p->r.at;
    while (takes(p, "?") || takes(p, "!")) { /* they shape the parse tree, which is not built */
    }
    TRY(take_name(p, &d));
    if (is_next(p, "{") || is_next(p, "[")) {
        return bad(p, at, "a template or attributes of a rule, which are not supported");
    }
    if (takes(p, ".")) {
        takes(p, "-");
        if (!regex_reader_takes_number(&p->r, &ignored)) {
            return bad(p, at, "expected a number as priority after the name and a point");
        }
    }
    skip_space(p, false);
    if (!takes(p, ":")) {
        return bad(p, p->r.at, "expected : after the name of a rule or terminal");
    }
    if (d->is_said) {
        return bad(p, at, "a duplicate rule or terminal");
    }
    d->is_said = true;
    d->at = at;
    return read_body(p, d);
}

/* Terminals of Lark's module `common`, with what they match [lark/grammars/common.lark]. */
static const struct {
    const char *name, *pattern;
} common[] = {
#define UNSIGNED_INT "[0-9]+"
#define DECIMAL      "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT     "[eE][+-]?[0-9]+"
#define FLOATING     "(?:[0-9]+" EXPONENT "|" DECIMAL "(?:" EXPONENT ")?)"
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", UNSIGNED_INT},
    {"SIGNED_INT", "[+-]?" UNSIGNED_INT},
    {"DECIMAL", DECIMAL},
    {"FLOAT", FLOATING},
    {"SIGNED_FLOAT", "[+-]?" FLOATING},
    {"NUMBER", "(?:" FLOATING "|" UNSIGNED_INT ")"},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOATING "|" UNSIGNED_INT ")"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* Imports the name of the module, or its other name after ->. */
static enum err import_one(struct parser *p)
{
    struct regex_reader *r = &p->r;
    const char *name = r->pattern + r->at;
    size_t n = word_length(p), at = r->at, i = 0;
    struct definition *d;
    while (i < ARRAY_LEN(common) && (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0)) {
        i++;
    }
    if (i == ARRAY_LEN(common)) {
        return bad(p, at, "expected a terminal of Lark's module common");
    }
    r->at += n;
    skip_space(p, false);
    size_t after = r->at;
    if (takes(p, "->")) {
        skip_space(p, false);
    } else {
        r->at = at;
    }
    TRY(take_name(p, &d));
    r->at = MAX_OF(r->at, after);
    if (d->is_said || !d->is_terminal) {
        return bad(p, at, "an import with the name of a rule or of another terminal");
    }
    d->is_said = d->is_made = true;
    const struct regex_pattern pattern = {common[i].pattern, strlen(common[i].pattern), 0};
    return regex_parse(r->set, &pattern, &d->id, r->info);
}

/* Reads %import common.NAME, or common (NAME, NAME). */
static enum err read_import(struct parser *p, size_t at)
{
    skip_space(p, false);
    if (!takes(p, "common")) {
        return bad(p, at, "an import of another module than common, which is not supported");
    }
    if (takes(p, ".")) {
        return import_one(p);
    }
    skip_space(p, false);
    if (!takes(p, "(")) {
        return bad(p, at, "expected %import common.NAME or %import common (NAME, NAME)");
    }
    do {
        skip_space(p, true);
        TRY(import_one(p));
        skip_space(p, true);
    } while (takes(p, ","));
    return takes(p, ")") ? ERR_OK : bad(p, p->r.at, "expected , or )");
}

static enum err read_directive(struct parser *p)
{
    size_t at = p->r.at;
    if (takes(p, "%ignore")) {
        struct definition *d = &p->all[p->n_all++];
        *d = (struct definition){.at = at, .is_terminal = true, .is_said = true};
        return read_body(p, d);
    }
    if (takes(p, "%import")) {
        return read_import(p, at);
    }
    if (takes(p, "%llguidance")) { /* names the language, with options of another engine, {} */
        skip_space(p, false);
        return takes(p, "{") && (skip_space(p, false), takes(p, "}")) ? ERR_OK
                                                                      : bad(p, at, "expected {} after %llguidance");
    }
    return bad(p, at, "a directive other than %ignore and %import, which is not supported");
}

/* --- putting together ------------------------------------------------------------------------------------------------- */

/* Returns a terminal's form in rules. Quoting works per character, so the text to ignore is quoted separately. */
static regex_id in_rule(struct parser *p, regex_id id)
{
    p->n_quoted += p->is_quoted ? id : 0; /* quoting visits all expressions up to this one */
    id = p->is_quoted ? regex_json_escaped(p->r.set, id) : id;
    return regex_concat(p->r.set, id, p->ignored);
}

static struct grammar_piece piece_of(struct parser *p, struct definition *named, bool is_terminal)
{
    if (!named->is_terminal || is_terminal) {
        return (struct grammar_piece){named->is_terminal, named->id};
    }
    named->used = named->used != REGEX_NONE ? named->used : in_rule(p, named->id);
    return (struct grammar_piece){true, named->used};
}

/* Executes the steps; one piece is left. */
static struct grammar_piece replay(struct parser *p, const struct definition *d)
{
    struct grammar_pieces *to = &p->p;
    struct grammar_piece x;
    for (size_t i = d->first; i < d->end && regex_ok(p->r.set) == ERR_OK && p->n_quoted <= MAX_QUOTED; i++) {
        const struct step *s = &p->steps[i];
        switch (s->what) {
        case STEP_OPEN:
            (void)grammar_pieces_open(to, 0); /* there is room: the reader has counted the depth */
            break;
        case STEP_OR:
            grammar_pieces_or(to);
            break;
        case STEP_CLOSE:
            grammar_pieces_close(to);
            break;
        case STEP_REPEAT:
            grammar_pieces_repeat(to, s->a, s->b);
            break;
        case STEP_REGEX:
            grammar_pieces_push(to, true, d->is_terminal ? s->a : in_rule(p, s->a));
            break;
        case STEP_NAME:
            x = piece_of(p, &p->all[s->a], d->is_terminal);
            grammar_pieces_push(to, x.is_regex, x.id);
            break;
        }
    }
    struct grammar_piece whole = to->n > 0 ? to->list[0] : (struct grammar_piece){true, REGEX_NONE};
    to->n = to->n_groups = 0;
    return whole;
}

/* Returns the next terminal that d names and that is not built yet; NULL: none. */
static struct definition *next_needed(struct parser *p, struct definition *d)
{
    for (; d->next < d->end; d->next++) {
        const struct step *s = &p->steps[d->next];
        if (s->what == STEP_NAME && !p->all[s->a].is_made) {
            return &p->all[s->a];
        }
    }
    return NULL;
}

static enum err make_terminal(struct parser *p, struct definition *first)
{
    size_t n = 0;
    p->waiting[n++] = (uint32_t)(first - p->all);
    while (n > 0) {
        struct definition *d = &p->all[p->waiting[n - 1]], *needed = next_needed(p, d);
        d->is_waiting = true;
        if (needed != NULL && (!needed->is_terminal || needed->is_waiting)) {
            return bad(p, d->at, needed->is_terminal ? "a terminal that names itself" : "a terminal that names a rule");
        }
        if (needed != NULL) {
            p->waiting[n++] = (uint32_t)(needed - p->all);
            continue;
        }
        d->id = replay(p, d).id;
        d->is_made = true;
        d->is_waiting = false;
        n--;
        TRY(regex_ok(p->r.set));
    }
    return ERR_OK;
}

static enum err make_terminals(struct parser *p)
{
    struct regex_set *s = p->r.set;
    size_t n = 0;
    for (size_t i = 0; i < p->n_all; i++) {
        if (!p->all[i].is_said) {
            return bad(p, p->all[i].at, "a name that the grammar does not say");
        }
    }
    for (size_t i = 0; i < p->n_all; i++) {
        TRY(p->all[i].is_terminal && !p->all[i].is_made ? make_terminal(p, &p->all[i]) : ERR_OK);
    }
    for (size_t i = 0; i < p->n_all; i++) {
        if (p->all[i].name == NULL) {
            p->p.ids[n++] = p->all[i].id;
        }
    }
    p->ignored = n == 0 ? REGEX_EMPTY : regex_repeat(s, regex_or_all(s, p->p.ids, n), 0, REGEX_UNBOUNDED);
    p->ignored = p->is_quoted ? regex_json_escaped(s, p->ignored) : p->ignored;
    return regex_ok(s);
}

static enum err make_rules(struct parser *p, symbol_id *root)
{
    struct grammar_builder *b = p->p.b;
    const struct grammar_name *start = grammar_name_at(&p->p, "start", 5);
    for (size_t i = 0; i < p->n_all; i++) {
        p->all[i].id = p->all[i].is_terminal ? p->all[i].id : grammar_rule(b);
    }
    for (size_t i = 0; i < p->n_all; i++) {
        if (!p->all[i].is_terminal) {
            symbol_id body = grammar_pieces_symbol(&p->p, replay(p, &p->all[i]));
            grammar_alternative(b, p->all[i].id, &body, 1);
            TRY(regex_ok(p->r.set));
            if (p->n_quoted > MAX_QUOTED) {
                return err_set_at(p->r.info, ERR_GRAMMAR_LIMIT, p->all[i].at, "the grammar has too many terminals");
            }
        }
    }
    if (start->text == NULL) {
        return err_set(p->r.info, ERR_INVALID_GRAMMAR, NULL, "the grammar has no rule start");
    }
    *root = p->all[start->id].id;
    if (p->ignored != REGEX_EMPTY) {
        *root = grammar_sequence(b, (symbol_id[]){grammar_lexeme(b, p->ignored), *root}, 2);
    }
    return regex_ok(p->r.set);
}

static enum err parse(struct parser *p, symbol_id *root)
{
    struct regex_reader *r = &p->r;
    for (skip_space(p, true); r->at < r->n; skip_space(p, true)) {
        TRY(r->pattern[r->at] == '%' ? read_directive(p) : read_definition(p));
        skip_space(p, false);
        if (r->at < r->n && r->pattern[r->at] != '\n') {
            return bad(p, r->at, "expected the end of the line");
        }
    }
    TRY(make_terminals(p));
    return make_rules(p, root);
}

enum err grammar_lark(struct grammar_builder *b, const char *text, size_t n, bool is_quoted, symbol_id *root,
                      struct err_info *info)
{
    struct parser p = {.r = {.pattern = text, .n = n, .info = info}, .is_quoted = is_quoted};
    *root = 0;
    enum err err = grammar_pieces_init(&p.p, b, &p.r);
    if (err == ERR_OK) {
        p.all = mem_zalloc_array(n / 2 + 2, sizeof *p.all, MEM_REQUEST);
        p.waiting = mem_zalloc_array(n / 2 + 2, sizeof *p.waiting, MEM_REQUEST);
        p.steps = mem_zalloc_array(2 * n + 8, sizeof *p.steps, MEM_REQUEST);
        err = p.all != NULL && p.waiting != NULL && p.steps != NULL ? parse(&p, root) : ERR_NOMEM;
    }
    mem_free(p.all);
    mem_free(p.waiting);
    mem_free(p.steps);
    return grammar_pieces_fini(&p.p, &p.r, err);
}

bool grammar_is_lark(const char *text, size_t n)
{
    static const char mark[] = "%llguidance";
    bool is_comment = false, is_definition = false;
    for (size_t i = 0; i < n && !is_definition; i++) {
        is_comment =
            text[i] != '\n' && (is_comment || text[i] == '#' || (text[i] == '/' && i + 1 < n && text[i + 1] == '/'));
        is_definition = !is_comment && n - i >= 3 && memcmp(text + i, "::=", 3) == 0;
    }
    return !is_definition || (n >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0);
}
