/* Answers in Anthropic's form: streams and whole answers of texts that a model might say, cut anywhere, and what the
 * endpoint says of how they ended. */
#include "fcgi/api/anthropic/anthropic_output.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *anthropic_output_suite(void);

#define MESSAGES "/v1/messages"

static struct server *server;

static void setup(void) { server = rig_serve(false, false); }

/* --- writers ---------------------------------------------------------------------------------------------------- */

/* Bytes of the next piece: `step` or a few more, as the engine gives whole characters. */
static size_t piece(const char *text, size_t step)
{
    size_t n = MIN_OF(step, strlen(text));
    while (((unsigned char)text[n] & 0xC0u) == 0x80) {
        n++;
    }
    return n;
}

/* What is written for an answer in such pieces. */
static enum err write_answer(const char *text, size_t step, const struct engine_event *end, bool streams,
                             struct buf *out)
{
    const struct shape *shape = anthropic_shape();
    struct anthropic_answer state = {0};
    struct server named = {.model_id = "named"};
    struct call call = {.server = &named};
    struct params p = {
        .n = 1, .stream = streams, .gen = {.max_tokens = 5}, .split = {.splits_reasoning = true, .reads_calls = true}};
    struct choice c = {
        .end = *end, .n_prompt = 9, .usage = {.prompt_tokens = 9, .cached_tokens = 4, .completion_tokens = 5}};
    struct generation g = {
        .call = &call, .params = &p, .shape = shape, .arg = &state, .choices = &c, .n_choices = 1, .id = "msg_x"};
    struct buf *const bufs[] = {&c.text, &c.reasoning, &c.calls, &c.arguments, out};
    p.gen.stop[0] = "END";
    p.gen.stop_len[0] = 3;
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        buf_init(bufs[i], 0, MEM_GENERAL);
    }
    chat_split_init(&c.split, &p.split);
    if (streams) {
        shape->open(&g, &c, out);
    }
    for (const char *at = text; *at != '\0'; at += piece(at, step)) {
        const struct engine_event ev = {.kind = SCHED_TOKEN, .text = at, .text_len = piece(at, step)};
        if (streams) {
            shape->token(&g, &c, &ev, out);
        } else {
            shape->token(&g, &c, &ev, NULL);
        }
    }
    if (streams) {
        shape->finish(&g, &c, out);
    }
    (streams ? shape->done : shape->whole)(&g, out);
    enum err err = buf_ok(out);
    for (size_t i = 0; i + 1 < ARRAY_LEN(bufs); i++) {
        err = err != ERR_OK ? err : buf_ok(bufs[i]); /* what generation.c looks at, too */
        buf_fini(bufs[i]);
    }
    chat_split_fini(&c.split);
    return err;
}

static json_t *parse(const char *text, size_t n)
{
    json_error_t e;
    json_t *v = json_loadb(text, n, 0, &e);
    ck_assert_msg(v != NULL, "%s: %.*s", e.text, (int)n, text);
    return v;
}

static json_t *whole(const char *text, size_t step, const struct engine_event *end)
{
    struct buf out;
    ck_assert_int_eq(write_answer(text, step, end, false, &out), ERR_OK);
    json_t *message = parse(out.data, out.len);
    buf_fini(&out);
    return message;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* Appends a string to the member of a block. */
static void add(json_t *block, const char *name, const json_t *delta)
{
    char text[512];
    const char *more = json_string_value(delta);
    ck_assert_msg(more != NULL, "no %s", name);
    snprintf(text, sizeof text, "%s%s", text_of(block, name), more);
    json_object_set_new(block, name, json_string(text));
}

/* A stream as a client takes it: the message so far, and whether a block of it is open. */
struct reader {
    json_t *message;
    bool is_open, has_ended;
};

static void take_delta(struct reader *r, const json_t *delta)
{
    json_t *content = json_object_get(r->message, "content");
    json_t *block = json_array_get(content, json_array_size(content) - 1);
    const char *type = text_of(delta, "type");
    ck_assert(r->is_open);
    if (strcmp(type, "text_delta") == 0) {
        add(block, "text", json_object_get(delta, "text"));
    } else if (strcmp(type, "thinking_delta") == 0) {
        add(block, "thinking", json_object_get(delta, "thinking"));
    } else if (strcmp(type, "signature_delta") == 0) {
        json_object_set(block, "signature", json_object_get(delta, "signature"));
    } else {
        ck_assert_str_eq(type, "input_json_delta");
        add(block, "partial", json_object_get(delta, "partial_json"));
    }
}

static void stop_block(struct reader *r)
{
    json_t *content = json_object_get(r->message, "content");
    json_t *block = json_array_get(content, json_array_size(content) - 1);
    const char *partial = text_of(block, "partial");
    ck_assert(r->is_open);
    r->is_open = false;
    if (partial != NULL && partial[0] != '\0') {
        json_object_set_new(block, "input", parse(partial, strlen(partial)));
    }
    json_object_del(block, "partial");
}

static void take_event(struct reader *r, const char *name, const json_t *event)
{
    const char *type = text_of(event, "type");
    json_t *content = json_object_get(r->message, "content");
    const json_t *index = json_object_get(event, "index");
    ck_assert_str_eq(type, name);
    ck_assert(!r->has_ended);
    if (strcmp(type, "message_start") == 0) {
        ck_assert_ptr_null(r->message);
        r->message = json_incref(json_object_get(event, "message"));
        ck_assert_int_gt(json_integer_value(json_object_get(json_object_get(r->message, "usage"), "input_tokens")), 0);
    } else if (strcmp(type, "content_block_start") == 0) {
        ck_assert(!r->is_open);
        ck_assert_uint_eq(json_integer_value(index), json_array_size(content));
        json_t *block = json_object_get(event, "content_block");
        json_array_append(content, block);
        if (strcmp(text_of(block, "type"), "tool_use") == 0) {
            json_object_set_new(block, "partial", json_string(""));
        }
        r->is_open = true;
    } else if (strcmp(type, "content_block_delta") == 0) {
        ck_assert_uint_eq(json_integer_value(index) + 1, json_array_size(content));
        take_delta(r, json_object_get(event, "delta"));
    } else if (strcmp(type, "content_block_stop") == 0) {
        ck_assert_uint_eq(json_integer_value(index) + 1, json_array_size(content));
        stop_block(r);
    } else if (strcmp(type, "message_delta") == 0) {
        ck_assert(!r->is_open);
        json_object_update(r->message, json_object_get(event, "delta"));
        json_object_update(json_object_get(r->message, "usage"), json_object_get(event, "usage"));
    } else {
        ck_assert_str_eq(type, "message_stop");
        r->has_ended = true;
    }
}

static json_t *read_stream(const char *data)
{
    struct reader r = {NULL, false, false};
    for (const char *p = data, *end; (end = strstr(p, "\n\n")) != NULL; p = end + 2) {
        char name[64];
        int n = 0;
        ck_assert_msg(sscanf(p, "event: %63[a-z_]\ndata: %n", name, &n) == 1 && n > 0, "%s", p);
        json_t *event = parse(p + n, (size_t)(end - p - n));
        take_event(&r, name, event);
        json_decref(event);
    }
    ck_assert(r.has_ended);
    return r.message;
}

static json_t *streamed(const char *text, size_t step, const struct engine_event *end)
{
    struct buf out;
    ck_assert_int_eq(write_answer(text, step, end, true, &out), ERR_OK);
    json_t *message = read_stream(out.data);
    buf_fini(&out);
    return message;
}

/* --- what they say ---------------------------------------------------------------------------------------------- */

/* Ids of calls are drawn; the rest of a streamed answer is that of a whole one. */
static void drop_ids(json_t *message)
{
    size_t i;
    json_t *block;
    json_array_foreach(json_object_get(message, "content"), i, block)
    {
        if (strcmp(text_of(block, "type"), "tool_use") == 0) {
            ck_assert_int_eq(strncmp(text_of(block, "id"), "toolu_", 6), 0);
            ck_assert_uint_eq(strlen(text_of(block, "id")), 6 + 24);
            json_object_del(block, "id");
        }
    }
}

#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static const struct {
    const char *said, *content;
    struct engine_event end;
    const char *reason, *sequence;
} answers[] = {
    {"Hello",
     "[{\"type\":\"text\",\"citations\":null,\"text\":\"Hello\"}]",
     {.finish = SCHED_FINISH_STOP},
     "end_turn",
     NULL},
    {"", "[]", {.finish = SCHED_FINISH_STOP}, "end_turn", NULL},
    {"Hel",
     "[{\"type\":\"text\",\"citations\":null,\"text\":\"Hel\"}]",
     {.finish = SCHED_FINISH_LENGTH},
     "max_tokens",
     NULL},
    {"A ", "[{\"type\":\"text\",\"citations\":null,\"text\":\"A \"}]", {.stop_match = "END"}, "stop_sequence", "END"},
    {"<think>\nHm \"é\"\n</think>\n\nYes",
     "[{\"type\":\"thinking\",\"thinking\":\"Hm "
     "\\\"é\\\"\",\"signature\":\"infcgi\"},{\"type\":\"text\",\"citations\":null,\"text\":\"Yes\"}]",
     {.finish = SCHED_FINISH_STOP},
     "end_turn",
     NULL},
    {"<think>\nHm\n</think>\n\n" CALL("f", "{\"a\": \"\\u00e9\", \"b\": [1, {}]}") "\n" CALL("g", "{}"),
     "[{\"type\":\"thinking\",\"thinking\":\"Hm\",\"signature\":\"infcgi\"},{\"type\":\"tool_use\",\"caller\":{"
     "\"type\":\"direct\"},\"name\":\"f\",\"input\":{\"a\":\"é\",\"b\":[1,{}]}},{\"type\":\"tool_use\",\"caller\":{"
     "\"type\":\"direct\"},\"name\":\"g\",\"input\":{}}]",
     {.stop_match = "END"},
     "tool_use",
     NULL},
    {"I ask.\n" CALL("f", "{\"a\": 1}"),
     "[{\"type\":\"text\",\"citations\":null,\"text\":\"I "
     "ask.\"},{\"type\":\"tool_use\",\"caller\":{\"type\":\"direct\"},\"name\":\"f\",\"input\":{\"a\":1}}]",
     {.finish = SCHED_FINISH_STOP},
     "tool_use",
     NULL},
    {CALL("f", "{}") "\nThen", /* after a call, too, there may be text */
     "[{\"type\":\"tool_use\",\"caller\":{\"type\":\"direct\"},\"name\":\"f\",\"input\":{}},{\"type\":\"text\","
     "\"citations\":null,\"text\":\"Then\"}]",
     {.finish = SCHED_FINISH_LENGTH},
     "max_tokens",
     NULL},
};

static void check_message(json_t *message, int i)
{
    const json_t *usage = json_object_get(message, "usage"), *details = json_object_get(usage, "output_tokens_details");
    json_t *content = parse(answers[i].content, strlen(answers[i].content));
    drop_ids(message);
    char text[1024] = "";
    json_dumpb(message, text, sizeof text - 1, JSON_COMPACT);
    ck_assert_msg(json_equal(json_object_get(message, "content"), content), "%s", text);
    ck_assert_str_eq(text_of(message, "stop_reason"), answers[i].reason);
    ck_assert_pstr_eq(text_of(message, "stop_sequence"), answers[i].sequence);
    ck_assert_str_eq(text_of(message, "id"), "msg_x");
    ck_assert_str_eq(text_of(message, "type"), "message");
    ck_assert_str_eq(text_of(message, "role"), "assistant");
    ck_assert_str_eq(text_of(message, "model"), "named");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "input_tokens")), 5);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "cache_read_input_tokens")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "output_tokens")), 5);
    ck_assert(json_is_integer(json_object_get(details, "thinking_tokens")));
    json_decref(content);
}

START_TEST(streams_and_whole_answers_are_equal)
{
    for (size_t step = 1; step <= strlen(answers[_i].said) + 1; step++) {
        json_t *one = whole(answers[_i].said, step, &answers[_i].end);
        json_t *other = streamed(answers[_i].said, step, &answers[_i].end);
        check_message(one, _i);
        check_message(other, _i);
        ck_assert(json_equal(one, other));
        json_decref(one);
        json_decref(other);
    }
}
END_TEST

/* A call that breaks off: of its input, the members that are whole; streamed, all that came. */
START_TEST(half_a_call_has_half_its_input)
{
    static const char *const cases[][3] = {
        {"{\"a\": [1, {}], \"b\": 12", "{\"a\": [1, {}]}", "{\"a\": [1, {}], \"b\": 12"},
        {"{\"a\": 1, \"b\": {\"c\": 2}", "{\"a\": 1, \"b\": {\"c\": 2}}", "{\"a\": 1, \"b\": {\"c\": 2}"},
        {"{\"a\": \"x", "{}", "{\"a\": \"x"},
        {"{", "{}", "{"},
    };
    const struct engine_event end = {.finish = SCHED_FINISH_LENGTH};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char said[128], partial[128] = "";
        snprintf(said, sizeof said, "<tool_call>\n{\"name\": \"f\", \"arguments\": %s", cases[i][0]);
        json_t *message = whole(said, 3, &end), *input = parse(cases[i][1], strlen(cases[i][1]));
        const json_t *block = json_array_get(json_object_get(message, "content"), 0);
        ck_assert(json_equal(json_object_get(block, "input"), input));
        ck_assert_str_eq(text_of(message, "stop_reason"), "max_tokens");
        struct buf out;
        ck_assert_int_eq(write_answer(said, 3, &end, true, &out), ERR_OK);
        for (char *p = out.data; (p = strstr(p, "data: {")) != NULL; p++) {
            json_t *event = parse(p + 6, strcspn(p + 6, "\n"));
            const char *delta = text_of(json_object_get(event, "delta"), "partial_json");
            strcat(partial, delta != NULL ? delta : "");
            json_decref(event);
        }
        ck_assert_str_eq(partial, cases[i][2]);
        buf_fini(&out);
        json_decref(input);
        json_decref(message);
    }
}
END_TEST

/* With each allocation failing in turn: an answer is told to be broken, or all that was said is in it. A call that there
 * was no memory to read is text. */
START_TEST(no_memory_is_told)
{
    const char *last = _i == 4 ? "Yes" : "u00e9";
    for (int streams = 0; streams < 2; streams++) {
        bool fired = true;
        for (int n = 0; fired; n++) {
            struct buf out;
            mem_fail_at(n);
            enum err err = write_answer(answers[_i].said, 1000, &answers[_i].end, streams, &out);
            fired = mem_fault_fired();
            mem_fail_at(-1);
            bool is_whole = err == ERR_OK && strstr(out.data, last) != NULL;
            ck_assert_msg(is_whole || (fired && err == ERR_NOMEM), "allocation %d: %s", n, err_code(err));
            buf_fini(&out);
            ck_assert_int_lt(n, 1000);
        }
    }
}
END_TEST

/* --- the endpoint ----------------------------------------------------------------------------------------------- */

/* Asks a model that says A all the time; more: members, each after a comma, with single quotes. */
static int ask(const char *more)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{'model':'%s','logit_bias':{'65':100},'ignore_eos':true,'messages':[{'role':'user','content':'Hi'}]%s}",
             server->model_id, more);
    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    return rig_post(MESSAGES, text);
}

START_TEST(answers_whole)
{
    ck_assert_int_eq(ask(",'max_tokens':4"), 200);
    ck_assert_str_eq(rig_text_at("content.0.text"), "AAAA");
    ck_assert_str_eq(rig_text_at("stop_reason"), "max_tokens");
    ck_assert_int_eq(rig_number_at("usage.output_tokens"), 4);
    json_int_t n = rig_number_at("usage.input_tokens") + rig_number_at("usage.cache_read_input_tokens");
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(ask(",'max_tokens':1000"), 200);
    ck_assert_str_eq(rig_text_at("stop_reason"), "model_context_window_exceeded");
    ck_assert_int_eq(rig_number_at("usage.output_tokens"), RIG_CTX - n);
}
END_TEST

START_TEST(answers_streamed)
{
    ck_assert_int_eq(ask(",'max_tokens':4,'stream':true"), 200);
    ck_assert_ptr_nonnull(strstr(rig_got.raw.data, "\r\nContent-Type: text/event-stream"));
    json_t *message = read_stream(rig_got.body);
    const json_t *block = json_array_get(json_object_get(message, "content"), 0);
    ck_assert_str_eq(text_of(block, "text"), "AAAA");
    ck_assert_str_eq(text_of(message, "stop_reason"), "max_tokens");
    json_decref(message);
}
END_TEST

START_TEST(the_stop_sequence_is_told)
{
    ck_assert_int_eq(ask(",'max_tokens':9,'stop_sequences':['Z','AAA']"), 200);
    ck_assert_str_eq(rig_text_at("stop_reason"), "stop_sequence");
    ck_assert_str_eq(rig_text_at("stop_sequence"), "AAA");
    ck_assert_uint_eq(json_array_size(rig_at("content")), 0);
    ck_assert_int_eq(ask(",'max_tokens':9,'stop_sequences':['Z','AAA'],'stream':true"), 200);
    json_t *message = read_stream(rig_got.body);
    ck_assert_str_eq(text_of(message, "stop_sequence"), "AAA");
    json_decref(message);
}
END_TEST

/* The place is one of this API, not of the chat it was made into. */
static const struct {
    const char *more, *message;
} refusals[] = {
    {"", "max_tokens: expected an integer, found"},
    {",'max_tokens':'4'", "max_tokens: expected an integer, found '4'"},
    {",'max_tokens':-1", "max_tokens: expected 0 to"},
    {",'max_tokens':4,'temperature':3", "temperature: expected 0 to 2"},
    {",'max_tokens':4,'top_k':'x'", "top_k: expected an integer"},
    {",'max_tokens':4,'stream':1", "stream: expected a boolean"},
    {",'max_tokens':4,'stop_sequences':'x'", "stop_sequences: expected an array"},
    {",'max_tokens':4,'stop_sequences':['a',5]", "stop_sequences[1]: expected a string"},
    {",'max_tokens':4,'stop_sequences':['']", "stop_sequences[0]: expected at most"},
    {",'max_tokens':4,'tools':[{'name':'a b','input_schema':{}}]", "tools[0].name: expected 1 to 128"},
    {",'max_tokens':4,'tools':[{'name':'f','input_schema':{},'description':5}]", "tools[0].description: expected"},
    {",'max_tokens':4,'tools':[{'name':'f','input_schema':{},'strict':5}]", "tools[0].strict: expected a boolean"},
    {",'max_tokens':4,'output_config':{'format':{'type':'json_schema','schema':{'type':'x'}}}",
     "output_config.format.schema/type: JSON Schema"},
    {",'max_tokens':4,'tool_choice':{'type':'tool','name':'g'},'tools':[{'name':'f','input_schema':{}}]",
     "tool_choice.name: "},
};

START_TEST(wrong_fields_are_named)
{
    ck_assert_int_eq(ask(refusals[_i].more), 400);
    ck_assert_str_eq(rig_text_at("error.type"), "invalid_request_error");
    const char *message = rig_text_at("error.message");
    ck_assert_msg(strncmp(message, refusals[_i].message, strlen(refusals[_i].message)) == 0, "%s", message);
}
END_TEST

/* By these details a client knows that it must send the conversation itself. */
START_TEST(a_thread_is_refused_as_clients_know)
{
    ck_assert_int_eq(ask(",'max_tokens':4,'thread':{'type':'create'}"), 400);
    ck_assert_str_eq(rig_text_at("error.details.error_code"), "thread_unsupported_request");
    ck_assert_ptr_nonnull(rig_at("error.details.unsupported"));
    ck_assert_int_eq(ask(",'max_tokens':4,'mcp_servers':[1],'thread':null"), 400);
    ck_assert_ptr_null(rig_at("error.details"));
}
END_TEST

START_TEST(a_long_prompt_is_told_in_the_words_that_agents_know)
{
    char more[400] = ",'max_tokens':4,'system':'";
    size_t n = strlen(more);
    memset(more + n, 'x', RIG_CTX);
    strcpy(more + n + RIG_CTX, "'");
    ck_assert_int_eq(ask(more), 400);
    unsigned found, most;
    ck_assert_int_eq(sscanf(rig_text_at("error.message"), "prompt is too long: %u tokens > %u maximum", &found, &most),
                     2);
    ck_assert_uint_eq(most, RIG_CTX);
    ck_assert_uint_gt(found, RIG_CTX);
}
END_TEST

START_TEST(structured_answers_are_held)
{
    char text[] = ",'max_tokens':20,'output_config':{'format':{'type':'json_schema','schema':{'enum':['AAAAAA']}},'"
                  "effort':'low'}";
    ck_assert_int_eq(ask(text), 200);
    ck_assert_str_eq(rig_text_at("content.0.text"), "\"AAAAAA\"");
}
END_TEST

Suite *anthropic_output_suite(void)
{
    Suite *s = suite_create("anthropic_output");
    TCase *written = tcase_create("written"), *t = tcase_create("served");
    tcase_add_loop_test(written, streams_and_whole_answers_are_equal, 0, ARRAY_LEN(answers));
    tcase_add_test(written, half_a_call_has_half_its_input);
    tcase_add_loop_test(written, no_memory_is_told, 4, 6);
    suite_add_tcase(s, written);
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, answers_whole);
    tcase_add_test(t, answers_streamed);
    tcase_add_test(t, the_stop_sequence_is_told);
    tcase_add_loop_test(t, wrong_fields_are_named, 0, ARRAY_LEN(refusals));
    tcase_add_test(t, a_thread_is_refused_as_clients_know);
    tcase_add_test(t, a_long_prompt_is_told_in_the_words_that_agents_know);
    tcase_add_test(t, structured_answers_are_held);
    suite_add_tcase(s, t);
    return s;
}
