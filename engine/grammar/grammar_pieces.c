#include "engine/grammar/grammar_pieces.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/table.h"
#include "engine/base/utf8.h"

#include <string.h>

enum err grammar_pieces_init(struct grammar_pieces *p, struct grammar_builder *b, struct regex_reader *r)
{
    size_t bad_at = 0, cap = r->n + GRAMMAR_PIECES_MAX_DEPTH + 2;
    *p = (struct grammar_pieces){.b = b};
    if (r->n > GRAMMAR_MAX_TEXT_BYTES) {
        return err_set(r->info, ERR_GRAMMAR_LIMIT, NULL, "expected a grammar of at most %d bytes, found %zu",
                       GRAMMAR_MAX_TEXT_BYTES, r->n);
    }
    if (!utf8_valid(r->pattern, r->n, &bad_at)) {
        return err_set_at(r->info, ERR_INVALID_GRAMMAR, bad_at, "the grammar is not valid UTF-8 at byte %zu", bad_at);
    }
    p->set = r->set = grammar_regexes(b);
    p->list = mem_zalloc_array(cap, sizeof *p->list, MEM_REQUEST);
    p->ids = mem_zalloc_array(cap, sizeof *p->ids, MEM_REQUEST);
    p->names = mem_zalloc_array(GRAMMAR_NAMES, sizeof *p->names, MEM_REQUEST);
    return p->list != NULL && p->ids != NULL && p->names != NULL ? ERR_OK : ERR_NOMEM;
}

enum err grammar_pieces_fini(struct grammar_pieces *p, struct regex_reader *r, enum err err)
{
    if (p->set != NULL && err != ERR_OK && err == regex_ok(p->set)) {
        err_set_at(r->info, err, r->at, "the grammar takes too much, read to byte %zu", r->at);
    }
    mem_free(p->list);
    mem_free(p->ids);
    mem_free(p->names);
    mem_free(r->ranges.list);
    return err;
}

void grammar_pieces_push(struct grammar_pieces *p, bool is_regex, uint32_t id)
{
    p->list[p->n++] = (struct grammar_piece){is_regex, id};
}

symbol_id grammar_pieces_symbol(struct grammar_pieces *p, struct grammar_piece x)
{
    return x.is_regex ? grammar_lexeme(p->b, x.id) : x.id;
}

bool grammar_pieces_open(struct grammar_pieces *p, size_t at)
{
    bool has_room = p->n_groups <= GRAMMAR_PIECES_MAX_DEPTH;
    if (has_room) {
        p->groups[p->n_groups].at = at;
        p->groups[p->n_groups].i_whole = p->groups[p->n_groups].i_part = p->n;
        p->n_groups++;
    }
    return has_room;
}

void grammar_pieces_or(struct grammar_pieces *p)
{
    size_t i_part = p->groups[p->n_groups - 1].i_part, top = p->n, n = 0;
    regex_id run = REGEX_EMPTY;
    while (top > i_part) { /* from the right, which keeps joining linear; ids: from the right, too */
        struct grammar_piece x = p->list[--top];
        if (x.is_regex) {
            run = regex_concat(p->set, x.id, run);
            continue;
        }
        if (run != REGEX_EMPTY) {
            p->ids[n++] = grammar_lexeme(p->b, run);
        }
        p->ids[n++] = x.id;
        run = REGEX_EMPTY;
    }
    p->n = i_part;
    if (n == 0) {
        grammar_pieces_push(p, true, run);
    } else {
        if (run != REGEX_EMPTY) {
            p->ids[n++] = grammar_lexeme(p->b, run);
        }
        for (size_t i = 0; i < n / 2; i++) {
            uint32_t id = p->ids[i];
            p->ids[i] = p->ids[n - 1 - i];
            p->ids[n - 1 - i] = id;
        }
        grammar_pieces_push(p, false, grammar_sequence(p->b, p->ids, n));
    }
    p->groups[p->n_groups - 1].i_part = p->n;
}

void grammar_pieces_close(struct grammar_pieces *p)
{
    grammar_pieces_or(p);
    size_t i_whole = p->groups[--p->n_groups].i_whole, n = 0, n_symbols = 0;
    for (size_t i = i_whole; i < p->n; i++) {
        if (p->list[i].is_regex) {
            p->ids[n++] = p->list[i].id;
        } else {
            p->list[i_whole + n_symbols++] = p->list[i];
        }
    }
    struct grammar_piece plain = {true, n == 0 ? REGEX_NONE : regex_or_all(p->set, p->ids, n)};
    p->n = i_whole;
    if (n_symbols == 0) {
        grammar_pieces_push(p, true, plain.id);
        return;
    }
    for (size_t i = 0; i < n_symbols; i++) {
        p->ids[i] = p->list[i_whole + i].id;
    }
    if (n > 0) {
        p->ids[n_symbols++] = grammar_pieces_symbol(p, plain);
    }
    grammar_pieces_push(p, false, grammar_choice(p->b, p->ids, n_symbols));
}

void grammar_pieces_repeat(struct grammar_pieces *p, uint32_t min, uint32_t max)
{
    struct grammar_piece *x = &p->list[p->n - 1];
    x->id = x->is_regex ? regex_repeat(p->set, x->id, min, max) : grammar_repeat(p->b, x->id, min, max);
}

struct name_key {
    const struct grammar_name *table;
    const char *text;
    size_t n;
};

static ALWAYS_INLINE bool is_name(const void *key, size_t at)
{
    const struct name_key *k = key;
    const struct grammar_name *name = &k->table[at];
    return name->text == NULL || (name->n == k->n && memcmp(name->text, k->text, k->n) == 0);
}

struct grammar_name *grammar_name_at(const struct grammar_pieces *p, const char *text, size_t n)
{
    struct name_key key = {p->names, text, n};
    return &p->names[table_probe(GRAMMAR_NAMES - 1, hash64(text, n, 0), is_name, &key)];
}

bool grammar_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool grammar_read_character(struct regex_reader *r, const char *letters, const char *values, uint32_t *c, char *escape)
{
    if (!regex_reader_takes(r, '\\')) {
        *c = regex_reader_character(r);
        return true;
    }
    char e = *escape = r->at < r->n ? r->pattern[r->at++] : '\0';
    const char *letter = e == '\0' ? NULL : strchr(letters, e);
    if (letter != NULL) {
        *c = (unsigned char)values[letter - letters];
        return true;
    }
    static const char with_digits[] = "xuU"; /* 2, 4 and 8 of them */
    letter = e == '\0' ? NULL : strchr(with_digits, e);
    return letter != NULL && regex_reader_takes_hex(r, (size_t)2 << (letter - with_digits), c) && *c <= 0x10FFFF &&
           (*c < 0xD800 || *c > 0xDFFF);
}

void grammar_text_place(const char *text, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        *column = text[i] == '\n' ? 1 : *column + ((text[i] & 0xC0) != 0x80 ? 1 : 0);
        *line += text[i] == '\n' ? 1 : 0;
    }
}
