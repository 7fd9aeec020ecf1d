/* API keys from a file: one a line, `#` begins a comment. Comparison time depends on the lengths alone.
 * Threads: apikey_check and apikey_load may run at once. */
#ifndef INFCGI_FCGI_APIKEY_H
#define INFCGI_FCGI_APIKEY_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { APIKEY_ID_BYTES = 32 };

/* Whose request it is: SHA-256 of the key, so the same after the file was read again. Not set without keys. */
struct apikey_id {
    bool is_set;
    uint8_t bytes[APIKEY_ID_BYTES];
};

/* Reads the file and replaces the keys. On failure the old ones stay. ERR_CONFIG (it cannot be read, no key in
 * it, or a line that can be none), ERR_NOMEM, ERR_INTERNAL (libcrypto). */
MUST_CHECK enum err apikey_load(const char *path, struct err_info *info);

/* True when no keys were loaded, or `authorization` ("Bearer KEY") or `x_api_key` (both OPTIONAL) holds one of them;
 * *id then says which, the first of the two that does. */
bool apikey_check(const char *authorization, const char *x_api_key, struct apikey_id *id);

/* A number for the scheduler's turns: 0 when not set, else not 0. */
uint64_t apikey_number(const struct apikey_id *id);

enum { APIKEY_OWN_SALT_BYTES = 256, APIKEY_SALT_BYTES = 2 * APIKEY_ID_BYTES + 1 + APIKEY_OWN_SALT_BYTES + 1 };

/* The cache salt of a request: what the client gave (OPTIONAL, at most APIKEY_OWN_SALT_BYTES) behind the key's digest,
 * whose length is fixed, so that two keys never mean the same whatever their clients give. Returns `text`; `own` when
 * the id is not set. */
const char *apikey_salt(const struct apikey_id *id, const char *own, char text[APIKEY_SALT_BYTES]);

#endif
