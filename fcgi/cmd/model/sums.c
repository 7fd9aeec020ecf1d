/* Maps each file and reads it once. */
#include "fcgi/cmd/model/sums.h"

#include "engine/base/io.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { SHA256_BYTES = 32, MAX_LIST_BYTES = 1 << 20, HEX_BYTES = 2 * SHA256_BYTES, SLICE_BYTES = 1 << 24 };

struct list {
    char folder[IO_MAX_PATH_BYTES]; /* with the final slash; "": current folder */
    const char *name;               /* name of the GGUF file; NULL: the model is a folder */
    struct err_info *info;
};

static enum err hash_file(const struct list *l, const char *name, size_t n_name, char hex[HEX_BYTES + 1])
{
    char path[IO_MAX_PATH_BYTES];
    struct io_map map;
    unsigned char sum[EVP_MAX_MD_SIZE];
    if (snprintf(path, sizeof path, "%s%.*s", l->folder, (int)n_name, name) >= (int)sizeof path) {
        return err_set(l->info, ERR_FILE, NULL, "expected a path below %d bytes", IO_MAX_PATH_BYTES);
    }
    enum err err = io_map_open(path, &map, l->info);
    if (err != ERR_OK) {
        char said[ERR_TEXT_BYTES];
        snprintf(said, sizeof said, "%s", l->info->text);
        return err_set(l->info, err, NULL, "SHA256SUMS: %.*s: %s", (int)n_name, name, said);
    }
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
    for (size_t at = 0, here; ok && at < map.bytes; at += here) {
        here = MIN_OF(map.bytes - at, (size_t)SLICE_BYTES);
        ok = EVP_DigestUpdate(md, map.data + at, here) == 1;
        io_map_drop(&map, at, here);
    }
    io_map_close(&map);
    ok = ok && EVP_DigestFinal_ex(md, sum, NULL) == 1;
    EVP_MD_CTX_free(md);
    if (!ok) {
        return err_set(l->info, ERR_INTERNAL, NULL, "%.*s: libcrypto gave no SHA-256", (int)n_name, name);
    }
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    return ERR_OK;
}

/* Returns whether the file belongs to the model; a part's number can differ ("m-00002-of-00003.gguf"). */
static bool is_wanted(const struct list *l, const char *name, size_t n)
{
    enum { END = 14 /* "-of-00003.gguf" */, NUMBER = 5 };
    if (memchr(name, '/', n) != NULL) {
        return false;
    }
    if (l->name == NULL) {
        return true;
    }
    bool is_same = strlen(l->name) == n;
    for (size_t i = 0; is_same && i < n; i++) {
        bool is_number =
            n > END + NUMBER && memcmp(name + n - END, "-of-", 4) == 0 && i < n - END && i >= n - END - NUMBER;
        is_same = is_number || name[i] == l->name[i];
    }
    return is_same;
}

static enum err check_line(const struct list *l, const char *line, size_t n, int number)
{
    char hex[HEX_BYTES + 1];
    bool is_sum = n > HEX_BYTES + 2 && strspn(line, "0123456789abcdef") == HEX_BYTES && line[HEX_BYTES] == ' ' &&
                  (line[HEX_BYTES + 1] == ' ' || line[HEX_BYTES + 1] == '*');
    if (!is_sum) {
        return err_set(l->info, ERR_CHECKSUM, "SHA256SUMS",
                       "SHA256SUMS, line %d: expected 64 hexadecimal digits, two spaces and a name, found '%.*s'",
                       number, (int)(n < 80 ? n : 80), line);
    }
    const char *name = line + HEX_BYTES + 2;
    size_t n_name = n - HEX_BYTES - 2;
    if (!is_wanted(l, name, n_name)) {
        return ERR_OK;
    }
    enum err err = hash_file(l, name, n_name, hex);
    return err != ERR_OK || memcmp(hex, line, HEX_BYTES) == 0
               ? err
               : err_set(l->info, ERR_CHECKSUM, "SHA256SUMS",
                         "%.*s: expected SHA-256 %.*s, as SHA256SUMS says, found %s", (int)n_name, name, HEX_BYTES,
                         line, hex);
}

enum err sums_check(const char *model, struct err_info *info)
{
    struct list l = {.info = info};
    char path[IO_MAX_PATH_BYTES];
    bool is_folder = io_is_folder(model);
    const char *slash = strrchr(model, '/'), *name = slash != NULL ? slash + 1 : model;
    l.name = is_folder ? NULL : name;
    int n = is_folder ? snprintf(l.folder, sizeof l.folder, "%s/", model)
                      : snprintf(l.folder, sizeof l.folder, "%.*s", (int)(name - model), model);
    if (n >= (int)sizeof l.folder || snprintf(path, sizeof path, "%sSHA256SUMS", l.folder) >= (int)sizeof path) {
        return err_set(info, ERR_FILE, NULL, "expected a path below %d bytes", IO_MAX_PATH_BYTES);
    }
    if (!io_exists(path)) {
        return ERR_OK;
    }
    struct buf text;
    buf_init(&text, MAX_LIST_BYTES + 1, MEM_GENERAL);
    enum err err = io_read_file(path, MAX_LIST_BYTES, &text, info);
    buf_putc(&text, '\0');
    if (err == ERR_OK && buf_ok(&text) != ERR_OK) {
        err = err_set(info, ERR_NOMEM, NULL, "out of memory for SHA256SUMS");
    }
    const char *line = err == ERR_OK ? text.data : "";
    for (int number = 1; err == ERR_OK && *line != '\0'; number++) {
        size_t length = strcspn(line, "\n");
        err = check_line(&l, line, length, number);
        line += length + (line[length] == '\n');
    }
    buf_fini(&text);
    return err;
}
