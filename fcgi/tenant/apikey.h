/* API keys, kept as SHA-256 alone: those of a file, one a line, `#` begins a comment, and those that tenants have
 * (tenant.h). A key is given as it is or as `sha256:` and 64 hexadecimal digits. How long a comparison takes depends on
 * the length of what was sent and on the number of keys.
 * Threads: apikey_check, apikey_load and apikey_take may run at once. */
#ifndef INFCGI_FCGI_APIKEY_H
#define INFCGI_FCGI_APIKEY_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { APIKEY_ID_BYTES = 32, APIKEY_MAX_BYTES = 512 };

/* Whose request it is: SHA-256 of the key, or what a tenant has in its place, so the same after the file was read again.
 * Not set without keys. */
struct apikey_id {
    bool is_set;
    uint8_t bytes[APIKEY_ID_BYTES];
};

/* Reads the file and replaces the keys that came from it. On failure the old ones stay. ERR_CONFIG (it cannot be read,
 * no key in it, or a line that can be none), ERR_NOMEM, ERR_INTERNAL (libcrypto). */
MUST_CHECK enum err apikey_load(const char *path, struct err_info *info);

/* Appends a key and its owner to `keys`. ERR_INVALID_VALUE: it can be no key; ERR_NOMEM, ERR_INTERNAL. */
MUST_CHECK enum err apikey_add(struct buf *keys, const char *key, size_t n, const struct apikey_id *owner);

/* Does `keys`, made by apikey_add, have the key already? Only of texts that apikey_add takes. */
bool apikey_has(const struct buf *keys, const char *key, size_t n);

/* Replaces the tenants' keys by `keys`, which becomes the old ones, the caller's. A key that is both a tenant's and in
 * the file is the tenant's. */
void apikey_take(struct buf *keys);

/* True when there are no keys, or `authorization` ("Bearer KEY") or `x_api_key` (both OPTIONAL) holds one of them;
 * *id then says whose, the first of the two that does. */
bool apikey_check(const char *authorization, const char *x_api_key, struct apikey_id *id);

/* SHA-256 of text[0..n). ERR_INTERNAL. */
MUST_CHECK enum err apikey_digest(const void *text, size_t n, uint8_t out[APIKEY_ID_BYTES]);

/* Is it the same one? Two that are not set are the same. */
bool apikey_is_same(const struct apikey_id *a, const struct apikey_id *b);

/* A number for the scheduler's turns: 0 when not set, else not 0. */
uint64_t apikey_number(const struct apikey_id *id);

enum {
    APIKEY_CLIENT_SALT_BYTES = 256,                        /* of a client's cache_salt, at most */
    APIKEY_OWN_SALT_BYTES = APIKEY_CLIENT_SALT_BYTES + 64, /* the same with what a slot adds to it (slots.h) */
    APIKEY_SALT_BYTES = 2 * APIKEY_ID_BYTES + 1 + APIKEY_OWN_SALT_BYTES + 1 /* with the id and a NUL */
};

/* The cache salt of a request: what the client gave (OPTIONAL, at most APIKEY_OWN_SALT_BYTES) behind the id, whose length
 * is fixed, so that two keys never mean the same whatever their clients give. Returns `text`; `own` when the id is not
 * set. */
const char *apikey_salt(const struct apikey_id *id, const char *own, char text[APIKEY_SALT_BYTES]);

#endif
