/* Making blocks of the weight types from f32: the way back from what engine/quant/<type>.c reads. Scales,
 * minimums and codes are searched so that the sum of squared errors of a block is small [least squares over candidates
 * for the scale; docs/internals/quantize.md].
 *
 * Rows do not know each other, so the bytes do not depend on who makes which. Threads: pure functions. */
#ifndef INFCGI_QUANT_QUANTIZE_H
#define INFCGI_QUANT_QUANTIZE_H

#include "engine/tensor/dtype.h"

#include <stddef.h>

/* Returns whether rows of this type can be encoded: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool quantize_can(enum dtype type);

/* A row of n values, a multiple of the type's block, as `type`.
 *   x           [n] f32
 *   importance  OPTIONAL [n], finite and >= 0: how much the square of each value's error counts; NULL, or all zero in a
 *               block: each the same. Not looked at for F32, F16, BF16.
 *   dst         the row's bytes (dtype_row_bytes), any alignment
 * False, and dst undefined, when a value is not finite or beyond what the type can hold: 65,504, which is the largest
 * half; any for F32 and BF16. */
MUST_CHECK bool quantize_row(enum dtype type, const float *x, size_t n, const float *importance, void *dst);

#endif
