/* Forms of schemas: each keyword with what it takes and with what it does not, and the place of the latter. */
#include "fcgi/api/schema_check.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *schema_check_suite(void);

static enum err check(const char *text, struct err_info *info)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_msg(v != NULL, "%s", text);
    *info = (struct err_info){0};
    enum err err = schema_check(v, "at", info);
    json_decref(v);
    return err;
}

static void refuse(const char *text, const char *where)
{
    struct err_info info;
    enum err err = check(text, &info);
    ck_assert_msg(err == ERR_INVALID_SCHEMA, "%s: %s", text, err_code(err));
    ck_assert_msg(strcmp(info.where, where) == 0, "%s: expected %s, found %s", text, where, info.where);
    ck_assert_msg(strncmp(info.text, where, strlen(where)) == 0 && strstr(info.text, ": expected ") != NULL &&
                      strstr(info.text, ", found ") != NULL,
                  "%s", info.text);
}

static void accept(const char *text)
{
    struct err_info info;
    enum err err = check(text, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", text, info.text);
}

START_TEST(each_keyword_has_a_form)
{
    /* values by number, and which of them each keyword takes */
    static const char *const values[] = {
        "\"string\"", "\"x\"",           "5",        "-1", "0.5", "true", "[]", "[\"null\"]", "[{}]", "[5]", "{}",
        "{\"a\":{}}", "{\"a\":[\"b\"]}", "{\"a\":5}"};
    static const struct {
        const char *keyword, *takes; /* '+' in the order of values */
    } rows[] = {
        {"type", "+------+------"},
        {"enum", "------++++----"},
        {"properties", "----------++--"},
        {"patternProperties", "----------++--"},
        {"$defs", "----------++--"},
        {"definitions", "----------++--"},
        {"dependentSchemas", "----------++--"},
        {"dependencies", "----------+++-"},
        {"dependentRequired", "----------+-+-"},
        {"required", "------++------"},
        {"additionalProperties", "-----+----++++"},
        {"unevaluatedProperties", "-----+----++++"},
        {"propertyNames", "-----+----++++"},
        {"items", "-----++-+-++++"},
        {"prefixItems", "--------+-----"},
        {"additionalItems", "-----+----++++"},
        {"unevaluatedItems", "-----+----++++"},
        {"contains", "-----+----++++"},
        {"not", "-----+----++++"},
        {"if", "-----+----++++"},
        {"then", "-----+----++++"},
        {"else", "-----+----++++"},
        {"allOf", "--------+-----"},
        {"anyOf", "--------+-----"},
        {"oneOf", "--------+-----"},
        {"$ref", "++------------"},
        {"pattern", "++------------"},
        {"format", "++------------"},
        {"title", "++------------"},
        {"description", "++------------"},
        {"minLength", "--+-----------"},
        {"maxLength", "--+-----------"},
        {"minItems", "--+-----------"},
        {"maxItems", "--+-----------"},
        {"minContains", "--+-----------"},
        {"maxContains", "--+-----------"},
        {"minProperties", "--+-----------"},
        {"maxProperties", "--+-----------"},
        {"minimum", "--+++---------"},
        {"maximum", "--+++---------"},
        {"exclusiveMinimum", "--++++--------"},
        {"exclusiveMaximum", "--++++--------"},
        {"multipleOf", "--+-+---------"},
        {"uniqueItems", "-----+--------"},
        {"default", "++++++++++++++"},
        {"x-anything", "++++++++++++++"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t k = 0; k < ARRAY_LEN(values); k++) {
            char text[128];
            struct err_info info;
            snprintf(text, sizeof text, "{\"properties\":{\"p\":{\"%s\":%s}}}", rows[i].keyword, values[k]);
            enum err err = check(text, &info);
            ck_assert_msg((err == ERR_OK) == (rows[i].takes[k] == '+'), "%s: %s", text, info.text);
            ck_assert_msg(err == ERR_OK || strncmp(info.where, "at/properties/p/", 16) == 0, "%s: %s", text,
                          info.where);
        }
    }
}
END_TEST

START_TEST(places_are_pointers)
{
    refuse("5", "at");
    refuse("{\"type\":\"strng\"}", "at/type");
    refuse("{\"type\":[\"string\",null]}", "at/type");
    refuse("{\"properties\":{\"a/b~\":{\"minLength\":-1}}}", "at/properties/a~1b~0/minLength");
    refuse("{\"items\":[{},{\"items\":{\"not\":[]}}]}", "at/items/1/items/not");
    refuse("{\"anyOf\":[{},7]}", "at/anyOf/1");
    refuse("{\"dependencies\":{\"a\":[\"b\"],\"c\":[5]}}", "at/dependencies/c");
    refuse("{\"properties\":{\"a\":null}}", "at/properties/a");
}
END_TEST

START_TEST(what_real_schemas_have_is_taken)
{
    accept("true");
    accept("{}");
    accept(
        "{\"type\":null,\"properties\":null,\"required\":null,\"enum\":null}"); /* as pydantic writes what is absent */
    accept(
        "{\"type\":\"object\",\"properties\":{\"type\":{\"type\":\"string\"},\"items\":{\"enum\":[1]},\"enum\":{}}}");
    accept("{\"const\":{\"type\":5},\"default\":{\"enum\":1},\"examples\":[{\"items\":7}]}"); /* these are values */
    accept("{\"minLength\":2.0,\"exclusiveMinimum\":true,\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":false}}");
}
END_TEST

START_TEST(a_wide_and_a_deep_one)
{
    enum { WIDE = 20000, DEEP = 60 };
    struct err_info info;
    json_t *wide = json_object(), *all = json_array(), *deep = json_pack("{s:s}", "type", "no");
    for (int i = 0; i < WIDE; i++) {
        json_array_append_new(all, json_pack("{s:s}", "type", i < WIDE - 1 ? "null" : "nil"));
    }
    json_object_set_new(wide, "anyOf", all);
    ck_assert_int_eq(schema_check(wide, "at", &info), ERR_INVALID_SCHEMA);
    ck_assert_str_eq(info.where, "at/anyOf/19999/type");
    json_decref(wide);
    for (int i = 0; i < DEEP; i++) {
        deep = json_pack("{s:o}", "not", deep);
    }
    ck_assert_int_eq(schema_check(deep, "at", &info), ERR_INVALID_SCHEMA);
    ck_assert_int_eq(strncmp(info.where, "at/not/not/not/", 15), 0);
    json_decref(deep);
}
END_TEST

Suite *schema_check_suite(void)
{
    Suite *s = suite_create("schema_check");
    TCase *t = tcase_create("schema_check");
    tcase_add_test(t, each_keyword_has_a_form);
    tcase_add_test(t, places_are_pointers);
    tcase_add_test(t, what_real_schemas_have_is_taken);
    tcase_add_test(t, a_wide_and_a_deep_one);
    suite_add_tcase(s, t);
    return s;
}
