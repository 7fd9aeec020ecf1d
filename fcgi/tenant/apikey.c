/* Stores the digest of each key and its owner's id. A client's key is digested too and compared with every entry in
 * full, without branches on the data. */
#include "fcgi/tenant/apikey.h"

#include "engine/base/hex.h"
#include "fcgi/ground/ini.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FILE_LIMIT_BYTES = 1 << 20 };

struct entry {
    uint8_t digest[APIKEY_ID_BYTES], owner[APIKEY_ID_BYTES];
};

static struct {
    struct buf file, tenants; /* arrays of struct entry */
    pthread_rwlock_t lock;
} keys = {.lock = PTHREAD_RWLOCK_INITIALIZER};

enum err apikey_digest(const void *text, size_t n, uint8_t out[APIKEY_ID_BYTES])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    if (EVP_Digest(text, n, sum, NULL, EVP_sha256(), NULL) != 1) {
        return ERR_INTERNAL;
    }
    memcpy(out, sum, APIKEY_ID_BYTES);
    return ERR_OK;
}

/* Computes the digest of a key in a file. Only visible ASCII is accepted: other bytes cannot arrive unchanged in a
 * header, and a NUL would cut the key. */
static enum err read_key(const char *key, size_t n, uint8_t digest[APIKEY_ID_BYTES])
{
    static const char form[] = "sha256:";
    size_t n_form = sizeof form - 1;
    bool ok = n > 0 && n <= APIKEY_MAX_BYTES;
    for (size_t i = 0; i < n; i++) {
        ok = ok && key[i] > ' ' && key[i] <= '~';
    }
    if (!ok) {
        return ERR_INVALID_VALUE;
    }
    if (n < n_form || memcmp(key, form, n_form) != 0) {
        return apikey_digest(key, n, digest);
    }
    ok = n == n_form + 2 * (size_t)APIKEY_ID_BYTES;
    for (size_t i = 0; i < APIKEY_ID_BYTES && ok; i++) {
        int high = hex_value(key[n_form + 2 * i]), low = hex_value(key[n_form + 2 * i + 1]);
        ok = high >= 0 && low >= 0;
        digest[i] = (uint8_t)(high * 16 + low);
    }
    return ok ? ERR_OK : ERR_INVALID_VALUE;
}

enum err apikey_add(struct buf *set, const char *key, size_t n, const struct apikey_id *owner)
{
    struct entry e;
    TRY(read_key(key, n, e.digest));
    memcpy(e.owner, owner->is_set ? owner->bytes : e.digest, sizeof e.owner);
    buf_append(set, &e, sizeof e);
    return buf_ok(set);
}

/* Returns 0 if a and b are equal. Always reads every byte of both. */
static unsigned differs(const uint8_t *a, const uint8_t *b)
{
    unsigned diff = 0;
    for (size_t i = 0; i < APIKEY_ID_BYTES; i++) {
        diff |= (unsigned)(a[i] ^ b[i]);
    }
    return diff;
}

/* Sets *number to the key's last entry, counted from 1, if found. */
static void find(const struct buf *set, const uint8_t *digest, size_t *number)
{
    size_t found = 0;
    for (size_t i = 0; i < set->len / sizeof(struct entry); i++) {
        size_t is_it = differs(digest, (const uint8_t *)set->data + i * sizeof(struct entry)) == 0;
        found = is_it * (i + 1) + (1 - is_it) * found;
    }
    *number = found;
}

bool apikey_has(const struct buf *set, const char *key, size_t n)
{
    uint8_t digest[APIKEY_ID_BYTES];
    size_t number = 0;
    if (read_key(key, n, digest) == ERR_OK) {
        find(set, digest, &number);
    }
    return number != 0;
}

/* Adds the key in line[0..n), if there is one. */
static enum err add_line(const char *line, size_t n, struct buf *set)
{
    static const struct apikey_id its_own;
    while (n > 0 && isspace((unsigned char)line[n - 1])) {
        n--;
    }
    while (n > 0 && isspace((unsigned char)*line)) {
        line++;
        n--;
    }
    return n == 0 || *line == '#' ? ERR_OK : apikey_add(set, line, n, &its_own);
}

/* Exchanges *place and *set. */
static void replace(struct buf *place, struct buf *set)
{
    pthread_rwlock_wrlock(&keys.lock);
    struct buf old = *place;
    *place = *set;
    pthread_rwlock_unlock(&keys.lock);
    *set = old;
}

void apikey_take(struct buf *set) { replace(&keys.tenants, set); }

enum err apikey_load(const char *path, struct err_info *info)
{
    static const char option[] = "api-key-file";
    struct buf file, set;
    buf_init(&file, FILE_LIMIT_BYTES, MEM_GENERAL);
    buf_init(&set, 0, MEM_GENERAL);
    int line = 0;
    enum err err = ini_load(&(struct ini_file){option, path, FILE_LIMIT_BYTES, &file}, info);
    for (size_t at = 0, end; err == ERR_OK && at < file.len; at = end + 1) {
        const char *newline = memchr(file.data + at, '\n', file.len - at);
        end = newline != NULL ? (size_t)(newline - file.data) : file.len;
        err = add_line(file.data + at, end - at, &set);
        line++;
    }
    buf_fini(&file);
    if (err == ERR_INVALID_VALUE) {
        err = err_set(info, ERR_CONFIG, option, "%s: %.300s line %d: expected " APIKEY_EXPECTED, option, path, line);
    } else if (err == ERR_INTERNAL) {
        err = err_set(info, err, option, "%s: libcrypto gave no SHA-256", option);
    } else if (err == ERR_OK && set.len == 0) {
        err = err_set(info, ERR_CONFIG, option, "%s: expected at least one key in %s, found none", option, path);
    } else if (err == ERR_OK) {
        replace(&keys.file, &set);
    }
    buf_fini(&set);
    return err;
}

static bool is_key(const char *candidate, struct apikey_id *id)
{
    size_t n = strnlen(candidate, APIKEY_MAX_BYTES + 1), in_file, of_tenant;
    uint8_t digest[APIKEY_ID_BYTES];
    if (n > APIKEY_MAX_BYTES || apikey_digest(candidate, n, digest) != ERR_OK) {
        return false;
    }
    find(&keys.file, digest, &in_file);
    find(&keys.tenants, digest, &of_tenant);
    const struct buf *set = of_tenant != 0 ? &keys.tenants : &keys.file;
    size_t number = of_tenant != 0 ? of_tenant : in_file;
    if (number != 0) {
        const char *entry = set->data + (number - 1) * sizeof(struct entry);
        id->is_set = true;
        memcpy(id->bytes, entry + offsetof(struct entry, owner), APIKEY_ID_BYTES);
    }
    return number != 0;
}

bool apikey_check(const char *authorization, const char *x_api_key, struct apikey_id *id)
{
    *id = (struct apikey_id){0};
    pthread_rwlock_rdlock(&keys.lock);
    bool ok = keys.file.len == 0 && keys.tenants.len == 0;
    if (!ok && authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        ok = is_key(authorization + 7 + strspn(authorization + 7, " "), id);
    }
    if (!ok && x_api_key != NULL) {
        ok = is_key(x_api_key, id);
    }
    pthread_rwlock_unlock(&keys.lock);
    return ok;
}

bool apikey_is_same(const struct apikey_id *a, const struct apikey_id *b)
{
    return a->is_set == b->is_set && (!a->is_set || memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0);
}

uint64_t apikey_number(const struct apikey_id *id)
{
    uint64_t n = 0;
    memcpy(&n, id->bytes, sizeof n);
    return id->is_set ? n | 1 : 0;
}

const char *apikey_salt(const struct apikey_id *id, const char *own, char text[APIKEY_SALT_BYTES])
{
    if (!id->is_set) {
        return own;
    }
    for (size_t i = 0; i < APIKEY_ID_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
    }
    snprintf(text + 2 * (size_t)APIKEY_ID_BYTES, APIKEY_SALT_BYTES - 2 * (size_t)APIKEY_ID_BYTES, "%s%s",
             own != NULL ? ":" : "", own != NULL ? own : "");
    return text;
}
