/* Layout of quantised activation rows; the parts are described in kern.h. */
#include "engine/kernels/kern.h"

static size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

static size_t n_blocks(size_t k) { return (k + PANEL_BLOCK - 1) / PANEL_BLOCK; }

size_t kern_qrow_d_offset(size_t k) { return round_up_64(n_blocks(k) * PANEL_BLOCK); }

size_t kern_qrow_s_offset(size_t k) { return kern_qrow_d_offset(k) + round_up_64(n_blocks(k) * sizeof(float)); }

size_t kern_qrow_nsum_offset(size_t k) { return kern_qrow_s_offset(k) + round_up_64(n_blocks(k) * sizeof(float)); }

size_t kern_qrow_bytes(size_t k) { return kern_qrow_nsum_offset(k) + round_up_64(n_blocks(k) * 2 * sizeof(int32_t)); }
