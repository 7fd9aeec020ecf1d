/* Packs rows of a weight, as the file stores them, into panels (panel.h). Separate from the table of weight types
 * (quant.h), which itself uses panels. Threads: pure functions. */
#ifndef INFCGI_QUANT_PANEL_PACK_H
#define INFCGI_QUANT_PANEL_PACK_H

#include "engine/tensor/dtype.h"

#include <stddef.h>

/* Packs n_rows <= 16 output rows of type `type`, each of k elements, into one panel of kind quant_ops(type)->panel.
 *   type  has ops in quant.h
 *   src   the rows, row_bytes apart, unaligned
 *   dst   panel_bytes(kind, k) bytes, 64-byte aligned, fully written; lanes without a row are zeros */
void panel_pack(enum dtype type, const void *src, size_t row_bytes, int n_rows, size_t k, void *dst);

#endif
