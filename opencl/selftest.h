/* Does the device compute what it should? Drivers miscompile dot products in the field (docs/internals/opencl.md), so before
 * a model is loaded each way to multiply that it needs computes a small case whose result is known.
 * Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_SELFTEST_H
#define INFCGI_OPENCL_SELFTEST_H

#include "opencl/opencl_internal.h"

/* Tests products with each kind of weight in codes that the model multiplies by, with all tiles of token rows and, where the
 * model has them, of two weights; programs are the model's own, and built here if they are not. A kind that is wrong is
 * made plain (program_set_plain), which is told, and tested again. What was right once is remembered where programs are
 * kept. The CPU with plain dot products, which is C, is not tested unless selftest_always was called.
 * ERR_UNSUPPORTED_DEVICE: plain ones are wrong, too. Else the errors of open and of a batch. */
MUST_CHECK enum err selftest_run(struct backend_model *m, struct err_info *info);

/* Tests: whether all devices are tested. */
void selftest_always(bool yes);

#endif
