/* Builds grammars rule by rule, for front ends: JSON Schema, GBNF, tool formats.
 *
 * A grammar describes an exact set of strings of bytes and special tokens. Nothing is greedy: an ambiguous text is
 * followed in all its readings. Lexemes are regular expressions; rules can be recursive in every way. The builder keeps
 * the first error, and grammar_finish returns it. Threads: a builder belongs to one thread. */
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
    GRAMMAR_MAX_TEXT_BYTES = 1 << 16, /* of a grammar in GBNF or Lark */
    GRAMMAR_MAX_WORK = 3000000,       /* regex_spend's, until grammar_finish: at most a tenth of a second */
};

/* ERR_NOMEM. */
MUST_CHECK enum err grammar_builder_new(struct grammar_builder **out);
/* Like grammar_builder_new(), but with expressions of a borrowed set, which can contain others: for grammar_derives,
 * not for grammar_finish. */
MUST_CHECK enum err grammar_builder_new_in(struct regex_set *set, struct grammar_builder **out);
void grammar_builder_free(struct grammar_builder **b);

/* Makes schemas that are added later close their objects. An object with `properties` or `required` then has only these
 * members, unless it has additionalProperties, patternProperties or unevaluatedProperties. The specification allows
 * others, but a small model then often adds members until its tokens run out. */
void grammar_close_objects(struct grammar_builder *b);
bool grammar_closes_objects(const struct grammar_builder *b);

/* Returns the set in which the expressions of the lexemes must be created. */
struct regex_set *grammar_regexes(struct grammar_builder *b);

symbol_id grammar_lexeme(struct grammar_builder *b, regex_id r);
symbol_id grammar_token(struct grammar_builder *b, int32_t id); /* this token of the vocabulary, whatever its text */
symbol_id grammar_rule(struct grammar_builder *b);              /* a rule without alternatives yet */
void grammar_alternative(struct grammar_builder *b, symbol_id rule, const symbol_id *parts, size_t n);
symbol_id grammar_sequence(struct grammar_builder *b, const symbol_id *parts, size_t n);
symbol_id grammar_choice(struct grammar_builder *b, const symbol_id *parts, size_t n);
/* max: or REGEX_UNBOUNDED. Repeats are counted, so bounds cost nothing. */
symbol_id grammar_repeat(struct grammar_builder *b, symbol_id of, uint32_t min, uint32_t max);

/* Members in any order, separated by `between`: each once, or any number of times if may_repeat. All must_be members
 * are required; min to max in total. */
struct grammar_member {
    symbol_id symbol; /* must not derive the empty string */
    bool must_be, may_repeat;
};
symbol_id grammar_set(struct grammar_builder *b, const struct grammar_member *members, size_t n, symbol_id between,
                      uint32_t min, uint32_t max);

/* Checks whether `start` derives a string. Errors: grammar_finish's. */
MUST_CHECK enum err grammar_derives(struct grammar_builder *b, symbol_id start, bool *out);

/* Creates the grammar of the strings that `start` derives. Takes ownership of the builder, also on failure. Removes
 * symbols that derive no string. ERR_NOMEM, ERR_GRAMMAR_LIMIT, ERR_INVALID_GRAMMAR: no string at all. */
MUST_CHECK enum err grammar_finish(struct grammar_builder **b, symbol_id start, struct grammar **out,
                                   struct err_info *info);

#endif
