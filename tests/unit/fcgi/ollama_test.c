/* Ollama's endpoints over the tiny model: lines and whole answers say the same, counts are those of chat completions, and
 * errors are a text. */
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

Suite *ollama_suite(void);

#define ASK "\"options\":{\"temperature\":0,\"num_predict\":5,\"num_ctx\":64,\"seed\":7}"

static void setup(void) { rig_serve(false, false); }
static void setup_encoder(void) { rig_serve_model("tests/golden/models/bert-cls.gguf", NULL); }

/* The text of all lines of the body together; *n lines, the last in rig_answer. */
static void read_lines(bool is_generate, char *out, size_t cap, size_t *n)
{
    const char *at = rig_got.body;
    size_t used = 0;
    for (*n = 0; *at != '\0'; (*n)++) {
        const char *end = strchr(at, '\n');
        ck_assert_msg(end != NULL, "%s", at);
        json_decref(rig_answer);
        rig_answer = json_loadb(at, (size_t)(end - at), 0, NULL);
        ck_assert_msg(rig_answer != NULL, "%s", at);
        used +=
            (size_t)snprintf(out + used, cap - used, "%s", rig_text_at(is_generate ? "response" : "message.content"));
        ck_assert(json_is_true(rig_at("done")) == (end[1] == '\0'));
        at = end + 1;
    }
}

static const char *const urls[] = {"/api/chat", "/api/generate"};
static const char *const asks[] = {"\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],",
                                   "\"prompt\":\"Hi\",\"suffix\":\"\",\"template\":\"\","};

START_TEST(lines_and_whole_answers_say_the_same)
{
    char body[512], text[256] = "";
    size_t n;
    snprintf(body, sizeof body, "{\"model\":\"tiny:latest\",%s" ASK "}", asks[_i]);
    ck_assert_msg(rig_post(urls[_i], body) == 200, "%s", rig_got.body);
    ck_assert_ptr_nonnull(strstr(rig_got.raw.data, "Content-Type: application/x-ndjson\r\n"));
    read_lines(_i == 1, text, sizeof text, &n);
    ck_assert_int_ge(n, 2);
    ck_assert_int_eq(rig_number_at("eval_count"), 5);
    ck_assert_str_eq(rig_text_at("done_reason"), "length");
    json_int_t prompt = rig_number_at("prompt_eval_count");
    ck_assert(rig_number_at("total_duration") >= rig_number_at("eval_duration"));
    snprintf(body, sizeof body, "{%s" ASK ",\"stream\":false}", asks[_i]);
    ck_assert_msg(rig_post(urls[_i], body) == 200, "%s", rig_got.body);
    ck_assert_str_eq(rig_text_at(_i == 1 ? "response" : "message.content"), text);
    ck_assert_str_eq(rig_text_at("model"), "tiny");
    ck_assert(json_is_true(rig_at("done")) && rig_number_at("prompt_eval_count") == prompt);
    ck_assert_int_eq(rig_post("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                                                      "\"temperature\":0,\"max_tokens\":5}"),
                     200);
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), text);
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), prompt);
}
END_TEST

START_TEST(a_format_holds)
{
    ck_assert_msg(rig_post("/api/generate", "{\"prompt\":\"x\",\"stream\":false,\"format\":{\"enum\":[\"yes\"]},"
                                            "\"options\":{\"num_predict\":20}}") == 200,
                  "%s", rig_got.body);
    ck_assert_str_eq(rig_text_at("response"), "\"yes\"");
}
END_TEST

START_TEST(who_asks_nothing_wants_the_model_loaded)
{
    ck_assert_int_eq(rig_post(urls[_i], _i == 0 ? "{\"messages\":[]}" : "{\"prompt\":\"\",\"keep_alive\":-1}"), 200);
    ck_assert_str_eq(rig_text_at("done_reason"), "load");
}
END_TEST

START_TEST(errors_are_a_text)
{
    static const struct {
        const char *url, *body, *word;
        int status;
    } rows[] = {
        {"/api/chat", "{\"messages\":7}", "messages: expected an array", 400},
        {"/api/chat", "{\"messages\":[7]}", "messages[0]", 400},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"b\"]}]}", "images", 400},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":{\"temperature\":9}}",
         "temperature", 400},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":7}", "options", 400},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"format\":7}", "format", 400},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"think\":7}", "think", 400},
        {"/api/chat", "{\"messages\":[],\"think\":\"much\"}", "think", 400},
        {"/api/chat", "{\"messages\":[],\"tools\":{}}", "tools", 400},
        {"/api/generate", "{\"prompt\":7}", "prompt", 400},
        {"/api/generate", "{\"prompt\":\"a\",\"system\":7}", "system", 400},
        {"/api/generate", "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", 400},
        {"/api/generate", "{\"prompt\":\"a\",\"raw\":true}", "raw", 400},
        {"/api/show", "{\"model\":\"other\"}", "other", 404},
        {"/api/embed", "{\"input\":\"a\"}", "--pooling", 400},
        {"/api/nothing", "{}", "/api/nothing", 404},
    };
    int status = rig_post(rows[_i].url, rows[_i].body);
    ck_assert_msg(status == rows[_i].status, "%d %s", status, rig_got.body);
    ck_assert_msg(strstr(rig_text_at("error"), rows[_i].word) != NULL, "%s", rig_got.body);
}
END_TEST

START_TEST(earlier_calls_and_their_results_go_through_the_template)
{
    const char *body =
        "{\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"b\",\"tool_calls\":[{\"function\":{"
        "\"name\":\"f\",\"arguments\":{\"x\":1}}}]},"
        "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"5\"}]}";
    ck_assert_msg(rig_post("/api/chat", body) == 200, "%s", rig_got.body);
    const char *bad = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":7}}]}]}";
    ck_assert_int_eq(rig_post("/api/chat", bad), 400);
    ck_assert_ptr_nonnull(strstr(rig_text_at("error"), "messages[0].tool_calls[0]"));
}
END_TEST

START_TEST(the_model_is_listed_and_shown)
{
    ck_assert_int_eq(rig_get("/api/tags"), 200);
    ck_assert_str_eq(rig_text_at("models.0.name"), "tiny");
    ck_assert_str_eq(rig_text_at("models.0.details.format"), "gguf");
    ck_assert_int_eq(rig_get("/api/ps"), 200);
    ck_assert_int_eq(rig_number_at("models.0.context_length"), RIG_CTX);
    ck_assert_int_eq(rig_get("/api/version"), 200);
    ck_assert_ptr_nonnull(rig_text_at("version"));
    ck_assert_int_eq(rig_post("/api/show", "{\"name\":\"tiny:latest\"}"), 200);
    ck_assert_str_eq(rig_text_at("capabilities.0"), "completion");
}
END_TEST

START_TEST(texts_are_embedded)
{
    ck_assert_msg(rig_post("/api/embed", "{\"input\":[\"ab\",\"c\"]}") == 200, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(rig_at("embeddings")), 2);
    ck_assert_uint_eq(json_array_size(rig_at("embeddings.1")), 48);
    ck_assert_int_gt(rig_number_at("prompt_eval_count"), 1);
    double first = json_number_value(rig_at("embeddings.0.0"));
    char text[256];
    snprintf(text, sizeof text, "{\"input\":\"%0200d\"}", 0); /* longer than the context */
    ck_assert_msg(rig_post("/api/embed", text) == 200, "%s", rig_got.body);
    ck_assert_int_eq(rig_number_at("prompt_eval_count"), 128);
    snprintf(text, sizeof text, "{\"input\":\"%0200d\",\"truncate\":false}", 0);
    ck_assert_int_eq(rig_post("/api/embed", text), 400);
    ck_assert_int_eq(rig_post("/api/embed", "{\"input\":\"ab\",\"dimensions\":5}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("embeddings.0")), 5);
    ck_assert_int_eq(rig_post("/api/embeddings", "{\"prompt\":\"ab\"}"), 200);
    ck_assert(json_number_value(rig_at("embedding.0")) == first);
    ck_assert_int_eq(rig_post("/api/show", "{}"), 200);
    ck_assert_str_eq(rig_text_at("capabilities.0"), "embedding");
}
END_TEST

Suite *ollama_suite(void)
{
    Suite *s = suite_create("ollama");
    TCase *t = tcase_create("ollama"), *encoder = tcase_create("encoder");
    tcase_set_tags(t, "fork");
    tcase_set_tags(encoder, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_loop_test(t, lines_and_whole_answers_say_the_same, 0, 2);
    tcase_add_test(t, a_format_holds);
    tcase_add_loop_test(t, who_asks_nothing_wants_the_model_loaded, 0, 2);
    tcase_add_loop_test(t, errors_are_a_text, 0, 14);
    tcase_add_test(t, earlier_calls_and_their_results_go_through_the_template);
    tcase_add_test(t, the_model_is_listed_and_shown);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(encoder, setup_encoder, rig_unserve);
    tcase_add_test(encoder, texts_are_embedded);
    suite_add_tcase(s, encoder);
    return s;
}
