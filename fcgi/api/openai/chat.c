/* POST /v1/chat/completions: OpenAI's form of a chat answer. */
#include "engine/base/json_write.h"
#include "engine/base/rng.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/openai/openai.h"

#include <stdio.h>
#include <string.h>

static void write_logprob(struct generation *g, int32_t id, float logprob, struct buf *out)
{
    buf_puts(out, "{\"token\":");
    generation_write_token(g, id, out);
    buf_puts(out, ",\"logprob\":");
    json_write_float(out, logprob);
    buf_puts(out, ",\"bytes\":");
    generation_write_bytes(g, id, out);
}

/* Writes a token's entry in logprobs.content. */
static void write_logprobs(struct generation *g, const struct engine_event *ev, struct buf *out)
{
    write_logprob(g, ev->token.id, ev->token.logprob, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->token.n_top; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_logprob(g, ev->token.top[i].id, ev->token.top[i].logprob, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

static void chunk(struct generation *g, struct choice *c, const char *delta, struct buf *out)
{
    generation_chunk_open(g, out);
    buf_printf(out, "{\"index\":%d,\"delta\":%s", c->index, delta);
}

static void chat_open(struct generation *g, struct choice *c, struct buf *out)
{
    chunk(g, c, "{\"role\":\"assistant\",\"content\":null},\"logprobs\":null,\"finish_reason\":null}", out);
    generation_chunk_close(g, out);
}

/* --- parts of a streamed answer */

/* Target of an event's parts; the first chunk of a token has the token. */
struct teller {
    struct generation *g;
    struct choice *c;
    const struct engine_event *ev; /* NULL after it was written, and at the end */
    struct buf *out;
};

static void write_call_head(struct choice *c, const struct chat_part *part, struct buf *out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    enum { EACH = 8 }; /* letters per number: 62^8 is less than 2^48 */
    char id[3 * EACH + 1];
    for (size_t i = 0; i + 1 < sizeof id;) {
        uint64_t drawn = rng_fresh_seed();
        for (size_t k = 0; k < EACH; k++, drawn /= sizeof letters - 1) {
            id[i++] = letters[drawn % (sizeof letters - 1)];
        }
    }
    id[sizeof id - 1] = '\0';
    buf_printf(out, "\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":", id);
    json_write_string(out, part->text, part->len);
    buf_puts(out, ",\"arguments\":");
    c->n_calls++;
}

static void write_delta(struct choice *c, const struct chat_part *part, struct buf *out)
{
    switch (part->kind) {
    case CHAT_TEXT:
        buf_puts(out, "\"content\":");
        json_write_string(out, part->text, part->len);
        break;
    case CHAT_REASONING: /* clients use both names */
        buf_puts(out, "\"reasoning_content\":");
        json_write_string(out, part->text, part->len);
        buf_puts(out, ",\"reasoning\":");
        json_write_string(out, part->text, part->len);
        break;
    case CHAT_CALL_BEGIN:
        buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", part->i_call);
        write_call_head(c, part, out);
        buf_puts(out, "\"\"}}]");
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", part->i_call);
        json_write_string(out, part->text, part->len);
        buf_puts(out, "}}]");
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT: /* the arguments show what is missing, and clients parse them */
        break;
    }
}

/* part NULL: the token only. */
static void tell_part(struct teller *t, const struct chat_part *part)
{
    const struct params *p = t->g->params;
    bool has_token = t->ev != NULL && t->ev->kind == SCHED_TOKEN;
    chunk(t->g, t->c, "{", t->out);
    if (part != NULL) {
        write_delta(t->c, part, t->out);
    }
    buf_puts(t->out, "},\"logprobs\":");
    if (has_token && p->want_logprobs) {
        buf_puts(t->out, "{\"content\":[");
        write_logprobs(t->g, t->ev, t->out);
        buf_puts(t->out, "],\"refusal\":null}");
    } else {
        buf_puts(t->out, "null");
    }
    if (has_token && p->return_token_ids) {
        buf_printf(t->out, ",\"token_ids\":[%d]", t->ev->token.id);
    }
    buf_puts(t->out, ",\"finish_reason\":null}");
    generation_chunk_close(t->g, t->out);
    t->ev = NULL;
}

static void stream_part(void *arg, const struct chat_part *part)
{
    if (part->kind != CHAT_CALL_END && part->kind != CHAT_CALL_CUT) {
        tell_part(arg, part);
    }
}

static void chat_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    struct teller t = {g, c, ev, out};
    bool tells_tokens = ev->kind == SCHED_TOKEN && (g->params->want_logprobs || g->params->return_token_ids);
    chat_split_feed(&c->split, ev->text, ev->text_len, stream_part, &t);
    generation_count_reasoning(c, ev);
    if (t.ev != NULL && tells_tokens) { /* the token's text is part of a character or a mark, or held back */
        tell_part(&t, NULL);
    }
}

/* A call counts even if the answer was cut off within or after it; then the reason is the cut. */
static const char *finish_reason(const struct choice *c)
{
    return c->n_calls > 0 && c->end.finish != SCHED_FINISH_LENGTH ? "tool_calls" : generation_finish_reason(c);
}

static void chat_finish(struct generation *g, struct choice *c, struct buf *out)
{
    struct teller t = {g, c, NULL, out};
    chat_split_finish(&c->split, stream_part, &t);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
    chunk(g, c, "{},\"logprobs\":null", out);
    buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    generation_chunk_end(g, c, out);
}

/* --- whole answers */

static void keep_part(void *arg, const struct chat_part *part)
{
    struct choice *c = arg;
    switch (part->kind) {
    case CHAT_TEXT:
        buf_append(&c->text, part->text, part->len);
        break;
    case CHAT_REASONING:
        buf_append(&c->reasoning, part->text, part->len);
        break;
    case CHAT_CALL_BEGIN:
        buf_puts(&c->calls, part->i_call == 0 ? "{" : ",{");
        write_call_head(c, part, &c->calls);
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_append(&c->arguments, part->text, part->len);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        json_write_buf(&c->calls, &c->arguments);
        buf_puts(&c->calls, "}}");
        buf_reset(&c->arguments);
        break;
    }
}

static void chat_gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    chat_split_feed(&c->split, ev->text, ev->text_len, keep_part, c);
    generation_count_reasoning(c, ev);
    if (g->params->want_logprobs && ev->kind == SCHED_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        write_logprobs(g, ev, &c->parts[0]);
    }
}

static void write_message(struct choice *c, struct buf *out)
{
    buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (c->text.len == 0 && c->n_calls > 0) {
        buf_puts(out, "null");
    } else {
        json_write_buf(out, &c->text);
    }
    if (c->reasoning.len > 0) {
        buf_puts(out, ",\"reasoning_content\":");
        json_write_buf(out, &c->reasoning);
        buf_puts(out, ",\"reasoning\":");
        json_write_buf(out, &c->reasoning);
    }
    if (c->n_calls > 0) {
        buf_puts(out, ",\"tool_calls\":[");
        buf_add(out, &c->calls);
        buf_putc(out, ']');
    }
    buf_puts(out, ",\"refusal\":null,\"annotations\":[]}");
}

static void chat_choice(struct generation *g, struct choice *c, struct buf *out)
{
    chat_split_finish(&c->split, keep_part, c);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
    buf_printf(out, "{\"index\":%d,\"message\":", c->index);
    write_message(c, out);
    buf_puts(out, ",\"logprobs\":");
    if (g->params->want_logprobs) {
        buf_puts(out, "{\"content\":[");
        buf_add(out, &c->parts[0]);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    if (g->params->return_token_ids) {
        buf_puts(out, ",\"token_ids\":[");
        buf_add(out, &c->ids);
        buf_putc(out, ']');
    }
    buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
}

static void chat_progress(struct generation *g, struct choice *c, struct buf *out)
{
    generation_progress(g, c, "\"delta\":{},\"logprobs\":null", out);
}

static const struct shape chat_shape = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_field = "messages",
    .open = chat_open,
    .token = chat_token,
    .finish = chat_finish,
    .gather = chat_gather,
    .choice = chat_choice,
    .done = generation_done,
    .whole = generation_whole,
    .progress = chat_progress,
};

const struct shape *api_chat_shape(void) { return &chat_shape; }

void api_chat(struct call *c)
{
    struct err_info info = {0};
    struct params p;
    enum err err = chat_read(c, &p, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        chat_answer(c, &p, &chat_shape, NULL);
    }
    params_fini(&p);
}
