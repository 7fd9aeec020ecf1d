/* The GGUF reader on bad files. Each row of the table is one way a file can be wrong and the code it must get; then
 * cuts at every byte, a flip of every byte, things that are no files, and memory or I/O that fails at every step.
 * Longer than most files because the table is one. */
#include "engine/format/gguf.h"

#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

Suite *gguf_bad_suite(void);

/* --- ways to be wrong: each adds to, or spoils, a writer; `arg` is the row's number
 * ------------------------------------ */

static void tensor(struct gguf_writer *w, const char *name, uint64_t n)
{
    gguf_writer_tensor(w, name, DTYPE_F32, 1, &n, NULL);
}

static void whole(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_u32(w, "llama.block_count", 1);
    tensor(w, "a.weight", 8);
    tensor(w, "b.weight", 3);
}

static void version(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    w->version = (uint32_t)arg;
}

static void tensor_count(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    w->n_tensors = arg;
}

static void kv_count(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    w->n_kv = arg;
}

/* A key of `arg` bytes 'k'; only 1 MiB of them is written. */
static void key_length(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_append_u64(&w->kv, arg);
    for (uint64_t i = 0; i < arg && i < 1 << 20; i++) {
        buf_putc(&w->kv, 'k');
    }
    gguf_writer_append_u32(&w->kv, GGUF_U8);
    buf_putc(&w->kv, 1);
    w->n_kv++;
}

static const struct {
    const char *text;
    size_t len;
} bad_names[] = {{"\xFF", 1}, {"a\0b", 3}, {"caf\xC3", 4}, {"\xED\xA0\x80", 3}, {"../x", 4}, {"x/../y", 6}};
enum { BAD_NAME_ROWS = 4 }; /* the paths are bad keys only */

static void key_text(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_kv_head(w, bad_names[arg].text, bad_names[arg].len, GGUF_U8);
    buf_putc(&w->kv, 1);
}

static void key_twice(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_u32(w, arg == 0 ? "llama.block_count" : "LLAMA.block_count", 2);
}

static void value_type(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_kv_head(w, "x", 1, (uint32_t)arg);
    gguf_writer_append_u64(&w->kv, 0);
}

static void bool_byte(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_scalar(w, "x", GGUF_BOOL, &(uint8_t){(uint8_t)arg});
}

static void bool_in_array(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_array(w, "x", GGUF_BOOL, 3, (uint8_t[]){0, 1, (uint8_t)arg});
}

/* `arg` array heads inside each other. */
static void nested_array(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_kv_head(w, "x", 1, GGUF_ARRAY);
    for (uint64_t i = 0; i < arg; i++) {
        gguf_writer_append_u32(&w->kv, GGUF_ARRAY);
        gguf_writer_append_u64(&w->kv, 1);
    }
    gguf_writer_append_u32(&w->kv, GGUF_U8);
    gguf_writer_append_u64(&w->kv, 0);
}

static void array_type(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_kv_head(w, "x", 1, GGUF_ARRAY);
    gguf_writer_append_u32(&w->kv, (uint32_t)arg);
    gguf_writer_append_u64(&w->kv, 0);
}

static void array_length(struct gguf_writer *w, enum gguf_type type, uint64_t n)
{
    whole(w, 0);
    gguf_writer_array(w, "x", type, 0, NULL);
    w->kv.len -= 8;
    gguf_writer_append_u64(&w->kv, n);
}

static void u8_array_length(struct gguf_writer *w, uint64_t arg) { array_length(w, GGUF_U8, arg); }
static void u64_array_length(struct gguf_writer *w, uint64_t arg) { array_length(w, GGUF_U64, arg); }
static void str_array_length(struct gguf_writer *w, uint64_t arg) { array_length(w, GGUF_STRING, arg); }

static void string_length(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_kv_head(w, "x", 1, GGUF_STRING);
    gguf_writer_append_u64(&w->kv, arg);
}

static void string_in_array_length(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_str_array(w, "x", 1, (const char *const[]){"y"});
    gguf_writer_append_u64(&w->kv, arg);
    memcpy(w->kv.data + w->kv.len - 8 - 1 - 8 - 8, &(uint64_t){2},
           8); /* the array's length: before "y" and its length */
}

static void string_too_long(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    string_length(w, arg);
    for (uint64_t i = 0; i < arg; i++) {
        buf_putc(&w->kv, 's');
    }
}

static void alignment(struct gguf_writer *w, uint64_t arg)
{
    gguf_writer_u32(w, "general.alignment", (uint32_t)arg);
    whole(w, 0);
}

static void alignment_type(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    gguf_writer_u64(w, "general.alignment", 32);
    whole(w, 0);
}

static void name_length(struct gguf_writer *w, uint64_t arg)
{
    char name[80];
    memset(name, 'n', sizeof name);
    whole(w, 0);
    gguf_writer_tensor_record(w, name, (size_t)arg, DTYPE_F32, 1, (uint64_t[]){8}, w->data.len);
    gguf_writer_append_u64(&w->data, 0);
}

static void name_text(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_tensor_record(w, bad_names[arg].text, bad_names[arg].len, DTYPE_F32, 1, (uint64_t[]){8}, w->data.len);
}

static void name_twice(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    whole(w, 0);
    tensor(w, "a.weight", 8);
}

/* One more tensor as given, at the right offset, with no data after it. */
static void last_tensor(struct gguf_writer *w, uint32_t type, uint32_t n_dims, const uint64_t *dims)
{
    whole(w, 0);
    gguf_writer_tensor_record(w, "z", 1, type, n_dims, dims, w->data.len);
}

static void dim_count(struct gguf_writer *w, uint64_t arg)
{
    last_tensor(w, DTYPE_F32, (uint32_t)arg, (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
}

static const struct {
    uint32_t type;
    uint64_t dims[4];
} bad_shapes[] = {
    {DTYPE_F32, {0, 1, 1, 1}},
    {DTYPE_F32, {1, 1, 0, 1}},
    {DTYPE_F32, {UINT64_MAX, 1, 1, 1}},          /* -1 */
    {DTYPE_F32, {1, 1ull << 63, 1, 1}},          /* the least negative */
    {DTYPE_F32, {1ull << 32, 1ull << 31, 1, 1}}, /* 2^63 */
    {DTYPE_I8, {274177, 67280421310721, 1, 1}},  /* 2^64 + 1, which wraps to 1 */
    {DTYPE_F32, {1ull << 31, 1ull << 31, 4, 1}}, /* 2^64, which wraps to 0 */
    {DTYPE_F32, {1ull << 31, 1ull << 31, 1, 1}}, /* 2^62 elements fit, their 2^64 bytes do not */
    {DTYPE_Q1_0, {128, 1ull << 56, 1, 1}},       /* 2^63 elements in less than 2^61 bytes */
    {DTYPE_Q8_0, {33, 1, 1, 1}},                 /* a row is no multiple of the block */
    {DTYPE_Q4_K, {32, 8, 1, 1}},                 /* the tensor is a multiple, its row is not */
};

static void shape(struct gguf_writer *w, uint64_t arg)
{
    last_tensor(w, bad_shapes[arg].type, 4, bad_shapes[arg].dims);
}
static void tensor_type(struct gguf_writer *w, uint64_t arg) { last_tensor(w, (uint32_t)arg, 1, (uint64_t[]){256}); }

/* A third tensor of 32 bytes, its data where it should be, its record saying `arg`. */
static void offset(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    gguf_writer_tensor_record(w, "z", 1, DTYPE_I8, 1, (uint64_t[]){32}, arg);
    for (int i = 0; i < 32; i++) {
        buf_putc(&w->data, 'z');
    }
    w->last_bytes = w->data.len;
}

/* The end of the tensor at offset 64 is beyond 2^64. */
static void end_wraps(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    whole(w, 0);
    gguf_writer_tensor_record(w, "z", 1, DTYPE_I32, 1, (uint64_t[]){(1ull << 62) - 1}, w->data.len);
}

/* Two tensors near 2^63 bytes whose padded sizes add up to about 0. */
static void sum_wraps(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    whole(w, 0);
    uint64_t n = (1ull << 63) - 32;
    gguf_writer_tensor_record(w, "y", 1, DTYPE_I8, 1, &n, 64);
    gguf_writer_tensor_record(w, "z", 1, DTYPE_I8, 1, &n, 64 + n);
}

/* The data section has `arg` bytes more (with arg < 100) or arg - 100 bytes less than the tensors need. */
static void data_length(struct gguf_writer *w, uint64_t arg)
{
    whole(w, 0);
    for (uint64_t i = 0; arg < 100 && i < arg; i++) {
        buf_putc(&w->data, 'x');
    }
    w->last_bytes = arg < 100 ? w->last_bytes + arg : w->last_bytes - (arg - 100);
}

static void split_count(struct gguf_writer *w, uint64_t arg)
{
    gguf_writer_scalar(w, "split.count", GGUF_U16, &(uint16_t){(uint16_t)arg});
    whole(w, 0);
}

static void split_type(struct gguf_writer *w, uint64_t arg)
{
    (void)arg;
    gguf_writer_str(w, "split.count", "2");
    whole(w, 0);
}

#define FILE_BYTES 0x7E57ull /* stands for "the file's own size" in a count: see make_file */

/* Rows of the bad-input table; G numbers group them as the notes of the reader do. */
static const struct {
    const char *row;
    void (*make)(struct gguf_writer *w, uint64_t arg);
    uint64_t arg;
    enum err expected;
} rows[] = {
    {"good", whole, 0, ERR_OK},
    {"G03 version", version, 2, ERR_OK},
    {"G03 version", version, 0, ERR_BAD_VERSION},
    {"G03 version", version, 1, ERR_BAD_VERSION},
    {"G03 version", version, 4, ERR_BAD_VERSION},
    {"G03 version", version, UINT32_MAX, ERR_BAD_VERSION},
    {"G03 version", version, 0x03000000, ERR_WRONG_ENDIANNESS},
    {"G03 version", version, 0x02000000, ERR_WRONG_ENDIANNESS},
    {"G04 tensor count", tensor_count, INT64_MAX, ERR_COUNT_EXCEEDS_FILE},
    {"G04 tensor count", tensor_count, UINT64_MAX, ERR_COUNT_EXCEEDS_FILE},
    {"G04 tensor count", tensor_count, 1ull << 60, ERR_COUNT_EXCEEDS_FILE},
    {"G04 tensor count", tensor_count, GGUF_MAX_TENSORS + 1, ERR_COUNT_EXCEEDS_FILE},
    {"G04 tensor count", tensor_count, GGUF_MAX_TENSORS, ERR_COUNT_EXCEEDS_FILE},
    {"G04 tensor count", tensor_count, FILE_BYTES, ERR_COUNT_EXCEEDS_FILE},
    {"G05 key count", kv_count, INT64_MAX, ERR_COUNT_EXCEEDS_FILE},
    {"G05 key count", kv_count, UINT64_MAX, ERR_COUNT_EXCEEDS_FILE},
    {"G05 key count", kv_count, GGUF_MAX_KEYS + 1, ERR_COUNT_EXCEEDS_FILE},
    {"G05 key count", kv_count, FILE_BYTES, ERR_COUNT_EXCEEDS_FILE},
    {"G06 one key too few", kv_count, 1, ERR_BAD_SHAPE},
    {"G06 one key too many", kv_count, 3, ERR_BAD_TENSOR_NAME},
    {"G06 one tensor too few", tensor_count, 1, ERR_TENSOR_OVERLAP},
    {"G06 no tensor", tensor_count, 0, ERR_TENSOR_OVERLAP},
    {"G06 one tensor too many", tensor_count, 3, ERR_BAD_TENSOR_NAME},
    {"G07 key length", key_length, 0, ERR_BAD_KEY},
    {"G07 key length", key_length, GGUF_MAX_KEY_BYTES, ERR_OK},
    {"G07 key length", key_length, GGUF_MAX_KEY_BYTES + 1, ERR_BAD_KEY},
    {"G07 key length", key_length, 65536, ERR_BAD_KEY},
    {"G07 key length", key_length, UINT64_MAX, ERR_BAD_KEY},
    {"G07 key text", key_text, 0, ERR_BAD_KEY},
    {"G07 key text", key_text, 1, ERR_BAD_KEY},
    {"G07 key text", key_text, 2, ERR_BAD_KEY},
    {"G07 key text", key_text, 3, ERR_BAD_KEY},
    {"G07 key text", key_text, 4, ERR_BAD_KEY},
    {"G07 key text", key_text, 5, ERR_BAD_KEY},
    {"G08 key twice", key_twice, 0, ERR_DUPLICATE_KEY},
    {"G08 other case", key_twice, 1, ERR_OK},
    {"G09 value type", value_type, 13, ERR_BAD_VALUE_TYPE},
    {"G09 value type", value_type, 255, ERR_BAD_VALUE_TYPE},
    {"G09 value type", value_type, UINT32_MAX, ERR_BAD_VALUE_TYPE},
    {"G10 bool", bool_byte, 2, ERR_BAD_BOOL},
    {"G10 bool", bool_byte, 255, ERR_BAD_BOOL},
    {"G10 bool in array", bool_in_array, 1, ERR_OK},
    {"G10 bool in array", bool_in_array, 2, ERR_BAD_BOOL},
    {"G11 nested array", nested_array, 1, ERR_NESTED_ARRAY},
    {"G11 nested array", nested_array, 2, ERR_NESTED_ARRAY},
    {"G11 nested array", nested_array, 100000, ERR_NESTED_ARRAY},
    {"G11 array type", array_type, GGUF_F64, ERR_OK},
    {"G11 array type", array_type, 13, ERR_NESTED_ARRAY},
    {"G11 array type", array_type, UINT32_MAX, ERR_NESTED_ARRAY},
    {"G12 array length", u8_array_length, 1ull << 61, ERR_COUNT_EXCEEDS_FILE},
    {"G12 array length", u8_array_length, GGUF_MAX_ARRAY + 1, ERR_COUNT_EXCEEDS_FILE},
    {"G12 array length", u64_array_length, 1ull << 61, ERR_COUNT_EXCEEDS_FILE},
    {"G12 array length", str_array_length, 1ull << 61, ERR_COUNT_EXCEEDS_FILE},
    {"G12 array length", str_array_length, UINT64_MAX, ERR_COUNT_EXCEEDS_FILE},
    {"T01 tokens", str_array_length, 1ull << 31, ERR_COUNT_EXCEEDS_FILE},
    {"G12 array cut", u64_array_length, 1000, ERR_TRUNCATED},
    {"G12 array cut", str_array_length, 1000, ERR_TRUNCATED},
    {"G13 string length", string_length, 1 << 30, ERR_STRING_EXCEEDS_FILE},
    {"G13 string length", string_length, UINT64_MAX, ERR_STRING_EXCEEDS_FILE},
    {"G13 string length", string_length, UINT64_MAX - 7, ERR_STRING_EXCEEDS_FILE},
    {"G13 string length", string_length, 1000, ERR_TRUNCATED},
    {"G13 string in array", string_in_array_length, 1 << 30, ERR_STRING_EXCEEDS_FILE},
    {"G13 string limit", string_too_long, GGUF_MAX_STRING_BYTES + 1, ERR_BAD_STRING},
    {"G14 alignment", alignment, 32, ERR_OK},
    {"G14 alignment", alignment, 0, ERR_BAD_ALIGNMENT},
    {"G14 alignment", alignment, 3, ERR_BAD_ALIGNMENT},
    {"G14 alignment", alignment, 4, ERR_BAD_ALIGNMENT},
    {"G14 alignment", alignment, 48, ERR_BAD_ALIGNMENT},
    {"G14 alignment", alignment, 1u << 31, ERR_BAD_ALIGNMENT},
    {"G14 alignment type", alignment_type, 0, ERR_BAD_ALIGNMENT},
    {"G15 name length", name_length, 0, ERR_BAD_TENSOR_NAME},
    {"G15 name length", name_length, 64, ERR_BAD_TENSOR_NAME},
    {"G15 name text", name_text, 0, ERR_BAD_TENSOR_NAME},
    {"G15 name text", name_text, 1, ERR_BAD_TENSOR_NAME},
    {"G15 name text", name_text, 2, ERR_BAD_TENSOR_NAME},
    {"G15 name text", name_text, BAD_NAME_ROWS - 1, ERR_BAD_TENSOR_NAME},
    {"G15 name twice", name_twice, 0, ERR_BAD_TENSOR_NAME},
    {"G16 dimensions", dim_count, 0, ERR_BAD_DIMS},
    {"G16 dimensions", dim_count, 5, ERR_BAD_DIMS},
    {"G16 dimensions", dim_count, UINT32_MAX, ERR_BAD_DIMS},
    {"G17 shape", shape, 0, ERR_BAD_SHAPE},
    {"G17 shape", shape, 1, ERR_BAD_SHAPE},
    {"G17 shape", shape, 2, ERR_BAD_SHAPE},
    {"G17 shape", shape, 3, ERR_BAD_SHAPE},
    {"G17 shape", shape, 4, ERR_BAD_SHAPE},
    {"G17 shape", shape, 5, ERR_BAD_SHAPE},
    {"G17 shape", shape, 6, ERR_BAD_SHAPE},
    {"G17 shape", shape, 7, ERR_BAD_SHAPE},
    {"G17 shape", shape, 8, ERR_BAD_SHAPE},
    {"G18 row", shape, 10, ERR_BAD_SHAPE},
    {"G18 row", shape, 9, ERR_BAD_SHAPE},
    {"G19 tensor type", tensor_type, 4, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, 5, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, 31, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, 36, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, DTYPE_FILE_COUNT, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, DTYPE_COUNT, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, 142, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, 143, ERR_UNSUPPORTED_TYPE},
    {"G19 tensor type", tensor_type, UINT32_MAX, ERR_UNSUPPORTED_TYPE},
    {"G20 offset", offset, 64, ERR_OK},
    {"G20 offset", offset, 65, ERR_BAD_OFFSET},
    {"G20 offset", offset, 1 << 20, ERR_BAD_OFFSET},
    {"G20 offset", offset, UINT64_MAX - 31, ERR_BAD_OFFSET},
    {"G20 end wraps", end_wraps, 0, ERR_BAD_OFFSET},
    {"G20 sum wraps", sum_wraps, 0, ERR_BAD_OFFSET},
    {"G21 overlap", offset, 32, ERR_TENSOR_OVERLAP},
    {"G21 overlap", offset, 0, ERR_TENSOR_OVERLAP},
    {"G21 hole", data_length, 40, ERR_TENSOR_OVERLAP},
    {"G21 padding", data_length, 20, ERR_OK},
    {"G22 one byte short", data_length, 101, ERR_TRUNCATED},
    {"G22 a tensor short", data_length, 112, ERR_TRUNCATED},
    {"G26 split", split_count, 1, ERR_OK},
    {"G26 split", split_count, 2, ERR_BAD_SPLIT},
    {"G26 split", split_count, 65535, ERR_BAD_SPLIT},
    {"G26 split type", split_type, 0, ERR_BAD_TYPE},
};

static void make_file(size_t row, struct buf *out)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    rows[row].make(&w, rows[row].arg);
    gguf_writer_finish(&w, out);
    if (rows[row].arg == FILE_BYTES) { /* the count becomes just one more than the file could hold */
        bool of_tensors = rows[row].make == tensor_count;
        uint64_t n = out->len / (of_tensors ? 24 : 13) + 1;
        memcpy(out->data + (of_tensors ? 8 : 16), &n, sizeof n);
    }
    ck_assert_int_eq(buf_ok(out), ERR_OK);
    gguf_writer_fini(&w);
}

/* Opens bytes from an exact-size heap block, so that ASan sees a read of one byte too many. */
static enum err open_exact(const void *data, size_t n, struct err_info *info)
{
    char *copy = malloc(n + (n == 0));
    memcpy(copy, data, n);
    struct gguf *g = (struct gguf *)copy; /* anything: must become NULL on failure */
    enum err err = gguf_open_memory(copy, n, &g, info);
    if ((err == ERR_OK) != (g != NULL)) {
        ck_abort_msg("result %s with object %p", err_code(err), (void *)g);
    }
    gguf_close(&g);
    free(copy);
    return err;
}

static bool is_one_line(const char *s)
{
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7F) {
            return false;
        }
    }
    return true;
}

START_TEST(each_row_gets_its_code)
{
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    make_file((size_t)_i, &file);
    size_t live = mem_live();
    struct err_info info = {.offset = ERR_NO_OFFSET};
    enum err err = open_exact(file.data, file.len, &info);
    ck_assert_msg(err == rows[_i].expected, "%s (%llu): expected %s, found %s: %s", rows[_i].row,
                  (unsigned long long)rows[_i].arg, err_code(rows[_i].expected), err_code(err), info.text);
    ck_assert_uint_eq(mem_live(), live);
    if (err != ERR_OK) {
        ck_assert_int_eq(info.code, err);
        ck_assert_msg(info.offset <= file.len, "%s: offset %llu", rows[_i].row, (unsigned long long)info.offset);
        ck_assert_msg(strstr(info.text, "expected") != NULL && strstr(info.text, "found") != NULL, "%s: %s",
                      rows[_i].row, info.text);
        ck_assert(is_one_line(info.text));
    }
    buf_fini(&file);
}
END_TEST

START_TEST(no_row_takes_memory_for_records_that_are_not_there)
{
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].expected == ERR_COUNT_EXCEEDS_FILE && rows[i].make != u8_array_length &&
            rows[i].make != u64_array_length && rows[i].make != str_array_length) {
            make_file(i, &file);
            mem_fail_at(1); /* the object itself is allowed, nothing more */
            enum err err = open_exact(file.data, file.len, NULL);
            mem_fail_at(-1);
            ck_assert_msg(err == ERR_COUNT_EXCEEDS_FILE, "%s: %s", rows[i].row, err_code(err));
        }
    }
    buf_fini(&file);
}
END_TEST

/* --- no GGUF at all
 * ---------------------------------------------------------------------------------------------------- */

/* Rows G01 and G02. */
START_TEST(short_files_and_other_formats_are_named)
{
    static const struct {
        const char *bytes;
        size_t len;
        enum err expected;
        const char *hint;
    } files[] = {
        {"", 0, ERR_TRUNCATED_HEADER, "found 0"},
        {"G", 1, ERR_TRUNCATED_HEADER, "found 1"},
        {"GGU", 3, ERR_TRUNCATED_HEADER, "found 3"},
        {"GGUF\3\0\0", 7, ERR_TRUNCATED_HEADER, "found 7"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23, ERR_TRUNCATED_HEADER, "found 23"},
        {"\0\0\0\0\0\0\0", 7, ERR_TRUNCATED_HEADER, "begin like GGUF"},
        {"not a model at all, just text", 29, ERR_BAD_MAGIC, "none of the formats"},
        {"GGML\1\0\0\0", 8, ERR_BAD_MAGIC, "GGML"},
        {"lmgg\1\0\0\0", 8, ERR_BAD_MAGIC, "GGML"},
        {"tjgg\3\0\0\0", 8, ERR_BAD_MAGIC, "GGJT"},
        {"ggjt\3\0\0\0", 8, ERR_BAD_MAGIC, "GGJT"},
        {"\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}}   ", 28, ERR_BAD_MAGIC, "safetensors"},
        {"PK\3\4aaaaaaaaaaaaaaaaaaaaaaaa", 28, ERR_BAD_MAGIC, "zip"},
        {"\x80\2}q\0(X\5\0\0\0modelq\1", 18, ERR_BAD_MAGIC, "pickle"},
        {"<!DOCTYPE html><html></html>", 28, ERR_BAD_MAGIC, "HTML"},
        {"<html><body>404</body></html>", 29, ERR_BAD_MAGIC, "HTML"},
        {"\x7f"
         "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\x3e\0\1\0\0\0",
         24, ERR_BAD_MAGIC, "ELF"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, ERR_BAD_MAGIC, "Git LFS"},
        {"FUGG\0\0\0\3", 8, ERR_WRONG_ENDIANNESS, "reverse"},
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct err_info info = {0};
        enum err err = open_exact(files[i].bytes, files[i].len, &info);
        ck_assert_msg(err == files[i].expected, "file %zu: %s: %s", i, err_code(err), info.text);
        ck_assert_msg(strstr(info.text, files[i].hint) != NULL, "file %zu: %s", i, info.text);
    }
}
END_TEST

/* --- cuts and flips
 * ---------------------------------------------------------------------------------------------------- */

/* A small file with every value type, arrays and three tensors. */
static void make_rich_file(struct buf *out)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_alignment(&w, 16);
    static const char zeros[8];
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        char key[16];
        snprintf(key, sizeof key, "s.%d", type);
        if (type != GGUF_STRING && type != GGUF_ARRAY) {
            gguf_writer_scalar(&w, key, (enum gguf_type)type, zeros);
            key[0] = 'a';
            gguf_writer_array(&w, key, (enum gguf_type)type, 1, zeros);
        }
    }
    gguf_writer_str_array(&w, "words", 3, (const char *const[]){"one", "", "three"});
    gguf_writer_tensor(&w, "t.f32", DTYPE_F32, 2, (uint64_t[]){3, 2}, NULL);
    gguf_writer_tensor(&w, "t.q8_0", DTYPE_Q8_0, 1, (uint64_t[]){32}, NULL);
    gguf_writer_tensor(&w, "t.i8", DTYPE_I8, 3, (uint64_t[]){1, 2, 3}, NULL);
    gguf_writer_finish(&w, out);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(out), ERR_OK);
}

START_TEST(a_cut_at_any_byte_is_called_a_cut)
{
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    make_rich_file(&file);
    ck_assert_int_eq(open_exact(file.data, file.len, NULL), ERR_OK);
    for (size_t n = 0; n < file.len; n++) {
        struct err_info info = {0};
        enum err err = open_exact(file.data, n, &info);
        if (err != (n < 24 ? ERR_TRUNCATED_HEADER : ERR_TRUNCATED) || info.offset > n) {
            ck_abort_msg("cut at %zu of %zu: %s at %llu: %s", n, file.len, err_code(err),
                         (unsigned long long)info.offset, info.text);
        }
    }
    buf_fini(&file);
}
END_TEST

/* Reads everything a caller could reach. */
static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        const unsigned char *cursor = kv->data;
        for (uint64_t k = 0; k < kv->n; k++) {
            if (kv->elem_type == GGUF_STRING) {
                struct gguf_str s = gguf_next_str(&cursor);
                sum += s.len > 0 ? (unsigned char)s.data[s.len - 1] : 0;
            } else {
                sum += (uint64_t)gguf_elem_i64(kv, k) + (gguf_elem_f64(kv, k) > 0);
            }
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum += ((const unsigned char *)t->data)[0] + ((const unsigned char *)t->data)[t->bytes - 1];
    }
    return sum;
}

START_TEST(a_change_of_any_byte_does_no_harm)
{
    static const unsigned char changes[] = {0x01, 0x80, 0xFF, 0x20}; /* flipped bits */
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    make_rich_file(&file);
    size_t live = mem_live();
    int n_good = 0, n_bad = 0;
    for (size_t at = 0; at < file.len; at++) {
        for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
            char *copy = malloc(file.len);
            memcpy(copy, file.data, file.len);
            copy[at] = (char)(copy[at] ^ changes[i]);
            struct gguf *g;
            struct err_info info = {0};
            enum err err = gguf_open_memory(copy, file.len, &g, &info);
            if (err == ERR_OK) {
                static volatile uint64_t sink; /* keeps the reads */
                sink = walk(g);
                (void)sink;
                n_good++;
            } else {
                n_bad++;
                if (!is_one_line(info.text) || info.offset > file.len) {
                    ck_abort_msg("byte %zu: %s at %llu", at, err_code(err), (unsigned long long)info.offset);
                }
            }
            gguf_close(&g);
            free(copy);
            if (mem_live() != live) {
                ck_abort_msg("byte %zu: memory leaked", at);
            }
        }
    }
    ck_assert_int_gt(n_good, 100); /* values and tensor data may be anything */
    ck_assert_int_gt(n_bad, 100);
    buf_fini(&file);
}
END_TEST

/* --- no regular file, and faults
 * --------------------------------------------------------------------------------------- */

static const char *path;

static void setup(void)
{
    static char room[64];
    snprintf(room, sizeof room, "%s", folder_file("x"));
    path = room;
}

static void expect_no_file(const char *what, const char *hint)
{
    struct gguf *g;
    struct err_info info = {0};
    enum err err = gguf_open(what, &g, &info);
    ck_assert_msg(err == ERR_FILE, "%s: %s: %s", what, err_code(err), info.text);
    ck_assert_msg(strstr(info.text, hint) != NULL, "%s: %s", what, info.text);
    ck_assert_ptr_null(g);
    ck_assert_uint_eq(info.offset, ERR_NO_OFFSET);
}

/* Row G29. */
START_TEST(what_is_no_regular_file_is_refused_at_once)
{
    expect_no_file(folder_path(), "directory");
    expect_no_file(path, "No such file");
    expect_no_file("", "No such file");
    expect_no_file("/dev/zero", "device");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_no_file(path, "FIFO");
    unlink(path);
    ck_assert_int_eq(symlink(path, path), 0);
    expect_no_file(path, "symbolic links");
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_no_file(path, "No such device");
    close(fd);
}
END_TEST

START_TEST(parts_of_split_files_are_known_by_name)
{
    static const struct {
        const char *name;
        enum err expected;
    } names[] = {
        {"m-00001-of-00003.gguf", ERR_BAD_SPLIT}, {"m-00003-of-00003.gguf", ERR_BAD_SPLIT},
        {"-00001-of-65535.gguf", ERR_BAD_SPLIT},  {"m-00001-of-00001.gguf", ERR_OK},
        {"m-0001-of-0003.gguf", ERR_OK},          {"m-00001-of-00003.gguf.bak", ERR_OK},
    };
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    make_rich_file(&file);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *name = folder_write(names[i].name, file.data, file.len);
        struct gguf *g;
        enum err err = gguf_open(name, &g, NULL);
        gguf_close(&g);
        unlink(name);
        ck_assert_msg(err == names[i].expected, "%s: %s", names[i].name, err_code(err));
    }
    buf_fini(&file);
}
END_TEST

static void save_rich_file(void)
{
    struct buf file;
    buf_init(&file, 0, MEM_GENERAL);
    make_rich_file(&file);
    ck_assert(gguf_writer_save(&file, path));
    buf_fini(&file);
}

static int count_open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 64; fd++) {
        struct stat st;
        n += fstat(fd, &st) == 0;
    }
    return n;
}

START_TEST(memory_that_fails_at_any_step_is_reported_and_given_back)
{
    save_rich_file();
    size_t live = mem_live();
    int open_files = count_open_files();
    long n = 0;
    for (bool fired = true; fired; n++) {
        struct gguf *g;
        struct err_info info = {0};
        mem_fail_at(n);
        enum err err = gguf_open(path, &g, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (fired ? ERR_NOMEM : ERR_OK), "step %ld: %s", n, err_code(err));
        ck_assert_int_eq(info.code, fired ? ERR_NOMEM : ERR_OK);
        gguf_close(&g);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_eq(count_open_files(), open_files);
    }
    ck_assert_int_ge(n, 4); /* object, keys, tensors, indexes: else the seam is not in use */
}
END_TEST

START_TEST(system_calls_that_fail_at_any_step_are_reported)
{
    static const int errnos[] = {EIO, EACCES, ENOMEM, EMFILE};
    save_rich_file();
    size_t live = mem_live();
    int open_files = count_open_files();
    for (size_t k = 0; k < ARRAY_LEN(errnos); k++) {
        long n = 0;
        for (bool fired = true; fired; n++) {
            struct gguf *g;
            struct err_info info = {0};
            io_fail_at(n, errnos[k]);
            enum err err = gguf_open(path, &g, &info);
            fired = io_fault_fired();
            io_fail_at(-1, 0);
            bool expected = fired ? err == ERR_FILE || err == ERR_IO || err == ERR_NOMEM : err == ERR_OK;
            ck_assert_msg(expected, "step %ld: %s", n, err_code(err));
            ck_assert(!fired || strstr(info.text, strerror(errnos[k])) != NULL);
            gguf_close(&g);
            ck_assert_uint_eq(mem_live(), live);
            ck_assert_int_eq(count_open_files(), open_files);
        }
        ck_assert_int_ge(n, 4); /* open, fstat, mmap, and the good run */
    }
}
END_TEST

Suite *gguf_bad_suite(void)
{
    Suite *s = suite_create("gguf_bad");
    TCase *c = tcase_create("bytes");
    tcase_add_loop_test(c, each_row_gets_its_code, 0, ARRAY_LEN(rows));
    tcase_add_test(c, no_row_takes_memory_for_records_that_are_not_there);
    tcase_add_test(c, short_files_and_other_formats_are_named);
    tcase_add_test(c, a_cut_at_any_byte_is_called_a_cut);
    tcase_add_test(c, a_change_of_any_byte_does_no_harm);
    suite_add_tcase(s, c);
    TCase *f = tcase_create("files");
    tcase_add_checked_fixture(f, setup, folder_remove);
    tcase_add_test(f, what_is_no_regular_file_is_refused_at_once);
    tcase_add_test(f, parts_of_split_files_are_known_by_name);
    tcase_add_test(f, memory_that_fails_at_any_step_is_reported_and_given_back);
    tcase_add_test(f, system_calls_that_fail_at_any_step_are_reported);
    suite_add_tcase(s, f);
    return s;
}
