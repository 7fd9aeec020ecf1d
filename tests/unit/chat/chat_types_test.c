/* Types that schemas allow: what each keyword says, $ref, and what is bounded. */
#include "engine/chat/chat_types.h"

#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"

#include <check.h>
#include <string.h>

Suite *chat_types_suite(void);

#define S CHAT_TYPE_STRING
#define N CHAT_TYPE_NUMBER
#define B CHAT_TYPE_BOOLEAN
#define Z CHAT_TYPE_NULL
#define O CHAT_TYPE_OBJECT
#define A CHAT_TYPE_ARRAY

/* Each is the schema of the member x; $defs are the document's. */
static const struct {
    const char *schema;
    unsigned types;
} rows[] = {
    {"{}", CHAT_TYPES_ALL},
    {"true", CHAT_TYPES_ALL},
    {"{'type':'string'}", S},
    {"{'type':'integer'}", N},
    {"{'type':['string','null']}", S | Z},
    {"{'type':'string','nullable':true}", S | Z},
    {"{'type':'unknown'}", CHAT_TYPES_ALL},
    {"{'enum':['1','2']}", S},
    {"{'enum':['1',2,null]}", S | N | Z},
    {"{'const':'5'}", S},
    {"{'const':5}", N},
    {"{'type':['string','integer'],'enum':['1']}", S},
    {"{'minLength':1}", S},
    {"{'pattern':'^[0-9]+$'}", S},
    {"{'$ref':'#/$defs/S'}", S},
    {"{'$ref':'#/$defs/chain'}", S},
    {"{'$ref':'#/$defs/E'}", S},
    {"{'$ref':'#/properties/y'}", N},
    {"{'$ref':'#/$defs/none'}", CHAT_TYPES_ALL},
    {"{'$ref':'http://example.com/x'}", CHAT_TYPES_ALL},
    {"{'$ref':'#/$defs/loop'}", S},
    {"{'$ref':'#/$defs/self'}", CHAT_TYPES_ALL},
    {"{'anyOf':[{'type':'string'},{'type':'null'}]}", S | Z},
    {"{'oneOf':[{'const':'a'},{'const':'b'}]}", S},
    {"{'anyOf':[{'$ref':'#/$defs/S'},{'type':'integer'}]}", S | N},
    {"{'anyOf':[{'type':'integer'},{'type':'array'},false]}", N | A},
    {"{'anyOf':[{'type':'string'},{}]}", CHAT_TYPES_ALL},
    {"{'allOf':[{'$ref':'#/$defs/S'},{'description':'x'}]}", S},
    {"{'allOf':[{'type':['string','object']},{'anyOf':[{'type':'object'},{'type':'boolean'}]}]}", O},
    {"{'allOf':[{'type':'string'},{'type':'integer'}]}", CHAT_TYPES_ALL}, /* nothing is so */
    {"{'type':'string','anyOf':[{'pattern':'a'},{'pattern':'b'}]}", S},
    {"{'anyOf':5,'allOf':'x','$ref':7,'enum':{}}", CHAT_TYPES_ALL},
};

static json_t *document(const char *schema)
{
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    buf_printf(
        &text,
        "{'properties':{'x':%s,'y':{'type':'number'}},'$defs':{'S':{'type':'string'},'chain':{'$ref':'#/$defs/more'},"
        "'more':{'allOf':[{'$ref':'#/$defs/S'}]},'E':{'enum':['a','b']},'loop':{'$ref':'#/$defs/back'},"
        "'back':{'anyOf':[{'$ref':'#/$defs/loop'},{'type':'string'}]},'self':{'$ref':'#/$defs/self'}}}",
        schema);
    for (size_t i = 0; i < text.len; i++) {
        text.data[i] = text.data[i] == '\'' ? '"' : text.data[i];
    }
    json_t *v = json_loads(text.data, 0, NULL);
    ck_assert_msg(v != NULL, "%s", text.data);
    buf_fini(&text);
    return v;
}

START_TEST(schemas_allow_types)
{
    json_t *root = document(rows[_i].schema);
    const json_t *x = chat_types_member(root, root, "x", 1);
    ck_assert_ptr_eq(x, json_object_get(json_object_get(root, "properties"), "x"));
    unsigned types = chat_types_of(root, x);
    ck_assert_msg(types == rows[_i].types, "%s: expected %u, found %u", rows[_i].schema, rows[_i].types, types);
    json_decref(root);
}
END_TEST

START_TEST(members_and_items_are_found)
{
    static const char schema[] =
        "{'allOf':[{'$ref':'#/$defs/S'},{'anyOf':[{'type':'null'},{'properties':{'a':{'type':'string'}}},"
        "{'items':{'type':'boolean'},'additionalProperties':{'type':'integer'}}]}]}";
    json_t *root = document(schema);
    const json_t *x = chat_types_member(root, root, "x", 1);
    ck_assert_uint_eq(chat_types_of(root, chat_types_member(root, x, "a", 1)), S);
    ck_assert_uint_eq(chat_types_of(root, chat_types_member(root, x, "b", 1)), N);
    ck_assert_uint_eq(chat_types_of(root, chat_types_items(root, x)), B);
    ck_assert_ptr_null(chat_types_member(root, root, "z", 1));
    ck_assert_ptr_null(chat_types_member(root, NULL, "z", 1));
    ck_assert_ptr_null(chat_types_items(root, root));
    ck_assert_ptr_null(chat_types_items(NULL, NULL));
    ck_assert_uint_eq(chat_types_of(NULL, NULL), CHAT_TYPES_ALL);
    json_decref(root);
}
END_TEST

/* What takes too much work allows everything. */
START_TEST(work_is_bounded)
{
    json_t *values = json_array(), *v = json_object();
    for (int i = 0; i < 100000; i++) {
        json_array_append_new(values, json_string("a"));
    }
    v = json_pack("{sosO}", "anyOf", json_pack("[o]", v), "enum", values);
    ck_assert_uint_eq(chat_types_of(v, v), CHAT_TYPES_ALL);
    json_decref(v);
    v = json_pack("{ss}", "type", "string");
    for (int i = 0; i < 100; i++) {
        v = json_pack("{s[o]}", "allOf", v);
    }
    ck_assert_uint_eq(chat_types_of(v, v), CHAT_TYPES_ALL);
    ck_assert_ptr_null(chat_types_items(v, v));
    json_decref(v);
    v = json_pack("{s[{ss}]}", "anyOf", "$ref", "#"); /* each level begins twice as many */
    json_array_append_new(json_object_get(v, "anyOf"), json_pack("{ss}", "$ref", "#"));
    ck_assert_uint_eq(chat_types_of(v, v), CHAT_TYPES_ALL);
    ck_assert_ptr_null(chat_types_items(v, v));
    json_decref(v);
    json_decref(values);
}
END_TEST

Suite *chat_types_suite(void)
{
    Suite *s = suite_create("chat_types");
    TCase *t = tcase_create("types");
    tcase_add_loop_test(t, schemas_allow_types, 0, ARRAY_LEN(rows));
    tcase_add_test(t, members_and_items_are_found);
    tcase_add_test(t, work_is_bounded);
    suite_add_tcase(s, t);
    return s;
}
