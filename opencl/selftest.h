/* Tests whether the device computes correctly. Drivers miscompile dot products in the field (docs/internals/opencl.md),
 * so before a model is loaded, each kind of product that it needs, and then each kind of step, computes a small case
 * with a known result.
 * Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_SELFTEST_H
#define INFCGI_OPENCL_SELFTEST_H

#include "engine/base/buf.h"
#include "opencl/opencl_internal.h"

/* If the device computes something wrongly with plain dot products too, marks its layers in backend_config.unfit.
 *
 * Tests products with each kind of quantized weight that the model multiplies by, with all tiles of token rows and, if
 * the model has them, with pairs of weights. The programs are the model's own, and are built if necessary. If a kind is
 * wrong, makes it plain (program_set_plain), tells the operator, and tests again. Then tests the steps
 * (selftest_steps). A success is recorded in the program cache. Skips the CPU with plain dot products, which is C,
 * unless selftest_always was called.
 * ERR_UNSUPPORTED_DEVICE: plain products are wrong too, or a step is. Else the errors of open and of a batch. */
MUST_CHECK enum err selftest_run(struct backend_model *m, struct err_info *info);

/* Tests each step of the model's plan that differs from earlier ones in its programs or their paths, against `ref`:
 * results, keys and values, states, statistics of logits and best tokens, in batches of many, one and few rows.
 * ERR_UNSUPPORTED_DEVICE: *info has the device, its driver and the kind of step. (selftest_steps.c) */
MUST_CHECK enum err selftest_steps(const struct backend_model *m, struct err_info *info);

/* Appends text that identifies these steps among those of other models. ERR_NOMEM. */
MUST_CHECK enum err selftest_steps_name(const struct backend_model *m, struct buf *out, struct err_info *info);

/* Marks the layer of step i in backend_config.unfit (which may be NULL); for a step outside of layers the nearest layer
 * before it, else the first after it. (selftest.c) */
void selftest_mark(const struct backend_model *m, int32_t i);

/* Returns the next 24 pseudo-random bits of a generator. */
uint32_t selftest_next(uint32_t *state);

/* Fills a block of the type with pseudo-random bytes that decode to values of moderate size, like those of models.
 * type: a quantized type. state: of the generator. */
void selftest_make_block(enum dtype type, uint32_t *state, unsigned char *block);

/* For tests: whether all devices are tested. */
void selftest_always(bool yes);

#endif
