/* Models in several files: any part's name opens the whole, and parts that do not belong together are told from it. */
#include "engine/base/mem.h"
#include "engine/format/gguf.h"

#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *gguf_split_suite(void);

enum { PARTS = 3, TENSORS = 4 };

/* What is wrong with part 2 of 3. */
enum damage {
    INTACT,
    ABSENT,
    WRONG_NUMBER,
    WRONG_COUNT,
    NO_KEYS,
    SAME_TENSOR,
    ONE_TENSOR_LESS,
    CUT,
    N_DAMAGES,
};

/* The name of a part, and, as folder_file's, its path. */
static const char *part_name(int part)
{
    static char name[40];
    snprintf(name, sizeof name, "model-%05d-of-%05d.gguf", part, PARTS);
    return name;
}

static const char *part_path(int part) { return folder_file(part_name(part)); }

static void put_u16(struct gguf_writer *w, const char *key, int v)
{
    gguf_writer_scalar(w, key, GGUF_U16, &(uint16_t){(uint16_t)v});
}

/* Part 1 has the metadata and one tensor, part 2 two tensors, part 3 one. Tensor t holds the numbers t, t + 0.5, .. */
static void put_tensor(struct gguf_writer *w, int t)
{
    char name[16];
    float data[8];
    const uint64_t dims[1] = {8};
    for (int i = 0; i < 8; i++) {
        data[i] = (float)t + 0.5f * (float)i;
    }
    snprintf(name, sizeof name, "t%d", t);
    gguf_writer_tensor(w, name, DTYPE_F32, 1, dims, data);
}

static void write_part(int part, enum damage damage)
{
    static const int first[PARTS + 1] = {0, 1, 3, TENSORS};
    struct gguf_writer w;
    struct buf bytes;
    gguf_writer_init(&w);
    buf_init(&bytes, 0, MEM_GENERAL);
    if (part == 1) {
        gguf_writer_str(&w, "general.name", "the whole");
    }
    if (damage != NO_KEYS) {
        put_u16(&w, "split.no", damage == WRONG_NUMBER ? 0 : part - 1);
        put_u16(&w, "split.count", damage == WRONG_COUNT ? PARTS + 1 : PARTS);
        gguf_writer_scalar(&w, "split.tensors.count", GGUF_I32, &(int32_t){TENSORS});
    }
    for (int t = first[part - 1]; t < first[part] - (damage == ONE_TENSOR_LESS); t++) {
        put_tensor(&w, damage == SAME_TENSOR ? t - 1 : t);
    }
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    bytes.len -= damage == CUT ? 40 : 0;
    if (damage != ABSENT) {
        folder_write(part_name(part), bytes.data, bytes.len);
    }
    buf_fini(&bytes);
}

static void write_parts(enum damage damage)
{
    for (int part = 1; part <= PARTS; part++) {
        write_part(part, part == 2 ? damage : INTACT);
    }
}

START_TEST(any_part_opens_the_whole)
{
    write_parts(INTACT);
    const char *path = part_path(_i);
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    struct gguf_str name;
    ck_assert_int_eq(gguf_get_str(g, "general.name", &name, NULL), ERR_OK);
    ck_assert(name.len == 9 && memcmp(name.data, "the whole", 9) == 0);
    ck_assert_uint_eq(gguf_n_files(g), PARTS);
    ck_assert_uint_eq(gguf_n_tensors(g), TENSORS);
    uint64_t bytes = 0;
    for (int t = 0; t < TENSORS; t++) {
        char tensor[16];
        float value;
        snprintf(tensor, sizeof tensor, "t%d", t);
        const struct gguf_tensor *found = gguf_find_tensor(g, tensor);
        ck_assert_ptr_nonnull(found);
        ck_assert(found == gguf_tensor_at(g, (size_t)t)); /* in the order of the parts */
        gguf_drop(g, found->data, found->bytes);
        memcpy(&value, (const char *)found->data + 3 * sizeof value, sizeof value);
        ck_assert(value == (float)t + 1.5f);
        bytes += found->bytes;
    }
    ck_assert_uint_gt(gguf_file_bytes(g), bytes);
    gguf_close(&g);
    folder_remove();
}
END_TEST

START_TEST(parts_that_do_not_belong_together_are_refused)
{
    static const struct {
        enum err err;
        const char *word; /* in the message */
    } expected[N_DAMAGES] = {
        [ABSENT] = {ERR_FILE, "model-00002-of-00003.gguf"},
        [WRONG_NUMBER] = {ERR_BAD_SPLIT, "model-00002-of-00003.gguf"},
        [WRONG_COUNT] = {ERR_BAD_SPLIT, "model-00002-of-00003.gguf"},
        [NO_KEYS] = {ERR_BAD_SPLIT, "model-00002-of-00003.gguf"},
        [SAME_TENSOR] = {ERR_BAD_TENSOR_NAME, "'t0'"},
        [ONE_TENSOR_LESS] = {ERR_BAD_SPLIT, "split.tensors.count"},
        [CUT] = {ERR_TRUNCATED, "model-00002-of-00003.gguf"},
    };
    write_parts((enum damage)_i);
    const char *path = part_path(1);
    size_t live = mem_live();
    struct gguf *g;
    struct err_info info = {0};
    enum err err = gguf_open(path, &g, &info);
    ck_assert_msg(err == expected[_i].err, "damage %d: %s (%s)", _i, err_code(err), info.text);
    ck_assert_msg(strstr(info.text, expected[_i].word) != NULL, "damage %d: %s", _i, info.text);
    ck_assert(g == NULL && info.code == err);
    ck_assert_uint_eq(mem_live(), live);
    folder_remove();
}
END_TEST

/* The file that is asked for: its name and its keys must agree. */
START_TEST(a_part_under_another_name_is_refused)
{
    static const char *const names[] = {"model.gguf", "model-00002-of-00003.gguf", "model-00001-of-00004.gguf"};
    write_parts(INTACT);
    const char *from = part_path(1);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct gguf *g;
        struct err_info info = {0};
        char name[64];
        snprintf(name, sizeof name, "x-%s", names[i]);
        const char *to = folder_file(name);
        ck_assert_int_eq(rename(from, to), 0);
        ck_assert_int_eq(gguf_open(to, &g, &info), ERR_BAD_SPLIT);
        ck_assert_msg(strstr(info.text, "-00001-of-00003.gguf") != NULL, "%s", info.text);
        ck_assert_int_eq(rename(to, from), 0);
    }
    folder_remove();
}
END_TEST

START_TEST(failed_allocations_are_reported_and_leave_nothing)
{
    write_parts(INTACT);
    const char *path = part_path(2);
    size_t live = mem_live();
    struct gguf *g = NULL;
    long n = 0;
    for (; g == NULL; n++) {
        mem_fail_at(n);
        enum err err = gguf_open(path, &g, NULL);
        mem_fail_at(-1);
        ck_assert_int_eq(err, g == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert(g != NULL || mem_live() == live);
        ck_assert_int_lt(n, 100);
    }
    ck_assert_int_gt(n, 10);
    gguf_close(&g);
    ck_assert_uint_eq(mem_live(), live);
    folder_remove();
}
END_TEST

Suite *gguf_split_suite(void)
{
    Suite *s = suite_create("gguf_split");
    TCase *c = tcase_create("gguf_split");
    tcase_add_loop_test(c, any_part_opens_the_whole, 1, PARTS + 1);
    tcase_add_loop_test(c, parts_that_do_not_belong_together_are_refused, INTACT + 1, N_DAMAGES);
    tcase_add_test(c, a_part_under_another_name_is_refused);
    tcase_add_test(c, failed_allocations_are_reported_and_leave_nothing);
    suite_add_tcase(s, c);
    return s;
}
