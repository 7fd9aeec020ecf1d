/* A GGUF file in memory and the plan that a family's builder makes from it, for tests of builders. A call that must
 * succeed and fails, fails the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_MODEL_FILE_H
#define INFCGI_TESTS_MODEL_FILE_H

#include "engine/model/model.h"
#include "tests/support/gguf_writer.h"

struct model_file {
    struct buf bytes;
    struct gguf *g; /* reads `bytes` */
};

/* Returns the file that the writer holds, and ends the writer. Free it with model_file_fini. */
struct model_file model_file_of(struct gguf_writer *w);
void model_file_fini(struct model_file *f);

/* Returns its plan; the caller frees it. */
struct plan *model_file_plan(const struct model_file *f);

/* Returns the n-th step of a kind, counted from 0. */
const struct plan_step *model_file_step(const struct plan *p, enum plan_op op, int n);

/* Checks that the builder rejects the file with `expected` and one line that has `word`, the expected and the found
 * value. i: number of the case, for messages. */
void model_file_refuse(const struct model_file *f, size_t i, enum err expected, const char *word);

#endif
