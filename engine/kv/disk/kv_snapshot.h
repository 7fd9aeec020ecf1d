/* Names and contents of the files of kept KV pages and recurrent states.
 *
 *   name     SHA-256 of the parent's name and the page's 32 tokens. A first page's parent is the SHA-256 of a random key of
 *            the folder, the fingerprint of the program and model, and the salt. So a name stands for a whole prefix of one
 *            tenant and one model.
 *   file     head [KV_SNAPSHOT_HEAD_BYTES]: magic, version, kind, fingerprint, name, tokens, bytes and hash of the payload,
 *            hash of the head; then the payload, in the back end's form (BACKEND_OWN)
 *
 * A file is used only if its head equals the expected one bit for bit and the payload matches the hash. hash64 detects
 * accidental changes; a user who can write into the folder can change the model's output. Threads: pure functions. */
#ifndef INFCGI_KV_DISK_KV_SNAPSHOT_H
#define INFCGI_KV_DISK_KV_SNAPSHOT_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_NAME_BYTES = 32, KV_SNAPSHOT_HEAD_BYTES = 256, KV_SNAPSHOT_VERSION = 1 };

enum kv_snapshot_kind { KV_SNAPSHOT_PAGE, KV_SNAPSHOT_STATE, KV_SNAPSHOT_KINDS };

/* The name of a prefix, a fingerprint or a key: SHA-256, or as many random bytes. */
struct kv_name {
    uint8_t bytes[KV_NAME_BYTES];
};

/* Returns the SHA-256 of n bytes. ERR_INTERNAL: libcrypto fails. */
MUST_CHECK enum err kv_name_of(const void *data, size_t n, struct kv_name *out);

/* Returns the parent name of first pages; salt OPTIONAL. ERR_INTERNAL. */
MUST_CHECK enum err kv_name_root(const struct kv_name *key, const struct kv_name *fingerprint, const char *salt,
                                 struct kv_name *out);

/* Returns the name of the page of these tokens after parent. ERR_INTERNAL. */
MUST_CHECK enum err kv_name_child(const struct kv_name *parent, const int32_t tokens[KV_PAGE_TOKENS],
                                  struct kv_name *out);

/* What a file holds. */
struct kv_snapshot {
    enum kv_snapshot_kind kind;
    struct kv_name name;
    int32_t tokens[KV_PAGE_TOKENS]; /* of the page */
};

/* Fills file[0..KV_SNAPSHOT_HEAD_BYTES) for the payload of n bytes that follows. */
void kv_snapshot_seal(const struct kv_snapshot *s, const struct kv_name *fingerprint, unsigned char *file, size_t n);

/* Compares file[0..KV_SNAPSHOT_HEAD_BYTES + n) with what is expected. Returns NULL, or what is wrong with it. */
const char *kv_snapshot_fault(const struct kv_snapshot *s, const struct kv_name *fingerprint, const unsigned char *file,
                              size_t n);

/* Writes the file's name, such as "5f..01.page", with its NUL. */
enum { KV_SNAPSHOT_FILE_BYTES = 2 * KV_NAME_BYTES + 8 };
void kv_snapshot_file(enum kv_snapshot_kind kind, const struct kv_name *name, char out[KV_SNAPSHOT_FILE_BYTES]);

/* Parses a file's name; false: it is not a snapshot's. */
bool kv_snapshot_of_file(const char *file, enum kv_snapshot_kind *kind, struct kv_name *name);

#endif
