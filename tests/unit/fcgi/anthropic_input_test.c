/* Requests of Anthropic's API: what they turn into, what is refused where, and how the endpoint answers. */
#include "fcgi/api/anthropic/anthropic_input.h"
#include "fcgi/api/tool_choice.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Suite *anthropic_input_suite(void);

#define COUNT    "/v1/messages/count_tokens"
#define ASKED    "{'role':'user','content':'Hi'}"
#define CALLED   "{'role':'assistant','content':[{'type':'tool_use','id':'t1','name':'f','input':{'a':1}}]}"
#define MESSAGES "{'model':'m','messages':[" ASKED "]"

/* Quotes are single in these tables. */
static void quote(char *json)
{
    for (char *p = json; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
}

static json_t *parse(const char *text)
{
    char json[2048];
    snprintf(json, sizeof json, "%s", text);
    quote(json);
    json_error_t e;
    json_t *v = json_loads(json, 0, &e);
    ck_assert_msg(v != NULL, "%s: %s", e.text, json);
    return v;
}

/* chat: without the model. */
static const struct {
    const char *in, *chat;
} turns[] = {
    {MESSAGES "}", "{'messages':[" ASKED "]}"},
    {MESSAGES ",'system':'S','max_tokens':5,'metadata':{'user_id':'u'},'tools':null}",
     "{'messages':[{'role':'system','content':'S'}," ASKED "]}"},
    {MESSAGES ",'system':[{'type':'text','text':'x-anthropic-billing-header: v=1; cch=abc'},"
              "{'type':'text','text':'S','cache_control':{'type':'ephemeral'}}]}",
     "{'messages':[{'role':'system','content':[{'type':'text','text':'S'}]}," ASKED "]}"},
    {MESSAGES ",'system':[{'type':'text','text':'x-anthropic-billing-header: v=1'}]}", "{'messages':[" ASKED "]}"},
    {"{'model':'m','messages':[" ASKED ",{'role':'assistant','content':[{'type':'thinking','thinking':'A','signature':"
     "'s'},{'type':'redacted_thinking','data':'d'},{'type':'thinking','thinking':'B'},{'type':'text','text':'T'},"
     "{'type':'tool_use','id':'t1','name':'f','input':{'a':1}}]},{'role':'user','content':[{'type':'tool_result',"
     "'tool_use_id':'t1','content':[{'type':'text','text':'R'}]},{'type':'tool_result','tool_use_id':'t2'},"
     "{'type':'text','text':'Go'}]}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':[{'type':'text','text':'T'}],'reasoning_content':'A\\nB',"
     "'tool_calls':[{'id':'t1','type':'function','function':{'name':'f','arguments':{'a':1}}}]},{'role':'tool',"
     "'tool_call_id':'t1','content':[{'type':'text','text':'R'}]},{'role':'tool','tool_call_id':'t2','content':''},"
     "{'role':'user','content':[{'type':'text','text':'Go'}]}]}"},
    {"{'model':'m','messages':[" ASKED "," CALLED ",{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1',"
     "'content':'5'}]}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':[],'tool_calls':[{'id':'t1','type':'function','function':{"
     "'name':'f','arguments':{'a':1}}}]},{'role':'tool','tool_call_id':'t1','content':'5'}]}"},
    {"{'model':'m','messages':[" ASKED ",{'role':'system','content':'S'},{'role':'system','content':[{'type':'text',"
     "'text':'T'}]},{'role':'assistant','content':'A'},{'role':'system','content':'U'}]}",
     "{'messages':[{'role':'user','content':[{'type':'text','text':'Hi'},{'type':'text','text':'\\n\\n'},{'type':'text'"
     ","
     "'text':'S'},{'type':'text','text':'\\n\\n'},{'type':'text','text':'T'}]},{'role':'assistant','content':'A'},"
     "{'role':'user','content':'U'}]}"},
    {"{'model':'m','messages':[" ASKED ",{'role':'assistant','content':'A'},{'role':'system','content':'S'},{'role':"
     "'user','content':[{'type':'text','text':'T'}]},{'role':'system','content':'U'},{'role':'user','content':'V'},"
     "{'role':'user','content':'W'}]}",
     "{'messages':[" ASKED ",{'role':'assistant','content':'A'},{'role':'user','content':[{'type':'text','text':'S'},"
     "{'type':'text','text':'\\n\\n'},{'type':'text','text':'T'},{'type':'text','text':'\\n\\n'},{'type':'text',"
     "'text':'U'},{'type':'text','text':'\\n\\n'},{'type':'text','text':'V'}]},{'role':'user','content':'W'}]}"},
    {MESSAGES ",'tools':[{'name':'f','description':'D','input_schema':{'type':'object'},'cache_control':{}},"
              "{'type':'custom','name':'g','input_schema':{}}],'tool_choice':{'type':'auto'}}",
     "{'messages':[" ASKED
     "],'tools':[{'type':'function','function':{'name':'f','description':'D','parameters':{'type':"
     "'object'}}},{'type':'function','function':{'name':'g','parameters':{}}}]}"},
    {MESSAGES ",'tool_choice':{'type':'any'}}", "{'messages':[" ASKED "],'tool_choice':'required'}"},
    {MESSAGES ",'tool_choice':{'type':'none'}}", "{'messages':[" ASKED "],'tool_choice':'none'}"},
    {MESSAGES ",'tool_choice':{'type':'tool','name':'f'}}",
     "{'messages':[" ASKED "],'tool_choice':{'type':'function','function':{'name':'f'}}}"},
    {MESSAGES ",'thinking':{'type':'enabled','budget_tokens':1024}}",
     "{'messages':[" ASKED "],'thinking_token_budget':1024,'chat_template_kwargs':{'enable_thinking':true}}"},
    {MESSAGES ",'thinking':{'type':'disabled'}}",
     "{'messages':[" ASKED "],'thinking_token_budget':0,'chat_template_kwargs':{'enable_thinking':false}}"},
    {MESSAGES ",'thinking':{'type':'adaptive','display':'omitted'},'context_management':{'edits':[]}}",
     "{'messages':[" ASKED "],'chat_template_kwargs':{'enable_thinking':true}}"},
    {MESSAGES ",'tools':[{'name':'f','input_schema':{},'strict':true}],'tool_choice':{'type':'any',"
              "'disable_parallel_tool_use':true}}",
     "{'messages':[" ASKED "],'tools':[{'type':'function','function':{'name':'f','parameters':{},'strict':true}}],"
     "'tool_choice':'required','parallel_tool_calls':false}"},
    {MESSAGES ",'output_config':{'effort':'high','format':{'type':'json_schema','schema':{'type':'object'}}}}",
     "{'messages':[" ASKED "],'reasoning_effort':'high','response_format':{'type':'json_schema','json_schema':{"
     "'schema':{'type':'object'}}}}"},
    {MESSAGES ",'output_config':{'effort':null},'output_format':{'type':'json_schema','schema':{}}}",
     "{'messages':[" ASKED "],'response_format':{'type':'json_schema','json_schema':{'schema':{}}}}"},
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

/* Reads the body, which becomes the call's. */
static enum err read_body(json_t *body, bool is_answered, struct err_info *info)
{
    params_fini(&p);
    call_drop_json(&call);
    arena_reset(&call.arena);
    call.json = body;
    *info = (struct err_info){0};
    params_init(&p, &call);
    return anthropic_read(&call, is_answered, &p, info);
}

static void expect_chat(const char *text)
{
    json_t *expected = parse(text), *chat = rig_show(&call, &p);
    char found[2048] = "";
    ck_assert_str_eq(json_string_value(json_object_get(chat, "model")), "m");
    json_object_del(chat, "model");
    json_dumpb(chat, found, sizeof found - 1, JSON_COMPACT);
    ck_assert_msg(json_equal(chat, expected), "%s", found);
    json_decref(expected);
    json_decref(chat);
}

START_TEST(bodies_turn_into_chat)
{
    struct err_info info;
    ck_assert_msg(read_body(parse(turns[_i].in), false, &info) == ERR_OK, "%s", info.text);
    expect_chat(turns[_i].chat);
}
END_TEST

/* With each allocation failing in turn. */
START_TEST(no_memory_is_told)
{
    struct err_info info;
    json_t *in = parse(turns[_i].in);
    (void)read_body(json_incref(in), false, &info);
    bool fired = true;
    for (int n = 0; fired; n++) {
        params_fini(&p);
        params_init(&p, &call);
        size_t live = mem_live();
        mem_fail_at(n);
        enum err err = anthropic_read(&call, false, &p, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (fired ? ERR_NOMEM : ERR_OK), "allocation %d: %s", n, err_code(err));
        params_fini(&p);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_lt(n, 1000);
    }
    json_decref(in);
}
END_TEST

/* Of what a body may hold, many small pieces: the work grows as they do, or this test runs out of time. */
START_TEST(many_blocks_take_their_time_once)
{
    enum { N = 60000 };
    struct err_info info;
    json_t *body = parse(MESSAGES "}"), *system = json_array(), *thoughts = json_array();
    for (int i = 0; i < N; i++) {
        json_array_append_new(system, parse("{'type':'text','text':'x-anthropic-billing-header: a'}"));
        json_array_append_new(thoughts,
                              parse("{'type':'thinking','thinking':'A thought of about forty bytes, or so'}"));
        json_array_append_new(json_object_get(body, "messages"), parse("{'role':'system','content':'S'}"));
    }
    json_object_set_new(body, "system", system);
    json_array_append_new(json_object_get(body, "messages"),
                          json_pack("{s:s,s:o}", "role", "assistant", "content", thoughts));
    ck_assert_int_eq(read_body(body, false, &info), ERR_OK);
    const json_t *messages = p.messages;
    ck_assert_uint_eq(json_array_size(messages), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(messages, 0), "content")), 2 * N + 1);
    ck_assert_uint_eq(json_string_length(json_object_get(json_array_get(messages, 1), "reasoning_content")),
                      N * 38 - 1);
}
END_TEST

#define ONE(content)          "{'model':'m','messages':[{'role':'user','content':" content "}]}"
#define BY_ASSISTANT(content) "{'model':'m','messages':[" ASKED ",{'role':'assistant','content':[" content "]}]}"

static const struct {
    const char *in, *where;
    enum err code;
} refusals[] = {
    {"{'messages':[]}", "model", ERR_MISSING_PARAMETER},
    {"{'model':'m'}", "messages", ERR_MISSING_PARAMETER},
    {"{'model':'m','messages':{}}", "messages", ERR_INVALID_TYPE},
    {"{'model':'m','messages':[1]}", "messages[0]", ERR_INVALID_TYPE},
    {"{'model':'m','messages':[{'role':'tool','content':''}]}", "messages[0].role", ERR_INVALID_VALUE},
    {"{'model':'m','messages':[{'content':''}]}", "messages[0].role", ERR_MISSING_PARAMETER},
    {ONE("5"), "messages[0].content", ERR_INVALID_TYPE},
    {"{'model':'m','messages':[{'role':'system'}]}", "messages[0].role", ERR_INVALID_VALUE},
    {"{'model':'m','messages':[{'role':'system','content':[{'type':'image'}]}]}", "messages[0].content[0].type",
     ERR_INVALID_VALUE},
    {ONE("[5]"), "messages[0].content[0]", ERR_INVALID_TYPE},
    {ONE("[{}]"), "messages[0].content[0].type", ERR_MISSING_PARAMETER},
    {ONE("[{'type':'text'}]"), "messages[0].content[0].text", ERR_MISSING_PARAMETER},
    {ONE("[{'type':'image','source':{}}]"), "messages[0].content[0].type", ERR_INVALID_VALUE},
    {ONE("[{'type':'tool_use','id':'t','name':'f','input':{}}]"), "messages[0].content[0].type", ERR_INVALID_VALUE},
    {ONE("[{'type':'tool_result','tool_use_id':'t'}]"), "messages[0].content[0]", ERR_INVALID_VALUE},
    {BY_ASSISTANT("{'type':'tool_use','id':'t','name':'f','input':'{}'}"), "messages[1].content[0].input",
     ERR_INVALID_TYPE},
    {BY_ASSISTANT("{'type':'tool_use','name':'f','input':{}}"), "messages[1].content[0].id", ERR_MISSING_PARAMETER},
    {BY_ASSISTANT("{'type':'tool_use','id':'t','input':{}}"), "messages[1].content[0].name", ERR_MISSING_PARAMETER},
    {BY_ASSISTANT("{'type':'thinking'}"), "messages[1].content[0].thinking", ERR_MISSING_PARAMETER},
    {BY_ASSISTANT("{'type':'tool_result','tool_use_id':'t'}"), "messages[1].content[0].type", ERR_INVALID_VALUE},
    {"{'model':'m','messages':[" CALLED
     ",{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1','content':["
     "{'type':'image'}]}]}]}",
     "messages[1].content[0].content[0].type", ERR_INVALID_VALUE},
    {"{'model':'m','messages':[" CALLED ",{'role':'user','content':[{'type':'tool_result'}]}]}",
     "messages[1].content[0].tool_use_id", ERR_MISSING_PARAMETER},
    {MESSAGES ",'system':5}", "system", ERR_INVALID_TYPE},
    {MESSAGES ",'system':[{'type':'image'}]}", "system[0].type", ERR_INVALID_VALUE},
    {MESSAGES ",'tools':{}}", "tools", ERR_INVALID_TYPE},
    {MESSAGES ",'tools':[1]}", "tools[0]", ERR_INVALID_TYPE},
    {MESSAGES ",'tools':[{'type':'web_search_20250305','name':'web_search'}]}", "tools[0].type",
     ERR_UNSUPPORTED_PARAMETER},
    {MESSAGES ",'tools':[{'input_schema':{}}]}", "tools[0].name", ERR_MISSING_PARAMETER},
    {MESSAGES ",'tools':[{'name':'f'}]}", "tools[0].input_schema", ERR_MISSING_PARAMETER},
    {MESSAGES ",'tool_choice':'auto'}", "tool_choice", ERR_INVALID_TYPE},
    {MESSAGES ",'tool_choice':{'type':'x'}}", "tool_choice.type", ERR_INVALID_VALUE},
    {MESSAGES ",'tool_choice':{'type':'tool'}}", "tool_choice.name", ERR_MISSING_PARAMETER},
    {MESSAGES ",'thinking':true}", "thinking", ERR_INVALID_TYPE},
    {MESSAGES ",'thinking':{'type':'on'}}", "thinking.type", ERR_INVALID_VALUE},
    {MESSAGES ",'mcp_servers':[{}]}", "mcp_servers", ERR_UNSUPPORTED_PARAMETER},
    {MESSAGES ",'thread':{'type':'create'},'mcp_servers':[]}", "thread", ERR_UNSUPPORTED_PARAMETER},
    {MESSAGES ",'thinking':{'type':'enabled','budget_tokens':0}}", "thinking.budget_tokens", ERR_INVALID_VALUE},
    {MESSAGES ",'thinking':{'type':'enabled','budget_tokens':'1'}}", "thinking.budget_tokens", ERR_INVALID_TYPE},
    {MESSAGES ",'tool_choice':{'type':'auto','disable_parallel_tool_use':1}}", "tool_choice.disable_parallel_tool_use",
     ERR_INVALID_TYPE},
    {MESSAGES ",'output_config':5}", "output_config", ERR_INVALID_TYPE},
    {MESSAGES ",'output_config':{'effort':'none'}}", "output_config.effort", ERR_INVALID_VALUE},
    {MESSAGES ",'output_config':{'format':{'type':'json'}}}", "output_config.format.type", ERR_INVALID_VALUE},
    {MESSAGES ",'output_config':{'format':{'type':'json_schema'}}}", "output_config.format.schema",
     ERR_MISSING_PARAMETER},
    {MESSAGES ",'output_format':{}}", "output_format.type", ERR_MISSING_PARAMETER},
    {BY_ASSISTANT("{'type':'tool_use','id':'t','name':'a b','input':{}}"), "messages[1].content[0].name",
     ERR_INVALID_VALUE},
};

START_TEST(wrong_fields_are_named)
{
    struct err_info info;
    ck_assert_int_eq(read_body(parse(refusals[_i].in), false, &info), refusals[_i].code);
    ck_assert_str_eq(info.where, refusals[_i].where);
}
END_TEST

static const struct {
    const char *more, *chat; /* members after max_tokens; settings that are read */
} settings[] = {
    {"", ""},
    {",'temperature':0.5,'top_p':0.75,'top_k':5,'stream':true,'metadata':{'user_id':'u'},'service_tier':'auto'",
     ",'temperature':0.5,'top_p':0.75,'top_k':5,'stream':true"},
    {",'stop_sequences':['a','b'],'seed':1,'n':2,'echo':true,'stop':'c','response_format':5",
     ",'stop':['a','b'],'seed':1"},
    {",'temperature':null,'stop_sequences':null", ""},
};

START_TEST(settings_are_read)
{
    char text[512];
    struct err_info info;
    snprintf(text, sizeof text, MESSAGES ",'max_tokens':7%s}", settings[_i].more);
    ck_assert_msg(read_body(parse(text), true, &info) == ERR_OK, "%s", info.text);
    snprintf(text, sizeof text, "{'messages':[" ASKED "],'max_tokens':7%s}", settings[_i].chat);
    expect_chat(text);
    ck_assert(p.n == 1 && !p.echo);
}
END_TEST

/* Errors that are found after reading: in a tool, the choice, or a schema that no grammar exists for. */
static const struct {
    const char *more, *where, *text;
    enum err code;
} late_refusals[] = {
    {"'tools':[{'name':'f','input_schema':{}},{'name':'f','input_schema':{}}]", "tools[1].name",
     "tools[1].name: expected a name that no tool in front has, found 'f'", ERR_INVALID_VALUE},
    {"'tools':[{'name':'f','input_schema':{'properties':{'a':{'type':5}}}}]", "tools[0].input_schema/properties/a/type",
     "tools[0].input_schema/properties/a/type: ", ERR_INVALID_SCHEMA},
    {"'tools':[{'name':'f','input_schema':{},'description':5}]", "tools[0].description",
     "tools[0].description: expected a string, found 5", ERR_INVALID_TYPE},
    {"'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'tool','name':'g'}", "tool_choice.name",
     "tool_choice.name: expected the name of one of tools, found 'g'", ERR_INVALID_VALUE},
    {"'tool_choice':{'type':'any'}", "tool_choice",
     "tool_choice: expected \"required\" only with tools, found 'required'", ERR_INVALID_VALUE},
};

START_TEST(wrong_tools_are_named)
{
    char text[512];
    struct err_info info;
    snprintf(text, sizeof text, MESSAGES ",%s}", late_refusals[_i].more);
    ck_assert_msg(read_body(parse(text), false, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(tools_check(&p.tools, false, &info), late_refusals[_i].code);
    ck_assert_str_eq(info.where, late_refusals[_i].where);
    ck_assert_msg(strncmp(info.text, late_refusals[_i].text, strlen(late_refusals[_i].text)) == 0, "%s", info.text);
}
END_TEST

START_TEST(schemas_without_a_grammar_are_named)
{
    static const char bad[] = "{'type':'object','properties':{'x':{'pattern':'(?<=a)b'}}}";
    char text[512];
    struct err_info info;
    snprintf(text, sizeof text, MESSAGES ",'output_config':{'format':{'type':'json_schema','schema':%s}}}", bad);
    ck_assert_int_eq(read_body(parse(text), false, &info), ERR_OK);
    ck_assert_int_eq(params_grammar(&p, call.engine, &info), ERR_INVALID_SCHEMA);
    ck_assert_str_eq(info.where, "output_config.format.schema/properties/x/pattern");
    snprintf(text, sizeof text, MESSAGES ",'tools':[{'name':'f','input_schema':%s}],'tool_choice':{'type':'any'}}",
             bad);
    ck_assert_int_eq(read_body(parse(text), false, &info), ERR_OK);
    ck_assert_int_eq(tool_choice_grammar(&p, call.engine, &info), ERR_INVALID_SCHEMA);
    ck_assert_str_eq(info.where, "tools[0].input_schema/properties/x/pattern");
}
END_TEST

/* --- the endpoint ----------------------------------------------------------------------------------------------- */

static int post(const char *uri, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int post(const char *uri, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    quote(text);
    return rig_post(uri, text);
}

START_TEST(counts_what_chat_would_prompt)
{
    const struct server *server = rig_serve(false, false);
    ck_assert_int_eq(
        post("/v1/chat/completions", "{'max_tokens':1,'messages':[{'role':'system','content':'S'}," ASKED "]}"), 200);
    json_int_t n = rig_number_at("usage.prompt_tokens");
    ck_assert_int_eq(post(COUNT, "{'model':'%s','system':'S','messages':[" ASKED "]}", server->model_id), 200);
    ck_assert_int_eq(rig_number_at("input_tokens"), n);
}
END_TEST

static void expect_error(int status, int found, const char *type)
{
    ck_assert_int_eq(found, status);
    ck_assert_str_eq(rig_text_at("type"), "error");
    ck_assert_str_eq(rig_text_at("error.type"), type);
    ck_assert_uint_gt(strlen(rig_text_at("error.message")), 0);
    char header[128];
    snprintf(header, sizeof header, "\r\nRequest-Id: %s\r\n", rig_text_at("request_id"));
    ck_assert_ptr_nonnull(strstr(rig_got.raw.data, header));
}

START_TEST(errors_have_that_form)
{
    const struct server *server = rig_serve(false, false);
    expect_error(400, post(COUNT, "{'model':'%s'}", server->model_id), "invalid_request_error");
    expect_error(404, post(COUNT, "{'model':'other','messages':[" ASKED "]}"), "not_found_error");
    expect_error(404, post("/v1/messages/other", "{}"), "not_found_error");
    expect_error(400, post("/v1/messages", "{}"), "invalid_request_error");
    expect_error(405, rig_get(COUNT), "invalid_request_error");
    ck_assert_int_eq(post("/v1/messagesx", "{}"), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "unknown_url");
}
END_TEST

START_TEST(a_model_that_loads_is_overload)
{
    rig_serve(false, true);
    expect_error(503, post(COUNT, MESSAGES "}"), "overloaded_error");
}
END_TEST

Suite *anthropic_input_suite(void)
{
    Suite *s = suite_create("anthropic_input");
    TCase *forms = tcase_create("forms"), *served = tcase_create("served");
    tcase_add_checked_fixture(forms, setup, teardown);
    tcase_add_loop_test(forms, bodies_turn_into_chat, 0, ARRAY_LEN(turns));
    tcase_add_loop_test(forms, no_memory_is_told, 0, ARRAY_LEN(turns));
    tcase_add_test(forms, many_blocks_take_their_time_once);
    tcase_add_loop_test(forms, wrong_fields_are_named, 0, ARRAY_LEN(refusals));
    tcase_add_loop_test(forms, settings_are_read, 0, ARRAY_LEN(settings));
    tcase_add_loop_test(forms, wrong_tools_are_named, 0, ARRAY_LEN(late_refusals));
    tcase_add_test(forms, schemas_without_a_grammar_are_named);
    tcase_set_tags(served, "fork");
    tcase_add_checked_fixture(served, NULL, rig_unserve);
    tcase_add_test(served, counts_what_chat_would_prompt);
    tcase_add_test(served, errors_have_that_form);
    tcase_add_test(served, a_model_that_loads_is_overload);
    suite_add_tcase(s, forms);
    suite_add_tcase(s, served);
    return s;
}
