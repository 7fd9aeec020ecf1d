/* Bodies of Ollama's API as bodies of chat completions. */
#include "engine/base/mem.h"
#include "fcgi/api/ollama/ollama_input.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

Suite *ollama_input_suite(void);

static const struct {
    const char *body, *chat; /* chat NULL: nothing is asked */
    bool is_generate;
} rows[] = {
    {"{'model':'m:latest','messages':[{'role':'user','content':'a'}],'stream':false}",
     "{'model':'m','messages':[{'role':'user','content':'a'}]}", false},
    {"{'messages':[{'role':'user','content':'a'}],'format':'json','think':true,'options':{'num_predict':3,'top_k':2,"
     "'stop':['x'],'num_gpu':1}}",
     "{'messages':[{'role':'user','content':'a'}],'stream':true,'response_format':{'type':'json_object'},"
     "'chat_template_kwargs':{'enable_thinking':true},'max_tokens':3,'top_k':2,'stop':['x']}",
     false},
    {"{'prompt':'p','system':'s','think':false,'format':{'type':'string'},'options':{'num_predict':-1}}",
     "{'messages':[{'role':'system','content':'s'},{'role':'user','content':'p'}],'stream':true,"
     "'reasoning_effort':'none','response_format':{'type':'json_schema','json_schema':{"
     "'schema':{'type':'string'}}}}",
     true},
    {"{'messages':[{'role':'assistant','content':'','thinking':'t','tool_calls':[{'function':{'name':'f','arguments':"
     "{'x':1}}},{'function':{'name':'g'}}]},{'role':'tool','tool_name':'f','content':'5'},{'role':'tool','content':"
     "'6'}],'tools':[]}",
     "{'messages':[{'role':'assistant','content':'','reasoning_content':'t','tool_calls':[{'id':'call_0','type':"
     "'function','function':{'name':'f','arguments':'{\\\"x\\\":1}'}},{'id':'call_1','type':'function','function':{"
     "'name':'g','arguments':'{}'}}]},{'role':'tool','content':'5','tool_call_id':'call_0','name':'f'},{'role':'tool',"
     "'content':'6','tool_call_id':'call_1'}],'stream':true,'tools':[]}",
     false},
    {"{'model':'m'}", NULL, true},
    {"{'model':'m','messages':[]}", NULL, false},
};

/* With ' for ", for the eye. */
static json_t *parse(const char *text)
{
    char copy[1024];
    ck_assert_uint_lt(strlen(text), sizeof copy);
    strcpy(copy, text);
    for (char *at = copy; *at != '\0'; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    json_t *v = json_loads(copy, 0, NULL);
    ck_assert_msg(v != NULL, "%s", copy);
    return v;
}

static struct call call;
static struct params p;

static void setup(void) { rig_begin(&call, true); }

static void teardown(void)
{
    rig_end(&call);
    folder_remove();
}

START_TEST(bodies_become_chats)
{
    struct err_info info = {0};
    call.json = parse(rows[_i].body);
    params_init(&p, &call);
    ck_assert_msg(ollama_read(&call, rows[_i].is_generate, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert((p.messages == NULL) == (rows[_i].chat == NULL));
    if (p.messages != NULL) {
        json_t *expected = parse(rows[_i].chat), *chat = rig_show(&call, &p);
        char *found = json_dumps(chat, 0);
        ck_assert_msg(json_equal(chat, expected), "%s", found);
        mem_free(found); /* jansson's memory is mem.h's */
        json_decref(chat);
        json_decref(expected);
    }
    params_fini(&p);
}
END_TEST

START_TEST(out_of_memory_is_told_and_loses_nothing)
{
    call.json = parse(rows[_i].body);
    enum err err = ERR_NOMEM;
    for (long at = 0; err != ERR_OK; at++) {
        arena_fini(&call.arena);
        arena_init(&call.arena, 0, 0, MEM_REQUEST);
        params_init(&p, &call);
        size_t live = mem_live();
        mem_fail_at(at);
        err = ollama_read(&call, rows[_i].is_generate, &p, NULL);
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || err == ERR_NOMEM);
        params_fini(&p);
        arena_fini(&call.arena);
        arena_init(&call.arena, 0, 0, MEM_REQUEST);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_lt(at, 10000);
    }
}
END_TEST

/* A request without a prompt is answered whatever its options are; of others num_predict is read as max_tokens. */
START_TEST(options_are_read_with_a_prompt)
{
    struct err_info info = {0};
    call.json = parse("{'options':{'temperature':'x','num_predict':'x'}}");
    params_init(&p, &call);
    ck_assert_int_eq(ollama_read(&call, true, &p, &info), ERR_OK);
    json_object_set_new(call.json, "prompt", json_string("a"));
    ck_assert_int_eq(ollama_read(&call, true, &p, &info), ERR_INVALID_TYPE);
    ck_assert_str_eq(info.text, "temperature: expected a number, found a string");
    json_object_del(json_object_get(call.json, "options"), "temperature");
    params_fini(&p);
    ck_assert_int_eq(ollama_read(&call, true, &p, &info), ERR_INVALID_TYPE);
    ck_assert_str_eq(info.text, "max_tokens: expected an integer, found a string");
    params_fini(&p);
}
END_TEST

START_TEST(names_without_their_tag)
{
    ck_assert_uint_eq(ollama_model_len("a:latest"), 1);
    ck_assert_uint_eq(ollama_model_len("a:7b"), 4);
    ck_assert_uint_eq(ollama_model_len(":latest"), 7);
}
END_TEST

Suite *ollama_input_suite(void)
{
    Suite *s = suite_create("ollama_input");
    TCase *t = tcase_create("ollama_input");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, options_are_read_with_a_prompt);
    tcase_add_loop_test(t, bodies_become_chats, 0, 6);
    tcase_add_loop_test(t, out_of_memory_is_told_and_loses_nothing, 0, 6);
    tcase_add_test(t, names_without_their_tag);
    suite_add_tcase(s, t);
    return s;
}
