/* The keys are kept as read. Each candidate is compared with every key to its end, without a branch on the data. */
#include "fcgi/apikey.h"

#include "engine/base/io.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

enum { FILE_LIMIT_BYTES = 1 << 20, MAX_KEY_BYTES = 512 };

static struct {
    struct buf text; /* keys, each with a NUL behind it */
    size_t n;
    pthread_rwlock_t lock;
} keys = {.lock = PTHREAD_RWLOCK_INITIALIZER};

enum err apikey_load(const char *path, struct err_info *info)
{
    struct buf file, text;
    buf_init(&file, FILE_LIMIT_BYTES, MEM_GENERAL);
    buf_init(&text, FILE_LIMIT_BYTES, MEM_GENERAL);
    size_t n = 0;
    enum err err = io_read_file(path, FILE_LIMIT_BYTES, &file, info);
    for (size_t at = 0; err == ERR_OK && at < file.len;) {
        size_t end = at;
        while (end < file.len && file.data[end] != '\n') {
            end++;
        }
        size_t from = at, to = end;
        while (from < to && isspace((unsigned char)file.data[from])) {
            from++;
        }
        while (to > from && isspace((unsigned char)file.data[to - 1])) {
            to--;
        }
        if (to > from && file.data[from] != '#' && to - from <= MAX_KEY_BYTES) {
            buf_append(&text, file.data + from, to - from);
            buf_putc(&text, '\0');
            n++;
        }
        at = end + 1;
    }
    buf_fini(&file);
    if (err == ERR_OK && n == 0) {
        err = err_set(info, ERR_CONFIG, "api-key-file", "api-key-file: expected at least one key in %s, found none", path);
    }
    if (err != ERR_OK) {
        buf_fini(&text);
        return err;
    }
    pthread_rwlock_wrlock(&keys.lock);
    struct buf old = keys.text;
    keys.text = text;
    keys.n = n;
    pthread_rwlock_unlock(&keys.lock);
    buf_fini(&old);
    return ERR_OK;
}

/* Are a and b equal? Looks at every byte of both whatever it finds. */
static unsigned differs(const char *a, size_t n_a, const char *b, size_t n_b)
{
    unsigned diff = n_a != n_b;
    for (size_t i = 0; i < MAX_KEY_BYTES; i++) {
        unsigned char x = i < n_a ? (unsigned char)a[i] : 0, y = i < n_b ? (unsigned char)b[i] : 0;
        diff |= (unsigned)(x ^ y);
    }
    return diff;
}

static bool is_key(const char *candidate)
{
    size_t n = strlen(candidate);
    unsigned found = 0;
    if (n > MAX_KEY_BYTES) {
        return false;
    }
    for (size_t at = 0; at < keys.text.len; at += strlen(keys.text.data + at) + 1) {
        const char *key = keys.text.data + at;
        found |= differs(candidate, n, key, strlen(key)) == 0;
    }
    return found != 0;
}

bool apikey_check(const char *authorization, const char *x_api_key)
{
    pthread_rwlock_rdlock(&keys.lock);
    bool ok = keys.n == 0;
    if (!ok && authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        ok = is_key(authorization + 7);
    }
    if (!ok && x_api_key != NULL) {
        ok = is_key(x_api_key);
    }
    pthread_rwlock_unlock(&keys.lock);
    return ok;
}
