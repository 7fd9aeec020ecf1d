/* Clients without a key are told apart by their address. Threads: pure functions. */
#ifndef INFCGI_FCGI_CLIENT_ADDRESS_H
#define INFCGI_FCGI_CLIENT_ADDRESS_H

#include <stdint.h>

/* A number for the client at an address in text form (parameter REMOTE_ADDR), even and not 0; 0 where there is none, as on a unix
 * socket. One IPv6 network of 64 bits is one client, since a host has all of its addresses; an IPv4 address in IPv6 form
 * is that IPv4 address. address OPTIONAL. */
uint64_t client_address_key(const char *address);

#endif
