/* The IQ1, IQ2 and IQ3 weight types: for each 8 or 4 inputs a file stores the index of a point of a fixed grid, and
 * signs. This header has the grids and converts a point to codes of a table panel (panel.h): the index of the magnitude
 * in the low three bits of a code, the sign in bit 3. Threads: constant data and pure functions. */
#ifndef INFCGI_QUANT_IQ_GRIDS_H
#define INFCGI_QUANT_IQ_GRIDS_H

#include "engine/quant/quant_types.h"

/* 8 indexes of 2 bits per point, the first input in the lowest bits. */
extern const uint16_t iq_grid_1[2048];    /* IQ1_S, IQ1_M: -1, 0, 1 */
extern const uint16_t iq_grid_2_xxs[256]; /* IQ2_XXS: 8, 25, 43 */
extern const uint16_t iq_grid_2_xs[512];  /* IQ2_XS: 8, 25, 43 */
extern const uint16_t iq_grid_2_s[1024];  /* IQ2_S: 8, 25, 43 */

/* 4 indexes of 4 bits per point, the first input in the lowest bits. */
extern const uint16_t iq_grid_3_xxs[256]; /* IQ3_XXS: 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint16_t iq_grid_3_s[512];   /* IQ3_S: 1, 3, .. 15 */

/* Panel table of the magnitudes 8, 25 and 43 with either sign. */
extern const uint8_t iq_table_2[16];

/* Panel table of the IQ1 types: 8 * (-1, 0 or 1), plus 1, or minus 1 if bit 3 is set; their values are eighths. */
extern const uint8_t iq_table_1[16];

/* Expand a point of 8 indexes of 2 bits, or two points of 4 indexes of 4 bits, to 8 bytes. */
static ALWAYS_INLINE uint64_t iq_point_of_8(uint16_t point)
{
    uint64_t v = point;
    v = (v | v << 24) & 0x000000FF000000FFu;
    v = (v | v << 12) & 0x000F000F000F000Fu;
    return (v | v << 6) & QUANT_EACH_BYTE(3);
}

static ALWAYS_INLINE uint64_t iq_points_of_4(uint16_t first, uint16_t second)
{
    uint64_t v = first | (uint64_t)second << 32;
    v = (v | v << 8) & 0x00FF00FF00FF00FFu;
    return (v | v << 4) & QUANT_EACH_BYTE(0x0F);
}

/* Returns bit i of `signs` as bit 3 of byte i. The byte is copied to eight bytes, each keeps its own bit, and adding
 * 0x7F carries that into the top bit. */
static ALWAYS_INLINE uint64_t iq_signs(uint8_t signs)
{
    uint64_t own = QUANT_EACH_BYTE(signs) & 0x8040201008040201u;
    return ((own + QUANT_EACH_BYTE(0x7F)) & QUANT_EACH_BYTE(0x80)) >> 4;
}

/* Returns the signs of 8 inputs. The file stores seven, because the number of signs is even. */
static ALWAYS_INLINE uint8_t iq_even_signs(uint32_t seven)
{
    seven &= 127;
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (uint8_t)(seven | odd << 7);
}

#endif
