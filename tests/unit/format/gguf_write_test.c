/* The writer: what is written reads back the same; what fails leaves nothing behind. */
#include "engine/format/gguf_write.h"

#include "engine/base/mem.h"
#include "engine/format/gguf_build.h"
#include "tests/support/folder.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *gguf_write_suite(void);

enum { BIG = 100000 };

static char path[64];

static void setup(void) { snprintf(path, sizeof path, "%s", folder_file("m.gguf")); }

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(folder_n_files(), 0); /* nothing else is left */
    folder_remove();
}

/* --- a model with every kind of key and tensor ------------------------------------------------------------------- */

static float matrix[6][64], vector[5];
static unsigned char quantised[BIG / 32 * 34];

static struct gguf *make_model(uint32_t alignment)
{
    static const char *const strings[] = {"", "a", "line\nline", "\xC3\xA4"};
    struct gguf_build b;
    struct gguf *g;
    gguf_build_init(&b);
    gguf_build_str(&b, "general.architecture", "llama", 5);
    if (alignment != 0) {
        gguf_build_u32(&b, "general.alignment", alignment);
    }
    gguf_build_scalar(&b, "i8", GGUF_I8, &(int8_t){-3});
    gguf_build_scalar(&b, "u64", GGUF_U64, &(uint64_t){UINT64_MAX});
    gguf_build_scalar(&b, "f64", GGUF_F64, &(double){0.1});
    gguf_build_f32(&b, "f32", 0.5f);
    gguf_build_bool(&b, "bool", true);
    gguf_build_array(&b, "i16s", GGUF_I16, 3, (int16_t[]){1, -2, 3});
    gguf_build_array(&b, "nothing", GGUF_F32, 0, NULL);
    unsigned char *at = gguf_build_strs(&b, "strings", ARRAY_LEN(strings), 0 + 1 + 9 + 2);
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        gguf_build_put_str(&at, strings[i], strlen(strings[i]));
    }
    for (size_t i = 0; i < sizeof quantised; i++) {
        quantised[i] = (unsigned char)(i * 7);
    }
    for (int i = 0; i < 6 * 64; i++) {
        matrix[i / 64][i % 64] = (float)i;
    }
    gguf_build_tensor(&b, "vector",
                      &(struct gguf_tensor){.n_dims = 1, .dims = {5, 1, 1, 1}, .data = vector, .bytes = sizeof vector});
    gguf_build_tensor(
        &b, "stack", &(struct gguf_tensor){.n_dims = 3, .dims = {64, 2, 3, 1}, .data = matrix, .bytes = sizeof matrix});
    gguf_build_tensor(&b, "quantised",
                      &(struct gguf_tensor){.type = DTYPE_Q8_0,
                                            .n_dims = 2,
                                            .dims = {32, BIG / 32, 1, 1},
                                            .data = quantised,
                                            .bytes = sizeof quantised});
    struct err_info info = {0};
    ck_assert_msg(gguf_build_finish(&b, NULL, &g, &info) == ERR_OK, "%s", info.text);
    return g;
}

static void check_same(const struct gguf *a, const struct gguf *b)
{
    ck_assert_uint_eq(gguf_n_kv(a), gguf_n_kv(b));
    ck_assert_uint_eq(gguf_n_tensors(a), gguf_n_tensors(b));
    for (size_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i), *y = gguf_kv_at(b, i);
        ck_assert(x->key.len == y->key.len && memcmp(x->key.data, y->key.data, x->key.len) == 0);
        ck_assert(x->type == y->type && x->elem_type == y->elem_type && x->n == y->n);
        ck_assert_uint_eq(gguf_value_bytes(x), gguf_value_bytes(y));
        ck_assert_int_eq(memcmp(x->data, y->data, (size_t)gguf_value_bytes(x)), 0);
    }
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_at(b, i);
        ck_assert(x->name.len == y->name.len && memcmp(x->name.data, y->name.data, x->name.len) == 0);
        ck_assert(x->type == y->type && x->n_dims == y->n_dims && x->bytes == y->bytes);
        ck_assert_mem_eq(x->dims, y->dims, sizeof x->dims);
        ck_assert_mem_eq(x->data, y->data, x->bytes);
    }
}

static enum err write_it(const struct gguf *g, bool may_replace, struct err_info *info)
{
    return gguf_write(path, g, &(struct gguf_write_options){.may_replace = may_replace}, info);
}

START_TEST(what_is_written_reads_back)
{
    static const uint32_t alignments[] = {0, 8, 64, 4096};
    struct err_info info = {0};
    for (size_t i = 0; i < ARRAY_LEN(alignments); i++) {
        struct gguf *g = make_model(alignments[i]), *back;
        ck_assert_msg(write_it(g, i > 0, &info) == ERR_OK, "%s", info.text);
        ck_assert_msg(gguf_open(path, &back, &info) == ERR_OK, "%s", info.text);
        ck_assert_uint_eq(gguf_alignment(back), alignments[i] != 0 ? alignments[i] : 32);
        ck_assert_uint_eq(gguf_version(back), 3);
        check_same(g, back);
        gguf_close(&back);
        gguf_close(&g);
    }
    struct stat st;
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 0400) != 0);
}
END_TEST

START_TEST(what_cannot_be_written_is_said)
{
    struct gguf *g = make_model(0);
    struct err_info info = {0};
    ck_assert_int_eq(write_it(g, false, &info), ERR_OK);
    struct stat before, after;
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_int_eq(write_it(g, false, &info), ERR_FILE);
    ck_assert_msg(strstr(info.text, "found a file of that name") != NULL, "%s", info.text);
    ck_assert(stat(path, &after) == 0 && before.st_ino == after.st_ino);
    ck_assert_int_eq(write_it(g, true, &info), ERR_OK);
    static const char *const bad[] = {"/no/such/folder/m.gguf", "/dev/full/m.gguf", "/tmp", ""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        info = (struct err_info){0};
        ck_assert_int_eq(gguf_write(bad[i], g, &(struct gguf_write_options){.may_replace = true}, &info), ERR_FILE);
        ck_assert_str_ne(info.text, "");
    }
    gguf_close(&g);
    g = make_model(24); /* no power of two */
    ck_assert_int_eq(write_it(g, true, &info), ERR_BAD_ALIGNMENT);
    gguf_close(&g);
    ck_assert_int_eq(folder_n_files(), 1);
}
END_TEST

START_TEST(a_full_disk_leaves_nothing)
{
    struct gguf *g = make_model(0);
    struct err_info info = {0};
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 100; limit < 120000; limit += 40000) { /* in the directory, then in the data */
        struct rlimit small = {.rlim_cur = limit, .rlim_max = RLIM_INFINITY};
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum err err = write_it(g, false, &info);
        small.rlim_cur = RLIM_INFINITY;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        ck_assert_int_eq(err, ERR_IO);
        ck_assert_msg(strstr(info.text, strerror(EFBIG)) != NULL, "%s", info.text);
        ck_assert_int_eq(folder_n_files(), 0);
    }
    gguf_close(&g);
}
END_TEST

START_TEST(every_failing_call_leaves_nothing)
{
    struct gguf *g = make_model(0);
    struct err_info info = {0};
    int n = 0;
    for (;; n++) {
        io_fail_at(n, ENOSPC);
        enum err err = write_it(g, false, &info);
        if (!io_fault_fired()) {
            ck_assert_int_eq(err, ERR_OK);
            break;
        }
        ck_assert(err == ERR_IO || err == ERR_FILE);
        ck_assert_int_eq(folder_n_files(), n == 1); /* not emptied: not ours to remove */
        char tmp[80];
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        unlink(tmp);
    }
    ck_assert_int_ge(n, 6);
    for (long k = 0;; k++) {
        mem_fail_at(k);
        enum err err = write_it(g, true, &info);
        if (!mem_fault_fired()) {
            break;
        }
        ck_assert_int_eq(err, ERR_NOMEM);
    }
    mem_fail_at(-1);
    gguf_close(&g);
}
END_TEST

/* `fill` that gives *arg bytes of each tensor too much, or fails. */
static enum err fill(void *arg, const struct gguf_tensor *t, size_t i, struct gguf_sink *to, struct err_info *info)
{
    static const unsigned char zeros[sizeof quantised + 1];
    int more = *(int *)arg;
    if (more == 99 && i == 1) {
        return err_set(info, ERR_CANCELLED, NULL, "enough");
    }
    return gguf_sink_put(to, zeros, (size_t)t->bytes + (size_t)(more == 99 ? 0 : more), info);
}

START_TEST(data_come_from_fill)
{
    struct gguf *g = make_model(0), *back;
    struct err_info info = {0};
    static const struct {
        int more;
        enum err err;
    } rows[] = {{1, ERR_INTERNAL}, {-1, ERR_INTERNAL}, {99, ERR_CANCELLED}, {0, ERR_OK}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int more = rows[i].more;
        struct gguf_write_options o = {.fill = fill, .arg = &more};
        ck_assert_int_eq(gguf_write(path, g, &o, &info), rows[i].err);
        ck_assert_int_eq(folder_n_files(), rows[i].err == ERR_OK);
    }
    ck_assert_int_eq(gguf_open(path, &back, &info), ERR_OK);
    const struct gguf_tensor *t = gguf_find_tensor(back, "stack");
    ck_assert(t != NULL && t->bytes == 3 * 2 * sizeof matrix[0] && ((const float *)t->data)[70] == 0);
    gguf_close(&back);
    gguf_close(&g);
}
END_TEST

Suite *gguf_write_suite(void)
{
    Suite *s = suite_create("gguf_write");
    TCase *c = tcase_create("gguf_write");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, what_is_written_reads_back);
    tcase_add_test(c, what_cannot_be_written_is_said);
    tcase_add_test(c, a_full_disk_leaves_nothing);
    tcase_add_test(c, every_failing_call_leaves_nothing);
    tcase_add_test(c, data_come_from_fill);
    suite_add_tcase(s, c);
    return s;
}
