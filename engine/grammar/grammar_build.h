/* Grammars put together rule by rule: what front ends (JSON Schema, GBNF, tool formats) write.
 *
 * A grammar says a set of strings of bytes and special tokens, exactly: nothing is greedy, and of several readings all are
 * followed. Lexemes are regular expressions; rules may be recursive in every way.
 * What goes wrong while one is built is kept in the builder, and grammar_finish says it.
 * Threads: a builder belongs to one thread. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_BUILD_H
#define INFCGI_GRAMMAR_GRAMMAR_BUILD_H

#include "engine/grammar/grammar.h"
#include "engine/regex/regex.h"

struct grammar_builder;
typedef uint32_t symbol_id;

enum {
    GRAMMAR_MAX_RULES = 1 << 15,
    GRAMMAR_MAX_SYMBOLS = 1 << 20, /* on the right sides of all rules */
    GRAMMAR_MAX_LEXEMES = 1 << 16,
    GRAMMAR_MAX_WORK = 3000000, /* regex_spend's, until it is made: a tenth of a second at most */
};

/* ERR_NOMEM. */
MUST_CHECK enum err grammar_builder_new(struct grammar_builder **out);
/* With expressions of a set that is borrowed, and may hold more: for grammar_derives, not for grammar_finish. */
MUST_CHECK enum err grammar_builder_new_in(struct regex_set *set, struct grammar_builder **out);
void grammar_builder_free(struct grammar_builder **b);

/* Schemas added later close their objects: one with `properties` or `required` has only these members, unless it
 * has additionalProperties, patternProperties or unevaluatedProperties. The specification allows others; a small model then
 * often adds members until its tokens run out. */
void grammar_close_objects(struct grammar_builder *b);
bool grammar_closes_objects(const struct grammar_builder *b);

/* Where the expressions of its lexemes are made. */
struct regex_set *grammar_regexes(struct grammar_builder *b);

symbol_id grammar_lexeme(struct grammar_builder *b, regex_id r);
symbol_id grammar_token(struct grammar_builder *b, int32_t id); /* this token of the vocabulary, whatever its text */
symbol_id grammar_rule(struct grammar_builder *b);              /* a rule without alternatives so far */
void grammar_alternative(struct grammar_builder *b, symbol_id rule, const symbol_id *parts, size_t n);
symbol_id grammar_sequence(struct grammar_builder *b, const symbol_id *parts, size_t n);
symbol_id grammar_choice(struct grammar_builder *b, const symbol_id *parts, size_t n);
/* max: or REGEX_UNBOUNDED. It is counted, so bounds cost nothing. */
symbol_id grammar_repeat(struct grammar_builder *b, symbol_id of, uint32_t min, uint32_t max);

/* Members in any order, with `between` between two: each once, or any number of times where may_repeat says so; those that
 * must_be there, and min to max in all. */
struct grammar_member {
    symbol_id symbol; /* derives no empty string */
    bool must_be, may_repeat;
};
symbol_id grammar_set(struct grammar_builder *b, const struct grammar_member *members, size_t n, symbol_id between,
                      uint32_t min, uint32_t max);

/* Does `start` derive a string? Errors: grammar_finish's. */
MUST_CHECK enum err grammar_derives(struct grammar_builder *b, symbol_id start, bool *out);

/* Makes the grammar of what `start` derives, and takes the builder, also on failure. What can derive no string is left out.
 * ERR_NOMEM, ERR_GRAMMAR_LIMIT, ERR_INVALID_GRAMMAR: no string at all. */
MUST_CHECK enum err grammar_finish(struct grammar_builder **b, symbol_id start, struct grammar **out,
                                   struct err_info *info);

#endif
