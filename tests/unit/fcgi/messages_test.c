/* What the template is shown of a conversation. The tiny model has a token for each byte, so that the number of prompt
 * tokens tells how long the rendered text is. */
#include "fcgi/api/messages.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
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

Suite *messages_suite(void)
{
    Suite *s = suite_create("messages");
    TCase *t = tcase_create("messages");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, null_content_where_a_template_adds_strings);
    tcase_add_test(t, null_content_where_a_template_prints_it);
    tcase_add_test(t, null_content_where_a_template_asks_for_it);
    tcase_add_test(t, a_template_that_fails_either_way);
    suite_add_tcase(s, t);
    return s;
}
