/* The table of named chat templates: each row parses and refuses what its format has no place for; what a row gives is
 * checked by tests/golden/chat_oracle.py. */
#include "engine/chat/chat_named.h"
#include "engine/base/mem.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *chat_named_suite(void);

static struct err_info info;

/* Renders a row over messages; the error otherwise with its words in info. */
static enum err render(const struct chat_named *row, const char *messages, struct chat_output *out)
{
    struct chat_template *t;
    json_error_t e;
    info = (struct err_info){0};
    ck_assert_msg(chat_named_new(row, &t, &info) == ERR_OK, "%s: %s", chat_named_name(row), info.text);
    json_t *list = json_loads(messages, 0, &e);
    json_t *context = json_pack("{so, sb, ss, ss}", "messages", list, "add_generation_prompt", 1, "bos_token", "<b>",
                                "eos_token", "<e>");
    ck_assert_msg(context != NULL, "%s: %s", messages, e.text);
    enum err err = chat_template_render(t, context, 0, out, &info);
    json_decref(context);
    chat_template_free(&t);
    return err;
}

static void refuse(const struct chat_named *row, const char *messages, const char *says)
{
    struct chat_output out;
    enum err err = render(row, messages, &out);
    ck_assert_msg(err == ERR_TEMPLATE && strstr(info.text, says) != NULL, "%s: %s gave %s: %s", chat_named_name(row),
                  messages, err_code(err), err == ERR_OK ? out.text : info.text);
    chat_output_fini(&out);
}

#define USER "{\"role\": \"user\", \"content\": \"<u>\"}"

START_TEST(each_row_renders_and_refuses)
{
    size_t live = mem_live();
    const struct chat_named *row;
    int n = 0;
    for (; (row = chat_named_at(n)) != NULL; n++) {
        const char *name = chat_named_name(row);
        struct chat_output out;
        ck_assert_ptr_eq(chat_named_find(name), row);
        ck_assert_msg(n == 0 || strcmp(chat_named_name(chat_named_at(n - 1)), name) < 0, "%s is out of order", name);
        ck_assert_msg(strpbrk(name, "/\\ ") == NULL, "%s could be a path", name);
        ck_assert_msg(render(row, "[{\"role\": \"system\", \"content\": \"<s>\"}, " USER "]", &out) == ERR_OK, "%s: %s",
                      name, info.text);
        ck_assert_msg(strstr(out.text, "<u>") != NULL && strstr(out.text, "<s>") != NULL, "%s: %s", name, out.text);
        /* the two contents and nothing else are the user's */
        ck_assert_msg(out.n_user == 2 && out.user[0].to - out.user[0].from == 3 &&
                          out.user[1].to - out.user[1].from == 3,
                      "%s: %zu ranges in %s", name, out.n_user, out.text);
        chat_output_fini(&out);
        char says[100];
        snprintf(says, sizeof says, "the %s format knows the roles system, user and assistant, found tool", name);
        refuse(row, "[" USER ", {\"role\": \"tool\", \"content\": \"\"}]", says);
        snprintf(says, sizeof says, "the %s format has no tool calls", name);
        refuse(row, "[" USER ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]", says);
    }
    ck_assert_int_ge(n, 31);
    ck_assert_ptr_null(chat_named_at(-1));
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

START_TEST(turns_alternate_where_the_format_needs_it)
{
    static const char *const bad[] = {
        "[" USER ", " USER "]",
        "[{\"role\": \"assistant\", \"content\": \"a\"}]",
        "[" USER ", {\"role\": \"system\", \"content\": \"late\"}]",
        "[{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"system\", \"content\": \"b\"}, " USER "]",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refuse(chat_named_find("gemma"), bad[i], "Conversation roles must alternate");
        refuse(chat_named_find("llama2"), bad[i], "Conversation roles must alternate");
        struct chat_output out;
        ck_assert_msg(render(chat_named_find("chatml"), bad[i], &out) == ERR_OK, "%s", info.text);
        chat_output_fini(&out);
    }
}
END_TEST

START_TEST(names_are_exact)
{
    static const char *const none[] = {"", "ChatML", "chatml ", "llama", "gemma2", "mistral", "./chatml"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        ck_assert_msg(chat_named_find(none[i]) == NULL, "%s", none[i]);
    }
}
END_TEST

START_TEST(families_with_one_format_only)
{
    static const char *const one[][2] = {
        {"gemma", "gemma"}, {"gemma2", "gemma"}, {"gemma3", "gemma"}, {"gemma3n", "gemma"}, {"gpt-oss", "gpt-oss"}};
    static const char *const none[] = {"",         "llama",   "qwen2",     "qwen3", "phi3",
                                       "deepseek", "granite", "deepseek2", "Gemma", "glm4moe"};
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        const struct chat_named *row = chat_named_of_family(one[i][0]);
        ck_assert_msg(row != NULL && strcmp(chat_named_name(row), one[i][1]) == 0, "%s", one[i][0]);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        ck_assert_msg(chat_named_of_family(none[i]) == NULL, "%s", none[i]);
    }
}
END_TEST

Suite *chat_named_suite(void)
{
    Suite *s = suite_create("chat_named");
    TCase *t = tcase_create("chat_named");
    tcase_add_test(t, each_row_renders_and_refuses);
    tcase_add_test(t, turns_alternate_where_the_format_needs_it);
    tcase_add_test(t, names_are_exact);
    tcase_add_test(t, families_with_one_format_only);
    suite_add_tcase(s, t);
    return s;
}
