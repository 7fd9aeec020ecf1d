/* Shared by the grammar targets: a vocabulary with all bytes, and a walk through any grammar. Threads: one. */
#ifndef INFCGI_TESTS_FUZZ_GRAMMAR_H
#define INFCGI_TESTS_FUZZ_GRAMMAR_H

#include "tests/fuzz/fuzz.h"

#include "engine/base/buf.h"
#include "engine/grammar/grammar_build.h"

/* Opens the vocabulary for the life of the process. Each run of a target must call it first. */
void fuzz_grammar_start(void);

/* Builds the grammar that `start` derives, accepts `text` as far as possible and then continues at random. Asserts that
 * masks agree with what is accepted, that a next token always exists, and that a rollback undoes what was accepted.
 * Takes ownership of the builder. Writes the accepted text to *whole; returns whether it can end there. */
bool fuzz_grammar_walk(struct grammar_builder **b, symbol_id start, struct gguf_str text, struct buf *whole);

#endif
