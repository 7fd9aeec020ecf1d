/* A call is sent when it is complete, because its arguments are an object. An incomplete call is not sent. */
#include "fcgi/api/ollama/ollama_output.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"

#include <inttypes.h>

/* Target of an event's parts; out NULL: the answer is not streamed. */
struct teller {
    struct generation *g;
    struct choice *c;
    struct buf *out;
};

static bool is_generate(const struct generation *g) { return ((const struct ollama_answer *)g->arg)->is_generate; }

void ollama_write_head(const struct call *c, struct buf *out)
{
    char date[CLOCK_UTC_BYTES];
    buf_puts(out, "{\"model\":");
    json_write_cstr(out, c->server->model_id);
    buf_printf(out, ",\"created_at\":\"%s\"", clock_utc(clock_unix_seconds(), date));
}

void ollama_write_nothing(bool generates, struct buf *out)
{
    buf_puts(out, generates ? ",\"response\":\"\"" : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
}

/* Writes text, thinking, and calls as a list of JSON; NULL or empty: none. */
static void write_message(bool generates, const struct buf *text, const struct buf *thinking, const struct buf *calls,
                          struct buf *out)
{
    buf_puts(out, generates ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (text != NULL) {
        json_write_buf(out, text);
    } else {
        buf_puts(out, "\"\"");
    }
    if (thinking != NULL && thinking->len > 0) {
        buf_puts(out, ",\"thinking\":");
        json_write_buf(out, thinking);
    }
    if (calls != NULL && calls->len > 0) {
        buf_puts(out, ",\"tool_calls\":[");
        buf_add(out, calls);
        buf_putc(out, ']');
    }
    buf_puts(out, generates ? "" : "}");
}

static void write_line(const struct teller *t, const struct buf *text, const struct buf *thinking,
                       const struct buf *calls)
{
    ollama_write_head(t->g->call, t->out);
    write_message(is_generate(t->g), text, thinking, calls, t->out);
    buf_puts(t->out, ",\"done\":false}\n");
}

static void take_text(const struct teller *t, bool is_thinking, const struct chat_part *part)
{
    struct buf *kept = is_thinking ? &t->c->reasoning : &t->c->text;
    buf_append(kept, part->text, part->len);
    if (t->out != NULL && kept->len > 0) {
        write_line(t, is_thinking ? NULL : kept, is_thinking ? kept : NULL, NULL);
        buf_reset(kept);
    }
}

static void end_call(const struct teller *t)
{
    struct choice *c = t->c;
    buf_puts(&c->calls, c->arguments.len > 0 ? "" : "{}");
    buf_add(&c->calls, &c->arguments);
    buf_puts(&c->calls, "}}");
    buf_reset(&c->arguments);
    if (t->out != NULL) {
        write_line(t, NULL, NULL, &c->calls);
        buf_reset(&c->calls);
    }
}

static void take_part(void *arg, const struct chat_part *part)
{
    const struct teller *t = arg;
    switch (part->kind) {
    case CHAT_TEXT:
    case CHAT_REASONING:
        take_text(t, part->kind == CHAT_REASONING, part);
        break;
    case CHAT_CALL_BEGIN:
        t->c->n_calls++;
        t->c->echo_lens[0] = t->c->calls.len; /* where a call that is cut off is removed again */
        buf_puts(&t->c->calls, t->c->calls.len == 0 ? "" : ",");
        buf_printf(&t->c->calls, "{\"function\":{\"index\":%zu,\"name\":", part->i_call);
        json_write_string(&t->c->calls, part->text, part->len);
        buf_puts(&t->c->calls, ",\"arguments\":");
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_append(&t->c->arguments, part->text, part->len);
        break;
    case CHAT_CALL_END:
        end_call(t);
        t->c->echo_lens[0] = t->c->calls.len;
        break;
    case CHAT_CALL_CUT:
        if (buf_ok(&t->c->calls) == ERR_OK && buf_ok(&t->c->arguments) == ERR_OK) { /* a failed buffer stays failed */
            t->c->calls.len = t->c->echo_lens[0];
            buf_reset(&t->c->arguments);
        }
        break;
    }
}

static void finish_parts(struct generation *g, struct choice *c, struct buf *out)
{
    struct teller t = {g, c, out};
    chat_split_finish(&c->split, take_part, &t);
    out = out != NULL ? out : &c->text;
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
}

/* Writes counts and durations in nanoseconds; the prompt's duration is the time to the first token. */
static void write_end(const struct generation *g, struct buf *out)
{
    const struct generation_usage u = generation_usage(g);
    uint64_t now = clock_now_ns(), arrived = g->call->reply.arrived_ns;
    uint64_t first = g->first_token_ns != 0 ? g->first_token_ns : now;
    buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64 ",\"load_duration\":0",
               generation_finish_reason(&g->choices[0]), now - arrived);
    buf_printf(out, ",\"prompt_eval_count\":%" PRId64 ",\"prompt_eval_duration\":%" PRIu64, u.prompt, first - arrived);
    buf_printf(out, ",\"eval_count\":%" PRId64 ",\"eval_duration\":%" PRIu64 "}", u.completion, now - first);
}

static void take_event(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    struct teller t = {g, c, out};
    chat_split_feed(&c->split, ev->text, ev->text_len, take_part, &t);
    generation_count_reasoning(c, ev);
}

static void stream_done(struct generation *g, struct buf *out)
{
    ollama_write_head(g->call, out);
    ollama_write_nothing(is_generate(g), out);
    write_end(g, out);
    buf_putc(out, '\n');
}

static void write_whole(struct generation *g, struct buf *out)
{
    struct choice *c = &g->choices[0];
    finish_parts(g, c, NULL);
    ollama_write_head(g->call, out);
    write_message(is_generate(g), &c->text, &c->reasoning, &c->calls, out);
    write_end(g, out);
}

const struct shape *ollama_shape(void)
{
    static const struct shape shape = {
        .id_prefix = "ollama-",
        .prompt_field = "messages",
        .stream_type = "application/x-ndjson",
        .ping = "",
        .token = take_event,
        .finish = finish_parts,
        .done = stream_done,
        .whole = write_whole,
    };
    return &shape;
}
