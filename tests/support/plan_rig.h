/* Plans made by hand, and batches of one sequence, for tests of back ends. Failures end the test. Threads: one at a time. */
#ifndef INFCGI_TESTS_PLAN_RIG_H
#define INFCGI_TESTS_PLAN_RIG_H

#include "engine/backend/backend.h"
#include "engine/plan/plan.h"

/* Adds a matrix [n_out][n_in] of F32; data is borrowed. */
plan_weight_id plan_rig_weight(struct plan *p, const float *data, uint32_t n_out, uint32_t n_in);

plan_buf_id plan_rig_buffer(struct plan *p, uint32_t width);

/* Adds a step of layer 0 with w[0] = w. Returns it until the next one is added. */
struct plan_step *plan_rig_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w);

/* Opens a plan with two pages for batches of max_rows rows, with high precision. cpu, type: OPTIONAL. */
struct backend_model *plan_rig_open(const struct backend *backend, const struct plan *p, const char *cpu,
                                    const char *type, int n_threads, int max_rows);

/* Fills logits[to][n_vocab] from row `from` on, with up to `step` rows in a batch. tokens: [to]. The sequence has page 1,
 * then 0. */
void plan_rig_compute(const struct backend *backend, struct backend_model *m, const int32_t *tokens, int from, int to,
                      int step, uint32_t n_vocab, float *logits);

#endif
