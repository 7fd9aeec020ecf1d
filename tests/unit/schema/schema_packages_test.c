/* Schemas that zod and pydantic write (tests/golden/schemas says how they are made), with texts that they allow and texts that
 * they do not. Each must be accepted, unless a row below says why it is refused. */
#include "engine/schema/schema.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/base/json_read.h"
#include "engine/grammar/grammar_internal.h"
#include "tests/unit/schema/schema_rig.h"

#include <check.h>
#include <string.h>

Suite *schema_packages_suite(void);

/* Schemas that cannot be held to, and what the refusal says. */
static const struct {
    const char *name, *text;
} refused[] = {
    {"set", "/uniqueItems: a grammar cannot compare elements with each other; expected items of 1000 values at most"},
    {"frozenset",
     "/uniqueItems: a grammar cannot compare elements with each other; expected items of 1000 values at most"},
};

static const char *refusal_of(const char *name)
{
    const char *text = NULL;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        text = strcmp(refused[i].name, name) == 0 ? refused[i].text : text;
    }
    return text;
}

static void check_texts(struct grammar *g, const json_t *row, const char *which, bool wanted)
{
    const json_t *texts = json_object_get(row, which);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        ck_assert_msg(schema_rig_says(g, text) == wanted, "%s: %s is %s",
                      json_string_value(json_object_get(row, "name")), text, which);
    }
}

static void check_file(const char *path)
{
    enum { MAX_BYTES = 1 << 20 };
    struct buf text;
    json_t *root;
    buf_init(&text, MAX_BYTES, MEM_GENERAL);
    ck_assert_msg(io_read_file(path, MAX_BYTES, &text, &schema_rig_info) == ERR_OK, "%s", schema_rig_info.text);
    ck_assert_msg(json_read(text.data, text.len, 64, path, &root, &schema_rig_info) == ERR_OK, "%s",
                  schema_rig_info.text);
    const json_t *rows = json_object_get(root, "schemas");
    ck_assert_uint_gt(json_array_size(rows), 100);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name")), *why = refusal_of(name);
        struct grammar *g;
        enum err err = schema_rig_compile(json_object_get(row, "schema"), false, &g);
        if (why != NULL) {
            ck_assert_msg(err == ERR_INVALID_SCHEMA && strstr(schema_rig_info.text, why) != NULL, "%s: %s", name,
                          schema_rig_info.text);
            continue;
        }
        ck_assert_msg(err == ERR_OK, "%s: %s", name, schema_rig_info.text);
        check_texts(g, row, "valid", true);
        check_texts(g, row, "invalid", false);
        grammar_unref(&g);
    }
    json_decref(root);
    buf_fini(&text);
}

START_TEST(zod) { check_file("tests/golden/schemas/zod.json"); }
END_TEST
START_TEST(pydantic) { check_file("tests/golden/schemas/pydantic.json"); }
END_TEST

Suite *schema_packages_suite(void)
{
    Suite *s = suite_create("schema_packages");
    TCase *t = tcase_create("schema_packages");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, schema_rig_set_up, schema_rig_tear_down);
    tcase_add_test(t, zod);
    tcase_add_test(t, pydantic);
    suite_add_tcase(s, t);
    return s;
}
