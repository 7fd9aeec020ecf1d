/* Files of built programs. */
#include "opencl/program_cache.h"

#include <openssl/evp.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PAYLOAD_BYTES = 64 << 20 }; /* the largest known, with PoCL's debug information, has 1 MiB */

struct header {
    char magic[8]; /* changes with the format of the file */
    uint64_t bytes;
    unsigned char of[PROGRAM_CACHE_SUM_BYTES];
    unsigned char sum[PROGRAM_CACHE_SUM_BYTES]; /* over the fields above and the payload */
};
static const char magic[8] = {'I', 'N', 'F', 'C', 'G', 'I', 'C', '1'};

_Static_assert(sizeof(struct header) == 16 + 2 * PROGRAM_CACHE_SUM_BYTES, "no padding: it is written as it is");

/* Returns false if out of memory. */
static bool sum_of(const struct io_part *parts, size_t n, unsigned char out[PROGRAM_CACHE_SUM_BYTES])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < n && ok; i++) {
        ok = EVP_DigestUpdate(md, parts[i].data, parts[i].bytes) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(md, out, NULL) == 1;
    EVP_MD_CTX_free(md);
    return ok;
}

static bool sum_of_texts(const char *const *texts, unsigned char out[PROGRAM_CACHE_SUM_BYTES])
{
    enum { MAX_TEXTS = 64 };
    struct io_part parts[MAX_TEXTS];
    size_t n = 0;
    for (; texts[n] != NULL && n < MAX_TEXTS; n++) {
        parts[n] = (struct io_part){texts[n], strlen(texts[n]) + 1}; /* with the NUL, so that boundaries count */
    }
    return sum_of(parts, n, out);
}

void program_cache_find(const struct program_cache *c, const char *const *names, const char *const *of,
                        struct program_file *out)
{
    unsigned char name[2 * PROGRAM_CACHE_SUM_BYTES];
    struct io_part parts[2] = {{name, PROGRAM_CACHE_SUM_BYTES},
                               {name + PROGRAM_CACHE_SUM_BYTES, PROGRAM_CACHE_SUM_BYTES}};
    uint64_t number;
    *out = (struct program_file){.path = ""};
    if (c->folder == NULL) {
        return;
    }
    if (!sum_of_texts(names, name) || !sum_of_texts(of, name + PROGRAM_CACHE_SUM_BYTES) || !sum_of(parts, 2, out->of)) {
        return;
    }
    memcpy(&number, name, sizeof number);
    int n = snprintf(out->path, sizeof out->path, "%s/%016" PRIx64 ".infcgi-program", c->folder, number);
    if (n < 0 || n >= (int)sizeof out->path) {
        out->path[0] = '\0';
    }
}

static void note(struct program_cache *c, const char *what, const char *path, const char *why)
{
    if (c->note[0] == '\0') {
        snprintf(c->note, sizeof c->note, "%s %.200s: %.200s", what, path, why);
    }
}

/* Returns the fault of the file, or NULL; its payload follows the header. */
static const char *find_fault(const struct program_file *f, const struct buf *file)
{
    struct header h;
    unsigned char sum[PROGRAM_CACHE_SUM_BYTES];
    if (file->len < sizeof h) {
        return "it is truncated";
    }
    memcpy(&h, file->data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0) {
        return "it is of another version, or no program";
    }
    if (h.bytes != file->len - sizeof h) {
        return "it is truncated or has trailing bytes";
    }
    const struct io_part parts[] = {{file->data, offsetof(struct header, sum)}, {file->data + sizeof h, h.bytes}};
    if (!sum_of(parts, ARRAY_LEN(parts), sum) || memcmp(h.sum, sum, sizeof sum) != 0) {
        return "it is damaged";
    }
    return memcmp(h.of, f->of, sizeof h.of) != 0 ? "it was built of other sources, or by another driver" : NULL;
}

bool program_cache_read(struct program_cache *c, const struct program_file *f, struct buf *out)
{
    struct err_info info = {0};
    buf_reset(out);
    if (f->path[0] == '\0' || !io_exists(f->path)) {
        return false;
    }
    enum err err = io_read_file(f->path, sizeof(struct header) + MAX_PAYLOAD_BYTES, out, &info);
    const char *fault = err != ERR_OK ? (info.text[0] != '\0' ? info.text : err_text(err)) : find_fault(f, out);
    if (fault != NULL) {
        note(c, "built again, because this is unusable:", f->path, fault);
        return false;
    }
    out->len -= sizeof(struct header);
    memmove(out->data, out->data + sizeof(struct header), out->len + 1); /* and the NUL */
    c->state = c->state == BACKEND_PACK_OFF ? BACKEND_PACK_MAPPED : c->state;
    return true;
}

void program_cache_write(struct program_cache *c, const struct program_file *f, const void *data, size_t n)
{
    struct header h = {.bytes = n};
    struct err_info info = {0};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.of, f->of, sizeof h.of);
    const struct io_part summed[] = {{&h, offsetof(struct header, sum)}, {data, n}};
    if (f->path[0] == '\0' || n > MAX_PAYLOAD_BYTES || !sum_of(summed, ARRAY_LEN(summed), h.sum)) {
        return;
    }
    const struct io_part parts[] = {{&h, sizeof h}, {data, n}};
    if (io_replace_file(f->path, parts, ARRAY_LEN(parts), NULL, NULL, &info) == ERR_OK) {
        c->state = MAX_OF(c->state, BACKEND_PACK_WRITTEN);
    } else {
        c->state = BACKEND_PACK_FAILED;
        note(c, "not kept for the next start:", f->path, info.text);
    }
}
