/* Ways to take dot products that a device says it has, and its compiler refuses: plain ones take their place, now and at
 * the next start. */
#include "opencl/program.h"

#include "tests/support/fake_opencl.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *program_suite(void);

static const char of_many[] = "-DKIND=4 -DTOKENS=32 -DSPLIT=0 -DPAIR=0 -DPICKED=0";
static const char options[] = "-DKIND=4 -DTOKENS=1 -DSPLIT=1 -DPAIR=0 -DPICKED=0"; /* Q4_1 */
static struct device d;
static struct backend_config cfg;
static struct program_set *s;
static struct err_info info;
static char told[3][1024];
static int n_told;

static void on_told(void *unused, const char *text)
{
    (void)unused;
    snprintf(told[n_told++ % 3], sizeof told[0], "%s", text);
}

static void set_up(void) { cfg = (struct backend_config){.pack_cache = folder_path(), .tell = on_told}; }

static void tear_down(void)
{
    program_set_free(&s);
    device_close(&d);
    ck_assert_int_eq(fake_opencl_live(), 0);
    folder_remove();
}

/* Builds the program as a start does that has the faults. */
static enum err start(const char *rules)
{
    program_set_free(&s);
    device_close(&d);
    n_told = 0;
    fake_opencl_arm(rules);
    ck_assert_msg(device_open(NULL, &d, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(program_set_new(&d, &cfg, &s, &info), ERR_OK);
    ck_assert_int_eq(program_want(s, "matmul.cl", options, &info), ERR_OK);
    ck_assert_int_eq(program_want(s, "matmul.cl", options, &info), ERR_OK); /* once */
    return program_build_all(s, &info);
}

START_TEST(dot_products_that_are_refused)
{
    cl_kernel kernel;
    ck_assert_int_eq(start("dot:none"), ERR_OK);
    ck_assert_int_eq(d.caps.dot, DEVICE_DOT_KHR);
    ck_assert_int_eq(fake_opencl_calls("clBuildProgram"), 2);
    ck_assert_int_eq(n_told, 2);
    ck_assert_msg(strncmp(told[0], "compiling 1 OpenCL programs for ", 32) == 0, "%s", told[0]);
    ck_assert_msg(strncmp(told[1], "dot products of kind khr are replaced by plain ones: matmul.cl: ", 64) == 0, "%s",
                  told[1]);
    ck_assert_msg(strstr(told[1], "dot_4x8packed_ss_int") != NULL, "%s", told[1]); /* what the compiler says */
    ck_assert_int_eq(program_kernel(s, "matmul.cl", "matmul", options, &kernel, &info), ERR_OK);
    clReleaseKernel(kernel);
    ck_assert_int_eq(folder_n_files(), 2);

    ck_assert_int_eq(start("dot:none"), ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), 0);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithBinary"), 1);
    ck_assert_int_eq(n_told, 0);
    ck_assert(!program_set_plain(s, "-DKIND=4 ")); /* it is */
}
END_TEST

START_TEST(dot_products_that_turn_out_to_be_wrong)
{
    ck_assert_int_eq(start("dot:right"), ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clBuildProgram"), 1);
    ck_assert(!program_set_plain(s, "-DKIND=5 "));
    ck_assert(program_set_plain(s, "-DKIND=4 "));
    ck_assert_int_eq(program_build_all(s, &info), ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clBuildProgram"), 2);
    ck_assert_int_eq(start("dot:right"), ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), 0);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithBinary"), 1);
    ck_assert(!program_set_plain(s, "-DKIND=4 "));
}
END_TEST

START_TEST(plain_ones_are_refused_too)
{
    cl_kernel kernel;
    ck_assert_int_eq(start("dot:none,clBuildProgram@DOT_ARM=0:1+:CL_BUILD_PROGRAM_FAILURE"), ERR_UNSUPPORTED_DEVICE);
    ck_assert_msg(strncmp(info.text, "matmul.cl: the OpenCL compiler of ", 34) == 0, "%s", info.text);
    ck_assert_int_eq(program_kernel(s, "matmul.cl", "matmul", options, &kernel, &info), ERR_UNSUPPORTED_DEVICE);
    ck_assert_int_eq(start("clCreateKernel:1:CL_INVALID_KERNEL_NAME"), ERR_OK);
    ck_assert_int_eq(program_kernel(s, "matmul.cl", "matmul", options, &kernel, &info), ERR_LOST);
}
END_TEST

/* No compiler here has what AMD's has: it refuses waves of 64, and then AMD's dot products. */
START_TEST(waves_of_64_are_of_many_rows)
{
    ck_assert_int_eq(start("dot:none"), ERR_OK);
    for (int i = 0; i < 2; i++) {
        program_set_free(&s);
        n_told = 0;
        d.caps.dot = DEVICE_DOT_AMD;
        fake_opencl_arm("");
        ck_assert_int_eq(program_set_new(&d, &cfg, &s, &info), ERR_OK);
        ck_assert_int_eq(program_want(s, "matmul.cl", of_many, &info), ERR_OK);
        ck_assert_msg(program_build_all(s, &info) == ERR_OK, "%s", info.text);
        ck_assert_int_eq(fake_opencl_calls("clBuildProgram"), i == 0 ? 3 : 1);
        ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), i == 0 ? 3 : 0);
        ck_assert_int_eq(n_told, i == 0 ? 3 : 0);
    }
    ck_assert_msg(strncmp(told[1], "waves of 64 are replaced by waves of 32: matmul.cl: ", 52) == 0, "%s", told[1]);
    ck_assert_msg(strncmp(told[2], "dot products of kind amd are replaced by plain ones: ", 53) == 0, "%s", told[2]);
    program_set_free(&s); /* one token row has waves of 32 */
    n_told = 0;
    ck_assert_int_eq(program_set_new(&d, &cfg, &s, &info), ERR_OK);
    ck_assert_int_eq(program_want(s, "matmul.cl", options, &info), ERR_OK);
    ck_assert_int_eq(program_build_all(s, &info), ERR_OK);
    ck_assert_int_eq(n_told, 2);
    ck_assert_msg(strncmp(told[1], "dot products of kind amd are", 28) == 0, "%s", told[1]);
}
END_TEST

Suite *program_suite(void)
{
    Suite *suite = suite_create("program");
    TCase *t = tcase_create("program");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, dot_products_that_are_refused);
    tcase_add_test(t, dot_products_that_turn_out_to_be_wrong);
    tcase_add_test(t, plain_ones_are_refused_too);
    tcase_add_test(t, waves_of_64_are_of_many_rows);
    suite_add_tcase(suite, t);
    return suite;
}
