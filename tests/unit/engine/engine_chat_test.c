/* Conversations become ids: what the template writes counts as marks, what users write does not. */
#include "engine/engine.h"

#include "engine/base/mem.h"

#include <check.h>
#include <string.h>

Suite *engine_chat_suite(void);

static struct engine *engine;
static struct err_info info;
static int32_t *ids;
static size_t n_ids;

static void setup(void)
{
    const struct engine_config cfg = {.model_path = "tests/golden/models/llama-gqa-tied.gguf", .n_ctx = 256};
    ck_assert_int_eq(engine_open(&cfg, &engine, &info), ERR_OK);
}

static void teardown(void)
{
    mem_free(ids);
    engine_close(&engine);
}

/* The ids of one message of the user, content NULL = null, in the template. */
static enum err chat(const char *source, const char *content)
{
    struct chat_template *t;
    ck_assert_int_eq(chat_template_new(source, strlen(source), &t, &info), ERR_OK);
    json_t *messages = json_pack("[{s:s,s:s?}]", "role", "user", "content", content);
    json_t *context = engine_chat_context(engine, messages, true);
    ck_assert(messages != NULL && context != NULL);
    mem_free(ids);
    enum err err = engine_chat(engine, t, context, NULL, &ids, &n_ids, &info);
    ck_assert((err == ERR_OK) == (ids != NULL));
    json_decref(context);
    json_decref(messages);
    chat_template_free(&t);
    return err;
}

static void expect(const char *source, const char *content, const char *text)
{
    int32_t *wanted;
    size_t n;
    enum err err = chat(source, content);
    ck_assert_msg(err == ERR_OK, "%s: %s", source, info.text);
    ck_assert_int_eq(engine_tokenize(engine, text, strlen(text), true, false, NULL, 0, NULL, &wanted, &n, &info),
                     ERR_OK);
    ck_assert_msg(n == n_ids && memcmp(ids, wanted, n * sizeof *ids) == 0, "%s with %s is not '%s'", source,
                  content != NULL ? content : "null", text);
    mem_free(wanted);
}

static size_t count(int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < n_ids; i++) {
        n += ids[i] == id;
    }
    return n;
}

START_TEST(the_template_has_messages_and_marks)
{
    expect("<{{ messages[0].role }}>{{ messages[0].content }}{{ '!' if add_generation_prompt }}", "Hi", "<user>Hi!");
    ck_assert_int_eq(chat("{{ raise_exception('no ' ~ messages[0].content) }}", "dice"), ERR_TEMPLATE);
    ck_assert_msg(strstr(info.text, "no dice") != NULL && n_ids == 0, "%s", info.text);
}
END_TEST

START_TEST(users_write_no_special_tokens)
{
    const struct engine_model_info *m = engine_model(engine);
    ck_assert(m->eos >= 0 && m->eos_text[0] != '\0');
    ck_assert_int_eq(chat("{{ messages[0].content }}", "a"), ERR_OK);
    size_t added = count(m->eos); /* by the vocabulary, whatever the text */
    ck_assert_int_eq(chat("{{ messages[0].content }}", m->eos_text), ERR_OK);
    ck_assert_uint_eq(count(m->eos), added);
    ck_assert_int_eq(chat("{{ messages[0].content }}{{ eos_token }}", m->eos_text), ERR_OK);
    ck_assert_uint_eq(count(m->eos), added + 1);
    if (m->bos >= 0) { /* a template that writes BOS gets no other */
        ck_assert_int_eq(chat("{{ bos_token }}{{ messages[0].content }}", "a"), ERR_OK);
        ck_assert_uint_eq(count(m->bos), 1);
    }
}
END_TEST

START_TEST(null_contents_are_none_where_a_template_asks_and_empty_where_it_cannot)
{
    expect("{{ 'null' if messages[0].content is none else 'text' }}", NULL, "null");
    expect("{{ '[' + messages[0].content + ']' }}", NULL, "[]");
    expect("[{{ messages[0].content }}]", NULL, "[]");
    expect("[{{ messages[0].content }}]", "None", "[None]"); /* that is what the user wrote */
}
END_TEST

START_TEST(no_memory_is_told)
{
    size_t live = mem_live();
    bool fired = true;
    for (int n = 0; fired; n++) {
        struct chat_template *t;
        ck_assert_int_eq(chat_template_new("[{{ messages[0].content }}]", 27, &t, &info), ERR_OK);
        json_t *messages = json_pack("[{s:s,s:n}]", "role", "user", "content");
        json_t *context = engine_chat_context(engine, messages, true);
        mem_fail_at(n);
        enum err err = engine_chat(engine, t, context, NULL, &ids, &n_ids, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || (fired && err == ERR_NOMEM && ids == NULL), "allocation %d: %s", n,
                      err_code(err));
        mem_free(ids);
        ids = NULL;
        json_decref(context);
        json_decref(messages);
        chat_template_free(&t);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_lt(n, 1000);
    }
}
END_TEST

Suite *engine_chat_suite(void)
{
    Suite *s = suite_create("engine_chat");
    TCase *t = tcase_create("engine_chat");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_template_has_messages_and_marks);
    tcase_add_test(t, users_write_no_special_tokens);
    tcase_add_test(t, null_contents_are_none_where_a_template_asks_and_empty_where_it_cannot);
    tcase_add_test(t, no_memory_is_told);
    suite_add_tcase(s, t);
    return s;
}
