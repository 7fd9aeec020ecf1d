/* Token constraints: a grammar, a vocabulary, and a sequence's position in both.
 *
 * Earley's method [Earley 1970] follows the rules over lexemes, whose automata are built on use (regex.h). The allowed
 * tokens are found by walking the vocabulary's trie together with the automata. Results that depend on the automata
 * only, as within a string, are cached for other sequences and grammars. Threads: grammars and vocabularies can be
 * shared; a matcher belongs to one thread at a time. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_H
#define INFCGI_GRAMMAR_GRAMMAR_H

#include "engine/base/err.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct grammar;
struct grammar_vocab;
struct grammar_matcher;

/* Take and drop a reference; the last one frees the grammar. */
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar **g);

/* Charges the memory of g to the account, of MEM_GENERAL, which is freed together with g. Call it before g is
 * shared. */
struct mem_account;
void grammar_give_account(struct grammar *g, struct mem_account *account);

enum { GRAMMAR_MAX_TOKEN_BYTES = 255 }; /* longer tokens are never allowed */

/* Creates the vocabulary: the bytes of all tokens except control tokens, which only grammar_token allows, and the ids
 * that end a sequence. The tokenizer is borrowed and must outlive the vocabulary. ERR_NOMEM. */
MUST_CHECK enum err grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out);
void grammar_vocab_free(struct grammar_vocab **v);

/* Creates a matcher at the grammar's beginning. It takes a reference to g; v is borrowed. ERR_NOMEM,
 * ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **out);
void grammar_matcher_free(struct grammar_matcher **m);

/* Writes a bit per allowed next token, [(n_vocab + 63) / 64], bit id % 64 of word id / 64. Includes ids that end a
 * sequence if it can end. ERR_NOMEM, ERR_GRAMMAR_LIMIT: too much work; ERR_GRAMMAR_DEAD_END: no token is allowed. */
MUST_CHECK enum err grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits);

/* Accepts a token if it is allowed; *taken says so. An id that ends a sequence changes nothing. Errors:
 * grammar_matcher_mask's. */
MUST_CHECK enum err grammar_matcher_accept(struct grammar_matcher *m, int32_t id, bool *taken);

/* Undoes the last n accepted tokens; at most GRAMMAR_MAX_ROLLBACK. */
enum { GRAMMAR_MAX_ROLLBACK = 64 };
void grammar_matcher_rollback(struct grammar_matcher *m, int n);

/* Predicts the next tokens if the grammar determines the bytes: at most `max` tokens, *n of them. No other bytes can
 * follow, but other tokens can have the same bytes, so masks are still needed. Changes nothing. Errors:
 * grammar_matcher_mask's; then *n is 0. */
MUST_CHECK enum err grammar_matcher_forced(struct grammar_matcher *m, int32_t *ids, int32_t max, int32_t *n);

bool grammar_matcher_may_end(const struct grammar_matcher *m);
bool grammar_matcher_must_end(const struct grammar_matcher *m); /* no token can follow */

#endif
