/* What the targets of grammars share: a vocabulary with all bytes, and a walk through whatever grammar came out. Threads: one. */
#ifndef INFCGI_TESTS_FUZZ_GRAMMAR_H
#define INFCGI_TESTS_FUZZ_GRAMMAR_H

#include "tests/fuzz/fuzz.h"

#include "engine/base/buf.h"
#include "engine/grammar/grammar_build.h"

/* Opens the vocabulary, for good. Call it first, on each call. */
void fuzz_grammar_start(void);

/* Makes the grammar of what `start` derives, takes `text` as far as it goes and then goes on at random, and asserts on the way that
 * masks say what is taken, that there is always a next token, and that what was taken is gone when it is rolled back. Takes the
 * builder. *whole becomes what was taken; returns whether it may end there. */
bool fuzz_grammar_walk(struct grammar_builder **b, symbol_id start, struct gguf_str text, struct buf *whole);

#endif
