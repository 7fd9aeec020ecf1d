/* The classes of code points that pre-tokenizers tell apart, and those that normalizers may change. Threads: pure
 * function. */
#ifndef INFCGI_TOKENIZER_UNICODE_TABLE_H
#define INFCGI_TOKENIZER_UNICODE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* \p{L} */
    UNICODE_NUMBER, /* \p{N} */
    UNICODE_SPACE,  /* \s: property White_Space */
};

/* unicode_block_of: which block of 256 code points looks like which. unicode_blocks: four classes of two bits a byte.
 */
extern const unsigned char unicode_block_of[0x110000 / 256];
extern const unsigned char unicode_blocks[][64];

/* Class of cp [Unicode Character Database]; unassigned and out of range: UNICODE_OTHER. */
static inline enum unicode_class unicode_class_of(uint32_t cp)
{
    if (cp > 0x10FFFF) {
        return UNICODE_OTHER;
    }
    unsigned char four = unicode_blocks[unicode_block_of[cp >> 8]][(cp & 0xFF) >> 2];
    return (enum unicode_class)(four >> (2 * (cp & 3)) & 3);
}

/* unicode_nfc_block_of: as above, of blocks of 256 bits. */
extern const unsigned char unicode_nfc_block_of[0x110000 / 256];
extern const unsigned char unicode_nfc_blocks[][32];

/* May NFC change cp (at most U+10FFFF), alone or because of the characters before it? */
static inline bool unicode_nfc_may_change(uint32_t cp)
{
    return (unicode_nfc_blocks[unicode_nfc_block_of[cp >> 8]][(cp & 0xFF) >> 3] >> (cp & 7) & 1) != 0;
}

#endif
