/* What ends a completion and what is banned from it: logit_bias, ignore_eos, min_tokens and stop_token_ids together. */
#include "engine/base/buf.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *completions_suite(void);

#define TEXT "/v1/completions"
#define CHAT "/v1/chat/completions"

static void setup(void) { rig_serve(false, false); }

/* A request that bans all tokens but `left` (-1: all), with further fields. */
static const char *banning(const char *prompt, int left, bool as_pairs, const char *more)
{
    static char text[8192];
    size_t at =
        (size_t)snprintf(text, sizeof text, "{%s,\"max_tokens\":4,\"return_token_ids\":true%s,\"logit_bias\":%c",
                         prompt, more, as_pairs ? '[' : '{');
    for (int i = 0, n = 0; i < RIG_VOCAB; i++) {
        if (i != left) {
            at += (size_t)snprintf(text + at, sizeof text - at, as_pairs ? "%s[%d,false]" : "%s\"%d\":-100",
                                   n++ == 0 ? "" : ",", i);
        }
    }
    snprintf(text + at, sizeof text - at, as_pairs ? "]}" : "}}");
    return text;
}

#define PROMPT   "\"prompt\":\"ab\""
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static void refuse(const char *uri, const char *body, const char *says)
{
    rig_refuse(uri, body, 400, "invalid_value", "logit_bias");
    ck_assert_msg(strstr(rig_text_at("error.message"), says) != NULL, "%s", rig_got.body);
}

START_TEST(banning_every_token_is_refused)
{
    refuse(TEXT, banning(PROMPT, -1, false, ""), "258 tokens not to be banned, found all banned");
    refuse(TEXT, banning(PROMPT, -1, true, ",\"stream\":true"), "found all banned");
    refuse(CHAT, banning(MESSAGES, -1, false, ""), "found all banned");
    refuse(CHAT, banning(MESSAGES, -1, false, ",\"stream\":true"), "found all banned");
    refuse(TEXT, banning(PROMPT, RIG_EOS, false, ",\"ignore_eos\":true"), "by ignore_eos");
    refuse(TEXT, banning(PROMPT, RIG_EOS, false, ",\"min_tokens\":1"), "by min_tokens");
    refuse(TEXT, banning(PROMPT, 97, false, ",\"min_tokens\":1,\"stop_token_ids\":[97]"), "by min_tokens");
}
END_TEST

START_TEST(one_token_may_be_left)
{
    ck_assert_int_eq(rig_post(TEXT, banning(PROMPT, 120, true, "")), 200);
    ck_assert_str_eq(rig_text_at("choices.0.text"), "xxxx");
    ck_assert_int_eq(rig_post(TEXT, banning(PROMPT, 120, false, ",\"ignore_eos\":true,\"min_tokens\":2")), 200);
    ck_assert_str_eq(rig_text_at("choices.0.text"), "xxxx");
    ck_assert_int_eq(rig_post(TEXT, banning(PROMPT, RIG_EOS, false, "")), 200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 1);
    /* nothing is sampled, so nothing need be left */
    ck_assert_int_eq(rig_post(TEXT, banning(PROMPT, -1, false, ",\"n_predict\":0")), 200);
}
END_TEST

#define END_IS_BEST                                                                                                    \
    "{" PROMPT ",\"max_tokens\":6,\"temperature\":0,\"return_token_ids\":true,\"logit_bias\":{\"257\":100}"

START_TEST(ignore_eos_bans_the_models_end_tokens)
{
    ck_assert_int_eq(rig_post(TEXT, END_IS_BEST "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 1);
    ck_assert_int_eq(rig_post(TEXT, END_IS_BEST ",\"ignore_eos\":true}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "length");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 6);
    ck_assert_uint_eq(json_array_size(rig_at("choices.0.token_ids")), 6);
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_ne(json_integer_value(json_array_get(rig_at("choices.0.token_ids"), i)), RIG_EOS);
    }
}
END_TEST

/* What the request itself names as an end ends it. */
/* Without max_tokens, an answer has 16 tokens, as in OpenAI's API; llama-server's has no limit. */
START_TEST(answers_are_short_unless_asked)
{
    ck_assert_int_eq(rig_post(TEXT, "{" PROMPT ",\"model\":\"tiny\",\"ignore_eos\":true}"), 200);
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 16);
    ck_assert_int_eq(rig_post("/completion", "{" PROMPT ",\"model\":\"tiny\",\"ignore_eos\":true,\"n_predict\":null}"),
                     200);
    ck_assert_int_eq(rig_number_at("tokens_predicted"), RIG_CTX - 2);
}
END_TEST

START_TEST(ignore_eos_leaves_stop_token_ids)
{
    ck_assert_int_eq(rig_post(TEXT, "{" PROMPT ",\"max_tokens\":6,\"temperature\":0,\"logit_bias\":{\"120\":100},"
                                    "\"ignore_eos\":true,\"stop_token_ids\":[120]}"),
                     200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 1);
    ck_assert_int_eq(rig_post(TEXT, END_IS_BEST ",\"ignore_eos\":true,\"stop_token_ids\":[257]}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_post(TEXT, END_IS_BEST ",\"min_tokens\":3,\"stop_token_ids\":[120]}"), 200);
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 4);
}
END_TEST

Suite *completions_suite(void)
{
    Suite *s = suite_create("completions");
    TCase *t = tcase_create("completions");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, banning_every_token_is_refused);
    tcase_add_test(t, one_token_may_be_left);
    tcase_add_test(t, ignore_eos_bans_the_models_end_tokens);
    tcase_add_test(t, ignore_eos_leaves_stop_token_ids);
    tcase_add_test(t, answers_are_short_unless_asked);
    suite_add_tcase(s, t);
    return s;
}
