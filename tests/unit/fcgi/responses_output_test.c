/* What the Responses API tells of answers, cut at every point: events in order, and the same response at their end. */
#include "fcgi/api/openai/responses_output.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *responses_output_suite(void);

static json_t *parse(const char *text, size_t n)
{
    json_error_t e;
    json_t *v = json_loadb(text, n, 0, &e);
    ck_assert_msg(v != NULL, "%s: %.*s", e.text, (int)n, text);
    return v;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

struct told {
    json_t *events; /* in order */
    json_t *whole;  /* the response as a body of its own */
};

/* Takes events apart, and checks what all have. */
static json_t *read_events(const struct buf *stream)
{
    json_t *events = json_array();
    for (const char *p = stream->data, *end; p != NULL && (end = strstr(p, "\n\n")) != NULL; p = end + 2) {
        char type[64];
        ck_assert_int_eq(sscanf(p, "event: %63s\n", type), 1);
        const char *data = strchr(p, '\n') + 1;
        ck_assert_int_eq(strncmp(data, "data: ", 6), 0);
        json_t *event = parse(data + 6, (size_t)(end - data - 6));
        ck_assert_str_eq(text_of(event, "type"), type);
        ck_assert_int_eq(json_integer_value(json_object_get(event, "sequence_number")),
                         (json_int_t)json_array_size(events));
        json_array_append_new(events, event);
    }
    return events;
}

static struct told tell_as(const char *text, size_t step, bool is_cut, bool seals, bool sums_up)
{
    static const struct generation_usage usage = {.prompt = 7, .cached = 4, .completion = 5, .reasoning = 2};
    const struct responses_end end = {.status = is_cut ? "incomplete" : "completed", .usage = &usage};
    static const char names[] = "{\"p\":{\"custom\":true},\"n__f\":{\"namespace\":\"n\",\"name\":\"f\"}}";
    const struct chat_split_config config = {.splits_reasoning = true, .reads_calls = true};
    struct told told;
    struct chat_split split;
    struct buf echo, stream, whole;
    json_t *table = parse(names, strlen(names));
    buf_init(&echo, 0, MEM_GENERAL);
    buf_init(&whole, 0, MEM_GENERAL);
    buf_init(&stream, 0, MEM_GENERAL);
    buf_puts(&echo, "\"store\":false");
    struct responses_output o = {
        .model = "m", .echo = &echo, .names = table, .seals_thoughts = seals, .sums_up = sums_up, .out = &stream};
    responses_output_init(&o);
    snprintf(o.id, sizeof o.id, "resp_%024d", 1);
    o.created = 1;
    chat_split_init(&split, &config);
    responses_output_begin(&o);
    for (size_t i = 0, k, n = strlen(text); i < n; i += k) {
        for (k = MIN_OF(step, n - i); (text[i + k] & 0xc0) == 0x80; k++) { /* the engine gives whole characters */
        }
        chat_split_feed(&split, text + i, k, responses_output_part, &o);
        if (i > strlen(text) / 2) { /* it takes its time */
            responses_output_tick(&o);
        }
    }
    chat_split_finish(&split, responses_output_part, &o);
    responses_output_close(&o, is_cut);
    o.completed = 2;
    responses_output_end(&o, &end);
    ck_assert_int_eq(responses_output_ok(&o), ERR_OK);
    responses_output_write(&o, &end, &whole);
    told.events = read_events(&stream);
    told.whole = parse(whole.data, whole.len);
    chat_split_fini(&split);
    responses_output_fini(&o);
    buf_fini(&echo);
    buf_fini(&stream);
    buf_fini(&whole);
    json_decref(table);
    return told;
}

static struct told tell(const char *text, size_t step, bool is_cut, bool seals)
{
    return tell_as(text, step, is_cut, seals, false);
}

static void forget(struct told *t)
{
    json_decref(t->events);
    json_decref(t->whole);
}

/* Puts an answer together from events as a client does, failing where one comes out of turn; an array of items. */
static json_t *join(const json_t *events)
{
    json_t *items = json_array();
    char text[512] = "";
    bool is_open = false, has_part = false;
    for (size_t i = 2; i + 1 < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i), *item = json_object_get(e, "item");
        const char *type = text_of(e, "type"), *end = strrchr(type, '.');
        if (strcmp(type, "response.in_progress") == 0) {
            ck_assert_str_eq(text_of(json_object_get(e, "response"), "status"), "in_progress");
            continue;
        }
        ck_assert_int_eq(json_integer_value(json_object_get(e, "output_index")), (json_int_t)json_array_size(items));
        if (strcmp(type, "response.output_item.added") == 0) {
            ck_assert(!is_open);
            ck_assert_str_eq(text_of(item, "status"), "in_progress");
            is_open = true;
            text[0] = '\0';
        } else if (strcmp(type, "response.content_part.added") == 0 ||
                   strcmp(type, "response.reasoning_summary_part.added") == 0) {
            ck_assert(is_open && !has_part);
            ck_assert_str_eq(text_of(json_object_get(e, "part"), "text"), "");
            has_part = true;
        } else if (strcmp(end, ".delta") == 0) {
            ck_assert(is_open);
            ck_assert_int_eq(json_object_get(e, "content_index") != NULL || json_object_get(e, "summary_index") != NULL,
                             has_part);
            strcat(text, text_of(e, "delta"));
        } else if (strcmp(type, "response.content_part.done") == 0 ||
                   strcmp(type, "response.reasoning_summary_part.done") == 0) {
            ck_assert_str_eq(text_of(json_object_get(e, "part"), "text"), text);
            has_part = false;
        } else if (strcmp(type, "response.output_item.done") == 0) {
            ck_assert(is_open && !has_part);
            json_array_append(items, json_object_get(e, "item"));
            is_open = false;
        } else {
            ck_assert_str_eq(end, ".done");
            const char *field = strstr(type, "arguments") != NULL ? "arguments"
                                : strstr(type, "input") != NULL   ? "input"
                                                                  : "text";
            ck_assert_str_eq(text_of(e, field), text);
        }
    }
    ck_assert(!is_open);
    return items;
}

static const char *const answers[] = {
    "Hello, \xc3\xa9!",
    "<think>\nHm, well\n</think>\n\nHello",
    "<think>\nHm\n</think>\n\nSee:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"\\u00e9\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"n__f\", \"arguments\": {}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"input\": \"*** \\\"x\\\"\\n\"}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"patch\": 5}}\n</tool_call> and on",
    "",
    "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"x\": {\"input\": \"no\"}, \"input\": "
    "\"\\u00e9\\ud83d\\ude00\\\\n\xc3\xa9\"}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"input\": \"a\\n",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
};

START_TEST(events_make_the_response)
{
    struct told first = tell(answers[_i], 1000, false, false);
    for (size_t step = 1; step <= strlen(answers[_i]); step++) {
        struct told t = tell(answers[_i], step, false, false);
        size_t n = json_array_size(t.events);
        const json_t *last = json_array_get(t.events, n - 1);
        json_t *items = join(t.events);
        ck_assert_str_eq(text_of(json_array_get(t.events, 0), "type"), "response.created");
        ck_assert_str_eq(text_of(json_array_get(t.events, 1), "type"), "response.in_progress");
        ck_assert_str_eq(text_of(last, "type"), "response.completed");
        ck_assert(json_equal(json_object_get(last, "response"), t.whole));
        ck_assert(json_equal(items, json_object_get(t.whole, "output")));
        ck_assert(json_equal(t.whole, first.whole));
        json_decref(items);
        forget(&t);
    }
    forget(&first);
}
END_TEST

/* A response's item as text, without ids. */
static void show(const json_t *whole, size_t i, char out[512])
{
    json_t *item = json_copy(json_array_get(json_object_get(whole, "output"), i));
    ck_assert_ptr_nonnull(strstr(text_of(item, "id"), "_000000000000000000000001_"));
    json_object_del(item, "id");
    memset(out, 0, 512);
    json_dumpb(item, out, 511, JSON_COMPACT);
    json_decref(item);
}

START_TEST(items_are_what_was_said)
{
    static const char *const expected[] = {
        "{\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
        "\"text\":\"Hm\"}],\"encrypted_content\":\"infcgi-plain:Hm\"}",
        "{\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"See:\",\"annotations\":[],\"logprobs\":[]}]}",
        "{\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"call_000000000000000000000001_2\",\"name\":"
        "\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\\\u00e9\\\"}\"}",
        "{\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"call_000000000000000000000001_3\",\"name\":"
        "\"f\",\"namespace\":\"n\",\"arguments\":\"{}\"}",
    };
    char text[512];
    struct told t = tell(answers[2], 3, false, true);
    ck_assert_uint_eq(json_array_size(json_object_get(t.whole, "output")), ARRAY_LEN(expected));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        show(t.whole, i, text);
        ck_assert_str_eq(text, expected[i]);
    }
    forget(&t);
}
END_TEST

/* Clients that show no thinking but its summary get that. */
START_TEST(thoughts_are_told_as_summary)
{
    struct told t = tell_as(answers[1], 4, false, false, true);
    const json_t *item = json_array_get(json_object_get(t.whole, "output"), 0);
    json_t *items = join(t.events);
    ck_assert_str_eq(text_of(json_array_get(json_object_get(item, "summary"), 0), "text"), "Hm, well");
    ck_assert_str_eq(text_of(json_array_get(json_object_get(item, "summary"), 0), "type"), "summary_text");
    ck_assert_uint_eq(json_array_size(json_object_get(item, "content")), 0);
    ck_assert_str_eq(text_of(json_array_get(t.events, 3), "type"), "response.reasoning_summary_part.added");
    ck_assert_str_eq(text_of(json_array_get(t.events, 4), "type"), "response.reasoning_summary_text.delta");
    ck_assert(json_equal(items, json_object_get(t.whole, "output")));
    json_decref(items);
    forget(&t);
}
END_TEST

START_TEST(custom_calls_have_plain_input)
{
    struct told t = tell(answers[3], 5, false, false), other = tell(answers[4], 5, false, false);
    const json_t *item = json_array_get(json_object_get(t.whole, "output"), 0);
    ck_assert_str_eq(text_of(item, "type"), "custom_tool_call");
    ck_assert_str_eq(text_of(item, "input"), "*** \"x\"\n");
    item = json_array_get(json_object_get(other.whole, "output"), 0);
    ck_assert_str_eq(text_of(item, "input"), "{\"patch\": 5}");
    ck_assert_uint_eq(json_array_size(json_object_get(other.whole, "output")), 2);
    forget(&t);
    forget(&other);
}
END_TEST

/* Escapes come in pieces, and half a call keeps what came of it. */
START_TEST(inputs_and_arguments_come_in_pieces)
{
    static const char *const expected[] = {"\xc3\xa9\xf0\x9f\x98\x80\\n\xc3\xa9", "a\n", "{\"a\": \"b"};
    for (int i = 0; i < 3; i++) {
        struct told t = tell(answers[6 + i], 1, true, false);
        char text[64] = "";
        size_t n_deltas = 0, k;
        const json_t *event, *item = json_array_get(json_object_get(t.whole, "output"), 0);
        json_array_foreach(t.events, k, event)
        {
            const char *delta = text_of(event, "delta");
            strcat(text, delta != NULL ? delta : "");
            n_deltas += delta != NULL;
        }
        ck_assert_str_eq(text, expected[i]);
        ck_assert_str_eq(text_of(item, i < 2 ? "input" : "arguments"), expected[i]);
        ck_assert_str_eq(text_of(item, "status"), i == 0 ? "completed" : "incomplete");
        ck_assert_uint_ge(n_deltas, 2);
        forget(&t);
    }
}
END_TEST

START_TEST(an_answer_is_cut_off)
{
    struct told t = tell("<think>\nHm\n</think>\n\nSe", 2, true, false);
    const json_t *output = json_object_get(t.whole, "output"), *usage = json_object_get(t.whole, "usage");
    ck_assert_str_eq(text_of(t.whole, "status"), "incomplete");
    ck_assert_str_eq(text_of(json_object_get(t.whole, "incomplete_details"), "reason"), "max_output_tokens");
    ck_assert(json_is_null(json_object_get(t.whole, "completed_at")));
    ck_assert_str_eq(text_of(json_array_get(output, 0), "status"), "completed");
    ck_assert_str_eq(text_of(json_array_get(output, 1), "status"), "incomplete");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "total_tokens")), 12);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(usage, "input_tokens_details"), "cached_tokens")), 4);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(usage, "output_tokens_details"), "reasoning_tokens")), 2);
    ck_assert_str_eq(text_of(json_array_get(t.events, json_array_size(t.events) - 1), "type"), "response.incomplete");
    forget(&t);
}
END_TEST

START_TEST(failures_have_codes_that_clients_know)
{
    static const struct {
        enum err code;
        const char *told, *text;
    } cases[] = {
        {ERR_CONTEXT_LENGTH, "context_length_exceeded", "input: too long"},
        {ERR_OVERLOADED, "rate_limit_exceeded", "input: too long. Please try again in 2s."},
        {ERR_GRAMMAR_DEAD_END, "server_error", "input: too long"},
        {ERR_INVALID_VALUE, "invalid_prompt", "input: too long"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf echo, out;
        struct err_info info = {0};
        const struct responses_end end = {.status = "failed", .failure = &info};
        buf_init(&echo, 0, MEM_GENERAL);
        buf_init(&out, 0, MEM_GENERAL);
        buf_puts(&echo, "\"store\":false");
        struct responses_output o = {.model = "m", .echo = &echo, .out = &out};
        responses_output_init(&o);
        err_set(&info, cases[i].code, "input", "input: too long");
        responses_output_end(&o, &end);
        json_t *events = read_events(&out);
        const json_t *event = json_array_get(events, 0), *response = json_object_get(event, "response");
        const json_t *error = json_object_get(response, "error");
        ck_assert_str_eq(text_of(event, "type"), "response.failed");
        ck_assert_str_eq(text_of(response, "status"), "failed");
        ck_assert_str_eq(text_of(error, "code"), cases[i].told);
        ck_assert_str_eq(text_of(error, "message"), cases[i].text);
        json_decref(events);
        responses_output_fini(&o);
        buf_fini(&echo);
        buf_fini(&out);
    }
}
END_TEST

/* Memory is out at every step in turn: that is told at the end, and nothing leaks. */
START_TEST(no_memory_is_told)
{
    static const struct {
        enum chat_part_kind kind;
        const char *text;
    } parts[] = {
        {CHAT_REASONING, "Hm"},
        {CHAT_TEXT, "Hi"},
        {CHAT_CALL_BEGIN, "f"},
        {CHAT_CALL_ARGUMENTS, "{}"},
        {CHAT_CALL_END, ""},
        {CHAT_CALL_BEGIN, "p"},
        {CHAT_CALL_ARGUMENTS, "{\"input\": \"x\"}"},
        {CHAT_CALL_END, ""},
    };
    static const char names[] = "{\"p\":{\"custom\":true}}";
    json_t *table = parse(names, strlen(names));
    bool fired = true;
    for (long n = 0; fired; n++) {
        const struct responses_end end = {.status = "completed"};
        struct buf echo, out;
        buf_init(&echo, 0, MEM_GENERAL);
        buf_init(&out, 0, MEM_GENERAL);
        struct responses_output o = {.model = "m", .echo = &echo, .names = table, .seals_thoughts = true};
        responses_output_init(&o);
        mem_fail_at(n);
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            const struct chat_part part = {.kind = parts[i].kind, .text = parts[i].text, .len = strlen(parts[i].text)};
            responses_output_part(&o, &part);
        }
        responses_output_close(&o, false);
        responses_output_write(&o, &end, &out);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg((buf_ok(&out) != ERR_OK) == fired, "%ld", n);
        responses_output_fini(&o);
        buf_fini(&echo);
        buf_fini(&out);
    }
    json_decref(table);
}
END_TEST

Suite *responses_output_suite(void)
{
    Suite *s = suite_create("responses_output");
    TCase *t = tcase_create("answers");
    tcase_add_loop_test(t, events_make_the_response, 0, ARRAY_LEN(answers));
    tcase_add_test(t, items_are_what_was_said);
    tcase_add_test(t, thoughts_are_told_as_summary);
    tcase_add_test(t, custom_calls_have_plain_input);
    tcase_add_test(t, inputs_and_arguments_come_in_pieces);
    tcase_add_test(t, an_answer_is_cut_off);
    tcase_add_test(t, failures_have_codes_that_clients_know);
    tcase_add_test(t, no_memory_is_told);
    suite_add_tcase(s, t);
    return s;
}
