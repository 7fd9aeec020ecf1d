/* The table of files against a plain list, with names that collide, and the order in which files go. */
#include "engine/kv/disk/kv_index.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <string.h>

Suite *kv_index_suite(void);

enum { NAMES = 200 };

/* Names of which many begin alike, so that they want the same slot. */
static struct kv_name name_of(int i)
{
    struct kv_name n = {{(uint8_t)(i % 7)}};
    n.bytes[20] = (uint8_t)i;
    return n;
}

START_TEST(random_use_agrees_with_a_plain_list)
{
    struct kv_index x = {0};
    uint64_t bytes[NAMES][KV_SNAPSHOT_KINDS] = {{0}}, sum = 0, n = 0;
    for (uint64_t step = 0; step < 20000; step++) {
        int i = (int)(rng_uniform(1, 1, step) * NAMES), kind = (int)(rng_uniform(1, 2, step) * KV_SNAPSHOT_KINDS);
        struct kv_name name = name_of(i);
        uint64_t *own = &bytes[i][kind];
        if (rng_uniform(1, 3, step) < 0.5) {
            struct kv_file f = {.name = name, .kind = (enum kv_snapshot_kind)kind, .bytes = 1 + step % 100};
            ck_assert_int_eq(kv_index_put(&x, &f), ERR_OK);
            n += *own == 0;
            sum += f.bytes - *own;
            *own = f.bytes;
        } else {
            kv_index_remove(&x, (enum kv_snapshot_kind)kind, &name);
            n -= *own != 0;
            sum -= *own;
            *own = 0;
        }
        ck_assert_uint_eq(x.n, n);
        ck_assert_uint_eq(x.bytes, sum);
        int other = (int)(rng_uniform(1, 4, step) * NAMES);
        struct kv_name wanted = name_of(other);
        const struct kv_file *f = kv_index_find(&x, (enum kv_snapshot_kind)kind, &wanted);
        ck_assert_uint_eq(f != NULL ? f->bytes : 0, bytes[other][kind]);
    }
    kv_index_fini(&x);
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(the_oldest_go_first_and_no_more_than_must)
{
    struct kv_index x = {0};
    size_t n;
    for (int i = 0; i < 10; i++) {
        struct kv_file f = {.name = name_of(i), .bytes = 100, .used_ns = (i * 7 + 3) % 10};
        ck_assert_int_eq(kv_index_put(&x, &f), ERR_OK);
    }
    ck_assert_ptr_null(kv_index_oldest(&x, 1000, &n));
    ck_assert_uint_eq(n, 0);
    struct kv_file *files = kv_index_oldest(&x, 650, &n);
    ck_assert_uint_eq(n, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(files[i].used_ns, i);
    }
    mem_free(files);
    files = kv_index_oldest(&x, 0, &n);
    ck_assert_uint_eq(n, 10);
    mem_free(files);
    mem_fail_at(0);
    ck_assert_ptr_null(kv_index_oldest(&x, 0, &n));
    ck_assert_uint_eq(n, 0);
    mem_fail_at(-1);
    kv_index_fini(&x);
}
END_TEST

START_TEST(without_memory_a_file_is_not_known)
{
    struct kv_index x = {0};
    struct kv_file f = {.name = name_of(1), .bytes = 5};
    mem_fail_at(0);
    ck_assert_int_eq(kv_index_put(&x, &f), ERR_NOMEM);
    mem_fail_at(-1);
    ck_assert_ptr_null(kv_index_find(&x, KV_SNAPSHOT_PAGE, &f.name));
    ck_assert_int_eq(kv_index_put(&x, &f), ERR_OK);
    ck_assert_ptr_nonnull(kv_index_find(&x, KV_SNAPSHOT_PAGE, &f.name));
    kv_index_fini(&x);
}
END_TEST

Suite *kv_index_suite(void)
{
    Suite *s = suite_create("kv_index");
    TCase *c = tcase_create("kv_index");
    tcase_add_test(c, random_use_agrees_with_a_plain_list);
    tcase_add_test(c, the_oldest_go_first_and_no_more_than_must);
    tcase_add_test(c, without_memory_a_file_is_not_known);
    suite_add_tcase(s, c);
    return s;
}
