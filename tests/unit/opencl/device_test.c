/* What makes a device unusable, and opening the one that is here: PoCL, which is the CPU. What drivers of cards say is
 * read in tests/e2e/devices_test.py, from drivers that are made up. */
#include "opencl/device.h"

#include <check.h>
#include <string.h>

Suite *device_suite(void);

enum { KIB = 1 << 10 };

static struct device_caps good(void)
{
    return (struct device_caps){.is_available = true,
                                .has_compiler = true,
                                .is_little_endian = true,
                                .version = 120,
                                .local_bytes = 32 * KIB,
                                .max_group = 256};
}

static void expect(const struct device_caps *c, const char *why)
{
    char room[DEVICE_WHY_BYTES];
    const char *found = device_why_not(c, room);
    ck_assert_str_eq(found != NULL ? found : "", why);
}

START_TEST(what_is_needed)
{
    struct device_caps c = good();
    expect(&c, "");
    c.version = 110;
    expect(&c, "OpenCL 1.1, 1.2 or later is needed");
    c = good();
    c.local_bytes = 32 * KIB - 1;
    expect(&c, "work-groups have 32767 bytes of local memory, 32768 are needed");
    c = good();
    c.max_group = 255;
    expect(&c, "work-groups have 255 work-items at most, 256 are needed");
    c = good();
    c.is_available = false;
    expect(&c, "the driver says that it is not available");
    c = good();
    c.has_compiler = false;
    expect(&c, "the driver has no compiler");
    c = good();
    c.is_little_endian = false;
    expect(&c, "its byte order is reversed");
}
END_TEST

START_TEST(the_device_here_is_opened)
{
    static const char *const names[] = {NULL, "auto", "0"};
    struct device d;
    struct err_info info = {0};
    ck_assert_msg(device_open(names[_i], &d, &info) == ERR_OK, "%s", info.text);
    ck_assert_ptr_nonnull(d.id);
    ck_assert_ptr_nonnull(d.queue);
    expect(&d.caps, "");
    ck_assert_uint_ge(d.caps.memory_bytes, d.caps.max_buffer_bytes);
    ck_assert_uint_gt(d.caps.max_buffer_bytes, 0);
    ck_assert_uint_ge(d.caps.align_bytes, 64);
    ck_assert(strncmp(d.why, "device ", 7) == 0);
    ck_assert(d.caps.is_gpu || strstr(d.note, "this is the CPU") != NULL);
    device_close(&d);
    ck_assert_ptr_null(d.context);
    device_close(&d);
}
END_TEST

static const struct {
    const char *which, *why; /* part of it */
} absent[] = {
    {"31", "found '31'; see `infcgi devices`"},
    {"dead:be:0f.7", "found 'dead:be:0f.7'; see `infcgi devices`"},
    {"0,auto", "device: expected one device, found several: '0,auto'"},
    {"gpu", "device: expected auto, a number or a PCI address like 0000:03:00.0, or several with commas between them; "
            "found 'gpu'"},
    {"", "found ''"},
};

START_TEST(a_device_that_is_not_there)
{
    struct device d;
    struct err_info info = {0};
    ck_assert_int_eq(device_open(absent[_i].which, &d, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, absent[_i].why) != NULL, "%s", info.text);
    ck_assert_ptr_null(d.context);
    device_close(&d);
}
END_TEST

Suite *device_suite(void)
{
    Suite *s = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_is_needed);
    tcase_add_loop_test(t, the_device_here_is_opened, 0, 3);
    tcase_add_loop_test(t, a_device_that_is_not_there, 0, (int)(sizeof absent / sizeof absent[0]));
    suite_add_tcase(s, t);
    return s;
}
