/* Shared by the readers of written grammars (GBNF, Lark): names, and the pieces of a rule on a stack of open groups. A
 * piece is an expression until a rule is named in it, and adjacent expressions become one lexeme. No function recurses.
 * Threads: as the builder's. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_PIECES_H
#define INFCGI_GRAMMAR_GRAMMAR_PIECES_H

#include "engine/grammar/grammar_build.h"
#include "engine/regex/regex_reader.h"

enum { GRAMMAR_PIECES_MAX_DEPTH = 128 /* of nested groups */ };

struct grammar_piece {
    bool is_regex;
    uint32_t id; /* regex_id or symbol_id */
};

/* A name, with a number that the reader sets. */
struct grammar_name {
    const char *text; /* borrowed; NULL: free */
    size_t n;
    uint32_t id;
    bool is_defined;
};
enum { GRAMMAR_NAMES = 1 << 15, GRAMMAR_NAMES_MOST = GRAMMAR_NAMES / 2 };

struct grammar_pieces {
    struct grammar_builder *b;
    struct regex_set *set;
    struct grammar_piece *list; /* [cap] cap: more than the bytes of the text and the open groups */
    uint32_t *ids;              /* [cap] scratch, which the reader can use between calls */
    struct grammar_name *names; /* [GRAMMAR_NAMES] by their text */
    size_t n;
    struct {
        size_t at, i_whole,
            i_part; /* offset in the text; on the stack: where its alternatives begin, and the parts of the last one */
    } groups[GRAMMAR_PIECES_MAX_DEPTH + 1];
    size_t n_groups;
};

/* Begins to read the grammar that r->pattern has; r->set becomes the builder's. ERR_GRAMMAR_LIMIT: it is too long.
 * ERR_INVALID_GRAMMAR: not UTF-8. ERR_NOMEM. grammar_pieces_fini must follow in any case. */
MUST_CHECK enum err grammar_pieces_init(struct grammar_pieces *p, struct grammar_builder *b, struct regex_reader *r);

/* Frees the pieces and the reader's ranges. Returns err, the result of reading, and reports it if it is the set's. */
MUST_CHECK enum err grammar_pieces_fini(struct grammar_pieces *p, struct regex_reader *r, enum err err);

void grammar_pieces_push(struct grammar_pieces *p, bool is_regex, uint32_t id);
/* Opens a group for a ( at this offset of the text; false: nested too deeply. */
bool grammar_pieces_open(struct grammar_pieces *p, size_t at);
void grammar_pieces_or(struct grammar_pieces *p);
/* Closes the innermost open group: it becomes one piece, the topmost. */
void grammar_pieces_close(struct grammar_pieces *p);
/* Repeats the topmost piece. max: or REGEX_UNBOUNDED. */
void grammar_pieces_repeat(struct grammar_pieces *p, uint32_t min, uint32_t max);
symbol_id grammar_pieces_symbol(struct grammar_pieces *p, struct grammar_piece x);

/* Returns the entry of a name; its text is NULL if the name is new. */
struct grammar_name *grammar_name_at(const struct grammar_pieces *p, const char *text, size_t n);

/* Returns whether c is a letter, a digit or _ in ASCII. */
bool grammar_is_word(char c);

/* Reads a character of a text: a plain one, or after a backslash xhh, uhhhh, Uhhhhhhhh or one of `letters`, which
 * represent the bytes at the same index of `values`. Returns false after an error. *escape: the unknown escape, or the
 * one whose digits are no character; '\0': the text has ended. */
bool grammar_read_character(struct regex_reader *r, const char *letters, const char *values, uint32_t *c, char *escape);

/* Finds the line and column of a byte of the text, from 1. */
void grammar_text_place(const char *text, size_t at, size_t *line, size_t *column);

#endif
