/* JSON Schemas under grammar_close_objects: which objects have only the members that the schema names. */
#include "engine/base/compiler.h"
#include "tests/unit/schema/schema_rig.h"

#include <check.h>

Suite *schema_closed_suite(void);

/* The first text has a member that no schema names: it is right exactly if objects stay open. */
START_TEST(closed_objects)
{
    static const struct {
        const char *schema, *other, *right;
        bool stays_open;
    } rows[] = {
        {"{\"properties\":{\"a\":{}}}", "{\"b\":1}", "{\"a\":1}", false},
        {"{\"type\":\"object\",\"required\":[\"a\"]}", "{\"a\":1,\"b\":1}", "{\"a\":1}", false},
        {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}", "{\"c\":1}", "{\"a\":1,\"b\":1}",
         false},
        {"{\"properties\":{\"a\":{\"properties\":{\"b\":{}}}}}", "{\"a\":{\"c\":1}}", "{\"a\":{\"b\":1}}", false},
        {"{\"$ref\":\"#/$defs/d\",\"$defs\":{\"d\":{\"properties\":{\"a\":{}}}}}", "{\"b\":1}", "{\"a\":1}", false},
        {"{\"anyOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}", "{\"c\":1}", "{\"b\":1}", false},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":true}", "{\"b\":1}", "{\"a\":1}", true},
        {"{\"properties\":{\"a\":{}},\"patternProperties\":{\"^c\":{}}}", "{\"b\":1}", "{\"c\":1}", true},
        {"{\"properties\":{\"a\":{}},\"unevaluatedProperties\":true}", "{\"b\":1}", "{\"a\":1}", true},
        {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"additionalProperties\":{}}]}", "{\"b\":1}", "{\"a\":1}", true},
        {"{\"type\":\"object\",\"properties\":{}}", "{\"b\":1}", "{}", false},
        {"{\"properties\":{},\"minProperties\":1}", "{\"b\":1}", "{\"a\":1}", true},
        {"{\"type\":\"object\"}", "{\"b\":1}", "{}", true},
        {"{}", "{\"b\":1}", "{\"a\":1}", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int closes = 0; closes <= 1; closes++) {
            struct grammar *g;
            json_t *schema = json_loads(rows[i].schema, 0, NULL);
            ck_assert_msg(schema_rig_compile(schema, closes != 0, &g) == ERR_OK, "%s: %s", rows[i].schema,
                          schema_rig_info.text);
            json_decref(schema);
            ck_assert_msg(schema_rig_says(g, rows[i].right), "%s: %s", rows[i].schema, rows[i].right);
            ck_assert_msg(schema_rig_says(g, rows[i].other) == (!closes || rows[i].stays_open), "%s: %s",
                          rows[i].schema, rows[i].other);
            grammar_unref(&g);
        }
    }
}
END_TEST

Suite *schema_closed_suite(void)
{
    Suite *s = suite_create("schema_closed");
    TCase *t = tcase_create("schema_closed");
    tcase_add_checked_fixture(t, schema_rig_set_up, schema_rig_tear_down);
    tcase_add_test(t, closed_objects);
    suite_add_tcase(s, t);
    return s;
}
