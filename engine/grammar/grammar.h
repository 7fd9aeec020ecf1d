/* Which token may come next: a grammar, a vocabulary, and where a sequence stands between them.
 *
 * Rules are followed by Earley's method [Earley 1970] over lexemes, whose automata are built as they are walked (regex.h). What
 * may come next is found by walking the vocabulary's trie together with them; what depends on the automata alone, as within a
 * string, is kept for other sequences and grammars.
 * Threads: grammars and vocabularies may be shared; a matcher belongs to one thread at a time. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_H
#define INFCGI_GRAMMAR_GRAMMAR_H

#include "engine/base/err.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;
struct grammar_vocab;
struct grammar_matcher;

/* One more who has it, and one less; the last one frees it. */
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar **g);

/* What g holds is charged to the account, of MEM_GENERAL, which is freed when g is. Before others have g. */
struct mem_account;
void grammar_give_account(struct grammar *g, struct mem_account *account);

enum { GRAMMAR_MAX_TOKEN_BYTES = 255 }; /* longer tokens are never allowed */

/* The bytes of all tokens but control tokens, which are allowed by grammar_token alone, and which ids end a sequence. The
 * tokenizer is borrowed and outlives it. ERR_NOMEM. */
MUST_CHECK enum err grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out);
void grammar_vocab_free(struct grammar_vocab **v);
int32_t grammar_vocab_size(const struct grammar_vocab *v);

/* At the beginning of the grammar, which it takes a reference to; v is borrowed. ERR_NOMEM, ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **out);
void grammar_matcher_free(struct grammar_matcher **m);

/* Bits of the tokens that may come next, [(n_vocab + 63) / 64], bit id % 64 of word id / 64; ids that end a sequence where it
 * may end. ERR_NOMEM, ERR_GRAMMAR_LIMIT: too much work; ERR_GRAMMAR_DEAD_END: no token may. */
MUST_CHECK enum err grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits);

/* Takes a token if it may come next; *taken. An id that ends a sequence changes nothing. Errors: grammar_matcher_mask's. */
MUST_CHECK enum err grammar_matcher_accept(struct grammar_matcher *m, int32_t id, bool *taken);

/* Is before the last n tokens again that were taken; at most GRAMMAR_MAX_ROLLBACK. */
enum { GRAMMAR_MAX_ROLLBACK = 64 };
void grammar_matcher_rollback(struct grammar_matcher *m, int n);

/* Guesses what comes next where the grammar leaves no choice of bytes: the tokens of what must come, at most `max`, *n of them.
 * Nothing else may come that says other bytes; as the same bytes may come in other tokens, masks are still to be asked. Changes
 * nothing. Errors: grammar_matcher_mask's; then *n is 0. */
MUST_CHECK enum err grammar_matcher_forced(struct grammar_matcher *m, int32_t *ids, int32_t max, int32_t *n);

bool grammar_matcher_may_end(const struct grammar_matcher *m);
bool grammar_matcher_must_end(const struct grammar_matcher *m); /* nothing may follow */

#endif
