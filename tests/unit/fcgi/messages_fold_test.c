/* System messages that a template rejects become part of others. */
#include "fcgi/api/messages_fold.h"

#include <check.h>
#include <string.h>

Suite *messages_fold_suite(void);

/* One letter per message: s(ystem), u(ser), a(ssistant), t(ool). The n-th message says its letter and n. */
static json_t *conversation(const char *roles)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    json_t *messages = json_array();
    for (size_t i = 0; roles[i] != '\0'; i++) {
        const char *name = names[strchr("suat", roles[i]) - "suat"];
        json_array_append_new(messages, json_pack("{s:s, s:s+, s:i}", "role", name, "content", (char[]){roles[i], '\0'},
                                                  (char[]){(char)('0' + i), '\0'}, "number", (int)i));
    }
    return messages;
}

/* "role:content" of each message. */
static void expect(const char *roles, bool no_system, const char *expected)
{
    json_t *in = conversation(roles), *kept = json_deep_copy(in), *out;
    char seen[512] = "";
    ck_assert_int_eq(messages_fold(in, no_system, &out), ERR_OK);
    for (size_t i = 0; i < json_array_size(out); i++) {
        const json_t *m = json_array_get(out, i);
        strcat(seen, i == 0 ? "" : "|");
        strcat(seen, json_string_value(json_object_get(m, "role")));
        strcat(seen, ":");
        strcat(seen, json_string_value(json_object_get(m, "content")));
    }
    ck_assert_msg((out == NULL) == (expected == NULL), "%s: %s", roles, seen);
    ck_assert_msg(expected == NULL || strcmp(seen, expected) == 0, "%s: expected %s, got %s", roles, expected, seen);
    ck_assert(json_equal(in, kept)); /* they are the request's */
    json_decref(in);
    json_decref(kept);
    json_decref(out);
}

START_TEST(what_needs_no_fold_is_left)
{
    expect("", false, NULL);
    expect("u", false, NULL);
    expect("sua", false, NULL);
    expect("suuauta", false, NULL);
    expect("uu", true, NULL);
}
END_TEST

START_TEST(the_first_become_one)
{
    expect("ssu", false, "system:s0\n\ns1|user:u2");
    expect("sss", false, "system:s0\n\ns1\n\ns2");
    expect("ssa", false, "system:s0\n\ns1|assistant:a2");
}
END_TEST

START_TEST(later_ones_are_the_users)
{
    expect("uas", false, "user:u0|assistant:a1|user:s2");
    expect("uasu", false, "user:u0|assistant:a1|user:s2\n\nu3");
    expect("us", false, "user:u0\n\ns1");
    expect("usu", false, "user:u0\n\ns1\n\nu2");
    expect("usuu", false, "user:u0\n\ns1\n\nu2|user:u3");
    expect("uusua", false, "user:u0|user:u1\n\ns2\n\nu3|assistant:a4");
    expect("suatsasu", false, "system:s0|user:u1|assistant:a2|tool:t3|user:s4|assistant:a5|user:s6\n\nu7");
    expect("ssuassa", false, "system:s0\n\ns1|user:u2|assistant:a3|user:s4\n\ns5|assistant:a6");
}
END_TEST

START_TEST(without_a_system_all_are_the_users)
{
    expect("su", true, "user:s0\n\nu1");
    expect("ssu", true, "user:s0\n\ns1\n\nu2");
    expect("s", true, "user:s0");
    expect("saus", true, "user:s0|assistant:a1|user:u2\n\ns3");
}
END_TEST

START_TEST(other_members_stay)
{
    json_t *in = conversation("suasu"), *out;
    ck_assert_int_eq(messages_fold(in, false, &out), ERR_OK);
    ck_assert_ptr_eq(json_array_get(out, 1), json_array_get(in, 1));
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(out, 3), "number")), 4);
    json_decref(in);
    json_decref(out);
}
END_TEST

Suite *messages_fold_suite(void)
{
    Suite *s = suite_create("messages_fold");
    TCase *t = tcase_create("messages_fold");
    tcase_add_test(t, what_needs_no_fold_is_left);
    tcase_add_test(t, the_first_become_one);
    tcase_add_test(t, later_ones_are_the_users);
    tcase_add_test(t, without_a_system_all_are_the_users);
    tcase_add_test(t, other_members_stay);
    suite_add_tcase(s, t);
    return s;
}
