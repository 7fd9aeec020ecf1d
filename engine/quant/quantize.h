/* Encodes f32 as blocks of the weight types, the inverse of engine/quant/<type>.c. Scales, minimums and codes are
 * searched for a small sum of squared errors per block [least squares over candidates for the scale;
 * docs/internals/quantize.md].
 *
 * Rows are independent, so the bytes do not depend on the division among threads. Threads: pure functions. */
#ifndef INFCGI_QUANT_QUANTIZE_H
#define INFCGI_QUANT_QUANTIZE_H

#include "engine/tensor/dtype.h"

#include <stddef.h>

/* Returns whether rows of this type can be encoded: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool quantize_can(enum dtype type);

/* Encodes a row of n values, a multiple of the type's block, as `type`.
 *   x           [n] f32
 *   importance  OPTIONAL [n], finite and >= 0: weight of each value's squared error; NULL, or all zero in a block:
 *               equal weights. Ignored for F32, F16, BF16.
 *   dst         the row's bytes (dtype_row_bytes), any alignment
 * Returns false, with dst undefined, if a value is not finite or its magnitude exceeds 65,504 (the largest half; for
 * F32 and BF16 3.39e38, the largest bfloat16). */
MUST_CHECK bool quantize_row(enum dtype type, const float *x, size_t n, const float *importance, void *dst);

#endif
