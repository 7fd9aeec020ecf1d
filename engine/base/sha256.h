/* SHA-256 [FIPS 180-4], to compare files with lists of sums that others made. Threads: a state belongs to one. */
#ifndef INFCGI_BASE_SHA256_H
#define INFCGI_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK_BYTES = 64 };

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;                        /* so far */
    unsigned char block[SHA256_BLOCK_BYTES]; /* the last n_bytes % 64 of them */
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 *s, unsigned char out[SHA256_BYTES]); /* s may not be used again */

#endif
