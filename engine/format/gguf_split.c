/* Models in several files [llama.cpp b11434, tools/gguf-split]: PREFIX-00001-of-00003.gguf and so on. Each is a GGUF
 * file with its own tensors and the keys split.no (from 0), split.count and split.tensors.count; the first also has the
 * model's metadata. The parts become one object: the first's keys, the tensors of all. */
#include "engine/format/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 5, TAIL_BYTES = sizeof "-00001-of-00003.gguf" - 1, MAX_PARTS = 4096 };

/* The keys of a part. */
struct split {
    uint64_t no, count, n_tensors; /* n_tensors: of the whole model; 0: not given */
};

/* A part's parsed name: the prefix is its first `prefix` bytes. */
struct part_name {
    size_t prefix;
    uint64_t no, count; /* no: from 1 on */
};

static bool read_digits(const char *s, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        *out = *out * 10 + (uint64_t)(s[i] - '0');
    }
    return true;
}

static bool is_part_name(const char *path, struct part_name *out)
{
    size_t n = strlen(path);
    if (n < TAIL_BYTES) {
        return false;
    }
    const char *tail = path + n - TAIL_BYTES;
    out->prefix = n - TAIL_BYTES;
    return tail[0] == '-' && read_digits(tail + 1, &out->no) && memcmp(tail + 6, "-of-", 4) == 0 &&
           read_digits(tail + 10, &out->count) && strcmp(tail + 15, ".gguf") == 0;
}

/* A model that was merged again has split.count 0. */
static enum err read_split(const struct gguf *g, struct split *s, struct err_info *info)
{
    TRY(gguf_get_u64_or(g, "split.count", 0, &s->count, info));
    s->count = MAX_OF(s->count, (uint64_t)1);
    TRY(gguf_get_u64_or(g, "split.no", 0, &s->no, info));
    if (s->no >= s->count) {
        return err_set(info, ERR_BAD_SPLIT, "split.no",
                       "split.no: expected less than split.count %" PRIu64 ", found %" PRIu64, s->count, s->no);
    }
    return gguf_get_u64_or(g, "split.tensors.count", 0, &s->n_tensors, info);
}

/* Do name and keys of the opened file agree? */
static enum err check_name(const struct gguf *g, const struct split *s, const struct part_name *name, bool is_part,
                           struct err_info *info)
{
    if (is_part ? name->count == s->count && name->no == s->no + 1 : s->count == 1) {
        return ERR_OK;
    }
    if (s->count == 1) {
        return err_set(info, ERR_BAD_SPLIT, "split.count",
                       "split.count: expected %" PRIu64 ", as the file's name says, found a whole model", name->count);
    }
    return err_set_at(info, ERR_BAD_SPLIT, gguf_find(g, "split.count")->offset,
                      "expected a name that ends in -%05" PRIu64 "-of-%05" PRIu64
                      ".gguf, as split.no and split.count say, found another",
                      s->no + 1, s->count);
}

/* Opens the part `expected` next to the file at `path` and checks its keys. */
static enum err open_part(const char *path, const struct part_name *name, const struct split *expected,
                          struct gguf **out, struct err_info *info)
{
    uint64_t no = expected->no;
    size_t bytes = name->prefix + TAIL_BYTES + 1;
    char *part = mem_alloc(bytes, MEM_GENERAL);
    TRY_MEM_FOR(part != NULL, info, "out of memory for a file name");
    snprintf(part, bytes, "%.*s-%05u-of-%05u.gguf", (int)name->prefix, path, (unsigned)no + 1,
             (unsigned)expected->count);
    struct split s = {0};
    enum err err = gguf_open_file(part, out, info);
    err = err != ERR_OK ? err : read_split(*out, &s, info);
    if (err == ERR_OK && (s.count != expected->count || s.no != no)) {
        err = err_set(info, ERR_BAD_SPLIT, "split.no",
                      "expected split.no %" PRIu64 " of %" PRIu64 ", found %" PRIu64 " of %" PRIu64, no,
                      expected->count, s.no, s.count);
    }
    if (err != ERR_OK) {
        err_name_file(info, part);
    }
    mem_free(part);
    return err;
}

/* Moves the tensors of all parts into the first. */
static enum err join_tensors(struct gguf *first, const struct split *whole, struct err_info *info)
{
    size_t n = first->n_tensors;
    for (size_t i = 0; i < first->n_more; i++) { /* at most MAX_PARTS * GGUF_MAX_TENSORS */
        n += first->parts[i]->n_tensors;
    }
    if (n > GGUF_MAX_TENSORS || (whole->n_tensors != 0 && n != whole->n_tensors)) {
        return err_set(info, ERR_BAD_SPLIT, "split.tensors.count",
                       "split.tensors.count: expected %" PRIu64 " tensors, and %d at most, found %zu in the parts",
                       whole->n_tensors, GGUF_MAX_TENSORS, n);
    }
    struct gguf_tensor *all = mem_zalloc_array(n + 1, sizeof *all, MEM_MODEL);
    uint32_t *by_name = mem_zalloc_array(n + 1, sizeof *by_name, MEM_MODEL);
    if (all == NULL || by_name == NULL) {
        mem_free(all);
        mem_free(by_name);
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the directory of the model file");
    }
    memcpy(all, first->tensors, first->n_tensors * sizeof *all);
    for (size_t i = 0, at = first->n_tensors; i < first->n_more; at += first->parts[i]->n_tensors, i++) {
        memcpy(all + at, first->parts[i]->tensors, first->parts[i]->n_tensors * sizeof *all);
    }
    mem_free(first->tensors);
    mem_free(first->tensors_by_name);
    first->tensors = all;
    first->tensors_by_name = by_name;
    first->n_tensors = n;
    const struct gguf_tensor *twice = gguf_index_tensors(first);
    return twice == NULL ? ERR_OK
                         : err_set(info, ERR_BAD_TENSOR_NAME, NULL, "tensor '%.*s': expected in one part, found in two",
                                   (int)twice->name.len, twice->name.data);
}

/* Opens the missing parts in part[count] and joins all in part[0]. */
static enum err join(const char *path, const struct part_name *name, const struct split *whole, struct gguf **part,
                     struct err_info *info)
{
    for (uint64_t no = 0; no < whole->count; no++) {
        if (part[no] == NULL) {
            struct split of_part = {.no = no, .count = whole->count};
            TRY(open_part(path, name, &of_part, &part[no], info));
        }
    }
    struct gguf *first = part[0];
    first->parts = mem_zalloc_array(whole->count - 1, sizeof *first->parts, MEM_MODEL);
    first->more = mem_zalloc_array(whole->count - 1, sizeof *first->more, MEM_MODEL);
    TRY_MEM_FOR(first->parts != NULL && first->more != NULL, info, "out of memory for the parts of the model file");
    for (; first->n_more < whole->count - 1; first->n_more++) {
        first->parts[first->n_more] = part[1 + first->n_more];
        first->more[first->n_more] = &part[1 + first->n_more]->map;
        part[1 + first->n_more] = NULL;
    }
    return join_tensors(first, whole, info);
}

enum err gguf_join_parts(const char *path, struct gguf **g, struct err_info *info)
{
    struct split whole;
    struct part_name name = {0};
    bool is_part = path != NULL && is_part_name(path, &name);
    TRY(read_split(*g, &whole, info));
    TRY(check_name(*g, &whole, &name, is_part, info));
    if (whole.count == 1) {
        return ERR_OK;
    }
    if (whole.count > MAX_PARTS) {
        return err_set(info, ERR_BAD_SPLIT, "split.count", "split.count: expected at most %d, found %" PRIu64,
                       MAX_PARTS, whole.count);
    }
    struct gguf **part = mem_zalloc_array(whole.count, sizeof *part, MEM_MODEL);
    TRY_MEM_FOR(part != NULL, info, "out of memory for the parts of the model file");
    part[whole.no] = *g;
    *g = NULL;
    enum err err = join(path, &name, &whole, part, info);
    *g = part[0];
    part[0] = NULL;
    for (uint64_t i = 0; i < whole.count; i++) {
        gguf_close(&part[i]);
    }
    mem_free(part);
    return err;
}
