/* TQ1_0: 256 inputs in 54 bytes, 48 bytes of five and 4 bytes of four ternary digits, half d; w = d * (digit - 1). A
 * byte holds its digits as a fraction of 256. Multiplied by 3^n, without its whole part, and by 3 again, the carry
 * above 256 is the n-th digit [ggml-common.h and ggml-quants.c, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { TQ1_0_BYTES = 54, TAIL = 32, LAST = 48, D = 52 }; /* offsets in the super-block */
enum { TO_ZERO_POINT = 8 - 1 };                          /* the panel subtracts 8 where the file means 1 */

static const uint8_t power_of_3[5] = {1, 3, 9, 27, 81};

/* Extracts digit `digit` of n bytes. */
static void digits(const uint8_t *bytes, int n, size_t digit, uint8_t *codes)
{
    for (int i = 0; i < n; i++) {
        uint8_t fraction = (uint8_t)(bytes[i] * power_of_3[digit]);
        codes[i] = (uint8_t)((fraction * 3 >> 8) + TO_ZERO_POINT);
    }
}

/* Blocks 0..4 have one digit each of the first 32 bytes. 80 inputs in 16 bytes follow in the same way, then 16 in 4
 * bytes. */
static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * TQ1_0_BYTES;
    size_t j = i_block % 8;
    out->scale[0] = quant_half(b + D);
    if (j < 5) {
        digits(b, 32, j, out->codes);
        return;
    }
    digits(b + TAIL, 16, (j - 5) * 2, out->codes);
    if (j < 7) {
        digits(b + TAIL, 16, (j - 5) * 2 + 1, out->codes + 16);
        return;
    }
    for (size_t digit = 0; digit < 4; digit++) {
        digits(b + LAST, 4, digit, out->codes + 16 + 4 * digit);
    }
}

QUANT_TYPE(tq1_0, PANEL_U4, NULL, NULL)
