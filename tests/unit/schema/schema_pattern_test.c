/* Patterns of a schema next to each other: what one allows and others do not. */
#include "tests/unit/schema/schema_rig.h"

#include "engine/base/mem.h"
#include "engine/schema/schema.h"

#include <check.h>

Suite *schema_pattern_suite(void);

static struct grammar *compile(const char *text)
{
    struct grammar *g;
    json_t *schema = json_loads(text, 0, NULL);
    ck_assert_msg(schema != NULL, "%s", text);
    ck_assert_msg(schema_rig_compile(schema, false, &g) == ERR_OK, "%s: %s", text, schema_rig_info.text);
    json_decref(schema);
    return g;
}

static void make_mask(struct grammar_matcher *m, const char *text)
{
    uint64_t *bits = mem_zalloc_array(1 << 12, sizeof *bits, MEM_GENERAL);
    enum err err = grammar_matcher_mask(m, bits);
    mem_free(bits);
    ck_assert_msg(err == ERR_OK, "before %s: %s", text, err_code(err));
}

/* Whether a mask can be made before each byte of the text, and whether the text is one of the grammar. */
static bool takes_with_masks(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, schema_rig_vocab, &m), ERR_OK);
    for (; *text != '\0' && taken; text++) {
        make_mask(m, text);
        ck_assert_int_eq(grammar_matcher_accept(m, schema_rig_ids[(unsigned char)*text], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

/* A complement ends with its pattern's match. Else a search through all others' states would have to find that nothing follows. */
START_TEST(one_of_many_patterns)
{
    static const struct {
        const char *schema, *right, *wrong;
    } rows[] = {
        {"{\"oneOf\":[{\"pattern\":\"NEW\"},{\"pattern\":\"ON_APPROVAL\"},{\"pattern\":\"ON_SIGNING\"},"
         "{\"pattern\":\"ON_MODIFICATION\"},{\"pattern\":\"EXECUTED\"},{\"pattern\":\"DEPRECATED\"},"
         "{\"pattern\":\"REJECTED\"}]}",
         "\"a NEW NEW\"", "\"NEW REJECTED\""},
        {"{\"oneOf\":[{\"pattern\":\"NEW\\\\b\"},{\"pattern\":\"ON_APPROVAL\"},{\"pattern\":\"ON_SIGNING\"},"
         "{\"pattern\":\"ON_MODIFICATION\"},{\"pattern\":\"\\\\bEXECUTED\"},{\"pattern\":\"DEPRECATED\"}]}",
         "\"a NEW\xc3\xa9\"", "\"NEWS\""},
        {"{\"type\":\"object\",\"patternProperties\":{\"NEW\":{\"const\":1},\"SIGNING\":{\"const\":1},"
         "\"APPROVAL\":{\"const\":1}},"
         "\"additionalProperties\":{\"const\":2}}",
         "{\"a NEW SIGNING\":1,\"NE\":2}", "{\"a NEW SIGNING\":2}"},
        {"{\"type\":\"object\",\"propertyNames\":{\"oneOf\":[{\"pattern\":\"NEW\"},{\"pattern\":\"SIGNING\"},"
         "{\"pattern\":\"APPROVAL\"},{\"pattern\":\"EXECUTED\"},{\"pattern\":\"DEPRECATED\"},{\"pattern\":\"REJECTED\"}]}}",
         "{\"\\u004eEW\":1}", "{\"NEW SIGNING\":1}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grammar *g = compile(rows[i].schema);
        ck_assert_msg(takes_with_masks(g, rows[i].right), "%s: %s", rows[i].schema, rows[i].right);
        ck_assert_msg(!takes_with_masks(g, rows[i].wrong), "%s: %s", rows[i].schema, rows[i].wrong);
        grammar_unref(&g);
    }
}
END_TEST

/* A match of a complement ends between characters, however they are written. */
START_TEST(complements_keep_characters)
{
    static const struct {
        const char *schema, *right[3], *wrong[3];
    } rows[] = {
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"\u00e9\"}}",
         {"\"e\"", "\"\xc3\xa8\"", "\"\""},
         {"\"\xc3\xa9\"", "\"a\xc3\xa9\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"u00\"}}",
         {"\"\\u0041\"", "\"u0\""},
         {"\"u00\"", "\"\\u0075\\u00300\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"\"}}", {NULL}, {"\"\"", "\"a\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"a$\"}}", {"\"ab\"", "\"\""}, {"\"a\"", "\"ba\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^(?!a)\"}}", {"\"a\"", "\"ab\""}, {"\"\"", "\"b\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"(?:(?=a).b?)+c\\\\b\"}}",
         {"\"abcd\"", "\"c\""},
         {"\"abc\"", "\"aabac d\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"not\":{\"pattern\":\"b\"}}",
         {"\"aa\"", "\"\\\"\\\"\""},
         {"\"a\"", "\"ab\""}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].right[0] == NULL) { /* nothing is of it */
            struct grammar *none;
            json_t *schema = json_loads(rows[i].schema, 0, NULL);
            ck_assert_int_eq(schema_rig_compile(schema, false, &none), ERR_INVALID_GRAMMAR);
            json_decref(schema);
            continue;
        }
        struct grammar *g = compile(rows[i].schema);
        for (size_t k = 0; k < 3; k++) {
            ck_assert_msg(rows[i].right[k] == NULL || schema_rig_says(g, rows[i].right[k]), "%s: %s", rows[i].schema,
                          rows[i].right[k]);
            ck_assert_msg(rows[i].wrong[k] == NULL || !schema_rig_says(g, rows[i].wrong[k]), "%s: %s", rows[i].schema,
                          rows[i].wrong[k]);
        }
        grammar_unref(&g);
    }
}
END_TEST

Suite *schema_pattern_suite(void)
{
    Suite *s = suite_create("schema_pattern");
    TCase *t = tcase_create("schema_pattern");
    tcase_add_checked_fixture(t, schema_rig_set_up, schema_rig_tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, one_of_many_patterns);
    tcase_add_test(t, complements_keep_characters);
    suite_add_tcase(s, t);
    return s;
}
