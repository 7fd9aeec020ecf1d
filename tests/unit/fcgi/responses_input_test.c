/* Requests of the Responses API: what they turn into, what is refused where, and where errors of the chat body are. */
#include "engine/base/mem.h"
#include "fcgi/api/openai/responses_input.h"
#include "fcgi/api/tool_choice.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *responses_input_suite(void);

/* Quotes are single in these tables. */
static json_t *parse(const char *text)
{
    char json[4096];
    snprintf(json, sizeof json, "%s", text);
    for (char *p = json; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    json_error_t e;
    json_t *v = json_loads(json, 0, &e);
    ck_assert_msg(v != NULL, "%s: %s", e.text, json);
    return v;
}

#define TEXT(text) "{'type':'text','text':'" text "'}"
#define HI         "{'role':'user','content':'Hi'}"
#define ASKED      "{'role':'user','content':[" TEXT("Hi") "]}"
#define SYSTEM(in) "{'role':'system','content':[" in "]}"
#define CALL(id)   "{'type':'function_call','id':'fc_1','call_id':'" id "','name':'f','arguments':'{}'}"
#define CALLED(id) "{'id':'" id "','type':'function','function':{'name':'f','arguments':'{}'}}"
#define OUTPUT(id) "{'type':'function_call_output','call_id':'" id "','output':'R'}"
#define RESULT(id) "{'role':'tool','tool_call_id':'" id "','content':[" TEXT("R") "]}"
#define THOUGHT(t) "{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':'reasoning_text','text':'" t "'}]}"
#define ONE(rest)  "{'input':'Hi'," rest "}"
#define MESSAGES   "'messages':[{'role':'user','content':'Hi'}]"
#define FUNCTION   "{'type':'function','name':'f','description':'D','parameters':{'type':'object'},'strict':true}"
#define AS_CHAT                                                                                                        \
    "{'type':'function','function':{'name':'f','description':'D','parameters':{'type':'object'},'strict':true}}"
#define CUSTOM(pattern)                                                                                                \
    "'parameters':{'type':'object','properties':{'input':{'type':'string'" pattern                                     \
    "}},'required':['input'],'additionalProperties':false},'strict':true"

static const struct {
    const char *in, *chat;
} turns[] = {
    {"{'input':'Hi'}", "{" MESSAGES "}"},
    {"{'input':'Hi','store':false,'client_metadata':{},'parallel_tool_calls':false,'tools':null}",
     "{" MESSAGES ",'parallel_tool_calls':false}"},
    {"{'input':[" HI ",{'type':'message','role':'assistant','id':'msg_1','status':'completed','content':[{'type':"
     "'output_text','text':'A','annotations':[]},{'type':'refusal','refusal':'B'}]}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':[" TEXT("A") "," TEXT("B") "]}]}"},
    {"{'instructions':'I','input':[{'role':'developer','content':'D'},{'role':'system','content':[{'type':'input_text',"
     "'text':'S'}]}," HI ",{'role':'developer','content':'E'}]}",
     "{'messages':[" SYSTEM(TEXT("I") "," TEXT("\\n\\n") "," TEXT("D") "," TEXT("\\n\\n") "," TEXT(
         "S")) "," ASKED "," SYSTEM(TEXT("E")) "]}"},
    /* one answer, in one message; results after the message with their calls, whatever came between */
    {"{'input':[" HI "," THOUGHT("T") "," THOUGHT("U") ",{'role':'assistant','content':'A'}," CALL("1") "," CALL(
         "2") "," HI "," OUTPUT("2") "," OUTPUT("1") "," THOUGHT("V") "," CALL("3") "," OUTPUT("3") "]}",
     "{'messages':[" ASKED
     ",{'role':'assistant','content':[" TEXT("A") "],'reasoning_content':'T\\nU','tool_calls':[" CALLED("1") "," CALLED(
         "2") "]}," RESULT("2") "," RESULT("1") "," ASKED ",{'role':'assistant','content':null,"
                                                "'reasoning_content':'V','tool_calls':[" CALLED("3") "]}," RESULT(
                                                    "3") "]}"},
    /* what another answer thinks or says is no part of this */
    {"{'input':[" HI "," CALL("1") "," THOUGHT("T") "," CALL("2") "," OUTPUT("1") "," OUTPUT(
         "2") ",{'role':'assistant',"
              "'content':'A'},{'role':'assistant','content':'B'}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':null,'tool_calls':[" CALLED("1") "]}," RESULT(
         "1") ",{'role':'assistant','"
              "content':null,'reasoning_"
              "content':'T','tool_calls':"
              "[" CALLED("2") "]}," RESULT("2") ",{'role':'assistant','content':[" TEXT("A") "]},{'role':'"
                                                                                             "assistant','"
                                                                                             "content':[" TEXT(
                                                                                                 "B") "]}]}"},
    {"{'input':[" HI
     ",{'type':'reasoning','content':[],'summary':[{'type':'summary_text','text':'T'}]},{'role':'assistant',"
     "'content':'A'},{'type':'reasoning','summary':[{'type':'summary_text','text':'U'}],'encrypted_content':'gAAA'}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':[" TEXT("A") "],'reasoning_content':'T'}]}"},
    /* thoughts: sealed by us, by others, and none */
    {"{'input':[" HI ",{'type':'reasoning','summary':[],'encrypted_content':'infcgi-plain:T'},{'role':'assistant',"
     "'content':'A'},{'type':'reasoning','summary':[],'encrypted_content':'gAAA'}," HI "]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':[" TEXT("A") "],'reasoning_content':'T'}," ASKED "]}"},
    {"{'input':[" HI ",{'type':'custom_tool_call','call_id':'1','name':'p','input':'x y'},{'type':"
     "'custom_tool_call_output','call_id':'1','output':[{'type':'input_text','text':'R'}]}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':null,'tool_calls':[{'id':'1','type':'function','function':{"
     "'name':'p','arguments':{'input':'x y'}}}]}," RESULT("1") "]}"},
    {"{'input':[" HI
     ",{'type':'function_call','call_id':'1','name':'f','namespace':'mcp','arguments':'{}'}," OUTPUT("1") "]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':null,'tool_calls':[{'id':'1','type':'function','function':{"
     "'name':'mcp__f','arguments':'{}'}}]}," RESULT("1") "]}"},
    {ONE("'tools':[" FUNCTION ",{'type':'web_search','external_web_access':false},{'type':'image_generation'},{'type':"
         "'function','name':'g','parameters':null}],'tool_choice':'auto'"),
     "{" MESSAGES ",'tools':[" AS_CHAT ",{'type':'function','function':{'name':'g'}}]}"},
    {ONE("'tools':[{'type':'namespace','name':'n_','description':'N','tools':[" FUNCTION "]}]"),
     "{" MESSAGES
     ",'tools':[{'type':'function','function':{'name':'n_f','description':'D','parameters':{'type':'object'"
     "},'strict':true}}]}"},
    {ONE("'tools':[{'type':'custom','name':'p','description':'P'},{'type':'custom','name':'q','format':{'type':'"
         "grammar',"
         "'syntax':'lark','definition':'start: A'}}],'tool_choice':{'type':'custom','name':'p'}"),
     "{" MESSAGES ",'tools':[{'type':'function','function':{'name':'p','description':'P'," CUSTOM(
         "") "}},{'type':"
             "'function','function':{'name':'q','description':'\\n\\nIt is given as the string `input`, which follows "
             "this "
             "grammar (lark):\\nstart: "
             "A'," CUSTOM(",'x-lark':'start: A'") "}}],'tool_choice':{'type':'function','function':{'name':'p'}}}"},
    {ONE("'tools':[{'type':'custom','name':'r','format':{'type':'grammar','syntax':'regex','definition':'a|b'}}]"),
     "{" MESSAGES
     ",'tools':[{'type':'function','function':{'name':'r','description':'\\n\\nIt is given as the string `input`, "
     "which follows this grammar (regex):\\na|b'," CUSTOM(",'pattern':'^(?:a|b)$'") "}}]}"},
    {ONE("'tools':[{'type':'function','name':'e'}," FUNCTION ",{'type':'custom','name':'p'}],'tool_choice':{'type':"
         "'allowed_tools','mode':'required','tools':[{'type':'function','name':'f'}]}"),
     "{" MESSAGES ",'tools':[" AS_CHAT "],'tool_choice':'required'}"},
    {ONE("'tool_choice':{'type':'function','name':'f'}"),
     "{" MESSAGES ",'tool_choice':{'type':'function','function':{'name':'f'}}}"},
    {ONE("'text':{'format':{'type':'text'},'verbosity':'low'}"), "{" MESSAGES "}"},
    {ONE("'text':{'format':{'type':'json_object'}}"), "{" MESSAGES ",'response_format':{'type':'json_object'}}"},
    {ONE("'text':{'format':{'type':'json_schema','name':'n','schema':{'a':1},'strict':true,'description':'D'}}"),
     "{" MESSAGES ",'response_format':{'type':'json_schema','json_schema':{'schema':{'a':1}}}}"},
    {ONE("'reasoning':{'effort':'low','summary':'auto'}"), "{" MESSAGES ",'reasoning_effort':'low'}"},
    {ONE("'reasoning':{'effort':null}"), "{" MESSAGES "}"},
};

static struct call call;
static struct params p;

static void setup(void) { rig_begin(&call, true); }

static void teardown(void)
{
    params_fini(&p);
    rig_end(&call);
    folder_remove();
}

/* Reads a body into p. */
static enum err read_body(const json_t *in, const json_t *past, struct err_info *info)
{
    *info = (struct err_info){0};
    params_fini(&p);
    params_init(&p, &call);
    return responses_read(in, past, &p, info);
}

START_TEST(bodies_turn_into_chat)
{
    struct err_info info;
    json_t *in = parse(turns[_i].in), *expected = parse(turns[_i].chat);
    ck_assert_msg(read_body(in, NULL, &info) == ERR_OK, "%s", info.text);
    json_t *chat = rig_show(&call, &p);
    char text[4096] = "";
    json_dumpb(chat, text, sizeof text - 1, JSON_COMPACT);
    ck_assert_msg(json_equal(chat, expected), "%s", text);
    ck_assert_uint_eq(json_array_size(p.tools.places), json_array_size(p.tools.list));
    json_decref(chat);
    json_decref(in);
    json_decref(expected);
}
END_TEST

#define ITEM(item) "{'input':[" HI "," item "]}"
#define ROLE(part) "{'input':[{'role':'user','content':[" part "]}]}"
#define TOOL(tool) ONE("'tools':[" tool "]")

static const struct {
    const char *in, *where;
    enum err code;
} refusals[] = {
    {"{}", "input", ERR_MISSING_PARAMETER},
    {"{'input':5}", "input", ERR_INVALID_TYPE},
    {"{'input':[]}", "input", ERR_INVALID_VALUE},
    {"{'input':'Hi','instructions':[]}", "instructions", ERR_INVALID_TYPE},
    {ITEM("5"), "input[1]", ERR_INVALID_TYPE},
    {ITEM("{}"), "input[1].role", ERR_MISSING_PARAMETER},
    {ITEM("{'type':5}"), "input[1].type", ERR_INVALID_TYPE},
    {ITEM("{'type':'web_search_call'}"), "input[1].type", ERR_INVALID_VALUE},
    {ITEM("{'id':'msg_1'}"), "input[1].id", ERR_INVALID_VALUE},
    {ITEM("{'type':'item_reference','id':'msg_1'}"), "input[1].id", ERR_INVALID_VALUE},
    {ITEM("{'role':'tool','content':'x'}"), "input[1].role", ERR_INVALID_VALUE},
    {ITEM("{'role':'user'}"), "input[1].content", ERR_MISSING_PARAMETER},
    {ITEM("{'role':'assistant','content':5}"), "input[1].content", ERR_INVALID_TYPE},
    {ROLE("5"), "input[0].content[0]", ERR_INVALID_TYPE},
    {ROLE("{}"), "input[0].content[0].type", ERR_MISSING_PARAMETER},
    {ROLE("{'type':'input_text'}"), "input[0].content[0].text", ERR_MISSING_PARAMETER},
    {ROLE("{'type':'input_text','text':'a'},{'type':'input_image','image_url':'data:image/png;base64,AAAA'}"),
     "input[0].content[1].type", ERR_INVALID_VALUE},
    {ROLE("{'type':'input_file','file_id':'f'}"), "input[0].content[0].type", ERR_INVALID_VALUE},
    {ROLE("{'type':'input_audio','input_audio':{}}"), "input[0].content[0].type", ERR_INVALID_VALUE},
    {ITEM("{'type':'reasoning','content':'x'}"), "input[1].content", ERR_INVALID_TYPE},
    {ITEM("{'type':'reasoning','summary':'x'}"), "input[1].summary", ERR_INVALID_TYPE},
    {ITEM("{'type':'reasoning','content':[{}]}"), "input[1].content[0].text", ERR_MISSING_PARAMETER},
    {ITEM("{'type':'reasoning','content':[5]}"), "input[1].content[0]", ERR_INVALID_TYPE},
    {ITEM("{'type':'function_call','call_id':'1','name':'f'}"), "input[1].arguments", ERR_MISSING_PARAMETER},
    {ITEM("{'type':'function_call','call_id':'1','name':'f','arguments':{}}"), "input[1].arguments", ERR_INVALID_TYPE},
    {ITEM("{'type':'function_call','name':'f','arguments':''}"), "input[1].call_id", ERR_MISSING_PARAMETER},
    {ITEM("{'type':'function_call','call_id':'1','name':'f g','arguments':''}"), "input[1].name", ERR_INVALID_VALUE},
    {ITEM("{'type':'custom_tool_call','call_id':'1','name':'f'}"), "input[1].input", ERR_MISSING_PARAMETER},
    {ITEM(OUTPUT("1")), "input[1].call_id", ERR_INVALID_VALUE},
    {ITEM(CALL("1") ",{'type':'function_call_output','call_id':'1'}"), "input[2].output", ERR_MISSING_PARAMETER},
    {ITEM(CALL("1") ",{'type':'function_call_output','call_id':'1','output':[{'type':'input_image'}]}"),
     "input[2].output[0].type", ERR_INVALID_VALUE},
    {ONE("'tools':{}"), "tools", ERR_INVALID_TYPE},
    {TOOL("5"), "tools[0]", ERR_INVALID_TYPE},
    {TOOL("{'name':'f'}"), "tools[0].type", ERR_MISSING_PARAMETER},
    {TOOL(FUNCTION ",{'type':'file_search'}"), "tools[1].type", ERR_UNSUPPORTED_PARAMETER},
    {TOOL("{'type':'mcp'}"), "tools[0].type", ERR_UNSUPPORTED_PARAMETER},
    {TOOL("{'type':'function','function':{'name':'f'}}"), "tools[0].name", ERR_MISSING_PARAMETER},
    {TOOL("{'type':'custom','name':'f','format':5}"), "tools[0].format", ERR_INVALID_TYPE},
    {TOOL("{'type':'custom','name':'f','format':{'type':'x'}}"), "tools[0].format.type", ERR_INVALID_VALUE},
    {TOOL("{'type':'custom','name':'f','format':{'type':'grammar','syntax':'x'}}"), "tools[0].format.syntax",
     ERR_INVALID_VALUE},
    {TOOL("{'type':'custom','name':'f','format':{'type':'grammar','syntax':'lark'}}"), "tools[0].format.definition",
     ERR_MISSING_PARAMETER},
    {TOOL("{'type':'custom','name':'f','description':5}"), "tools[0].description", ERR_INVALID_TYPE},
    {TOOL("{'type':'namespace','name':'n'}"), "tools[0].tools", ERR_MISSING_PARAMETER},
    {TOOL("{'type':'namespace','name':'n','tools':[{'type':'custom'}]}"), "tools[0].tools[0].type", ERR_INVALID_VALUE},
    {ONE("'tool_choice':'x'"), "tool_choice", ERR_INVALID_VALUE},
    {ONE("'tool_choice':5"), "tool_choice", ERR_INVALID_TYPE},
    {ONE("'tool_choice':{'type':'function'}"), "tool_choice.name", ERR_MISSING_PARAMETER},
    {ONE("'tool_choice':{'type':'web_search'}"), "tool_choice.type", ERR_UNSUPPORTED_PARAMETER},
    {ONE("'tool_choice':{'type':'allowed_tools','mode':'none','tools':[]}"), "tool_choice.mode", ERR_INVALID_VALUE},
    {ONE("'tool_choice':{'type':'allowed_tools','mode':'auto'}"), "tool_choice.tools", ERR_MISSING_PARAMETER},
    {ONE("'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'function'}]}"),
     "tool_choice.tools[0].name", ERR_MISSING_PARAMETER},
    {ONE("'text':5"), "text", ERR_INVALID_TYPE},
    {ONE("'text':{'format':5}"), "text.format", ERR_INVALID_TYPE},
    {ONE("'text':{'format':{'type':'xml'}}"), "text.format.type", ERR_INVALID_VALUE},
    {ONE("'text':{'format':{'type':'json_schema'}}"), "text.format.schema", ERR_MISSING_PARAMETER},
    {ONE("'text':{'format':{'type':'json_schema','schema':{},'name':5}}"), "text.format.name", ERR_INVALID_TYPE},
    {ONE("'reasoning':'low'"), "reasoning", ERR_INVALID_TYPE},
};

START_TEST(wrong_fields_are_named)
{
    struct err_info info;
    json_t *in = parse(refusals[_i].in);
    ck_assert_int_eq(read_body(in, NULL, &info), refusals[_i].code);
    ck_assert_str_eq(info.where, refusals[_i].where);
    ck_assert_msg(strncmp(info.text, info.where, strlen(info.where)) == 0, "%s", info.text);
    json_decref(in);
}
END_TEST

/* Errors that are found after reading. */
static const struct {
    const char *more, *where;
    enum err code;
} late_refusals[] = {
    {"'tools':[{'type':'web_search'},{'type':'function','name':'f','parameters':{'type':'x'}}]",
     "tools[1].parameters/type", ERR_INVALID_SCHEMA},
    {"'tools':[{'type':'function','name':'f','parameters':5}]", "tools[0].parameters", ERR_INVALID_TYPE},
    {"'tools':[{'type':'web_search'},{'type':'namespace','name':'n','tools':[{'type':'function','name':'f','strict':5}"
     "]}]",
     "tools[1].tools[0].strict", ERR_INVALID_TYPE},
    {"'tools':[{'type':'custom','name':'p'},{'type':'web_search'},{'type':'custom','name':'p'}]", "tools[2].name",
     ERR_INVALID_VALUE},
    {"'tools':[{'type':'custom','name':'p'}],'tool_choice':{'type':'custom','name':'q'}", "tool_choice.name",
     ERR_INVALID_VALUE},
    {"'tool_choice':'required'", "tool_choice", ERR_INVALID_VALUE},
};

START_TEST(wrong_tools_are_named)
{
    char text[512];
    struct err_info info;
    snprintf(text, sizeof text, "{'input':'Hi',%s}", late_refusals[_i].more);
    json_t *in = parse(text);
    ck_assert_msg(read_body(in, NULL, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(tools_check(&p.tools, false, &info), late_refusals[_i].code);
    ck_assert_str_eq(info.where, late_refusals[_i].where);
    ck_assert_msg(strncmp(info.text, info.where, strlen(info.where)) == 0, "%s", info.text);
    json_decref(in);
}
END_TEST

/* Of custom tools the definition is named, because infcgi makes the schema. */
START_TEST(schemas_without_a_grammar_are_named)
{
    static const char *const rows[][2] = {
        {"'tools':[{'type':'web_search'},{'type':'function','name':'f','parameters':{'properties':{'x':{'pattern':"
         "'(?<=a)b'}}}}],'tool_choice':'required'",
         "tools[1].parameters/properties/x/pattern"},
        {"'tools':[{'type':'web_search'},{'type':'custom','name':'p','format':{'type':'grammar','syntax':'regex',"
         "'definition':'(?<=a)b'}}]",
         "tools[1].format.definition"},
        {"'text':{'format':{'type':'json_schema','schema':{'properties':{'x':{'pattern':'(?<=a)b'}}}}}",
         "text.format.schema/properties/x/pattern"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[512];
        struct err_info info;
        snprintf(text, sizeof text, "{'input':'Hi',%s}", rows[i][0]);
        json_t *in = parse(text);
        ck_assert_msg(read_body(in, NULL, &info) == ERR_OK, "%s", info.text);
        enum err err =
            p.tools.list != NULL ? tool_choice_grammar(&p, call.engine, &info) : params_grammar(&p, call.engine, &info);
        ck_assert_int_eq(err, ERR_INVALID_SCHEMA);
        ck_assert_str_eq(info.where, rows[i][1]);
        json_decref(in);
    }
}
END_TEST

START_TEST(earlier_items_come_first)
{
    struct err_info info;
    json_t *in = parse("{'instructions':'I','input':[" OUTPUT("1") "]}"), *past = parse("[" HI "," CALL("1") "]");
    json_t *expected = parse("[" SYSTEM(
        TEXT("I")) "," ASKED ",{'role':'assistant','content':null,'tool_calls':[" CALLED("1") "]}," RESULT("1") "]");
    ck_assert_msg(read_body(in, past, &info) == ERR_OK, "%s", info.text);
    ck_assert(json_equal(p.messages, expected));
    json_decref(in);
    json_decref(past);
    json_decref(expected);
}
END_TEST

/* Memory is out at every step in turn: that is what is said, and nothing leaks. */
START_TEST(no_memory_is_told)
{
    struct err_info info;
    json_t *in = parse("{'instructions':'I','input':[" HI "," THOUGHT("T") "," THOUGHT("U") "," CALL("1") "," OUTPUT(
        "1") ",{'type':'custom_tool_call','call_id':'2','name':'p','input':'x'}],'tools':[" FUNCTION ",{'type':"
             "'namespace','name':'n','tools':[" FUNCTION "]},{'type':'custom','name':'p','format':{'type':'grammar',"
             "'syntax':'regex','definition':'a'}}],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{"
             "'type':'function','name':'f'}]},'text':{'format':{'type':'json_object'}}}");
    params_init(&p, &call);
    size_t live = mem_live();
    enum err err = ERR_NOMEM;
    for (long n = 0; err != ERR_OK; n++) {
        params_fini(&p);
        ck_assert_uint_eq(mem_live(), live);
        params_init(&p, &call);
        mem_fail_at(n);
        err = responses_read(in, NULL, &p, &info);
        ck_assert_msg(err == (mem_fault_fired() ? ERR_NOMEM : ERR_OK), "%ld: %s", n, info.text);
        mem_fail_at(-1);
    }
    ck_assert_uint_eq(json_array_size(p.messages), 5);
    json_decref(in);
}
END_TEST

/* Many small pieces take linear time, and many tools are refused before they are compared. */
START_TEST(much_is_no_burden)
{
    enum { PARTS = 60000 };
    struct err_info info;
    json_t *parts = json_array(), *tools = json_array();
    for (int i = 0; i < PARTS; i++) {
        json_array_append_new(parts,
                              json_pack("{s:s, s:s}", "type", "reasoning_text", "text", "0123456789012345678901"));
        json_array_append_new(tools, json_pack("{s:s, s:s}", "type", "function", "name", "f"));
    }
    json_t *in = json_pack("{s:[{s:s, s:O}]}", "input", "type", "reasoning", "content", parts);
    ck_assert_int_eq(read_body(in, NULL, &info), ERR_OK);
    const json_t *message = json_array_get(p.messages, 0);
    ck_assert_uint_eq(json_string_length(json_object_get(message, "reasoning_content")), 22 * PARTS);
    json_decref(in);
    in = json_pack("{s:s, s:O, s:{s:s, s:s, s:O}}", "input", "Hi", "tools", tools, "tool_choice", "type",
                   "allowed_tools", "mode", "auto", "tools", tools);
    ck_assert_int_eq(read_body(in, NULL, &info), ERR_INVALID_VALUE);
    ck_assert_str_eq(info.where, "tools");
    json_object_del(in, "tools");
    ck_assert_int_eq(read_body(in, NULL, &info), ERR_INVALID_VALUE);
    ck_assert_str_eq(info.where, "tool_choice.tools");
    json_decref(in);
    json_decref(parts);
    json_decref(tools);
}
END_TEST

START_TEST(a_string_is_an_item)
{
    json_t *text = json_string("Hi"), *items = responses_items(text);
    json_t *expected = parse("[{'type':'message','role':'user','content':[{'type':'input_text','text':'Hi'}]}]");
    ck_assert(json_equal(items, expected));
    ck_assert_ptr_null(responses_items(NULL));
    json_decref(text);
    json_decref(items);
    json_decref(expected);
}
END_TEST

Suite *responses_input_suite(void)
{
    Suite *s = suite_create("responses_input");
    TCase *t = tcase_create("forms");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, bodies_turn_into_chat, 0, ARRAY_LEN(turns));
    tcase_add_loop_test(t, wrong_fields_are_named, 0, ARRAY_LEN(refusals));
    tcase_add_loop_test(t, wrong_tools_are_named, 0, ARRAY_LEN(late_refusals));
    tcase_add_test(t, schemas_without_a_grammar_are_named);
    tcase_add_test(t, earlier_items_come_first);
    tcase_add_test(t, a_string_is_an_item);
    tcase_add_test(t, no_memory_is_told);
    tcase_add_test(t, much_is_no_burden);
    suite_add_tcase(s, t);
    return s;
}
