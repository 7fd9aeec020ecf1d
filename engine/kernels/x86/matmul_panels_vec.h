/* matmul_panels.h for x86. Include after an enum with
 *   ROWS_IN_CACHE_BYTES activation rows of a chunk, which stay in the second-level cache while all panels stream past
 *   TILE_ROWS            rows of the largest tile; chunks are multiples of it
 * and define the functions that matmul_panels.h declares; matmul calls all_panels. */
#ifndef INFCGI_KERNELS_X86_MATMUL_PANELS_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_PANELS_VEC_H

#include "engine/kernels/matmul_panels.h"

#include <immintrin.h>

static ALWAYS_INLINE void all_panels(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    panels_by_chunk(a, kind, rows_in_chunk(a->row_bytes, ROWS_IN_CACHE_BYTES, TILE_ROWS), k);
}

#endif
