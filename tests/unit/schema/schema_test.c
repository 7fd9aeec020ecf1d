/* JSON Schemas: for each, texts that it allows and texts that it does not, byte by byte; what is refused, and where. */
#include "engine/schema/schema.h"

#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/base/task.h"
#include "engine/grammar/grammar_internal.h"
#include "tests/unit/schema/schema_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *schema_suite(void);

static enum err compile(const char *text, struct grammar **out)
{
    json_t *schema;
    enum err err = json_read_value(text, strlen(text), 64, "schema", &schema, &schema_rig_info);
    ck_assert_msg(err == ERR_OK, "%s: %s", text, schema_rig_info.text);
    err = schema_rig_compile(schema, false, out);
    json_decref(schema);
    return err;
}

enum { MOST = 12 };

static const struct {
    const char *schema, *right[MOST], *wrong[MOST];
} cases[] = {
    {"true", {"1", "{}", "[null]"}, {"", "x"}},
    {"{}", {"1", "\"a\"", "{\"a\":[1]}", "null", "true", "1.5"}, {"", "tru", "{a:1}"}},
    {"{\"type\":\"object\",\"unevaluatedProperties\":false}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"allOf\":[{\"properties\":{\"b\":{\"type\":\"integer\"}}}],"
     "\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":\"x\"}", "{\"c\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"$ref\":\"#/$defs/b\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":false,"
     "\"$defs\":{\"b\":{\"type\":\"object\",\"properties\":{\"b\":{}}}}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"c\":1}", "1"}},
    {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
     "\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"c\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"k\":{\"const\":1},\"a\":{}},"
     "\"required\":[\"k\"]},{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}],\"unevaluatedProperties\":false}",
     {"{\"k\":1,\"a\":1}", "{\"k\":2}"},
     {"{\"k\":2,\"a\":1}", "{\"k\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}}},{\"unevaluatedProperties\":false}]}",
     {"{}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"unevaluatedProperties\":true}],\"unevaluatedProperties\":false}",
     {"{\"a\":1}"},
     {"1"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{}},\"unevaluatedProperties\":{\"type\":\"integer\"}}",
     {"{\"xa\":\"s\",\"b\":1}"},
     {"{\"b\":\"s\"}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"additionalProperties\":{\"type\":\"integer\"}}],"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1}"},
     {"{\"a\":\"s\"}"}},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"b\":{\"properties\":{\"a\":{}}}},"
     "\"unevaluatedProperties\":false,\"minProperties\":0,\"allOf\":[{\"properties\":{\"a\":{\"properties\":{\"z\":{}}}}}]}",
     {"{\"a\":{\"q\":1}}", "{\"a\":1,\"b\":{\"c\":1}}"},
     {"{\"a\":1,\"z\":1}", "{\"b\":1}"}},
    {"{\"not\":{\"enum\":[5,-0.5,0]}}",
     {"4", "6", "5.01", "50", "-5", "0.5", "-0.51", "\"5\"", "[5]", "0.001"},
     {"5", "5.0", "5.00", "0", "-0", "0.0", "-0.50", "-0.5", "5e0", "50e-1"}},
    {"{\"type\":\"object\",\"not\":{\"const\":{\"a\":1}}}",
     {"{}", "{\"a\":2}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"a\":\"1\"}"},
     {"{\"a\":1}", "{\"a\":1.0}"}},
    {"{\"type\":[\"array\",\"string\"],\"not\":{\"enum\":[[],[1,{\"a\":[]}],\"x\"]}}",
     {"[1]", "[2]", "[1,1]", "[1,{}]", "[1,{\"a\":[1]}]", "[1,{\"a\":[]},1]", "\"y\""},
     {"[]", "[1,{\"a\":[]}]", "\"x\""}},
    {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"null\"}],\"items\":false}}",
     {"[1]", "[null,1]", "[null,null,null]"},
     {"[]", "[null]", "[null,null]"}},
    {"{\"anyOf\":[{\"const\":0,\"enum\":[1,2]},{\"type\":\"null\"}]}", {"null"}, {"0", "1"}},
    {"{\"const\":2,\"enum\":[1,2.0]}", {"2"}, {"1"}},
    {"{\"enum\":[1,2,\"a\"],\"allOf\":[{\"const\":1,\"enum\":[2,1]}]}", {"1"}, {"2", "\"a\""}},
    {"{\"enum\":[1,\"a\"],\"not\":{\"const\":1,\"enum\":[2]}}", {"1", "\"a\""}, {"2"}},
    {"{\"type\":[\"array\",\"null\"],\"items\":false,\"minItems\":1}", {"null"}, {"[]", "[1]"}},
    {"{\"type\":[\"array\",\"null\"],\"prefixItems\":[{}],\"items\":false,\"minItems\":2}",
     {"null"},
     {"[]", "[1]", "[1,1]"}},
    {"{\"type\":\"array\",\"unevaluatedItems\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"unevaluatedItems\":{\"type\":\"null\"},\"prefixItems\":[{\"type\":\"integer\"}],\"minItems\":1}",
     {"[1]", "[1,null]", "[1,null,null]"},
     {"[]", "[null]", "[1,1]", "[1,null,1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"unevaluatedItems\":false}", {"[]", "[1,2]"}, {"[null]"}},
    {"{\"type\":\"array\",\"items\":[{}],\"additionalItems\":{\"type\":\"integer\"},\"unevaluatedItems\":false}",
     {"[null,1]"},
     {"[1,null]"}},
    {"{\"type\":\"array\",\"items\":[{}],\"unevaluatedItems\":false}", {"[]", "[null]"}, {"[1,2]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{}],\"allOf\":[{\"$ref\":\"#/$defs/two\"}],\"unevaluatedItems\":false,"
     "\"$defs\":{\"two\":{\"prefixItems\":[{},{\"type\":\"null\"}]}}}",
     {"[]", "[1]", "[1,null]"},
     {"[1,2]", "[1,null,3]"}},
    {"{\"type\":\"array\",\"anyOf\":[{\"prefixItems\":[{\"const\":1},{}]},{\"prefixItems\":[{}]}],\"unevaluatedItems\":false}",
     {"[]", "[1,2]", "[2]"},
     {"[2,1]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"oneOf\":[{\"minItems\":1,\"prefixItems\":[{\"type\":\"null\"}]},{\"minItems\":1,\"prefixItems\":"
     "[{\"type\":\"integer\"},{}]}],\"unevaluatedItems\":false}",
     {"[null]", "[1]", "[1,2]"},
     {"[]", "[null,1]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{}]},{\"unevaluatedItems\":false}]}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"unevaluatedItems\":{\"type\":\"null\"}}],\"unevaluatedItems\":false}",
     {"[]", "[null,null]"},
     {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"items\":{}}],\"unevaluatedItems\":{\"unevaluatedItems\":false}}",
     {"[[1],[]]"},
     {"[[1],[1]]"}},
    {"{\"unevaluatedItems\":false,\"not\":{\"const\":\"x\"}}", {"[]", "\"a\"", "{\"a\":[1]}"}, {"[1]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"unevaluatedItems\":{\"enum\":[1,2]}}",
     {"[]", "[2,1]"},
     {"[1,1]", "[3]"}},
    {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{}},\"additionalProperties\":false}}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":2}"},
     {"{}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false,"
     "\"not\":{\"properties\":{\"a\":{}},\"additionalProperties\":false}}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{}", "{\"a\":1}", "{\"b\":1,\"c\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},"
     "\"not\":{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{}},\"additionalProperties\":false}}",
     {"{\"c\":1}", "{\"a\":null,\"b\":1,\"c\":1}"},
     {"{\"a\":null}", "{\"b\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false},{\"properties\":{\"b\":{\"type\":\"integer\"}},\"additionalProperties\":false}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"a\":1,\"b\":1}", "{\"c\":1}", "{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"additionalProperties\":false,"
     "\"properties\":{\"a\":{}}}},{\"not\":{\"additionalProperties\":false,\"properties\":{\"b\":{}}}}]}",
     {"{\"c\":1}", "{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"b\":1}"}},
    {"{\"not\":{\"additionalProperties\":false}}", {"{\"a\":1}"}, {"{}", "1"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"}}",
     {"[null]", "[1,null]", "[null,1]", "[1,null,\"a\"]", "[null,null]"},
     {"[]", "[1]", "[[null]]", "null"}},
    {"{\"contains\":{\"type\":\"null\"},\"items\":{\"type\":[\"null\",\"integer\"]}}",
     {"[1, null]", "{}", "1"},
     {"[]", "[\"a\",null]", "[1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minItems\":2,\"maxItems\":3}",
     {"[5,1]", "[1,5]", "[1,1,7]", "[9,9,9]"},
     {"[5]", "[1,1]", "[1,1,1]", "[1,1,1,5]", "[5,5,5,5]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minItems\":3}",
     {"[5,1,1]", "[1,5,1]", "[1,1,5]", "[1,1,1,5]", "[5,1,1,1]"},
     {"[5,1]", "[1,1,1]", "[1,1,1,1]"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":2,\"maxContains\":3}",
     {"[null,null]", "[null,1,null]", "[1,null,null,null,2]"},
     {"[null]", "[]", "[null,null,null,null]", "[1,2]"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":0,\"maxContains\":1}",
     {"[]", "[1,2]", "[null]", "[1,null,2]"},
     {"[null,null]", "[null,1,null]"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"maxItems\":0}", {NULL}, {"[]", "[null]"}},
    {"{\"type\":\"array\",\"not\":{\"contains\":{\"type\":\"null\"}}}", {"[]", "[1,\"a\"]"}, {"[null]", "[1,null]"}},
    {"{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}",
     {"[1,"
      "\"a\"]",
      "[null]"},
     {"[]", "[1]", "[1,2]"}},
    {"{\"oneOf\":[{\"items\":{\"type\":\"null\"}},{\"items\":{\"type\":\"integer\"}}],\"type\":\"array\"}",
     {"[1]", "[null]", "[null,null]", "[1,2]"},
     {"[]", "[1,null]", "[\"a\"]"}},
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
    {"{\"type\":\"string\",\"x-lark\":\"start: A+ /b\\\\n/\\nA: \\\"\\\\\\\"\\\"\"}",
     {"\"\\\"\\\"b\\n\""},
     {"\"\"", "\"\"b\\n\"", "\"\\\"b\n\"", "1"}},
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
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"},\"c\":{\"type\":"
     "\"integer\"}},\"required\":[\"a\",\"c\"],\"additionalProperties\":false}",
     {"{\"a\":1,\"b\":2,\"c\":3}", "{\"c\":3,\"a\":1}", "{\"b\":2,\"c\":3,\"a\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"c\":2,\"a\":1}", "{\"b\":1,\"c\":2}", "{\"a\":1,\"c\":2,\"d\":1}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"type\":"
     "\"object\",\"properties\":{\"b\":{\"type\":\"string\"}},\"required\":[\"b\"]}]}",
     {"{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"b\":\"\",\"z\":null}"},
     {"{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":\"x\",\"b\":\"x\"}", "{\"a\":1,\"b\":1}", "5"}},
    {"{\"allOf\":[{\"type\":[\"string\",\"null\"]},{\"type\":[\"integer\",\"string\"],\"minLength\":2},{\"maxLength\":"
     "3}]}",
     {"\"ab\"", "\"abc\""},
     {"\"a\"", "\"abcd\"", "null", "12"}},
    {"{\"allOf\":[{\"minimum\":3},{\"type\":\"integer\",\"exclusiveMaximum\":6},{\"minimum\":4}]}",
     {"4", "5"},
     {"3", "6", "4.5"}},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"minLength\":2,\"minimum\":5}",
     {"\"ab\"", "5"},
     {"\"a\"", "4", "true"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false,\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"b\":1,\"a\":1}"},
     {"{}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false,\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"b\":1,\"a\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"integer\",\"minimum\":5}]}", {"4"}, {"5", "\"a\""}},
    {"{\"oneOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}],\"type\":\"string\"}",
     {"\"a\"", "\"b\"", "\"xax\""},
     {"\"ab\"", "\"c\""}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1},\"v\":{\"type\":\"integer\"}},\"required\":["
     "\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2},\"v\":{\"type\":\"string\"}},\"required\":["
     "\"k\"]}]}",
     {"{\"k\":1,\"v\":5}", "{\"v\":\"x\",\"k\":2}"},
     {"{\"k\":1,\"v\":\"x\"}", "{\"k\":3}"}},
    {"{\"$ref\":\"#/$defs/a\",\"maxLength\":2,\"$defs\":{\"a\":{\"type\":\"string\",\"minLength\":1}}}",
     {"\"a\"", "\"ab\""},
     {"\"\"", "\"abc\""}},
    {"{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "null", "[1]", "true"}, {"\"a\"", "{}"}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}", {"\"c\"", "\"ab\"", "\"\""}, {"\"a\"", "\"b\"", "1"}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}", {"\"ba\"", "\"\""}, {"\"a\"", "\"ab\""}},
    {"{\"type\":\"integer\",\"not\":{\"enum\":[3,5]}}", {"4", "33"}, {"3", "5"}},
    {"{\"enum\":[1,2,\"a\",null,true],\"not\":{\"enum\":[2,null]}}", {"1", "\"a\"", "true"}, {"2", "null"}},
    {"{\"type\":[\"boolean\",\"null\"],\"not\":{\"const\":true}}", {"false", "null"}, {"true"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"not\":{\"required\":[\"a\"]}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}"}},
    {"{\"not\":{\"type\":\"integer\"}}", {"1.5", "\"a\"", "null", "-0.25"}, {"1", "-3", "1.0"}},
    {"{\"not\":{\"not\":{\"type\":[\"integer\",\"null\"]}}}", {"1", "null"}, {"1.5", "true"}},
    {"{\"type\":\"number\",\"not\":{\"not\":{\"not\":{\"type\":\"integer\"}}}}", {"1.5"}, {"1", "null"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", {"null"}, {"1", "[]"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},"
     "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a\"}}]}}}",
     {"null", "[null,[]]"},
     {"1", "[1]"}},
    {"{\"not\":{\"not\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"type\":\"integer\",\"not\":{\"anyOf\":[{\"minimum\":10},{\"maximum\":3}]}}", {"4", "9"}, {"3", "10"}},
    {"{\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},\"then\":{\"required\":[\"x\"]},\"else\":"
     "{\"required\":[\"y\"]},\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"},\"x\":{\"type\":"
     "\"integer\"},\"y\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\",\"y\":1}", "{\"y\":1}"},
     {"{\"k\":\"a\"}", "{\"k\":\"a\",\"y\":1}", "{\"k\":\"b\",\"x\":1}", "{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"},\"c\":{\"type\":"
     "\"integer\"}},\"additionalProperties\":false,\"dependentRequired\":{\"a\":[\"b\"]},\"dependentSchemas\":{\"c\":{"
     "\"required\":[\"a\"]}}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"c\":1,\"b\":1,\"a\":1}"},
     {"{\"a\":1}", "{\"c\":1}", "{\"c\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"],\"c\":{\"properties\":{\"d\":{\"type\":\"null\"}}}},"
     "\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{}},\"additionalProperties\":false}",
     {"{\"d\":1}", "{\"c\":1,\"d\":null}", "{\"b\":1,\"a\":1}"},
     {"{\"a\":1}", "{\"c\":1,\"d\":1}"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\",1]}}",
     {"[]", "[\"b\",\"a\"]", "[1,\"b\",\"a\"]"},
     {"[\"a\",\"a\"]", "[\"c\"]", "[1,1]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"maxItems\":2,\"items\":{\"enum\":[1,1.0,2,3]}}",
     {"[1,2]", "[3,1]"},
     {"[1]", "[1,2,3]", "[1,1]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":[\"boolean\",\"null\"]}}",
     {"[]", "[null,true,false]", "[false]"},
     {"[true,true]", "[null,true,null]", "[1]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\",\"minimum\":-1,\"exclusiveMaximum\":3"
     ",\"multipleOf\":2}}",
     {"[0,2]", "[2]"},
     {"[0,0]", "[1]", "[2,2]", "[3]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"const\":\"a\"},{\"$ref\":\"#/$defs/b\"},{\"type\":\"null\"}]},"
     "\"$defs\":{\"b\":{\"allOf\":[{\"minLength\":1},{\"enum\":[\"\",\"b\",\"a\"]}]}}}",
     {"[\"b\",\"a\",null]", "[null]"},
     {"[\"a\",\"a\"]", "[\"\"]", "[null,\"b\",null]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{\"a\":[0,1]},{\"a\":[-0.0,1.0]},{\"a\":[\"-0.0\"]},"
     "{\"a\":[\"0.0\"]}]}}",
     {"[{\"a\":[0,1]}]", "[{\"a\":[\"-0.0\"]},{\"a\":[\"0.0\"]}]"},
     {"[{\"a\":[0,1]},{\"a\":[0,1]}]", "[{\"a\":[0,1]},{\"a\":[-0.0,1.0]}]", "[{\"a\":[-0.0,1.0]},{\"a\":[0,1]}]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
     {"[]", "[1]", "[1,\"1\"]"},
     {"[\"a\"]", "[1,1]", "[1,\"1\",2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":2,\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[3]},{\"const\":4}]}",
     {"[2,3]"},
     {"[1,3,4]", "[1,1]"}},
    {"{\"type\":\"array\",\"oneOf\":[{\"const\":[1]},{\"const\":[1.0]},{\"const\":[2]}]}", {"[2]"}, {"[1]", "[1.0]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"[]", "[5]"}, {"[5,5]"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "700"}, {"8", "1", "7.5"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}", {"1", "1.5", "1.50", "-0.01", "1.500"}, {"1.005", "0.001"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/c\"},\"$defs\":{\"c\":{\"title\":\"Color\""
     ",\"enum\":[\"red\",\"blue\"],\"type\":\"string\"}}}",
     {"{}", "{\"red\":1,\"blue\":2}"},
     {"{\"green\":1}", "{\"\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"description\":\"names\",\"anyOf\":[{\"const\":\"a\"},{\"pattern\":\"^x\""
     ",\"maxLength\":2},{\"type\":\"integer\"}]}}",
     {"{\"a\":1}", "{\"x\":1,\"xy\":2}"},
     {"{\"b\":1}", "{\"xyz\":1}", "{\"1\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"oneOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}],\"not\":{\"minLength\":3}}}",
     {"{\"a\":1}", "{\"xb\":1}"},
     {"{\"ab\":1}", "{\"c\":1}", "{\"axx\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{\"minLength\":1},{\"not\":{\"enum\":[\"a\"]}},true]}}",
     {"{\"b\":1}", "{}"},
     {"{\"a\":1}", "{\"\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"nullable\":true,\"$ref\":\"#/$defs/x\",\"maxLength\":2},\"$defs\":{\"x\":"
     "{\"pattern\":\"a\"}}}",
     {"{\"a\":1}"},
     {"{\"aaa\":1}", "{\"b\":1}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"propertyNames\":{\"$ref\":\"#/definitions/x\",\"type\":\"integer\","
     "\"if\":true,\"maxLength\":0},\"definitions\":{\"x\":{\"pattern\":\"a\"}},\"type\":\"object\"}",
     {"{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"anyOf\":[]},\"maxItems\":0}", {"[]", "[ ]"}, {"[1]", "[[]]"}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P1Y2M3DT4H5M6S\"", "\"PT0S\"", "\"P4W\"", "\"P1D\"", "\"P2MT1M\""},
     {"\"P\"", "\"PT\"", "\"P1DT\"", "\"P1Y2D\"", "\"P1W1D\"", "\"PT1H1S\"", "\"1D\"", "\"P1S\""}},
    {"{\"type\":\"object\",\"properties\":{\"n\":{\"nullable\":true,\"allOf\":[{\"$ref\":\"#\"}]}}"
     ",\"required\":[\"n\"],\"additionalProperties\":false}",
     {"{\"n\":null}", "{\"n\":{\"n\":null}}"},
     {"{}", "{\"n\":1}"}},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"nullable\":true}", {"null", "1", "\"a\""}, {"true"}},
    {"{\"type\":[\"string\",\"null\"],\"not\":{\"nullable\":true,\"anyOf\":[{\"enum\":[\"a\"]}]}}",
     {"\"b\""},
     {"null", "\"a\""}},
    /* references by other names than pointers */
    {"{\"definitions\":{\"a\":{\"$id\":\"other\",\"items\":{\"type\":\"null\"}}},\"items\":{\"$ref\":\"#/definitions/a/items\"}}",
     {"[null]", "1"},
     {"[1]"}},
    {"{\"$defs\":{\"a b%\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a%20b%25\"}", {"null"}, {"1"}},
    {"{\"$defs\":{\"50%\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/50%\"}", {"null"}, {"1"}},
    {"{\"definitions\":{\"a/b~c\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/a%7E1b~0c\"}", {"null"}, {"1"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#thing\"},\"$defs\":{\"x\":{\"$anchor\":\"thing\",\"type\":\"null\"}}}",
     {"[]", "[null]"},
     {"[1]"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"x\":{\"$id\":\"#thing\""
     ",\"type\":\"null\"}},\"items\":{\"$ref\":\"#thing\"},\"type\":\"array\"}",
     {"[null]"},
     {"[1]"}},
    {"{\"$id\":\"https://e.com/a/root.json\",\"$defs\":{\"i\":{\"$id\":\"item.json\",\"type\":\"integer\"}}"
     ",\"items\":{\"$ref\":\"item.json\"},\"type\":\"array\"}",
     {"[1]"},
     {"[\"a\"]"}},
    {"{\"$id\":\"https://e.com/a/root.json\",\"$defs\":{\"i\":{\"$id\":\"../b/item.json\""
     ",\"$defs\":{\"y\":{\"type\":\"null\"}},\"items\":{\"$ref\":\"#/$defs/y\"},\"type\":\"array\"}}"
     ",\"$ref\":\"https://e.com/b/item.json\"}",
     {"[null]", "[]"},
     {"[1]"}},
    {"{\"$id\":\"https://e.com/root.json\",\"$defs\":{\"b\":{\"type\":\"null\"}}"
     ",\"items\":{\"$ref\":\"https://e.com/root.json#/$defs/b\"},\"type\":\"array\"}",
     {"[null]"},
     {"[1]"}},
    {"{\"$id\":\"urn:x:1\",\"$defs\":{\"b\":{\"$id\":\"urn:x:2\",\"$anchor\":\"up\",\"type\":\"array\""
     ",\"items\":{\"$ref\":\"urn:x:1#n\"}},\"n\":{\"$anchor\":\"n\",\"type\":\"null\"}},\"$ref\":\"urn:x:2#up\"}",
     {"[null]"},
     {"[1]"}},
    {"{\"$dynamicAnchor\":\"node\",\"type\":\"object\",\"properties\":{\"next\":{\"$dynamicRef\":\"#node\"}}"
     ",\"additionalProperties\":false}",
     {"{}", "{\"next\":{\"next\":{}}}"},
     {"{\"next\":1}", "{\"a\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"$recursiveRef\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]"}},
    {"{\"type\":\"string\",\"not\":{\"$ref\":\"#n\"},\"$defs\":{\"n\":{\"$anchor\":\"n\",\"enum\":[\"a\"]}}}",
     {"\"b\""},
     {"\"a\""}},
    {"{\"enum\":[{\"$ref\":\"#x\"}],\"$defs\":{\"x\":{\"$anchor\":\"x\"}},\"$ref\":\"#x\"}",
     {"{\"$ref\":\"#x\"}"},
     {"{}"}},
    {"{\"type\":\"object\",\"properties\":{\"$ref\":{\"$ref\":\"#x\"}},\"additionalProperties\":false"
     ",\"$defs\":{\"x\":{\"$anchor\":\"x\",\"type\":\"null\"}}}",
     {"{\"$ref\":null}"},
     {"{\"$ref\":1}"}},
    /* bounds of any length, as zod, pydantic and others write them */
    {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
     {"0", "-7", "9007199254740991", "-9007199254740991", "1000000000000001"},
     {"9007199254740992", "-9007199254740992", "10000000000000000", "1.0", "1e3"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"maximum\":9223372036854775807}",
     {"1", "9223372036854775807", "9223372036854775799"},
     {"0", "-0", "-1", "9223372036854775808", "10000000000000000000"}},
    {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
     {"-9223372036854775808", "9223372036854775807"},
     {"-9223372036854775809", "9223372036854775808"}},
    {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
     {"9007199254740993", "9007199254740994", "9007199254740995"},
     {"9007199254740992", "9007199254740996"}},
    {"{\"type\":\"number\",\"minimum\":-3.4028234663852886e+38,\"maximum\":3.4028234663852886e38}",
     {"340282346638528860000000000000000000000", "340282346638528860000000000000000000000.00",
      "-340282346638528859999999999999999999999.9", "0.5", "-1"},
     {"340282346638528860000000000000000000000.1", "340282346638528860000000000000000000001",
      "-340282346638528860000000000000000000001"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.30000000000000004}",
     {"0.30000000000000005", "0.300000000000000040001", "0.4", "1"},
     {"0.30000000000000004", "0.300000000000000040", "0.3", "0", "-1"}},
    {"{\"type\":\"number\",\"minimum\":5e-324,\"maximum\":1.7976931348623157e308}", {"1", "0.001"}, {"0", "0.0", "-1"}},
    {"{\"type\":\"integer\",\"minimum\":1e30,\"maximum\":1e30}",
     {"1000000000000000000000000000000"},
     {"1000000000000000000000000000001", "999999999999999999999999999999"}},
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
     {"18446744073709551615", "0"},
     {"18446744073709551616", "-1", "100000000000000000000"}},
    {"{\"type\":\"integer\",\"minimum\":18446744073709551614,\"exclusiveMaximum\":18446744073709551617}",
     {"18446744073709551614", "18446744073709551616"},
     {"18446744073709551613", "18446744073709551617"}},
    {"{\"type\":\"number\",\"maximum\":0.1234567890123456789}",
     {"0.1234567890123456789", "0.12345678901234567889"},
     {"0.1234567890123456790", "0.12345678901234567891"}},
    {"{\"type\":\"number\",\"minimum\":9007199254740993.0}",
     {"9007199254740993", "9007199254740993.00"},
     {"9007199254740992", "9007199254740992.9"}},
    {"{\"type\":\"integer\",\"minimum\":-1e999999999,\"maximum\":1e999999999}",
     {"0", "-5", "100000000000000000000000000"},
     {"1.5", "1e5"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":1e-400}", {"0.1", "1"}, {"0", "0.0", "-1"}},
    {"{\"const\":18446744073709551615}", {"18446744073709551615"}, {"18446744073709551616", "1.8446744073709552e+19"}},
    {"{\"enum\":[1e400,0.10,123456789012345678901234567890],\"minimum\":1}",
     {"1e400", "123456789012345678901234567890"},
     {"0.1", "1"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[18446744073709551615,18446744073709551616]}}",
     {"[18446744073709551615,18446744073709551616]"},
     {"[18446744073709551615,18446744073709551615]"}},
    {"{\"type\":\"integer\",\"minimum\":-2.5,\"exclusiveMaximum\":2.000000000001}", {"-2", "2", "0"}, {"-3", "3"}},
    {"{\"type\":\"integer\",\"multipleOf\":1000000,\"minimum\":1,\"maximum\":9007199254740991}",
     {"1000000", "9007199254000000"},
     {"0", "1500000", "9007199255000000", "1"}},
    {"{\"type\":\"integer\",\"multipleOf\":86400}", {"0", "86400", "172800", "-86400"}, {"86401", "8640", "43200"}},
    {"{\"type\":\"number\",\"multipleOf\":0.1,\"minimum\":0,\"maximum\":1}",
     {"0", "0.1", "0.3", "0.70", "1", "1.0"},
     {"0.15", "1.1", "0.01", "-0.1"}},
    {"{\"type\":\"number\",\"multipleOf\":1e-8}", {"0.00000001", "1.000000010", "5"}, {"0.000000001", "1.000000015"}},
    {"{\"type\":\"integer\",\"multipleOf\":0.75}", {"0", "3", "-9"}, {"1", "2", "4"}},
    {"{\"type\":\"number\",\"multipleOf\":1.5,\"allOf\":[{\"multipleOf\":0.4}]}",
     {"0", "6", "12.0"},
     {"1.5", "3", "0.4", "2"}},
    {"{\"type\":\"integer\",\"multipleOf\":100,\"minimum\":101,\"maximum\":199}", {NULL}, {"100", "150", "200"}},
    {"{\"enum\":[1e20,0.1,9007199254740993,1.0,-0.0],\"minimum\":-5,\"multipleOf\":0.1}",
     {"1e+20", "0.1", "9007199254740993", "1.0", "-0.0"},
     {"0.10000000000000001", "9007199254740992"}},
    {"{\"enum\":[9007199254740993,5],\"const\":9007199254740992}", {NULL}, {"9007199254740993", "9007199254740992"}},
    {"{\"enum\":[1e20,10,20],\"maximum\":15}", {"10"}, {"1e+20", "20"}},
    {"{\"type\":\"number\",\"not\":{\"enum\":[1e30]}}",
     {"1", "1000000000000000000000000000001", "-1"},
     {"1000000000000000000000000000000", "1000000000000000000000000000000.0", "1e30"}},
    {"{\"type\":\"integer\",\"not\":{\"const\":10000000000000001}}", {"1", "10000000000000000"}, {"10000000000000001"}},
    {"{\"type\":\"integer\",\"not\":{\"const\":0}}", {"1", "-1"}, {"0", "-0"}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":9007199254740992},{\"type\":\"integer\",\"minimum\":9007199254740993}]}",
     {"9007199254740992", "9007199254740993"},
     {"1.5"}},
    {"{\"type\":\"number\",\"multipleOf\":2.5}", {"2.5", "5", "7.50", "0", "-12.5", "10.0"}, {"1", "2.55", "3"}},
    {"{\"type\":\"number\",\"minimum\":0.25,\"maximum\":10.5}",
     {"0.25", "0.3", "0.2500", "1", "9.999", "10.5", "10.50", "10"},
     {"0.24", "0.2", "0.0", "0", "10.51", "11", "-1"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":1.5}",
     {"-1.49", "-1.4", "0", "1.499", "-1"},
     {"-1.5", "-1.50", "1.5", "1.50", "-1.6", "2", "-2"}},
    {"{\"type\":\"number\",\"maximum\":-0.5}", {"-0.5", "-1", "-0.51", "-10.2"}, {"-0.4", "0", "0.5", "-0.0"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-1", "-0.1"}, {"0", "0.0", "-0", "1"}},
    {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":3.5}", {"1", "3"}, {"0", "4"}},
    {"{\"type\":\"object\",\"maxProperties\":1}", {"{}", "{\"a\":1}"}, {"{\"a\":1,\"b\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"},\"c\":{\"type\":"
     "\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":2}",
     {"{\"a\":1,\"b\":1}", "{\"c\":1,\"a\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"b\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^a\",\"maxLength\":2},\"properties\":{\"b\":{},\"ab\":{"
     "\"type\":\"integer\"}}}",
     {"{}", "{\"a\":1,\"ab\":5}"},
     {"{\"b\":1}", "{\"abc\":1}", "{\"ab\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},\"patternProperties\":{\"a\":{\"minimum\":3},"
     "\"b\":{\"maximum\":9}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"ab\":5,\"a\":\"x\",\"b\":8,\"z\":null}", "{\"aab\":7}"},
     {"{\"ab\":2}", "{\"ab\":10}", "{\"aab\":10}", "{\"a\":1}", "{\"z\":1}", "{\"ab\":3.5}"}},
    {"{\"enum\":[\"a\",\"bcd\",7],\"minLength\":2}", {"\"bcd\"", "7"}, {"\"a\""}},
    {"{\"enum\":[1,5,9],\"minimum\":4,\"type\":\"integer\"}", {"5", "9"}, {"1"}},
    {"{\"enum\":[{\"a\":1,\"b\":[true]},[2]],\"type\":[\"object\",\"array\"]}",
     {"{\"a\":1,\"b\":[true]}", "{\"b\": [true], \"a\": 1}", "[2]"},
     {"{\"a\":1}", "{\"a\":1,\"b\":[]}", "[]", "[2,2]"}},
    {"{\"enum\":[{\"a\":1},{\"a\":2}],\"properties\":{\"a\":{\"minimum\":2}}}", {"{\"a\":2}"}, {"{\"a\":1}"}},
    {"{\"const\":{\"a\":[]},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", {"{\"a\":[]}"}, {"{}"}},
    {"{\"items\":[{\"type\":\"null\"}],\"allOf\":[{\"items\":{\"type\":[\"null\",\"integer\"]}}],\"type\":\"array\"}",
     {"[]", "[null,1]", "[null,null]"},
     {"[1]", "[null,\"a\"]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false},\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}", "{\"b\":\"x\"}"}},
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
        ck_assert_msg(err == (can ? ERR_OK : ERR_INVALID_GRAMMAR), "%s: %s", cases[i].schema, schema_rig_info.text);
        for (size_t k = 0; can && k < MOST && cases[i].right[k] != NULL; k++) {
            ck_assert_msg(schema_rig_says(g, cases[i].right[k]), "%s does not allow %s", cases[i].schema,
                          cases[i].right[k]);
        }
        for (size_t k = 0; can && k < MOST && cases[i].wrong[k] != NULL; k++) {
            ck_assert_msg(!schema_rig_says(g, cases[i].wrong[k]), "%s allows %s", cases[i].schema, cases[i].wrong[k]);
        }
        grammar_unref(&g);
    }
}
END_TEST

static const struct {
    const char *schema, *where, *text;
} refusals[] = {
    {"{\"type\":\"string\",\"format\":\"idn-hostname\"}", "/format", "this format is not supported"},
    {"{\"type\":\"string\",\"pattern\":\"(?<=a)\"}", "/pattern", "at byte 0 a lookbehind"},
    {"{\"type\":\"string\",\"x-lark\":\"start: a\"}", "/x-lark", "line 1, column 8"},
    {"{\"type\":\"string\",\"x-lark\":5}", "/x-lark", "expected a string"},
    {"{\"type\":\"string\",\"x-lark\":\"start: \",\"maxLength\":2}", "/x-lark", "expected no pattern"},
    {"{\"enum\":[\"a\"],\"x-lark\":\"start: \"}", "/x-lark", "expected no enum"},
    {"{\"not\":{\"x-lark\":\"start: \"}}", "/not", "opposite"},
    {"{\"x-lark\":\"start: \",\"allOf\":[{\"x-lark\":\"start: \"}]}", "/allOf/0/x-lark", "one grammar"},
    {"{\"type\":\"string\",\"pattern\":\"(\"}", "/pattern", "without its )"},
    {"{\"type\":\"string\",\"pattern\":5}", "/pattern", "a regular expression"},
    {"{\"type\":\"integer\",\"maximum\":\"5\"}", "/maximum", "expected a number"},
    {"{\"type\":\"object\",\"patternProperties\":{\"(\":{}}}", "/patternProperties", "without its )"},
    {"{\"type\":\"object\",\"patternProperties\":5}", "/patternProperties", "an object of schemas"},
    {"{\"type\":\"string\",\"maxLength\":-1e300}", "/maxLength", "a whole number, 0 or more"},
    {"{\"not\":{\"minLength\":2.5}}", "/not", "opposite"},
    {"{\"minProperties\":2,\"required\":[\"a\",\"a\"]}", "/minProperties", "expected 1, or as many"},
    {"{\"definitions\":{\"a\":{}},\"properties\":{\"p\":{\"$id\":\"other\",\"items\":{\"$ref\":\"#/definitions/"
     "a\"}}}}",
     "/properties/p/items/$ref", "a JSON pointer to a schema"},
    {"{\"minProperties\":2}", "/minProperties", "expected 1, or as many"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "/uniqueItems", "as of an enumeration"},
    {"{\"properties\":{\"tags\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\"}}}}",
     "/properties/tags/uniqueItems",
     "/properties/tags/uniqueItems: a grammar cannot compare elements with each other; expected items"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}]}}",
     "/uniqueItems", "as of an enumeration"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\",\"minimum\":0}}", "/uniqueItems",
     "1000 values"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":1000}}",
     "/uniqueItems", "1000 values"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
     "/uniqueItems", "as of an enumeration"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"prefixItems\":[{\"const\":1}]}", "/uniqueItems", "single ones"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"prefixItems\":[{\"type\":\"integer\"},{\"const\":1.0}],\"items\":false}",
     "/uniqueItems", "single ones"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":2,\"prefixItems\":[{\"const\":{\"a\":[1]}},{\"const\":{\"a\":[1.0]}}]}",
     "/uniqueItems", "single ones"},
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
    {"{\"anyOf\":[]}", "/anyOf", "an array of schemas"},
    {"{\"$ref\":\"#/$defs/none\"}", "/$ref", "a JSON pointer to a schema of the same document"},
    {"{\"$ref\":\"http://example.com/a\"}", "/$ref", "a JSON pointer to a schema of the same document"},
    {"{\"$ref\":\"#none\",\"$defs\":{\"a\":{\"$anchor\":\"x\"}}}", "/$ref", "an $anchor"},
    {"{\"$id\":\"https://e.com/a\",\"$ref\":\"https://e.com/b\"}", "/$ref", "an $anchor"},
    {"{\"$dynamicRef\":\"#n\",\"$defs\":{\"a\":{\"$dynamicAnchor\":\"n\"},\"b\":{\"$id\":\"b\""
     ",\"$dynamicAnchor\":\"n\"}}}",
     "/$dynamicRef", "not supported"},
    {"{\"items\":{\"$id\":\"b\",\"items\":{\"$recursiveRef\":\"#\"}}}", "/items/items/$recursiveRef", "not supported"},
    {"{\"type\":\"integer\",\"minimum\":1e999999999}", "/minimum", "at most 2000 digits"},
    {"{\"type\":\"number\",\"exclusiveMaximum\":-1e2001}", "/exclusiveMaximum", "at most 2000 digits"},
    {"{\"type\":\"number\",\"maximum\":1e-999999999}", "/maximum", "at most 2000 digits"},
    {"{\"type\":\"number\",\"not\":{\"const\":1e999999999}}", "/not", "at most 2000 digits"},
    {"{\"$ref\":5}", "/$ref", "a JSON pointer"},
    {"{\"type\":\"array\",\"prefixItems\":{}}", "/prefixItems", "an array of schemas"},
    {"{\"type\":\"integer\",\"multipleOf\":0}", "/multipleOf", "expected a number above 0"},
    {"{\"type\":\"integer\",\"multipleOf\":-5}", "/multipleOf", "expected a number above 0"},
    {"{\"multipleOf\":1e300}", "/multipleOf", "at most 2^40"},
    {"{\"multipleOf\":1000000007,\"allOf\":[{\"multipleOf\":1000000009}]}", "/allOf/0/multipleOf", "at most 2^40"},
    {"{\"type\":\"integer\",\"multipleOf\":10007,\"minimum\":-9223372036854775808}", "/multipleOf",
     "at most 50000 states"},
    {"{\"type\":\"object\",\"properties\":{\"a/b\":{\"type\":\"integer\",\"multipleOf\":1000003}}}",
     "/properties/a~1b/multipleOf", "at most 50000 states"},
    {"{\"not\":{\"multipleOf\":2}}", "/not", "whose opposite can be said"},
    {"{\"if\":{\"uniqueItems\":true},\"then\":{\"type\":\"null\"}}", "/if", "whose opposite can be said"},
    {"{\"oneOf\":[{\"multipleOf\":3},{\"multipleOf\":2}]}", "/oneOf", "no value is of two"},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"prefixItems\":[{}]}", "/contains", "single items"},
    {"{\"contains\":{\"type\":\"null\"},\"minContains\":17}", "/contains", "16 at most"},
    {"{\"contains\":{\"type\":\"null\"},\"minItems\":65}", "/contains", "64 at most"},
    {"{\"contains\":{\"multipleOf\":2},\"maxContains\":2}", "/maxContains", "opposite"},
    {"{\"allOf\":[{\"contains\":{\"type\":\"null\"}},{\"contains\":{\"type\":\"string\"}}]}", "/allOf/1/contains",
     "one contains"},
    {"{\"$dynamicRef\":\"#a\"}", "/$dynamicRef", "not supported"},
    {"{\"contains\":{\"type\":\"null\"},\"minContains\":0,\"allOf\":[{\"unevaluatedItems\":false}]}", "/contains",
     "no unevaluatedItems"},
    {"{\"not\":{\"prefixItems\":[{}]},\"unevaluatedItems\":false}", "/unevaluatedItems", "beside it"},
    {"{\"not\":{\"prefixItems\":[{}],\"items\":{\"type\":\"null\"}}}", "/not", "opposite"},
    {"{\"not\":{\"items\":{\"type\":\"null\"}},\"unevaluatedItems\":false}", "/unevaluatedItems", "beside it"},
    {"{\"enum\":[[1]],\"unevaluatedItems\":false}", "/unevaluatedItems", "beside it"},
    {"{\"not\":{\"unevaluatedItems\":false}}", "/not", "opposite"},
    {"{\"not\":{\"properties\":{\"a\":{\"type\":\"integer\"}}},\"unevaluatedProperties\":false}",
     "/unevaluatedProperties", "beside it"},
    {"{\"const\":{\"a\":1},\"unevaluatedProperties\":false}", "/unevaluatedProperties", "beside it"},
    {"{\"if\":{\"required\":[\"a\"]},\"then\":{\"properties\":{\"a\":{}}},\"unevaluatedProperties\":false}",
     "/unevaluatedProperties", "beside it"},
    {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"a\":{}}}},\"unevaluatedProperties\":false}",
     "/unevaluatedProperties", "beside it"},
    {"{\"oneOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"a\":{\"type\":\"null\"}}}],\"unevaluatedProperties\":false}",
     "/unevaluatedProperties", "beside it"},
    {"{\"type\":\"object\",\"propertyNames\":{\"if\":{\"pattern\":\"a\"}}}", "/propertyNames/if",
     "not supported for names"},
    {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/a\"}"
     ",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
     "/propertyNames/", "nest 32 deep"},
    {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[]}}", "/propertyNames/anyOf", "an array of schemas"},
    {"{\"allOf\":[]}", "/allOf", "an array of schemas"},
    {"{\"allOf\":[{\"type\":\"null\"},5]}", "/allOf/1/", "a schema, an object or a boolean"},
    {"{\"dependencies\":5}", "/dependencies", "an object"},
    {"{\"oneOf\":[{\"const\":1e30},{\"minimum\":5,\"uniqueItems\":true}]}", "/oneOf", "no value is of two"},
    {"{\"oneOf\":[{\"type\":\"text\"},{\"type\":\"null\"}]}", "/oneOf/0/type", "expected object, array"},
};

START_TEST(what_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        struct grammar *g;
        ck_assert_msg(compile(refusals[i].schema, &g) == ERR_INVALID_SCHEMA, "%s", refusals[i].schema);
        ck_assert_str_eq(schema_rig_info.where, refusals[i].where);
        ck_assert_msg(strstr(schema_rig_info.text, refusals[i].text) != NULL, "%s: %s", refusals[i].schema,
                      schema_rig_info.text);
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

/* Schemas that take long or much if they are taken as they stand: begin, n times form with its number and commas between, end; all
 * of it but the end once more after `again`. */
static const struct {
    const char *begin, *form, *again, *end;
    int n;
    enum err err;
} hostile[] = {
    {"{\"enum\":[", "\"value number %d\"", NULL, "]}", 100000, ERR_OK},
    {"{\"enum\":[", "%d", NULL, "]}", 100000, ERR_OK},
    {"{\"allOf\":[{\"enum\":[", "\"%d\"", "]},{\"enum\":[", "]}]}", 20000, ERR_OK},
    {"{\"oneOf\":[{\"enum\":[", "\"%d\"", "]},{\"enum\":[\"a\",", "]}]}", 20000, ERR_OK},
    {"{\"type\":\"string\",\"not\":{\"enum\":[", "\"v%d\"", NULL, "]}}", 5000, ERR_OK},
    {"{\"type\":\"integer\",\"not\":{\"enum\":[", "%d", NULL, "]}}", 5000, ERR_OK},
    {"{\"type\":\"number\",\"not\":{\"enum\":[", "%d.5", NULL, "]}}", 5000, ERR_OK},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[", "\"v%d\"", NULL, "]}}", 1000, ERR_OK},
    {"{\"type\":\"object\",\"properties\":{", "\"key%d\":{\"type\":\"integer\"}", NULL, "}}", 2000, ERR_OK},
    {"{\"type\":\"object\",\"required\":[", "\"key%d\"", NULL, "]}", 2000, ERR_OK},
    {"{\"anyOf\":[", "{\"type\":\"array\",\"maxItems\":%d}", NULL, "]}", 2000, ERR_OK},
    {"{\"enum\":[", "{\"a\":%d}", NULL, "]}", 10000, ERR_GRAMMAR_LIMIT},
    {"{\"oneOf\":[", "{\"type\":\"object\",\"required\":[\"p%d\"]}", NULL, "]}", 100, ERR_GRAMMAR_LIMIT},
    {"{\"allOf\":[", "{\"anyOf\":[{\"minLength\":%d},{\"type\":\"null\"}]}", NULL, "]}", 40, ERR_GRAMMAR_LIMIT},
    {"{\"type\":\"array\",\"prefixItems\":[", "{\"const\":%d}", NULL, "]}", 9000, ERR_GRAMMAR_LIMIT},
    {"{\"type\":\"object\",\"patternProperties\":{", "\"^.*a.{%d}x\":{}", NULL, "}}", 20, ERR_GRAMMAR_LIMIT},
    {"{\"type\":\"string\",\"minLength\":1000000,\"maxLength\":2000000}", NULL, NULL, "", 0, ERR_OK},
    {"{\"type\":\"string\",\"pattern\":\"(a+)+$\"}", NULL, NULL, "", 0, ERR_OK},
    {"{\"type\":\"string\",\"pattern\":\"((a{1000}){1000}){1000}\"}", NULL, NULL, "", 0, ERR_OK},
    {"{\"type\":\"string\",\"minLength\":20,\"pattern\":\"^(a|b)*a(a|b){16}$\"}", NULL, NULL, "", 0, ERR_GRAMMAR_LIMIT},
};

static void write_hostile(size_t k, struct buf *text)
{
    buf_puts(text, hostile[k].begin);
    for (int again = 0; again <= (hostile[k].again != NULL); again++) {
        buf_puts(text, again ? hostile[k].again : "");
        for (int i = 0; i < hostile[k].n; i++) {
            buf_puts(text, i > 0 ? "," : "");
            buf_printf(text, hostile[k].form, i);
        }
    }
    buf_puts(text, hostile[k].end);
    buf_putc(text, '\0');
}

/* They are made, or refused, within so much work, which is a tenth of a second, and 64 MiB. */
START_TEST(hostile_schemas)
{
    for (size_t k = 0; k < ARRAY_LEN(hostile); k++) {
        struct buf text;
        struct grammar *g = NULL;
        struct grammar_builder *b;
        symbol_id start;
        struct mem_account account = {0};
        buf_init(&text, 0, MEM_GENERAL);
        write_hostile(k, &text);
        json_t *schema = json_loads(text.data, 0, NULL);
        ck_assert_msg(schema != NULL, "%.100s", text.data);
        schema_rig_info = (struct err_info){0};
        mem_account_enter(&account);
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        enum err err = schema_add(b, schema, &start, &schema_rig_info);
        size_t work = regex_work(grammar_regexes(b));
        err = err == ERR_OK ? grammar_finish(&b, start, &g, &schema_rig_info) : err;
        grammar_builder_free(&b);
        size_t peak = mem_account_leave();
        work =
            g != NULL ? regex_work(g->lexer.set) : work; /* what failed as it was finished failed at the same limit */
        ck_assert_msg(err == hostile[k].err, "%.100s: %s %s", text.data, err_code(err), schema_rig_info.text);
        ck_assert_msg(work < GRAMMAR_MAX_WORK + GRAMMAR_MAX_WORK / 10, "%.100s: %zu", text.data, work);
        ck_assert_msg(peak < 64u << 20, "%.100s: %zu bytes", text.data, peak);
        ck_assert_msg(err == ERR_OK || schema_rig_info.code == ERR_GRAMMAR_LIMIT, "%.100s: %s", text.data,
                      schema_rig_info.text);
        grammar_unref(&g);
        json_decref(schema);
        buf_fini(&text);
    }
}
END_TEST

/* Schemas with many forms at one place, each of which is a rule: n times `form` with its number twice and commas between, n at
 * most `most`. text: what the schema says of a number below n, and not of n. */
static const struct {
    const char *begin, *form, *end, *text;
    int most;
} wide[] = {
    {"{\"anyOf\":[", "{\"const\":[%d,{\"a\":%d}]}", "]}", "[%d,{\"a\":%d}]", 1000},
    {"{\"enum\":[", "[%d,{\"a\":%d}]", "]}", "[%d,{\"a\":%d}]", 1000},
    {"{\"oneOf\":[",
     "{\"properties\":{\"k\":{\"const\":%d},\"v\":{\"const\":%d}},\"type\":\"object\",\"required\":[\"k\"]}", "]}",
     "{\"k\":%d,\"v\":%d}", 128},
    {"{\"type\":\"array\",\"items\":{\"anyOf\":[", "{\"type\":\"array\",\"items\":{\"const\":[%d]},\"minItems\":%d}",
     "]},\"maxItems\":1}", NULL, 1000},
    {"{\"type\":\"object\",\"properties\":{", "\"k%d\":{\"const\":[{\"a\":%d}]}", "},\"additionalProperties\":false}",
     "{\"k%d\":[{\"a\":%d}]}", 1000},
};

static void write_wide(size_t k, int n, struct buf *text)
{
    buf_init(text, 0, MEM_GENERAL);
    buf_puts(text, wide[k].begin);
    for (int i = 0; i < n; i++) {
        buf_puts(text, i > 0 ? "," : "");
        buf_printf(text, wide[k].form, i, i);
    }
    buf_puts(text, wide[k].end);
    buf_putc(text, '\0');
}

static void check_wide(size_t k, int n)
{
    struct buf text;
    struct grammar *g;
    char last[64], beyond[64];
    write_wide(k, n, &text);
    enum err err = compile(text.data, &g);
    ck_assert_msg(err == ERR_OK, "%d, %.100s: %s", n, text.data, schema_rig_info.text);
    snprintf(last, sizeof last, wide[k].text != NULL ? wide[k].text : "[[[0],[0]]]", n - 1, n - 1);
    snprintf(beyond, sizeof beyond, wide[k].text != NULL ? wide[k].text : "[[[%d]]]", n, n);
    ck_assert_msg(schema_rig_says(g, last), "%d, %.100s: %s", n, text.data, last);
    ck_assert_msg(!schema_rig_says(g, beyond), "%d, %.100s: %s", n, text.data, beyond);
    grammar_unref(&g);
    buf_fini(&text);
}

START_TEST(wide_schemas)
{
    static const int widths[] = {63, 64, 126, 127, 128, 253, 254, 255, 256, 257, 300, 1000};
    for (size_t i = 0; i < ARRAY_LEN(wide) * ARRAY_LEN(widths); i++) {
        size_t k = i / ARRAY_LEN(widths);
        if (widths[i % ARRAY_LEN(widths)] <= wide[k].most) {
            check_wide(k, widths[i % ARRAY_LEN(widths)]);
        }
    }
}
END_TEST

START_TEST(a_client_that_leaves_ends_it)
{
    atomic_bool has_left = true;
    struct task task = {.has_left = &has_left};
    struct buf text;
    struct grammar *g;
    write_wide(1, 1000, &text);
    task_enter(&task, "grammar");
    ck_assert_int_eq(compile(text.data, &g), ERR_CANCELLED);
    has_left = false;
    task_stop(&task);
    ck_assert_int_eq(compile(text.data, &g), ERR_DEADLINE);
    task_leave();
    ck_assert_int_eq(compile(text.data, &g), ERR_OK);
    grammar_unref(&g);
    buf_fini(&text);
}
END_TEST

/* Too much is told with its place. */
START_TEST(limits_have_a_place)
{
    struct buf text;
    struct grammar *g;
    buf_init(&text, 0, MEM_GENERAL);
    buf_puts(&text, "{\"type\":\"object\",\"properties\":{\"b\":{\"allOf\":[");
    for (int i = 0; i < 40; i++) {
        buf_printf(&text, "%s{\"anyOf\":[{\"minLength\":%d},{\"type\":\"null\"}]}", i > 0 ? "," : "", i);
    }
    buf_puts(&text, "]}}}");
    buf_putc(&text, '\0');
    ck_assert_int_eq(compile(text.data, &g), ERR_GRAMMAR_LIMIT);
    ck_assert_msg(strstr(schema_rig_info.text, "/properties/b") != NULL, "%s", schema_rig_info.text);
    buf_fini(&text);
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
        err = err == ERR_OK ? schema_add(b, schema, &start, &schema_rig_info) : err;
        if (err == ERR_OK) {
            err = grammar_finish(&b, start, &g, &schema_rig_info);
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
    tcase_add_checked_fixture(t, schema_rig_set_up, schema_rig_tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, texts_of_schemas);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, hostile_schemas);
    tcase_add_test(t, wide_schemas);
    tcase_add_test(t, a_client_that_leaves_ends_it);
    tcase_add_test(t, limits_have_a_place);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
