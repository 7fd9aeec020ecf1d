#include "engine/kv/disk/kv_snapshot.h"

#include "engine/base/hash.h"
#include "engine/base/hex.h"

#include <openssl/evp.h>
#include <string.h>

/* Numbers in the machine's byte order, which is part of the fingerprint. No padding. */
struct head {
    char magic[8];
    uint32_t version, kind;
    struct kv_name fingerprint, name;
    int32_t tokens[KV_PAGE_TOKENS];
    uint64_t payload_bytes, payload_hash;
    uint64_t head_hash; /* of all fields above */
    uint64_t zeros[3];
};
_Static_assert(sizeof(struct head) == KV_SNAPSHOT_HEAD_BYTES, "the head has no padding");

static const char magic[8] = {'I', 'N', 'F', 'C', 'G', 'I', 'K', 'V'};

/* A part of the concatenated input of a digest. */
struct part {
    const void *data;
    size_t bytes;
};

static enum err digest(const struct part *parts, size_t n, struct kv_name *out)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < n && ok; i++) {
        ok = EVP_DigestUpdate(ctx, parts[i].data, parts[i].bytes) == 1;
    }
    unsigned int bytes = 0;
    ok = ok && EVP_DigestFinal_ex(ctx, out->bytes, &bytes) == 1 && bytes == KV_NAME_BYTES;
    EVP_MD_CTX_free(ctx);
    return ok ? ERR_OK : ERR_INTERNAL;
}

enum err kv_name_of(const void *data, size_t n, struct kv_name *out)
{
    const struct part parts[] = {{data, n}};
    return digest(parts, ARRAY_LEN(parts), out);
}

enum err kv_name_root(const struct kv_name *key, const struct kv_name *fingerprint, const char *salt,
                      struct kv_name *out)
{
    const char *text = salt != NULL ? salt : "";
    const unsigned char has_salt = salt != NULL;
    const struct part parts[] = {
        {key, sizeof *key}, {fingerprint, sizeof *fingerprint}, {&has_salt, 1}, {text, strlen(text)}};
    return digest(parts, ARRAY_LEN(parts), out);
}

enum err kv_name_child(const struct kv_name *parent, const int32_t tokens[KV_PAGE_TOKENS], struct kv_name *out)
{
    const struct part parts[] = {{parent, sizeof *parent}, {tokens, KV_PAGE_TOKENS * sizeof *tokens}};
    return digest(parts, ARRAY_LEN(parts), out);
}

static struct head head_of(const struct kv_snapshot *s, const struct kv_name *fingerprint, const unsigned char *payload,
                           size_t n)
{
    struct head h = {.version = KV_SNAPSHOT_VERSION,
                     .kind = s->kind,
                     .fingerprint = *fingerprint,
                     .name = s->name,
                     .payload_bytes = n,
                     .payload_hash = hash64(payload, n, 0)};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.tokens, s->tokens, sizeof h.tokens);
    h.head_hash = hash64(&h, offsetof(struct head, head_hash), 0);
    return h;
}

void kv_snapshot_seal(const struct kv_snapshot *s, const struct kv_name *fingerprint, unsigned char *file, size_t n)
{
    struct head h = head_of(s, fingerprint, file + KV_SNAPSHOT_HEAD_BYTES, n);
    memcpy(file, &h, sizeof h);
}

const char *kv_snapshot_fault(const struct kv_snapshot *s, const struct kv_name *fingerprint, const unsigned char *file,
                              size_t n)
{
    struct head found, want = head_of(s, fingerprint, file + KV_SNAPSHOT_HEAD_BYTES, n);
    memcpy(&found, file, sizeof found);
    if (memcmp(found.magic, magic, sizeof magic) != 0 || found.version != KV_SNAPSHOT_VERSION ||
        found.kind != want.kind) {
        return "it is of another version, or no snapshot";
    }
    if (memcmp(&found.fingerprint, fingerprint, sizeof *fingerprint) != 0) {
        return "it is of another model or program";
    }
    if (memcmp(&found.name, &s->name, sizeof s->name) != 0 ||
        memcmp(found.tokens, s->tokens, sizeof found.tokens) != 0) {
        return "it is of other tokens";
    }
    return memcmp(&found, &want, sizeof want) != 0 ? "it is damaged" : NULL;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char *const suffixes[KV_SNAPSHOT_KINDS] = {".page", ".state"};

void kv_snapshot_file(enum kv_snapshot_kind kind, const struct kv_name *name, char out[KV_SNAPSHOT_FILE_BYTES])
{
    for (int i = 0; i < KV_NAME_BYTES; i++) {
        out[2 * i] = hex_digit(name->bytes[i] >> 4);
        out[2 * i + 1] = hex_digit(name->bytes[i]);
    }
    memcpy(out + (size_t)2 * KV_NAME_BYTES, suffixes[kind], strlen(suffixes[kind]) + 1);
}

bool kv_snapshot_of_file(const char *file, enum kv_snapshot_kind *kind, struct kv_name *name)
{
    for (int i = 0; i < 2 * KV_NAME_BYTES; i++) {
        int half = hex_value(file[i]);
        if (half < 0 || file[i] != hex_digit((unsigned)half)) { /* lower case only */
            return false;
        }
        name->bytes[i / 2] = (uint8_t)(i % 2 == 0 ? half << 4 : name->bytes[i / 2] | half);
    }
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        if (strcmp(file + (size_t)2 * KV_NAME_BYTES, suffixes[k]) == 0) {
            *kind = (enum kv_snapshot_kind)k;
            return true;
        }
    }
    return false;
}
