/* What a device can do goes through JSON and comes back; anything else is refused with the member's name. */
#include "opencl/device_json.h"

#include <check.h>
#include <string.h>

Suite *device_json_suite(void);

static const struct device_caps card = {.i_platform = 1,
                                        .i_device = 2,
                                        .name = "gfx1100",
                                        .board = "AMD Radeon RX 7900 XTX",
                                        .platform = "AMD Accelerated Parallel Processing",
                                        .driver = "3635.0 (HSA1.1,LC)",
                                        .gfx = "gfx1100",
                                        .is_gpu = true,
                                        .is_available = true,
                                        .has_compiler = true,
                                        .is_little_endian = true,
                                        .has_fp16 = true,
                                        .has_pci = true,
                                        .pci = {0, 0xe3, 0, 0},
                                        .version = 200,
                                        .memory_bytes = 25753026560,
                                        .free_bytes = 25700000000,
                                        .max_buffer_bytes = 21890072576,
                                        .local_bytes = 65536,
                                        .align_bytes = 128,
                                        .max_group = 256,
                                        .units = 48,
                                        .subgroups = DEVICE_SUBGROUPS_KHR,
                                        .subgroup_sizes = 96,
                                        .dot = DEVICE_DOT_AMD};

START_TEST(all_members_come_back)
{
    struct device_caps bare = {.name = "", .dot = DEVICE_DOT_PLAIN}, all[2] = {card, bare}, found;
    for (int i = 0; i < 2; i++) {
        struct err_info info = {0};
        json_t *o = device_json(&all[i]), *again;
        memset(&found, 0xff, sizeof found);
        ck_assert_msg(device_json_read(o, &found, &info) == ERR_OK, "%s", info.text);
        again = device_json(&found);
        ck_assert(json_equal(o, again));
        ck_assert_str_eq(found.name, all[i].name);
        ck_assert_uint_eq(found.memory_bytes, all[i].memory_bytes);
        ck_assert(pci_address_is(&found.pci, &all[i].pci) && found.has_pci == all[i].has_pci);
        ck_assert_int_eq(found.dot, all[i].dot);
        json_decref(o);
        json_decref(again);
    }
}
END_TEST

static const struct {
    const char *member, *value; /* NULL: it is not there */
} wrong[] = {
    {"name", NULL},
    {"name", "1"},
    {"name", "\"a\\u0000b\""},
    {"gfx", "\"gfx1100, of which there is no such\""},
    {"is_gpu", "1"},
    {"is_gpu", "null"},
    {"version", "-1"},
    {"units", "4294967296"},
    {"units", "1.5"},
    {"memory_bytes", "-5"},
    {"memory_bytes", "\"much\""},
    {"pci", "\"\""},
    {"pci", "\"0000:03:00.9\""},
    {"pci", NULL},
    {"dot", "\"wmma\""},
    {"dot", "0"},
    {"subgroups", "\"\""},
    {"subgroups", NULL},
};

START_TEST(anything_else_is_refused)
{
    struct device_caps found;
    struct err_info info = {0};
    json_t *o = device_json(&card);
    json_t *v = wrong[_i].value != NULL ? json_loads(wrong[_i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    ck_assert(wrong[_i].value == NULL || v != NULL);
    ck_assert_int_eq(v != NULL ? json_object_set_new(o, wrong[_i].member, v) : json_object_del(o, wrong[_i].member), 0);
    ck_assert_int_eq(device_json_read(o, &found, &info), ERR_INVALID_VALUE);
    ck_assert_str_eq(info.where, wrong[_i].member);
    json_decref(o);
}
END_TEST

START_TEST(a_member_too_many)
{
    struct device_caps found;
    struct err_info info = {0};
    json_t *o = device_json(&card);
    ck_assert_int_eq(json_object_set_new(o, "price", json_integer(999)), 0);
    ck_assert_int_eq(device_json_read(o, &found, &info), ERR_INVALID_VALUE);
    json_decref(o);
}
END_TEST

Suite *device_json_suite(void)
{
    Suite *s = suite_create("device_json");
    TCase *t = tcase_create("device_json");
    tcase_add_test(t, all_members_come_back);
    tcase_add_loop_test(t, anything_else_is_refused, 0, (int)(sizeof wrong / sizeof wrong[0]));
    tcase_add_test(t, a_member_too_many);
    suite_add_tcase(s, t);
    return s;
}
