/* API keys, stored only as SHA-256 digests. They come from a key file (one per line, `#` begins a comment) and from
 * tenants (tenant.h). A key is written plain or as `sha256:` and 64 hexadecimal digits. Comparison time depends on the
 * length of the sent key and on the number of keys.
 * Threads: apikey_check, apikey_load and apikey_take can run at the same time. */
#ifndef INFCGI_FCGI_APIKEY_H
#define INFCGI_FCGI_APIKEY_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { APIKEY_ID_BYTES = 32, APIKEY_MAX_BYTES = 512 };

/* The owner of a request: SHA-256 of the key, or the tenant's id instead. The id is unchanged after the file is
 * reloaded. Not set if the request has no key. */
struct apikey_id {
    bool is_set;
    uint8_t bytes[APIKEY_ID_BYTES];
};

/* Loads the file and replaces the keys that came from it. On failure the old keys stay active. ERR_CONFIG (unreadable,
 * no key, or a line that cannot be a key), ERR_NOMEM, ERR_INTERNAL (libcrypto). */
MUST_CHECK enum err apikey_load(const char *path, struct err_info *info);

#define APIKEY_EXPECTED                                                                                                \
    "a key of at most 512 visible ASCII characters without spaces, or sha256: and 64 hexadecimal digits"

/* Appends a key and its owner to `keys`. ERR_INVALID_VALUE: the text cannot be a key; ERR_NOMEM, ERR_INTERNAL. */
MUST_CHECK enum err apikey_add(struct buf *keys, const char *key, size_t n, const struct apikey_id *owner);

/* Returns whether `keys`, built by apikey_add, contains the key. The text must be one that apikey_add accepts. */
bool apikey_has(const struct buf *keys, const char *key, size_t n);

/* Replaces the tenants' keys with `set`, which then holds the old ones, which the caller owns. A key that both a
 * tenant and the key file have belongs to the tenant. */
void apikey_take(struct buf *set);

/* Returns true if no keys are configured, or if `authorization` ("Bearer KEY") or `x_api_key` (both OPTIONAL) has a
 * known key. *id is then the owner of the first matching key. */
bool apikey_check(const char *authorization, const char *x_api_key, struct apikey_id *id);

/* Computes SHA-256 of text[0..n). ERR_INTERNAL. */
MUST_CHECK enum err apikey_digest(const void *text, size_t n, uint8_t out[APIKEY_ID_BYTES]);

/* Returns whether two ids are equal. Two ids that are not set are equal. */
bool apikey_is_same(const struct apikey_id *a, const struct apikey_id *b);

/* Returns a nonzero number for the scheduler's turns, or 0 if the id is not set. */
uint64_t apikey_number(const struct apikey_id *id);

enum {
    APIKEY_CLIENT_SALT_BYTES = 256,                        /* maximum of a client's cache_salt */
    APIKEY_OWN_SALT_BYTES = APIKEY_CLIENT_SALT_BYTES + 64, /* the same with the text that a slot adds (slots.h) */
    APIKEY_SALT_BYTES = 2 * APIKEY_ID_BYTES + 1 + APIKEY_OWN_SALT_BYTES + 1 /* with the id and a NUL */
};

/* Builds the cache salt of a request: the id, then the client's salt `own` (OPTIONAL, at most APIKEY_OWN_SALT_BYTES).
 * The id has a fixed length, so salts of two keys never coincide. Returns `text`, or `own` if the id is not set. */
const char *apikey_salt(const struct apikey_id *id, const char *own, char text[APIKEY_SALT_BYTES]);

#endif
