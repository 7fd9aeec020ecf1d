/* Conversations become ids: what the template writes counts as marks, what users write does not. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "engine/base/task.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *engine_chat_suite(void);

static struct engine *engine;
static struct err_info info;
static int32_t *ids;
static struct arena arena;
static size_t n_ids;

/* source: of the chat template; NULL = none, as the file has none. */
static void open_engine(const char *source)
{
    const struct engine_config cfg = {.model_path = "tests/golden/models/llama-gqa-tied.gguf",
                                      .n_ctx = 256,
                                      .chat_template = source != NULL ? folder_write_text("chat.jinja", source) : NULL};
    engine_close(&engine);
    ck_assert_int_eq(engine_open(&cfg, &engine, &info), ERR_OK);
}

static void setup(void)
{
    open_engine(NULL);
    arena_init(&arena, 0, 0, MEM_REQUEST);
}

static void teardown(void)
{
    arena_fini(&arena);
    engine_close(&engine);
    folder_remove();
}

/* The ids of one message of the user, content NULL = null, in the template. */
static enum err chat(const char *source, const char *content)
{
    open_engine(source);
    json_t *messages = json_pack("[{s:s,s:s?}]", "role", "user", "content", content);
    json_t *context = engine_chat_context(engine, messages, true);
    ck_assert(messages != NULL && context != NULL);
    enum err err = engine_chat(engine, context, &arena, &ids, &n_ids, &info);
    ck_assert((err == ERR_OK) == (ids != NULL));
    json_decref(context);
    json_decref(messages);
    return err;
}

static void expect(const char *source, const char *content, const char *text)
{
    int32_t *wanted;
    size_t n;
    enum err err = chat(source, content);
    ck_assert_msg(err == ERR_OK, "%s: %s", source, info.text);
    ck_assert_int_eq(engine_tokenize(engine, text, strlen(text), true, false, NULL, 0, &arena, &wanted, &n, &info),
                     ERR_OK);
    ck_assert_msg(n == n_ids && memcmp(ids, wanted, n * sizeof *ids) == 0, "%s with %s is not '%s'", source,
                  content != NULL ? content : "null", text);
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
    int32_t bos = engine_model(engine)->bos, eos = engine_model(engine)->eos;
    char *eos_text = strdup(engine_model(engine)->eos_text); /* other engines of the model follow */
    ck_assert(eos >= 0 && eos_text[0] != '\0');
    ck_assert_int_eq(chat("{{ messages[0].content }}", "a"), ERR_OK);
    size_t added = count(eos); /* by the vocabulary, whatever the text */
    ck_assert_int_eq(chat("{{ messages[0].content }}", eos_text), ERR_OK);
    ck_assert_uint_eq(count(eos), added);
    ck_assert_int_eq(chat("{{ messages[0].content }}{{ eos_token }}", eos_text), ERR_OK);
    ck_assert_uint_eq(count(eos), added + 1);
    if (bos >= 0) { /* a template that writes BOS gets no other */
        ck_assert_int_eq(chat("{{ bos_token }}{{ messages[0].content }}", "a"), ERR_OK);
        ck_assert_uint_eq(count(bos), 1);
    }
    free(eos_text);
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

START_TEST(without_a_template_chat_alone_is_refused)
{
    const struct engine_model_info *m = engine_model(engine);
    ck_assert(m->chat_failed != NULL && m->chat_failed->code == ERR_NO_TEMPLATE && m->chat_format == NULL);
    ck_assert_int_eq(engine_chat(engine, NULL, &arena, &ids, &n_ids, &info), ERR_NO_TEMPLATE);
    ck_assert_str_eq(info.text, m->chat_failed->text);
    ck_assert_int_eq(engine_tokenize(engine, "a", 1, true, false, NULL, 0, &arena, &ids, &n_ids, &info), ERR_OK);
    const struct engine_config cfg = {.model_path = m->file, .chat_template = "lama3"};
    struct engine *other;
    ck_assert_int_eq(engine_open(&cfg, &other, &info), ERR_CONFIG); /* the operator's must be right */
    ck_assert(other == NULL && strstr(info.text, "found 'lama3'") != NULL);
}
END_TEST

#define LONG_WORK "{% for i in range(99999) %}{{ i }}{% endfor %}"

/* A request that has ended is not rendered again, whichever attempt notices it. */
START_TEST(a_request_that_ended_is_rendered_no_more)
{
    static const char *const sources[] = {
        "{% if messages[0].content is none %}" LONG_WORK "{% else %}Hi{% endif %}",
        "{% if messages[0].content is none %}None{% else %}" LONG_WORK "{% endif %}",
        "{% if messages[0].content is none %}{{ raise_exception('no') }}{% else %}" LONG_WORK "{% endif %}",
    };
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        open_engine(sources[i]);
        atomic_bool has_left = true;
        struct task task = {.has_left = &has_left};
        json_t *messages = json_pack("[{s:s,s:n}]", "role", "user", "content");
        json_t *context = engine_chat_context(engine, messages, true);
        task_enter(&task, "test");
        enum err err = engine_chat(engine, context, &arena, &ids, &n_ids, &info);
        task_leave();
        ck_assert_msg(err == ERR_CANCELLED && info.code == err, "%zu: %s: %s", i, err_code(err), info.text);
        ck_assert(json_is_null(json_object_get(json_array_get(messages, 0), "content")));
        json_decref(context);
        json_decref(messages);
    }
}
END_TEST

START_TEST(no_memory_is_told)
{
    open_engine("[{{ messages[0].content }}]");
    size_t live = mem_live();
    bool fired = true;
    for (int n = 0; fired; n++) {
        json_t *messages = json_pack("[{s:s,s:n}]", "role", "user", "content");
        json_t *context = engine_chat_context(engine, messages, true);
        info = (struct err_info){0};
        mem_fail_at(n);
        enum err err = engine_chat(engine, context, &arena, &ids, &n_ids, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || (fired && err == ERR_NOMEM && ids == NULL), "allocation %d: %s", n,
                      err_code(err));
        ck_assert_msg(err == ERR_OK || (info.code == ERR_NOMEM && info.text[0] != '\0'), "allocation %d: '%s'", n,
                      info.text);
        arena_fini(&arena);
        json_decref(context);
        json_decref(messages);
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
    tcase_add_test(t, without_a_template_chat_alone_is_refused);
    tcase_add_test(t, a_request_that_ended_is_rendered_no_more);
    tcase_add_test(t, no_memory_is_told);
    suite_add_tcase(s, t);
    return s;
}
