/* Items follow each other: opening an item closes the previous one. */
#include "fcgi/api/openai/responses_output.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "engine/base/rng.h"
#include "fcgi/api/llama_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *type, *prefix; /* of the item and its id */
    const char *delta, *done;  /* events of its text */
    const char *field;         /* the member of `done` with the text */
    const char *begin, *end;   /* events of the part with the text; NULL: the item has no parts */
    const char *part, *index;  /* the part's type, and the name of its index in events */
} kinds[] = {
    [RESPONSES_REASONING] = {"reasoning", "rs", "response.reasoning_text.delta", "response.reasoning_text.done", "text",
                             "response.content_part.added", "response.content_part.done", "reasoning_text",
                             "content_index"},
    [RESPONSES_SUMMARY] = {"reasoning", "rs", "response.reasoning_summary_text.delta",
                           "response.reasoning_summary_text.done", "text", "response.reasoning_summary_part.added",
                           "response.reasoning_summary_part.done", "summary_text", "summary_index"},
    [RESPONSES_MESSAGE] = {"message", "msg", "response.output_text.delta", "response.output_text.done", "text",
                           "response.content_part.added", "response.content_part.done", "output_text", "content_index"},
    [RESPONSES_CALL] = {"function_call", "fc", "response.function_call_arguments.delta",
                        "response.function_call_arguments.done", "arguments", NULL, NULL, NULL, NULL},
    [RESPONSES_CUSTOM_CALL] = {"custom_tool_call", "ctc", "response.custom_tool_call_input.delta",
                               "response.custom_tool_call_input.done", "input", NULL, NULL, NULL, NULL},
};

enum { N_BUFS = 5 };

static struct buf *buf_of(struct responses_output *o, size_t i)
{
    struct buf *const bufs[N_BUFS] = {&o->name, &o->text, &o->logprobs, &o->fresh, &o->items};
    return bufs[i];
}

void responses_output_init(struct responses_output *o)
{
    for (size_t i = 0; i < N_BUFS; i++) {
        buf_init(buf_of(o, i), 0, MEM_REQUEST);
    }
    responses_custom_init(&o->custom);
    snprintf(o->id, sizeof o->id, "resp_%016" PRIx64 "%08" PRIx32, rng_fresh_seed(), (uint32_t)rng_fresh_seed());
    o->created = clock_unix_seconds();
}

void responses_output_fini(struct responses_output *o)
{
    for (size_t i = 0; i < N_BUFS; i++) {
        buf_fini(buf_of(o, i));
    }
    responses_custom_fini(&o->custom);
}

enum err responses_output_ok(const struct responses_output *o)
{
    TRY(buf_ok(&o->name));
    TRY(buf_ok(&o->text));
    TRY(buf_ok(&o->logprobs));
    TRY(buf_ok(&o->fresh));
    TRY(responses_custom_ok(&o->custom));
    return buf_ok(&o->items);
}

/* --- items ------------------------------------------------------------------------------------------------------ */

static void write_text(const struct responses_output *o, bool is_new, struct buf *out)
{
    if (is_new) {
        buf_puts(out, "\"\"");
    } else {
        json_write_buf(out, &o->text);
    }
}

/* Writes the part of an item with content; is_new: without its text. */
static void write_part(const struct responses_output *o, bool is_new, struct buf *out)
{
    buf_printf(out, "{\"type\":\"%s\",\"text\":", kinds[o->open].part);
    write_text(o, is_new, out);
    if (o->open == RESPONSES_MESSAGE) {
        buf_puts(out, ",\"annotations\":[],\"logprobs\":[");
        if (!is_new) {
            buf_add(out, &o->logprobs);
        }
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

/* Writes the member that has the part. */
static void write_parts(const struct responses_output *o, const char *name, bool is_new, struct buf *out)
{
    buf_printf(out, ",\"%s\":[", name);
    if (!is_new) {
        write_part(o, false, out);
    }
    buf_putc(out, ']');
}

static void write_thought(const struct responses_output *o, bool is_new, struct buf *out)
{
    struct buf sealed;
    bool is_summary = o->open == RESPONSES_SUMMARY;
    buf_puts(out, is_summary ? ",\"content\":[]" : ",\"summary\":[]");
    write_parts(o, is_summary ? "summary" : "content", is_new, out);
    buf_puts(out, ",\"encrypted_content\":");
    if (is_new || !o->seals_thoughts) {
        buf_puts(out, "null");
        return;
    }
    buf_init(&sealed, 0, MEM_REQUEST);
    buf_puts(&sealed, RESPONSES_PLAIN);
    buf_add(&sealed, &o->text);
    json_write_buf(out, &sealed);
    buf_fini(&sealed);
}

/* The call's id is the item's, whose digits no other answer has. */
static void write_call(const struct responses_output *o, bool is_new, struct buf *out)
{
    const json_t *other = json_object_get(o->names, o->name.data != NULL ? o->name.data : "");
    const json_t *space = json_object_get(other, "namespace"), *name = json_object_get(other, "name");
    buf_printf(out, ",\"call_id\":\"call%s\",\"name\":", strchr(o->item, '_'));
    if (space != NULL) {
        json_write_string(out, json_string_value(name), json_string_length(name));
        buf_puts(out, ",\"namespace\":");
        json_write_string(out, json_string_value(space), json_string_length(space));
    } else {
        json_write_buf(out, &o->name);
    }
    buf_printf(out, ",\"%s\":", kinds[o->open].field);
    write_text(o, is_new, out);
}

/* Writes the open item. */
static void write_item(const struct responses_output *o, const char *status, struct buf *out)
{
    bool is_new = strcmp(status, "in_progress") == 0;
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", o->item, kinds[o->open].type, status);
    if (o->open == RESPONSES_REASONING || o->open == RESPONSES_SUMMARY) {
        write_thought(o, is_new, out);
    } else if (o->open == RESPONSES_MESSAGE) {
        buf_puts(out, ",\"role\":\"assistant\"");
        write_parts(o, "content", is_new, out);
    } else {
        write_call(o, is_new, out);
    }
    buf_putc(out, '}');
}

/* --- the response ----------------------------------------------------------------------------------------------- */

/* Returns the codes that Codex handles [codex-rs/codex-api/src/sse/responses.rs]; it retries after others. */
static const char *failure_code(enum err code)
{
    switch (code) {
    case ERR_CONTEXT_LENGTH:
        return "context_length_exceeded";
    case ERR_OVERLOADED:
    case ERR_REQUEST_MEMORY:
        return "rate_limit_exceeded";
    default:
        return http_status(code) < 500 ? "invalid_prompt" : "server_error";
    }
}

static void write_failure(const struct err_info *failure, struct buf *out)
{
    const char *code = failure_code(failure->code);
    char text[ERR_TEXT_BYTES + 32];
    bool may_retry = strcmp(code, "rate_limit_exceeded") == 0; /* Codex reads the delay from the message */
    snprintf(text, sizeof text, "%s%s", failure->text[0] != '\0' ? failure->text : err_text(failure->code),
             may_retry ? ". Please try again in 2s." : "");
    buf_printf(out, "{\"code\":\"%s\",\"message\":", code);
    json_write_cstr(out, text);
    buf_putc(out, '}');
}

static void write_usage(const struct generation_usage *u, struct buf *out)
{
    buf_printf(out,
               "{\"input_tokens\":%" PRId64 ",\"input_tokens_details\":{\"cached_tokens\":%" PRId64
               ",\"cache_write_tokens\":0},\"output_tokens\":%" PRId64
               ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRId64 "},\"total_tokens\":%" PRId64 "}",
               u->prompt, u->cached, u->completion, u->reasoning, u->prompt + u->completion);
}

void responses_output_write(const struct responses_output *o, const struct responses_end *end, struct buf *out)
{
    bool is_cut = strcmp(end->status, "incomplete") == 0;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64 ",\"status\":\"%s\"", o->id,
               o->created, end->status);
    if (strcmp(end->status, "completed") == 0) {
        buf_printf(out, ",\"completed_at\":%" PRId64, o->completed);
    } else {
        buf_puts(out, ",\"completed_at\":null");
    }
    buf_puts(out, ",\"error\":");
    if (end->failure != NULL) {
        write_failure(end->failure, out);
    } else {
        buf_puts(out, "null");
    }
    buf_printf(out, ",\"incomplete_details\":%s,\"model\":", is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_write_cstr(out, o->model);
    buf_puts(out, ",\"output\":[");
    buf_add(out, &o->items);
    buf_puts(out, "],\"usage\":");
    if (end->usage != NULL) {
        write_usage(end->usage, out);
    } else {
        buf_puts(out, "null");
    }
    buf_putc(out, ',');
    buf_add(out, o->echo);
    buf_putc(out, '}');
    out->err = out->err != ERR_OK ? out->err : responses_output_ok(o);
}

/* --- events ----------------------------------------------------------------------------------------------------- */

/* Begins an event; returns false if no events are needed. */
static bool open_event(struct responses_output *o, const char *type)
{
    if (o->out != NULL) {
        buf_printf(o->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%" PRId64, type, type, o->n_events++);
    }
    return o->out != NULL;
}

static void close_event(struct responses_output *o) { buf_puts(o->out, "}\n\n"); }

/* Writes llama-server's member; timed OPTIONAL. */
static void tell_timings(struct responses_output *o, const struct choice *timed)
{
    if (timed != NULL) {
        buf_putc(o->out, ',');
        llama_write_timings(timed, o->out);
    }
}

static void tell_response(struct responses_output *o, const char *type, const struct responses_end *end)
{
    if (open_event(o, type)) {
        buf_puts(o->out, ",\"response\":");
        responses_output_write(o, end, o->out);
        tell_timings(o, end->timed);
        close_event(o);
    }
}

static void tell_item(struct responses_output *o, const char *type, const char *status)
{
    if (open_event(o, type)) {
        buf_printf(o->out, ",\"output_index\":%zu,\"item\":", o->n_items);
        write_item(o, status, o->out);
        close_event(o);
    }
}

/* Begins an event of the open item's text. */
static bool open_item_event(struct responses_output *o, const char *type)
{
    if (!open_event(o, type)) {
        return false;
    }
    buf_printf(o->out, ",\"item_id\":\"%s\",\"output_index\":%zu", o->item, o->n_items);
    if (kinds[o->open].index != NULL) {
        buf_printf(o->out, ",\"%s\":0", kinds[o->open].index);
    }
    return true;
}

/* type NULL: the item has no parts. */
static void tell_part(struct responses_output *o, const char *type, bool is_new)
{
    if (type != NULL && open_item_event(o, type)) {
        buf_puts(o->out, ",\"part\":");
        write_part(o, is_new, o->out);
        close_event(o);
    }
}

static void tell_delta(struct responses_output *o, const char *text, size_t n)
{
    if (open_item_event(o, kinds[o->open].delta)) {
        buf_puts(o->out, ",\"delta\":");
        json_write_string(o->out, text, n);
        if (o->open == RESPONSES_MESSAGE) {
            buf_puts(o->out, ",\"logprobs\":[");
            buf_add(o->out, &o->fresh);
            buf_putc(o->out, ']');
            tell_timings(o, o->timed);
        }
        close_event(o);
    }
}

static void tell_text(struct responses_output *o)
{
    if (open_item_event(o, kinds[o->open].done)) {
        buf_printf(o->out, ",\"%s\":", kinds[o->open].field);
        json_write_buf(o->out, &o->text);
        if (o->open == RESPONSES_MESSAGE) {
            buf_puts(o->out, ",\"logprobs\":[");
            buf_add(o->out, &o->logprobs);
            buf_putc(o->out, ']');
        }
        close_event(o);
    }
}

/* --- the course of an answer ------------------------------------------------------------------------------------ */

/* A custom tool's input is within the arguments that the model wrote. Arguments of another form are the input and are
 * written now. */
static void unwrap_input(struct responses_output *o)
{
    if (!o->custom.has_input) {
        tell_delta(o, o->text.data != NULL ? o->text.data : "", o->text.len);
    } else if (responses_output_ok(o) == ERR_OK) {
        buf_reset(&o->text);
        buf_add(&o->text, &o->custom.input);
    }
}

/* Adds the next piece of a call's arguments. */
static void add_arguments(struct responses_output *o, const struct chat_part *part)
{
    buf_append(&o->text, part->text, part->len);
    if (o->open == RESPONSES_CALL) {
        tell_delta(o, part->text, part->len);
        return;
    }
    size_t before = o->custom.input.len;
    responses_custom_feed(&o->custom, part->text, part->len);
    if (o->custom.input.len > before) {
        tell_delta(o, o->custom.input.data + before, o->custom.input.len - before);
    }
}

static void close_item(struct responses_output *o, const char *status)
{
    if (o->open == RESPONSES_NOTHING) {
        return;
    }
    if (o->open == RESPONSES_CUSTOM_CALL) {
        unwrap_input(o);
    }
    tell_text(o);
    tell_part(o, kinds[o->open].end, false);
    tell_item(o, "response.output_item.done", status);
    buf_puts(&o->items, o->n_items == 0 ? "" : ",");
    write_item(o, status, &o->items);
    o->n_items++;
    o->open = RESPONSES_NOTHING;
}

static void open_item(struct responses_output *o, enum responses_kind kind)
{
    close_item(o, "completed");
    o->open = kind;
    snprintf(o->item, sizeof o->item, "%s_%s_%zu", kinds[kind].prefix, strchr(o->id, '_') + 1, o->n_items);
    if (responses_output_ok(o) == ERR_OK) { /* a failed buffer stays failed */
        buf_reset(&o->text);
        buf_reset(&o->logprobs);
    }
    tell_item(o, "response.output_item.added", "in_progress");
    tell_part(o, kinds[o->open].begin, true);
}

static void add_text(struct responses_output *o, enum responses_kind kind, const struct chat_part *part)
{
    if (o->open != kind) {
        open_item(o, kind);
    }
    buf_append(&o->text, part->text, part->len);
    if (kind == RESPONSES_MESSAGE && o->fresh.len > 0) {
        buf_puts(&o->logprobs, o->logprobs.len == 0 ? "" : ",");
        buf_add(&o->logprobs, &o->fresh);
    }
    tell_delta(o, part->text, part->len);
}

static void begin_call(struct responses_output *o, const struct chat_part *part)
{
    close_item(o, "completed");
    if (responses_output_ok(o) == ERR_OK) {
        buf_reset(&o->name);
    }
    buf_append(&o->name, part->text, part->len);
    const json_t *other = json_object_get(o->names, o->name.data != NULL ? o->name.data : "");
    responses_custom_begin(&o->custom);
    open_item(o, json_object_get(other, "custom") != NULL ? RESPONSES_CUSTOM_CALL : RESPONSES_CALL);
}

void responses_output_part(void *arg, const struct chat_part *part)
{
    struct responses_output *o = arg;
    switch (part->kind) {
    case CHAT_TEXT:
        add_text(o, RESPONSES_MESSAGE, part);
        break;
    case CHAT_REASONING:
        add_text(o, o->sums_up ? RESPONSES_SUMMARY : RESPONSES_REASONING, part);
        break;
    case CHAT_CALL_BEGIN:
        begin_call(o, part);
        break;
    case CHAT_CALL_ARGUMENTS:
        add_arguments(o, part);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        close_item(o, part->kind == CHAT_CALL_END ? "completed" : "incomplete");
        break;
    }
    if (buf_ok(&o->fresh) == ERR_OK) {
        buf_reset(&o->fresh);
    }
}

static void write_logprob(const struct generation *g, int32_t id, float logprob, struct buf *out)
{
    buf_puts(out, "{\"token\":");
    generation_write_token(g, id, out);
    buf_puts(out, ",\"bytes\":");
    generation_write_bytes(g, id, out);
    buf_puts(out, ",\"logprob\":");
    json_write_float(out, logprob);
}

void responses_output_token(struct responses_output *o, const struct generation *g, const struct engine_event *ev)
{
    if (!o->tells_logprobs || ev->kind != SCHED_TOKEN) {
        return;
    }
    buf_puts(&o->fresh, o->fresh.len == 0 ? "" : ",");
    write_logprob(g, ev->token.id, ev->token.logprob, &o->fresh);
    buf_puts(&o->fresh, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->token.n_top; i++) {
        buf_puts(&o->fresh, i == 0 ? "" : ",");
        write_logprob(g, ev->token.top[i].id, ev->token.top[i].logprob, &o->fresh);
        buf_putc(&o->fresh, '}');
    }
    buf_puts(&o->fresh, "]}");
}

static const struct responses_end begun = {.status = "in_progress"};

void responses_output_begin(struct responses_output *o)
{
    tell_response(o, "response.created", &begun);
    tell_response(o, "response.in_progress", &begun);
}

void responses_output_progress(struct responses_output *o, const struct generation *g, const struct choice *c)
{
    if (open_event(o, "response.in_progress")) {
        buf_puts(o->out, ",\"response\":");
        responses_output_write(o, &begun, o->out);
        buf_putc(o->out, ',');
        llama_write_progress(g, c, o->out);
        close_event(o);
    }
}

void responses_output_tick(struct responses_output *o) { tell_response(o, "response.in_progress", &begun); }

void responses_output_close(struct responses_output *o, bool is_cut)
{
    if (o->open == RESPONSES_NOTHING && o->n_items == 0) { /* an answer without text still has an item */
        open_item(o, RESPONSES_MESSAGE);
    }
    close_item(o, is_cut ? "incomplete" : "completed");
    o->completed = clock_unix_seconds();
}

void responses_output_end(struct responses_output *o, const struct responses_end *end)
{
    char type[32];
    snprintf(type, sizeof type, "response.%s", end->status);
    tell_response(o, type, end);
}
