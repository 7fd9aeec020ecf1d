/* Which form of a conversation a template is given, and which of its errors a client reads. */
#include "fcgi/api/chat_render.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *chat_render_suite(void);

#define CHAT "/v1/chat/completions"

static void setup(void) { rig_serve(false, false); }

#define PRINTED "{{ m.role[0] }}:{{ m.content if m.content is not none else 'none' }};"

/* A system message only at the beginning, then users and assistants in turn. */
static const char strict[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "{% if m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' %}"
    "{{ raise_exception('Roles must alternate.') }}{% endif %}" PRINTED
    "{% for t in m.tool_calls or [] %}{% for k, v in t.function.arguments|items %}{{ k }}={{ v }};{% endfor %}{% endfor %}"
    "{% endfor %}{% if tools %}{% endif %}";

static const char no_system[] = "{% for m in messages %}{% if m.role == 'system' %}"
                                "{{ raise_exception('System role not supported') }}{% endif %}" PRINTED "{% endfor %}";

/* body: with single quotation marks. */
static void expect_prompt(const char *template, const char *body, const char *prompt)
{
    char room[2048];
    rig_use_template(template);
    ck_assert_msg(rig_post("/apply-template", rig_quotes(body, room)) == 200, "%s: %s", body, rig_got.body);
    ck_assert_msg(strcmp(rig_text_at("prompt"), prompt) == 0, "%s: expected '%s', got '%s'", body, prompt,
                  rig_text_at("prompt"));
}

#define U(text) "{'role':'user','content':'" text "'}"
#define S(text) "{'role':'system','content':'" text "'}"
#define D(text) "{'role':'developer','content':'" text "'}"
#define A(text) "{'role':'assistant','content':'" text "'}"
#define T(text) "{'role':'tool','tool_call_id':'c','content':'" text "'}"
#define CALL                                                                                                           \
    "{'role':'assistant','content':null,'tool_calls':[{'id':'c','type':'function','function':{'name':'f',"             \
    "'arguments':'{\\'x\\':1}'}}]}"
#define TALK(of) "{'messages':[" of "]}"

START_TEST(system_messages_are_folded_if_the_template_rejects_them)
{
    static const struct {
        const char *template, *body, *prompt;
    } cases[] = {
        {strict, TALK(S("1") "," D("2") "," U("3")), "s:1\n\n2;u:3;"},
        {strict, TALK(U("1") "," A("2") "," S("3") "," U("4")), "u:1;a:2;u:3\n\n4;"},
        {strict, TALK(U("1") "," A("2") "," D("3")), "u:1;a:2;u:3;"},
        {strict, TALK(S("0") "," U("1") "," S("2") "," U("3")), "s:0;u:1\n\n2\n\n3;"},
        {strict, TALK(U("1") "," CALL "," T("2") "," S("3")), "u:1;a:none;x=1;t:2;u:3;"},
        {no_system, TALK(S("1") "," U("2")), "u:1\n\n2;"},
        {no_system, TALK(S("1") "," D("2") "," U("3") "," A("4") "," S("5")), "u:1\n\n2\n\n3;a:4;u:5;"},
        /* a template that takes them gets them as they are */
        {strict, TALK(S("1") "," U("2")), "s:1;u:2;"},
        {"{% for m in messages %}" PRINTED "{% endfor %}", TALK(S("1") "," D("2") "," U("3") "," S("4") "," U("5")),
         "s:1;s:2;u:3;s:4;u:5;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        expect_prompt(cases[i].template, cases[i].body, cases[i].prompt);
    }
}
END_TEST

/* The tiny model has a token for each byte. */
START_TEST(every_endpoint_folds)
{
    static const struct {
        const char *uri, *body, *path;
    } cases[] = {
        {CHAT, "{'max_tokens':1,'messages':[" U("1") "," A("2") "," S("3") "," U("4") "]}", "usage.prompt_tokens"},
        {CHAT, "{'max_tokens':1,'messages':[" U("1") "," A("2") "," D("3") "," U("4") "]}", "usage.prompt_tokens"},
        {"/v1/responses", "{'max_output_tokens':1,'input':[" U("1") "," A("2") "," D("3") "," U("4") "]}",
         "usage.input_tokens"},
        {"/v1/responses", "{'max_output_tokens':1,'input':[" U("1") "," A("2") "," S("3") "," U("4") "]}",
         "usage.input_tokens"},
        {"/v1/messages", "{'model':'tiny','max_tokens':1,'messages':[" U("1") "," A("2") "," S("3") "," U("4") "]}",
         "usage.input_tokens"},
        {"/api/chat",
         "{'model':'tiny','stream':false,'options':{'num_predict':1},'messages':[" U("1") "," A("2") "," S("3") "," U(
             "4") "]}",
         "prompt_eval_count"},
    };
    rig_use_template(strict);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char room[512];
        ck_assert_msg(rig_post(cases[i].uri, rig_quotes(cases[i].body, room)) == 200, "%s: %s", cases[i].uri,
                      rig_got.body);
        ck_assert_msg(rig_number_at(cases[i].path) == (json_int_t)strlen("u:1;a:2;u:3\n\n4;"), "%s: %s", cases[i].uri,
                      rig_got.body);
    }
}
END_TEST

/* Contents that were filled in for one attempt are null again in the next. */
START_TEST(each_form_begins_with_what_was_sent)
{
    expect_prompt(strict, TALK(U("1") "," CALL "," T("2") "," S("3")), "u:1;a:none;x=1;t:2;u:3;");
}
END_TEST

#define TOOL(members) "{'messages':[" U("1") "],'tools':[{'type':'function','function':{'name':'f'" members "}}]}"

START_TEST(tools_are_complete_if_the_template_needs_it)
{
    static const char adds[] = "{% for t in tools %}{{ t.function.name + ':' + t.function.description }}{% endfor %}";
    static const char reads[] = "{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ k }},"
                                "{% endfor %}{{ t.function.parameters|tojson }}{% endfor %}";
    static const char prints[] = "{{ tools[0]|tojson }}";
    static const struct {
        const char *template, *body, *prompt;
    } cases[] = {
        {adds, TOOL(""), "f:"},
        {adds, TOOL(",'description':null"), "f:"},
        {adds, TOOL(",'description':'d'"), "f:d"},
        {reads, TOOL(""), "{\"type\": \"object\", \"properties\": {}}"},
        {reads, TOOL(",'parameters':null"), "{\"type\": \"object\", \"properties\": {}}"},
        {reads, TOOL(",'parameters':{}"), "{\"type\": \"object\", \"properties\": {}}"},
        {reads, TOOL(",'parameters':{'type':'object'}"), "{\"type\": \"object\", \"properties\": {}}"},
        {reads, TOOL(",'parameters':{'type':'object','properties':{'a':{}}}"),
         "a,{\"type\": \"object\", \"properties\": {\"a\": {}}}"},
        /* a template that needs nothing sees what was sent */
        {prints, TOOL(""), "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"},
        {prints, TOOL(",'description':null"),
         "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null}}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        expect_prompt(cases[i].template, cases[i].body, cases[i].prompt);
    }
}
END_TEST

START_TEST(several_forms_at_once)
{
    static const char both[] =
        "{% for t in tools %}{{ t.function.name + t.function.description }}{% endfor %}"
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}" PRINTED
        "{% for t in m.tool_calls or [] %}{{ '' + t.function.arguments }}{% endfor %}{% endfor %}";
    expect_prompt(both,
                  "{'tools':[{'type':'function','function':{'name':'f'}}],'messages':[" U("1") "," CALL "," T(
                      "2") "," S("3") "]}",
                  "fu:1;a:none;{\"x\":1}t:2;u:3;");
}
END_TEST

/* body: with single quotation marks. */
static void expect_error(const char *template, const char *body, const char *message)
{
    char room[2048];
    rig_use_template(template);
    rig_refuse(CHAT, rig_quotes(body, room), 400, "template_error", NULL);
    ck_assert_msg(strstr(rig_text_at("error.message"), message) != NULL, "%s: %s", body, rig_got.body);
}

START_TEST(the_first_error_that_the_template_raised_is_reported)
{
    static const char items[] =
        "{% for m in messages %}{% for t in m.tool_calls or [] %}{% for k, v in t.function.arguments|items %}{% endfor %}"
        "{% endfor %}{% endfor %}{{ raise_exception('The end.') }}";
    static const char strings[] =
        "{% for m in messages %}{% for t in m.tool_calls or [] %}{{ '' + t.function.arguments }}"
        "{% endfor %}{% endfor %}{{ raise_exception('The end.') }}";
    static const char counts[] = "{{ raise_exception('messages: ' ~ messages|length) }}";
    expect_error(items, TALK(U("1") "," CALL "," T("2")), ": The end.");   /* first it raises, then it breaks */
    expect_error(strings, TALK(U("1") "," CALL "," T("2")), ": The end."); /* first it breaks, then it raises */
    expect_error(counts, TALK(U("1") "," A("2") "," S("3") "," U("4")), ": messages: 4");
    expect_error("{{ messages[0].content.x.y }}", TALK(U("1") "," CALL "," T("2")),
                 "'str object' has no attribute 'x'");
    expect_error("{{ messages|length + 'x' }}", TALK(U("1") "," S("2") "," CALL "," T("3")), "unsupported operand");
}
END_TEST

Suite *chat_render_suite(void)
{
    Suite *s = suite_create("chat_render");
    TCase *t = tcase_create("chat_render");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, system_messages_are_folded_if_the_template_rejects_them);
    tcase_add_test(t, every_endpoint_folds);
    tcase_add_test(t, each_form_begins_with_what_was_sent);
    tcase_add_test(t, tools_are_complete_if_the_template_needs_it);
    tcase_add_test(t, several_forms_at_once);
    tcase_add_test(t, the_first_error_that_the_template_raised_is_reported);
    suite_add_tcase(s, t);
    return s;
}
