/* Bounds the work for one text, counted in steps. Everything that a model file can make slow (its patterns, very long
 * tokens) takes its steps from one budget, which grows with the text. So encoding takes time linear in the text,
 * whatever the file contains. A step is a few nanoseconds of work. Linear work (special tokens, normalization, infcgi's
 * own scanners) takes no steps, or one per byte.
 *
 * A text's ids never depend on the machine. Whether a text near the limit is rejected can depend on it. A clock chooses
 * between two kinds of code to run an expression, and only one is counted (splitter.c).
 * Threads: a budget belongs to the encoding thread, whose task can cancel the work (task.h). */
#ifndef INFCGI_TOKENIZER_BUDGET_H
#define INFCGI_TOKENIZER_BUDGET_H

#include "engine/base/task.h"

#include <stddef.h>
#include <stdint.h>

enum {
    BUDGET_MIN = 1 << 24,
    BUDGET_PER_BYTE =
        1024, /* the worst text for a published vocabulary takes less than a twentieth [splitter_test.c] */
};

struct budget {
    uint64_t given, left; /* steps */
};

/* Returns the budget of a text of n bytes. */
static inline struct budget budget_of(size_t n)
{
    uint64_t given = BUDGET_MIN + (uint64_t)BUDGET_PER_BYTE * n;
    return (struct budget){.given = given, .left = given};
}

/* Takes n steps. ERR_PATTERN_LIMIT: too few are left; also task_check()'s errors. */
static inline enum err budget_take(struct budget *b, uint64_t n)
{
    if (n > b->left) {
        b->left = 0;
        return ERR_PATTERN_LIMIT;
    }
    bool is_due = task_is_due(b->given - b->left, n);
    b->left -= n;
    return is_due ? task_check() : ERR_OK;
}

#endif
