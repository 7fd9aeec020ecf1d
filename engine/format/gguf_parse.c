/* Parses the bytes of a GGUF file into its directory. No count or offset is trusted: each is compared with the
 * remaining bytes before memory is allocated or a pointer moves. There is no recursion, and no assert. */
#include "engine/format/gguf_internal.h"

#include "engine/base/ck.h"
#include "engine/base/utf8.h"

#include <inttypes.h>
#include <string.h>

/* A read position; all reads go through take(). */
struct cursor {
    const unsigned char *data;
    uint64_t at, end;
    struct err_info *info;
};

static uint64_t left(const struct cursor *c) { return c->end - c->at; }

/* Returns the next n bytes, or NULL with the error set. */
static const unsigned char *take(struct cursor *c, uint64_t n, const char *what)
{
    if (n > left(c)) {
        err_set_at(c->info, ERR_TRUNCATED, c->at, "expected %" PRIu64 " bytes of %s, found %" PRIu64, n, what, left(c));
        return NULL;
    }
    const unsigned char *p = c->data + c->at;
    c->at += n;
    return p;
}

/* Reads a number of n bytes. */
static enum err take_number(struct cursor *c, const char *what, void *out, size_t n)
{
    const unsigned char *p = take(c, n, what);
    if (p == NULL) {
        return ERR_TRUNCATED;
    }
    memcpy(out, p, n);
    return ERR_OK;
}

/* Reads a length-counted string value. A length beyond the limit cannot come from a cut file, so it has its own code;
 * any other length past the end means that the file was cut. */
static enum err take_str(struct cursor *c, const char *what, struct gguf_str *out)
{
    uint64_t at = c->at, n;
    TRY(take_number(c, what, &n, sizeof(uint64_t)));
    if (n > GGUF_MAX_STRING_BYTES) {
        bool fits = n <= left(c);
        return err_set_at(c->info, fits ? ERR_BAD_STRING : ERR_STRING_EXCEEDS_FILE, at,
                          "%s: expected at most %d bytes, found %" PRIu64 " with %" PRIu64 " left in the file", what,
                          GGUF_MAX_STRING_BYTES, n, left(c));
    }
    const unsigned char *p = take(c, n, what);
    if (p == NULL) {
        return ERR_TRUNCATED;
    }
    *out = (struct gguf_str){(const char *)p, (size_t)n};
    return ERR_OK;
}

/* Reads the name of a key or a tensor: 1 to max_bytes bytes of UTF-8 without NUL; else fails with `code`. */
static enum err take_name(struct cursor *c, const char *what, uint64_t max_bytes, enum err code, struct gguf_str *out)
{
    uint64_t at = c->at, n;
    TRY(take_number(c, what, &n, sizeof(uint64_t)));
    if (n == 0 || n > max_bytes) {
        return err_set_at(c->info, code, at, "%s: expected 1 to %" PRIu64 " bytes, found %" PRIu64, what, max_bytes, n);
    }
    const char *p = (const char *)take(c, n, what);
    if (p == NULL) {
        return ERR_TRUNCATED;
    }
    size_t bad = 0;
    if (memchr(p, 0, (size_t)n) != NULL) {
        return err_set_at(c->info, code, at, "%s: expected text, found a NUL byte in it", what);
    }
    if (!utf8_valid(p, (size_t)n, &bad)) {
        return err_set_at(c->info, code, at, "%s: expected UTF-8, found byte 0x%02X", what, (unsigned char)p[bad]);
    }
    *out = (struct gguf_str){p, (size_t)n};
    return ERR_OK;
}

/* --- header ----------------------------------------------------------------------------------------------------- */

/* Guesses the kind of an n-byte file that is not GGUF from its first bytes; NULL: unknown. */
static const char *guess_kind(const unsigned char *p, uint64_t n)
{
    static const struct {
        size_t at;
        size_t len;
        const char *bytes;
        const char *kind;
    } kinds[] = {
        {0, 4, "GGML", "a GGML file, the format before GGUF"},
        {0, 4, "lmgg", "a GGML file, the format before GGUF"}, /* the old formats wrote the magic as a number, ... */
        {0, 4, "ggjt", "a GGJT file, the format before GGUF"}, /* ... so its letters are reversed */
        {0, 4, "tjgg", "a GGJT file, the format before GGUF"},
        {0, 4, "ggmf", "a GGMF file, the format before GGUF"},
        {0, 4, "fmgg", "a GGMF file, the format before GGUF"},
        {0, 4, "ggla", "a GGLA adapter file"},
        {0, 4, "algg", "a GGLA adapter file"},
        {0, 4, "PK\3\4", "a zip archive, such as PyTorch writes"},
        {0, 2, "\x80\2", "a Python pickle"},
        {0, 2, "\x80\3", "a Python pickle"},
        {0, 2, "\x80\4", "a Python pickle"},
        {0, 2, "\x80\5", "a Python pickle"},
        {8, 2, "{\"", "a safetensors file"}, /* after the length of its header */
        {0, 9, "<!DOCTYPE", "an HTML page"},
        {0, 9, "<!doctype", "an HTML page"},
        {0, 5, "<html", "an HTML page"},
        {0, 5, "<HTML", "an HTML page"},
        {0, 4, "\x7f\x45LF", "an ELF program or library"},
        {0, 2, "\x1f\x8b", "a gzip archive"},
        {0, 12, "version http", "a Git LFS pointer; fetch the file itself"},
        {0, 1, "{", "a JSON file"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (kinds[i].at + kinds[i].len <= n && memcmp(p + kinds[i].at, kinds[i].bytes, kinds[i].len) == 0) {
            return kinds[i].kind;
        }
    }
    return NULL;
}

static enum err check_magic(const struct cursor *c)
{
    static const char magic[4] = "GGUF";
    uint64_t n = MIN_OF(c->end, sizeof magic);
    bool is_gguf = n == 0 || memcmp(c->data, magic, (size_t)n) == 0;
    const char *kind = is_gguf ? NULL : guess_kind(c->data, c->end);
    if (c->end >= sizeof magic && memcmp(c->data, "FUGG", sizeof magic) == 0) {
        return err_set_at(c->info, ERR_WRONG_ENDIANNESS, 0, "expected the magic GGUF, found it in reverse: FUGG");
    }
    if (kind != NULL || (!is_gguf && c->end >= GGUF_HEADER_BYTES)) {
        return err_set_at(c->info, ERR_BAD_MAGIC, 0, "expected a GGUF file, found %s",
                          kind != NULL ? kind : "none of the formats known here");
    }
    if (c->end < GGUF_HEADER_BYTES) {
        return err_set_at(c->info, ERR_TRUNCATED_HEADER, c->end, "expected a header of %d bytes, found %" PRIu64 "%s",
                          GGUF_HEADER_BYTES, c->end, is_gguf ? "" : ", and they do not begin like GGUF");
    }
    return ERR_OK;
}

static enum err check_version(const struct cursor *c, uint32_t version)
{
    if (version == 2 || version == 3) {
        return ERR_OK;
    }
    if (version >= 0x01000000u && (version & 0x00FFFFFFu) == 0 && version >> 24 <= 3) {
        return err_set_at(c->info, ERR_WRONG_ENDIANNESS, 4, "expected a little-endian file, found a big-endian one");
    }
    return err_set_at(c->info, ERR_BAD_VERSION, 4, "expected version 2 or 3, found %" PRIu32, version);
}

static enum err parse_header(struct gguf *g, struct cursor *c, uint64_t *n_tensors, uint64_t *n_kv)
{
    TRY(check_magic(c));
    c->at = 4;
    TRY(take_number(c, "the version", &g->version, sizeof(uint32_t)));
    TRY(check_version(c, g->version));
    TRY(take_number(c, "the tensor count", n_tensors, sizeof(uint64_t)));
    return take_number(c, "the metadata count", n_kv, sizeof(uint64_t));
}

/* --- metadata --------------------------------------------------------------------------------------------------- */

static enum err check_bools(struct cursor *c, const unsigned char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] > 1) {
            return err_set_at(c->info, ERR_BAD_BOOL, (uint64_t)(p + i - c->data), "a bool: expected 0 or 1, found %d",
                              p[i]);
        }
    }
    return ERR_OK;
}

/* Reads the elements of kv, whose type and count are known. */
static enum err parse_elements(struct cursor *c, struct gguf_kv *kv)
{
    kv->data = c->data + c->at;
    if (kv->elem_type == GGUF_STRING) {
        struct gguf_str ignored;
        for (uint64_t i = 0; i < kv->n; i++) {
            TRY(take_str(c, "a string", &ignored));
        }
        return ERR_OK;
    }
    uint64_t bytes;
    if (!ck_mul(kv->n, gguf_type_bytes(kv->elem_type), &bytes) || take(c, bytes, "a value") == NULL) {
        return ERR_TRUNCATED;
    }
    return kv->elem_type == GGUF_BOOL ? check_bools(c, kv->data, kv->n) : ERR_OK;
}

static enum err parse_array_head(struct cursor *c, struct gguf_kv *kv)
{
    uint64_t at = c->at;
    uint32_t elem_type;
    TRY(take_number(c, "an array's element type", &elem_type, sizeof(uint32_t)));
    if (elem_type >= GGUF_TYPE_COUNT || elem_type == GGUF_ARRAY) {
        return err_set_at(c->info, ERR_NESTED_ARRAY, at,
                          "key '%.*s': expected an array of plain values, found element type %" PRIu32 "%s",
                          (int)kv->key.len, kv->key.data, elem_type, elem_type == GGUF_ARRAY ? " (array)" : "");
    }
    kv->elem_type = (enum gguf_type)elem_type;
    at = c->at;
    TRY(take_number(c, "an array's length", &kv->n, sizeof(uint64_t)));
    if (kv->n > GGUF_MAX_ARRAY) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, at,
                          "key '%.*s': expected an array of at most %d elements, found %" PRIu64 " with %" PRIu64
                          " bytes left in the file",
                          (int)kv->key.len, kv->key.data, GGUF_MAX_ARRAY, kv->n, left(c));
    }
    /* the size of a string's length */
    uint64_t least = kv->elem_type == GGUF_STRING ? 8 : gguf_type_bytes(kv->elem_type);
    if (kv->n > left(c) / least) {
        return err_set_at(c->info, ERR_TRUNCATED, c->end,
                          "key '%.*s': expected an array of %" PRIu64 " elements, found %" PRIu64 " bytes for it",
                          (int)kv->key.len, kv->key.data, kv->n, left(c));
    }
    return ERR_OK;
}

static enum err parse_kv(struct cursor *c, struct gguf_kv *kv)
{
    *kv = (struct gguf_kv){.offset = c->at, .n = 1};
    TRY(take_name(c, "a metadata key", GGUF_MAX_KEY_BYTES, ERR_BAD_KEY, &kv->key));
    /* Other tools use keys as file names and labels. */
    if (memmem(kv->key.data, kv->key.len, "../", 3) != NULL) {
        return err_set_at(c->info, ERR_BAD_KEY, kv->offset, "a metadata key: expected a name, found the path '%.*s'",
                          (int)kv->key.len, kv->key.data);
    }
    uint32_t type;
    uint64_t at = c->at;
    TRY(take_number(c, "a value's type", &type, sizeof(uint32_t)));
    if (type >= GGUF_TYPE_COUNT) {
        return err_set_at(c->info, ERR_BAD_VALUE_TYPE, at, "key '%.*s': expected a type of 0 to %d, found %" PRIu32,
                          (int)kv->key.len, kv->key.data, GGUF_TYPE_COUNT - 1, type);
    }
    kv->type = kv->elem_type = (enum gguf_type)type;
    if (type == GGUF_ARRAY) {
        TRY(parse_array_head(c, kv));
    }
    return parse_elements(c, kv);
}

/* --- tensors ---------------------------------------------------------------------------------------------------- */

static enum err parse_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    uint32_t n_dims;
    TRY(take_number(c, "a tensor's dimension count", &n_dims, sizeof(uint32_t)));
    if (n_dims == 0 || n_dims > GGUF_MAX_DIMS) {
        return err_set_at(c->info, ERR_BAD_DIMS, at, "tensor '%.*s': expected 1 to %d dimensions, found %" PRIu32,
                          (int)t->name.len, t->name.data, GGUF_MAX_DIMS, n_dims);
    }
    t->n_dims = (int)n_dims;
    uint64_t n_elems = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        at = c->at;
        if (i < t->n_dims) {
            TRY(take_number(c, "a tensor's dimension", &t->dims[i], sizeof(uint64_t)));
        }
        if (t->dims[i] == 0 || !ck_mul(n_elems, t->dims[i], &n_elems) || n_elems > INT64_MAX) {
            return err_set_at(
                c->info, ERR_BAD_SHAPE, at,
                "tensor '%.*s': expected dimensions of 1 or more and a product below 2^63, found dims[%d] %" PRIu64,
                (int)t->name.len, t->name.data, i, t->dims[i]);
        }
    }
    return ERR_OK;
}

/* Names types of forks, for the message. */
static const char *foreign_name(uint32_t type)
{
    enum { PQ2_0 = 142, PTQ1_0 = 143 }; /* they rotate activations */
    return type == PQ2_0 ? " (PQ2_0 of Prism's fork)" : type == PTQ1_0 ? " (PTQ1_0 of Prism's fork)" : "";
}

/* Reads type, size and offset (still relative to the data section). */
static enum err parse_type(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    uint32_t type;
    TRY(take_number(c, "a tensor's type", &type, sizeof(uint32_t)));
    const struct dtype_info *info = type < DTYPE_FILE_COUNT ? dtype_info(type) : NULL;
    if (info == NULL) {
        return err_set_at(c->info, ERR_UNSUPPORTED_TYPE, at,
                          "tensor '%.*s': expected a type of GGUF, found id %" PRIu32 "%s", (int)t->name.len,
                          t->name.data, type, foreign_name(type));
    }
    t->type = (enum dtype)type;
    if (t->dims[0] % info->block_elems != 0) {
        return err_set_at(c->info, ERR_BAD_SHAPE, at,
                          "tensor '%.*s': expected rows of a multiple of %" PRIu32 " elements (%s), found %" PRIu64,
                          (int)t->name.len, t->name.data, info->block_elems, info->name, t->dims[0]);
    }
    if (!dtype_tensor_bytes(t->type, t->dims[0], t->dims[1] * t->dims[2] * t->dims[3], &t->bytes)) {
        return err_set_at(c->info, ERR_BAD_SHAPE, at, "tensor '%.*s': expected a size below 2^64 bytes, found more",
                          (int)t->name.len, t->name.data);
    }
    return take_number(c, "a tensor's offset", &t->offset, sizeof(uint64_t));
}

static enum err parse_tensor(struct cursor *c, struct gguf_tensor *t)
{
    *t = (struct gguf_tensor){0};
    TRY(take_name(c, "a tensor name", GGUF_MAX_TENSOR_NAME_BYTES, ERR_BAD_TENSOR_NAME, &t->name));
    TRY(parse_shape(c, t));
    return parse_type(c, t);
}

/* --- counts ----------------------------------------------------------------------------------------------------- */

/* The header promises more records than the file can hold: decides whether the file was cut or the count is wrong.
 * Walks the records without storing them. If they are complete up to the end of the file, the file was cut. */
static enum err explain_counts(struct cursor c, uint64_t n_tensors, uint64_t n_kv, bool kv_fit)
{
    struct gguf_kv kv;
    struct gguf_tensor t;
    uint64_t room = left(&c);
    enum err err = ERR_OK;
    for (uint64_t i = 0; i < n_kv && err == ERR_OK; i++) {
        err = parse_kv(&c, &kv);
    }
    for (uint64_t i = 0; i < n_tensors && err == ERR_OK; i++) {
        err = parse_tensor(&c, &t);
    }
    if (err == ERR_TRUNCATED) {
        return err;
    }
    if (!kv_fit) {
        return err_set_at(c.info, ERR_COUNT_EXCEEDS_FILE, 16,
                          "metadata count: expected at most %" PRIu64 " in the %" PRIu64
                          " bytes that follow, found %" PRIu64,
                          room / GGUF_MIN_KV_BYTES, room, n_kv);
    }
    return err_set_at(c.info, ERR_COUNT_EXCEEDS_FILE, 8,
                      "tensor count: expected at most %" PRIu64 " in the %" PRIu64 " bytes that follow, found %" PRIu64,
                      (room - n_kv * GGUF_MIN_KV_BYTES) / GGUF_MIN_TENSOR_BYTES, room, n_tensors);
}

static enum err check_counts(const struct cursor *c, uint64_t n_tensors, uint64_t n_kv)
{
    if (n_tensors > GGUF_MAX_TENSORS) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, 8, "tensor count: expected at most %d, found %" PRIu64,
                          GGUF_MAX_TENSORS, n_tensors);
    }
    if (n_kv > GGUF_MAX_KEYS) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, 16, "metadata count: expected at most %d, found %" PRIu64,
                          GGUF_MAX_KEYS, n_kv);
    }
    /* small, because both counts are limited */
    uint64_t least = n_kv * GGUF_MIN_KV_BYTES + n_tensors * GGUF_MIN_TENSOR_BYTES;
    return least <= left(c) ? ERR_OK : explain_counts(*c, n_tensors, n_kv, n_kv <= left(c) / GGUF_MIN_KV_BYTES);
}

/* --- the whole file --------------------------------------------------------------------------------------------- */

static enum err read_alignment(struct gguf *g, struct err_info *info)
{
    g->alignment = GGUF_DEFAULT_ALIGNMENT;
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    if (kv == NULL) {
        return ERR_OK;
    }
    if (kv->type != GGUF_U32) {
        return err_set_at(info, ERR_BAD_ALIGNMENT, kv->offset, "general.alignment: expected a u32, found %s",
                          gguf_type_name(kv->type));
    }
    uint64_t a = (uint64_t)gguf_elem_i64(kv, 0);
    if (a < GGUF_MIN_ALIGNMENT || a > GGUF_MAX_ALIGNMENT || (a & (a - 1)) != 0) {
        return err_set_at(info, ERR_BAD_ALIGNMENT, kv->offset,
                          "general.alignment: expected a power of two from %d to %d, found %" PRIu64,
                          GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT, a);
    }
    g->alignment = a;
    return ERR_OK;
}

static enum err allocate(struct gguf *g, uint64_t n_tensors, uint64_t n_kv, struct err_info *info)
{
    g->kv = mem_zalloc_array((size_t)n_kv + 1, sizeof *g->kv, MEM_MODEL);
    g->kv_by_key = mem_zalloc_array((size_t)n_kv + 1, sizeof *g->kv_by_key, MEM_MODEL);
    g->tensors = mem_zalloc_array((size_t)n_tensors + 1, sizeof *g->tensors, MEM_MODEL);
    g->tensors_by_name = mem_zalloc_array((size_t)n_tensors + 1, sizeof *g->tensors_by_name, MEM_MODEL);
    TRY_MEM_FOR(g->kv != NULL && g->kv_by_key != NULL && g->tensors != NULL && g->tensors_by_name != NULL, info,
                "out of memory for the directory of the model file");
    return ERR_OK;
}

enum err gguf_parse(struct gguf *g, struct err_info *info)
{
    struct cursor c = {.data = g->map.data, .end = g->map.bytes, .info = info};
    uint64_t n_tensors = 0, n_kv = 0;
    TRY(parse_header(g, &c, &n_tensors, &n_kv));
    TRY(check_counts(&c, n_tensors, n_kv));
    TRY(allocate(g, n_tensors, n_kv, info));
    for (; g->n_kv < n_kv; g->n_kv++) {
        TRY(parse_kv(&c, &g->kv[g->n_kv]));
    }
    TRY(gguf_index_keys(g, info));
    TRY(read_alignment(g, info));
    for (; g->n_tensors < n_tensors; g->n_tensors++) {
        TRY(parse_tensor(&c, &g->tensors[g->n_tensors]));
    }
    if (!ck_align(c.at, g->alignment, &g->data_offset)) {
        return err_set_at(info, ERR_BAD_OFFSET, c.at, "expected a header that ends below 2^64, found more");
    }
    return gguf_place_tensors(g, c.at, info);
}
