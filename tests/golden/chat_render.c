/* Renders chat templates for chat_oracle.py. Reads one JSON object per line from standard input,
 *   {"template": text, "context": object, "now": seconds since 1970}
 * and writes one per line: {"ok": text, "user": [[from, to], ...]} with byte ranges, or {"error": text, "code": word,
 * "parsed": whether the template was valid}. A line for call_oracle.py,
 *   {"template": text, "answer": text, "tools": array, "step": bytes of a piece, "thinks": does the prompt open thoughts}
 * returns the parts of the answer. It is parsed in such pieces and, if the first piece has all of it, in two pieces cut
 * at every position:
 *   {"format": word, "content": text, "reasoning": text, "calls": [[name, arguments], ...],
 *    "most": pieces in which the arguments of a call arrived, "wrong": whether they are not JSON}
 * or {"differs": N}, if bytes [0, N) as the first piece give another result. With --named it writes {"name": word,
 * "template": text} for each format. */
#include "engine/base/compiler.h"
#include "engine/base/json_read.h"
#include "engine/base/json_scan.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_named.h"
#include "engine/chat/chat_parts.h"
#include "engine/chat/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 1000 };

static json_t *failure(enum err e, const struct err_info *info, bool parsed)
{
    return json_pack("{ss, ss, sb}", "error", info->text, "code", err_code(e), "parsed", parsed);
}

static json_t *success(const struct chat_output *out)
{
    json_t *user = json_array();
    for (size_t i = 0; i < out->n_user; i++) {
        json_array_append_new(user, json_pack("[II]", (json_int_t)out->user[i].from, (json_int_t)out->user[i].to));
    }
    return json_pack("{so, so}", "ok", json_stringn(out->text, out->len), "user", user);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

struct answer {
    struct buf content, reasoning, arguments;
    json_t *calls;
    struct json_scan scan; /* of the arguments */
    int n_pieces, most;    /* of the call's arguments; the most of one call */
    bool is_wrong;         /* pieces that do not continue JSON, or an incomplete call */
};

static void take_part(void *arg, const struct chat_part *part)
{
    struct answer *a = arg;
    json_t *last = json_array_get(a->calls, json_array_size(a->calls) - 1);
    switch (part->kind) {
    case CHAT_TEXT:
        buf_append(&a->content, part->text, part->len);
        break;
    case CHAT_REASONING:
        buf_append(&a->reasoning, part->text, part->len);
        break;
    case CHAT_CALL_BEGIN:
        json_array_append_new(a->calls, json_pack("[o]", json_stringn(part->text, part->len)));
        a->scan = (struct json_scan){.depth = 0};
        a->n_pieces = 0;
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_append(&a->arguments, part->text, part->len);
        a->is_wrong = a->is_wrong || json_scan_feed(&a->scan, part->text, part->len) < part->len;
        a->most = MAX_OF(a->most, ++a->n_pieces);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        a->is_wrong = a->is_wrong || a->scan.state != JSON_SCAN_WHOLE;
        json_array_append_new(last, json_stringn(a->arguments.data, a->arguments.len));
        buf_reset(&a->arguments);
        break;
    }
}

static json_t *text_of(const struct buf *b) { return json_stringn(b->data != NULL ? b->data : "", b->len); }

/* Parses the answer in pieces of `step` bytes after the first one. */
static json_t *split(const struct chat_split_config *config, const char *text, size_t n, size_t first, size_t step)
{
    struct answer a = {.calls = json_array()};
    struct chat_split s;
    buf_init(&a.content, 0, MEM_GENERAL);
    buf_init(&a.reasoning, 0, MEM_GENERAL);
    buf_init(&a.arguments, 0, MEM_GENERAL);
    chat_split_init(&s, config);
    for (size_t i = 0, len = first; i < n; i += len, len = step) {
        len = MIN_OF(len, n - i);
        chat_split_feed(&s, text + i, len, take_part, &a);
    }
    chat_split_finish(&s, take_part, &a);
    chat_split_fini(&s);
    json_t *out = json_pack("{ss, so, so, so, si, sb}", "format", config->format->name, "content", text_of(&a.content),
                            "reasoning", text_of(&a.reasoning), "calls", a.calls, "most", a.most, "wrong", a.is_wrong);
    buf_fini(&a.content);
    buf_fini(&a.reasoning);
    buf_fini(&a.arguments);
    return out;
}

/* Returns the position at which two pieces give a result other than `expected`; 0: none. Ignores the number of pieces
 * of a call. */
static size_t find_difference(const struct chat_split_config *config, const char *text, size_t n, json_t *expected)
{
    size_t first = 1;
    bool is_same = true;
    for (; first < n && is_same; first += is_same) {
        json_t *other = split(config, text, n, first, n);
        json_object_set(other, "most", json_object_get(expected, "most"));
        is_same = json_equal(other, expected);
        json_decref(other);
    }
    return is_same ? 0 : first;
}

static json_t *read_answer(const json_t *one)
{
    const json_t *source = json_object_get(one, "template"), *said = json_object_get(one, "answer");
    const struct chat_split_config config = {.splits_reasoning = true,
                                             .starts_in_reasoning = json_is_true(json_object_get(one, "thinks")),
                                             .reads_calls = true,
                                             .format =
                                                 chat_format_of(json_string_value(source), json_string_length(source)),
                                             .tools = json_object_get(one, "tools")};
    const char *text = json_string_value(said);
    size_t n = json_string_length(said), step = (size_t)json_integer_value(json_object_get(one, "step"));
    json_t *answer = split(&config, text, n, step, step);
    size_t at = step >= n ? find_difference(&config, text, n, answer) : 0;
    if (at > 0) {
        json_decref(answer);
        return json_pack("{sI}", "differs", (json_int_t)at);
    }
    return answer;
}

static json_t *render(const json_t *one)
{
    if (json_object_get(one, "answer") != NULL) {
        return read_answer(one);
    }
    const json_t *source = json_object_get(one, "template");
    struct chat_template *t = NULL;
    struct chat_output out = {0};
    struct err_info info = {0};
    enum err e = chat_template_new(json_string_value(source), json_string_length(source), &t, &info);
    if (e == ERR_OK) {
        int64_t now = json_integer_value(json_object_get(one, "now"));
        e = chat_template_render(t, json_object_get(one, "context"), now, &out, &info);
    }
    json_t *answer = e == ERR_OK ? success(&out) : failure(e, &info, t != NULL);
    chat_output_fini(&out);
    chat_template_free(&t);
    return answer;
}

static bool write_line(json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT);
    if (text == NULL) {
        fprintf(stderr, "the output is not valid UTF-8\n");
        return false;
    }
    puts(text);
    mem_free(text);
    json_decref(answer);
    return true;
}

static int write_named(void)
{
    const struct chat_named *row;
    for (int i = 0; (row = chat_named_at(i)) != NULL; i++) {
        struct buf source;
        buf_init(&source, 0, MEM_GENERAL);
        if (chat_named_source(row, &source) != ERR_OK ||
            !write_line(json_pack("{ss, ss%}", "name", chat_named_name(row), "template", source.data, source.len))) {
            return 2;
        }
        buf_fini(&source);
    }
    return 0;
}

static int render_lines(void)
{
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        struct err_info info = {0};
        json_t *one = NULL;
        enum err err = json_read(line, (size_t)n, MAX_DEPTH, "the line", &one, &info);
        bool is_case =
            json_is_object(json_object_get(one, "context")) ||
            (json_is_string(json_object_get(one, "answer")) && json_integer_value(json_object_get(one, "step")) > 0);
        if (err != ERR_OK || !json_is_string(json_object_get(one, "template")) || !is_case) {
            fprintf(stderr, "not a case: %s\n", info.text);
            return 2;
        }
        if (!write_line(render(one))) {
            return 2;
        }
        json_decref(one);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    json_number_use_mem();
    int rc = argc > 1 && strcmp(argv[1], "--named") == 0 ? write_named() : render_lines();
    if (rc == 0 && mem_live() != 0) {
        fprintf(stderr, "%zu bytes were not freed\n", mem_live());
        rc = 2;
    }
    return rc;
}
