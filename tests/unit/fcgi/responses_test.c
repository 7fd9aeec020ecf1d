/* /v1/responses through FastCGI over a tiny model: forms of answers, errors and streams. */
#include "fcgi/api/openai/responses_store.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *responses_suite(void);

#define URI "/v1/responses"
/* The model says "AAAA". */
#define ASK "\"max_output_tokens\":4,\"ignore_eos\":true,\"logit_bias\":{\"65\":100},\"input\":\"Hi\""

static void setup(void) { rig_serve(false, false); }

#define FOUR      "\xC3\xA4\xC3\xB6\xC3\xBC\xE2\x82\xAC"
#define KEY_OF_64 FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR FOUR

START_TEST(keys_of_metadata_have_characters)
{
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"metadata\":{\"" KEY_OF_64 "\":\"a\"}}"), 200);
    ck_assert(strstr(rig_got.body, "\"metadata\":{\"" KEY_OF_64 "\":\"a\"}") != NULL);
}
END_TEST

/* One call is the default where the template knows no tools. */
START_TEST(a_response_says_how_many_calls_there_may_be)
{
    static const char *const templates[] = {"{{ messages[0].content }}",
                                            "{{ messages[0].content }}{% if tools %}{{ tools }}{% endif %}"};
    for (int knows = 0; knows < 2; knows++) {
        rig_use_template(templates[knows]);
        ck_assert_int_eq(rig_post(URI, "{" ASK "}"), 200);
        ck_assert(json_is_boolean(rig_at("parallel_tool_calls")) &&
                  json_is_true(rig_at("parallel_tool_calls")) == (knows == 1));
        ck_assert_int_eq(rig_post(URI, "{" ASK ",\"parallel_tool_calls\":true}"), 200);
        ck_assert(json_is_true(rig_at("parallel_tool_calls")));
        ck_assert_int_eq(rig_post(URI, "{" ASK ",\"parallel_tool_calls\":false}"), 200);
        ck_assert(json_is_false(rig_at("parallel_tool_calls")));
    }
}
END_TEST

START_TEST(an_answer_is_a_response)
{
    ck_assert_int_eq(rig_post(URI,
                              "{" ASK ",\"instructions\":\"Be brief.\",\"metadata\":{\"a\":\"b\"},\"temperature\":0,"
                              "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"web_search\"}],"
                              "\"reasoning\":{\"effort\":\"low\"},\"store\":false}"),
                     200);
    ck_assert_str_eq(rig_text_at("object"), "response");
    ck_assert_str_eq(rig_text_at("status"), "incomplete");
    ck_assert_str_eq(rig_text_at("incomplete_details.reason"), "max_output_tokens");
    ck_assert_int_eq(strncmp(rig_text_at("id"), "resp_", 5), 0);
    ck_assert_str_eq(rig_text_at("output.0.content.0.text"), "AAAA");
    ck_assert_str_eq(rig_text_at("output.0.role"), "assistant");
    ck_assert_int_eq(rig_number_at("usage.output_tokens"), 4);
    ck_assert_int_eq(rig_number_at("usage.total_tokens"), 4 + rig_number_at("usage.input_tokens"));
    ck_assert_str_eq(rig_text_at("instructions"), "Be brief.");
    ck_assert_str_eq(rig_text_at("metadata.a"), "b");
    ck_assert_str_eq(rig_text_at("tools.1.type"), "web_search");
    ck_assert(json_is_null(rig_at("tools.0.parameters")));
    ck_assert_str_eq(rig_text_at("reasoning.effort"), "low");
    ck_assert_str_eq(rig_text_at("text.format.type"), "text");
    ck_assert_str_eq(rig_text_at("tool_choice"), "auto");
    ck_assert(json_is_false(rig_at("store")));
    ck_assert(json_number_value(rig_at("temperature")) == 0);
    ck_assert_int_eq(rig_post("/responses", "{" ASK "}"), 200);
}
END_TEST

START_TEST(prompts_are_those_of_chat)
{
    ck_assert_int_eq(rig_post("/v1/chat/completions",
                              "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":"
                              "\"user\",\"content\":\"Hi\"}]}"),
                     200);
    json_int_t n = rig_number_at("usage.prompt_tokens");
    ck_assert_int_eq(rig_post(URI "/input_tokens", "{\"instructions\":\"S\",\"input\":\"Hi\"}"), 200);
    ck_assert_int_eq(rig_number_at("input_tokens"), n);
    ck_assert_str_eq(rig_text_at("object"), "response.input_tokens");
}
END_TEST

START_TEST(log_probabilities_are_told)
{
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"top_logprobs\":2}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("output.0.content.0.logprobs")), 4);
    ck_assert_str_eq(rig_text_at("output.0.content.0.logprobs.3.token"), "A");
    ck_assert_int_eq(rig_number_at("output.0.content.0.logprobs.0.bytes.0"), 65);
    ck_assert_uint_eq(json_array_size(rig_at("output.0.content.0.logprobs.0.top_logprobs")), 2);
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"include\":[\"message.output_text.logprobs\"]}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("output.0.content.0.logprobs")), 4);
    ck_assert_uint_eq(json_array_size(rig_at("output.0.content.0.logprobs.0.top_logprobs")), 0);
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"include\":[\"reasoning.encrypted_content\"]}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("output.0.content.0.logprobs")), 0);
}
END_TEST

static const char *stream_of(const char *body)
{
    ck_assert_int_eq(rig_post(URI, body), 200);
    ck_assert_ptr_nonnull(rig_got.body);
    return rig_got.body;
}

START_TEST(timings_are_told_where_asked_for)
{
    const char *body = stream_of("{" ASK ",\"stream\":true,\"timings_per_token\":true}");
    const char *delta = strstr(body, "event: response.output_text.delta"),
               *completed = strstr(body, "event: response.incomplete");
    ck_assert(delta != NULL && completed != NULL);
    const char *timings = strstr(delta, "\"timings\":{");
    ck_assert(timings != NULL && timings < completed && strstr(completed, "\"timings\":{") != NULL);
    ck_assert_ptr_null(strstr(stream_of("{" ASK ",\"stream\":true}"), "timings"));
}
END_TEST

START_TEST(streams_end_with_the_response)
{
    const char *body = stream_of("{" ASK ",\"stream\":true,\"top_logprobs\":0}");
    ck_assert_int_eq(
        strncmp(body, "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,",
                strlen("event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,")),
        0);
    ck_assert_ptr_nonnull(strstr(body, "event: response.output_text.delta\n"));
    ck_assert_ptr_nonnull(strstr(body, "\"delta\":\"A\",\"logprobs\":[{\"token\":\"A\",\"bytes\":[65],"));
    const char *last = strstr(body, "event: response.incomplete\n");
    ck_assert_ptr_nonnull(last);
    ck_assert_ptr_nonnull(strstr(last, "\"text\":\"AAAA\""));
    ck_assert_ptr_null(strstr(body, "[DONE]"));
}
END_TEST

START_TEST(thoughts_are_items)
{
    rig_use_template("{{ messages[0].content }}<think>\n");
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"include\":[\"reasoning.encrypted_content\"]}"), 200);
    ck_assert_str_eq(rig_text_at("output.0.type"), "reasoning");
    ck_assert_str_eq(rig_text_at("output.0.content.0.text"), "AAAA");
    ck_assert_str_eq(rig_text_at("output.0.encrypted_content"), "infcgi-plain:AAAA");
    ck_assert_int_eq(rig_number_at("usage.output_tokens_details.reasoning_tokens"), 4);
    const char *body = stream_of("{" ASK ",\"stream\":true}");
    ck_assert_ptr_nonnull(strstr(body, "event: response.reasoning_text.delta\n"));
}
END_TEST

START_TEST(a_schema_is_followed)
{
    ck_assert_int_eq(rig_post(URI, "{\"max_output_tokens\":8,\"input\":\"Hi\",\"text\":{\"format\":{\"type\":"
                                   "\"json_schema\",\"name\":\"n\",\"schema\":{\"const\":5}}}}"),
                     200);
    ck_assert_str_eq(rig_text_at("output.0.content.0.text"), "5");
    ck_assert_str_eq(rig_text_at("status"), "completed");
}
END_TEST

START_TEST(wrong_fields_are_named)
{
    static const struct {
        const char *body;
        int status;
        const char *code, *param;
    } cases[] = {
        {"{\"input\":5}", 400, "invalid_type", "input"},
        {"{" ASK ",\"model\":\"other\"}", 404, "model_not_found", "model"},
        {"{" ASK ",\"previous_response_id\":\"resp_x\"}", 404, "response_not_found", "previous_response_id"},
        {"{" ASK ",\"background\":true}", 400, "unsupported_parameter", "background"},
        {"{" ASK ",\"conversation\":\"c\"}", 400, "unsupported_parameter", "conversation"},
        {"{" ASK ",\"stream\":1}", 400, "invalid_type", "stream"},
        {"{" ASK ",\"temperature\":3}", 400, "invalid_value", "temperature"},
        {"{" ASK ",\"metadata\":{\"a\":1}}", 400, "invalid_value", "metadata"},
        {"{" ASK ",\"metadata\":{\"" KEY_OF_64 "x\":\"\"}}", 400, "invalid_value", "metadata"},
        {"{" ASK ",\"include\":[1]}", 400, "invalid_value", "include"},
        {"{" ASK ",\"truncation\":\"some\"}", 400, "invalid_value", "truncation"},
        {"{\"input\":\"Hi\",\"max_output_tokens\":\"1\"}", 400, "invalid_type", "max_output_tokens"},
        {"{" ASK ",\"top_logprobs\":21}", 400, "invalid_value", "top_logprobs"},
        {"{" ASK ",\"reasoning\":{\"effort\":\"x\"}}", 400, "invalid_value", "reasoning.effort"},
        {"{" ASK ",\"tools\":[{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"f\",\"parameters\":5}]}", 400,
         "invalid_type", "tools[1].parameters"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        rig_refuse(URI, cases[i].body, cases[i].status, cases[i].code, cases[i].param);
    }
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{"
                                   "\"type\":5}}}}"),
                     400);
    ck_assert_int_eq(strncmp(rig_text_at("error.param"), "text.format.schema", strlen("text.format.schema")), 0);
}
END_TEST

/* Codex looks for this code in a stream. */
START_TEST(a_stream_tells_that_the_input_is_too_long)
{
    static const char head[] = "{\"stream\":true,\"input\":\"", plain[] = "{\"input\":\"";
    char body[RIG_CTX + 128];
    snprintf(body, sizeof body, "%s%0*d\"}", plain, RIG_CTX, 0);
    rig_refuse(URI, body, 400, "context_length_exceeded", "input");
    snprintf(body, sizeof body, "%s%0*d\"}", head, RIG_CTX, 0);
    const char *answer = stream_of(body), *last = strstr(answer, "event: response.failed\n");
    ck_assert_int_eq(strncmp(answer, "event: response.created\n", strlen("event: response.created\n")), 0);
    ck_assert_ptr_nonnull(last);
    ck_assert_ptr_nonnull(strstr(last, "\"error\":{\"code\":\"context_length_exceeded\",\"message\":"));
}
END_TEST

START_TEST(unknown_fields_are_refused_when_strict)
{
    rig_serve(true, false);
    rig_refuse(URI, "{" ASK ",\"max_tokens\":5}", 400, "unknown_parameter", "max_tokens");
    rig_refuse(URI, "{" ASK "}", 400, "missing_required_parameter", "model");
    ck_assert_int_eq(
        rig_post(
            URI,
            "{" ASK
            ",\"prompt_cache_key\":\"k\",\"client_metadata\":{},\"stream_options\":{\"include_usage\":5},\"model\":\"tiny\"}"),
        200);
}
END_TEST

/* Codex takes no list without these. */
START_TEST(models_are_listed_for_codex)
{
    static const char *const members[] = {"description",
                                          "supported_reasoning_levels",
                                          "supported_in_api",
                                          "priority",
                                          "upgrade",
                                          "supports_reasoning_summaries",
                                          "support_verbosity",
                                          "default_verbosity",
                                          "supports_parallel_tool_calls",
                                          "experimental_supported_tools"};
    ck_assert_int_eq(rig_get("/v1/models"), 200);
    ck_assert_str_eq(rig_text_at("models.0.slug"), rig_text_at("data.0.id"));
    ck_assert_str_eq(rig_text_at("models.0.display_name"), rig_text_at("data.0.id"));
    ck_assert_int_eq(rig_number_at("models.0.context_window"), rig_number_at("data.0.max_model_len"));
    ck_assert_int_eq(rig_number_at("models.0.truncation_policy.limit"), RIG_CTX / 4);
    ck_assert_str_eq(rig_text_at("models.0.shell_type"), "shell_command");
    ck_assert_str_eq(rig_text_at("models.0.visibility"), "list");
    ck_assert_str_eq(rig_text_at("models.0.apply_patch_tool_type"), "freeform");
    ck_assert_uint_gt(strlen(rig_text_at("models.0.base_instructions")), 0);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        ck_assert_msg(json_object_get(rig_at("models.0"), members[i]) != NULL, "%s", members[i]);
    }
}
END_TEST

/* --- what is kept ----------------------------------------------------------------------------------------------- */

static void ask_and_keep(const char *more, char id[64])
{
    char body[512];
    snprintf(body, sizeof body, "{" ASK "%s}", more);
    responses_store_limit(1 << 20);
    ck_assert_int_eq(rig_post(URI, body), 200);
    ck_assert(json_is_true(rig_at("store")));
    snprintf(id, 64, "%s", rig_text_at("id"));
}

static int get(const char *id, const char *rest)
{
    char uri[256];
    snprintf(uri, sizeof uri, URI "/%s%s", id, rest);
    return rig_get(uri);
}

START_TEST(a_response_is_kept)
{
    char id[64], uri[128];
    ask_and_keep("", id);
    json_t *told = json_incref(rig_answer);
    ck_assert_int_eq(get(id, ""), 200);
    ck_assert(json_equal(rig_answer, told));
    json_decref(told);
    ck_assert_int_eq(get(id, "?stream=true"), 400);
    ck_assert_str_eq(rig_text_at("error.param"), "stream");
    snprintf(uri, sizeof uri, URI "/%s/cancel", id);
    ck_assert_int_eq(rig_post(uri, ""), 400);
    ck_assert_int_eq(get(id, "/other"), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "unknown_url");
    snprintf(uri, sizeof uri, URI "/%s", id);
    ck_assert_int_eq(rig_ask("DELETE", uri, NULL, "", 0), 200);
    ck_assert(json_is_true(rig_at("deleted")));
    ck_assert_int_eq(rig_ask("DELETE", uri, NULL, "", 0), 404);
    ck_assert_int_eq(get(id, ""), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "response_not_found");
    ck_assert_int_eq(rig_post(URI "/resp_1/cancel", ""), 404);
}
END_TEST

START_TEST(a_conversation_goes_on)
{
    char id[64], more[160];
    ask_and_keep("", id);
    json_int_t n = rig_number_at("usage.input_tokens");
    ck_assert_int_eq(rig_post(URI "/input_tokens", "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                                                   "\"assistant\",\"content\":\"AAAA\"},{\"role\":\"user\","
                                                   "\"content\":\"Hi\"}]}"),
                     200);
    json_int_t both = rig_number_at("input_tokens");
    snprintf(more, sizeof more, ",\"previous_response_id\":\"%s\"", id);
    ask_and_keep(more, id);
    ck_assert_int_eq(rig_number_at("usage.input_tokens"), both);
    ck_assert_int_gt(both, n);
    ck_assert_int_eq(get(id, "/input_items?order=asc"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("data")), 3);
    ck_assert_str_eq(rig_text_at("data.1.content.0.text"), "AAAA");
    ck_assert(json_is_false(rig_at("has_more")));
}
END_TEST

START_TEST(input_comes_in_pages)
{
    char id[64], after[128], last[64];
    responses_store_limit(1 << 20);
    ck_assert_int_eq(rig_post(URI, "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
                                   "{\"id\":\"mine\",\"role\":\"user\",\"content\":\"b\"},"
                                   "{\"role\":\"user\",\"content\":\"c\"}]}"),
                     200);
    snprintf(id, sizeof id, "%s", rig_text_at("id"));
    ck_assert_int_eq(get(id, "/input_items?limit=1"), 200); /* the last comes first */
    ck_assert_str_eq(rig_text_at("data.0.content"), "c");
    ck_assert_str_eq(rig_text_at("data.0.type"), "message");
    ck_assert(json_is_true(rig_at("has_more")));
    snprintf(last, sizeof last, "%s", rig_text_at("last_id"));
    ck_assert_str_eq(rig_text_at("first_id"), last);
    snprintf(after, sizeof after, "/input_items?order=desc&after=%s", last);
    ck_assert_int_eq(get(id, after), 200);
    ck_assert_uint_eq(json_array_size(rig_at("data")), 2);
    ck_assert_str_eq(rig_text_at("first_id"), "mine");
    ck_assert_int_eq(get(id, "/input_items?limit=0"), 400);
    ck_assert_int_eq(get(id, "/input_items?limit=101"), 400);
    ck_assert_int_eq(get(id, "/input_items?order=up"), 400);
    ck_assert_str_eq(rig_text_at("error.param"), "order");
    ck_assert_int_eq(get("resp_1", "/input_items"), 404);
}
END_TEST

START_TEST(items_are_referred_to)
{
    char id[64], body[512];
    ask_and_keep("", id);
    snprintf(body, sizeof body,
             "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"type\":\"item_reference\",\"id\":\"%s\"}]}",
             rig_text_at("output.0.id"));
    ck_assert_int_eq(rig_post(URI "/input_tokens", body), 200);
    json_int_t n = rig_number_at("input_tokens");
    ck_assert_int_eq(rig_post(URI "/input_tokens", "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                                                   "\"assistant\",\"content\":\"AAAA\"}]}"),
                     200);
    ck_assert_int_eq(rig_number_at("input_tokens"), n);
    rig_refuse(URI, "{\"input\":[{\"id\":\"msg_000000000000000000000000_0\"}]}", 400, "invalid_value", "input[0].id");
}
END_TEST

START_TEST(what_shall_not_be_kept_is_not)
{
    responses_store_limit(1 << 20);
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"store\":false}"), 200);
    ck_assert_uint_eq(responses_store_bytes(), 0);
    responses_store_limit(0);
    ck_assert_int_eq(rig_post(URI, "{" ASK ",\"store\":true}"), 200);
    ck_assert(json_is_false(rig_at("store")));
    ck_assert_uint_eq(responses_store_bytes(), 0);
}
END_TEST

static void let_all_go(void)
{
    responses_store_limit(0);
    rig_unserve();
}

Suite *responses_suite(void)
{
    Suite *s = suite_create("responses");
    TCase *t = tcase_create("served"), *strict = tcase_create("strict"), *kept = tcase_create("kept");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, an_answer_is_a_response);
    tcase_add_test(t, keys_of_metadata_have_characters);
    tcase_add_test(t, a_response_says_how_many_calls_there_may_be);
    tcase_add_test(t, prompts_are_those_of_chat);
    tcase_add_test(t, log_probabilities_are_told);
    tcase_add_test(t, streams_end_with_the_response);
    tcase_add_test(t, timings_are_told_where_asked_for);
    tcase_add_test(t, thoughts_are_items);
    tcase_add_test(t, a_schema_is_followed);
    tcase_add_test(t, wrong_fields_are_named);
    tcase_add_test(t, models_are_listed_for_codex);
    tcase_add_test(t, a_stream_tells_that_the_input_is_too_long);
    suite_add_tcase(s, t);
    tcase_set_tags(kept, "fork");
    tcase_add_checked_fixture(kept, setup, let_all_go);
    tcase_add_test(kept, a_response_is_kept);
    tcase_add_test(kept, a_conversation_goes_on);
    tcase_add_test(kept, input_comes_in_pages);
    tcase_add_test(kept, items_are_referred_to);
    tcase_add_test(kept, what_shall_not_be_kept_is_not);
    suite_add_tcase(s, kept);
    tcase_set_tags(strict, "fork");
    tcase_add_checked_fixture(strict, NULL, rig_unserve);
    tcase_add_test(strict, unknown_fields_are_refused_when_strict);
    suite_add_tcase(s, strict);
    return s;
}
