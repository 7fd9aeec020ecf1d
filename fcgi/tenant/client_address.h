/* Identifies clients without a key by their address. Threads: pure functions. */
#ifndef INFCGI_FCGI_CLIENT_ADDRESS_H
#define INFCGI_FCGI_CLIENT_ADDRESS_H

#include <stdint.h>

/* Returns an even nonzero number for the client at an address in text form (parameter REMOTE_ADDR), or 0 without an
 * address, as on a unix socket. An IPv6 /64 network counts as one client, because a host has all its addresses. An IPv4
 * address in IPv6 form equals that IPv4 address. address OPTIONAL. */
uint64_t client_address_key(const char *address);

#endif
