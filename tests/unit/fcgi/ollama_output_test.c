/* Answers in Ollama's form of texts that a model might say, cut anywhere: lines hold what whole answers hold. */
#include "engine/base/mem.h"
#include "fcgi/api/ollama/ollama_output.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

Suite *ollama_output_suite(void);

#define CALL "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":[1,\"a\"]}}\n</tool_call>"

static void write_answer(const char *text, size_t step, bool is_generate, bool streams, struct buf *out)
{
    const struct shape *shape = ollama_shape();
    struct ollama_answer state = {.is_generate = is_generate};
    struct server named = {.model_id = "named"};
    struct call call = {.server = &named};
    struct params p = {.n = 1, .stream = streams, .split = {.splits_reasoning = true, .reads_calls = true}};
    struct choice c = {
        .end = {.finish = SCHED_FINISH_STOP}, .n_prompt = 9, .usage = {.prompt_tokens = 9, .completion_tokens = 5}};
    struct generation g = {.call = &call, .params = &p, .shape = shape, .arg = &state, .choices = &c, .n_choices = 1};
    struct buf *const bufs[] = {&c.text, &c.reasoning, &c.calls, &c.arguments, out};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        buf_init(bufs[i], 0, MEM_GENERAL);
    }
    chat_split_init(&c.split, &p.split);
    for (size_t at = 0, n = strlen(text); at < n; at += step) {
        const struct engine_event ev = {.kind = SCHED_TOKEN, .text = text + at, .text_len = MIN_OF(step, n - at)};
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
    ck_assert_int_eq(buf_ok(out), ERR_OK);
    for (size_t i = 0; i + 1 < ARRAY_LEN(bufs); i++) {
        buf_fini(bufs[i]);
    }
    chat_split_fini(&c.split);
}

static void add_text(char out[256], const json_t *v)
{
    size_t n = strlen(out);
    snprintf(out + n, 256 - n, "%s", v != NULL ? json_string_value(v) : "");
}

/* What all lines, or the one, say. */
struct said {
    char text[256], thinking[256];
    json_t *calls;
    size_t n_lines;
};

static void read_answer(const struct buf *out, bool is_generate, struct said *s)
{
    *s = (struct said){.calls = json_array()};
    for (size_t at = 0; at < out->len; s->n_lines++) {
        const char *end = memchr(out->data + at, '\n', out->len - at);
        size_t n = end != NULL ? (size_t)(end - out->data) - at : out->len - at;
        json_t *line = json_loadb(out->data + at, n, 0, NULL);
        ck_assert_msg(line != NULL, "%.*s", (int)n, out->data + at);
        const json_t *from = is_generate ? line : json_object_get(line, "message");
        ck_assert(is_generate || strcmp(json_string_value(json_object_get(from, "role")), "assistant") == 0);
        add_text(s->text, json_object_get(from, is_generate ? "response" : "content"));
        add_text(s->thinking, json_object_get(from, "thinking"));
        json_t *calls = json_object_get(from, "tool_calls");
        ck_assert(calls == NULL || json_array_extend(s->calls, calls) == 0);
        at += n + 1;
        ck_assert(json_is_true(json_object_get(line, "done")) == (at >= out->len));
        json_decref(line);
    }
}

START_TEST(lines_hold_what_whole_answers_hold)
{
    static const struct {
        const char *said, *text, *thinking, *calls;
    } rows[] = {
        {"Hello there", "Hello there", "", "[]"},
        {"<think>\nhm\n</think>\n\nYes", "Yes", "hm", "[]"},
        {CALL, "", "", "[{\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"x\":[1,\"a\"]}}}]"},
        {CALL "\n<tool_call>\n{\"name\":\"g\",\"arguments\":{", "", "",
         "[{\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"x\":[1,\"a\"]}}}]"},
    };
    for (size_t step = 1; step < 60; step += 3) {
        for (int streams = 0; streams < 2; streams++) {
            struct buf out;
            struct said s;
            bool is_generate = _i < 2 && step % 2 == 0;
            write_answer(rows[_i].said, step, is_generate, streams != 0, &out);
            read_answer(&out, is_generate, &s);
            char *calls = json_dumps(s.calls, JSON_COMPACT);
            ck_assert_msg(strcmp(s.text, rows[_i].text) == 0 || _i == 3, "'%s'", s.text);
            ck_assert_msg(strncmp(s.thinking, rows[_i].thinking, strlen(rows[_i].thinking)) == 0, "'%s'", s.thinking);
            ck_assert_str_eq(calls, rows[_i].calls);
            ck_assert(streams != 0 || s.n_lines == 1);
            mem_free(calls); /* jansson's memory is mem.h's */
            json_decref(s.calls);
            buf_fini(&out);
        }
    }
}
END_TEST

Suite *ollama_output_suite(void)
{
    Suite *s = suite_create("ollama_output");
    TCase *t = tcase_create("ollama_output");
    tcase_add_loop_test(t, lines_hold_what_whole_answers_hold, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
