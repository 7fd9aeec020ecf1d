/* POST /v1/completions: prompts as text or token ids, and OpenAI's text form with prompt log-probabilities. */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/infill.h"
#include "fcgi/api/openai/openai.h"
#include "fcgi/api/prompts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPTS = 256, MAX_ECHOED = 1 << 22 };

/* --- shapes ----------------------------------------------------------------------------------------------------- */

enum { TOKENS, LOGPROBS, TOPS, OFFSETS }; /* the four arrays of the legacy log-probability object */

static void write_or_null(struct buf *out, float logprob)
{
    if (isnan(logprob)) {
        buf_puts(out, "null");
    } else {
        json_write_float(out, logprob);
    }
}

/* Adds a token to the four arrays; offset: where its text begins. */
static void add_logprob(struct generation *g, const struct engine_event *ev, size_t offset, struct buf arrays[4])
{
    for (int i = 0; i < 4; i++) {
        buf_puts(&arrays[i], arrays[i].len == 0 ? "" : ",");
    }
    generation_write_token(g, ev->token.id, &arrays[TOKENS]);
    write_or_null(&arrays[LOGPROBS], ev->token.logprob);
    if (isnan(ev->token.logprob)) {
        buf_puts(&arrays[TOPS], "null");
    } else {
        buf_putc(&arrays[TOPS], '{');
        for (int32_t i = 0; i < ev->token.n_top; i++) {
            buf_puts(&arrays[TOPS], i == 0 ? "" : ",");
            generation_write_token(g, ev->token.top[i].id, &arrays[TOPS]);
            buf_putc(&arrays[TOPS], ':');
            json_write_float(&arrays[TOPS], ev->token.top[i].logprob);
        }
        buf_putc(&arrays[TOPS], '}');
    }
    buf_printf(&arrays[OFFSETS], "%zu", offset);
}

/* echo: another choice, whose prompt arrays come first; OPTIONAL. */
static void write_logprobs(const struct generation *g, const struct choice *echo, const struct buf arrays[4],
                           struct buf *out)
{
    static const char *const names[4] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (g->params->logprobs < 0) {
        buf_puts(out, "null");
        return;
    }
    for (int i = 0; i < 4; i++) {
        buf_printf(out, "%c\"%s\":[", i == 0 ? '{' : ',', names[i]);
        if (echo != NULL) {
            buf_append(out, echo->parts[i].data, echo->echo_lens[i]);
            buf_puts(out, arrays[i].len > 0 ? "," : "");
        }
        buf_add(out, &arrays[i]);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

/* Writes the prompt's text, for an echo without log-probabilities. */
static void echo_prompt(const struct generation *g, const struct choice *c, struct buf *out)
{
    if (g->params->echo && g->params->logprobs < 0 &&
        engine_detokenize(g->call->engine, c->prompt, c->n_prompt, out) != ERR_OK) {
        out->err = ERR_NOMEM;
    }
}

static void write_prompt_ids(const struct choice *c, struct buf *out)
{
    buf_puts(out, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < c->n_prompt; i++) {
        buf_printf(out, "%s%d", i == 0 ? "" : ",", c->prompt[i]);
    }
    buf_putc(out, ']');
}

static void completion_open(struct generation *g, struct choice *c, struct buf *out)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    echo_prompt(g, c, &text);
    if (text.len > 0 || buf_ok(&text) != ERR_OK) {
        generation_chunk_open(g, out);
        buf_printf(out, "{\"index\":%d,\"text\":", c->index);
        json_write_buf(out, &text);
        buf_puts(out, ",\"logprobs\":null,\"finish_reason\":null}");
        generation_chunk_close(g, out);
        c->n_text += text.len;
    }
    buf_fini(&text);
}

static void completion_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    bool has_logprobs = g->params->logprobs >= 0 && ev->kind != SCHED_END;
    if (ev->text_len == 0 && !has_logprobs && !g->params->return_token_ids) {
        return;
    }
    generation_chunk_open(g, out);
    buf_printf(out, "{\"index\":%d,\"text\":", c->index);
    json_write_string(out, ev->text, ev->text_len);
    buf_puts(out, ",\"logprobs\":");
    struct buf arrays[4];
    for (int i = 0; i < 4; i++) {
        buf_init(&arrays[i], 0, MEM_REQUEST);
    }
    if (has_logprobs) {
        add_logprob(g, ev, c->n_text, arrays);
        write_logprobs(g, NULL, arrays, out);
    } else {
        buf_puts(out, "null");
    }
    for (int i = 0; i < 4; i++) {
        buf_fini(&arrays[i]);
    }
    if (g->params->return_token_ids && ev->kind == SCHED_TOKEN) {
        buf_printf(out, ",\"token_ids\":[%d]", ev->token.id);
    }
    buf_puts(out, ",\"finish_reason\":null}");
    generation_chunk_close(g, out);
}

static void completion_finish(struct generation *g, struct choice *c, struct buf *out)
{
    generation_chunk_open(g, out);
    buf_printf(out, "{\"index\":%d,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"%s\"}", c->index,
               generation_finish_reason(c));
    generation_chunk_end(g, c, out);
}

static void completion_gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    if (c->n_text == 0 && ev->kind != SCHED_PROMPT_TOKEN) {
        echo_prompt(g, c, &c->text);
        c->n_text = c->text.len;
    }
    if (g->params->logprobs >= 0 && ev->kind != SCHED_END) {
        add_logprob(g, ev, c->n_text, c->parts);
    }
    buf_append(&c->text, ev->text, ev->text_len);
}

static void completion_choice(struct generation *g, struct choice *c, struct buf *out)
{
    if (c->n_text == 0) {
        echo_prompt(g, c, &c->text); /* nothing was generated */
    }
    buf_printf(out, "{\"index\":%d,\"text\":", c->index);
    json_write_buf(out, &c->text);
    buf_puts(out, ",\"logprobs\":");
    write_logprobs(g, c->echo != c ? c->echo : NULL, c->parts, out);
    if (g->params->return_token_ids) {
        buf_puts(out, ",\"token_ids\":[");
        buf_add(out, &c->ids);
        buf_putc(out, ']');
        write_prompt_ids(c, out);
    }
    buf_printf(out, ",\"finish_reason\":\"%s\"}", generation_finish_reason(c));
}

static void completion_progress(struct generation *g, struct choice *c, struct buf *out)
{
    generation_progress(g, c, "\"text\":\"\",\"logprobs\":null", out);
}

static const struct shape completion_shape = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .prompt_field = "prompt",
    .open = completion_open,
    .token = completion_token,
    .finish = completion_finish,
    .gather = completion_gather,
    .choice = completion_choice,
    .done = generation_done,
    .whole = generation_whole,
    .progress = completion_progress,
};

/* An unstreamed answer holds the prompt's log-probabilities n times; a stream is written as they are computed. */
static enum err check_echo(const struct params *p, const struct prompts *prompts, struct err_info *info)
{
    size_t each = (size_t)p->n * (1 + (size_t)MAX_OF(p->logprobs, 0)), n = 0;
    for (size_t i = 0; i < prompts->n && n <= MAX_ECHOED; i++) {
        n += prompts->n_ids[i] * each; /* a body holds less than 2^32 tokens */
    }
    if (!p->gen.prompt_logprobs || p->stream || n <= MAX_ECHOED) {
        return ERR_OK;
    }
    return err_set(info, ERR_INVALID_VALUE, "logprobs",
                   "logprobs: expected at most %d log-probabilities of prompts in an answer that is not streamed "
                   "(tokens x n x (1 + logprobs)), found %zu or more",
                   MAX_ECHOED, n);
}

static enum err read_prompts(struct prompts *prompts, struct call *c, const struct params *p, struct err_info *info)
{
    static const struct prompts_rule rule = {.field = "prompt", .check = prompts_check_length, .max = MAX_PROMPTS};
    if (p->suffix == NULL || p->suffix[0] == '\0') {
        return prompts_read(prompts, c, c->json, &rule, info);
    }
    if (p->echo) {
        return err_set(info, ERR_UNSUPPORTED_PARAMETER, "echo", "echo: expected false where there is a suffix");
    }
    return infill_prompts(prompts, c, c->json, info);
}

void api_completions(struct call *c)
{
    struct err_info info = {0};
    struct params p;
    struct prompts prompts = {0};
    params_init(&p, c);
    p.gen.max_tokens = 16; /* as in OpenAI's API */
    enum err err = call_read_json(c, &info);
    err = err != ERR_OK ? err : params_read(&p, c, &fields_of_completions, c->json, &info);
    err = err != ERR_OK ? err : generation_check_model(c, p.model, &info);
    err = err != ERR_OK ? err : engine_check_generates(c->engine, &info);
    err = err != ERR_OK ? err : read_prompts(&prompts, c, &p, &info);
    err = err != ERR_OK ? err : check_echo(&p, &prompts, &info);
    err = err != ERR_OK ? err : params_grammar(&p, c->engine, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        call_drop_json(c); /* before the answer, which can take minutes */
        generation_run(c, &p, &completion_shape, NULL, &prompts);
    }
    params_fini(&p);
}
