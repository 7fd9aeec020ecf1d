/* The GGUF reader on good files: every value type comes back, lookups find what is there, getters check types. Files
 * that are wrong are gguf_bad_test.c's. */
#include "engine/format/gguf.h"

#include "engine/base/ck.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *gguf_suite(void);

static struct buf bytes;

static void setup(void) { buf_init(&bytes, 0, MEM_GENERAL); }
static void teardown(void) { buf_fini(&bytes); }

/* One key of each type, arrays of each, empty ones, and three tensors. */
static void write_all(struct gguf_writer *w)
{
    static const char *const words[] = {"a", "", "\xFF\x00z", "\xE2\x82\xAC"};
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_scalar(w, "t.u8", GGUF_U8, &(uint8_t){200});
    gguf_writer_scalar(w, "t.i8", GGUF_I8, &(int8_t){-100});
    gguf_writer_scalar(w, "t.u16", GGUF_U16, &(uint16_t){60000});
    gguf_writer_scalar(w, "t.i16", GGUF_I16, &(int16_t){-30000});
    gguf_writer_u32(w, "t.u32", 4000000000u);
    gguf_writer_scalar(w, "t.i32", GGUF_I32, &(int32_t){-2000000000});
    gguf_writer_f32(w, "t.f32", 0.1f);
    gguf_writer_bool(w, "t.yes", true);
    gguf_writer_bool(w, "t.no", false);
    gguf_writer_u64(w, "t.u64", UINT64_MAX);
    gguf_writer_scalar(w, "t.i64", GGUF_I64, &(int64_t){INT64_MIN});
    gguf_writer_scalar(w, "t.f64", GGUF_F64, &(double){0.1});
    gguf_writer_str_n(w, "t.bytes", "a\0\xFF\n", 4);
    gguf_writer_str(w, "t.empty", "");
    gguf_writer_str_array(w, "t.words", 4, words);
    gguf_writer_str_array(w, "t.no_words", 0, words);
    gguf_writer_array(w, "t.i16s", GGUF_I16, 3, (int16_t[]){-1, 2, -3});
    gguf_writer_array(w, "t.one_u32", GGUF_U32, 1, (uint32_t[]){7});
    gguf_writer_array(w, "t.same_i32s", GGUF_I32, 3, (int32_t[]){5, 5, 5});
    gguf_writer_array(w, "t.no_u64s", GGUF_U64, 0, NULL);
    gguf_writer_array(w, "t.u64s", GGUF_U64, 2, (uint64_t[]){7, UINT64_MAX});
    gguf_writer_array(w, "t.f64s", GGUF_F64, 2, (double[]){0.25, -1e300});
    gguf_writer_array(w, "t.bools", GGUF_BOOL, 3, (uint8_t[]){1, 0, 1});
    gguf_writer_f32(w, "t.nan", NAN);
    float data[6] = {1, 2, 3, 4, 5, 6};
    gguf_writer_tensor(w, "token_embd.weight", DTYPE_F32, 2, (uint64_t[]){3, 2}, data);
    gguf_writer_tensor(w, "blk.0.attn_q.weight", DTYPE_Q4_0, 2, (uint64_t[]){64, 3}, NULL);
    gguf_writer_tensor(w, "a", DTYPE_I8, 4, (uint64_t[]){5, 1, 1, 1}, "hello");
}

static struct gguf *open_bytes(void)
{
    struct gguf *g = NULL;
    struct err_info info = {0};
    ck_assert_int_eq(buf_ok(&bytes), ERR_OK);
    enum err err = gguf_open_memory(bytes.data, bytes.len, &g, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    return g;
}

static struct gguf *open_all(uint32_t version)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    w.version = version;
    write_all(&w);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    return open_bytes();
}

START_TEST(scalars_of_every_type_come_back)
{
    struct gguf *g = open_all(_i == 0 ? 2 : 3);
    ck_assert_uint_eq(gguf_version(g), _i == 0 ? 2 : 3);
    ck_assert_uint_eq(gguf_alignment(g), 32);
    ck_assert_uint_eq(gguf_file_bytes(g), bytes.len);
    static const struct {
        const char *key;
        enum gguf_type type;
        int64_t value;
    } ints[] = {
        {"t.u8", GGUF_U8, 200},         {"t.i8", GGUF_I8, -100},         {"t.u16", GGUF_U16, 60000},
        {"t.i16", GGUF_I16, -30000},    {"t.u32", GGUF_U32, 4000000000}, {"t.i32", GGUF_I32, -2000000000},
        {"t.u64", GGUF_U64, INT64_MAX}, {"t.i64", GGUF_I64, INT64_MIN},  {"t.yes", GGUF_BOOL, 1},
        {"t.no", GGUF_BOOL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        const struct gguf_kv *kv = gguf_find(g, ints[i].key);
        ck_assert_ptr_nonnull(kv);
        ck_assert_int_eq(kv->type, ints[i].type);
        ck_assert_int_eq(kv->elem_type, ints[i].type);
        ck_assert_uint_eq(kv->n, 1);
        ck_assert_int_eq(gguf_elem_i64(kv, 0), ints[i].value);
    }
    ck_assert(gguf_elem_f64(gguf_find(g, "t.f32"), 0) == (double)0.1f);
    ck_assert(gguf_elem_f64(gguf_find(g, "t.f64"), 0) == 0.1);
    struct gguf_str s;
    ck_assert_int_eq(gguf_get_str(g, "t.bytes", &s, NULL), ERR_OK);
    ck_assert_uint_eq(s.len, 4);
    ck_assert_mem_eq(s.data, "a\0\xFF\n", 4);
    ck_assert_int_eq(gguf_get_str(g, "t.empty", &s, NULL), ERR_OK);
    ck_assert_uint_eq(s.len, 0);
    ck_assert_ptr_nonnull(s.data);
    gguf_close(&g);
    ck_assert_ptr_null(g);
}
END_TEST

START_TEST(arrays_come_back_also_empty_ones)
{
    struct gguf *g = open_all(3);
    const struct gguf_kv *kv = NULL;
    static const char *const words[] = {"a", "", "\xFF", "\xE2\x82\xAC"}; /* the writer cuts the third at its NUL */
    ck_assert_int_eq(gguf_get_array(g, "t.words", GGUF_STRING, &kv, NULL), ERR_OK);
    ck_assert_uint_eq(kv->n, 4);
    const unsigned char *cursor = kv->data;
    for (size_t i = 0; i < 4; i++) {
        struct gguf_str s = gguf_next_str(&cursor);
        ck_assert_uint_eq(s.len, strlen(words[i]));
        ck_assert_mem_eq(s.data, words[i], s.len);
    }
    ck_assert_int_eq(gguf_get_array(g, "t.i16s", GGUF_I16, &kv, NULL), ERR_OK);
    ck_assert_uint_eq(kv->n, 3);
    ck_assert_int_eq(gguf_elem_i64(kv, 2), -3);
    ck_assert(gguf_elem_f64(kv, 0) == -1.0);
    ck_assert_int_eq(gguf_get_array(g, "t.u64s", GGUF_U64, &kv, NULL), ERR_OK);
    ck_assert_int_eq(gguf_elem_i64(kv, 0), 7);
    ck_assert_int_eq(gguf_elem_i64(kv, 1), INT64_MAX);
    ck_assert_int_eq(gguf_get_array(g, "t.f64s", GGUF_F64, &kv, NULL), ERR_OK);
    ck_assert(gguf_elem_f64(kv, 1) == -1e300);
    ck_assert_int_eq(gguf_get_array(g, "t.bools", GGUF_BOOL, &kv, NULL), ERR_OK);
    ck_assert_int_eq(gguf_elem_i64(kv, 2), 1);
    ck_assert_int_eq(gguf_get_array(g, "t.no_words", GGUF_STRING, &kv, NULL), ERR_OK);
    ck_assert_uint_eq(kv->n, 0);
    ck_assert_int_eq(gguf_get_array(g, "t.no_u64s", GGUF_U64, &kv, NULL), ERR_OK);
    ck_assert_uint_eq(kv->n, 0);
    gguf_close(&g);
}
END_TEST

START_TEST(tensors_are_found_with_shape_and_data)
{
    struct gguf *g = open_all(3);
    ck_assert_uint_eq(gguf_n_tensors(g), 3);
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    ck_assert_ptr_eq(t, gguf_tensor_at(g, 0));
    ck_assert_int_eq(t->type, DTYPE_F32);
    ck_assert_int_eq(t->n_dims, 2);
    ck_assert_uint_eq(t->dims[0], 3);
    ck_assert_uint_eq(t->dims[1], 2);
    ck_assert_uint_eq(t->dims[2], 1);
    ck_assert_uint_eq(t->dims[3], 1);
    ck_assert_uint_eq(t->bytes, 24);
    ck_assert_uint_eq(t->offset, gguf_data_offset(g));
    ck_assert_uint_eq(t->offset % 32, 0);
    ck_assert_ptr_eq(t->data, bytes.data + t->offset);
    float first[6];
    memcpy(first, t->data, sizeof first);
    ck_assert(first[5] == 6.0f);
    t = gguf_find_tensor(g, "blk.0.attn_q.weight");
    ck_assert_uint_eq(t->bytes, 3 * 2 * 18);
    t = gguf_find_tensor(g, "a");
    ck_assert_int_eq(t->n_dims, 4);
    ck_assert_mem_eq(t->data, "hello", 5);
    ck_assert_ptr_null(gguf_find_tensor(g, "b"));
    ck_assert_ptr_null(gguf_find_tensor(g, ""));
    gguf_close(&g);
}
END_TEST

START_TEST(getters_take_any_integer_and_check_the_rest)
{
    struct gguf *g = open_all(3);
    struct err_info info = {0};
    uint64_t u = 1;
    ck_assert_int_eq(gguf_get_u64(g, "t.u8", &u, NULL), ERR_OK);
    ck_assert_uint_eq(u, 200);
    ck_assert_int_eq(gguf_get_u64(g, "t.u64", &u, NULL), ERR_OK);
    ck_assert_uint_eq(u, UINT64_MAX);
    ck_assert_int_eq(gguf_get_u64(g, "t.i8", &u, &info), ERR_BAD_HPARAM);
    ck_assert_ptr_nonnull(strstr(info.text, "t.i8"));
    ck_assert_ptr_nonnull(strstr(info.text, "-100"));
    ck_assert_uint_eq(info.offset, gguf_find(g, "t.i8")->offset);
    ck_assert_int_eq(gguf_get_u64(g, "t.gone", &u, &info), ERR_BAD_HPARAM);
    ck_assert_str_eq(info.where, "t.gone");
    ck_assert_int_eq(gguf_get_u64_or(g, "t.gone", 9, &u, NULL), ERR_OK);
    ck_assert_uint_eq(u, 9);
    ck_assert_int_eq(gguf_get_u64(g, "t.one_u32", &u, NULL), ERR_OK); /* arrays of one value are numbers, too */
    ck_assert_uint_eq(u, 7);
    ck_assert_int_eq(gguf_get_u64(g, "t.same_i32s", &u, NULL), ERR_OK);
    ck_assert_uint_eq(u, 5);
    static const char *const not_ints[] = {"t.f32",   "t.yes",     "t.empty", "t.i16s",
                                           "t.words", "t.no_u64s", "t.u64s",  "t.bools"};
    for (size_t i = 0; i < ARRAY_LEN(not_ints); i++) {
        ck_assert_int_eq(gguf_get_u64(g, not_ints[i], &u, &info), ERR_BAD_TYPE);
    }
    double d = 0;
    ck_assert_int_eq(gguf_get_f64(g, "t.f64", &d, NULL), ERR_OK);
    ck_assert(d == 0.1);
    ck_assert_int_eq(gguf_get_f64_or(g, "t.gone", 2.5, &d, NULL), ERR_OK);
    ck_assert(d == 2.5);
    ck_assert_int_eq(gguf_get_f64(g, "t.nan", &d, NULL), ERR_BAD_HPARAM);
    ck_assert_int_eq(gguf_get_f64(g, "t.u8", &d, &info), ERR_BAD_TYPE);
    ck_assert_ptr_nonnull(strstr(info.text, "u8"));
    bool b = false;
    ck_assert_int_eq(gguf_get_bool_or(g, "t.yes", false, &b, NULL), ERR_OK);
    ck_assert(b);
    ck_assert_int_eq(gguf_get_bool_or(g, "t.gone", true, &b, NULL), ERR_OK);
    ck_assert(b);
    ck_assert_int_eq(gguf_get_bool_or(g, "t.u8", true, &b, NULL), ERR_BAD_TYPE);
    struct gguf_str s;
    ck_assert_int_eq(gguf_get_str_or_null(g, "t.gone", &s, NULL), ERR_OK);
    ck_assert_ptr_null(s.data);
    ck_assert_int_eq(gguf_get_str(g, "t.gone", &s, NULL), ERR_BAD_HPARAM);
    ck_assert_int_eq(gguf_get_str(g, "t.u8", &s, NULL), ERR_BAD_TYPE);
    const struct gguf_kv *kv;
    ck_assert_int_eq(gguf_get_array(g, "t.i16s", GGUF_U16, &kv, &info), ERR_BAD_TYPE);
    ck_assert_ptr_nonnull(strstr(info.text, "array of i16"));
    ck_assert_int_eq(gguf_get_array(g, "t.u8", GGUF_U8, &kv, NULL), ERR_BAD_TYPE);
    ck_assert_int_eq(gguf_get_array(g, "t.gone", GGUF_U8, &kv, NULL), ERR_BAD_HPARAM);
    gguf_close(&g);
}
END_TEST

START_TEST(every_key_of_many_is_found)
{
    enum { N = 2000 };
    struct gguf_writer w;
    gguf_writer_init(&w);
    char key[32];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k.%u", i * 7919 % N); /* a permutation: 7919 is prime to N */
        gguf_writer_u32(&w, key, i);
    }
    gguf_writer_u32(&w, "K.1", 1); /* differs only in case: another key */
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    struct gguf *g = open_bytes();
    ck_assert_uint_eq(gguf_n_kv(g), N + 1);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k.%u", i * 7919 % N);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (kv == NULL || kv != gguf_kv_at(g, i) || gguf_elem_i64(kv, 0) != i) {
            ck_abort_msg("%s is not found at its place", key);
        }
    }
    ck_assert_ptr_null(gguf_find(g, "k.2000"));
    gguf_close(&g);
}
END_TEST

START_TEST(tensors_may_stand_in_any_order_and_alignment_is_kept)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_alignment(&w, 64);
    gguf_writer_tensor_record(&w, "second", 6, DTYPE_I8, 1, (uint64_t[]){3}, 64);
    gguf_writer_tensor_record(&w, "first", 5, DTYPE_I8, 1, (uint64_t[]){60}, 0);
    for (int i = 0; i < 67; i++) {
        buf_putc(&w.data, (char)i);
    }
    w.last_bytes = w.data.len;
    gguf_writer_finish(&w, &bytes);
    struct gguf *g = open_bytes();
    ck_assert_uint_eq(gguf_alignment(g), 64);
    ck_assert_uint_eq(gguf_data_offset(g) % 64, 0);
    ck_assert_int_eq(*(const char *)gguf_find_tensor(g, "second")->data, 64);
    ck_assert_int_eq(*(const char *)gguf_find_tensor(g, "first")->data, 0);
    gguf_close(&g);
    gguf_writer_fini(&w);
}
END_TEST

START_TEST(padding_after_the_last_tensor_is_fine_and_so_is_no_tensor)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_tensor(&w, "t", DTYPE_I8, 1, (uint64_t[]){1}, NULL);
    w.is_last_padded = true;
    gguf_writer_finish(&w, &bytes);
    struct gguf *g = open_bytes();
    gguf_close(&g);
    gguf_writer_fini(&w);
    gguf_writer_init(&w);
    gguf_writer_finish(&w, &bytes);
    ck_assert_uint_eq(bytes.len, 24);
    g = open_bytes();
    ck_assert_uint_eq(gguf_n_kv(g) + gguf_n_tensors(g), 0);
    ck_assert(gguf_data_offset(g) <= gguf_file_bytes(g));
    ck_assert_ptr_null(gguf_find(g, "x"));
    gguf_close(&g);
    gguf_writer_fini(&w);
}
END_TEST

/* a * b as 128 bits in two halves, by 32-bit steps: what the byte counts are compared with. */
static void wide_mul(uint64_t a, uint64_t b, uint64_t *hi, uint64_t *lo)
{
    uint64_t a0 = a & 0xFFFFFFFF, a1 = a >> 32, b0 = b & 0xFFFFFFFF, b1 = b >> 32;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32);
    uint64_t mid2 = a0 * b1 + (mid & 0xFFFFFFFF);
    *hi = a1 * b1 + (mid >> 32) + (mid2 >> 32);
    *lo = mid2 << 32 | (a0 * b0 & 0xFFFFFFFF);
}

START_TEST(tensor_bytes_agree_with_wide_arithmetic)
{
    static const uint64_t sizes[] = {
        32,         256,        768,        1ull << 31, 1ull << 32,      (1ull << 32) + 256,
        1ull << 40, 1ull << 58, 1ull << 62, 1ull << 63, UINT64_MAX - 255};
    int fitting = 0, refused = 0;
    for (uint32_t id = 0; id < DTYPE_COUNT; id++) {
        const struct dtype_info *t = dtype_info(id);
        for (size_t i = 0; t != NULL && i < ARRAY_LEN(sizes) * ARRAY_LEN(sizes); i++) {
            uint64_t n = sizes[i / ARRAY_LEN(sizes)], rows = sizes[i % ARRAY_LEN(sizes)];
            uint64_t row_hi, row_lo, hi, lo, cross_hi, cross_lo, bytes_found = 0;
            wide_mul(n / t->block_elems, t->block_bytes, &row_hi, &row_lo);
            wide_mul(row_lo, rows, &hi, &lo);
            wide_mul(row_hi, rows, &cross_hi, &cross_lo);
            bool fits = n % t->block_elems == 0 && hi == 0 && cross_hi == 0 && cross_lo == 0;
            bool said = dtype_tensor_bytes((enum dtype)id, n, rows, &bytes_found);
            if (said != fits || (fits && bytes_found != lo)) {
                ck_abort_msg("%s: %llu x %llu", t->name, (unsigned long long)n, (unsigned long long)rows);
            }
            fitting += fits;
            refused += !fits;
        }
    }
    ck_assert_int_gt(fitting, 500);
    ck_assert_int_gt(refused, 500);
}
END_TEST

START_TEST(a_file_on_disk_is_mapped_and_watched)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    write_all(&w);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    char path[] = "/tmp/infcgi-gguf-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(gguf_writer_save(&bytes, path));
    struct gguf *g = NULL;
    struct err_info info = {0};
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(gguf_n_tensors(g), 3);
    ck_assert(!io_map_shrunk(gguf_map(g)));
    ck_assert_int_eq(truncate(path, (off_t)bytes.len - 1), 0);
    ck_assert(io_map_shrunk(gguf_map(g)) && gguf_shrunk(g));
    gguf_close(&g);
    ck_assert_int_eq(gguf_open(path, &g, &info), ERR_TRUNCATED);
    unlink(path);
}
END_TEST

/* Writes an NVFP4 weight of 2 x 3 rows and its factors, n_factors of `type`. */
static void write_factors(enum dtype type, uint64_t n_factors, const void *factors)
{
    static const unsigned char block[36] = {0x38, 0x38, 0x38, 0x38, 0x22}; /* scales of 1; inputs 0 and 8 are 1 */
    unsigned char rows[6 * sizeof block];
    struct gguf_writer w;
    for (int i = 0; i < 6; i++) {
        memcpy(rows + (size_t)i * sizeof block, block, sizeof block);
    }
    bytes.len = 0;
    gguf_writer_init(&w);
    gguf_writer_tensor(&w, "a", DTYPE_I8, 1, (uint64_t[]){5}, "hello");
    gguf_writer_tensor(&w, "x.scale", type, 1, &n_factors, factors);
    gguf_writer_tensor(&w, "x.weight", DTYPE_NVFP4, 3, (uint64_t[]){64, 3, 2}, rows);
    gguf_writer_tensor(&w, "y.scale", DTYPE_F32, 1, (uint64_t[]){1}, factors);
    gguf_writer_tensor(&w, "y.weight", DTYPE_F32, 1, (uint64_t[]){1}, factors);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
}

START_TEST(factors_of_nvfp4_multiply_their_weight)
{
    static const float two[] = {0.5f, 3};
    for (uint64_t n = 1; n <= 2; n++) {
        float row[64];
        write_factors(DTYPE_F32, n, two);
        struct gguf *g = open_bytes();
        ck_assert_uint_eq(gguf_n_tensors(g), 4); /* only types other than NVFP4 keep theirs */
        ck_assert_ptr_null(gguf_find_tensor(g, "x.scale"));
        ck_assert_ptr_nonnull(gguf_find_tensor(g, "y.scale"));
        const struct gguf_tensor *t = gguf_find_tensor(g, "x.weight");
        ck_assert_int_eq(t->type, DTYPE_NVFP4_SCALED);
        for (uint32_t i = 0; i < 6; i++) {
            t->source->ops->read(t->source, i, 0, 64, row);
            float want = n == 1 ? two[0] : two[i / 3];
            ck_assert(row[0] == want && row[1] == 0 && row[8] == want);
        }
        gguf_close(&g);
    }
}
END_TEST

static void refuse_factors(enum dtype type, uint64_t n, const void *factors, enum err want, const char *text)
{
    struct gguf *g = NULL;
    struct err_info info = {0};
    write_factors(type, n, factors);
    enum err err = gguf_open_memory(bytes.data, bytes.len, &g, &info);
    ck_assert_msg(err == want && strstr(info.text, text) != NULL, "%s: %s", err_code(err), info.text);
    ck_assert_ptr_null(g);
}

START_TEST(factors_that_do_not_fit_are_named)
{
    static const float good[3] = {1, 1, 1}, nan[2] = {1, NAN}, huge[1] = {300}, tiny[1] = {1e-9f};
    refuse_factors(DTYPE_F32, 3, good, ERR_BAD_SHAPE, "tensor 'x.scale': expected 1 element, or 2 for each");
    refuse_factors(DTYPE_F16, 1, good, ERR_UNSUPPORTED_TYPE, "tensor 'x.scale': expected F32, found F16");
    refuse_factors(DTYPE_F32, 2, nan, ERR_BAD_HPARAM, "found nan in element 1");
    refuse_factors(DTYPE_F32, 1, huge, ERR_BAD_HPARAM, "found 300 in element 0");
    refuse_factors(DTYPE_F32, 1, tiny, ERR_BAD_HPARAM, "found 1e-09 in element 0");
}
END_TEST

/* Writes two weights of Q2_0 with other tensors between them, in blocks of 64 or 128. */
static void write_q2_0(enum dtype type, uint64_t n_in, bool is_padded)
{
    static const unsigned char code[] = {0, 0x3C, 0xE4}; /* d 1; inputs -1, 0, 1, 2, then -1 */
    unsigned char row[2 * 34 * 4] = {0};
    uint32_t block = dtype_info(type)->block_bytes;
    struct gguf_writer w;
    bytes.len = 0;
    for (uint64_t i = 0; i < n_in / dtype_info(type)->block_elems; i++) {
        memcpy(row + i * block, code, sizeof code);
    }
    gguf_writer_init(&w);
    w.is_last_padded = is_padded;
    gguf_writer_tensor(&w, "x", type, 2, (uint64_t[]){n_in, 40}, NULL);
    gguf_writer_tensor(&w, "a", DTYPE_I8, 1, (uint64_t[]){5}, "hello");
    gguf_writer_tensor(&w, "y", type, 1, &n_in, row);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
}

START_TEST(both_layouts_of_q2_0_are_told_by_their_sizes)
{
    static const enum dtype types[] = {DTYPE_Q2_0, DTYPE_Q2_0_128};
    for (int i = 0; i < 4; i++) {
        float row[256];
        enum dtype type = types[i / 2];
        uint32_t block = dtype_info(type)->block_elems;
        write_q2_0(type, 256, i % 2 != 0);
        struct gguf *g = open_bytes();
        const struct gguf_tensor *x = gguf_find_tensor(g, "x"), *y = gguf_find_tensor(g, "y");
        ck_assert(x->type == type && y->type == type);
        y->source->ops->read(y->source, 0, 0, 256, row);
        for (uint32_t at = 0; at < 256; at++) {
            ck_assert(row[at] == (at % block < 4 ? (float)(at % block) - 1 : -1));
        }
        gguf_close(&g);
    }
}
END_TEST

START_TEST(layouts_of_q2_0_that_contradict_are_refused)
{
    struct gguf *g = NULL;
    struct err_info info = {0};
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_tensor(&w, "x", DTYPE_Q2_0_128, 2, (uint64_t[]){128, 64}, NULL);
    gguf_writer_tensor(&w, "y", DTYPE_Q2_0, 2, (uint64_t[]){64, 64}, NULL);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(gguf_open_memory(bytes.data, bytes.len, &g, &info), ERR_BAD_SHAPE);
    ck_assert_ptr_nonnull(strstr(info.text, "tensor 'y': expected rows of a multiple of 128 elements"));
    write_q2_0(DTYPE_Q2_0_128, 256, false);
    ck_assert_int_eq(gguf_open_memory(bytes.data, bytes.len - 1, &g, &info), ERR_TRUNCATED);
}
END_TEST

Suite *gguf_suite(void)
{
    Suite *s = suite_create("gguf");
    TCase *c = tcase_create("gguf");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, scalars_of_every_type_come_back, 0, 2);
    tcase_add_test(c, arrays_come_back_also_empty_ones);
    tcase_add_test(c, tensors_are_found_with_shape_and_data);
    tcase_add_test(c, getters_take_any_integer_and_check_the_rest);
    tcase_add_test(c, every_key_of_many_is_found);
    tcase_add_test(c, tensors_may_stand_in_any_order_and_alignment_is_kept);
    tcase_add_test(c, padding_after_the_last_tensor_is_fine_and_so_is_no_tensor);
    tcase_add_test(c, tensor_bytes_agree_with_wide_arithmetic);
    tcase_add_test(c, a_file_on_disk_is_mapped_and_watched);
    tcase_add_test(c, factors_of_nvfp4_multiply_their_weight);
    tcase_add_test(c, factors_that_do_not_fit_are_named);
    tcase_add_test(c, both_layouts_of_q2_0_are_told_by_their_sizes);
    tcase_add_test(c, layouts_of_q2_0_that_contradict_are_refused);
    suite_add_tcase(s, c);
    return s;
}
