/* Bodies of Ollama's API as bodies of chat completions. */
#include "engine/base/mem.h"
#include "fcgi/api/ollama/ollama_input.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

Suite *ollama_input_suite(void);

static const struct {
    const char *body, *chat; /* chat NULL: nothing is asked */
    bool is_generate;
} rows[] = {
    {"{'model':'m:latest','messages':[{'role':'user','content':'a'}],'stream':false}",
     "{'model':'m','messages':[{'role':'user','content':'a'}],'stream':false}", false},
    {"{'messages':[{'role':'user','content':'a'}],'format':'json','think':true,'options':{'num_predict':3,'top_k':2,"
     "'stop':['x'],'num_gpu':1}}",
     "{'messages':[{'role':'user','content':'a'}],'stream':true,'response_format':{'type':'json_object'},"
     "'chat_template_kwargs':{'enable_thinking':true},'max_tokens':3,'top_k':2,'stop':['x']}",
     false},
    {"{'prompt':'p','system':'s','think':false,'format':{'type':'string'},'options':{'num_predict':-1}}",
     "{'messages':[{'role':'system','content':'s'},{'role':'user','content':'p'}],'stream':true,"
     "'reasoning_effort':'none','response_format':{'type':'json_schema','json_schema':{'name':'answer',"
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

START_TEST(bodies_become_chats)
{
    struct err_info info = {0};
    json_t *body = parse(rows[_i].body), *chat, *expected = rows[_i].chat != NULL ? parse(rows[_i].chat) : NULL;
    ck_assert_msg(ollama_to_chat(body, rows[_i].is_generate, true, &chat, &info) == ERR_OK, "%s", info.text);
    char *found = chat != NULL ? json_dumps(chat, 0) : NULL;
    ck_assert_msg(expected == NULL ? chat == NULL : json_equal(chat, expected), "%s", found);
    mem_free(found); /* jansson's memory is mem.h's */
    json_decref(chat);
    json_decref(expected);
    json_decref(body);
}
END_TEST

START_TEST(out_of_memory_is_told_and_loses_nothing)
{
    json_t *body = parse(rows[_i].body), *chat;
    size_t live = mem_live();
    enum err err = ERR_NOMEM;
    for (long at = 0; err != ERR_OK; at++) {
        mem_fail_at(at);
        err = ollama_to_chat(body, rows[_i].is_generate, true, &chat, NULL);
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || (err == ERR_NOMEM && chat == NULL));
        json_decref(chat);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_lt(at, 10000);
    }
    json_decref(body);
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
    tcase_add_loop_test(t, bodies_become_chats, 0, 6);
    tcase_add_loop_test(t, out_of_memory_is_told_and_loses_nothing, 0, 6);
    tcase_add_test(t, names_without_their_tag);
    suite_add_tcase(s, t);
    return s;
}
