/* Reads the streams in turn and writes all available output in one piece. If the client leaves, the poller cancels all
 * streams, whatever this thread is doing. */
#include "fcgi/api/generation.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/task.h"
#include "fcgi/api/llama_output.h"
#include "fcgi/api/model_names.h"
#include "fcgi/ground/log.h"
#include "fcgi/watch/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { POLL_MS = 5, MAX_CHOICES = 1024, MAX_AT_ONCE = 128, PUSH_BYTES = 16384 };

/* --- pieces of JSON --------------------------------------------------------------------------------------------- */

static void write_envelope(const struct generation *g, const char *object, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", g->id, object, g->created);
    json_write_cstr(out, g->call->server->model_id);
    buf_printf(out, ",\"system_fingerprint\":\"b" SERVER_VERSION "-fp_%016" PRIx64 "\",\"choices\":[",
               engine_model(g->call->engine)->fingerprint);
}

void generation_chunk_open(const struct generation *g, struct buf *out)
{
    buf_puts(out, "data: ");
    write_envelope(g, g->shape->chunk_object, out);
}

/* timed OPTIONAL: the choice whose timings the chunk reports. */
static void close_choices_of_chunk(const struct generation *g, const struct choice *timed, struct buf *out)
{
    buf_puts(out, g->params->include_usage ? "],\"usage\":null" : "]");
    if (timed != NULL) {
        buf_putc(out, ',');
        llama_write_timings(timed, out);
    }
}

void generation_chunk_close(const struct generation *g, struct buf *out)
{
    close_choices_of_chunk(g, g->timed, out);
    buf_puts(out, "}\n\n");
}

void generation_chunk_end(const struct generation *g, const struct choice *c, struct buf *out)
{
    close_choices_of_chunk(g, c, out);
    if (g->params->verbose) {
        buf_puts(out, ",\"__verbose\":");
        llama_write_result(g, c, out);
    }
    buf_puts(out, "}\n\n");
}

void generation_progress(struct generation *g, const struct choice *c, const char *empty, struct buf *out)
{
    generation_chunk_open(g, out);
    buf_printf(out, "{\"index\":%d,%s,\"finish_reason\":null}],", c->index, empty);
    llama_write_progress(g, c, out);
    buf_puts(out, "}\n\n");
}

void generation_count_reasoning(struct choice *c, const struct engine_event *ev)
{
    if (ev->kind == SCHED_TOKEN) {
        chat_split_count_token(&c->split);
    }
}

struct generation_usage generation_usage(const struct generation *g)
{
    struct generation_usage sum = {0};
    for (size_t i = 0; i < g->n_choices; i++) {
        const struct sched_usage *u = &g->choices[i].usage;
        sum.completion += u->completion_tokens;
        sum.reasoning += (int64_t)chat_split_reasoning_tokens(&g->choices[i].split);
        if (i % (size_t)g->params->n == 0) {
            sum.prompt += u->prompt_tokens;
            sum.cached += u->cached_tokens;
        }
    }
    return sum;
}

static void write_usage(const struct generation *g, struct buf *out)
{
    const struct generation_usage u = generation_usage(g);
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64
               ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64
               "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRId64 "}}",
               u.prompt, u.completion, u.prompt + u.completion, u.cached, u.reasoning);
}

const char *generation_finish_reason(const struct choice *c)
{
    return c->end.finish == SCHED_FINISH_LENGTH ? "length" : "stop";
}

void generation_write_token(const struct generation *g, int32_t id, struct buf *out)
{
    struct buf bytes;
    buf_init(&bytes, 0, MEM_REQUEST);
    engine_token_bytes(g->call->engine, id, &bytes);
    json_write_buf(out, &bytes);
    buf_fini(&bytes);
}

void generation_write_bytes(const struct generation *g, int32_t id, struct buf *out)
{
    struct buf bytes;
    buf_init(&bytes, 0, MEM_REQUEST);
    engine_token_bytes(g->call->engine, id, &bytes);
    buf_putc(out, '[');
    for (size_t i = 0; i < bytes.len; i++) {
        buf_printf(out, "%s%d", i == 0 ? "" : ",", (unsigned char)bytes.data[i]);
    }
    buf_putc(out, ']');
    out->err = out->err != ERR_OK ? out->err : bytes.err;
    buf_fini(&bytes);
}

static bool may_use(void *tenant, const char *name) { return tenant_may_use(tenant, name); }

/* Checks whether the tenant may use the model by one of its names. */
static bool may_use_ours(const struct call *c)
{
    const struct server *s = c->server;
    return tenant_may_use(c->tenant, s->model_id) || model_names_any(s->conf->alias, may_use, c->tenant);
}

enum err generation_check_model(const struct call *c, const char *asked, struct err_info *info)
{
    const struct server *s = c->server;
    bool is_none = asked == NULL || asked[0] == '\0';
    if (s->conf->strict_api && is_none && c->reply.dialect->requires_model) {
        return err_set(info, ERR_MISSING_PARAMETER, "model", "model: expected '%.128s', found none", s->model_id);
    }
    asked = is_none ? s->model_id : asked;
    bool is_ours = strcmp(asked, s->model_id) == 0 || model_names_have(s->conf->alias, asked);
    if (!(is_ours ? may_use_ours(c) : tenant_may_use(c->tenant, asked))) {
        return err_set(info, ERR_MODEL_NOT_FOUND, "model",
                       "model: expected one that the tenant may use, found '%.128s'", asked);
    }
    if (is_ours || s->conf->any_model) {
        return ERR_OK;
    }
    return err_set(info, ERR_MODEL_NOT_FOUND, "model", "model: expected '%.128s', found '%.128s'", s->model_id, asked);
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

/* Called by the poller: the client has left. */
static void on_gone(void *arg)
{
    struct generation *g = arg;
    pthread_mutex_lock(&g->lock);
    g->is_gone = true;
    for (size_t i = 0; i < g->n_choices; i++) {
        if (g->choices[i].stream != NULL) {
            engine_cancel(g->choices[i].stream);
        }
    }
    pthread_mutex_unlock(&g->lock);
}

/* Called by threads that observe the request. An ended choice has written its usage before its stream is closed. */
static void look(const void *arg, struct live_look *out)
{
    struct generation *g = (struct generation *)arg;
    pthread_mutex_lock(&g->lock);
    out->state = LIVE_QUEUED;
    for (size_t i = 0; i < g->n_choices; i++) {
        const struct choice *c = &g->choices[i];
        struct sched_usage u;
        if (c->stream != NULL) {
            engine_stream_look(c->stream, &u);
        } else {
            u = c->usage;
        }
        enum live_state before_text = u.processed_tokens > 0 || u.queue_ns > 0 ? LIVE_PREFILL : LIVE_QUEUED;
        out->state = MAX_OF(out->state, u.completion_tokens > 0 ? LIVE_DECODE : before_text);
        out->prompt_tokens += u.prompt_tokens;
        out->cached_tokens += u.cached_tokens;
        out->processed_tokens += u.processed_tokens;
        out->completion_tokens += u.completion_tokens;
        for (int s = 0; s < DRAFT_SOURCES; s++) {
            out->drafts[s].drafted += u.drafts[s].drafted;
            out->drafts[s].accepted += u.drafts[s].accepted;
        }
    }
    pthread_mutex_unlock(&g->lock);
}

static bool is_gone(struct generation *g)
{
    pthread_mutex_lock(&g->lock);
    bool gone = g->is_gone;
    pthread_mutex_unlock(&g->lock);
    return gone;
}

/* Returns the k-th choice to run. The choices of a prompt echo log-probabilities of its first choice, so the first
 * choices run before the others. */
static struct choice *nth_choice(struct generation *g, size_t k)
{
    size_t n = (size_t)g->params->n, n_prompts = g->n_choices / n;
    if (g->choices[0].echo == NULL || n == 1) {
        return &g->choices[k];
    }
    size_t other = k - n_prompts;
    return k < n_prompts ? &g->choices[k * n] : &g->choices[other / (n - 1) * n + other % (n - 1) + 1];
}

static bool has_echo(const struct choice *c) { return c->n_echoed == c->n_prompt; }

/* Unstreamed answers: writes the text after the echo of another choice. */
static void follow_echo(const struct generation *g, struct choice *c)
{
    if (c->echo != NULL && c->echo != c && !g->params->stream) {
        buf_append(&c->text, c->echo->text.data != NULL ? c->echo->text.data : "", c->echo->n_echo_text);
        c->n_text = c->echo->n_echo_text;
    }
}

/* Submits the next n choices. */
static enum err submit(struct generation *g, size_t n, struct err_info *info)
{
    struct engine_sequence *seqs = arena_zalloc_array(&g->call->arena, n, sizeof *seqs);
    struct engine_stream **streams = arena_zalloc_array(&g->call->arena, n, sizeof *streams);
    if (seqs == NULL || streams == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the request");
    }
    for (size_t i = 0; i < n; i++) {
        const struct choice *c = nth_choice(g, g->n_submitted + i);
        seqs[i] = (struct engine_sequence){.ids = c->prompt,
                                           .n_ids = c->n_prompt,
                                           .choice = (uint32_t)((size_t)c->index % (size_t)g->params->n),
                                           .prompt_logprobs = c->echo == c};
    }
    TRY(engine_submit_all(g->call->engine, g->group, &g->gen, seqs, n, streams, info));
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < n; i++) {
        struct choice *c = nth_choice(g, g->n_submitted++);
        c->stream = streams[i];
        follow_echo(g, c);
        if (g->is_gone) {
            engine_cancel(streams[i]);
        }
    }
    pthread_mutex_unlock(&g->lock);
    return ERR_OK;
}

/* Submits as many choices as the engine takes: at first all of these or none, later the others as choices end. */
static enum err submit_more(struct generation *g, struct err_info *info)
{
    while (g->n_submitted < g->n_choices) {
        size_t most = MIN_OF(engine_group_room(g->group), g->n_choices - g->n_submitted), n = 0;
        most = g->n_submitted == 0 ? MAX_OF(most, 1u) : most; /* the engine reports the error */
        for (; n < MIN_OF(most, (size_t)MAX_AT_ONCE); n++) {
            const struct choice *c = nth_choice(g, g->n_submitted + n);
            if (c->echo != NULL && c->echo != c && !has_echo(c->echo)) {
                break;
            }
        }
        if (is_gone(g)) {
            return ERR_CANCELLED;
        }
        enum err err = n > 0 ? submit(g, n, info) : ERR_AGAIN;
        if (err == ERR_AGAIN) {
            return ERR_OK;
        }
        TRY(err);
    }
    return ERR_OK;
}

static void note_token(struct generation *g, struct choice *c)
{
    uint64_t now = clock_now_ns();
    c->first_token_ns = c->first_token_ns != 0 ? c->first_token_ns : now;
    if (g->first_token_ns == 0) {
        g->first_token_ns = now;
        metrics_observe(METRIC_TTFT, (double)(now - g->call->reply.arrived_ns) / 1e9);
    }
    if (c->last_token_ns != 0) {
        metrics_observe(METRIC_ITL, (double)(now - c->last_token_ns) / 1e9);
    }
    c->last_token_ns = now;
}

/* Takes an event of an answer that is not streamed. */
static void gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    if (g->shape->gather != NULL) {
        g->shape->gather(g, c, ev);
    } else {
        g->shape->token(g, c, ev, NULL);
    }
}

/* Reports the prompt token to all choices that echo it. */
static void tell_prompt_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    if (!g->params->stream) {
        gather(g, c, ev);
        c->n_text += ev->text_len;
    }
    for (struct choice *o = c; g->params->stream && o < c + g->params->n; o++) {
        g->shape->token(g, o, ev, out);
        o->n_text += ev->text_len;
    }
    c->n_echoed++;
    c->n_echo_text = c->n_text;
    for (size_t k = 0; k < ARRAY_LEN(c->parts); k++) {
        c->echo_lens[k] = c->parts[k].len;
    }
}

/* Records the first error, if err is one; why OPTIONAL. */
static void fail(struct generation *g, enum err err, const struct err_info *why)
{
    if (err != ERR_OK && g->failure.code == ERR_OK) {
        err_set(&g->failure, err, why != NULL ? why->where : NULL, "%s", why != NULL ? why->text : err_text(err));
    }
}

static void close_stream(struct generation *g, struct choice *c)
{
    pthread_mutex_lock(&g->lock);
    struct engine_stream *stream = c->stream;
    c->stream = NULL;
    pthread_mutex_unlock(&g->lock);
    engine_stream_close(&stream);
}

/* The buffers of a choice that hold its answer. */
enum { N_KEPT = 5 + ARRAY_LEN(((struct choice *)0)->parts) };

static struct buf *kept_buf(struct choice *c, size_t i)
{
    struct buf *const bufs[] = {&c->text, &c->ids, &c->reasoning, &c->calls, &c->arguments};
    return i < ARRAY_LEN(bufs) ? bufs[i] : &c->parts[i - ARRAY_LEN(bufs)];
}

/* Checks that the buffers of c are complete. */
static enum err check_kept(struct choice *c)
{
    for (size_t i = 0; i < N_KEPT; i++) {
        TRY(buf_ok(kept_buf(c, i)));
    }
    return chat_split_ok(&c->split);
}

/* Ends a choice that takes longer than the request allows, after a line of it exists. */
static void check_time(const struct generation *g, struct choice *c)
{
    uint64_t limit_ns = g->params->t_max_ms > 0 ? (uint64_t)g->params->t_max_ms * 1000000u : UINT64_MAX;
    if (!c->is_out_of_time && c->has_new_line && clock_now_ns() - c->first_token_ns > limit_ns) {
        c->is_out_of_time = true;
        engine_cancel(c->stream);
    }
}

/* A choice that check_time ended is complete. */
static void accept_time_out(const struct choice *c, struct engine_event *ev)
{
    if (c->is_out_of_time && ev->err == ERR_CANCELLED) {
        ev->err = ERR_OK;
        ev->why = NULL;
        ev->finish = SCHED_FINISH_LENGTH;
    }
}

/* Reports prompt progress if the request asks for it: per choice first the cached part, and at last all of it. Returns
 * true if it reported something. */
static bool tell_progress(struct generation *g, struct choice *c, struct buf *out)
{
    if (!g->params->return_progress || !g->params->stream || g->shape->progress == NULL || c->stream == NULL ||
        c->first_token_ns != 0) {
        return false;
    }
    struct sched_usage *u = &c->usage;
    engine_stream_usage(c->stream, u);
    bool is_first = c->progress_ns == 0 && (u->processed_tokens > 0 || u->queue_ns > 0);
    if (!is_first && (c->progress_ns == 0 || u->processed_tokens <= c->n_processed)) {
        return false;
    }
    if (is_first) {
        c->progress_ns = clock_now_ns();
        c->n_processed = u->cached_tokens;
        g->shape->progress(g, c, out);
    }
    if (u->processed_tokens > c->n_processed) {
        c->n_processed = u->processed_tokens;
        g->shape->progress(g, c, out);
    }
    return true;
}

/* Checks whether the generated tokens are kept for a slot. */
static bool keeps_tokens(const struct generation *g)
{
    return g->params->id_slot >= 0 && g->params->cache_prompt && g->call->server->conf->slot_save_path != NULL;
}

/* Records the slot's content after the request's first choice has ended, before the client learns of the end. The last
 * token was not computed, so it is not in the cache. */
static void note_slot(const struct generation *g, const struct choice *c)
{
    if (keeps_tokens(g) && c == &g->choices[0] && c->end.err == ERR_OK && buf_ok(&c->made) == ERR_OK) {
        size_t n = c->made.len / sizeof(int32_t);
        const struct slots_part parts[] = {{c->prompt, c->n_prompt},
                                           {(const int32_t *)(const void *)c->made.data, n > 0 ? n - 1 : 0}};
        slots_note(g->call, g->params->id_slot, g->params->gen.cache_salt, parts);
    }
}

/* Takes one event of c, waiting up to timeout_ms. False: no event. */
static bool take_event(struct generation *g, struct choice *c, int timeout_ms, struct buf *out)
{
    struct engine_event ev;
    if (c->stream == NULL || engine_next(c->stream, timeout_ms, &ev) != ERR_OK) {
        return tell_progress(g, c, out);
    }
    tell_progress(g, c, out);
    if (ev.kind == SCHED_PROMPT_TOKEN) {
        tell_prompt_token(g, c, &ev, out);
        fail(g, check_kept(c), NULL);
        return true;
    }
    if (ev.kind == SCHED_TOKEN) {
        note_token(g, c);
        if (g->params->return_token_ids) {
            buf_printf(&c->ids, "%s%d", c->ids.len == 0 ? "" : ",", ev.token.id);
        }
    }
    c->has_new_line = c->has_new_line || (ev.text_len > 0 && memchr(ev.text, '\n', ev.text_len) != NULL);
    if (ev.kind == SCHED_TOKEN && keeps_tokens(g)) {
        buf_append(&c->made, (const char *)&ev.token.id, sizeof ev.token.id);
    }
    if (ev.kind == SCHED_END) {
        accept_time_out(c, &ev);
        c->end = ev;
        c->end.stop_match = ev.stop_match != NULL ? g->gen.stop[ev.i_stop] : NULL; /* which outlives the stream */
        c->has_ended = true;
        fail(g, ev.err, ev.why);
        note_slot(g, c);
    }
    if (ev.kind == SCHED_END || g->params->timings_per_token) {
        engine_stream_usage(c->stream, &c->usage);
    }
    g->timed = g->params->timings_per_token ? c : NULL;
    if (ev.kind != SCHED_END || ev.text_len > 0) {
        if (g->params->stream) {
            g->shape->token(g, c, &ev, out);
        } else {
            gather(g, c, &ev);
        }
        c->n_text += ev.text_len;
    }
    fail(g, check_kept(c), NULL);
    if (ev.kind == SCHED_END) {
        if (ev.err == ERR_OK && g->params->stream) {
            g->shape->finish(g, c, out);
        }
        metrics_note_sequence(&c->usage);
        close_stream(g, c); /* its memory gets reused */
    } else {
        check_time(g, c);
    }
    g->timed = NULL;
    return true;
}

/* Takes the available events of all choices until little more than PUSH_BYTES are written, waiting up to wait_ms for
 * the first. *n_open counts the choices that are running or not yet submitted. */
static bool take_events(struct generation *g, int wait_ms, struct buf *out, size_t *n_open)
{
    bool any = false;
    struct choice *waited_for = NULL;
    task_note("answer");
    *n_open = 0;
    for (size_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        while (out->len < PUSH_BYTES && take_event(g, c, 0, out)) {
            any = true;
        }
        *n_open += !c->has_ended;
        waited_for = waited_for == NULL && c->stream != NULL ? c : waited_for;
    }
    if (any || waited_for == NULL) {
        return any;
    }
    /* A single choice can be waited for without limit. With several, or while the prompt's progress is watched, the
     * wait is short. */
    bool is_watched = g->params->return_progress && waited_for->first_token_ns == 0;
    return take_event(g, waited_for, *n_open > 1 || is_watched ? POLL_MS : wait_ms, out);
}

/* Submits the next choices if there is room. Returns false after an error. */
static bool go_on(struct generation *g)
{
    struct err_info why = {0};
    enum err err = g->failure.code == ERR_OK ? submit_more(g, &why) : ERR_OK;
    fail(g, err, why.code == err ? &why : NULL);
    return g->failure.code == ERR_OK;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* Sends the content of out. Returns false after the answer was cut off. */
static bool push(struct generation *g, struct buf *out)
{
    uint64_t begin = clock_now_ns();
    fail(g, reply_push(&g->call->reply, out), NULL);
    g->call->reply.stages.reader_ns += clock_now_ns() - begin;
    buf_reset(out);
    return g->failure.code == ERR_OK;
}

void generation_done(struct generation *g, struct buf *out)
{
    if (g->params->include_usage) {
        buf_puts(out, "data: ");
        write_envelope(g, g->shape->chunk_object, out);
        buf_puts(out, "],");
        write_usage(g, out);
        buf_putc(out, ',');
        llama_write_timings(&g->choices[0], out);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

void generation_whole(struct generation *g, struct buf *out)
{
    write_envelope(g, g->shape->object, out);
    for (size_t i = 0; i < g->n_choices; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        g->shape->choice(g, &g->choices[i], out);
    }
    buf_puts(out, "],");
    write_usage(g, out);
    buf_putc(out, ',');
    llama_write_timings(&g->choices[0], out);
    if (g->params->verbose) {
        buf_puts(out, ",\"__verbose\":");
        llama_write_result(g, &g->choices[0], out);
    }
    buf_putc(out, '}');
}

static void open_answer(struct generation *g, struct buf *out)
{
    if (g->shape->begin != NULL) {
        g->shape->begin(g, out);
    }
    for (size_t i = 0; i < g->n_choices && g->shape->open != NULL; i++) {
        g->shape->open(g, &g->choices[i], out);
    }
    if (out->len == 0 && g->shape->ping == NULL) {
        buf_puts(out, ": ok\n\n");
    }
}

/* Writes the error into the stream; nothing follows it. */
static void break_off(struct generation *g, struct buf *out)
{
    struct reply *r = &g->call->reply;
    if (g->shape->broken == NULL) {
        reply_break_off(r, g->failure.code, &g->failure);
        return;
    }
    buf_reset(out);
    g->shape->broken(g, out);
    reply_break_off_with(r, g->failure.code, out);
}

static void tick(struct generation *g, struct buf *out)
{
    if (g->shape->tick != NULL) {
        g->shape->tick(g, out);
    } else {
        buf_puts(out, g->shape->ping != NULL ? g->shape->ping : ": ping\n\n");
    }
}

/* Writes events until all choices have ended or an error cuts them off. */
static void stream_answer(struct generation *g, struct buf *out)
{
    int ping_ms = (int)g->call->server->conf->ping_s * 1000;
    fail(g, reply_start_stream(&g->call->reply, g->shape->stream_type), NULL);
    open_answer(g, out);
    bool goes_on = push(g, out);
    uint64_t last_write_ns = clock_now_ns();
    for (size_t n_open = 1; goes_on && n_open > 0;) {
        if (!take_events(g, ping_ms, out, &n_open) && clock_now_ns() - last_write_ns >= (uint64_t)ping_ms * 1000000u) {
            tick(g, out);
        }
        if (out->len > 0 || buf_ok(out) != ERR_OK) {
            goes_on = push(g, out);
            last_write_ns = clock_now_ns();
        }
        goes_on = goes_on && go_on(g);
    }
    if (goes_on && g->shape->done != NULL) {
        g->shape->done(g, out);
        goes_on = push(g, out);
    }
    if (!goes_on) {
        break_off(g, out);
    }
}

/* Called after all choices have ended or one failed. */
static void note_stages(struct generation *g)
{
    struct reply_stages *s = &g->call->reply.stages;
    const struct generation_usage u = generation_usage(g);
    for (size_t i = 0; i < g->n_choices; i++) {
        const struct sched_usage *of = &g->choices[i].usage;
        s->queue_ns = MAX_OF(s->queue_ns, of->queue_ns);
        s->prefill_ns = MAX_OF(s->prefill_ns, of->prefill_ns);
        s->decode_ns = MAX_OF(s->decode_ns, of->decode_ns);
    }
    s->prompt_tokens = u.prompt;
    s->cached_tokens = u.cached;
    s->completion_tokens = u.completion;
    s->is_known = true;
}

static void whole_answer(struct generation *g, struct buf *out)
{
    bool goes_on = true;
    for (size_t n_open = 1; goes_on && n_open > 0;) {
        take_events(g, 1000, out, &n_open);
        goes_on = go_on(g);
    }
    if (!goes_on) {
        reply_error(&g->call->reply, g->failure.code, &g->failure);
        return;
    }
    note_stages(g);
    g->shape->whole(g, out);
    if (buf_ok(out) != ERR_OK) {
        reply_error(&g->call->reply, ERR_NOMEM, NULL);
    } else {
        reply_send(&g->call->reply, 200, "application/json", out);
    }
}

static void log_generation(struct generation *g)
{
    note_stages(g);
    char text[SCHED_WAITS_BYTES];
    struct sched_waits waits = {0}; /* the longest waits of any sequence */
    const struct sched_usage *u = &g->choices[0].usage;
    uint64_t arrived = g->call->reply.arrived_ns, now = clock_now_ns();
    metrics_observe(METRIC_E2E, (double)(now - arrived) / 1e9);
    metrics_observe(METRIC_QUEUE_TIME, (double)u->queue_ns / 1e9);
    for (size_t i = 0; i < g->n_choices; i++) {
        sched_waits_raise(&waits, &g->choices[i].usage.waits);
    }
    log_line(
        "info",
        "generation id=%s tenant=%s stream=%d choices=%zu prompt_tokens=%d cached_tokens=%d completion_tokens=%d ttft_ms=%" PRIu64
        " total_ms=%" PRIu64 " waited_ms=%s",
        g->call->reply.id, call_tenant(g->call), g->params->stream, g->n_choices, u->prompt_tokens, u->cached_tokens,
        u->completion_tokens, g->first_token_ns != 0 ? (g->first_token_ns - arrived) / 1000000u : 0,
        (now - arrived) / 1000000u, sched_waits_text(&waits, text));
}

/* Records the usage, also if the client left before the end. */
static void note_usage(struct generation *g)
{
    struct call_usage *u = &g->call->usage;
    for (size_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        if (c->stream != NULL) {
            engine_stream_usage(c->stream, &c->usage);
        }
        u->tokens.computed +=
            MAX_OF(c->usage.processed_tokens - c->usage.cached_tokens, 0) + c->usage.completion_tokens;
    }
    struct generation_usage sum = generation_usage(g);
    u->tokens.prompt = sum.prompt;
    u->tokens.cached = sum.cached;
    u->tokens.completion = sum.completion;
    u->tokens.reasoning = sum.reasoning;
    const struct choice *first = &g->choices[0];
    u->queue_ns = first->usage.queue_ns;
    u->prefill_ns = first->usage.prefill_ns;
    u->decode_ns = first->usage.decode_ns;
    if (g->n_submitted > 0) {
        bool is_whole = g->failure.code == ERR_OK && first->has_ended;
        const char *reason = first->n_calls > 0 ? "tool_calls" : generation_finish_reason(first);
        u->finish = is_whole ? reason : "error";
    }
}

static void close_choices(struct generation *g)
{
    for (size_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        close_stream(g, c);
        buf_fini(&c->made);
        chat_split_fini(&c->split);
        for (size_t k = 0; k < N_KEPT; k++) {
            buf_fini(kept_buf(c, k));
        }
    }
    engine_group_close(&g->group);
}

const char *generation_salt(const struct call *c, const char *own, char text[APIKEY_SALT_BYTES])
{
    return c->server->conf->share_cache ? own : apikey_salt(&c->caller, own, text);
}

/* Runs before the first submit: a stream that has begun cannot send an error status. */
static enum err check_prompts(const struct generation *g, struct err_info *info)
{
    for (size_t i = 0; i < g->n_choices; i += (size_t)g->params->n) {
        TRY(engine_check_submit(g->call->engine, g->choices[i].prompt, g->choices[i].n_prompt, &g->gen, info));
    }
    return ERR_OK;
}

static enum err reserve_prompts(const struct generation *g, struct err_info *info)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->n_choices; i += (size_t)g->params->n) {
        n += (int64_t)g->choices[i].n_prompt;
    }
    return call_reserve(g->call, n, info);
}

static void answer(struct generation *g)
{
    struct err_info info = {0};
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = check_prompts(g, &info);
    err = err != ERR_OK ? err : reserve_prompts(g, &info);
    err = err != ERR_OK ? err : submit_more(g, &info);
    if (err != ERR_OK) {
        if (err == ERR_OVERLOADED) {
            call_set_retry_after(g->call);
        }
        for (size_t i = 0; i < g->n_choices; i++) {
            reply_note_context(&g->call->reply, g->choices[i].n_prompt, engine_model(g->call->engine)->n_ctx);
        }
        if (strcmp(info.where, "prompt") == 0) { /* the engine has one name for all prompts */
            snprintf(info.where, sizeof info.where, "%s", g->shape->prompt_field);
        }
        reply_error(&g->call->reply, err, &info);
    } else {
        gate_leave(&g->call->reply.gate); /* the rest only waits for the engine */
        fastcgi_watch(g->call->reply.request, on_gone, g);
        (g->params->stream ? stream_answer : whole_answer)(g, &out);
        fastcgi_watch(g->call->reply.request, NULL, NULL);
        log_generation(g);
    }
    buf_fini(&out);
}

/* Sets the maximum length of answers if the operator's or the tenant's is shorter than the request's. */
static void limit_tokens(const struct call *c, struct params *p)
{
    int64_t most = c->server->conf->limit_predict, of_tenant = tenant_max_tokens(c->tenant);
    if (most > 0 && p->gen.max_tokens < 0) {
        p->gen.max_tokens = (int32_t)most;
    }
    if (of_tenant > 0 && (p->gen.max_tokens < 0 || p->gen.max_tokens > of_tenant)) {
        p->gen.max_tokens = (int32_t)of_tenant;
    }
}

void generation_run(struct call *c, struct params *p, const struct shape *shape, void *arg,
                    const struct prompts *prompts)
{
    struct generation g = {.call = c, .params = p, .shape = shape, .arg = arg, .created = clock_unix_seconds()};
    size_t n = prompts->n * (size_t)p->n;
    if (n > MAX_CHOICES) {
        err_set(&g.failure, ERR_INVALID_VALUE, "n", "expected at most %d sequences in one request, found %zu",
                MAX_CHOICES, n);
        reply_error(&c->reply, ERR_INVALID_VALUE, &g.failure);
        return;
    }
    snprintf(g.id, sizeof g.id, "%s%016" PRIx64 "%08" PRIx32, shape->id_prefix, rng_fresh_seed(),
             (uint32_t)rng_fresh_seed());
    g.choices = arena_zalloc_array(&c->arena, n, sizeof *g.choices);
    struct sched_share share = call_share(c);
    if (g.choices == NULL || engine_group_open(c->engine, &share, n, &g.group) != ERR_OK) {
        reply_error(&c->reply, ERR_NOMEM, NULL);
        return;
    }
    g.n_choices = n;
    limit_tokens(c, p);
    g.gen = p->gen;
    g.gen.cache_salt =
        generation_salt(c, p->cache_prompt ? slots_salt(c, p->id_slot, g.gen.cache_salt, g.slot_salt) : g.id, g.salt);
    g.gen.keeps_no_snapshots = !p->cache_prompt;
    g.gen.deadline_ns = c->deadline_ns;
    for (size_t i = 0; i < n; i++) {
        struct choice *choice = &g.choices[i];
        choice->index = (int)i;
        choice->prompt = prompts->ids[i / (size_t)p->n];
        choice->n_prompt = prompts->n_ids[i / (size_t)p->n];
        choice->echo = p->gen.prompt_logprobs ? &g.choices[i / (size_t)p->n * (size_t)p->n] : NULL;
        buf_init(&choice->made, 0, MEM_REQUEST);
        chat_split_init(&choice->split, &p->split);
        for (size_t k = 0; k < N_KEPT; k++) {
            buf_init(kept_buf(choice, k), 0, MEM_REQUEST);
        }
    }
    pthread_mutex_init(&g.lock, NULL);
    live_watch(&c->live, look, &g);
    answer(&g);
    live_watch(&c->live, NULL, NULL);
    note_usage(&g);
    close_choices(&g);
    pthread_mutex_destroy(&g.lock);
}
