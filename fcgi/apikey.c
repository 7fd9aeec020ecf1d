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
    pthread_rwlock_t lock;
} keys = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Adds the key in line[0..n), if there is one. Visible ASCII only: anything else cannot come in a header as it stands
 * here, and a NUL would cut a key in two. */
static enum err add_line(const char *line, size_t n, int number, struct buf *text, struct err_info *info)
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
                       "api-key-file: line %d: expected a key of at most %d visible ASCII characters without spaces",
                       number, MAX_KEY_BYTES);
    }
    buf_append(text, line, n);
    buf_putc(text, '\0');
    return buf_ok(text);
}

enum err apikey_load(const char *path, struct err_info *info)
{
    struct buf file, text;
    buf_init(&file, FILE_LIMIT_BYTES, MEM_GENERAL);
    buf_init(&text, 0, MEM_GENERAL);
    int line = 1;
    enum err err = io_read_file(path, FILE_LIMIT_BYTES, &file, info);
    for (size_t at = 0, end; err == ERR_OK && at < file.len; at = end + 1) {
        const char *newline = memchr(file.data + at, '\n', file.len - at);
        end = newline != NULL ? (size_t)(newline - file.data) : file.len;
        err = add_line(file.data + at, end - at, line++, &text, info);
    }
    buf_fini(&file);
    if (err == ERR_OK && text.len == 0) {
        err = err_set(info, ERR_CONFIG, "api-key-file", "api-key-file: expected at least one key in %s, found none",
                      path);
    }
    if (err != ERR_OK) {
        buf_fini(&text);
        return err;
    }
    pthread_rwlock_wrlock(&keys.lock);
    struct buf old = keys.text;
    keys.text = text;
    pthread_rwlock_unlock(&keys.lock);
    buf_fini(&old);
    return ERR_OK;
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
    bool ok = keys.text.len == 0;
    if (!ok && authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        ok = is_key(authorization + 7 + strspn(authorization + 7, " "));
    }
    if (!ok && x_api_key != NULL) {
        ok = is_key(x_api_key);
    }
    pthread_rwlock_unlock(&keys.lock);
    return ok;
}
