/* Calls and thinking in chat answers: what the endpoint writes for texts that a model might say, streamed and whole. */
#include "fcgi/api/generation.h"
#include "fcgi/api/openai/openai.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <string.h>

Suite *chat_suite(void);

#define CHAT "/v1/chat/completions"

static struct server *server;

static void setup(void) { server = rig_serve(false, false); }

/* What is written for an answer in pieces of `step` bytes. */
static void write_answer(const char *text, size_t step, enum sched_finish finish, bool streams, struct buf *out)
{
    const struct shape *shape = api_chat_shape();
    struct call call = {
        .server = server, .engine = atomic_load(&server->engine), .reply = {.dialect = &dialect_openai}};
    struct params p = {.n = 1, .stream = streams, .split = {.splits_reasoning = true, .reads_calls = true}};
    struct choice c = {.end = {.finish = finish}};
    struct generation g = {.call = &call, .params = &p, .shape = shape, .choices = &c, .n_choices = 1, .id = "x"};
    struct buf *const bufs[] = {&c.text, &c.reasoning, &c.calls, &c.arguments, out};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        buf_init(bufs[i], 0, MEM_GENERAL);
    }
    chat_split_init(&c.split, &p.split);
    for (size_t i = 0, n = strlen(text); i < n; i += step) {
        const struct engine_event ev = {.kind = SCHED_TOKEN, .text = text + i, .text_len = MIN_OF(step, n - i)};
        if (streams) {
            shape->token(&g, &c, &ev, out);
        } else {
            shape->gather(&g, &c, &ev);
        }
    }
    (streams ? shape->finish : shape->choice)(&g, &c, out);
    ck_assert_int_eq(buf_ok(out), ERR_OK);
    chat_split_fini(&c.split);
    for (size_t i = 0; i + 1 < ARRAY_LEN(bufs); i++) {
        buf_fini(bufs[i]);
    }
}

static json_t *whole(const char *text, size_t step, enum sched_finish finish)
{
    struct buf out;
    json_error_t e;
    write_answer(text, step, finish, false, &out);
    json_t *choice = json_loadb(out.data, out.len, 0, &e);
    ck_assert_msg(choice != NULL, "%s: %s", e.text, out.data);
    buf_fini(&out);
    return choice;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void add(char *to, const json_t *text)
{
    if (json_is_string(text)) {
        strcat(to, json_string_value(text));
    }
}

/* The parts of a stream, joined as a client does. */
struct joined {
    char content[256], reasoning[256], names[256], arguments[256], finish[32];
    int n_ids;
};

static void join_chunk(const char *data, size_t n, struct joined *j)
{
    json_error_t e;
    json_t *chunk = json_loadb(data, n, 0, &e);
    ck_assert_msg(chunk != NULL, "%.*s", (int)n, data);
    const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0),
                 *f = json_object_get(call, "function");
    add(j->content, json_object_get(delta, "content"));
    add(j->reasoning, json_object_get(delta, "reasoning_content"));
    add(j->names, json_object_get(f, "name"));
    add(j->arguments, json_object_get(f, "arguments"));
    add(j->finish, json_object_get(choice, "finish_reason"));
    j->n_ids += json_string_length(json_object_get(call, "id")) == 5 + 24;
    json_decref(chunk);
}

static struct joined streamed(const char *text, size_t step)
{
    struct buf out;
    struct joined j = {.n_ids = 0};
    write_answer(text, step, SCHED_FINISH_STOP, true, &out);
    for (const char *p = out.data, *end; (end = strstr(p, "\n\n")) != NULL; p = end + 2) {
        ck_assert_int_eq(strncmp(p, "data: ", 6), 0);
        join_chunk(p + 6, (size_t)(end - p - 6), &j);
    }
    buf_fini(&out);
    return j;
}

static const char answer[] =
    "<think>\nHm\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"\\u00e9\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

START_TEST(whole_answers_have_calls)
{
    for (size_t step = 1; step < sizeof answer; step += 3) {
        json_t *choice = whole(answer, step, SCHED_FINISH_STOP);
        const json_t *m = json_object_get(choice, "message"), *calls = json_object_get(m, "tool_calls");
        const json_t *f = json_object_get(json_array_get(calls, 0), "function");
        ck_assert_str_eq(text_of(choice, "finish_reason"), "tool_calls");
        ck_assert(json_is_null(json_object_get(m, "content")));
        ck_assert_str_eq(text_of(m, "reasoning_content"), "Hm");
        ck_assert_str_eq(text_of(m, "reasoning"), "Hm");
        ck_assert_uint_eq(json_array_size(calls), 2);
        ck_assert_str_eq(text_of(f, "name"), "f");
        ck_assert_str_eq(text_of(f, "arguments"), "{\"a\": \"\\u00e9\"}");
        ck_assert_str_eq(text_of(json_array_get(calls, 1), "type"), "function");
        ck_assert_str_ne(text_of(json_array_get(calls, 0), "id"), text_of(json_array_get(calls, 1), "id"));
        json_decref(choice);
    }
}
END_TEST

START_TEST(streams_say_the_same)
{
    for (size_t step = 1; step < sizeof answer; step += 3) {
        struct joined j = streamed(answer, step);
        ck_assert_str_eq(j.content, "");
        ck_assert_str_eq(j.reasoning, "Hm");
        ck_assert_str_eq(j.names, "fg");
        ck_assert_str_eq(j.arguments, "{\"a\": \"\\u00e9\"}{}");
        ck_assert_str_eq(j.finish, "tool_calls");
        ck_assert_int_eq(j.n_ids, 2);
    }
}
END_TEST

START_TEST(half_a_call_is_text)
{
    json_t *choice = whole("Hm.\n<tool_call>\n{\"name\": \"f\", \"argum", 4, SCHED_FINISH_LENGTH);
    const json_t *m = json_object_get(choice, "message");
    ck_assert_str_eq(text_of(choice, "finish_reason"), "length");
    ck_assert_str_eq(text_of(m, "content"), "Hm.\n<tool_call>\n{\"name\": \"f\", \"argum");
    ck_assert_ptr_null(json_object_get(m, "tool_calls"));
    json_decref(choice);
}
END_TEST

#define SAYS_A "\"ignore_eos\":true,\"logit_bias\":{\"65\":100},\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define ASK    "\"max_tokens\":4," SAYS_A

START_TEST(a_template_may_begin_the_thinking)
{
    rig_use_template("{{ messages[0].content }}<think>\n");
    ck_assert_int_eq(rig_post(CHAT, "{" ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.reasoning_content"), "AAAA");
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), "");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens_details.reasoning_tokens"), 4);
    ck_assert_int_eq(rig_post(CHAT, "{\"reasoning_format\":\"none\"," ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), "AAAA");
    rig_use_template("{{ messages[0].content }}{% if enable_thinking is not defined %}<think>{% endif %}"
                     "{{ reasoning_effort }}");
    ck_assert_int_eq(rig_post(CHAT, "{\"reasoning_effort\":\"none\"," ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), "AAAA");
}
END_TEST

/* The form that is asked for is that of what stands after the thinking, unless there is to be none, or none is told apart. */
START_TEST(forms_leave_room_for_thinking)
{
    static const struct {
        const char *template, *fields;
        bool thinks;
    } cases[] = {
        {"{{ messages[0].content }}<think>\n", "", true},
        {"{{ messages[0].content }}<think>\n", "\"reasoning_format\":\"none\",", false},
        {"{{ messages[0].content }}<think>\n", "\"chat_template_kwargs\":{\"enable_thinking\":false},", false},
        {"{{ messages[0].content }}<think>\n\n</think>\n\n", "", false},
        {"{{ messages[0].content }}", "", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[512];
        rig_use_template(cases[i].template);
        snprintf(body, sizeof body, "{%s\"guided_regex\":\"B{2,9}\"," ASK "}", cases[i].fields);
        ck_assert_int_eq(rig_post(CHAT, body), 200);
        ck_assert_str_eq(rig_text_at("choices.0.message.content"), cases[i].thinks ? "" : "BBBB");
        ck_assert_int_eq(rig_number_at("usage.completion_tokens_details.reasoning_tokens"), cases[i].thinks ? 4 : 0);
    }
    rig_use_template("{{ messages[0].content }}{{ '<think>' if x }}");
    ck_assert_int_eq(rig_post(CHAT, "{\"guided_regex\":\"[B<]{2,9}\"," ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "length"); /* it may, and may not */
}
END_TEST

/* Said by any name: two tokens of thinking, those of the mark, and the answer goes on. */
START_TEST(thinking_has_a_budget)
{
    static const struct {
        const char *fields, *thought, *said;
    } cases[] = {
        {"\"thinking_token_budget\":2", "AA", "AAAAAAAAAA"},
        {"\"thinking_budget\":2", "AA", "AAAAAAAAAA"},
        {"\"thinking_budget_tokens\":2", "AA", "AAAAAAAAAA"},
        {"\"reasoning_budget_tokens\":2", "AA", "AAAAAAAAAA"},
        {"\"reasoning_budget\":2,\"reasoning_budget_message\":\"!\"", "AA!", "AAAAAAAAA"},
        {"\"chat_template_kwargs\":{\"thinking_budget\":2}", "AA", "AAAAAAAAAA"},
        {"\"thinking_budget\":0,\"chat_template_kwargs\":{\"thinking_budget\":2}", "", "AAAAAAAAAAAA"},
        {"\"thinking_budget\":3,\"logprobs\":true,\"top_logprobs\":2", "AAA", "AAAAAAAAA"},
        {"\"thinking_budget\":3,\"guided_regex\":\"B{2}\"", "AAA", "BB"},
        {"\"reasoning_budget\":-1", "AAAAAAAAAAAAAAAAAAAA", ""},
        {"\"thinking_budget\":null", "AAAAAAAAAAAAAAAAAAAA", ""},
    };
    rig_use_template("{{ messages[0].content }}<think>\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s,%s}", cases[i].fields, "\"max_tokens\":20," SAYS_A);
        ck_assert_int_eq(rig_post(CHAT, body), 200);
        const json_t *thought = rig_at("choices.0.message.reasoning_content");
        ck_assert_msg(strcmp(thought != NULL ? json_string_value(thought) : "", cases[i].thought) == 0, "%s: %s",
                      cases[i].fields, rig_got.body);
        ck_assert_msg(strcmp(rig_text_at("choices.0.message.content"), cases[i].said) == 0, "%s: %s", cases[i].fields,
                      rig_got.body);
    }
    rig_refuse(CHAT, "{\"thinking_budget\":-2," ASK "}", 400, "invalid_value", "thinking_budget");
    rig_refuse(CHAT, "{\"thinking_token_budget\":\"2\"," ASK "}", 400, "invalid_type", "thinking_token_budget");
    rig_refuse(CHAT, "{\"chat_template_kwargs\":{\"thinking_budget\":-2}," ASK "}", 400, "invalid_value",
               "chat_template_kwargs.thinking_budget");
}
END_TEST

/* What the operator says of thinking goes to the template as far as the request says nothing. */
START_TEST(thinking_has_defaults)
{
    static const char request_off[] = "\"chat_template_kwargs\":{\"enable_thinking\":false},",
                      none[] = "\"reasoning_effort\":\"none\",";
    static const struct {
        const char *reasoning, *effort, *kwargs, *fields, *shown; /* enable_thinking, thinking, reasoning_effort, x */
    } cases[] = {
        {"auto", "default", NULL, "", "True|||"},
        {"on", "default", NULL, "", "True|True||"},
        {"off", "default", NULL, "", "False|False||"},
        {"on", "default", NULL, request_off, "False|||"},
        {"on", "default", NULL, none, "False||none|"},
        {"auto", "high", NULL, "", "True||high|"},
        {"auto", "high", NULL, "\"reasoning_effort\":\"low\",", "True||low|"},
        {"auto", "none", NULL, "", "False||none|"},
        {"auto", "none", NULL, "\"chat_template_kwargs\":{\"enable_thinking\":true},", "True||none|"},
        {"auto", "default", "{\"x\":7,\"enable_thinking\":false}", "", "False|||7"},
        {"on", "high", "{\"enable_thinking\":false,\"reasoning_effort\":\"max\",\"messages\":1}", "", "False||max|"},
        {"auto", "default", "{\"x\":7}", "\"chat_template_kwargs\":{\"x\":\"y\"},", "True|||y"},
    };
    struct conf own = *server_state.conf;
    server_state.conf = &own;
    rig_use_template("{{ enable_thinking }}|{{ thinking }}|{{ reasoning_effort }}|{{ x }}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[512];
        own.reasoning = cases[i].reasoning;
        own.reasoning_effort = cases[i].effort;
        own.chat_template_kwargs = cases[i].kwargs;
        snprintf(body, sizeof body, "{%s" ASK "}", cases[i].fields);
        ck_assert_int_eq(rig_post("/apply-template", body), 200);
        ck_assert_msg(strcmp(rig_text_at("prompt"), cases[i].shown) == 0, "%zu: %s", i, rig_got.body);
    }
    rig_use_template("{{ messages[0].content }}<think>\n");
    own.reasoning_format = "none";
    ck_assert_int_eq(rig_post(CHAT, "{" ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), "AAAA");
    ck_assert_int_eq(rig_post(CHAT, "{\"reasoning_format\":\"deepseek\"," ASK "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.reasoning_content"), "AAAA");
}
END_TEST

START_TEST(wrong_fields_are_named)
{
    rig_refuse(CHAT, "{\"reasoning_format\":\"x\"," ASK "}", 400, "invalid_value", "reasoning_format");
    rig_refuse(CHAT, "{\"reasoning_effort\":5," ASK "}", 400, "invalid_type", "reasoning_effort");
    rig_refuse(CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":[]}]}", 400,
               "invalid_type", "messages[0].reasoning");
}
END_TEST

/* Any JSON is a variable of the template, and user text. */
START_TEST(template_variables_may_be_arrays_and_objects)
{
    rig_use_template(
        "{% for d in docs %}{{ d.title }}={{ d.tags|join('+') }};{% endfor %}{{ o|tojson }}{{ o.a[1].b }}");
    static const char body[] = "{\"chat_template_kwargs\":{\"docs\":[{\"title\":\"x\",\"tags\":[\"y\",\"z\"]},"
                               "{\"title\":\"<|im_end|>\"}],\"o\":{\"a\":[1,{\"b\":true}]}}," ASK "}";
    ck_assert_msg(rig_post("/apply-template", body) == 200, "%s", rig_got.body);
    static const char prompt[] = "x=y+z;<|im_end|>=;{\"a\": [1, {\"b\": true}]}True";
    ck_assert_str_eq(rig_text_at("prompt"), prompt);
    ck_assert_int_eq(rig_post(CHAT, body), 200);
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), (json_int_t)strlen(prompt)); /* a token for each byte */
}
END_TEST

#define CALLED(arguments)                                                                                              \
    "{\"max_tokens\":0,\"add_generation_prompt\":true,"                                                                \
    "\"messages\":[{\"role\":\"assistant\",\"reasoning\":\"r\",\"tool_calls\":[{\"function\":{"                        \
    "\"name\":\"f\",\"arguments\":" arguments "}}]}]}"

/* A template sees objects; one that adds them to strings gets the text. */
START_TEST(arguments_suit_the_template)
{
    rig_use_template("{{ messages[0].reasoning_content }}{{ messages[0].tool_calls[0].function.arguments.a }}");
    ck_assert_int_eq(rig_post(CHAT, CALLED("\"{\\\"a\\\":\\\"xyz\\\"}\"")), 200);
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), 4);
    rig_use_template("{{ 'b' + messages[0].tool_calls[0].function.arguments }}");
    ck_assert_int_eq(rig_post(CHAT, CALLED("\"{\\\"a\\\":1}\"")), 200);
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), 8);
}
END_TEST

#define SAID(text)                                                                                                     \
    "\"messages\":[{\"role\":\"user\",\"content\":\"a end\"},{\"role\":\"assistant\",\"content\":\"" text "\"}]"
#define SHOWN(text) "<|im_start|>user\na end<|im_end|><|im_start|>assistant\n" text

/* The prompt ends with what the assistant has said, unless the request says how else. */
START_TEST(a_last_message_is_gone_on_with)
{
    static const char chatml[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const char trims[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>{% endfor %}";
    static const struct {
        const char *template, *body, *prompt;
    } cases[] = {
        {chatml, "{" SAID("So it is") "}", SHOWN("So it is")},
        {chatml, "{\"continue_final_message\":true,\"add_generation_prompt\":false," SAID(" x\\n ") "}",
         SHOWN(" x\n ")},
        {trims, "{\"continue_final_message\":true," SAID(" x\\n ") "}", SHOWN("x")},
        {chatml, "{" SAID("end") "}", SHOWN("end")}, /* not that of the mark, which no user said */
        {chatml, "{" SAID("assistant") "}", SHOWN("assistant")},
        {chatml, "{" SAID("<|im_end|>") "}", SHOWN("<|im_end|>")},
        {chatml, "{" SAID(" ") "}", SHOWN("")},
        {chatml, "{\"add_generation_prompt\":true," SAID("x") "}", SHOWN("x<|im_end|><|im_start|>assistant\n")},
        {chatml, "{\"continue_final_message\":false," SAID("x") "}", SHOWN("x<|im_end|><|im_start|>assistant\n")},
        {chatml, "{\"add_generation_prompt\":false," SAID("x") "}", SHOWN("x<|im_end|>")},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        rig_use_template(cases[i].template);
        ck_assert_msg(rig_post("/apply-template", cases[i].body) == 200, "%s: %s", cases[i].body, rig_got.body);
        ck_assert_msg(strcmp(rig_text_at("prompt"), cases[i].prompt) == 0, "%s: expected '%s', got '%s'", cases[i].body,
                      cases[i].prompt, rig_text_at("prompt"));
    }
    rig_use_template(chatml);
    ck_assert_int_eq(
        rig_post(CHAT, "{\"ignore_eos\":true,\"logit_bias\":{\"65\":100},\"max_tokens\":3," SAID("Bbb") "}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), "AAA"); /* what is new */
}
END_TEST

START_TEST(what_cannot_be_gone_on_with)
{
    static const char *const bodies[] = {
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"y\"}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"x\"}]}",
        "{\"continue_final_message\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{" SAID("zz") "}", /* which this template does not show */
    };
    rig_use_template("{{ messages[0].content }}");
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        rig_refuse(CHAT, bodies[i], 400, "invalid_value", "messages");
    }
    rig_refuse(CHAT, "{\"continue_final_message\":true,\"add_generation_prompt\":true," SAID("x") "}", 400,
               "invalid_value", "continue_final_message");
    rig_refuse(CHAT, "{\"chat_template_kwargs\":{\"continue_final_message\":true}," ASK "}", 400,
               "unsupported_parameter", "chat_template_kwargs");
}
END_TEST

Suite *chat_suite(void)
{
    Suite *s = suite_create("chat");
    TCase *t = tcase_create("chat");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, whole_answers_have_calls);
    tcase_add_test(t, streams_say_the_same);
    tcase_add_test(t, half_a_call_is_text);
    tcase_add_test(t, a_template_may_begin_the_thinking);
    tcase_add_test(t, forms_leave_room_for_thinking);
    tcase_add_test(t, thinking_has_a_budget);
    tcase_add_test(t, thinking_has_defaults);
    tcase_add_test(t, wrong_fields_are_named);
    tcase_add_test(t, arguments_suit_the_template);
    tcase_add_test(t, template_variables_may_be_arrays_and_objects);
    tcase_add_test(t, a_last_message_is_gone_on_with);
    tcase_add_test(t, what_cannot_be_gone_on_with);
    suite_add_tcase(s, t);
    return s;
}
