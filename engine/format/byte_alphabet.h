/* The byte alphabet of byte-level BPE [GPT-2]: vocabularies spell each byte as one printable character.
 * Threads: pure functions. */
#ifndef INFCGI_FORMAT_BYTE_ALPHABET_H
#define INFCGI_FORMAT_BYTE_ALPHABET_H

#include <stdint.h>

/* Returns the code point that spells the byte. */
uint32_t byte_alphabet_cp(unsigned char byte);

/* Returns the byte that the code point spells, or -1. */
int byte_alphabet_byte(uint32_t cp);

#endif
