/* The byte alphabet of byte-level BPE. */
#include "engine/format/byte_alphabet.h"

#include <stdbool.h>

uint32_t byte_alphabet_cp(unsigned char b)
{
    bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (printable) {
        return b;
    }
    if (b < 33) { /* 33 below '!', 34 from DEL on, then 173 */
        return 256u + b;
    }
    return b < 161 ? 256u + 33 + (b - 127u) : 256u + 67;
}

int byte_alphabet_byte(uint32_t cp)
{
    if (cp < 256) {
        return byte_alphabet_cp((unsigned char)cp) == cp ? (int)cp : -1;
    }
    if (cp < 256 + 33) {
        return (int)(cp - 256);
    }
    if (cp < 256 + 67) {
        return (int)(cp - 256 - 33 + 127);
    }
    return cp == 256 + 67 ? 173 : -1;
}
