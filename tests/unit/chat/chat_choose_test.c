/* Which chat template counts: --chat-template, the model file's, its family's, none. */
#include "engine/chat/chat_choose.h"

#include "engine/base/mem.h"
#include "tests/support/folder.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

Suite *chat_choose_suite(void);

static struct err_info info;

static const char *format;

/* The text of one message "Hi" in the template that counts; NULL with the code in info. */
static const char *rendered(const char *option, const char *architecture, const char *own)
{
    static char text[256];
    struct chat_template *t;
    info = (struct err_info){0};
    enum err err = option != NULL
                       ? chat_choose_named(option, &t, &info)
                       : chat_choose_own(own, own != NULL ? strlen(own) : 0, architecture, &t, &format, &info);
    if (err != ERR_OK) {
        ck_assert_ptr_null(t);
        return NULL;
    }
    struct chat_output out;
    json_t *context = json_pack("{s[{ss, ss}], ss, ss}", "messages", "role", "user", "content", "Hi", "bos_token",
                                "<b>", "eos_token", "<e>");
    ck_assert_msg(chat_template_render(t, context, 0, &out, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_lt(out.len, sizeof text);
    memcpy(text, out.text, out.len + 1);
    chat_output_fini(&out);
    json_decref(context);
    chat_template_free(&t);
    return text;
}

static void refuse(const char *option, const char *architecture, const char *own, enum err code, const char *says)
{
    const char *text = rendered(option, architecture, own);
    ck_assert_msg(text == NULL, "gave %s", text);
    ck_assert_msg(info.code == code && strstr(info.text, says) != NULL, "expected '%s', found %s: %s", says,
                  err_code(info.code), info.text);
}

START_TEST(a_name_or_a_file)
{
    const char *file = folder_write("mine.jinja", "[{{ messages[0].content }}]\n", 28);
    ck_assert_str_eq(rendered("chatml", NULL, NULL), "<|im_start|>user\nHi<|im_end|>\n");
    ck_assert_str_eq(rendered(file, NULL, NULL), "[Hi]");
    folder_remove();
}
END_TEST

START_TEST(the_file_and_its_family)
{
    ck_assert_str_eq(rendered(NULL, "llama", "own"), "own");
    ck_assert_str_eq(rendered(NULL, "gemma3", "own"), "own");
    ck_assert_str_eq(rendered(NULL, "gemma3", ""), ""); /* empty is one, too */
    ck_assert_ptr_null(format);
    ck_assert_str_eq(rendered(NULL, "gemma3", NULL), "<b><start_of_turn>user\nHi<end_of_turn>\n");
    ck_assert_str_eq(format, "gemma");
    refuse(NULL, "gemma3", "{{", ERR_TEMPLATE, "1:3");
    refuse(NULL, "llama", NULL, ERR_NO_TEMPLATE, "its family, llama, has no format of its own");
    refuse(NULL, "phi3", NULL, ERR_NO_TEMPLATE, "--chat-template NAME|FILE");
}
END_TEST

START_TEST(neither_name_nor_file)
{
    const char *broken = folder_write("broken.jinja", "a\n{% if %}", 10);
    refuse(broken, NULL, NULL, ERR_CONFIG, "broken.jinja:2:");
    refuse("lama3", NULL, NULL, ERR_CONFIG, "found 'lama3'");
    refuse("lama3", NULL, NULL, ERR_CONFIG, "expected a Jinja file or one of chatglm3, chatglm4, chatml, ");
    ck_assert_msg(strstr(info.text, ", zephyr; found") != NULL && strstr(info.text, "(") != NULL, "%s", info.text);
    refuse(folder_path(), NULL, NULL, ERR_CONFIG, "expected a Jinja file");
    folder_remove();
}
END_TEST

START_TEST(no_memory_is_told)
{
    const char *file = folder_write("mine.jinja", "x", 1);
    const char *const options[] = {"gpt-oss", file, "lama3"};
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        size_t live = mem_live();
        bool fired = true;
        for (int n = 0; fired; n++) {
            struct chat_template *t;
            info = (struct err_info){0};
            mem_fail_at(n);
            enum err err = chat_choose_named(options[i], &t, &info);
            fired = mem_fault_fired();
            mem_fail_at(-1);
            enum err wanted = i == 2 ? ERR_CONFIG : fired ? ERR_NOMEM : ERR_OK;
            ck_assert_msg(err == wanted || (i == 2 && err == ERR_NOMEM), "%s: allocation %d: %s: %s", options[i], n,
                          err_code(err), info.text);
            ck_assert_int_lt(n, 1000);
            chat_template_free(&t);
            ck_assert_uint_eq(mem_live(), live);
        }
    }
    folder_remove();
}
END_TEST

Suite *chat_choose_suite(void)
{
    Suite *s = suite_create("chat_choose");
    TCase *t = tcase_create("chat_choose");
    tcase_add_test(t, a_name_or_a_file);
    tcase_add_test(t, the_file_and_its_family);
    tcase_add_test(t, neither_name_nor_file);
    tcase_add_test(t, no_memory_is_told);
    suite_add_tcase(s, t);
    return s;
}
