/* The growing buffer: contents, the NUL after them, limits and failures that stick. */
#include "engine/base/buf.h"

#include <check.h>
#include <string.h>

Suite *buf_suite(void);

START_TEST(appends_add_up)
{
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    ck_assert_ptr_null(b.data);
    buf_puts(&b, "one");
    buf_putc(&b, ' ');
    buf_printf(&b, "%d-%s", 42, "x");
    buf_append(&b, "\0z", 2);
    buf_append(&b, NULL, 0);
    ck_assert_uint_eq(b.len, 10);
    ck_assert_mem_eq(b.data, "one 42-x\0z", 11); /* with the NUL after */
    for (int i = 0; i < 10000; i++) {
        buf_printf(&b, "%04d", i);
    }
    ck_assert_uint_eq(b.len, 40010);
    ck_assert_str_eq(b.data + 40006, "9999");
    ck_assert_int_eq(buf_ok(&b), ERR_OK);
    buf_reset(&b);
    ck_assert_uint_eq(b.len, 0);
    ck_assert_str_eq(b.data, "");
    buf_fini(&b);
    ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(room_is_given_and_taken_back)
{
    struct buf b;
    buf_init(&b, 200, MEM_GENERAL);
    buf_puts(&b, "ab");
    memset(buf_extend(&b, 198), 'x', 198);
    ck_assert_uint_eq(b.len, 200);
    buf_cut(&b, 5);
    ck_assert_str_eq(b.data, "abxxx");
    buf_cut(&b, 9);
    ck_assert_uint_eq(b.len, 5);
    ck_assert_ptr_null(buf_extend(&b, 196));
    ck_assert_int_eq(buf_ok(&b), ERR_TOO_LARGE);
    ck_assert_str_eq(b.data, "abxxx");
    buf_fini(&b);
}
END_TEST

START_TEST(the_limit_holds_to_the_byte_and_failure_sticks)
{
    struct buf b;
    buf_init(&b, 5, MEM_GENERAL);
    buf_puts(&b, "abcde");
    ck_assert_int_eq(buf_ok(&b), ERR_OK);
    buf_append(&b, "", 0);
    ck_assert_int_eq(buf_ok(&b), ERR_OK);
    buf_putc(&b, 'f');
    ck_assert_int_eq(buf_ok(&b), ERR_TOO_LARGE);
    ck_assert_str_eq(b.data, "abcde");
    size_t n;
    ck_assert_ptr_null(buf_take(&b, &n));
    buf_reset(&b);
    ck_assert_int_eq(buf_ok(&b), ERR_OK);
    buf_printf(&b, "%s", "abcdef"); /* too long: nothing of it arrives */
    buf_puts(&b, "x");
    ck_assert_int_eq(buf_ok(&b), ERR_TOO_LARGE);
    ck_assert_uint_eq(b.len, 0);
    buf_fini(&b);
}
END_TEST

START_TEST(sizes_near_the_top_do_not_wrap)
{
    struct buf b;
    buf_init(&b, SIZE_MAX, MEM_GENERAL);
    buf_putc(&b, 'a');
    buf_append(&b, "x", SIZE_MAX - 1); /* len + n + 1 would be 1 */
    ck_assert_int_eq(buf_ok(&b), ERR_TOO_LARGE);
    ck_assert_str_eq(b.data, "a");
    buf_fini(&b);
}
END_TEST

START_TEST(no_memory_sticks_and_keeps_what_was_there)
{
    size_t live = mem_live();
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, "kept");
    mem_fail_at(0);
    for (int i = 0; i < 1000; i++) {
        buf_putc(&b, 'x');
    }
    ck_assert(mem_fault_fired());
    mem_fail_at(-1);
    ck_assert_int_eq(buf_ok(&b), ERR_NOMEM);
    ck_assert_int_eq(strncmp(b.data, "keptxxx", 7), 0);
    ck_assert_uint_eq(strlen(b.data), b.len);
    buf_fini(&b);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

START_TEST(take_gives_the_bytes_away)
{
    size_t live = mem_live(), n = 9;
    struct buf b;
    buf_init(&b, 0, MEM_REQUEST);
    char *s = buf_take(&b, &n); /* of nothing: an empty string */
    ck_assert_str_eq(s, "");
    ck_assert_uint_eq(n, 0);
    mem_free(s);
    buf_puts(&b, "text");
    s = buf_take(&b, &n);
    ck_assert_str_eq(s, "text");
    ck_assert_uint_eq(n, 4);
    ck_assert_ptr_null(b.data);
    buf_puts(&b, "more"); /* the buffer goes on */
    ck_assert_str_eq(b.data, "more");
    ck_assert_str_eq(s, "text");
    mem_free(s);
    buf_fini(&b);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

Suite *buf_suite(void)
{
    Suite *s = suite_create("buf");
    TCase *c = tcase_create("buf");
    tcase_add_test(c, appends_add_up);
    tcase_add_test(c, room_is_given_and_taken_back);
    tcase_add_test(c, the_limit_holds_to_the_byte_and_failure_sticks);
    tcase_add_test(c, sizes_near_the_top_do_not_wrap);
    tcase_add_test(c, no_memory_sticks_and_keeps_what_was_there);
    tcase_add_test(c, take_gives_the_bytes_away);
    suite_add_tcase(s, c);
    return s;
}
