/* Checked arithmetic for every size from a file or a client. Each function returns false, and leaves *out unchanged, if
 * the result does not fit. Threads: pure functions. */
#ifndef INFCGI_BASE_CK_H
#define INFCGI_BASE_CK_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

MUST_CHECK static inline bool ck_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

MUST_CHECK static inline bool ck_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

/* Rounds `a` up to a multiple of `align`, a power of two. */
MUST_CHECK static inline bool ck_align(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t sum;
    if (!ck_add(a, align - 1, &sum)) {
        return false;
    }
    *out = sum & ~(align - 1);
    return true;
}

/* Multiplies a * b as a size_t, for an allocation. */
MUST_CHECK static inline bool ck_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

#endif
