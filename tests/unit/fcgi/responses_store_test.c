/* Responses that are kept: bounds, order, whose they are, and conversations that share what came before. */
#include "fcgi/api/openai/responses_store.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *responses_store_suite(void);

static const struct apikey_id nobody, anna = {true, {1}}, bert = {true, {2}};

static void id_of(int i, char id[32]) { snprintf(id, 32, "resp_%024d", i); }

static void fill(struct buf *b, const char *text)
{
    buf_init(b, 0, MEM_GENERAL);
    buf_puts(b, text);
}

/* Keeps a response "R" whose input is the item i and whose output is 1000 + i. */
static void put(const struct apikey_id *owner, int i, int previous)
{
    char id[32], before[32], text[160];
    struct buf response, input, output;
    id_of(i, id);
    id_of(previous, before);
    fill(&response, "R");
    snprintf(text, sizeof text, "{\"id\":\"in_%024d_0\"}\n{\"a\":{\"id\":\"in_%024d_2\"}}\n{\"id\":\"in_%024d_1\"}", i,
             i, i);
    fill(&input, text);
    snprintf(text, sizeof text, "{\"id\":\"msg_%024d_0\"}", i);
    fill(&output, text);
    const struct responses_owner whose = {.id = *owner, .share = owner->bytes[0], .weight = 1};
    ck_assert_int_eq(responses_store_put(&whose, id, previous != 0 ? before : NULL, &response, &input, &output),
                     ERR_OK);
    buf_fini(&response);
    buf_fini(&input);
    buf_fini(&output);
}

static bool has(const struct apikey_id *owner, int i)
{
    char id[32];
    struct buf out;
    id_of(i, id);
    buf_init(&out, 0, MEM_GENERAL);
    enum err err = responses_store_get(owner, id, &out);
    ck_assert(err == ERR_RESPONSE_NOT_FOUND || (err == ERR_OK && strcmp(out.data, "R") == 0));
    buf_fini(&out);
    return err == ERR_OK;
}

static enum err drop(const struct apikey_id *owner, int i)
{
    char id[32];
    id_of(i, id);
    return responses_store_drop(owner, id);
}

/* The numbers in the ids of a conversation's items, outputs negative. */
static void items_of(int i, bool with_output, char out[256])
{
    char id[32];
    json_t *items = NULL;
    id_of(i, id);
    ck_assert_int_eq(responses_store_items(&nobody, id, with_output, &items), ERR_OK);
    out[0] = '\0';
    for (size_t k = 0; k < json_array_size(items); k++) {
        const char *item = json_string_value(json_object_get(json_array_get(items, k), "id"));
        int number;
        if (item == NULL || (item[0] == 'i' && item[strlen(item) - 1] == '1')) {
            continue;
        }
        ck_assert_int_eq(sscanf(strchr(item, '_'), "_%d", &number), 1);
        sprintf(out + strlen(out), "%d ", item[0] == 'm' ? -number : number);
    }
    json_decref(items);
}

static void setup(void) { responses_store_limit(1 << 20); }
static void clear(void)
{
    responses_store_limit(0);
    ck_assert_uint_eq(responses_store_bytes(), 0);
}

START_TEST(each_key_has_its_own)
{
    put(&anna, 1, 0);
    put(&nobody, 2, 0);
    ck_assert(has(&anna, 1) && !has(&bert, 1) && !has(&nobody, 1));
    ck_assert(has(&nobody, 2) && !has(&anna, 2));
    ck_assert_int_eq(drop(&bert, 1), ERR_RESPONSE_NOT_FOUND);
    ck_assert_int_eq(drop(&anna, 1), ERR_OK);
    ck_assert_int_eq(drop(&anna, 1), ERR_RESPONSE_NOT_FOUND);
    ck_assert(!has(&anna, 1));
}
END_TEST

START_TEST(conversations_are_put_together)
{
    char items[256];
    put(&nobody, 1, 0);
    put(&nobody, 2, 1);
    put(&nobody, 3, 2);
    put(&nobody, 4, 2);
    items_of(3, true, items);
    ck_assert_str_eq(items, "1 -1 2 -2 3 -3 ");
    items_of(4, false, items);
    ck_assert_str_eq(items, "1 -1 2 -2 4 ");
    ck_assert_int_eq(drop(&nobody, 1), ERR_OK); /* and what goes on from it still knows it */
    ck_assert_int_eq(drop(&nobody, 2), ERR_OK);
    ck_assert(!has(&nobody, 2));
    items_of(3, true, items);
    ck_assert_str_eq(items, "1 -1 2 -2 3 -3 ");
    size_t bytes = responses_store_bytes();
    ck_assert_int_eq(drop(&nobody, 3), ERR_OK);
    ck_assert_uint_lt(responses_store_bytes(), bytes);
    ck_assert_int_eq(drop(&nobody, 4), ERR_OK);
    ck_assert_uint_eq(responses_store_bytes(), 0);
}
END_TEST

START_TEST(what_was_not_asked_for_goes_first)
{
    put(&nobody, 1, 0);
    size_t one = responses_store_bytes();
    responses_store_limit(3 * one);
    put(&nobody, 2, 0);
    put(&nobody, 3, 0);
    ck_assert(has(&nobody, 1));
    put(&nobody, 4, 0);
    ck_assert(has(&nobody, 1) && !has(&nobody, 2) && has(&nobody, 3) && has(&nobody, 4));
    put(&nobody, 5, 1); /* who goes on from one asks for it */
    put(&nobody, 6, 0);
    ck_assert(has(&nobody, 1) && has(&nobody, 5) && has(&nobody, 6) && !has(&nobody, 3));
    ck_assert_uint_le(responses_store_bytes(), 3 * one);
    responses_store_limit(one - 1);
    ck_assert_uint_eq(responses_store_bytes(), 0);
    put(&nobody, 7, 0);
    ck_assert(!has(&nobody, 7));
}
END_TEST

/* Keeps a response of so many bytes of input. */
static void put_large(const struct responses_owner *owner, int i, const char *previous, size_t n)
{
    char id[32];
    struct buf response, input, output;
    id_of(i, id);
    fill(&response, "R");
    fill(&input, "{}");
    fill(&output, "");
    while (input.len < n) {
        buf_putc(&input, ' ');
    }
    ck_assert_int_eq(responses_store_put(owner, id, previous, &response, &input, &output), ERR_OK);
    buf_fini(&response);
    buf_fini(&input);
    buf_fini(&output);
}

START_TEST(the_owner_with_the_most_makes_room)
{
    const struct responses_owner a = {anna, 1, 1}, b = {bert, 2, 1};
    responses_store_limit(100000);
    put_large(&a, 1, NULL, 20000);
    put_large(&a, 2, NULL, 20000);
    for (int i = 3; i < 40; i++) { /* whatever another stores */
        put_large(&b, i, NULL, 20000);
    }
    ck_assert(has(&anna, 1) && has(&anna, 2) && has(&bert, 39) && has(&bert, 38) && !has(&bert, 37));
    put_large(&a, 40, NULL, 20000); /* three of five places are more than its part */
    put_large(&a, 41, NULL, 20000);
    ck_assert(has(&bert, 39) && has(&anna, 41) && !has(&anna, 1));
    put_large(&b, 42, NULL, 90000); /* one response of the owner with the most, and that owner's others go first */
    ck_assert(!has(&bert, 38) && !has(&bert, 39));
    ck_assert_uint_le(responses_store_bytes(), 100000);
    ck_assert(has(&anna, 41));
}
END_TEST

START_TEST(one_owner_alone_may_have_all)
{
    const struct responses_owner a = {anna, 1, 1};
    responses_store_limit(100000);
    for (int i = 1; i <= 9; i++) {
        put_large(&a, i, NULL, 10000);
    }
    ck_assert(has(&anna, 1) && has(&anna, 9));
    put_large(&a, 10, NULL, 10000);
    ck_assert(!has(&anna, 2) && has(&anna, 3) && has(&anna, 10)); /* 1 and 9 were asked for */
}
END_TEST

START_TEST(a_weight_makes_a_part_larger)
{
    const struct responses_owner a = {anna, 1, 3}, b = {bert, 2, 1};
    responses_store_limit(90000);
    for (int i = 1; i <= 6; i++) {
        put_large(&a, i, NULL, 10000);
    }
    for (int i = 11; i <= 20; i++) {
        put_large(&b, i, NULL, 10000);
    }
    for (int i = 1; i <= 6; i++) { /* three quarters are its part */
        ck_assert_msg(has(&anna, i), "%d", i);
    }
    ck_assert(has(&bert, 20) && has(&bert, 19) && !has(&bert, 17));
}
END_TEST

START_TEST(the_number_is_shared_too)
{
    const struct responses_owner a = {anna, 1, 1}, b = {bert, 2, 1};
    responses_store_limit(64 << 20);
    put_large(&a, 1, NULL, 2);
    for (int i = 2; i <= RESPONSES_STORE_MAX + 10; i++) {
        put_large(&b, i, NULL, 2);
    }
    ck_assert(has(&anna, 1) && !has(&bert, 2) && has(&bert, RESPONSES_STORE_MAX + 10));
}
END_TEST

START_TEST(a_part_of_a_conversation_may_be_held_by_another_share)
{
    const struct responses_owner here = {nobody, 7, 1}, there = {nobody, 8, 1}; /* one client at two addresses */
    char first[32];
    id_of(1, first);
    responses_store_limit(100000);
    put_large(&here, 1, NULL, 40000);
    put_large(&there, 2, first, 10000);
    ck_assert_int_eq(drop(&nobody, 1), ERR_OK); /* nothing of `here` is listed now */
    put_large(&there, 3, NULL, 40000);
    put_large(&there, 4, NULL, 40000);
    ck_assert(has(&nobody, 4) && !has(&nobody, 2));
    ck_assert_uint_le(responses_store_bytes(), 100000);
}
END_TEST

START_TEST(there_are_so_many_at_most)
{
    responses_store_limit(8 << 20);
    for (int i = 1; i <= RESPONSES_STORE_MAX + 2; i++) {
        put(&nobody, i, 0);
    }
    ck_assert(!has(&nobody, 1) && !has(&nobody, 2) && has(&nobody, 3) && has(&nobody, RESPONSES_STORE_MAX + 2));
}
END_TEST

START_TEST(half_a_conversation_is_none)
{
    put(&nobody, 2, 1);
    ck_assert(!has(&nobody, 2));
    put(&anna, 1, 0);
    put(&bert, 2, 1);
    ck_assert(!has(&bert, 2));
}
END_TEST

START_TEST(own_items_are_those_of_one_response)
{
    char id[32];
    json_t *items;
    put(&anna, 1, 0);
    put(&anna, 2, 1);
    id_of(2, id);
    ck_assert_int_eq(responses_store_own(&anna, id, &items), ERR_OK);
    ck_assert_uint_eq(json_array_size(items), 4); /* three of its input, one of its output */
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(items, 0), "id")),
                     "in_000000000000000000000002_0");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(items, 3), "id")),
                     "msg_000000000000000000000002_0");
    json_decref(items);
    ck_assert_int_eq(responses_store_own(&bert, id, &items), ERR_RESPONSE_NOT_FOUND);
    id_of(3, id);
    ck_assert_int_eq(responses_store_own(&anna, id, &items), ERR_RESPONSE_NOT_FOUND);
}
END_TEST

START_TEST(no_memory_changes_nothing)
{
    char id[32];
    json_t *items;
    struct buf response, input, output;
    id_of(2, id);
    fill(&response, "R");
    fill(&input, "{\"id\":\"a\"}");
    fill(&output, "");
    put(&nobody, 1, 0);
    size_t bytes = responses_store_bytes();
    mem_fail_at(0);
    ck_assert_int_eq(responses_store_put(&(struct responses_owner){.id = nobody}, id, NULL, &response, &input, &output),
                     ERR_NOMEM);
    ck_assert_uint_eq(responses_store_bytes(), bytes);
    id_of(1, id);
    for (long n = 0; n < 3; n++) { /* the texts, the list of responses, what is parsed */
        mem_fail_at(n);
        ck_assert_int_eq(responses_store_items(&nobody, id, true, &items), ERR_NOMEM);
    }
    mem_fail_at(-1);
    buf_fini(&response);
    buf_fini(&input);
    buf_fini(&output);
}
END_TEST

Suite *responses_store_suite(void)
{
    Suite *s = suite_create("responses_store");
    TCase *t = tcase_create("store");
    tcase_add_checked_fixture(t, setup, clear);
    tcase_add_test(t, each_key_has_its_own);
    tcase_add_test(t, conversations_are_put_together);
    tcase_add_test(t, what_was_not_asked_for_goes_first);
    tcase_add_test(t, the_owner_with_the_most_makes_room);
    tcase_add_test(t, one_owner_alone_may_have_all);
    tcase_add_test(t, a_weight_makes_a_part_larger);
    tcase_add_test(t, the_number_is_shared_too);
    tcase_add_test(t, a_part_of_a_conversation_may_be_held_by_another_share);
    tcase_add_test(t, there_are_so_many_at_most);
    tcase_add_test(t, half_a_conversation_is_none);
    tcase_add_test(t, own_items_are_those_of_one_response);
    tcase_add_test(t, no_memory_changes_nothing);
    suite_add_tcase(s, t);
    return s;
}
