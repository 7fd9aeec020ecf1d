/* The work that one text may take, counted in steps: what a model file can make slow (its patterns, its very long
 * tokens) takes its steps out of one budget, which grows with the text. So a text ends in time linear in its length
 * whatever the file holds. A step is some nanoseconds of work. What is linear by itself (special tokens, normalising,
 * our own scanners) takes none, or one a byte.
 * The ids of a text never depend on the machine; whether a text near the limit is refused may, since a clock chooses
 * which code runs an expression, and only one of the two is counted (splitter.c).
 *
 * Threads: a budget belongs to the thread that encodes, whose task may end the work (task.h). */
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

/* The budget of a text of n bytes. */
static inline struct budget budget_of(size_t n)
{
    uint64_t given = BUDGET_MIN + (uint64_t)BUDGET_PER_BYTE * n;
    return (struct budget){.given = given, .left = given};
}

/* Takes n steps. ERR_PATTERN_LIMIT: fewer are left; or task_check()'s errors. */
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
