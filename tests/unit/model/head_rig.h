/* A model's plan with a prediction head of another file, and what such heads must keep and reject. Each function fails the
 * running test. Threads: a test's own. */
#ifndef INFCGI_TESTS_HEAD_RIG_H
#define INFCGI_TESTS_HEAD_RIG_H

#include "engine/backend/backend.h"
#include "engine/model/model.h"

enum { HEAD_RIG_ROWS = 40 };

struct head_rig {
    struct gguf *file, *head;
    struct plan *plan, *alone, *head_plan; /* the model's with the head and without, and the head's own */
};

/* Opens a file or folder of tests/golden/models; the caller closes it. */
struct gguf *head_rig_open_file(const char *name);

/* Builds the plans of a model and its head; head_rig_close frees them. */
struct head_rig head_rig_open(const char *model, const char *head);
void head_rig_close(struct head_rig *r);

/* Computes HEAD_RIG_ROWS tokens of one sequence: the logits[n][V] of `rows`, and the plan's output rows (OPTIONAL), of
 * each row or, with plan.guesses_in_place, of `rows`. */
void head_rig_compute(const struct backend *b, const struct plan *p, const int32_t *rows, int32_t n, float *logits,
                      float *output);

/* Drops the head from r->plan, and expects the steps of the model. */
void head_rig_drop(struct head_rig *r);

/* Expects that the model rejects the head, with this text. */
void head_rig_is_refused(const char *model, const char *head, const char *text);

/* Expects that the head alone is rejected as a model. */
void head_rig_is_no_model(const char *head, const char *arch);

#endif
