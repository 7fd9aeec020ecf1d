/* POST /v1/responses and /v1/responses/input_tokens: OpenAI's Responses API, on top of the code of chat completions. */
#include "engine/base/json_write.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/openai/openai.h"
#include "fcgi/api/openai/responses_input.h"
#include "fcgi/api/openai/responses_output.h"
#include "fcgi/api/openai/responses_refs.h"
#include "fcgi/api/openai/responses_store.h"
#include "fcgi/api/tool_choice.h"
#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

/* --- fields ----------------------------------------------------------------------------------------------------- */

/* What the fields of a body are read into. */
struct ask {
    struct params params; /* first, for params_read */
    bool store;
    const char *previous;   /* previous_response_id, or NULL */
    int64_t max_tool_calls; /* of tools that the server runs; infcgi runs none */
};

/* Rows marked custom are read below, by responses_input.h or by params_read. */
static const struct field fields[] = {
    {"stream", FIELD_BOOL, PARAMS_AT(stream), 0, 0},
    {"store", FIELD_BOOL, offsetof(struct ask, store), 0, 0},
    {"previous_response_id", FIELD_STRING, offsetof(struct ask, previous), 0, 256},
    {"model", FIELD_STRING, PARAMS_AT(model), 0, 4096},
    {"input", FIELD_CUSTOM, 0, 0, 0},
    {"instructions", FIELD_CUSTOM, 0, 0, 0},
    {"max_output_tokens", FIELD_INT32, PARAMS_AT(gen.max_tokens), -1, PARAMS_INT32_TOP},
    PARAMS_SAMPLING,
    {"stop", FIELD_CUSTOM, 0, 0, 0},
    {"logit_bias", FIELD_CUSTOM, 0, 0, 0},
    {"ignore_eos", FIELD_BOOL, PARAMS_AT(gen.ignore_eos), 0, 0},
    {"cache_salt", FIELD_STRING, PARAMS_AT(gen.cache_salt), 0, APIKEY_CLIENT_SALT_BYTES},
    {"chat_template_kwargs", FIELD_CUSTOM, 0, 0, 0},
    PARAMS_THINKING,
    {"parallel_tool_calls", FIELD_CUSTOM, 0, 0, 0},
    {"tools", FIELD_CUSTOM, 0, 0, 0},
    {"tool_choice", FIELD_CUSTOM, 0, 0, 0},
    {"text", FIELD_CUSTOM, 0, 0, 0},
    {"reasoning", FIELD_CUSTOM, 0, 0, 0},
    {"top_logprobs", FIELD_INT, PARAMS_AT(top_logprobs), 0, SAMPLER_MAX_TOP},
    {"return_progress", FIELD_BOOL, PARAMS_AT(return_progress), 0, 0},
    {"timings_per_token", FIELD_BOOL, PARAMS_AT(timings_per_token), 0, 0},
    {"metadata", FIELD_CUSTOM, 0, 0, 0},
    {"include", FIELD_CUSTOM, 0, 0, 0},
    {"truncation", FIELD_CUSTOM, 0, 0, 0},
    {"user", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"max_tool_calls", FIELD_INT, offsetof(struct ask, max_tool_calls), 0, INT32_MAX},
    {"service_tier", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"safety_identifier", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"prompt_cache_key", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"prompt_cache_retention", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"prompt_cache_options", FIELD_IGNORED, 0, 0, 0},
    {"client_metadata", FIELD_IGNORED, 0, 0, 0},
    {"stream_options", FIELD_IGNORED, 0, 0, 0},
    {"context_management", FIELD_IGNORED, 0, 0, 0},
    {"background", FIELD_REFUSED, 0, 0, 0},
    {"conversation", FIELD_REFUSED, 0, 0, 0},
    {"prompt", FIELD_REFUSED, 0, 0, 0},
    {"moderation", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_responses = {"responses", fields, ARRAY_LEN(fields)};

/* Checks OpenAI's limits, in characters. */
static enum err check_metadata(const json_t *body, struct err_info *info)
{
    enum { MAX_PAIRS = 16, MAX_KEY = 64, MAX_VALUE = 512 };
    const json_t *metadata = json_read_get(body, "metadata");
    const char *key;
    json_t *value;
    if (metadata != NULL && (!json_is_object(metadata) || json_object_size(metadata) > MAX_PAIRS)) {
        return turn_refuse(metadata, JSON_OBJECT, "metadata", "an object of at most 16 strings", info);
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        size_t n = json_in_count(key, strlen(key));
        if (n > MAX_KEY) {
            return err_set(info, ERR_INVALID_VALUE, "metadata",
                           "metadata: expected keys of at most %d characters, found %zu", MAX_KEY, n);
        }
        if (!json_is_string(value) || json_in_characters(value) > MAX_VALUE) {
            return json_in_refuse(ERR_INVALID_VALUE, "metadata", "strings of at most 512 characters", value, info);
        }
    }
    return ERR_OK;
}

/* Checks the strings that the response repeats, in objects of which nothing else is read. */
static enum err check_labels(const json_t *body, struct err_info *info)
{
    static const char *const rows[][3] = {{"reasoning", "summary", "reasoning.summary"},
                                          {"reasoning", "generate_summary", "reasoning.generate_summary"},
                                          {"text", "verbosity", "text.verbosity"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const json_t *v = json_read_get(json_read_get(body, rows[i][0]), rows[i][1]);
        if (v != NULL && (!json_is_string(v) || json_in_characters(v) > JSON_IN_LABEL_CHARS)) {
            return turn_refuse(v, JSON_STRING, rows[i][2], "a string of at most 512 characters", info);
        }
    }
    return ERR_OK;
}

static enum err check_include(const json_t *body, struct err_info *info)
{
    const json_t *include = json_read_get(body, "include");
    bool ok = include == NULL || json_is_array(include);
    for (size_t i = 0; i < json_array_size(include); i++) {
        ok = ok && json_is_string(json_array_get(include, i));
    }
    return ok ? ERR_OK : turn_refuse(include, JSON_ARRAY, "include", "an array of strings", info);
}

static enum err read_ask(struct call *c, struct ask *ask, struct err_info *info)
{
    const json_t *body = c->json, *truncation = json_read_get(body, "truncation");
    struct params *p = &ask->params;
    TRY(params_read(p, c, &fields_of_responses, body, info));
    p->has_begin = true; /* an item is never continued */
    p->want_logprobs = p->top_logprobs >= 0 || responses_includes(body, "message.output_text.logprobs");
    if (p->want_logprobs) {
        p->gen.sampling.n_top = (int32_t)MAX_OF(p->top_logprobs, 0);
    }
    TRY(check_metadata(body, info));
    TRY(check_labels(body, info));
    TRY(check_include(body, info));
    if (truncation != NULL && !json_read_is(truncation, "auto") && !json_read_is(truncation, "disabled")) {
        return turn_refuse(truncation, JSON_STRING, "truncation", "\"auto\" or \"disabled\"", info);
    }
    return ERR_OK;
}

/* --- request fields that a response repeats ----------------------------------------------------------------------- */

/* Writes the member, or `otherwise` if it is absent. */
static void repeat(const json_t *object, const char *name, const char *otherwise, struct buf *out)
{
    const json_t *v = json_read_get(object, name);
    buf_printf(out, "\"%s\":", name);
    if (v != NULL) {
        json_write_value(out, v, false);
    } else {
        buf_puts(out, otherwise);
    }
}

/* Writes the functions with all their members, null if the request omitted them. */
static void repeat_tools(const json_t *body, struct buf *out)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    const json_t *tools = json_object_get(body, "tools");
    buf_puts(out, "\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        buf_puts(out, i == 0 ? "" : ",");
        if (!json_read_is(json_object_get(tool, "type"), "function")) {
            json_write_value(out, tool, false);
            continue;
        }
        buf_puts(out, "{\"type\":\"function\"");
        for (size_t k = 0; k < ARRAY_LEN(members); k++) {
            buf_putc(out, ',');
            repeat(tool, members[k], "null", out);
        }
        buf_putc(out, '}');
    }
    buf_puts(out, "],");
}

static void repeat_sampling(const struct params *p, struct buf *out)
{
    const struct {
        const char *name;
        float value;
    } rows[] = {
        {"temperature", p->gen.sampling.temperature},
        {"top_p", p->gen.sampling.top_p},
        {"presence_penalty", p->gen.sampling.presence_penalty},
        {"frequency_penalty", p->gen.sampling.frequency_penalty},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_printf(out, "\"%s\":", rows[i].name);
        json_write_setting(out, rows[i].value);
        buf_putc(out, ',');
    }
}

static void write_echo(const struct call *c, const json_t *body, const struct params *p, bool is_kept, struct buf *out)
{
    static const char *const rows[][2] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"max_tool_calls", "null"},
        {"metadata", "{}"},
        {"previous_response_id", "null"},
        {"prompt_cache_key", "null"},
        {"safety_identifier", "null"},
        {"tool_choice", "\"auto\""},
        {"top_logprobs", "0"},
        {"user", "null"},
    };
    const json_t *reasoning = json_read_get(body, "reasoning"), *text = json_read_get(body, "text");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        repeat(body, rows[i][0], rows[i][1], out);
        buf_putc(out, ',');
    }
    bool is_parallel = tool_choice_is_parallel(&p->tools, engine_tool_format(c->engine));
    buf_printf(out, "\"parallel_tool_calls\":%s,", is_parallel ? "true" : "false");
    repeat_tools(body, out);
    repeat_sampling(p, out);
    buf_puts(out, "\"reasoning\":{");
    repeat(reasoning, "effort", "null", out);
    buf_putc(out, ',');
    repeat(reasoning, "summary", "null", out);
    buf_puts(out, "},\"text\":{");
    repeat(text, "format", "{\"type\":\"text\"}", out);
    if (json_read_get(text, "verbosity") != NULL) {
        buf_putc(out, ',');
        repeat(text, "verbosity", "null", out);
    }
    buf_printf(out, "},\"store\":%s,\"background\":false,\"service_tier\":\"default\",\"truncation\":\"disabled\"",
               is_kept ? "true" : "false");
}

/* --- shape ------------------------------------------------------------------------------------------------------ */

/* State of a request; arg of the shape. */
struct answering {
    struct ask ask;
    struct responses_output output;
    struct buf echo;
    json_t *past;     /* owned: items of the response that this one continues; NULL: none */
    json_t *items;    /* owned: the input as items */
    bool is_kept;     /* keep the response after its end */
    struct buf input; /* kept: the items as JSON */
    char previous[RESPONSES_ID_BYTES];
};

static struct responses_output *output_of(const struct generation *g, struct buf *out)
{
    struct answering *a = g->arg;
    a->output.out = out;
    return &a->output;
}

static void begin(struct generation *g, struct buf *out) { responses_output_begin(output_of(g, out)); }

static void tick(struct generation *g, struct buf *out) { responses_output_tick(output_of(g, out)); }

/* out NULL: no events are needed. */
static void token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    struct responses_output *o = output_of(g, out);
    o->timed = out != NULL ? g->timed : NULL;
    responses_output_token(o, g, ev);
    chat_split_feed(&c->split, ev->text, ev->text_len, responses_output_part, o);
    generation_count_reasoning(c, ev);
    o->timed = NULL;
    if (out != NULL && out->err == ERR_OK) {
        out->err = responses_output_ok(o);
    }
}

/* out NULL: no events are needed. */
static enum err finish(struct generation *g, struct choice *c, struct buf *out)
{
    struct responses_output *o = output_of(g, out);
    chat_split_finish(&c->split, responses_output_part, o);
    responses_output_close(o, c->end.finish == SCHED_FINISH_LENGTH);
    TRY(chat_split_ok(&c->split));
    return responses_output_ok(o);
}

static void finish_choice(struct generation *g, struct choice *c, struct buf *out)
{
    enum err err = finish(g, c, out);
    out->err = out->err != ERR_OK ? out->err : err;
}

static struct responses_end end_of(const struct generation *g, const struct generation_usage *usage)
{
    bool is_cut = g->choices[0].end.finish == SCHED_FINISH_LENGTH;
    return (struct responses_end){.status = is_cut ? "incomplete" : "completed", .usage = usage};
}

/* Runs before the client learns of the end, so that its next request finds the response. If memory is out, the response
 * is not kept but still sent. */
static void keep(const struct generation *g, const struct responses_end *end)
{
    struct answering *a = g->arg;
    struct buf response;
    if (!a->is_kept) {
        return;
    }
    buf_init(&response, 0, MEM_REQUEST);
    responses_output_write(&a->output, end, &response);
    const struct sched_share share = call_share(g->call);
    const struct responses_owner owner = {.id = g->call->caller, .share = share.key, .weight = share.weight};
    a->is_kept = responses_store_put(&owner, a->output.id, a->previous[0] != '\0' ? a->previous : NULL, &response,
                                     &a->input, &a->output.items) == ERR_OK;
    buf_fini(&response);
}

static void done(struct generation *g, struct buf *out)
{
    const struct generation_usage usage = generation_usage(g);
    struct responses_end end = end_of(g, &usage);
    end.timed = g->params->timings_per_token ? &g->choices[0] : NULL;
    keep(g, &end);
    responses_output_end(output_of(g, out), &end);
}

static void whole(struct generation *g, struct buf *out)
{
    const struct generation_usage usage = generation_usage(g);
    const struct responses_end end = end_of(g, &usage);
    enum err err = finish(g, &g->choices[0], NULL);
    keep(g, &end);
    responses_output_write(output_of(g, NULL), &end, out);
    out->err = out->err != ERR_OK ? out->err : err;
}

static void broken(struct generation *g, struct buf *out)
{
    const struct responses_end end = {.status = "failed", .failure = &g->failure};
    responses_output_end(output_of(g, out), &end);
}

static void progress(struct generation *g, struct choice *c, struct buf *out)
{
    responses_output_progress(output_of(g, out), g, c);
}

static const struct shape shape = {
    .id_prefix = "resp_",
    .prompt_field = "input",
    .tick = tick,
    .begin = begin,
    .token = token,
    .finish = finish_choice,
    .done = done,
    .whole = whole,
    .progress = progress,
    .broken = broken,
};

/* --- endpoints -------------------------------------------------------------------------------------------------- */

static enum err find_previous(const struct call *c, struct answering *a, struct err_info *info)
{
    const char *id = a->ask.previous;
    if (id == NULL) {
        return ERR_OK;
    }
    enum err err = responses_store_items(&c->caller, id, true, &a->past);
    if (err == ERR_RESPONSE_NOT_FOUND) {
        err_set(info, err, "previous_response_id", "previous_response_id: no response with the id '%.64s' is kept", id);
    }
    snprintf(a->previous, sizeof a->previous, "%s", id);
    return err;
}

/* Replaces references by kept items; other references are rejected later. */
static enum err find_items(const struct call *c, struct answering *a, struct err_info *info)
{
    const json_t *input = json_object_get(c->json, "input");
    if (!json_is_array(input)) {
        return ERR_OK;
    }
    if (json_array_size(input) > RESPONSES_MAX_ITEMS) { /* rejected later */
        return ERR_OK;
    }
    a->items = responses_items(input);
    TRY_MEM(a->items != NULL);
    TRY(responses_refs_resolve(&c->caller, a->items, (size_t)c->server->conf->body_limit_kib * 1024, info));
    return json_object_set(c->json, "input", a->items) == 0 ? ERR_OK : ERR_NOMEM;
}

/* Messages and prompt are made from the input: an error in them is one in it. */
static void name_input(struct err_info *info)
{
    const struct err_info was = *info;
    bool is_message = strncmp(was.where, "messages", strlen("messages")) == 0;
    size_t n = is_message ? strlen(was.where) : strlen("prompt");
    if (is_message || strcmp(was.where, "prompt") == 0) {
        bool has_place = strncmp(was.text, was.where, n) == 0;
        err_set(info, was.code, "input", "%s%s", has_place ? "input" : "", was.text + (has_place ? n : 0));
    }
}

static enum err prepare(struct call *c, struct answering *a, struct err_info *info)
{
    struct params *p = &a->ask.params;
    TRY(call_read_json(c, info));
    TRY(read_ask(c, &a->ask, info));
    TRY(find_previous(c, a, info));
    TRY(find_items(c, a, info));
    TRY(responses_read(c->json, a->past, p, info));
    enum err err = chat_prepare(c, p, info);
    if (err != ERR_OK) {
        name_input(info);
    }
    return err;
}

/* Gives the items types, and ids by which requests can refer to them. */
static enum err name_items(json_t *items, const char *response_id)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        char id[RESPONSES_ITEM_ID_BYTES];
        snprintf(id, sizeof id, "in_%.24s_%zu", response_id + strlen("resp_"), i);
        bool ok = json_read_get(item, "id") != NULL || json_object_set_new(item, "id", json_string(id)) == 0;
        ok = ok &&
             (json_read_get(item, "type") != NULL || json_object_set_new(item, "type", json_string("message")) == 0);
        TRY(ok ? ERR_OK : ERR_NOMEM);
    }
    return ERR_OK;
}

/* Writes the part of the input that will be kept. */
static void set_up_keeping(const struct call *c, struct answering *a)
{
    if (a->items == NULL) {
        a->items = responses_items(json_object_get(c->json, "input"));
    }
    a->is_kept = a->items != NULL && name_items(a->items, a->output.id) == ERR_OK;
    for (size_t i = 0; a->is_kept && i < json_array_size(a->items); i++) {
        buf_puts(&a->input, i == 0 ? "" : "\n");
        json_write_value(&a->input, json_array_get(a->items, i), false);
    }
}

static void drop_items(struct answering *a)
{
    json_decref(a->past);
    json_decref(a->items);
    a->past = a->items = NULL;
}

static void set_up_output(const struct call *c, struct answering *a)
{
    struct responses_output *o = &a->output;
    const struct params *p = &a->ask.params;
    bool is_kept = a->ask.store && responses_store_is_on();
    if (is_kept) {
        set_up_keeping(c, a);
    }
    write_echo(c, c->json, p, is_kept, &a->echo);
    o->model = c->server->model_id;
    o->echo = &a->echo;
    o->names = p->tools.names;
    o->seals_thoughts = responses_includes(c->json, "reasoning.encrypted_content");
    const json_t *reasoning = json_object_get(c->json, "reasoning");
    o->sums_up = json_read_get(reasoning, "summary") != NULL || json_read_get(reasoning, "generate_summary") != NULL;
    o->tells_logprobs = p->want_logprobs;
    drop_items(a);
}

/* Reports an overlong conversation in a stream: Codex shortens its conversation after an event, not after an error
 * status. */
static void stream_refusal(struct call *c, struct answering *a, const struct err_info *why)
{
    struct buf out;
    struct err_info named = *why;
    const struct responses_end end = {.status = "failed", .failure = &named};
    name_input(&named);
    buf_init(&out, 0, MEM_REQUEST);
    a->output.out = &out;
    if (reply_start_stream(&c->reply, NULL) == ERR_OK) {
        responses_output_begin(&a->output);
        responses_output_end(&a->output, &end);
        reply_break_off_with(&c->reply, why->code, &out);
    }
    buf_fini(&out);
}

static void answer(struct call *c, struct answering *a)
{
    struct err_info info = {0};
    struct params *p = &a->ask.params;
    set_up_output(c, a);
    enum err err = buf_ok(&a->echo);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, NULL);
        return;
    }
    err = engine_check_submit(c->engine, p->prompt, p->n_prompt, &p->gen, &info);
    if (err == ERR_CONTEXT_LENGTH && p->stream) {
        stream_refusal(c, a, &info);
    } else { /* the stream reports other errors */
        chat_answer(c, p, &shape, a);
    }
}

static void finish_call(struct answering *a)
{
    params_fini(&a->ask.params);
    responses_output_fini(&a->output);
    drop_items(a);
    buf_fini(&a->echo);
    buf_fini(&a->input);
}

static void start_call(const struct call *c, struct answering *a)
{
    *a = (struct answering){.ask = {.store = true}};
    params_init(&a->ask.params, c);
    responses_output_init(&a->output);
    buf_init(&a->echo, 0, MEM_REQUEST);
    buf_init(&a->input, 0, MEM_REQUEST);
}

void api_responses(struct call *c)
{
    struct err_info info = {0};
    struct answering a;
    start_call(c, &a);
    enum err err = prepare(c, &a, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        answer(c, &a);
    }
    finish_call(&a);
}

void api_responses_count(struct call *c)
{
    struct err_info info = {0};
    struct answering a;
    struct buf out;
    start_call(c, &a);
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = prepare(c, &a, &info);
    buf_printf(&out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", a.ask.params.n_prompt);
    reply_json(&c->reply, err, &info, &out);
    finish_call(&a);
}
