/* What the template is shown of a conversation. The tiny model has a token for each byte, so that the number of prompt
 * tokens tells how long the rendered text is. */
#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "fcgi/api/messages.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *messages_suite(void);

#define CHAT "/v1/chat/completions"
#define CALLED                                                                                                         \
    "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"

static void setup(void) { rig_serve(false, false); }

/* Prompt tokens of a conversation in which the assistant's message has these members. */
static long long prompt_tokens(const char *members)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"None\"},{\"role\":\"user\",\"content\":\"Hi"
        "\"},{\"role\":\"assistant\"%s},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"5\"}]}",
        members);
    int status = rig_post(CHAT, body);
    ck_assert_msg(status == 200, "%s: %d %s", body, status, rig_got.body);
    return rig_number_at("usage.prompt_tokens");
}

/* Calls alone, as OpenAI's clients send them: content null, absent, or empty. */
static void expect_equal_to_empty(void)
{
    long long empty = prompt_tokens(",\"content\":\"\"," CALLED);
    ck_assert_int_eq(prompt_tokens(",\"content\":null," CALLED), empty);
    ck_assert_int_eq(prompt_tokens("," CALLED), empty);
    ck_assert_int_eq(prompt_tokens(",\"content\":null"), empty);
}

START_TEST(null_content_where_a_template_adds_strings)
{
    struct buf source;
    struct err_info info = {0};
    buf_init(&source, 0, MEM_GENERAL);
    static const char path[] = "tests/data/templates/smollm2-135m-instruct.jinja";
    ck_assert_msg(io_read_file(path, 1 << 20, &source, &info) == ERR_OK, "%s", info.text);
    rig_use_template(source.data);
    buf_fini(&source);
    expect_equal_to_empty();
    rig_refuse(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", 400, "missing_required_parameter",
               "messages[0].content");
}
END_TEST

START_TEST(null_content_where_a_template_prints_it) { expect_equal_to_empty(); /* the rig's */ }
END_TEST

/* DeepSeek's template knows calls by it. */
START_TEST(null_content_where_a_template_asks_for_it)
{
    static const char source[] = "{% for m in messages %}{% if m.content is none %}called{% else %}[{{ m.content }}]"
                                 "{% endif %}{% endfor %}";
    rig_use_template(source);
    static const char text[] = "[None][Hi]called[5]";
    ck_assert_int_eq(prompt_tokens(",\"content\":null," CALLED), (long long)strlen(text));
    ck_assert_int_eq(prompt_tokens("," CALLED), (long long)strlen(text));
    ck_assert_int_eq(prompt_tokens(",\"content\":\"\"," CALLED), (long long)strlen(text) - 4);
}
END_TEST

/* What the template says of the conversation as it was sent is what the client reads. */
START_TEST(a_template_that_fails_either_way)
{
    static const char source[] =
        "{{ raise_exception('content is ' ~ ('null' if messages[1].content is none else 'text')) }}";
    rig_use_template(source);
    rig_refuse(CHAT,
               "{\"add_generation_prompt\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
               "{\"role\":\"assistant\",\"content\":null}]}",
               400, "template_error", NULL);
    ck_assert_msg(strstr(rig_text_at("error.message"), "content is null") != NULL, "%s", rig_got.body);
}
END_TEST

#define ASKED             "{\"role\":\"user\",\"content\":\"q\"}"
#define ANSWERED(members) "{\"messages\":[" ASKED ",{\"role\":\"assistant\"," members "}," ASKED "]}"

/* The prompt that a template makes of an answer with these members. */
static void expect_prompt(const char *body, const char *prompt)
{
    int status = rig_post("/apply-template", body);
    ck_assert_msg(status == 200, "%s: %d %s", body, status, rig_got.body);
    ck_assert_msg(strcmp(rig_text_at("prompt"), prompt) == 0, "%s: expected '%s', found '%s'", body, prompt,
                  rig_text_at("prompt"));
}

/* Whatever name thinking comes by, a template finds it by each. */
START_TEST(thinking_has_all_names)
{
    static const char *const members[] = {
        "\"content\":\"c\",\"reasoning_content\":\"t\"",
        "\"content\":\"c\",\"reasoning\":\"t\"",
        "\"content\":\"c\",\"thinking\":\"t\"",
        "\"content\":\"c\",\"reasoning_content\":\"\",\"reasoning\":null,\"thinking\":\"t\"",
        "\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":\"text\",\"text\":\"c\"}]",
        "\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"t\"}]},{\"type\":\"text\","
        "\"text\":\"c\"}]",
    };
    rig_use_template(
        "{% set m = messages[1] %}{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.thinking }}|{{ m.content }}|"
        "{{ m.content_with_thinking is defined }}");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        char body[512];
        snprintf(body, sizeof body, ANSWERED("%s"), members[i]);
        expect_prompt(body, "t|t|t|c|False");
    }
    expect_prompt(ANSWERED("\"content\":\"c\",\"reasoning\":\"a\",\"thinking\":\"b\""), "a|a|b|c|False");
    expect_prompt(ANSWERED("\"content\":\"c\",\"thinking\":{\"x\":1},\"content_with_thinking\":[]"),
                  "||{'x': 1}|c|False");
    rig_refuse(CHAT, ANSWERED("\"content\":[{\"type\":\"thinking\",\"thinking\":5}]"), 400, "invalid_value",
               "messages[1].content[0].thinking");
    rig_refuse(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"}]}]}",
               400, "invalid_value", "messages[0].content[0].type");
}
END_TEST

/* A template such as Ministral 3's reads parts, in their order, and no field. */
START_TEST(thinking_reaches_templates_as_parts)
{
    rig_use_template(
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}"
        "{% if b['type'] == 'thinking' %}[{{ b['thinking'] }}]{% else %}{{ b['text'] }}{% endif %}{% endfor %}"
        "{% endif %};{% endfor %}");
    expect_prompt(ANSWERED("\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"thinking\",\"thinking\":\"t\"},"
                           "{\"type\":\"text\",\"text\":\"b\"}]"),
                  "q;a[t]b;q;");
    expect_prompt(ANSWERED("\"content\":\"c\",\"reasoning_content\":\"t\""), "q;[t]c;q;");
    expect_prompt(ANSWERED("\"content\":\"\",\"thinking\":\"t\"," CALLED), "q;[t];q;");
    expect_prompt(
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"thinking\","
        "\"thinking\":[{\"type\":\"text\",\"text\":\"t\"}]}]}," ASKED "]}",
        "a[t];q;");
}
END_TEST

/* Thinking is made a part only for a template that compares a part's type with 'thinking', in whatever spelling. */
START_TEST(a_template_that_names_thinking_reads_no_parts)
{
    static const char *const reads_none[] = {
        "{{ m['thinking'] }}",         "{{ m.get(\"thinking\") }}",  "{{ m['thinking'] if m['role'] == 'assistant' }}",
        "{% set type = 'thinking' %}", "{{ 'thinking' == m.mode }}", "{% if mode in ['type', 'thinking'] %}{% endif %}",
    };
    static const char *const reads_parts[] = {
        "{% if b.type == 'thinking' %}{% endif %}",
        "{% if b[\"type\"]==\"thinking\" %}{% endif %}",
        "{% if b.get('type')   ==\n 'thinking' %}{% endif %}",
        "{% if 'thinking' == b['type'] %}{% endif %}",
        "{% if b.type in ['reasoning', 'thinking'] %}{% endif %}",
        "{{ m.content | selectattr('type', 'equalto', 'thinking') | list | length if m.content is not string }}",
    };
    char source[512];
    for (size_t i = 0; i < ARRAY_LEN(reads_none) + ARRAY_LEN(reads_parts); i++) {
        bool as_parts = i >= ARRAY_LEN(reads_none);
        const char *some = as_parts ? reads_parts[i - ARRAY_LEN(reads_none)] : reads_none[i];
        snprintf(source, sizeof source,
                 "{%% set m = messages[1] %%}{%% if false %%}%s{%% endif %%}{{ m.content is string }}", some);
        rig_use_template(source);
        expect_prompt(ANSWERED("\"content\":\"c\",\"reasoning_content\":\"t\""), as_parts ? "False" : "True");
    }
}
END_TEST

/* gpt-oss refuses content next to thinking in a message with calls: neither is lost. */
START_TEST(content_joins_thinking_where_a_template_takes_one)
{
    rig_use_template(
        "{% set m = messages[1] %}{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('both') }}"
        "{% endif %}{{ m.thinking }}|{{ m.content }}");
    expect_prompt(ANSWERED("\"content\":\"c\",\"reasoning_content\":\"t\"," CALLED), "t\n\nc|");
    expect_prompt(ANSWERED("\"content\":\"\",\"reasoning_content\":\"t\"," CALLED), "t|");
    expect_prompt(ANSWERED("\"content\":\"c\",\"reasoning_content\":\"t\""), "t|c");
}
END_TEST

/* Thinking that comes by the other doors. */
START_TEST(thinking_comes_by_every_door)
{
    rig_use_template("{{ messages[1].thinking }}");
    int status = rig_post("/v1/messages",
                          "{\"model\":\"tiny\",\"max_tokens\":1,\"messages\":[" ASKED ",{\"role\":\"assistant\","
                          "\"content\":[{\"type\":"
                          "\"thinking\",\"thinking\":\"think\",\"signature\":\"s\"},{\"type\":\"tool_use\",\"id\":"
                          "\"t\",\"name\":\"f\","
                          "\"input\":{}}]},"
                          "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
                          "\"content\":\"5\"}]}]}");
    ck_assert_msg(status == 200, "%s", rig_got.body);
    ck_assert_int_eq(rig_number_at("usage.input_tokens"), 5);
    ck_assert_int_eq(rig_post("/v1/responses",
                              "{\"max_output_tokens\":1,\"input\":[" ASKED ",{\"type\":\"reasoning\",\"summary\":"
                              "[],\"content\":[{\"type\":"
                              "\"reasoning_text\",\"text\":\"think\"}]},{\"type\":\"function_call\",\"call_id\":\"c\","
                              "\"name\":\"f\",\"arguments\":"
                              "\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"5\"}]}"),
                     200);
    ck_assert_int_eq(rig_number_at("usage.input_tokens"), 5);
    ck_assert_int_eq(rig_post("/api/chat",
                              "{\"model\":\"tiny\",\"stream\":false,\"options\":{\"num_predict\":"
                              "1},\"messages\":[" ASKED
                              ",{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"think\","
                              "\"tool_calls\":[{\"function\":{"
                              "\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"5\"}]}"),
                     200);
    ck_assert_int_eq(rig_number_at("prompt_eval_count"), 5);
}
END_TEST

Suite *messages_suite(void)
{
    Suite *s = suite_create("messages");
    TCase *t = tcase_create("messages");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, thinking_has_all_names);
    tcase_add_test(t, thinking_reaches_templates_as_parts);
    tcase_add_test(t, a_template_that_names_thinking_reads_no_parts);
    tcase_add_test(t, content_joins_thinking_where_a_template_takes_one);
    tcase_add_test(t, thinking_comes_by_every_door);
    tcase_add_test(t, null_content_where_a_template_adds_strings);
    tcase_add_test(t, null_content_where_a_template_prints_it);
    tcase_add_test(t, null_content_where_a_template_asks_for_it);
    tcase_add_test(t, a_template_that_fails_either_way);
    suite_add_tcase(s, t);
    return s;
}
