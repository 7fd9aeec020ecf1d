/* llama-server's own endpoints: answers whole and streamed, several prompts, probabilities, and what is refused. */
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <string.h>

Suite *llama_server_suite(void);

#define COMPLETION "/completion"
/* Says x as often as it may. */
#define SAYS_X "\"prompt\":\"ab\",\"temperature\":0,\"logit_bias\":[[120,100]],\"ignore_eos\":true"

static struct server *server;

static void setup(void) { server = rig_serve(false, false); }

START_TEST(whole_answers)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"return_tokens\":true,\"n_probs\":2}"), 200);
    ck_assert_str_eq(rig_text_at("content"), "xxx");
    ck_assert_str_eq(rig_text_at("stop_type"), "limit");
    ck_assert_str_eq(rig_text_at("prompt"), "ab");
    ck_assert(json_is_true(rig_at("stop")));
    ck_assert_int_eq(rig_number_at("tokens_predicted"), 3);
    ck_assert_int_eq(rig_number_at("tokens_evaluated"), 2);
    ck_assert_int_eq(rig_number_at("tokens.2"), 120);
    ck_assert_uint_eq(json_array_size(rig_at("completion_probabilities")), 3);
    ck_assert_str_eq(rig_text_at("completion_probabilities.0.token"), "x");
    ck_assert_uint_eq(json_array_size(rig_at("completion_probabilities.0.top_logprobs")), 2);
    ck_assert_int_eq(rig_number_at("timings.predicted_n"), 3);
    ck_assert_int_eq(rig_number_at("generation_settings.n_predict"), 3);
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":9,\"stop\":[\"zz\",\"xx\"]}"), 200);
    ck_assert_str_eq(rig_text_at("content"), "");
    ck_assert_str_eq(rig_text_at("stop_type"), "word");
    ck_assert_str_eq(rig_text_at("stopping_word"), "xx");
    ck_assert_uint_eq(json_array_size(rig_at("tokens")), 0);
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"ab\",\"temperature\":0,\"logit_bias\":[[257,100]]}"), 200);
    ck_assert_str_eq(rig_text_at("stop_type"), "eos");
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X "}"), 200); /* until the context is full */
    ck_assert_int_eq(rig_number_at("tokens_predicted"), RIG_CTX - 2);
}
END_TEST

START_TEST(several_prompts)
{
    ck_assert_int_eq(rig_post(COMPLETION,
                              "{\"prompt\":[\"a\",[98,99]],\"n_predict\":2,\"temperature\":0,\"logit_bias\":"
                              "[[120,100]]}"),
                     200);
    ck_assert_uint_eq(json_array_size(rig_answer), 2);
    ck_assert_str_eq(rig_text_at("0.content"), "xx");
    ck_assert_int_eq(rig_number_at("1.index"), 1);
    ck_assert_str_eq(rig_text_at("1.prompt"), "bc");
}
END_TEST

/* Events say in parts what a whole answer says. */
START_TEST(streams)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"return_tokens\":true,\"stream\":true}"), 200);
    const char *at = rig_got.body;
    char text[32] = "";
    int n = 0, n_tokens = 0;
    bool is_last = false;
    while ((at = strstr(at, "data: ")) != NULL) {
        const char *end = strstr(at, "\n\n");
        ck_assert(end != NULL && !is_last);
        json_t *event = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
        ck_assert_msg(event != NULL, "%s", at);
        strcat(text, json_string_value(json_object_get(event, "content")));
        n_tokens += (int)json_array_size(json_object_get(event, "tokens"));
        is_last = json_is_true(json_object_get(event, "stop"));
        ck_assert_int_eq(json_object_get(event, "timings") != NULL, is_last);
        json_decref(event);
        at = end;
        n++;
    }
    ck_assert(is_last && n >= 2);
    ck_assert_str_eq(text, "xxx");
    ck_assert_int_eq(n_tokens, 3);
}
END_TEST

START_TEST(constraints)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"a\",\"json_schema\":{\"enum\":[\"yes\",\"no\"]}}"), 200);
    const char *said = rig_text_at("content");
    ck_assert_msg(strcmp(said, "\"yes\"") == 0 || strcmp(said, "\"no\"") == 0, "%s", said);
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"a\",\"grammar\":\"root ::= \\\"ok\\\"\"}"), 200);
    ck_assert_str_eq(rig_text_at("content"), "ok");
}
END_TEST

START_TEST(what_is_refused)
{
    rig_refuse(COMPLETION, "{}", 400, "missing_required_parameter", "prompt");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"n_probs\":21}", 400, "invalid_value", "n_probs");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"n_probs\":\"1\"}", 400, "invalid_type", "n_probs");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"post_sampling_probs\":true}", 400, "unsupported_parameter",
               "post_sampling_probs");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"json_schema\":5}", 400, "invalid_type", "json_schema");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"json_schema\":{\"contains\":{}}}", 400, "invalid_json_schema",
               "json_schema/contains");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"model\":\"another\"}", 404, "model_not_found", "model");
    struct conf any = *server->conf;
    any.any_model = true;
    server->conf = &any;
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"a\",\"model\":\"another\",\"n_predict\":1}"), 200);
}
END_TEST

START_TEST(what_the_server_is)
{
    ck_assert_int_eq(rig_get("/props"), 200);
    ck_assert_int_eq(rig_number_at("default_generation_settings.n_ctx"), RIG_CTX);
    ck_assert_int_eq(rig_number_at("total_slots"), 16);
    ck_assert_int_eq(rig_get("/slots"), 200);
    ck_assert_uint_eq(json_array_size(rig_answer), 16);
    ck_assert(json_is_false(rig_at("0.is_processing")));
    ck_assert_int_eq(rig_get("/lora-adapters"), 200);
    ck_assert(json_is_array(rig_answer) && json_array_size(rig_answer) == 0);
    ck_assert_int_eq(rig_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    rig_refuse("/apply-template", "{\"messages\":5}", 400, "invalid_type", "messages");
}
END_TEST

Suite *llama_server_suite(void)
{
    Suite *s = suite_create("llama_server");
    TCase *t = tcase_create("llama_server");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, whole_answers);
    tcase_add_test(t, several_prompts);
    tcase_add_test(t, streams);
    tcase_add_test(t, constraints);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, what_the_server_is);
    suite_add_tcase(s, t);
    return s;
}
