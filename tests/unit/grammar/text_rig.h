/* What the tests of readers of grammars (GBNF, Lark) share: a vocabulary of bytes, and what a grammar says. Threads: one. */
#ifndef INFCGI_TESTS_GRAMMAR_TEXT_RIG_H
#define INFCGI_TESTS_GRAMMAR_TEXT_RIG_H

#include "engine/grammar/grammar_build.h"

/* grammar_gbnf, or what is like it. */
typedef enum err (*text_rig_reader)(struct grammar_builder *b, const char *text, size_t n, symbol_id *root,
                                    struct err_info *info);

void text_rig_set_up(void);
void text_rig_tear_down(void);

/* Each of n texts up to the first NULL is one that the grammar says, or is not. */
void text_rig_says(text_rig_reader read, const char *grammar, const char *const *texts, size_t n, bool does);

/* ERR_INVALID_GRAMMAR, in these words. */
void text_rig_refuses(text_rig_reader read, const char *grammar, const char *words);

/* Ends soon, and what it says is told. */
enum { TEXT_RIG_BIG = 1 << 17 };
enum err text_rig_hostile(text_rig_reader read, const char *text, size_t n);

/* Each allocation fails once. */
void text_rig_without_memory(text_rig_reader read, const char *grammar);

/* A client that has gone, or a deadline that has passed, ends what is made of the grammar. It must be one that takes TASK_STEPS. */
void text_rig_stops(text_rig_reader read, const char *grammar);

#endif
