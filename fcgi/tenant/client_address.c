#include "fcgi/tenant/client_address.h"

#include "engine/base/hash.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { NETWORK_BYTES = 8 };

uint64_t client_address_key(const char *address)
{
    static const unsigned char mapped[12] = {[10] = 0xFF, [11] = 0xFF}; /* ::ffff:a.b.c.d [RFC 4291, 2.5.5.2] */
    unsigned char bytes[sizeof(struct in6_addr)];
    const unsigned char *at = bytes;
    size_t n = 0;
    if (address != NULL && inet_pton(AF_INET, address, bytes) == 1) {
        n = sizeof(struct in_addr);
    } else if (address != NULL && inet_pton(AF_INET6, address, bytes) == 1) {
        bool is_mapped = memcmp(bytes, mapped, sizeof mapped) == 0;
        at += is_mapped ? sizeof mapped : 0;
        n = is_mapped ? sizeof(struct in_addr) : (size_t)NETWORK_BYTES;
    }
    return n > 0 ? (hash64(at, n, n) | 2) & ~(uint64_t)1 : 0;
}
