/* llama-server's own endpoints: answers whole and streamed, several prompts, probabilities, and what is refused. */
#include "fcgi/tenant/tenant.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
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
    ck_assert_int_eq(rig_number_at("generation_settings.n_ctx"), RIG_CTX);
    ck_assert_str_eq(rig_text_at("generation_settings.model"), server->model_id);
    ck_assert_int_eq(rig_number_at("id_slot"), -1);
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":5}"), 200);
    ck_assert_int_eq(rig_number_at("id_slot"), 5);
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":3,\"id_slot\":5,\"stream\":true}"), 200);
    ck_assert(strstr(rig_got.body, "\"stop\":false,\"id_slot\":5,") != NULL &&
              strstr(rig_got.body, "\"id_slot\":-1") == NULL);
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

/* Texts and ids in one prompt, and objects for texts. */
START_TEST(mixed_prompts)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":[97,\"bc\",100],\"n_predict\":1}"), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "abcd");
    ck_assert_int_eq(rig_number_at("tokens_evaluated"), 4);
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":{\"prompt_string\":\"xy\"},\"n_predict\":1}"), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "xy");
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":[\"a\",{\"content\":[{\"type\":\"text\",\"text\":\"b\"},"
                                          "{\"type\":\"text\",\"text\":\"c\"}]}],\"n_predict\":1}"),
                     200);
    ck_assert_str_eq(rig_text_at("1.prompt"), "bc");
}
END_TEST

/* A bias of a text is one of each of its tokens. */
START_TEST(biases_of_texts)
{
    static const char *const forms[] = {"[[\"x\",100]]", "{\"x\":100}"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"ab\",\"temperature\":0,\"n_predict\":2,\"logit_bias\":%s}",
                 forms[i]);
        ck_assert_int_eq(rig_post(COMPLETION, body), 200);
        ck_assert_str_eq(rig_text_at("content"), "xx");
        ck_assert_int_eq(rig_number_at("generation_settings.logit_bias.0.token"), 120);
    }
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"ab\",\"n_predict\":2,\"logit_bias\":{\"xy\":false}}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("generation_settings.logit_bias")), 2);
    ck_assert(json_is_null(rig_at("generation_settings.logit_bias.1.bias")));
}
END_TEST

/* What the draw is made with: all of it for a greedy token, and what a bias leaves else. */
START_TEST(probabilities_of_the_draw)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":1,\"n_probs\":3,\"post_sampling_probs\":true}"),
                     200);
    ck_assert_double_eq_tol(json_number_value(rig_at("completion_probabilities.0.prob")), 1, 1e-6);
    ck_assert_uint_eq(json_array_size(rig_at("completion_probabilities.0.top_probs")), 1);
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"ab\",\"temperature\":1,\"top_k\":2,\"seed\":5,\"n_predict\":1,"
                                          "\"n_probs\":5,\"post_sampling_probs\":true}"),
                     200);
    double sum = 0;
    ck_assert_uint_eq(json_array_size(rig_at("completion_probabilities.0.top_probs")), 2);
    sum += json_number_value(rig_at("completion_probabilities.0.top_probs.0.prob"));
    sum += json_number_value(rig_at("completion_probabilities.0.top_probs.1.prob"));
    ck_assert_double_eq_tol(sum, 1, 1e-6);
    ck_assert(json_number_value(rig_at("completion_probabilities.0.prob")) > 0);
}
END_TEST

/* A list turns off what it leaves out. */
START_TEST(lists_of_samplers)
{
    ck_assert_int_eq(rig_post(COMPLETION,
                              "{\"prompt\":\"a\",\"n_predict\":1,\"top_k\":3,\"top_p\":0.5,\"min_p\":0.1,"
                              "\"typical_p\":0.5,\"repeat_penalty\":1.5,\"temperature\":0.3,\"samplers\":[\"dry\","
                              "\"top_k\",\"min_p\"]}"),
                     200);
    ck_assert_int_eq(rig_number_at("generation_settings.top_k"), 3);
    ck_assert_double_eq_tol(json_number_value(rig_at("generation_settings.min_p")), 0.1, 1e-6);
    static const char *const off[] = {"top_p", "typical_p", "repeat_penalty", "temperature"};
    for (size_t i = 0; i < ARRAY_LEN(off); i++) {
        char at[64];
        snprintf(at, sizeof at, "generation_settings.%s", off[i]);
        ck_assert_msg(json_number_value(rig_at(at)) == 1, "%s", off[i]);
    }
    ck_assert_int_eq(
        rig_post(COMPLETION, "{\"prompt\":\"a\",\"n_predict\":1,\"top_k\":3,\"top_p\":0.5,\"samplers\":\"dp\"}"), 200);
    ck_assert_int_eq(rig_number_at("generation_settings.top_k"), 0);
    ck_assert_double_eq_tol(json_number_value(rig_at("generation_settings.top_p")), 0.5, 1e-6);
}
END_TEST

START_TEST(fields_of_the_answer)
{
    ck_assert_int_eq(rig_post(COMPLETION, "{" SAYS_X ",\"n_predict\":2,\"response_fields\":[\"content\","
                                          "\"generation_settings/n_predict\",\"nothing/there\"]}"),
                     200);
    ck_assert_uint_eq(json_object_size(rig_answer), 2);
    ck_assert_str_eq(rig_text_at("content"), "xx");
    ck_assert_int_eq(json_integer_value(json_object_get(rig_answer, "generation_settings/n_predict")), 2);
}
END_TEST

/* Timings come with each event where they are asked for, and how far the prompt is before all of them. */
START_TEST(progress_and_timings)
{
    static const char *const uris[] = {COMPLETION, "/v1/completions", "/v1/chat/completions"};
    for (size_t i = 0; i < ARRAY_LEN(uris); i++) {
        char body[512];
        snprintf(
            body, sizeof body,
            "{%s,\"temperature\":0,\"logit_bias\":{\"120\":100},\"n_predict\":3,\"stream\":true,\"timings_per_token\":true,"
            "\"return_progress\":true}",
            i == 2 ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" : "\"prompt\":\"ab\"");
        ck_assert_int_eq(rig_post(uris[i], body), 200);
        const char *progress = strstr(rig_got.body, "\"prompt_progress\":{"), *x = strstr(rig_got.body, "\"x\"");
        ck_assert_msg(progress != NULL && x != NULL && progress < x, "%s", rig_got.body);
        const char *timings = strstr(x, "\"timings\":{");
        ck_assert_msg(timings != NULL && timings < strstr(x, "\n\n"), "%s", rig_got.body);
    }
    ck_assert_int_eq(rig_post("/v1/completions", "{" SAYS_X ",\"max_tokens\":3,\"stream\":true}"), 200);
    ck_assert(strstr(rig_got.body, "prompt_progress") == NULL);
    ck_assert_int_eq(rig_post("/v1/completions", "{" SAYS_X ",\"max_tokens\":3,\"verbose\":true}"), 200);
    ck_assert_int_eq(rig_number_at("timings.predicted_n"), 3);
    ck_assert_str_eq(rig_text_at("__verbose.prompt"), "ab");
    ck_assert_int_eq(rig_post("/v1/completions", "{" SAYS_X ",\"max_tokens\":2,\"stream\":true,\"verbose\":true}"),
                     200);
    const char *told = strstr(rig_got.body, "\"__verbose\":{"); /* once, with the reason of the end */
    ck_assert(told != NULL && strstr(rig_got.body, "\"finish_reason\":\"length\"") < told &&
              strstr(told + 1, "\"__verbose\"") == NULL);
    ck_assert_int_eq(rig_post("/v1/chat/completions",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
                              "\"stream\":true,\"verbose\":true,\"logit_bias\":{\"60\":100}}"),
                     200);
    const char *held = strstr(rig_got.body, "\"content\":\"<\""); /* that could begin a mark until the end came */
    const char *last = strstr(rig_got.body, "\"finish_reason\":\"length\"");
    told = strstr(rig_got.body, "\"__verbose\":{");
    ck_assert_msg(held != NULL && held < last && told > last && strstr(told + 1, "\"__verbose\"") == NULL, "%s",
                  rig_got.body);
    const char *timed = strstr(rig_got.body, "\"timings\":{");
    ck_assert_msg(timed > last, "%s", rig_got.body);
}
END_TEST

static void is_not_supported(const char *uri, const char *body)
{
    ck_assert_int_eq(rig_post(uri, body), 501);
    ck_assert_str_eq(rig_text_at("error.code"), "not_supported");
    ck_assert_str_eq(rig_text_at("error.type"), "not_supported_error");
}

/* The vocabulary of the rig has no marks for gaps. */
START_TEST(gaps)
{
    is_not_supported("/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}");
    is_not_supported("/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"b\"}");
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"\",\"max_tokens\":1}"), 200);
}
END_TEST

/* The marks of Qwen2.5-Coder: its repository and files in front of the gap, each after its name. */
START_TEST(gaps_of_a_coder)
{
    static const char *const marks[] = {
        "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", NULL};
    static const char expected[] =
        "<|repo_name|>myproject\n<|file_sep|>x.c\nint x;\n<|file_sep|>tmp\ny<|file_sep|>filename\n"
        "<|fim_prefix|>a<|fim_middle|>b<|fim_suffix|>c<|fim_middle|>";
    static const char texts[] = "myproject\nx.c\nint x;\ntmp\nyfilename\na<|fim_middle|>bc"; /* a token a byte */
    rig_use_marks(marks);
    ck_assert_int_eq(
        rig_post("/infill",
                 "{\"n_predict\":1,\"input_prefix\":\"a<|fim_middle|>\",\"prompt\":\"b\",\"input_suffix\":\"c\","
                 "\"input_extra\":[{\"filename\":\"x.c\",\"text\":\"int x;\\n\"},{\"text\":\"y\"}]}"),
        200);
    ck_assert_str_eq(rig_text_at("prompt"), expected);
    ck_assert_int_eq(rig_number_at("tokens_evaluated"),
                     7 + (int)sizeof texts - 1); /* marks, of which one was the client's text */
    ck_assert_int_eq(
        rig_post("/v1/completions", "{\"verbose\":true,\"prompt\":\"a\",\"suffix\":\"b\",\"max_tokens\":1}"), 200);
    ck_assert_str_eq(rig_text_at("__verbose.prompt"), "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
}
END_TEST

/* Far more files than the first room for ids has place for: they are there in order. */
START_TEST(gaps_with_many_files)
{
    enum { MANY = 40 };
    static const char *const marks[] = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                        "<|repo_name|>",  "<|file_sep|>",   NULL};
    struct buf body, expected;
    rig_use_marks(marks);
    buf_init(&body, 0, MEM_GENERAL);
    buf_init(&expected, 0, MEM_GENERAL);
    buf_puts(&body, "{\"n_predict\":1,\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[");
    buf_puts(&expected, "<|repo_name|>myproject\n");
    for (int i = 0; i < MANY; i++) {
        buf_printf(&body, "%s{\"filename\":\"%d\",\"text\":\"%d\"}", i == 0 ? "" : ",", i, i);
        buf_printf(&expected, "<|file_sep|>%d\n%d", i, i);
    }
    buf_puts(&body, "]}");
    buf_puts(&expected, "<|file_sep|>filename\n<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
    ck_assert_int_eq(rig_post("/infill", body.data), 200);
    const char *prompt = rig_text_at("prompt"); /* the last of it, as far as the context has room */
    ck_assert_uint_le(strlen(prompt), expected.len);
    ck_assert_str_eq(prompt, expected.data + expected.len - strlen(prompt));
    ck_assert_int_gt(rig_number_at("tokens_evaluated"), 60);
    buf_fini(&body);
    buf_fini(&expected);
}
END_TEST

/* What /apply-template gives comes back to /completion, which adds the BOS: once. */
START_TEST(a_template_leaves_the_bos_to_who_adds_it)
{
    static const char *const marks[] = {"<s>", NULL};
    rig_use_marks(marks);
    for (int writes = 0; writes <= 1; writes++) {
        rig_use_template(writes ? "{{ bos_token }}[{{ messages[0].content }}]" : "[{{ messages[0].content }}]");
        ck_assert_int_eq(rig_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"<s>hi\"}]}"),
                         200);
        ck_assert_str_eq(rig_text_at("prompt"), "[<s>hi]");
        ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"[hi]\",\"n_predict\":1}"), 200);
        ck_assert_str_eq(rig_text_at("prompt"), "<s>[hi]");
        ck_assert_int_eq(rig_number_at("tokens_evaluated"), 5);
        ck_assert_int_eq(
            rig_post("/chat/completions/input_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"), 200);
        ck_assert_int_eq(rig_number_at("input_tokens"), 5);
    }
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
    static const struct {
        const char *members, *code, *param;
    } cases[] = {
        {"\"post_sampling_probs\":1", "invalid_type", "post_sampling_probs"},
        {"\"samplers\":5", "invalid_type", "samplers"},
        {"\"samplers\":[\"top_q\"]", "invalid_value", "samplers"},
        {"\"samplers\":\"kq\"", "invalid_value", "samplers"},
        {"\"samplers\":[\"temperature\",\"top_k\"]", "unsupported_parameter", "samplers"},
        {"\"samplers\":\"tk\"", "unsupported_parameter", "samplers"},
        {"\"mirostat\":1", "unsupported_parameter", "mirostat"},
        {"\"dry_multiplier\":0.5", "unsupported_parameter", "dry_multiplier"},
        {"\"lora\":[{\"id\":0}]", "unsupported_parameter", "lora"},
        {"\"response_fields\":[1]", "invalid_type", "response_fields"},
        {"\"id_slot\":\"a\"", "invalid_type", "id_slot"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", cases[i].members);
        rig_refuse(COMPLETION, body, 400, cases[i].code, cases[i].param);
    }
    rig_refuse(COMPLETION, "{\"prompt\":{\"prompt_string\":5}}", 400, "invalid_type", "prompt.prompt_string");
    rig_refuse(COMPLETION, "{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"AAAA\"]}}", 400,
               "unsupported_parameter", "prompt.multimodal_data");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"json_schema\":5}", 400, "invalid_type", "json_schema");
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"json_schema\":{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}}", 400,
               "invalid_json_schema", "json_schema/pattern");
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
    ck_assert_int_eq(rig_number_at("default_generation_settings.params.n_predict"), -1);
    ck_assert(strstr(rig_text_at("chat_template"), "im_start") != NULL);
    ck_assert_int_eq(
        rig_post("/chat/completions/input_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"), 200);
    ck_assert_int_gt(rig_number_at("input_tokens"), 2);
    ck_assert_int_eq(rig_get("/slots"), 200);
    ck_assert_uint_eq(json_array_size(rig_answer), 16);
    ck_assert(json_is_false(rig_at("0.is_processing")));
    ck_assert_int_eq(rig_number_at("15.n_ctx"), RIG_CTX);
    ck_assert_int_eq(rig_get("/lora-adapters"), 200);
    ck_assert(json_is_array(rig_answer) && json_array_size(rig_answer) == 0);
    ck_assert_int_eq(rig_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    rig_refuse("/apply-template", "{\"messages\":5}", 400, "invalid_type", "messages");
}
END_TEST

/* Serves with other options from now on. */
static struct conf *change_conf(void)
{
    static struct conf changed;
    changed = *server->conf;
    server->conf = &changed;
    return &changed;
}

START_TEST(errors_have_llama_servers_types)
{
    char body[512];
    snprintf(body, sizeof body, "{\"prompt\":\"%0*d\"}", RIG_CTX + 3, 0);
    rig_refuse(COMPLETION, body, 400, "context_length_exceeded", "prompt");
    ck_assert_str_eq(rig_text_at("error.type"), "exceed_context_size_error");
    ck_assert_int_eq(rig_number_at("error.n_prompt_tokens"), RIG_CTX + 3);
    ck_assert_int_eq(rig_number_at("error.n_ctx"), RIG_CTX);
    rig_refuse("/v1/completions", body, 400, "context_length_exceeded", "prompt");
    ck_assert_str_eq(rig_text_at("error.type"), "invalid_request_error");
    ck_assert_ptr_null(rig_at("error.n_ctx"));
    rig_refuse(COMPLETION, "{\"prompt\":5}", 400, "invalid_type", "prompt");
    ck_assert_str_eq(rig_text_at("error.type"), "invalid_request_error");
    ck_assert_int_eq(rig_post("/nothing", "{}"), 404);
    ck_assert_str_eq(rig_text_at("error.type"), "not_found_error");
    ck_assert_int_eq(rig_post("/v1/nothing", "{}"), 404);
    ck_assert_str_eq(rig_text_at("error.type"), "invalid_request_error");
}
END_TEST

START_TEST(metrics_can_be_off)
{
    ck_assert_int_eq(rig_get("/metrics"), 200);
    change_conf()->no_metrics = true;
    ck_assert_int_eq(rig_get("/metrics"), 501);
    ck_assert_int_eq(rig_get("/props"), 200);
    ck_assert(json_is_false(rig_at("endpoint_metrics")));
}
END_TEST

START_TEST(a_model_has_several_names_and_tags)
{
    struct conf *conf = change_conf();
    conf->alias = "zeta, tiny,code";
    conf->tags = "small";
    ck_assert_int_eq(rig_get("/v1/models"), 200);
    ck_assert_str_eq(rig_text_at("data.0.aliases.0"), "zeta");
    ck_assert_str_eq(rig_text_at("data.0.aliases.1"), "tiny");
    ck_assert_uint_eq(json_array_size(rig_at("data.0.aliases")), 3);
    ck_assert_str_eq(rig_text_at("data.0.tags.0"), "small");
    ck_assert_int_eq(rig_post(COMPLETION, "{\"prompt\":\"a\",\"model\":\"zeta\",\"n_predict\":1}"), 200);
    rig_refuse(COMPLETION, "{\"prompt\":\"a\",\"model\":\"zet\"}", 404, "model_not_found", "model");
}
END_TEST

static int complete_as(const char *tenant, const char *model)
{
    char named[64], body[128];
    snprintf(named, sizeof named, "INFCGI_TENANT=%s", tenant);
    int n = snprintf(body, sizeof body, "{\"prompt\":\"a\",\"n_predict\":1,\"model\":\"%s\"}", model);
    return rig_ask("POST", COMPLETION, (const char *const[]){named, NULL}, body, (size_t)n);
}

/* A tenant that may use the model by one name may use it by all. */
START_TEST(a_tenant_may_use_all_names_of_its_model)
{
    static const char tenants[] = "[anna]\nmodels = zeta\n[bert]\nmodels = other\n[carl]\nmodels = other, zeta\n";
    const char *const names[] = {"", server->model_id, "zeta", "code"};
    struct err_info info = {0};
    struct conf *conf = change_conf();
    conf->alias = "tiny,zeta,code";
    ck_assert_msg(tenant_load(folder_write_text("tenants", tenants), &info) == ERR_OK, "%s", info.text);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        ck_assert_msg(complete_as("anna", names[i]) == 200, "%s: %s", names[i], rig_got.body);
        ck_assert_msg(complete_as("bert", names[i]) == 404, "%s: %s", names[i], rig_got.body);
    }
    ck_assert_int_eq(complete_as("anna", "zet"), 404);
    ck_assert_int_eq(complete_as("carl", "other"), 404);
    conf->any_model = true;
    ck_assert_int_eq(complete_as("anna", "other"), 404);
    ck_assert_int_eq(complete_as("carl", "other"), 200);
}
END_TEST

/* A template that does not think unless it is told to. */
START_TEST(thinking_is_on_where_the_template_has_the_switch)
{
    static const char hi[] = "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]";
    char body[256];
    rig_use_template("{{ messages[0].content }}{% if enable_thinking %}T{% endif %}");
    snprintf(body, sizeof body, "{%s}", hi);
    ck_assert_int_eq(rig_post("/apply-template", body), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "hiT");
    ck_assert_int_eq(rig_post("/chat/completions/input_tokens", body), 200);
    ck_assert_int_eq(rig_number_at("input_tokens"), 3);
    ck_assert_int_eq(rig_post("/v1/chat/completions/input_tokens", body), 200);
    ck_assert_int_eq(rig_number_at("input_tokens"), 2);
    snprintf(body, sizeof body, "{%s,\"chat_template_kwargs\":{\"enable_thinking\":false}}", hi);
    ck_assert_int_eq(rig_post("/apply-template", body), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "hi");
    change_conf()->reasoning = "off";
    snprintf(body, sizeof body, "{%s}", hi);
    ck_assert_int_eq(rig_post("/apply-template", body), 200);
    ck_assert_str_eq(rig_text_at("prompt"), "hi");
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
    tcase_add_test(t, mixed_prompts);
    tcase_add_test(t, biases_of_texts);
    tcase_add_test(t, probabilities_of_the_draw);
    tcase_add_test(t, lists_of_samplers);
    tcase_add_test(t, fields_of_the_answer);
    tcase_add_test(t, progress_and_timings);
    tcase_add_test(t, gaps);
    tcase_add_test(t, errors_have_llama_servers_types);
    tcase_add_test(t, metrics_can_be_off);
    tcase_add_test(t, a_model_has_several_names_and_tags);
    tcase_add_test(t, a_tenant_may_use_all_names_of_its_model);
    tcase_add_test(t, thinking_is_on_where_the_template_has_the_switch);
    tcase_add_test(t, gaps_of_a_coder);
    tcase_add_test(t, gaps_with_many_files);
    tcase_add_test(t, a_template_leaves_the_bos_to_who_adds_it);
    tcase_add_test(t, streams);
    tcase_add_test(t, constraints);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, what_the_server_is);
    suite_add_tcase(s, t);
    return s;
}
