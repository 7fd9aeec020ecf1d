/* What --backend may say: one back end, or several with their layers; and what is said of everything else. */
#include "engine/backend/backend_parts.h"

#include "engine/base/mem.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *backend_parts_suite(void);

enum { LAYERS = 30 };

static void accept(const char *text, uint32_t n_layers, const char *name)
{
    struct backend_parts parts;
    struct err_info info = {0};
    struct buf found;
    ck_assert_msg(backend_parts_parse(text, "backend", n_layers, &parts, &info) == ERR_OK, "%s: %s", text, info.text);
    buf_init(&found, 0, MEM_GENERAL);
    backend_parts_name(&parts, &found);
    ck_assert_int_eq(buf_ok(&found), ERR_OK);
    ck_assert_str_eq(found.data, name);
    buf_fini(&found);
}

START_TEST(parts_are_in_order_and_the_last_has_the_rest)
{
    struct backend_parts parts;
    struct err_info info;
    accept("cpu", LAYERS, "cpu");
    accept("cpu:0-29", LAYERS, "cpu");
    accept("ref:0-3,cpu", LAYERS, "ref:0-3,cpu:4-29");
    accept("ref:0-0,cpu:1-1,ref:2-28,cpu:29-29", LAYERS, "ref:0-0,cpu:1-1,ref:2-28,cpu:29-29");
    accept("cpu:0-1022,ref", 1024, "cpu:0-1022,ref:1023-1023");
    accept("ref:0-3,cpu", 0, "ref:0-3,cpu:4--1"); /* before there is a model */
    accept("ref:0-3,cpu:4-900", 0, "ref:0-3,cpu:4-900");
    ck_assert_int_eq(backend_parts_parse("cpu", "backend", LAYERS, &parts, &info), ERR_OK);
    ck_assert_ptr_eq(backend_of_parts(&parts), &backend_cpu);
    ck_assert_int_eq(backend_parts_parse("cpu:0-0,cpu", "backend", LAYERS, &parts, &info), ERR_OK);
    ck_assert_ptr_eq(backend_of_parts(&parts), &backend_composite);
    ck_assert_ptr_null(backend_find("composite"));
}
END_TEST

static const struct {
    const char *text;
    bool always; /* refused without a model, too */
    const char *why;
} refused[] = {
    {"", true, "x: expected one of cpu, ref, opencl; found ''"},
    {"gpu", true, "x: expected one of cpu, ref, opencl; found 'gpu'"},
    {"composite", true, "x: expected one of cpu, ref, opencl; found 'composite'"},
    {"ref:0-3,gpu", true, "x: expected one of cpu, ref, opencl; found 'gpu'"},
    {"ref:0-3,", true, "x: expected one of cpu, ref, opencl; found ''"},
    {",cpu", true, "x: expected one of cpu, ref, opencl; found ''"},
    {"ref,cpu", true, "x: expected NAME:FIRST-LAST, because another back end follows; found 'ref'"},
    {"cpu:", true, "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:'"},
    {"cpu:3", true, "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:3'"},
    {"cpu:0-", true, "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:0-'"},
    {"cpu:-3", true, "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:-3'"},
    {"cpu:3-2", true,
     "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:3-2'"},
    {"cpu:0-3x", true,
     "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu:0-3x'"},
    {"cpu: 0-3", true,
     "x: expected NAME:FIRST-LAST, layers from the first, counted from 0, to the last; found 'cpu: 0-3'"},
    {"cpu:1-29", true, "x: expected layers from 0; found 'cpu:1-29'"},
    {"ref:0-3,cpu:5-29", true,
     "x: expected layers from 4, because other parts have the earlier ones; found 'cpu:5-29'"},
    {"ref:0-3,cpu:3-29", true,
     "x: expected layers from 4, because other parts have the earlier ones; found 'cpu:3-29'"},
    {"cpu:0-28", false, "x: expected layers up to 29, because the model has 30; found 'cpu:0-28'"},
    {"ref:0-3,cpu:4-30", false, "x: expected layers up to 29, because the model has 30; found 'cpu:4-30'"},
    {"ref:0-99999999999999999999,cpu", false,
     "x: expected layers up to 28, then layers of another back end, because the model has 30; found "
     "'ref:0-99999999999999999999'"},
    {"ref:0-29,cpu", false,
     "x: expected layers up to 28, then layers of another back end, because the model has 30; found 'ref:0-29'"},
};

START_TEST(all_else_is_refused_with_what_was_expected)
{
    struct backend_parts parts;
    struct err_info info = {0};
    for (int32_t n_layers = 0; n_layers <= LAYERS; n_layers += LAYERS) {
        bool is_refused = n_layers != 0 || refused[_i].always;
        enum err err = backend_parts_parse(refused[_i].text, "x", (uint32_t)n_layers, &parts, &info);
        ck_assert_int_eq(err, is_refused ? ERR_CONFIG : ERR_OK);
        if (is_refused) {
            ck_assert_str_eq(info.text, refused[_i].why);
        }
    }
}
END_TEST

START_TEST(there_are_not_too_many)
{
    char text[16 * BACKEND_MAX_PARTS] = "";
    struct backend_parts parts;
    struct err_info info = {0};
    for (int i = 0; i < BACKEND_MAX_PARTS; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "ref:%d-%d,", i, i);
    }
    size_t n = strlen(text);
    text[n - 1] = '\0';
    ck_assert_int_eq(backend_parts_parse(text, "x", BACKEND_MAX_PARTS, &parts, &info), ERR_OK);
    ck_assert_int_eq(parts.n, BACKEND_MAX_PARTS);
    snprintf(text + n - 1, sizeof text - n, ",cpu");
    ck_assert_int_eq(backend_parts_parse(text, "x", LAYERS, &parts, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "x: expected at most 16 back ends; found 'cpu'");
}
END_TEST

Suite *backend_parts_suite(void)
{
    Suite *s = suite_create("backend_parts");
    TCase *t = tcase_create("backend_parts");
    tcase_add_test(t, parts_are_in_order_and_the_last_has_the_rest);
    tcase_add_loop_test(t, all_else_is_refused_with_what_was_expected, 0, (int)ARRAY_LEN(refused));
    tcase_add_test(t, there_are_not_too_many);
    suite_add_tcase(s, t);
    return s;
}
