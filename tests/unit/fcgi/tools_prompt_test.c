/* Tools in the text of messages: where they are told, and what becomes of earlier calls. */
#include "engine/base/mem.h"
#include "fcgi/api/tools_prompt.h"

#include <check.h>
#include <string.h>

Suite *tools_prompt_suite(void);

#define TOLD                                                                                                           \
    "These functions can be called. Each line describes one:\n<tools>\n{\"name\": \"f\"}\n</tools>\nTo call a "        \
    "function, answer with its name and its arguments as JSON:\n<tool_call>\n{\"name\": \"the name\", \"arguments\": " \
    "{\"an argument\": \"its value\"}}\n</tool_call>\nWhat it gives comes back between <tool_response> and "           \
    "</tool_response>."

static json_t *parse(const char *text)
{
    char room[1024];
    strcpy(room, text);
    for (char *p = room; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    json_t *v = json_loads(room, 0, NULL);
    ck_assert_msg(v != NULL, "%s", room);
    return v;
}

/* The messages as "role:content|". */
static void expect(const char *messages, bool has_tools, unsigned flags, const char *expected)
{
    json_t *in = parse(messages), *tools = has_tools ? parse("[{'type':'function','function':{'name':'f'}}]") : NULL;
    json_t *kept = json_deep_copy(in), *out;
    char seen[4096] = "";
    ck_assert_int_eq(tools_prompt(in, tools, flags, &out), ERR_OK);
    for (size_t i = 0; i < json_array_size(out); i++) {
        const json_t *m = json_array_get(out, i);
        strcat(seen, json_string_value(json_object_get(m, "role")));
        strcat(seen, json_object_get(m, "tool_calls") != NULL ? " with calls:" : ":");
        strcat(seen, json_string_value(json_object_get(m, "content")));
        strcat(seen, "|");
    }
    ck_assert_str_eq(seen, expected);
    ck_assert(json_equal(in, kept)); /* they are the request's */
    json_decref(in);
    json_decref(kept);
    json_decref(out);
    json_decref(tools);
}

START_TEST(tools_are_told_once)
{
    expect("[{'role':'user','content':'Hi'}]", true, 0, "system:" TOLD "|user:Hi|");
    expect("[{'role':'system','content':'Be kind.'},{'role':'user','content':'Hi'}]", true, 0,
           "system:Be kind.\n\n" TOLD "|user:Hi|");
    expect("[{'role':'user','content':'Hi'},{'role':'user','content':'Ho'}]", true, TOOLS_PROMPT_NO_SYSTEM,
           "user:" TOLD "\n\nHi|user:Ho|");
    expect("[{'role':'user','content':'Hi'}]", false, 0, "user:Hi|");
}
END_TEST

START_TEST(earlier_calls_are_text)
{
    static const char turns[] =
        "[{'role':'user','content':'Hi'},{'role':'assistant','content':'I ask.','tool_calls':[{'function':{'name':'f',"
        "'arguments':'{}'}},{'function':{'name':'g','arguments':{'a':1}}}]},{'role':'tool','content':'1'},"
        "{'role':'tool','content':'2'},{'role':'assistant','content':'So.'}]";
    expect(turns, false, 0,
           "user:Hi|assistant:I ask.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
           "{\"name\": \"g\", \"arguments\": {\"a\": 1}}\n</tool_call>|user:<tool_response>\n1\n</tool_response>\n"
           "<tool_response>\n2\n</tool_response>|assistant:So.|");
    expect(turns, false, TOOLS_PROMPT_KEEPS_CALLS, "user:Hi|assistant with calls:I ask.|tool:1|tool:2|assistant:So.|");
    expect("[{'role':'assistant','content':null,'tool_calls':[{'function':{'name':'f','arguments':'{}'}}]}]", false, 0,
           "assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>|");
}
END_TEST

START_TEST(no_memory_leaves_nothing)
{
    json_t *in =
        parse("[{'role':'system','content':'S'},{'role':'tool','content':'1'},{'role':'assistant','content':'a',"
              "'tool_calls':[{'function':{'name':'g','arguments':{'a':1}}}]}]");
    json_t *tools = parse("[{'type':'function','function':{'name':'f'}}]"), *out;
    uint64_t n = 0;
    enum err err;
    do {
        mem_fail_at(++n);
        err = tools_prompt(in, tools, 0, &out);
        ck_assert(err == ERR_OK || (err == ERR_NOMEM && out == NULL));
    } while (err != ERR_OK && n < 10000);
    mem_fail_at(0);
    ck_assert_int_eq(err, ERR_OK);
    json_decref(out);
    json_decref(in);
    json_decref(tools);
}
END_TEST

Suite *tools_prompt_suite(void)
{
    Suite *s = suite_create("tools_prompt");
    TCase *t = tcase_create("prompt");
    tcase_add_test(t, tools_are_told_once);
    tcase_add_test(t, earlier_calls_are_text);
    tcase_add_test(t, no_memory_leaves_nothing);
    suite_add_tcase(s, t);
    return s;
}
