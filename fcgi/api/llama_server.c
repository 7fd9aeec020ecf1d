/* llama-server's own endpoints, so that its clients change an address only: POST /completion with its answers, and GET
 * /props, /slots, /lora-adapters and POST /apply-template. [llama.cpp tools/server/README.md] */
#include "fcgi/api/generation.h"
#include "fcgi/api/prompts.h"

#include "engine/base/json_write.h"
#include "engine/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_PROMPTS = 256 };

/* --- answers of /completion --------------------------------------------------------------------------------------- */

static void write_probability(struct generation *g, int32_t id, float logprob, struct buf *out)
{
    buf_printf(out, "{\"id\":%d,\"token\":", id);
    generation_write_token(g, id, out);
    buf_puts(out, ",\"bytes\":");
    generation_write_bytes(g, id, out);
    buf_puts(out, ",\"logprob\":");
    json_write_float(out, logprob);
}

/* The element of a token in completion_probabilities. */
static void write_probabilities(struct generation *g, const struct engine_event *ev, struct buf *out)
{
    write_probability(g, ev->token.id, ev->token.logprob, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->token.n_top; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_probability(g, ev->token.top[i].id, ev->token.top[i].logprob, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

/* Milliseconds, and what they come to for a token. */
static void write_speed(const char *name, int64_t n, uint64_t ns, struct buf *out)
{
    double ms = (double)ns / 1e6;
    buf_printf(out, "\"%s_n\":%" PRId64 ",\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", name, n,
               name, ms, name, n > 0 ? ms / (double)n : 0, name, ms > 0 ? (double)n / ms * 1e3 : 0);
}

static void write_timings(const struct sched_usage *u, struct buf *out)
{
    buf_printf(out, ",\"timings\":{\"cache_n\":%d,", u->cached_tokens);
    write_speed("prompt", u->prompt_tokens - u->cached_tokens, u->prefill_ns, out);
    buf_putc(out, ',');
    write_speed("predicted", u->completion_tokens, u->decode_ns, out);
    buf_putc(out, '}');
}

static void write_settings(const struct generation *g, struct buf *out)
{
    const struct sampler_params *s = &g->params->gen.sampling;
    buf_printf(out, ",\"generation_settings\":{\"n_predict\":%d,\"seed\":%" PRId64 ",\"temperature\":",
               g->params->gen.max_tokens, (int64_t)s->seed);
    json_write_float(out, s->temperature);
    buf_printf(out, ",\"top_k\":%d,\"top_p\":", s->top_k);
    json_write_float(out, s->top_p);
    buf_puts(out, ",\"min_p\":");
    json_write_float(out, s->min_p);
    buf_puts(out, ",\"typical_p\":");
    json_write_float(out, s->typical_p);
    buf_printf(out, ",\"repeat_last_n\":%d,\"repeat_penalty\":", s->repeat_last_n);
    json_write_float(out, s->repeat_penalty);
    buf_puts(out, ",\"presence_penalty\":");
    json_write_float(out, s->presence_penalty);
    buf_puts(out, ",\"frequency_penalty\":");
    json_write_float(out, s->frequency_penalty);
    buf_printf(out, ",\"min_keep\":0,\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%d}",
               g->params->gen.ignore_eos ? "true" : "false", g->params->stream ? "true" : "false",
               s->n_top > 0 ? s->n_top : 0);
}

/* Everything behind "tokens": how the answer ended, and what it took. */
static void write_end(struct generation *g, const struct choice *c, struct buf *out)
{
    const char *kind = c->end.stop_match != NULL ? "word" : c->end.finish == SCHED_FINISH_LENGTH ? "limit" : "eos";
    struct buf prompt;
    buf_init(&prompt, 0, MEM_REQUEST);
    out->err = out->err != ERR_OK ? out->err : engine_detokenize(g->call->engine, c->prompt, c->n_prompt, &prompt);
    buf_puts(out, ",\"id_slot\":-1,\"stop\":true,\"model\":");
    json_write_cstr(out, g->call->server->model_id);
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d", c->usage.completion_tokens,
               c->usage.prompt_tokens);
    write_settings(g, out);
    buf_puts(out, ",\"prompt\":");
    json_write_buf(out, &prompt);
    buf_printf(out, ",\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":", kind);
    json_write_cstr(out, c->end.stop_match != NULL ? c->end.stop_match : "");
    buf_printf(out, ",\"tokens_cached\":%d", c->usage.prompt_tokens + c->usage.completion_tokens);
    write_timings(&c->usage, out);
    out->err = out->err != ERR_OK ? out->err : buf_ok(&prompt);
    buf_fini(&prompt);
}

static void no_open(struct generation *g, struct choice *c, struct buf *out)
{
    (void)g;
    (void)c;
    (void)out;
}

static void stream_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    bool is_token = ev->kind == SCHED_TOKEN, tells = g->params->logprobs > 0 || g->params->return_token_ids;
    c->n_calls += is_token; /* tokens so far: there are no calls here */
    if (ev->text_len == 0 && !(is_token && tells)) {
        return;
    }
    buf_printf(out, "data: {\"index\":%d,\"content\":", c->index);
    json_write_string(out, ev->text, ev->text_len);
    buf_puts(out, ",\"tokens\":[");
    if (is_token && g->params->return_token_ids) {
        json_write_int(out, ev->token.id);
    }
    buf_printf(out, "],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu", c->n_calls,
               c->n_prompt);
    if (is_token && g->params->logprobs > 0) {
        buf_puts(out, ",\"completion_probabilities\":[");
        write_probabilities(g, ev, out);
        buf_putc(out, ']');
    }
    buf_puts(out, "}\n\n");
}

static void stream_finish(struct generation *g, struct choice *c, struct buf *out)
{
    buf_printf(out, "data: {\"index\":%d,\"content\":\"\",\"tokens\":[]", c->index);
    write_end(g, c, out);
    buf_puts(out, "}\n\n");
}

/* The last event says that it is: [DONE] is OpenAI's. */
static void stream_done(struct generation *g, struct buf *out)
{
    (void)g;
    (void)out;
}

static void gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    buf_append(&c->text, ev->text, ev->text_len);
    if (g->params->logprobs > 0 && ev->kind == SCHED_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        write_probabilities(g, ev, &c->parts[0]);
    }
}

static void write_choice(struct generation *g, struct choice *c, struct buf *out)
{
    buf_printf(out, "{\"index\":%d,\"content\":", c->index);
    json_write_buf(out, &c->text);
    buf_puts(out, ",\"tokens\":[");
    buf_add(out, &c->ids);
    buf_putc(out, ']');
    write_end(g, c, out);
    if (g->params->logprobs > 0) {
        buf_puts(out, ",\"completion_probabilities\":[");
        buf_add(out, &c->parts[0]);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

/* One object, or an array of those of several prompts. */
static void write_whole(struct generation *g, struct buf *out)
{
    buf_puts(out, g->n_choices > 1 ? "[" : "");
    for (size_t i = 0; i < g->n_choices; i++) {
        buf_puts(out, i > 0 ? "," : "");
        write_choice(g, &g->choices[i], out);
    }
    buf_puts(out, g->n_choices > 1 ? "]" : "");
}

static const struct shape completion_shape = {
    .id_prefix = "llama-",
    .object = "",
    .chunk_object = "",
    .prompt_field = "prompt",
    .open = no_open,
    .token = stream_token,
    .finish = stream_finish,
    .gather = gather,
    .choice = write_choice,
    .done = stream_done,
    .whole = write_whole,
};

/* --- POST /completion ----------------------------------------------------------------------------------------------- */

static bool is_set(const json_t *root, const char *field) { return json_read_get(root, field) != NULL; }

/* The same body in the words of /v1/completions: n_probs are logprobs, and without a number of tokens there are as many
 * as the context holds. */
static enum err translate(json_t *root, struct err_info *info)
{
    json_t *n_probs = json_object_get(root, "n_probs");
    bool ok = true;
    if (n_probs != NULL && !json_is_null(n_probs)) {
        if (!json_is_integer(n_probs) || json_integer_value(n_probs) < 0 ||
            json_integer_value(n_probs) > SAMPLER_MAX_TOP) {
            return json_in_refuse(json_is_integer(n_probs) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, "n_probs",
                                  "a whole number of 0 to 20", n_probs, info);
        }
        ok = json_integer_value(n_probs) == 0 || json_object_set(root, "logprobs", n_probs) == 0;
        json_object_del(root, "n_probs");
    }
    if (json_is_true(json_object_get(root, "post_sampling_probs"))) {
        return err_set(info, ERR_UNSUPPORTED_PARAMETER, "post_sampling_probs",
                       "post_sampling_probs: expected false; probabilities are those of the model");
    }
    if (!is_set(root, "n_predict") && !is_set(root, "max_tokens")) {
        ok = ok && json_object_set_new(root, "n_predict", json_integer(-1)) == 0;
    }
    json_t *tokens = json_object_get(root, "return_tokens");
    if (tokens != NULL && !json_is_null(tokens)) {
        ok = ok && json_object_set(root, "return_token_ids", tokens) == 0;
        json_object_del(root, "return_tokens");
    }
    return ok ? ERR_OK : ERR_NOMEM;
}

void api_llama_completion(struct call *c)
{
    static const struct prompts_rule rule = {.field = "prompt", .max = MAX_PROMPTS};
    struct err_info info = {0};
    struct params p = {0};
    struct prompts prompts = {0};
    enum err err = route_read_json(c, &info);
    err = err != ERR_OK ? err : translate(c->json, &info);
    err =
        err != ERR_OK ? err : params_read(&p, c->json, false, c->server->conf->strict_api, c->engine, &c->arena, &info);
    err = err != ERR_OK ? err : generation_check_model(c->server, p.model, &info);
    err = err != ERR_OK ? err : engine_check_generates(c->engine, &info);
    err = err != ERR_OK ? err : prompts_read(&prompts, c, c->json, &rule, &info);
    err = err != ERR_OK ? err : params_grammar(&p, c->engine, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
        return;
    }
    p.root = NULL;
    route_drop_json(c); /* before the answer, which may take minutes */
    generation_run(c, &p, &completion_shape, NULL, (const int32_t *const *)prompts.ids, prompts.n_ids, prompts.n);
    engine_grammar_free(&p.gen.grammar);
}

/* --- what the server is ---------------------------------------------------------------------------------------------- */

static void send(struct call *c, enum err err, const struct err_info *info, struct buf *out)
{
    err = err != ERR_OK ? err : buf_ok(out);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, info);
    } else {
        reply_send(&c->reply, 200, "application/json", out);
    }
    buf_fini(out);
}

/* Sequences that are computed at once: --parallel's, or its default. */
static unsigned n_slots(const struct call *c)
{
    enum { BY_DEFAULT = 16 };
    int64_t n = c->server->conf->parallel;
    return n > 0 ? (unsigned)n : BY_DEFAULT;
}

/* There are no slots: as many sequences run together as --parallel says, and each has the whole context. */
void api_llama_slots(struct call *c)
{
    struct sched_stats s;
    struct buf out;
    unsigned n = n_slots(c);
    buf_init(&out, 0, MEM_REQUEST);
    engine_get_stats(c->engine, &s);
    buf_putc(&out, '[');
    for (unsigned i = 0; i < n; i++) {
        buf_printf(&out, "%s{\"id\":%u,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s}", i > 0 ? "," : "", i,
                   engine_model(c->engine)->n_ctx, i < s.n_running ? "true" : "false");
    }
    buf_putc(&out, ']');
    send(c, ERR_OK, NULL, &out);
}

void api_llama_props(struct call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_printf(&out, "{\"default_generation_settings\":{\"n_ctx\":%u,\"params\":{\"temperature\":", m->n_ctx);
    json_write_float(&out, m->sampling.temperature);
    buf_puts(&out, ",\"top_p\":");
    json_write_float(&out, m->sampling.top_p);
    buf_printf(&out, ",\"top_k\":%" PRId64 ",\"min_p\":", m->sampling.top_k);
    json_write_float(&out, m->sampling.min_p);
    buf_printf(&out, "}},\"total_slots\":%u,\"model_alias\":", n_slots(c));
    json_write_cstr(&out, c->server->model_id);
    buf_puts(&out, ",\"model_path\":\"\",\"modalities\":{\"vision\":false,\"audio\":false},\"bos_token\":");
    json_write_cstr(&out, m->bos_text);
    buf_puts(&out, ",\"eos_token\":");
    json_write_cstr(&out, m->eos_text);
    buf_puts(&out, ",\"is_sleeping\":false}");
    send(c, ERR_OK, NULL, &out);
}

void api_llama_adapters(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "[]");
    send(c, ERR_OK, NULL, &out);
}

/* The prompt that /v1/chat/completions would make of the body. */
void api_llama_template(struct call *c)
{
    struct err_info info = {0};
    struct params p = {0};
    struct buf out, text;
    bool shows_tools;
    int32_t *ids = NULL;
    size_t n = 0;
    buf_init(&out, 0, MEM_REQUEST);
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = route_read_json(c, &info);
    err = err != ERR_OK ? err : chat_prepare(c, &p, &shows_tools, &ids, &n, &info);
    err = err != ERR_OK ? err : engine_detokenize(c->engine, ids, n, &text);
    buf_puts(&out, "{\"prompt\":");
    json_write_buf(&out, &text);
    buf_putc(&out, '}');
    err = err != ERR_OK ? err : buf_ok(&text);
    buf_fini(&text);
    send(c, err, &info, &out);
}
