/* SafeTensors files: what is in a good one, and one code for each way a file can lie (rows S01 to S10 of the catalogue
 * of bad inputs). */
#include "engine/base/mem.h"
#include "engine/format/safetensors.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *safetensors_suite(void);

enum { DATA_BYTES = 24 };

/* A file with this header and so many bytes of data behind it, 0, 1, 2 ..; in memory of exactly its size. */
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
    static const struct {
        const char *row, *header;
        enum err err;
    } cases[] = {
        {"S03 utf-8", ONE(T("\"F32\"", "[6]", "[0,24]")) "\xff", ERR_BAD_HEADER},
        {"S03 begins", " {}", ERR_BAD_HEADER},
        {"S03 an array", "[]", ERR_BAD_HEADER},
        {"S03 garbage", "{} x", ERR_BAD_HEADER},
        {"S03 cut", "{\"t\":{", ERR_BAD_HEADER},
        {"S03 a number for an entry", ONE("7"), ERR_BAD_HEADER},
        {"S03 metadata", "{\"__metadata__\":[]}", ERR_BAD_HEADER},
        {"S04 deep", ONE("{\"shape\":[[[[[[0]]]]]]}"), ERR_JSON_TOO_DEEP},
        {"S05 a tensor twice", "{\"t\":{},\"t\":{}}", ERR_DUPLICATE_KEY},
        {"S05 metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", ERR_DUPLICATE_KEY},
        {"S05 dtype twice", ONE("{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), ERR_DUPLICATE_KEY},
        {"S06 unknown", ONE(T("\"F33\"", "[6]", "[0,24]")), ERR_BAD_DTYPE},
        {"S06 lower case", ONE(T("\"f32\"", "[6]", "[0,24]")), ERR_BAD_DTYPE},
        {"S06 a number", ONE(T("32", "[6]", "[0,24]")), ERR_BAD_DTYPE},
        {"S06 none", ONE("{\"shape\":[6],\"data_offsets\":[0,24]}"), ERR_BAD_DTYPE},
        {"S07 negative", ONE(T("\"F32\"", "[-6]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 a fraction", ONE(T("\"F32\"", "[1.5,4]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 wraps", ONE(T("\"F32\"", "[4294967296,4294967296]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 large", ONE(T("\"F32\"", "[1e400]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 2^64", ONE(T("\"F32\"", "[18446744073709551616]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 9 dims", ONE(T("\"F32\"", "[1,1,1,1,1,1,1,1,6]", "[0,24]")), ERR_BAD_SHAPE},
        {"S07 text", ONE(T("\"F32\"", "\"6\"", "[0,24]")), ERR_BAD_SHAPE},
        {"S08 one", ONE(T("\"F32\"", "[6]", "[24]")), ERR_BAD_OFFSET},
        {"S08 three", ONE(T("\"F32\"", "[6]", "[0,8,24]")), ERR_BAD_OFFSET},
        {"S08 reversed", ONE(T("\"F32\"", "[6]", "[24,0]")), ERR_BAD_OFFSET},
        {"S08 negative", ONE(T("\"F32\"", "[6]", "[-1,23]")), ERR_BAD_OFFSET},
        {"S08 beyond the end", ONE(T("\"F32\"", "[6]", "[1,25]")), ERR_TRUNCATED},
        {"S09 hole in front", ONE(T("\"F32\"", "[5]", "[4,24]")), ERR_TENSOR_OVERLAP},
        {"S09 tail", ONE(T("\"F32\"", "[5]", "[0,20]")), ERR_TENSOR_OVERLAP},
        {"S09 overlap by a byte", "{\"t\":" T("\"U8\"", "[12]", "[0,12]") ",\"u\":" T("\"U8\"", "[13]", "[11,24]") "}",
         ERR_TENSOR_OVERLAP},
        {"S09 hole of a byte", "{\"t\":" T("\"U8\"", "[12]", "[0,12]") ",\"u\":" T("\"U8\"", "[11]", "[13,24]") "}",
         ERR_TENSOR_OVERLAP},
        {"S10 longer", ONE(T("\"F32\"", "[5]", "[0,24]")), ERR_SIZE_MISMATCH},
        {"S10 empty", ONE(T("\"F32\"", "[0]", "[0,24]")), ERR_SIZE_MISMATCH},
        {"no name", "{\"\":" T("\"F32\"", "[6]", "[0,24]") "}", ERR_BAD_TENSOR_NAME},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n, live = mem_live();
        unsigned char *file = make_file(cases[i].header, strlen(cases[i].header), DATA_BYTES, &n);
        struct safetensors *s = (struct safetensors *)1;
        struct err_info info = {0};
        enum err err = safetensors_open_memory(file, n, &s, &info);
        ck_assert_msg(err == cases[i].err && info.code == err, "%s: expected %s, found %s: %s", cases[i].row,
                      err_code(cases[i].err), err_code(err), info.text);
        ck_assert(s == NULL && info.text[0] != '\0' && mem_live() == live);
        free(file);
    }
}
END_TEST

START_TEST(a_bad_length_gets_its_code)
{
    static const char header[] = "{}";
    static const uint64_t lengths[] = {0, 1, 3, 100000001, 1ull << 63, UINT64_MAX};
    size_t n;
    struct safetensors *s;
    unsigned char *file = make_file(header, 2, 0, &n);
    ck_assert_int_eq(safetensors_open_memory(file, n, &s, NULL), ERR_OK); /* no tensors, no data */
    ck_assert_uint_eq(safetensors_n_tensors(s), 0);
    safetensors_close(&s);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_int_eq(safetensors_open_memory(file, i, &s, NULL), ERR_TRUNCATED_HEADER);
    }
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        memcpy(file, &lengths[i], sizeof lengths[i]);
        ck_assert_int_eq(safetensors_open_memory(file, n, &s, NULL), ERR_BAD_HEADER_LENGTH);
    }
    free(file);
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
    tcase_set_timeout(c, 60);
    tcase_add_test(c, tensors_come_back_in_the_order_of_their_data);
    tcase_add_test(c, a_bad_header_gets_its_code);
    tcase_add_test(c, a_bad_length_gets_its_code);
    tcase_add_test(c, any_byte_may_be_anything);
    suite_add_tcase(s, c);
    return s;
}
