/* What a file of a kept KV page, or of the recurrent state behind one, is called and holds.
 *
 *   name     SHA-256 of the parent's name and the page's 32 tokens; of a first page's parent: of a random key of the folder, the
 *            fingerprint of what computes, and the salt. So a name stands for a whole prefix of one tenant and one model.
 *   file     head [KV_SNAPSHOT_HEAD_BYTES]: magic, version, kind, fingerprint, name, tokens, bytes and hash of the payload, hash of
 *            the head; then the payload, as the back end gives it (BACKEND_OWN)
 *
 * A file is used only if its head is, to the bit, the one that is expected, and the payload has the hash that it says. hash64 finds
 * what changed by accident; who can write into the folder can change what the model says. Threads: pure functions. */
#ifndef INFCGI_KV_KV_SNAPSHOT_H
#define INFCGI_KV_KV_SNAPSHOT_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_NAME_BYTES = 32, KV_SNAPSHOT_HEAD_BYTES = 256, KV_SNAPSHOT_VERSION = 1 };

enum kv_snapshot_kind { KV_SNAPSHOT_PAGE, KV_SNAPSHOT_STATE, KV_SNAPSHOT_KINDS };

/* Of a prefix; also a fingerprint or a key: SHA-256 or as many random bytes. */
struct kv_name {
    uint8_t bytes[KV_NAME_BYTES];
};

/* SHA-256 of n bytes. ERR_INTERNAL: libcrypto gives none. */
MUST_CHECK enum err kv_name_of(const void *data, size_t n, struct kv_name *out);

/* What stands in front of first pages; salt OPTIONAL. ERR_INTERNAL. */
MUST_CHECK enum err kv_name_root(const struct kv_name *key, const struct kv_name *fingerprint, const char *salt,
                                 struct kv_name *out);

/* The page of these tokens behind parent. ERR_INTERNAL. */
MUST_CHECK enum err kv_name_child(const struct kv_name *parent, const int32_t tokens[KV_PAGE_TOKENS],
                                  struct kv_name *out);

/* What a file is of. */
struct kv_snapshot {
    enum kv_snapshot_kind kind;
    struct kv_name name;
    int32_t tokens[KV_PAGE_TOKENS]; /* of the page */
};

/* Fills file[0..KV_SNAPSHOT_HEAD_BYTES) for the payload of n bytes that stands behind it. */
void kv_snapshot_seal(const struct kv_snapshot *s, const struct kv_name *fingerprint, unsigned char *file, size_t n);

/* Is file[0..KV_SNAPSHOT_HEAD_BYTES + n) what is expected? NULL, or what is wrong with it. */
const char *kv_snapshot_fault(const struct kv_snapshot *s, const struct kv_name *fingerprint, const unsigned char *file,
                              size_t n);

/* "5f..01.page": the name of the file, of KV_SNAPSHOT_FILE_BYTES with its NUL. */
enum { KV_SNAPSHOT_FILE_BYTES = 2 * KV_NAME_BYTES + 8 };
void kv_snapshot_file(enum kv_snapshot_kind kind, const struct kv_name *name, char out[KV_SNAPSHOT_FILE_BYTES]);

/* The other way round; false: the file is called otherwise. */
bool kv_snapshot_of_file(const char *file, enum kv_snapshot_kind *kind, struct kv_name *name);

#endif
