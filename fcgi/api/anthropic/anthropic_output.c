/* An answer is a sequence of blocks. A block holds the text of consecutive parts of one kind. Streamed, a block is a
 * start, pieces and a stop. Otherwise c->calls holds the complete blocks, and c->text or c->arguments the open one. */
#include "fcgi/api/anthropic/anthropic_output.h"

#include "engine/base/json_scan.h"
#include "engine/base/json_write.h"
#include "engine/base/rng.h"

#include <inttypes.h>
#include <string.h>

/* Clients send thinking back with the next request, and some drop unsigned thinking. infcgi does not check
 * signatures. */
#define SIGNATURE "infcgi"

/* Target of an event's parts. */
struct teller {
    struct anthropic_answer *a;
    struct choice *c;
    struct buf *out; /* NULL: the answer is not streamed */
};

/* --- blocks ----------------------------------------------------------------------------------------------------- */

static void begin_event(struct buf *out, const char *type)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

/* Begins an event of the open block. */
static void begin_block_event(const struct teller *t, const char *type)
{
    begin_event(t->out, type);
    buf_printf(t->out, ",\"index\":%zu", t->a->n_blocks - 1);
}

static void end_event(struct buf *out) { buf_puts(out, "}\n\n"); }

/* Writes a block's members up to its value. */
static void write_call_head(const struct chat_part *part, struct buf *out)
{
    buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"toolu_%016" PRIx64 "%08" PRIx32 "\",\"name\":", rng_fresh_seed(),
               (uint32_t)rng_fresh_seed());
    json_write_string(out, part->text, part->len);
    buf_puts(out, ",\"caller\":{\"type\":\"direct\"},\"input\":");
}

/* Returns the length of text up to the end of its last complete member; text is the beginning of a JSON object. 0: no
 * member is complete. */
static size_t whole_members(const char *text, size_t n)
{
    struct json_scan scan = {.depth = 0};
    size_t end = 0;
    for (size_t i = 0; i < n && json_scan_feed(&scan, text + i, 1) == 1; i++) {
        if (scan.depth == 1 && scan.state == JSON_SCAN_AFTER) {
            end = i + 1;
        } else if (scan.depth == 1 && scan.state == JSON_SCAN_KEY && text[i] == ',') { /* after a number */
            end = i;
        }
    }
    return end;
}

/* Writes the arguments: an object if the call is complete, else an object of the complete members. */
static void write_input(struct choice *c, bool is_complete, struct buf *out)
{
    const char *text = c->arguments.data != NULL ? c->arguments.data : "";
    size_t n = is_complete ? c->arguments.len : whole_members(text, c->arguments.len);
    buf_append(out, text, n);
    buf_puts(out, n == 0 ? "{}}" : is_complete ? "}" : "}}");
    out->err = out->err != ERR_OK ? out->err : c->arguments.err;
}

static void close_whole(const struct teller *t, bool is_complete)
{
    struct choice *c = t->c;
    switch (t->a->open) {
    case ANTHROPIC_THINKING:
        buf_puts(&c->calls, "{\"type\":\"thinking\",\"thinking\":");
        json_write_buf(&c->calls, &c->text);
        buf_puts(&c->calls, ",\"signature\":\"" SIGNATURE "\"}");
        break;
    case ANTHROPIC_TEXT:
        buf_puts(&c->calls, "{\"type\":\"text\",\"citations\":null,\"text\":");
        json_write_buf(&c->calls, &c->text);
        buf_puts(&c->calls, "}");
        break;
    case ANTHROPIC_CALL:
        write_input(c, is_complete, &c->calls);
        break;
    case ANTHROPIC_NONE:
        break;
    }
    buf_reset(&c->text);
    buf_reset(&c->arguments);
}

/* is_complete: of a call, its end was reported. */
static void close_block(const struct teller *t, bool is_complete)
{
    if (t->out == NULL) {
        close_whole(t, is_complete);
    } else if (t->a->open != ANTHROPIC_NONE) {
        if (t->a->open == ANTHROPIC_THINKING) {
            begin_block_event(t, "content_block_delta");
            buf_puts(t->out, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"" SIGNATURE "\"}");
            end_event(t->out);
        }
        begin_block_event(t, "content_block_stop");
        end_event(t->out);
    }
    t->a->open = ANTHROPIC_NONE;
}

/* call: the part that begins the call; else NULL. */
static void open_block(const struct teller *t, enum anthropic_block kind, const struct chat_part *call)
{
    close_block(t, false);
    t->a->open = kind;
    t->a->n_blocks++;
    if (t->out == NULL) {
        buf_puts(&t->c->calls, t->a->n_blocks == 1 ? "" : ",");
        if (call != NULL) {
            write_call_head(call, &t->c->calls);
        }
        return;
    }
    begin_block_event(t, "content_block_start");
    buf_puts(t->out, ",\"content_block\":");
    if (call != NULL) {
        write_call_head(call, t->out);
        buf_puts(t->out, "{}}");
    } else {
        buf_puts(t->out, kind == ANTHROPIC_TEXT ? "{\"type\":\"text\",\"citations\":null,\"text\":\"\"}"
                                                : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    end_event(t->out);
}

/* Adds to the open block. */
static void add(const struct teller *t, const struct chat_part *part)
{
    static const struct {
        const char *type, *member;
    } deltas[] = {[ANTHROPIC_THINKING] = {"thinking_delta", "thinking"},
                  [ANTHROPIC_TEXT] = {"text_delta", "text"},
                  [ANTHROPIC_CALL] = {"input_json_delta", "partial_json"}};
    if (t->out == NULL) {
        buf_append(t->a->open == ANTHROPIC_CALL ? &t->c->arguments : &t->c->text, part->text, part->len);
        return;
    }
    begin_block_event(t, "content_block_delta");
    buf_printf(t->out, ",\"delta\":{\"type\":\"%s\",\"%s\":", deltas[t->a->open].type, deltas[t->a->open].member);
    json_write_string(t->out, part->text, part->len);
    buf_putc(t->out, '}');
    end_event(t->out);
}

static void add_prose(const struct teller *t, enum anthropic_block kind, const struct chat_part *part)
{
    if (part->len == 0) {
        return;
    }
    if (t->a->open != kind) {
        open_block(t, kind, NULL);
    }
    add(t, part);
}

static void take_part(void *arg, const struct chat_part *part)
{
    const struct teller *t = arg;
    switch (part->kind) {
    case CHAT_TEXT:
        add_prose(t, ANTHROPIC_TEXT, part);
        break;
    case CHAT_REASONING:
        add_prose(t, ANTHROPIC_THINKING, part);
        break;
    case CHAT_CALL_BEGIN:
        t->c->n_calls++;
        open_block(t, ANTHROPIC_CALL, part);
        break;
    case CHAT_CALL_ARGUMENTS:
        add(t, part);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        close_block(t, part->kind == CHAT_CALL_END);
        break;
    }
}

/* Closes the blocks at the end of the answer; out as in struct teller. */
static void finish_blocks(struct generation *g, struct choice *c, struct buf *out)
{
    const struct teller t = {g->arg, c, out};
    chat_split_finish(&c->split, take_part, (void *)&t);
    close_block(&t, false);
}

/* --- messages --------------------------------------------------------------------------------------------------- */

/* Writes the members of both usages. input_tokens counts the computed tokens; tokens read from the cache are
 * separate. */
static void write_usage(const struct generation_usage *u, struct buf *out)
{
    buf_printf(out,
               "\"input_tokens\":%" PRId64 ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%" PRId64
               ",\"output_tokens\":%" PRId64 ",\"output_tokens_details\":{\"thinking_tokens\":%" PRId64
               "},\"server_tool_use\":null",
               u->prompt - u->cached, u->cached, u->completion, u->reasoning);
}

/* Writes the usage of a message; the null members are required. */
static void write_message_usage(const struct generation_usage *u, struct buf *out)
{
    buf_puts(out, "\"usage\":{");
    write_usage(u, out);
    buf_puts(out, ",\"cache_creation\":null,\"inference_geo\":null,\"service_tier\":\"standard\"}");
}

/* Distinguishes a cut by max_tokens from a cut by the context: clients shorten the conversation after the latter. */
static const char *stop_reason(const struct generation *g, const struct choice *c)
{
    if (c->end.finish == SCHED_FINISH_LENGTH) {
        int64_t most = g->params->gen.max_tokens;
        return most < 0 || c->usage.completion_tokens < most ? "model_context_window_exceeded" : "max_tokens";
    }
    if (c->n_calls > 0) {
        return "tool_use";
    }
    return c->end.stop_match != NULL ? "stop_sequence" : "end_turn";
}

static void write_stop(const struct generation *g, struct buf *out)
{
    const struct choice *c = &g->choices[0];
    const char *reason = stop_reason(g, c);
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_details\":null,\"container\":null,\"stop_sequence\":", reason);
    if (strcmp(reason, "stop_sequence") == 0) {
        json_write_string(out, c->end.stop_match, g->params->gen.stop_len[c->end.i_stop]);
    } else {
        buf_puts(out, "null");
    }
}

/* Writes the message up to its content. */
static void write_head(const struct generation *g, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->id);
    json_write_cstr(out, g->call->server->model_id);
    buf_puts(out, ",\"content\":[");
}

static void take_event(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    struct teller t = {g->arg, c, out};
    chat_split_feed(&c->split, ev->text, ev->text_len, take_part, &t);
    generation_count_reasoning(c, ev);
}

/* The number of prompt tokens from the cache is not known yet; the last event reports it. */
static void stream_open(struct generation *g, struct choice *c, struct buf *out)
{
    begin_event(out, "message_start");
    buf_puts(out, ",\"message\":");
    write_head(g, out);
    buf_puts(out, "],\"stop_reason\":null,\"stop_details\":null,\"container\":null,\"stop_sequence\":null,");
    write_message_usage(&(struct generation_usage){.prompt = (int64_t)c->n_prompt}, out);
    buf_putc(out, '}');
    end_event(out);
}

static void stream_finish(struct generation *g, struct choice *c, struct buf *out)
{
    finish_blocks(g, c, out);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
}

static void stream_done(struct generation *g, struct buf *out)
{
    const struct generation_usage u = generation_usage(g);
    begin_event(out, "message_delta");
    buf_puts(out, ",\"delta\":{");
    write_stop(g, out);
    buf_puts(out, "},\"usage\":{");
    write_usage(&u, out);
    buf_putc(out, '}');
    end_event(out);
    begin_event(out, "message_stop");
    end_event(out);
}

static void write_whole(struct generation *g, struct buf *out)
{
    const struct generation_usage u = generation_usage(g);
    struct choice *c = &g->choices[0];
    finish_blocks(g, c, NULL);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
    write_head(g, out);
    buf_add(out, &c->calls);
    buf_puts(out, "],");
    write_stop(g, out);
    buf_putc(out, ',');
    write_message_usage(&u, out);
    buf_putc(out, '}');
}

const struct shape *anthropic_shape(void)
{
    static const struct shape shape = {
        .id_prefix = "msg_",
        .prompt_field = "messages",
        .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        .open = stream_open,
        .token = take_event,
        .finish = stream_finish,
        .done = stream_done,
        .whole = write_whole,
    };
    return &shape;
}
