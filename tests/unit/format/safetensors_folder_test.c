/* Folders of SafeTensors files: one file, shards with an index, and indexes that lie (rows S11 and S13 of the catalogue
 * of bad inputs). */
#include "engine/base/mem.h"
#include "engine/format/safetensors_folder.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Suite *safetensors_folder_suite(void);

/* A shard with one tensor of one byte, the first of its name. */
static void write_shard(const char *name, const char *tensor)
{
    char file[256];
    int n =
        snprintf(file + 8, sizeof file - 8, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
    uint64_t length = (uint64_t)n;
    memcpy(file, &length, sizeof length);
    file[8 + n] = tensor[0];
    folder_write(name, file, 8 + (size_t)n + 1);
}

static void write_index(const char *text) { folder_write_text("model.safetensors.index.json", text); }

START_TEST(one_file_is_a_model)
{
    write_shard("model.safetensors", "x");
    struct safetensors_folder *f;
    struct err_info info = {0};
    size_t n;
    ck_assert_msg(safetensors_folder_open(folder_path(), &f, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(safetensors_folder_n_tensors(f), 1);
    ck_assert_ptr_nonnull(safetensors_folder_find(f, "x"));
    ck_assert_ptr_null(safetensors_folder_find(f, "y"));
    ck_assert(safetensors_folder_maps(f, &n)[0]->bytes > 9 && n == 1);
    safetensors_folder_close(&f);
    folder_remove();
}
END_TEST

START_TEST(shards_are_one_model)
{
    write_shard("a.safetensors", "zebra");
    write_shard("b.safetensors", "ape");
    write_index("{\"metadata\":{},\"weight_map\":{\"zebra\":\"a.safetensors\",\"ape\":\"b.safetensors\"}}");
    struct safetensors_folder *f;
    struct err_info info = {0};
    size_t n;
    ck_assert_msg(safetensors_folder_open(folder_path(), &f, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(safetensors_folder_n_tensors(f), 2);
    ck_assert_str_eq(safetensors_folder_at(f, 0)->name, "ape");
    ck_assert_int_eq(*(const char *)safetensors_folder_find(f, "zebra")->data, 'z');
    (void)safetensors_folder_maps(f, &n);
    ck_assert_uint_eq(n, 2);
    safetensors_folder_close(&f);
    folder_remove();
}
END_TEST

START_TEST(an_index_that_lies_is_refused)
{
    static const struct {
        const char *index;
        enum err err;
        const char *word;
    } cases[] = {
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}}", ERR_BAD_SHARD_INDEX, "c.safetensors: "},
        {"{\"weight_map\":{\"x\":\"..\"}}", ERR_BAD_SHARD_INDEX, "found '..'"},
        {"{\"weight_map\":{\"x\":\"\"}}", ERR_BAD_SHARD_INDEX, "found ''"},
        {"{\"weight_map\":{\"x\":\"../../etc/passwd\"}}", ERR_BAD_SHARD_INDEX, "'../../etc/passwd'"},
        {"{\"weight_map\":{\"x\":\"sub/a.safetensors\"}}", ERR_BAD_SHARD_INDEX, "'sub/a.safetensors'"},
        {"{\"weight_map\":{\"x\":\"a.safetensors\\u0000/../b\"}}", ERR_BAD_SHARD_INDEX, "'x'"},
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":\"b.safetensors\"}}", ERR_BAD_SHARD_INDEX,
         "duplicate key 'x'"},
        {"{\"weight_map\":{\"x\":null}}", ERR_BAD_SHARD_INDEX, "null"},
        {"{\"weight_map\":\"a.safetensors\"}", ERR_BAD_SHARD_INDEX, "found a string"},
        {"{\"a\":[[[[[[[[[]]]]]]]]]}", ERR_BAD_SHARD_INDEX, "at most 8 deep"},
        {"", ERR_BAD_SHARD_INDEX, "model.safetensors.index.json"},
        {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", ERR_BAD_SHARD_INDEX, "../a"},
        {"{\"weight_map\":{\"x\":\"/etc/a.safetensors\"}}", ERR_BAD_SHARD_INDEX, "/etc"},
        {"{\"weight_map\":{\"x\":\".a.safetensors\"}}", ERR_BAD_SHARD_INDEX, ".a"},
        {"{\"weight_map\":{\"x\":\"a.bin\"}}", ERR_BAD_SHARD_INDEX, "a.bin"},
        {"{\"weight_map\":{\"x\":7}}", ERR_BAD_SHARD_INDEX, "an integer"},
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"z\":\"a.safetensors\"}}", ERR_BAD_SHARD_INDEX, "'z'"},
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}", ERR_BAD_SHARD_INDEX,
         "tensor 'x': expected in one shard, found in a.safetensors and b.safetensors"},
        {"{\"weight_map\":[]}", ERR_BAD_SHARD_INDEX, "an array"},
        {"{\"weight_map\":{}}", ERR_BAD_SHARD_INDEX, "found 0"},
        {"{}", ERR_BAD_SHARD_INDEX, "none"},
        {"{", ERR_BAD_SHARD_INDEX, "model.safetensors.index.json"},
    };
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "x");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t live = mem_live();
        struct safetensors_folder *f;
        struct err_info info = {0};
        write_index(cases[i].index);
        enum err err = safetensors_folder_open(folder_path(), &f, &info);
        ck_assert_msg(err == cases[i].err && info.code == err, "%s: %s: %s", cases[i].index, err_code(err), info.text);
        ck_assert_msg(strstr(info.text, cases[i].word) != NULL, "%s: %s", cases[i].index, info.text);
        ck_assert(f == NULL && mem_live() == live);
    }
    folder_remove();
}
END_TEST

START_TEST(a_tensor_in_another_shard_is_refused)
{
    struct safetensors_folder *f;
    struct err_info info = {0};
    write_shard("a.safetensors", "x");
    write_shard("b.safetensors", "y");
    write_index("{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}");
    ck_assert_int_eq(safetensors_folder_open(folder_path(), &f, &info), ERR_BAD_SHARD_INDEX);
    ck_assert_str_eq(info.text, "model.safetensors.index.json: weight_map: expected 'x' in b.safetensors, found it in "
                                "a.safetensors");
    folder_remove();
}
END_TEST

/* Caches of hubs are folders of links into another folder, so a link is as good as a file. */
START_TEST(links_are_followed)
{
    static const char index[] = "{\"weight_map\":{\"x\":\"a.safetensors\"}}";
    const char *path = folder_file("a.safetensors");
    struct safetensors_folder *f;
    struct err_info info = {0};
    write_shard("b.safetensors", "x");
    write_index(index);
    ck_assert_int_eq(symlink("b.safetensors", path), 0);
    ck_assert_msg(safetensors_folder_open(folder_path(), &f, &info) == ERR_OK, "%s", info.text);
    safetensors_folder_close(&f);
    static const char *const nowhere[] = {"a.safetensors", "c.safetensors", "/dev/zero", "."};
    for (size_t i = 0; i < ARRAY_LEN(nowhere); i++) { /* itself, nothing, a device, a folder */
        unlink(path);
        ck_assert_int_eq(symlink(nowhere[i], path), 0);
        enum err err = safetensors_folder_open(folder_path(), &f, &info);
        ck_assert_msg(err == ERR_BAD_SHARD_INDEX && strstr(info.text, "a.safetensors: ") != NULL, "%s: %s: %s",
                      nowhere[i], err_code(err), info.text);
    }
    folder_remove();
}
END_TEST

START_TEST(a_million_brackets_are_no_index)
{
    static char text[1000001];
    struct safetensors_folder *f;
    struct err_info info = {0};
    memset(text, '[', sizeof text - 1);
    write_index(text);
    ck_assert_int_eq(safetensors_folder_open(folder_path(), &f, &info), ERR_BAD_SHARD_INDEX);
    ck_assert_msg(strstr(info.text, "at most 8 deep") != NULL, "%s", info.text);
    folder_remove();
}
END_TEST

START_TEST(a_folder_without_safetensors_says_what_is_there)
{
    struct safetensors_folder *f;
    struct err_info info = {0};
    ck_assert_int_eq(safetensors_folder_open(folder_path(), &f, &info), ERR_NO_SAFETENSORS);
    ck_assert_ptr_nonnull(strstr(info.text, "neither"));
    folder_write("pytorch_model.bin", "", 0);
    ck_assert_int_eq(safetensors_folder_open(folder_path(), &f, &info), ERR_NO_SAFETENSORS);
    ck_assert_ptr_nonnull(strstr(info.text, "pickle"));
    folder_remove();
}
END_TEST

Suite *safetensors_folder_suite(void)
{
    Suite *s = suite_create("safetensors_folder");
    TCase *c = tcase_create("safetensors_folder");
    tcase_add_test(c, one_file_is_a_model);
    tcase_add_test(c, shards_are_one_model);
    tcase_add_test(c, an_index_that_lies_is_refused);
    tcase_add_test(c, a_tensor_in_another_shard_is_refused);
    tcase_add_test(c, links_are_followed);
    tcase_add_test(c, a_million_brackets_are_no_index);
    tcase_add_test(c, a_folder_without_safetensors_says_what_is_there);
    suite_add_tcase(s, c);
    return s;
}
