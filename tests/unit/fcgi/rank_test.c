/* POST /v1/rerank and /v1/score over a tiny cross-encoder of random weights, and over a model that ranks nothing. */
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *rank_suite(void);

#define TEXTS "\"query\":\"what is a cat\",\"documents\":[\"a cat sleeps\",{\"text\":\"rates rose\"},\"cat\",\"\"]"

static void setup(void) { rig_serve_model("tests/golden/rank/bert-pair.gguf", NULL); }
static void setup_plain(void) { rig_serve(false, false); }

static double number(const char *list, size_t i, const char *member)
{
    const json_t *v = json_object_get(json_array_get(json_object_get(rig_answer, list), i), member);
    ck_assert_msg(json_is_number(v), "%.300s", rig_got.body);
    return json_number_value(v);
}

/* Of each text alone, in the order of the request. */
static void score_each(double out[4], const char *more)
{
    static const char *const texts[] = {"a cat sleeps", "rates rose", "cat", ""};
    for (int i = 0; i < 4; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"text_1\":\"what is a cat\",\"text_2\":\"%s\"%s}", texts[i], more);
        ck_assert_msg(rig_post("/v1/score", body) == 200, "%s", rig_got.body);
        out[i] = number("data", 0, "score");
    }
}

START_TEST(documents_come_the_best_first_with_the_scores_they_have_alone)
{
    static const char *const urls[] = {"/v1/rerank", "/v2/rerank", "/rerank"};
    double alone[4];
    score_each(alone, "");
    ck_assert_msg(rig_post(urls[_i], "{" TEXTS "}") == 200, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(rig_at("results")), 4);
    ck_assert_str_eq(rig_text_at("model"), "tiny");
    bool seen[4] = {false};
    for (size_t i = 0; i < 4; i++) {
        double score = number("results", i, "relevance_score");
        size_t index = (size_t)number("results", i, "index");
        ck_assert(index < 4 && !seen[index] && score == alone[index] && score > 0 && score < 1);
        ck_assert(i == 0 || score <= number("results", i - 1, "relevance_score"));
        seen[index] = true;
    }
    ck_assert_ptr_null(json_object_get(json_array_get(rig_at("results"), 0), "document"));
    ck_assert(rig_number_at("usage.prompt_tokens") > 4 * 4);
    ck_assert_int_eq(rig_number_at("usage.total_tokens"), rig_number_at("usage.prompt_tokens"));
}
END_TEST

START_TEST(as_many_as_asked_for_with_their_texts)
{
    ck_assert_msg(rig_post("/v1/rerank", "{" TEXTS ",\"top_n\":2,\"return_documents\":true}") == 200, "%s",
                  rig_got.body);
    ck_assert_uint_eq(json_array_size(rig_at("results")), 2);
    static const char *const texts[] = {"a cat sleeps", "rates rose", "cat", ""};
    for (size_t i = 0; i < 2; i++) {
        const json_t *r = json_array_get(rig_at("results"), i);
        const char *text = json_string_value(json_object_get(json_object_get(r, "document"), "text"));
        ck_assert_str_eq(text, texts[json_integer_value(json_object_get(r, "index"))]);
    }
}
END_TEST

/* The form of Text Embeddings Inference, which llama-server has too. */
START_TEST(texts_are_answered_with_an_array)
{
    static const char texts[] = "\"query\":\"what is a cat\",\"texts\":[\"a cat sleeps\",\"rates rose\",\"cat\",\"\"]";
    double alone[4], raw[4];
    char body[256];
    score_each(alone, "");
    score_each(raw, ",\"use_activation\":false");
    for (int is_raw = 0; is_raw <= 1; is_raw++) {
        snprintf(body, sizeof body, "{%s,\"return_text\":true,\"raw_scores\":%s}", texts, is_raw ? "true" : "false");
        ck_assert_msg(rig_post("/rerank", body) == 200, "%s", rig_got.body);
        ck_assert_uint_eq(json_array_size(rig_answer), 4);
        for (size_t i = 0; i < 4; i++) {
            const json_t *r = json_array_get(rig_answer, i);
            json_int_t index = json_integer_value(json_object_get(r, "index"));
            ck_assert(json_number_value(json_object_get(r, "score")) == (is_raw ? raw : alone)[index]);
            ck_assert(json_is_string(json_object_get(r, "text")));
        }
    }
    snprintf(body, sizeof body, "{%s,\"top_n\":2}", texts);
    ck_assert_int_eq(rig_post("/rerank", body), 200);
    ck_assert_uint_eq(json_array_size(rig_answer), 2);
    ck_assert_ptr_null(rig_at("0.text"));
    rig_refuse("/rerank", "{\"query\":\"a\",\"texts\":[1]}", 400, "invalid_type", "texts[0]");
}
END_TEST

START_TEST(a_score_is_the_logistic_function_of_the_models_number)
{
    double score[4], raw[4];
    score_each(score, "");
    score_each(raw, ",\"use_activation\":false");
    bool differ = false;
    for (int i = 0; i < 4; i++) {
        ck_assert(fabs(1 / (1 + exp(-raw[i])) - score[i]) < 1e-6);
        differ |= fabs(raw[i] - score[i]) > 1e-3;
    }
    ck_assert(differ);
}
END_TEST

START_TEST(pairs_of_lists)
{
    ck_assert_msg(rig_post("/score", "{\"queries\":[\"a\",\"b\"],\"documents\":[\"c\",\"d\"]}") == 200, "%s",
                  rig_got.body);
    double first = number("data", 0, "score"), second = number("data", 1, "score");
    ck_assert_int_eq((int)number("data", 1, "index"), 1);
    ck_assert_int_eq(rig_post("/score", "{\"text_1\":\"b\",\"text_2\":[\"d\",\"c\"]}"), 200);
    ck_assert(number("data", 0, "score") == second && number("data", 1, "score") != first);
}
END_TEST

START_TEST(what_is_wrong_is_refused_with_its_place)
{
    rig_refuse("/v1/rerank", "{\"documents\":[\"a\"]}", 400, "missing_required_parameter", "query");
    rig_refuse("/v1/rerank", "{\"query\":\"a\"}", 400, "missing_required_parameter", "documents");
    rig_refuse("/v1/rerank", "{\"query\":\"a\",\"documents\":[]}", 400, "invalid_value", "documents");
    rig_refuse("/v1/rerank", "{\"query\":\"a\",\"documents\":\"b\"}", 400, "invalid_type", "documents");
    rig_refuse("/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\",7]}", 400, "invalid_type", "documents[1]");
    rig_refuse("/v1/rerank", "{\"query\":[\"a\"],\"documents\":[\"b\"]}", 400, "invalid_type", "query");
    rig_refuse("/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":-1}", 400, "invalid_value", "top_n");
    rig_refuse("/v1/score", "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\"]}", 400, "invalid_value", "text_2");
    rig_refuse("/v1/score", "{\"queries\":\"a\"}", 400, "missing_required_parameter", "documents");
    char body[1024] = "{\"query\":\"a\",\"documents\":[\"";
    memset(body + strlen(body), 'x', 800);
    strcat(body, "\"]}");
    rig_refuse("/v1/rerank", body, 400, "context_length_exceeded", "documents");
    ck_assert_ptr_null(rig_at("error.n_ctx"));
    rig_refuse("/rerank", body, 400, "context_length_exceeded", "documents");
    ck_assert_int_gt(rig_number_at("error.n_prompt_tokens"), rig_number_at("error.n_ctx"));
    char pair[1024] = "{\"text_1\":\"a\",\"text_2\":\"";
    memset(pair + strlen(pair), 'x', 800);
    strcat(pair, "\"}");
    rig_refuse("/score", pair, 400, "context_length_exceeded", "text_2");
    ck_assert_int_gt(rig_number_at("error.n_prompt_tokens"), rig_number_at("error.n_ctx"));
    rig_refuse("/completion", "{\"prompt\":\"a\"}", 400, "unsupported_endpoint", "model");
    rig_refuse("/v1/embeddings", "{\"input\":\"a\"}", 400, "unsupported_endpoint", "model");
}
END_TEST

START_TEST(a_model_without_a_head_says_what_it_lacks)
{
    rig_refuse("/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]}", 400, "unsupported_endpoint", "model");
    ck_assert_ptr_nonnull(strstr(rig_got.body, "cls.output.weight"));
}
END_TEST

Suite *rank_suite(void)
{
    Suite *s = suite_create("rank");
    TCase *t = tcase_create("rank"), *plain = tcase_create("plain");
    tcase_set_tags(t, "fork");
    tcase_set_tags(plain, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_loop_test(t, documents_come_the_best_first_with_the_scores_they_have_alone, 0, 3);
    tcase_add_test(t, as_many_as_asked_for_with_their_texts);
    tcase_add_test(t, a_score_is_the_logistic_function_of_the_models_number);
    tcase_add_test(t, texts_are_answered_with_an_array);
    tcase_add_test(t, pairs_of_lists);
    tcase_add_test(t, what_is_wrong_is_refused_with_its_place);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(plain, setup_plain, rig_unserve);
    tcase_add_test(plain, a_model_without_a_head_says_what_it_lacks);
    suite_add_tcase(s, plain);
    return s;
}
