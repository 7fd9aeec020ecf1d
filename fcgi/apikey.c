/* The keys are kept as read, with their digests. Each candidate is compared with every key to its end, without a branch
 * on the data. */
#include "fcgi/apikey.h"

#include "engine/base/io.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FILE_LIMIT_BYTES = 1 << 20, MAX_KEY_BYTES = 512 };

static struct {
    struct buf text; /* keys, each with a NUL behind it */
    struct buf ids;  /* APIKEY_ID_BYTES for each, in the same order */
    pthread_rwlock_t lock;
} keys = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Adds the key in line[0..n), if there is one. Visible ASCII only: anything else cannot come in a header as it stands
 * here, and a NUL would cut a key in two. */
static enum err add_line(const char *line, size_t n, int number, const char *path, struct buf *text,
                         struct err_info *info)
{
    while (n > 0 && isspace((unsigned char)line[n - 1])) {
        n--;
    }
    while (n > 0 && isspace((unsigned char)*line)) {
        line++;
        n--;
    }
    if (n == 0 || *line == '#') {
        return ERR_OK;
    }
    bool ok = n <= MAX_KEY_BYTES;
    for (size_t i = 0; i < n; i++) {
        ok = ok && line[i] > ' ' && line[i] <= '~';
    }
    if (!ok) {
        return err_set(info, ERR_CONFIG, "api-key-file",
                       "api-key-file: %.300s line %d: expected a key of at most %d visible ASCII characters without "
                       "spaces",
                       path, number, MAX_KEY_BYTES);
    }
    buf_append(text, line, n);
    buf_putc(text, '\0');
    return buf_ok(text);
}

/* Digests of the keys in text. */
static enum err hash_keys(const struct buf *text, struct buf *ids, struct err_info *info)
{
    for (size_t at = 0; at < text->len; at += strlen(text->data + at) + 1) {
        unsigned char sum[EVP_MAX_MD_SIZE];
        if (EVP_Digest(text->data + at, strlen(text->data + at), sum, NULL, EVP_sha256(), NULL) != 1) {
            return err_set(info, ERR_INTERNAL, "api-key-file", "api-key-file: libcrypto gave no SHA-256");
        }
        buf_append(ids, sum, APIKEY_ID_BYTES);
    }
    return buf_ok(ids);
}

enum err apikey_load(const char *path, struct err_info *info)
{
    struct buf file, text, ids;
    buf_init(&file, FILE_LIMIT_BYTES, MEM_GENERAL);
    buf_init(&text, 0, MEM_GENERAL);
    buf_init(&ids, 0, MEM_GENERAL);
    int line = 1;
    struct err_info why = {0};
    enum err err = io_read_file(path, FILE_LIMIT_BYTES, &file, &why);
    if (err != ERR_OK) { /* whatever it is, the configuration names it */
        err = err_set(info, err == ERR_NOMEM ? err : ERR_CONFIG, "api-key-file", "api-key-file: %.300s: %s", path,
                      why.text);
    }
    for (size_t at = 0, end; err == ERR_OK && at < file.len; at = end + 1) {
        const char *newline = memchr(file.data + at, '\n', file.len - at);
        end = newline != NULL ? (size_t)(newline - file.data) : file.len;
        err = add_line(file.data + at, end - at, line++, path, &text, info);
    }
    buf_fini(&file);
    if (err == ERR_OK && text.len == 0) {
        err = err_set(info, ERR_CONFIG, "api-key-file", "api-key-file: expected at least one key in %s, found none",
                      path);
    }
    err = err != ERR_OK ? err : hash_keys(&text, &ids, info);
    if (err == ERR_OK) { /* the old ones are freed below */
        pthread_rwlock_wrlock(&keys.lock);
        struct buf old_text = keys.text, old_ids = keys.ids;
        keys.text = text;
        keys.ids = ids;
        pthread_rwlock_unlock(&keys.lock);
        text = old_text;
        ids = old_ids;
    }
    buf_fini(&text);
    buf_fini(&ids);
    return err;
}

/* 0 when a and b are equal. Looks at every byte of both whatever it finds. */
static unsigned differs(const char *a, size_t n_a, const char *b, size_t n_b)
{
    unsigned diff = n_a != n_b;
    for (size_t i = 0; i < MAX_KEY_BYTES; i++) {
        unsigned char x = i < n_a ? (unsigned char)a[i] : 0, y = i < n_b ? (unsigned char)b[i] : 0;
        diff |= (unsigned)(x ^ y);
    }
    return diff;
}

static bool is_key(const char *candidate, struct apikey_id *id)
{
    size_t n = strlen(candidate), found = 0, i = 0; /* found: its number from 1, the last if it stands twice */
    if (n > MAX_KEY_BYTES) {
        return false;
    }
    for (size_t at = 0; at < keys.text.len; at += strlen(keys.text.data + at) + 1) {
        const char *key = keys.text.data + at;
        size_t is_it = differs(candidate, n, key, strlen(key)) == 0;
        found = is_it * ++i + (1 - is_it) * found;
    }
    if (found != 0) {
        id->is_set = true;
        memcpy(id->bytes, keys.ids.data + (found - 1) * APIKEY_ID_BYTES, APIKEY_ID_BYTES);
    }
    return found != 0;
}

bool apikey_check(const char *authorization, const char *x_api_key, struct apikey_id *id)
{
    *id = (struct apikey_id){0};
    pthread_rwlock_rdlock(&keys.lock);
    bool ok = keys.text.len == 0;
    if (!ok && authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        ok = is_key(authorization + 7 + strspn(authorization + 7, " "), id);
    }
    if (!ok && x_api_key != NULL) {
        ok = is_key(x_api_key, id);
    }
    pthread_rwlock_unlock(&keys.lock);
    return ok;
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
