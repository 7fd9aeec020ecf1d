/* The tile instructions of AMX that matmul_amx_vec.h uses: a thin layer that tests can replace by an emulation (they
 * define AMX_TILE_EMULATED and the same macros: tests/kernels/amx_emulated.h). Tiles are named by literal numbers 0 ..
 * 7, as the instructions encode them.
 *
 *   AMX_CONFIGURE(config)        LDTILECFG: shapes of all tiles, which it clears
 *   AMX_RELEASE()                TILERELEASE: no tiles, so that a thread switch need not save them
 *   AMX_ZERO(t)                  TILEZERO
 *   AMX_LOAD(t, p, stride)       TILELOADD: row i of tile t from p + i * stride
 *   AMX_STORE(t, p, stride)      TILESTORED
 *   AMX_DOT_SIGNED(c, a, b)      TDPBSSD: dword n of row m of c += sum over k of the four products of signed bytes of
 *                                dword k of row m of a and dword n of row k of b
 *   AMX_DOT_UNSIGNED(c, a, b)    TDPBSUD: likewise, bytes of b unsigned
 *
 * Threads: tiles are registers of a thread; a function that configures them releases them before it returns. Source:
 * Intel SDM vol. 2, the instructions' pages; vol. 1 chapter 18. */
#ifndef INFCGI_KERNELS_X86_AMX_TILE_H
#define INFCGI_KERNELS_X86_AMX_TILE_H

#include "engine/base/compiler.h"

#include <stdint.h>

/* The operand of LDTILECFG. An unused tile has 0 rows and 0 bytes. */
struct amx_config {
    _Alignas(64) uint8_t palette; /* 1 */
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16]; /* of tiles 0 .. 7, at most 64; others 0 */
    uint8_t rows[16];       /* at most 16 */
};
_Static_assert(sizeof(struct amx_config) == 64, "LDTILECFG reads 64 bytes");

#ifndef AMX_TILE_EMULATED
#include <immintrin.h>
#include <stdatomic.h>

/* gcc's intrinsics do not declare that they read memory; the fence keeps stores before them. */
#define AMX_MEMORY_IS_READ() atomic_signal_fence(memory_order_seq_cst)

#define AMX_CONFIGURE(config)                                                                                          \
    do {                                                                                                               \
        AMX_MEMORY_IS_READ();                                                                                          \
        _tile_loadconfig(config);                                                                                      \
    } while (0)
#define AMX_LOAD(t, p, stride)                                                                                         \
    do {                                                                                                               \
        AMX_MEMORY_IS_READ();                                                                                          \
        _tile_loadd(t, p, stride);                                                                                     \
    } while (0)
#define AMX_STORE(t, p, stride)   _tile_stored(t, p, stride)
#define AMX_RELEASE()             _tile_release()
#define AMX_ZERO(t)               _tile_zero(t)
#define AMX_DOT_SIGNED(c, a, b)   _tile_dpbssd(c, a, b)
#define AMX_DOT_UNSIGNED(c, a, b) _tile_dpbsud(c, a, b)

#endif
#endif
