/* JSON Schemas: for each, texts that it allows and texts that it does not, byte by byte; what is refused, and where. */
#include "engine/grammar/schema.h"

#include "engine/base/mem.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *schema_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;
static struct err_info info;
static int32_t id_of[256];

static void set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    for (int32_t i = 0; i < 256; i++) { /* which token is which byte */
        struct buf b;
        buf_init(&b, 0, MEM_GENERAL);
        tokenizer_piece(file.t, i, true, &b);
        ck_assert_uint_eq(b.len, 1);
        id_of[(unsigned char)b.data[0]] = i;
        buf_fini(&b);
    }
}

static void tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static enum err compile(const char *text, struct grammar **out)
{
    struct grammar_builder *b;
    symbol_id start;
    json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_msg(schema != NULL, "%s", text);
    info = (struct err_info){0};
    *out = NULL;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    enum err err = schema_add(b, schema, &start, &info);
    if (err == ERR_OK) {
        err = grammar_finish(&b, start, out, &info);
    } else {
        grammar_builder_free(&b);
    }
    json_decref(schema);
    return err;
}

static bool says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (; *text != '\0' && taken; text++) {
        ck_assert_int_eq(grammar_matcher_accept(m, id_of[(unsigned char)*text], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

enum { MOST = 12 };

static const struct {
    const char *schema, *right[MOST], *wrong[MOST];
} cases[] = {
    {"true", {"1", "{}", "[null]"}, {"", "x"}},
    {"{}", {"1", "\"a\"", "{\"a\":[1]}", "null", "true", "1.5"}, {"", "tru", "{a:1}"}},
    {"{\"type\":\"string\"}", {"\"\"", "\"a\\n\\u00e9\xc3\xa9\""}, {"a", "1", "null", "\"", "\"\n\""}},
    {"{\"type\":\"integer\"}", {"0", "-12", "120"}, {"01", "1.5", "1e3", "-", "\"1\"", ""}},
    {"{\"type\":\"number\"}", {"0", "-1.25e+3", "7"}, {"01", ".5", "1.", "NaN", "true"}},
    {"{\"type\":\"integer\",\"minimum\":-3,\"exclusiveMaximum\":12}", {"-3", "0", "11"}, {"-4", "12", "1.0", "100"}},
    {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":4,\"exclusiveMaximum\":true}", {"2", "3"}, {"1", "4"}},
    {"{\"type\":\"integer\",\"minimum\":-1.5,\"maximum\":2.5}", {"-1", "2"}, {"-2", "3"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", {"0", "1", "0.25", "1.0"}, {"1.01", "-0.1", "2"}},
    {"{\"type\":\"number\",\"minimum\":2,\"exclusiveMinimum\":2}", {"2.1", "3"}, {"2", "2.0", "1"}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"color\"}", {"\"red\""}, {"red"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "0", "null"}},
    {"{\"type\":\"null\"}", {"null"}, {"0", "\"null\""}},
    {"{\"type\":[\"string\",\"null\"]}", {"null", "\"x\""}, {"1", "true"}},
    {"{\"type\":\"integer\",\"nullable\":true}", {"null", "5"}, {"\"x\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xc3\xa9\xe2\x82\xac\"", "\"\\n\\\"\"", "\"\\u0041b\""},
     {"\"a\"", "\"abcd\"", "\"\xc3\xa9\"", "\"\\n\"", "\"\""}},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", {NULL}, {NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+\\\\d?$\"}",
     {"\"abc\"", "\"a1\"", "\"\\u0061\""},
     {"\"\"", "\"d\"", "\"1\"", "\"a11\"", "\"ab"}},
    {"{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":2}",
     {"\"b\"", "\"ab\"", "\"b\\n\""},
     {"\"aab\"", "\"a\"", "\"\""}},
    {"{\"enum\":[\"a\",\"b\\\"c\",1,null,[1,2]]}",
     {"\"a\"", "\"b\\\"c\"", "1", "null", "[1,2]"},
     {"\"c\"", "2", "a", "[1]"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"on\"}", {"\"on\""}, {"\"off\"", "on"}},
    {"{\"const\":{\"a\":true}}", {"{\"a\":true}"}, {"{}", "{\"a\":false}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":["
     "\"a\",\"b\"],"
     "\"additionalProperties\":false}",
     {"{\"a\":1,\"b\":\"x\"}", "{ \"a\" : 1 ,\n \"b\" : \"x\" }"},
     {"{}", "{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":\"x\",\"c\":1}",
      "{\"a\":1,\"b\":\"x\",}", "{\"a\":1 \"b\":\"x\"}", "[]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"b\"],\"additionalProperties\":"
     "false}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"c\":1}", "{,\"b\":1}", "{\"a\":1,,\"b\":1}",
      "{\"a\":1,\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}",
     {"{}", "{ }", "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"c\":1}", "{\"a\":1,}", "{,}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}",
     {"{}", "{\"a\":null}", "{\"x\":1}", "{\"a\":null,\"x\":[1],\"aa\":2}"},
     {"{\"a\":1}", "{\"x\":1,\"a\":1}", "{\"\\u0061\":1}", "{\"x\":}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"x\":1,\"\":2}"},
     {"{\"x\":\"1\"}", "{\"x\"}"}},
    {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}"}, {"{\"x\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[ ]", "[1]", "[1 ,\t2,3]"},
     {"[1,]", "[,]", "[\"a\"]", "[1 2]", "[1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[1,2,3]"},
     {"[]", "[1]", "[1,2,3,4]"}},
    {"{\"type\":\"array\",\"minItems\":1}", {"[1]", "[[],{}]"}, {"[]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"type\":\"array\",\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":\"null\"}"
     "}",
     {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
     {"[\"a\"]", "[1,2]", "[1,\"a\",1]", "[,\"a\"]"}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"additionalItems\":false,"
     "\"minItems\":2}",
     {"[1,\"a\"]"},
     {"[]", "[1]", "[1,\"a\",1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{},{},{}],\"minItems\":1,\"maxItems\":2}",
     {"[1]", "[1,2]"},
     {"[]", "[1,2,3]"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}]}",
     {"1", "[true]", "[]"},
     {"\"a\"", "[1]"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$"
     "ref\":\"#/$defs/n\"},{\"type\":"
     "\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{}}", "null"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "[{}]"}},
    {"{\"definitions\":{\"a/b~c\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/a~1b~0c\"}", {"null"}, {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"b\",\"a\"],"
     "\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{\"a\":null,\"b\":1}", "{\"a\":null,\"b\":1,\"c\":2}"},
     {"{\"a\":null}", "{\"b\":1}", "{\"a\":null,\"b\":null}", "{\"a\":null,\"b\":1,\"b\":2}"}},
    {"{\"type\":\"object\",\"required\":[\"b\"],\"additionalProperties\":false}", {NULL}, {NULL}},
    {"{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{}}}", {"{\"a\":1}", "{\"x\":1}"}, {"{}", "{ }"}},
    {"{\"type\":\"object\",\"minProperties\":2,\"required\":[\"a\",\"b\"]}",
     {"{\"a\":1,\"b\":1}"},
     {"{}", "{\"a\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"},{\"const\":null}]}",
     {"1", "\"a\"", "null"},
     {"true", "1.5"}},
    {"{\"oneOf\":[{\"enum\":[\"a\",\"b\"]},{\"type\":\"string\",\"enum\":[\"c\"]}]}", {"\"a\"", "\"c\""}, {"\"d\""}},
    {"{\"$defs\":{\"x\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":[\"k\"]}},\"oneOf\":"
     "[{\"$ref\":\"#/$defs/x\"},"
     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"y\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"k\","
     "\"n\"]}]}",
     {"{\"k\":\"x\"}", "{\"k\":\"y\",\"n\":1}"},
     {"{\"k\":\"y\"}", "{\"k\":\"z\"}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"],\"additionalProperties\":false},"
     "{\"type\":\"object\",\"properties\":{\"b\":{}},\"required\":[\"b\"],\"additionalProperties\":false}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{}},\"additionalProperties\":false}",
     {"{\"a\":1}"},
     {"{}", "{\"b\":1}"}},
    {"{\"type\":\"string\",\"maxLength\":1e300}", {"\"a\""}, {"1"}},
    {"{\"type\":\"integer\",\"enum\":[1e300,1.5,2]}", {"2"}, {"1.5"}},
    {"{\"$id\":\"http://x/y\",\"definitions\":{\"a\":{\"$id\":\"#a\",\"type\":\"null\"}},\"$ref\":\"#/definitions/a\"}",
     {"null"},
     {"1"}},
    {"{\"allOf\":[{\"type\":\"null\"}],\"description\":\"d\"}", {"null"}, {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"patternProperties\":{\"^x_\":{\"type\":"
     "\"integer\"},\"^y\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"a\":null,\"x_1\":5,\"y\":\"s\",\"x_\":6}", "{\"yy\":\"\"}"},
     {"{\"x_1\":\"s\"}", "{\"y\":1}", "{\"z\":1}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"b\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
     "\"integer\"}}",
     {"{\"abc\":null,\"c\":1}"},
     {"{\"abc\":1}", "{\"c\":null}", "{\"\\u0062\":1}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"definitions\":{\"n\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/n\",\"type\":\"integer\"}",
     {"null"},
     {"1"}},
    {"{\"title\":\"T\",\"description\":\"d\",\"default\":5,\"x-other\":{\"not\":1},\"type\":\"null\"}",
     {"null"},
     {"5"}},
};

START_TEST(texts_of_schemas)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        bool can = cases[i].right[0] != NULL;
        enum err err = compile(cases[i].schema, &g);
        ck_assert_msg(err == (can ? ERR_OK : ERR_INVALID_GRAMMAR), "%s: %s", cases[i].schema, info.text);
        for (size_t k = 0; can && k < MOST && cases[i].right[k] != NULL; k++) {
            ck_assert_msg(says(g, cases[i].right[k]), "%s does not allow %s", cases[i].schema, cases[i].right[k]);
        }
        for (size_t k = 0; can && k < MOST && cases[i].wrong[k] != NULL; k++) {
            ck_assert_msg(!says(g, cases[i].wrong[k]), "%s allows %s", cases[i].schema, cases[i].wrong[k]);
        }
        grammar_unref(&g);
    }
}
END_TEST

START_TEST(what_is_refused)
{
    static const struct {
        const char *schema, *where, *text;
    } all[] = {
        {"{\"type\":\"string\",\"format\":\"regex\"}", "/format", "this format is not supported"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "/pattern", "look"},
        {"{\"type\":\"string\",\"pattern\":\"(\"}", "/pattern", "without its )"},
        {"{\"type\":\"string\",\"pattern\":5}", "/pattern", "a regular expression"},
        {"{\"type\":\"object\",\"properties\":{\"a/b\":{\"type\":\"integer\",\"multipleOf\":3}}}",
         "/properties/a~1b/multipleOf", "not supported"},
        {"{\"type\":\"number\",\"minimum\":0.5}", "/minimum", "expected a whole number"},
        {"{\"type\":\"integer\",\"maximum\":1e30}", "/maximum", "at most 10^15"},
        {"{\"type\":\"integer\",\"maximum\":\"5\"}", "/maximum", "expected a number"},
        {"{\"$ref\":\"#\",\"minimum\":1}", "/$ref", "no other keyword beside it"},
        {"{\"type\":\"array\",\"items\":{\"oneOf\":[{},{}]}}", "/items/oneOf", "no value can be of two"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "/oneOf", "no value can be of two"},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"const\":2.0}]}", "/oneOf", "no value can be of two"},
        {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\",\"required\":[\"b\"]}]}",
         "/oneOf", "no value can be of two"},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{}},\"patternProperties\":{\"a\":{}}}", "/patternProperties",
         "finds a name of `properties`"},
        {"{\"type\":\"object\",\"patternProperties\":{\"a\":{},\"b\":{}}}", "/patternProperties",
         "no two find the same name"},
        {"{\"type\":\"object\",\"patternProperties\":{\"(\":{}}}", "/patternProperties", "without its )"},
        {"{\"type\":\"object\",\"patternProperties\":5}", "/patternProperties", "an object of schemas"},
        {"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"$ref\":\"#\",\"type\":\"null\"}", "/$ref",
         "no other keyword"},
        {"{\"type\":\"string\",\"maxLength\":-1e300}", "/maxLength", "a whole number, 0 or more"},
        {"{\"minProperties\":2,\"required\":[\"a\",\"a\"]}", "/minProperties", "expected 1, or as many"},
        {"{\"oneOf\":[{\"const\":null},{\"type\":\"string\",\"nullable\":true}]}", "/oneOf", "no value can be of two"},
        {"{\"definitions\":{\"a\":{}},\"properties\":{\"p\":{\"$id\":\"other\",\"items\":{\"$ref\":\"#/definitions/"
         "a\"}}}}",
         "/properties/p/items/$ref", "an $id of its own"},
        {"{\"definitions\":{\"a\":{\"$id\":\"other\",\"items\":{}}},\"items\":{\"$ref\":\"#/definitions/a/items\"}}",
         "/items/$ref", "a JSON pointer to a schema"},
        {"{\"allOf\":[{},{}]}", "/allOf", "expected one schema"},
        {"{\"allOf\":[{}],\"type\":\"null\"}", "/allOf", "no other keyword"},
        {"{\"minProperties\":2}", "/minProperties", "expected 1, or as many"},
        {"{\"not\":{}}", "/not", "not supported"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "/uniqueItems", "not supported"},
        {"{\"type\":\"text\"}", "/type", "expected object, array, string"},
        {"{\"type\":[\"string\",5]}", "/type", "expected object, array, string"},
        {"{\"type\":5}", "/type", "expected object, array, string"},
        {"{\"type\":\"string\",\"minLength\":-1}", "/minLength", "a whole number, 0 or more"},
        {"{\"type\":\"string\",\"maxLength\":\"5\"}", "/maxLength", "a whole number, 0 or more"},
        {"{\"type\":\"array\",\"minItems\":1.5}", "/minItems", "a whole number, 0 or more"},
        {"{\"type\":\"object\",\"properties\":[]}", "/properties", "an object of schemas"},
        {"{\"type\":\"object\",\"properties\":{\"a\":5}}", "/properties/a/", "a schema, an object or a boolean"},
        {"{\"type\":\"object\",\"required\":\"a\"}", "/required", "an array of names"},
        {"{\"type\":\"object\",\"required\":[5]}", "/required", "an array of names"},
        {"{\"enum\":5}", "/enum", "an array of values"},
        {"{\"enum\":[1],\"minLength\":1}", "/enum", "no other keyword beside it but type"},
        {"{\"anyOf\":[]}", "/anyOf", "an array of schemas"},
        {"{\"anyOf\":[{}],\"type\":\"string\"}", "/anyOf", "no other keyword beside it"},
        {"{\"anyOf\":[{}],\"pattern\":\"a\"}", "/anyOf", "no other keyword beside it"},
        {"{\"$ref\":\"#\",\"maxItems\":1}", "/$ref", "no other keyword beside it"},
        {"{\"const\":1,\"properties\":{}}", "/const", "no other keyword beside it but type"},
        {"{\"$ref\":\"#/$defs/none\"}", "/$ref", "a JSON pointer to a schema of the same document"},
        {"{\"$ref\":\"http://example.com/a\"}", "/$ref", "a JSON pointer to a schema of the same document"},
        {"{\"$ref\":5}", "/$ref", "a JSON pointer"},
        {"{\"$ref\":\"#\",\"type\":\"string\"}", "/$ref", "no other keyword beside it"},
        {"{\"type\":\"array\",\"prefixItems\":{}}", "/prefixItems", "an array of schemas"},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct grammar *g;
        ck_assert_msg(compile(all[i].schema, &g) == ERR_INVALID_SCHEMA, "%s", all[i].schema);
        ck_assert_str_eq(info.where, all[i].where);
        ck_assert_msg(strstr(info.text, all[i].text) != NULL, "%s: %s", all[i].schema, info.text);
    }
    struct grammar *g; /* a circle says nothing */
    ck_assert_int_eq(compile("{\"$ref\":\"#\"}", &g), ERR_INVALID_GRAMMAR);
    ck_assert_int_eq(
        compile("{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
                &g),
        ERR_INVALID_GRAMMAR);
    ck_assert_int_eq(compile("false", &g), ERR_INVALID_GRAMMAR);
}
END_TEST

/* Large ones are made, or refused, soon, and in little memory. */
START_TEST(hostile_schemas)
{
    struct buf text;
    struct grammar *g;
    for (int kind = 0; kind < 4; kind++) {
        buf_init(&text, 0, MEM_GENERAL);
        buf_puts(&text, kind == 0   ? "{\"enum\":["
                        : kind == 1 ? "{\"type\":\"object\",\"properties\":{"
                        : kind == 2 ? "{\"anyOf\":["
                                    : "{\"type\":\"string\",\"minLength\":1000000,\"maxLength\":2000000,\"x\":[");
        for (int i = 0; i < (kind == 1 ? 2000 : 9000); i++) {
            static const char *const forms[] = {"%s\"value number %d\"", "%s\"key%d\":{\"type\":\"integer\"}",
                                                "%s{\"type\":\"array\",\"maxItems\":%d}", "%s%d"};
            buf_printf(&text, forms[kind], i > 0 ? "," : "", i);
        }
        buf_puts(&text, kind == 1 ? "}}" : "]}");
        buf_putc(&text, '\0');
        size_t before = mem_live();
        enum err err = compile(text.data, &g);
        ck_assert_msg(err == ERR_OK || err == ERR_GRAMMAR_LIMIT, "kind %d: %s", kind, info.text);
        ck_assert_uint_lt(mem_live() - before, 64u << 20);
        grammar_unref(&g);
        buf_fini(&text);
    }
}
END_TEST

START_TEST(memory_runs_out)
{
    for (long n = 0;; n += 1 + n / 8) {
        struct grammar *g;
        struct grammar_builder *b;
        symbol_id start;
        json_t *schema = json_loads(cases[16].schema, 0, NULL);
        mem_fail_at(n);
        enum err err = grammar_builder_new(&b);
        err = err == ERR_OK ? schema_add(b, schema, &start, &info) : err;
        if (err == ERR_OK) {
            err = grammar_finish(&b, start, &g, &info);
        }
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || (fired && err == ERR_NOMEM), "%ld: %s", n,
                      err_code(err)); /* some do with less */
        if (err == ERR_OK) {
            grammar_unref(&g);
        }
        grammar_builder_free(&b);
        json_decref(schema);
        if (!fired) {
            break;
        }
    }
}
END_TEST

Suite *schema_suite(void)
{
    Suite *s = suite_create("schema");
    TCase *t = tcase_create("schema");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, texts_of_schemas);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, hostile_schemas);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
