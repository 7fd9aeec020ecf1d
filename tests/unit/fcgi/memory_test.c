/* Dividing what the system leaves: defaults, options, and an address-space limit. */
#include "fcgi/wire/memory.h"

#include "fcgi/wire/fastcgi.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

Suite *memory_suite(void);

#define MIB ((size_t)1 << 20)

static struct err_info info;

static enum err plan(int64_t asked_mib, size_t machine_mib, size_t room_mib, bool is_loaded, struct memory_plan *out)
{
    struct conf conf = {.max_connections = 1024, .request_memory_mib = asked_mib};
    struct memory_found found = {.machine_bytes = machine_mib * MIB,
                                 .room_bytes = room_mib != 0 ? room_mib * MIB : SIZE_MAX};
    info = (struct err_info){0};
    return memory_plan(&conf, &found, is_loaded, out, &info);
}

START_TEST(the_default_follows_the_machine)
{
    static const size_t cases[][3] = {/* machine, budget, share in MiB */
                                      {256, 128, 64},    {512, 256, 128},     {1024, 256, 128},
                                      {4096, 1024, 256}, {16384, 4096, 1024}, {262144, 8192, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_plan p;
        ck_assert_int_eq(plan(0, cases[i][0], 0, i % 2 == 0, &p), ERR_OK);
        ck_assert_uint_eq(p.budget_bytes / MIB, cases[i][1]);
        ck_assert_uint_eq(p.share_bytes / MIB, cases[i][2]);
        ck_assert_int_eq(p.n_connections, 1024);
    }
    struct memory_plan p;
    ck_assert_int_eq(plan(40, 16384, 0, true, &p), ERR_OK);
    ck_assert(p.budget_bytes == 40 * MIB && p.share_bytes == 20 * MIB);
}
END_TEST

START_TEST(an_address_space_limit_is_kept)
{
    struct memory_plan p;
    for (size_t room = 100; room < 8000; room += 100) {
        ck_assert_msg(plan(0, 16384, room, true, &p) == ERR_OK, "%zu: %s", room, info.text);
        ck_assert_uint_lt(p.budget_bytes + (size_t)p.n_connections * FASTCGI_CONNECTION_BYTES, room * MIB);
        ck_assert(p.n_connections >= 2 && p.n_connections <= 1024 && p.share_bytes <= p.budget_bytes);
    }
    ck_assert_int_eq(plan(0, 16384, 300, false, &p), ERR_OK); /* the model is still to come */
    ck_assert(p.n_connections == 16 && p.budget_bytes == 16 * MIB);
    ck_assert_int_eq(plan(0, 16384, 40, true, &p), ERR_MEMORY_LIMIT);
    ck_assert_int_eq(plan(500, 16384, 400, true, &p), ERR_MEMORY_LIMIT);
    ck_assert_str_eq(info.where, "request-memory");
    ck_assert_int_eq(plan(100, 16384, 400, true, &p), ERR_OK);
    ck_assert_uint_eq(p.budget_bytes, 100 * MIB);
}
END_TEST

START_TEST(the_machine_is_looked_at)
{
    struct memory_found found = memory_look();
    ck_assert_uint_gt(found.machine_bytes, 16 * MIB);
    ck_assert(memory_has_room());
}
END_TEST

START_TEST(a_second_model_is_weighed)
{
    size_t available = memory_available();
    ck_assert(available > MIB && available < SIZE_MAX); /* Linux tells */
    ck_assert_int_eq(memory_check_second(100 * MIB, 100 * MIB, &info), ERR_OK);
    ck_assert_int_eq(memory_check_second(UINT64_MAX, SIZE_MAX, &info), ERR_OK); /* nothing is known */
    ck_assert_int_eq(memory_check_second(101 * MIB, 100 * MIB, &info), ERR_MEMORY_LIMIT);
    ck_assert(strstr(info.text, "101 MiB") != NULL && strstr(info.text, "100 MiB") != NULL);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *s = suite_create("memory");
    TCase *c = tcase_create("memory");
    tcase_add_test(c, the_default_follows_the_machine);
    tcase_add_test(c, an_address_space_limit_is_kept);
    tcase_add_test(c, the_machine_is_looked_at);
    tcase_add_test(c, a_second_model_is_weighed);
    suite_add_tcase(s, c);
    return s;
}
