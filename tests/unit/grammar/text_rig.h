/* Shared by the tests of grammar readers (GBNF, Lark): a vocabulary of bytes, and checks of the language of a grammar.
 * Threads: one. */
#ifndef INFCGI_TESTS_GRAMMAR_TEXT_RIG_H
#define INFCGI_TESTS_GRAMMAR_TEXT_RIG_H

#include "engine/grammar/grammar_build.h"

/* grammar_gbnf, or a function like it. */
typedef enum err (*text_rig_reader)(struct grammar_builder *b, const char *text, size_t n, symbol_id *root,
                                    struct err_info *info);

void text_rig_set_up(void);
void text_rig_tear_down(void);

/* Checks that the grammar derives (or with does false, does not derive) each of n texts up to the first NULL. */
void text_rig_says(text_rig_reader read, const char *grammar, const char *const *texts, size_t n, bool does);

/* Checks for ERR_INVALID_GRAMMAR with these words. */
void text_rig_refuses(text_rig_reader read, const char *grammar, const char *words);

/* Reads a hostile text; checks that reading ends soon. Returns its result. */
enum { TEXT_RIG_BIG = 1 << 17 };
enum err text_rig_hostile(text_rig_reader read, const char *text, size_t n);

/* Reads it repeatedly, with each allocation in turn failing. */
void text_rig_without_memory(text_rig_reader read, const char *grammar);

/* Checks that a disconnected client and an expired deadline cancel the grammar's construction, which must take
 * TASK_STEPS. */
void text_rig_stops(text_rig_reader read, const char *grammar);

#endif
