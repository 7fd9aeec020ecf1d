/* References to kept items: what they become, how much, and that a response is parsed once for all of its own. */
#include "engine/base/mem.h"
#include "fcgi/api/openai/responses_refs.h"
#include "fcgi/api/openai/responses_store.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *responses_refs_suite(void);

#define ID   "000000000000000000000001"
#define MOST (1 << 20)

static const struct apikey_id anna = {true, {1}}, bert = {true, {2}};

static void fill(struct buf *b, const char *text)
{
    buf_init(b, 0, MEM_GENERAL);
    buf_puts(b, text);
}

static void setup(void)
{
    struct buf response, input, output;
    responses_store_limit(1 << 20);
    fill(&response, "{}");
    fill(&input, "{\"id\":\"in_" ID "_0\",\"deep\":{\"id\":\"in_" ID "_9\"}}\n{\"id\":\"in_" ID "_1\"}");
    fill(&output, "{\"id\":\"msg_" ID "_0\"}");
    ck_assert_int_eq(
        responses_store_put(&(struct responses_owner){.id = anna}, "resp_" ID, NULL, &response, &input, &output),
        ERR_OK);
    buf_fini(&response);
    buf_fini(&input);
    buf_fini(&output);
}

static void clear(void) { responses_store_limit(0); }

/* n references to one item. */
static json_t *references(const char *id, size_t n)
{
    json_t *items = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(items, json_pack("{s:s, s:s}", "type", "item_reference", "id", id));
    }
    return items;
}

START_TEST(references_become_one_shared_item)
{
    struct err_info info = {0};
    static const char *const ids[] = {"in_" ID "_0", "in_" ID "_1", "msg_" ID "_0"};
    json_t *items = references(ids[_i], 3);
    json_array_insert_new(items, 1, json_pack("{s:s, s:s}", "role", "user", "content", "x"));
    ck_assert_int_eq(responses_refs_resolve(&anna, items, MOST, &info), ERR_OK);
    ck_assert_uint_eq(json_array_size(items), 4);
    const json_t *first = json_array_get(items, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "id")), ids[_i]);
    ck_assert_ptr_null(json_object_get(first, "type"));
    ck_assert(json_array_get(items, 2) == first && json_array_get(items, 3) == first);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(items, 1), "role")), "user");
    json_decref(items);
}
END_TEST

START_TEST(what_is_not_kept_stays_a_reference)
{
    static const char *const ids[] = {"in_" ID "_9", "in_" ID "_2", "msg_000000000000000000000002_0",
                                      "msg_1",       "msg",         ""};
    struct err_info info = {0};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        json_t *items = references(ids[i], 2);
        ck_assert_int_eq(responses_refs_resolve(&anna, items, MOST, &info), ERR_OK);
        ck_assert_str_eq(json_string_value(json_object_get(json_array_get(items, 0), "type")), "item_reference");
        json_decref(items);
    }
    json_t *items = references("in_" ID "_0", 1); /* another's */
    ck_assert_int_eq(responses_refs_resolve(&bert, items, MOST, &info), ERR_OK);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(items, 0), "type")), "item_reference");
    json_decref(items);
}
END_TEST

START_TEST(items_count_as_often_as_they_are_referred_to)
{
    struct err_info info = {0};
    size_t one = strlen("{\"id\":\"in_" ID "_1\"}");
    json_t *items = references("in_" ID "_1", 5);
    ck_assert_int_eq(responses_refs_resolve(&anna, items, 5 * one, &info), ERR_OK);
    json_decref(items);
    items = references("in_" ID "_1", 6);
    ck_assert_int_eq(responses_refs_resolve(&anna, items, 5 * one, &info), ERR_TOO_LARGE);
    ck_assert_str_eq(info.where, "input");
    json_decref(items);
}
END_TEST

START_TEST(a_lack_of_memory_is_told)
{
    struct err_info info = {0};
    bool has_failed = false;
    for (long n = 0;; n++) {
        json_t *items = references("in_" ID "_0", 2);
        mem_fail_at(n);
        enum err err = responses_refs_resolve(&anna, items, MOST, &info);
        mem_fail_at(-1);
        json_decref(items);
        has_failed = has_failed || err == ERR_NOMEM;
        if (err == ERR_OK) {
            break;
        }
        ck_assert_int_eq(err, ERR_NOMEM);
    }
    ck_assert(has_failed);
}
END_TEST

Suite *responses_refs_suite(void)
{
    Suite *s = suite_create("responses_refs");
    TCase *c = tcase_create("refs");
    tcase_add_checked_fixture(c, setup, clear);
    tcase_add_loop_test(c, references_become_one_shared_item, 0, 3);
    tcase_add_test(c, what_is_not_kept_stays_a_reference);
    tcase_add_test(c, items_count_as_often_as_they_are_referred_to);
    tcase_add_test(c, a_lack_of_memory_is_told);
    suite_add_tcase(s, c);
    return s;
}
