/* SafeTensors files: what is in a good one, and one code for each way a file can lie (rows S01 to S10 of the catalogue
 * of bad inputs). */
#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/format/safetensors.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

Suite *safetensors_suite(void);

enum { DATA_BYTES = 24 };

/* A file with this header and so many bytes of data after it, 0, 1, 2 ..; in memory of exactly its size. */
static unsigned char *make_file(const char *header, size_t header_bytes, size_t data_bytes, size_t *n)
{
    *n = 8 + header_bytes + data_bytes;
    unsigned char *file = malloc(*n);
    uint64_t length = header_bytes;
    ck_assert_ptr_nonnull(file);
    memcpy(file, &length, sizeof length);
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        file[8 + header_bytes + i] = (unsigned char)i;
    }
    return file;
}

START_TEST(tensors_come_back_in_the_order_of_their_data)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
                                 "\"a.\\u00e4\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                                 "\"none\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[8,8]}}   ";
    size_t n;
    unsigned char *file = make_file(header, sizeof header - 1, DATA_BYTES, &n);
    struct safetensors *s;
    struct err_info info = {0};
    ck_assert_msg(safetensors_open_memory(file, n, &s, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(safetensors_n_tensors(s), 3);
    const struct st_tensor *a = safetensors_at(s, 0), *none = safetensors_at(s, 1), *b = safetensors_at(s, 2);
    ck_assert_str_eq(a->name, "a.\xc3\xa4");
    ck_assert(a->dtype == ST_BF16 && a->n_dims == 1 && a->dims[0] == 4 && a->bytes == 8);
    ck_assert(none->bytes == 0 && none->n_dims == 2 && none->dims[1] == 3);
    ck_assert_str_eq(b->name, "b");
    ck_assert(b->dtype == ST_F32 && b->n_dims == 2 && b->dims[0] == 2 && b->bytes == 16);
    ck_assert(((const unsigned char *)b->data)[0] == 8 && b->data == file + n - 16);
    ck_assert_str_eq(st_dtype_name(ST_F8_E4M3), "F8_E4M3");
    ck_assert_uint_eq(st_dtype_bits(ST_I64), 64);
    safetensors_close(&s);
    ck_assert_ptr_null(s);
    free(file);
}
END_TEST

#define ONE(entry)             "{\"t\":" entry "}"
#define T(dtype, shape, range) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}"

START_TEST(a_bad_header_gets_its_code)
{
#define GOOD T("\"F32\"", "[6]", "[0,24]")
    static const struct {
        const char *row, *header;
        enum err err;
        const char *says; /* what was found, or where */
    } cases[] = {
        {"S03 utf-8", ONE(GOOD) "\xff", ERR_BAD_HEADER, "at byte 55"},
        {"S03 begins", " {}", ERR_BAD_HEADER, "found byte 0x20"},
        {"S03 an array", "[]", ERR_BAD_HEADER, "found byte 0x5B"},
        {"S03 garbage", "{} x", ERR_BAD_HEADER, "line 1, column 4"},
        {"S03 another file behind", ONE(GOOD) "\nMZ", ERR_BAD_HEADER, "line 2, column 1"},
        {"S03 cut", "{\"t\":{", ERR_BAD_HEADER, "line 1, column 7"},
        {"S03 a number for an entry", ONE("7"), ERR_BAD_HEADER, "found an integer"},
        {"S03 metadata", "{\"__metadata__\":[]}", ERR_BAD_HEADER, "found an array"},
        {"S04 deep", ONE("{\"shape\":[[[[[[0]]]]]]}"), ERR_JSON_TOO_DEEP, "at most 4 deep"},
        {"S05 a tensor twice", "{\"t\":{},\"t\":{}}", ERR_DUPLICATE_KEY, "duplicate key 't'"},
        {"S05 metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", ERR_DUPLICATE_KEY, "__metadata__"},
        {"S05 in the metadata", "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", ERR_DUPLICATE_KEY, "duplicate key 'a'"},
        {"S05 dtype twice", ONE("{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), ERR_DUPLICATE_KEY, "dtype"},
        {"S06 unknown", ONE(T("\"F33\"", "[6]", "[0,24]")), ERR_BAD_DTYPE, "found F33"},
        {"S06 lower case", ONE(T("\"f32\"", "[6]", "[0,24]")), ERR_BAD_DTYPE, "found f32"},
        {"S06 a number", ONE(T("32", "[6]", "[0,24]")), ERR_BAD_DTYPE, "found an integer"},
        {"S06 a NUL", ONE(T("\"F32\\u0000x\"", "[6]", "[0,24]")), ERR_BAD_DTYPE, "'t'"},
        {"S06 none", ONE("{\"shape\":[6],\"data_offsets\":[0,24]}"), ERR_BAD_DTYPE, "found none"},
        {"S07 negative", ONE(T("\"F32\"", "[-6]", "[0,24]")), ERR_BAD_SHAPE, "found [-6]"},
        {"S07 a fraction", ONE(T("\"F32\"", "[1.5,4]", "[0,24]")), ERR_BAD_SHAPE, "found [1.5, 4]"},
        {"S07 wraps", ONE(T("\"F32\"", "[4294967296,4294967296]", "[0,24]")), ERR_BAD_SHAPE, "found [4294967296, "},
        {"S07 wraps to what is there", ONE(T("\"I8\"", "[274177,67280421310721]", "[0,1]")), ERR_BAD_SHAPE,
         "found [274177, 67280421310721]"},
        {"S07 2^53 + 1", ONE(T("\"F32\"", "[9007199254740993]", "[0,24]")), ERR_BAD_SHAPE, "found [9007199254740993]"},
        {"S07 large", ONE(T("\"F32\"", "[1e400]", "[0,24]")), ERR_BAD_SHAPE, "found [1e400]"},
        {"S07 2^64", ONE(T("\"F32\"", "[18446744073709551616]", "[0,24]")), ERR_BAD_SHAPE,
         "found [18446744073709551616]"},
        {"S07 9 dims", ONE(T("\"F32\"", "[1,1,1,1,1,1,1,1,6]", "[0,24]")), ERR_BAD_SHAPE, "1, 6]"},
        {"S07 text", ONE(T("\"F32\"", "\"6\"", "[0,24]")), ERR_BAD_SHAPE, "found a string"},
        {"S07 none", ONE("{\"dtype\":\"F32\",\"data_offsets\":[0,24]}"), ERR_BAD_SHAPE, "found none"},
        {"S08 one", ONE(T("\"F32\"", "[6]", "[24]")), ERR_BAD_OFFSET, "found [24]"},
        {"S08 three", ONE(T("\"F32\"", "[6]", "[0,8,24]")), ERR_BAD_OFFSET, "found [0, 8, 24]"},
        {"S08 none", ONE("{\"dtype\":\"F32\",\"shape\":[6]}"), ERR_BAD_OFFSET, "found none"},
        {"S08 texts", ONE(T("\"F32\"", "[6]", "[\"0\",24]")), ERR_BAD_OFFSET, "found [a string, 24]"},
        {"S08 reversed", ONE(T("\"F32\"", "[6]", "[24,0]")), ERR_BAD_OFFSET, "found [24, 0]"},
        {"S08 negative", ONE(T("\"F32\"", "[6]", "[-1,23]")), ERR_BAD_OFFSET, "found [-1, 23]"},
        {"S08 beyond the end", ONE(T("\"F32\"", "[6]", "[1,25]")), ERR_BAD_OFFSET, "found 1 to 25"},
        {"S08 far beyond the end", ONE(T("\"F32\"", "[6]", "[9223372036854775783,9223372036854775807]")),
         ERR_BAD_OFFSET, "the end of the data at 24"},
        {"S08 wraps", ONE(T("\"F32\"", "[6]", "[18446744073709551600,8]")), ERR_BAD_OFFSET,
         "found [18446744073709551600, 8]"},
        {"S08 wraps as a power of ten", ONE(T("\"F32\"", "[6]", "[0,1e400]")), ERR_BAD_OFFSET, "found [0, 1e400]"},
        {"S08 the file was cut", ONE(T("\"F32\"", "[7]", "[0,28]")), ERR_TRUNCATED, "up to byte 28"},
        {"S09 hole in front", ONE(T("\"F32\"", "[5]", "[4,24]")), ERR_TENSOR_OVERLAP, "found 4, which leaves a hole"},
        {"S09 tail", ONE(T("\"F32\"", "[5]", "[0,20]")), ERR_TENSOR_OVERLAP, "data of 20 bytes"},
        {"S09 overlap by a byte", "{\"t\":" T("\"U8\"", "[12]", "[0,12]") ",\"u\":" T("\"U8\"", "[13]", "[11,24]") "}",
         ERR_TENSOR_OVERLAP, "'u': expected data from byte 12 on, found 11, which overlaps"},
        {"S09 hole of a byte", "{\"t\":" T("\"U8\"", "[12]", "[0,12]") ",\"u\":" T("\"U8\"", "[11]", "[13,24]") "}",
         ERR_TENSOR_OVERLAP, "'u': expected data from byte 12 on, found 13, which leaves a hole"},
        {"S10 longer", ONE(T("\"F32\"", "[5]", "[0,24]")), ERR_SIZE_MISMATCH, "expected 20 bytes"},
        {"S10 empty", ONE(T("\"F32\"", "[0]", "[0,24]")), ERR_SIZE_MISMATCH, "expected 0 bytes"},
        {"no name", "{\"\":" GOOD "}", ERR_BAD_TENSOR_NAME, "found 0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n, live = mem_live();
        unsigned char *file = make_file(cases[i].header, strlen(cases[i].header), DATA_BYTES, &n);
        struct safetensors *s = (struct safetensors *)1;
        struct err_info info = {0};
        enum err err = safetensors_open_memory(file, n, &s, &info);
        ck_assert_msg(err == cases[i].err && info.code == err, "%s: expected %s, found %s: %s", cases[i].row,
                      err_code(cases[i].err), err_code(err), info.text);
        ck_assert_msg(strstr(info.text, cases[i].says) != NULL, "%s: '%s' is not in: %s", cases[i].row, cases[i].says,
                      info.text);
        ck_assert(s == NULL && mem_live() == live);
        free(file);
    }
}
END_TEST

START_TEST(zeros_after_the_header_are_garbage)
{
    static const char header[] = "{\"t\":" GOOD "}\0\0\0";
    size_t n;
    struct safetensors *s;
    unsigned char *file = make_file(header, sizeof header - 1, DATA_BYTES, &n);
    ck_assert_int_eq(safetensors_open_memory(file, n, &s, NULL), ERR_BAD_HEADER);
    free(file);
}
END_TEST

static void expect_length_error(const void *file, size_t n, enum err expected, uint64_t found)
{
    struct safetensors *s;
    struct err_info info = {0};
    char says[32];
    enum err err = safetensors_open_memory(file, n, &s, &info);
    snprintf(says, sizeof says, "found %llu", (unsigned long long)found);
    ck_assert_msg(err == expected && strstr(info.text, says) != NULL, "%s: %s: %s", says, err_code(err), info.text);
}

/* Rows S01 and S02. */
START_TEST(a_bad_length_gets_its_code)
{
    static const char header[] = "{}";
    static const uint64_t lengths[] = {0, 1, 3, 100000001, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    size_t n;
    struct safetensors *s;
    unsigned char *file = make_file(header, 2, 0, &n);
    ck_assert_int_eq(safetensors_open_memory(file, n, &s, NULL), ERR_OK); /* no tensors, no data */
    ck_assert_uint_eq(safetensors_n_tensors(s), 0);
    safetensors_close(&s);
    for (size_t i = 0; i < 8; i++) {
        expect_length_error(file, i, ERR_TRUNCATED_HEADER, i);
    }
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        memcpy(file, &lengths[i], sizeof lengths[i]);
        expect_length_error(file, n, ERR_BAD_HEADER_LENGTH, lengths[i]);
    }
    free(file);
    static char spaces[SAFETENSORS_MAX_HEADER_BYTES +
                       1]; /* which the file can hold; set here: data would be 33 MB of the program */
    memset(spaces, ' ', sizeof spaces);
    memcpy(spaces, "{}", 2);
    file = make_file(spaces, sizeof spaces, 0, &n);
    expect_length_error(file, n, ERR_BAD_HEADER_LENGTH, sizeof spaces);
    uint64_t most = SAFETENSORS_MAX_HEADER_BYTES;
    memcpy(file, &most, sizeof most);
    ck_assert_int_eq(safetensors_open_memory(file, n - 1, &s, NULL), ERR_OK);
    safetensors_close(&s);
    free(file);
}
END_TEST

/* `unit` n times between head and tail. */
static void open_repeated(const char *head, const char *unit, size_t n_units, const char *tail, enum err expected,
                          const char *says)
{
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, head);
    for (size_t i = 0; i < n_units; i++) {
        buf_puts(&b, unit);
    }
    buf_puts(&b, tail);
    size_t n;
    unsigned char *file = make_file(b.data, b.len, 0, &n);
    buf_fini(&b);
    struct safetensors *s;
    struct err_info info = {0};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t start = clock_thread_ns();
    enum err err = safetensors_open_memory(file, n, &s, &info);
    double seconds = (double)(clock_thread_ns() - start) * 1e-9;
    getrusage(RUSAGE_SELF, &after);
    safetensors_close(&s);
    ck_assert_msg(err == expected && strstr(info.text, says) != NULL, "%.40s: %s: %s", head, err_code(err), info.text);
    ck_assert_msg(seconds < 5, "%.40s: %.1f s", head, seconds); /* a tenth of it when nothing else runs */
    ck_assert_msg(after.ru_maxrss - before.ru_maxrss < 200 << 10, "%.40s: %ld MiB", head,
                  (after.ru_maxrss - before.ru_maxrss) >> 10);
    free(file);
}

START_TEST(large_headers_cost_little)
{
    open_repeated("{\"t\":", "[", 1000000, "", ERR_JSON_TOO_DEEP, "at most 4 deep");
    open_repeated("", "{\"t\":", 1000000, "", ERR_JSON_TOO_DEEP, "at most 4 deep");
    open_repeated("{\"", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1000000 - 1, "\":{}}", ERR_BAD_TENSOR_NAME, "32999967");
    open_repeated("{\"\":0", ",\"tensor\":{\"a\":0}", 1000000, "}", ERR_COUNT_EXCEEDS_FILE, "found 1000001");
    open_repeated("{\"\":0", ",\"t\":0", SAFETENSORS_MAX_TENSORS + 1, "}", ERR_COUNT_EXCEEDS_FILE, "found 65538");
    open_repeated("{\"t\":{\"shape\":[0", ",0", 10000000, "]}}", ERR_BAD_HEADER, "found 10000001");
}
END_TEST

/* Whatever one byte of a good file becomes: an answer, and no byte beyond the file read (this runs under ASan too). */
START_TEST(any_byte_may_be_anything)
{
    static const char header[] = "{\"t\":" T("\"F32\"", "[2,3]", "[0,24]") "}";
    size_t n;
    unsigned char *file = make_file(header, sizeof header - 1, DATA_BYTES, &n);
    int n_good = 0;
    for (size_t at = 0; at < n - DATA_BYTES; at++) {
        unsigned char was = file[at];
        for (int v = 0; v < 256; v++) {
            struct safetensors *s;
            file[at] = (unsigned char)v;
            n_good += safetensors_open_memory(file, n, &s, NULL) == ERR_OK;
            safetensors_close(&s);
        }
        file[at] = was;
    }
    ck_assert_int_gt(n_good, (int)(n - DATA_BYTES)); /* itself at least, and other names */
    free(file);
}
END_TEST

Suite *safetensors_suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *c = tcase_create("safetensors");
    tcase_add_test(c, tensors_come_back_in_the_order_of_their_data);
    tcase_add_test(c, a_bad_header_gets_its_code);
    tcase_add_test(c, zeros_after_the_header_are_garbage);
    tcase_add_test(c, a_bad_length_gets_its_code);
    tcase_add_test(c, large_headers_cost_little);
    tcase_add_test(c, any_byte_may_be_anything);
    suite_add_tcase(s, c);
    return s;
}
