/* A GGUF file made in memory and the plan that a family's builder makes of it, for tests of builders. What must work
 * and does not fails the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_MODEL_FILE_H
#define INFCGI_TESTS_MODEL_FILE_H

#include "engine/model/model.h"
#include "tests/support/gguf_writer.h"

struct model_file {
    struct buf bytes;
    struct gguf *g; /* over them */
};

/* The file that the writer holds, and the end of the writer. End it by model_file_fini. */
struct model_file model_file_of(struct gguf_writer *w);
void model_file_fini(struct model_file *f);

/* Its plan; the caller frees it. */
struct plan *model_file_plan(const struct model_file *f);

/* The n-th step of a kind, from 0 on. */
const struct plan_step *model_file_step(const struct plan *p, enum plan_op op, int n);

/* There is none: that is `expected`, with `word` in the one line that says so, what was expected and what was found.
 * i: number of the case, for messages. */
void model_file_refuse(const struct model_file *f, size_t i, enum err expected, const char *word);

#endif
