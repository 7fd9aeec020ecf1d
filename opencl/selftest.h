/* Does the device compute what it should? Drivers miscompile dot products in the field (docs/internals/opencl.md), so before
 * a model is loaded each way to multiply that it needs, and then each kind of step, computes a small case whose result
 * is known.
 * Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_SELFTEST_H
#define INFCGI_OPENCL_SELFTEST_H

#include "engine/base/buf.h"
#include "opencl/opencl_internal.h"

/* Where the device computes something wrongly, plain too, the layers that have it are told to backend_config.unfit.
 *
 * Tests products with each kind of weight in codes that the model multiplies by, with all tiles of token rows and, where the
 * model has them, of two weights; programs are the model's own, and built here if they are not. A kind that is wrong is
 * made plain (program_set_plain), which is told, and tested again. Then come the steps (selftest_steps). What was right once
 * is remembered where programs are kept. The CPU with plain dot products, which is C, is not tested unless
 * selftest_always was called.
 * ERR_UNSUPPORTED_DEVICE: plain ones are wrong, too, or a step. Else the errors of open and of a batch. */
MUST_CHECK enum err selftest_run(struct backend_model *m, struct err_info *info);

/* Tests each step of the model's plan that differs from those before it in what decides its programs or their ways, against
 * `ref`: results, keys and values, states, logits' statistics and best tokens, in batches of many, one and few rows.
 * ERR_UNSUPPORTED_DEVICE: *info has the device, its driver and the kind of step that is wrong. (selftest_steps.c) */
MUST_CHECK enum err selftest_steps(const struct backend_model *m, struct err_info *info);

/* Appends what tells those steps from another model's. ERR_NOMEM. */
MUST_CHECK enum err selftest_steps_name(const struct backend_model *m, struct buf *out, struct err_info *info);

/* Tells backend_config.unfit (which may be NULL) of the layer that step i is a part of; of the first one or the last where it
 * stands in front of all or behind them. (selftest.c) */
void selftest_mark(const struct backend_model *m, int32_t i);

/* 24 made-up bits, the next ones of a generator. */
uint32_t selftest_next(uint32_t *state);

/* A block of the type: made-up bytes, as any are one, which stand for numbers of a middling size, as those of models are.
 * type: with codes. state: of the generator. */
void selftest_make_block(enum dtype type, uint32_t *state, unsigned char *block);

/* Tests: whether all devices are tested. */
void selftest_always(bool yes);

#endif
