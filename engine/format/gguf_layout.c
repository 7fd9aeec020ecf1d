/* Checks that need all records of a GGUF file: duplicate names, and whether the tensors tile the data section. Also
 * builds the two sorted indexes for lookups. */
#include "engine/format/gguf_internal.h"

#include "engine/base/ck.h"

#include <inttypes.h>
#include <string.h>

int gguf_str_order(struct gguf_str a, struct gguf_str b)
{
    int order = memcmp(a.data, b.data, MIN_OF(a.len, b.len));
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* Heap sort of indexes: n log n on any input, unlike qsort, and no global for the context. The order functions break
 * ties by index, so the result is unique. */
static void sort_indexes(uint32_t *index, size_t n, int (*order)(const void *table, uint32_t a, uint32_t b),
                         const void *table)
{
    for (size_t i = 0; i < n; i++) {
        index[i] = (uint32_t)i;
    }
    size_t start = n / 2, end = n;
    while (end > 1) {
        if (start > 0) {
            start--;
        } else {
            end--;
            uint32_t top = index[0];
            index[0] = index[end];
            index[end] = top;
        }
        for (size_t root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && order(table, index[child], index[child + 1]) < 0) {
                child++;
            }
            if (order(table, index[root], index[child]) >= 0) {
                break;
            }
            uint32_t swap = index[root];
            index[root] = index[child];
            index[child] = swap;
        }
    }
}

static int order_keys(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_kv *kv = table;
    int order = gguf_str_order(kv[a].key, kv[b].key);
    return order != 0 ? order : (a > b) - (a < b);
}

static int order_names(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = table;
    int order = gguf_str_order(t[a].name, t[b].name);
    return order != 0 ? order : (a > b) - (a < b);
}

static int order_offsets(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = table;
    int order = (t[a].offset > t[b].offset) - (t[a].offset < t[b].offset);
    return order != 0 ? order : (a > b) - (a < b);
}

enum err gguf_index_keys(struct gguf *g, struct err_info *info)
{
    sort_indexes(g->kv_by_key, g->n_kv, order_keys, g->kv);
    for (size_t i = 1; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[g->kv_by_key[i]], *before = &g->kv[g->kv_by_key[i - 1]];
        if (gguf_str_order(before->key, kv->key) == 0) {
            return err_set_at(info, ERR_DUPLICATE_KEY, kv->offset,
                              "key '%.*s': expected once, found a second time (first at byte %" PRIu64 ")",
                              (int)kv->key.len, kv->key.data, before->offset);
        }
    }
    return ERR_OK;
}

/* Returns where the record of t starts in the file: at the length before its name. */
static uint64_t record_at(const struct gguf *g, const struct gguf_tensor *t)
{
    return (uint64_t)((const unsigned char *)t->name.data - g->map.data) - 8;
}

/* Returns where the offset field of t's record is: after length, name, dimension count, dimensions and type. */
static uint64_t offset_field_at(const struct gguf *g, const struct gguf_tensor *t)
{
    return record_at(g, t) + 8 + t->name.len + 4 + 8 * (uint64_t)t->n_dims + 4;
}

const struct gguf_tensor *gguf_index_tensors(struct gguf *g)
{
    sort_indexes(g->tensors_by_name, g->n_tensors, order_names, g->tensors);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[i]];
        if (gguf_str_order(g->tensors[g->tensors_by_name[i - 1]].name, t->name) == 0) {
            return t;
        }
    }
    return NULL;
}

static enum err check_names(struct gguf *g, struct err_info *info)
{
    const struct gguf_tensor *twice = gguf_index_tensors(g), *first = g->tensors;
    if (twice == NULL) {
        return ERR_OK;
    }
    while (gguf_str_order(first->name, twice->name) != 0) { /* in file order */
        first++;
    }
    return err_set_at(info, ERR_BAD_TENSOR_NAME, record_at(g, twice),
                      "tensor '%.*s': expected once, found a second time (first at byte %" PRIu64 ")",
                      (int)twice->name.len, twice->name.data, record_at(g, first));
}

/* Tensor t must start at `expected`, an offset into the data section; otherwise reports what is wrong. */
static enum err check_start(const struct gguf *g, const struct gguf_tensor *t, uint64_t expected, struct err_info *info)
{
    uint64_t room = g->map.bytes - MIN_OF(g->data_offset, g->map.bytes);
    if (t->offset % g->alignment != 0) {
        return err_set_at(info, ERR_BAD_OFFSET, offset_field_at(g, t),
                          "tensor '%.*s': expected an offset that is a multiple of %" PRIu64 ", found %" PRIu64,
                          (int)t->name.len, t->name.data, g->alignment, t->offset);
    }
    if (t->offset > expected && t->offset >= room) {
        return err_set_at(info, ERR_BAD_OFFSET, offset_field_at(g, t),
                          "tensor '%.*s': expected an offset below %" PRIu64 ", where the file ends, found %" PRIu64,
                          (int)t->name.len, t->name.data, room, t->offset);
    }
    if (t->offset != expected) {
        return err_set_at(info, ERR_TENSOR_OVERLAP, offset_field_at(g, t),
                          "tensor '%.*s': expected offset %" PRIu64 ", found %" PRIu64 ", which %s", (int)t->name.len,
                          t->name.data, expected, t->offset,
                          t->offset < expected ? "overlaps another tensor" : "leaves a hole");
    }
    return ERR_OK;
}

/* In the order of their data, tensors must follow each other with only alignment padding between them, from the start
 * of the data section to the end of the file. Only a layout that is consistent and longer than the file is called
 * truncated. */
static enum err check_tiling(const struct gguf *g, uint64_t records_end, struct err_info *info)
{
    uint64_t expected = 0, end = 0, file = g->map.bytes;
    const struct gguf_tensor *cut = NULL; /* the first tensor that does not fit */
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[i]]; /* sorted by offset while this runs */
        TRY(check_start(g, t, expected, info));
        if (!ck_add(expected, t->bytes, &end) || !ck_align(end, g->alignment, &expected) ||
            !ck_add(end, g->data_offset, &end)) {
            return err_set_at(info, ERR_BAD_OFFSET, offset_field_at(g, t),
                              "tensor '%.*s': expected an end below 2^64, found offset %" PRIu64 " and %" PRIu64
                              " bytes",
                              (int)t->name.len, t->name.data, t->offset, t->bytes);
        }
        cut = cut == NULL && end > file ? t : cut;
    }
    if (cut != NULL) {
        return err_set_at(info, ERR_TRUNCATED, file,
                          "tensor '%.*s': expected %" PRIu64 " bytes from %" PRIu64
                          " on, found the end of the file at %" PRIu64,
                          (int)cut->name.len, cut->name.data, cut->bytes, g->data_offset + cut->offset, file);
    }
    end = g->n_tensors > 0 ? end : records_end;
    if (file - end >= g->alignment) {
        return err_set_at(info, ERR_TENSOR_OVERLAP, end,
                          "expected the end of the file or less than %" PRIu64 " bytes of padding, found %" PRIu64
                          " bytes that belong to no tensor",
                          g->alignment, file - end);
    }
    return ERR_OK;
}

struct row_mapped gguf_rows_of(const struct gguf_tensor *t)
{
    uint64_t n_rows = t->dims[1] * t->dims[2] * t->dims[3], most = UINT32_MAX;
    return row_mapped_of(t->type, t->data, (uint32_t)MIN_OF(n_rows, most), (uint32_t)MIN_OF(t->dims[0], most));
}

/* Returns whether tensor t, of `bytes`, ends where the next one begins, or the data if it is the last. */
static bool is_tiled(const struct gguf *g, const struct gguf_tensor *t, uint64_t bytes, uint64_t next)
{
    uint64_t end;
    return ck_add(t->offset, bytes, &end) && (end == next || (ck_align(end, g->alignment, &end) && end == next));
}

/* Type Q2_0 exists with blocks of 64 in 18 bytes, and with blocks of 128 in 34 [files of Prism, Ternary-Bonsai]. The
 * distance between tensors tells which one a file has. Needs tensors_by_name sorted by offset. ERR_BAD_SHAPE. */
static enum err choose_q2_0(struct gguf *g, struct err_info *info)
{
    bool is_128 = false;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[i]];
        uint64_t bytes, next = g->map.bytes - MIN_OF(g->data_offset, g->map.bytes);
        next = i + 1 < g->n_tensors ? g->tensors[g->tensors_by_name[i + 1]].offset : next;
        is_128 |= t->type == DTYPE_Q2_0 && !is_tiled(g, t, t->bytes, next) &&
                  dtype_tensor_bytes(DTYPE_Q2_0_128, t->dims[0], t->dims[1] * t->dims[2] * t->dims[3], &bytes) &&
                  is_tiled(g, t, bytes, next);
    }
    for (size_t i = 0; i < g->n_tensors && is_128; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->type != DTYPE_Q2_0) {
            continue;
        }
        t->type = DTYPE_Q2_0_128;
        if (!dtype_tensor_bytes(t->type, t->dims[0], t->dims[1] * t->dims[2] * t->dims[3], &t->bytes)) {
            return err_set_at(info, ERR_BAD_SHAPE, record_at(g, t),
                              "tensor '%.*s': expected rows of a multiple of 128 elements, as the file has Q2_0 in "
                              "blocks of 128, found %" PRIu64,
                              (int)t->name.len, t->name.data, t->dims[0]);
        }
    }
    return ERR_OK;
}

enum err gguf_place_tensors(struct gguf *g, uint64_t records_end, struct err_info *info)
{
    TRY(check_names(g, info));
    sort_indexes(g->tensors_by_name, g->n_tensors, order_offsets, g->tensors); /* borrowed for the check below */
    TRY(choose_q2_0(g, info));
    TRY(check_tiling(g, records_end, info));
    g->rows = mem_zalloc_array(g->n_tensors + 1, sizeof *g->rows, MEM_MODEL);
    TRY_MEM_FOR(g->rows != NULL, info, "out of memory for %zu tensors", g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        g->tensors[i].offset += g->data_offset;
        g->tensors[i].data = g->map.data + g->tensors[i].offset;
        g->rows[i] = gguf_rows_of(&g->tensors[i]);
        g->tensors[i].source = &g->rows[i].base;
    }
    sort_indexes(g->tensors_by_name, g->n_tensors, order_names, g->tensors);
    g->data_offset = MIN_OF(g->data_offset, g->map.bytes); /* a file without tensors can end before its padding */
    return ERR_OK;
}
