/* Streams: turns sampled tokens into text and events. Stop strings and detokenising run here, in the reader's thread,
 * so that the scheduler only handles ids. */
#include "engine/engine_internal.h"

#include "engine/base/rng.h"
#include "engine/chat/chat_budget.h"
#include "engine/sample/stop.h"

#include <math.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30, SUBMISSION_BYTES = 4096 };

/* A token whose text is not fully released. */
struct pending {
    struct sampler_result token;
    size_t text_end; /* offset after its text, from the start of the stream's text */
};

enum { FEW_PENDING = 8 }; /* all held tokens except this many hold at least one byte of a possible stop string */

struct engine_stream {
    struct engine *engine;
    struct sched_seq *seq;
    struct detokenizer detok;
    struct stop stop;
    bool show_special, has_ended, is_stopped;
    bool lacks_text;          /* memory ran out: the text no longer matches the tokens */
    size_t n_decoded;         /* bytes of text so far, released or held */
    size_t n_released;        /* bytes returned */
    struct buf text;          /* of the last event returned */
    struct buf decoded;       /* scratch */
    struct engine_event end;  /* the final event, once is_stopped */
    int32_t n_taken;          /* tokens read from the scheduler */
    int32_t n_cut;            /* tokens sampled but cut off by a stop string */
    struct sched_usage usage; /* frozen at the end */
    char *stop_text;          /* the stop strings, each NUL-terminated; in this block, after pending */
    int n_pending, max_pending;
    struct pending pending[]; /* [max_pending] */
};

void engine_params_init(const struct engine *e, struct engine_params *p)
{
    const struct engine_sampling *s = &e->info.sampling;
    *p = (struct engine_params){.sampling = {.temperature = (float)s->temperature,
                                             .top_k = (int32_t)s->top_k,
                                             .top_p = (float)s->top_p,
                                             .min_p = (float)s->min_p,
                                             .typical_p = (float)s->typical_p,
                                             .repeat_penalty = (float)s->repeat_penalty,
                                             .repeat_last_n = (int32_t)s->repeat_last_n,
                                             .presence_penalty = (float)s->presence_penalty,
                                             .frequency_penalty = (float)s->frequency_penalty,
                                             .seed = s->seed != 0 ? (uint64_t)s->seed : rng_fresh_seed(),
                                             .n_top = -1},
                                .max_tokens = -1};
}

enum err engine_check_prompt(const struct engine *e, const int32_t *ids, size_t n, size_t room, struct err_info *info)
{
    if (n == 0) {
        return err_set(info, ERR_INVALID_VALUE, "prompt", "prompt: expected at least one token, found none");
    }
    if (n > room) {
        return err_set(
            info, ERR_CONTEXT_LENGTH, "prompt",
            "This model's maximum context length is %u tokens; the prompt of %zu tokens exceeds the available "
            "context size",
            e->info.n_ctx, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->plan->n_vocab) {
            return err_set(info, ERR_INVALID_VALUE, "prompt", "prompt[%zu]: expected a token id of 0 to %u, found %d",
                           i, e->plan->n_vocab - 1, ids[i]);
        }
    }
    return ERR_OK;
}

enum err engine_check_generates(const struct engine *e, struct err_info *info)
{
    return e->info.generates ? ERR_OK
           : e->info.ranks
               ? err_set(info, ERR_UNSUPPORTED_ENDPOINT, "model",
                         "the model ranks pairs of texts and gives none: expected /v1/rerank or /v1/score")
               : err_set(info, ERR_UNSUPPORTED_ENDPOINT, "model",
                         "%s models give embeddings and no text: expected /v1/embeddings", e->info.architecture);
}

static void copy_stops(struct engine_stream *s, const struct engine_params *p)
{
    char *at = s->stop_text;
    for (size_t i = 0; i < p->n_stop; i++) {
        s->stop.strings[i] = memcpy(at, p->stop[i], p->stop_len[i]);
        s->stop.lens[i] = p->stop_len[i];
        at += p->stop_len[i] + 1;
    }
    s->stop.n = p->n_stop;
}

/* Tokens that end a sequence, and tokens banned from it. */
struct rules {
    int32_t *ends; /* [n_ends] */
    size_t n_ends;
    struct sampler_bias *bias; /* [n_bias] */
    size_t n_bias;
};

static bool is_listed(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* The model's end tokens end the sequence or, with ignore_eos, are banned unless the request names them. */
static enum err make_rules(const struct engine *e, const struct engine_params *p, struct arena *arena, struct rules *r)
{
    const struct sampler_params *own = &p->sampling;
    r->ends = arena_zalloc_array(arena, e->n_ends + own->n_ends + 1, sizeof *r->ends);
    r->bias = arena_zalloc_array(arena, e->n_ends + own->n_bias + 1, sizeof *r->bias);
    TRY(arena_ok(arena));
    for (size_t i = 0; i < own->n_ends; i++) {
        r->ends[r->n_ends++] = own->ends[i];
    }
    for (size_t i = 0; i < own->n_bias; i++) {
        r->bias[r->n_bias++] = own->bias[i];
    }
    for (size_t i = 0; i < e->n_ends; i++) {
        if (!p->ignore_eos) {
            r->ends[r->n_ends++] = e->ends[i];
        } else if (!is_listed(own->ends, own->n_ends, e->ends[i])) {
            r->bias[r->n_bias++] = (struct sampler_bias){e->ends[i], SAMPLER_BAN};
        }
    }
    return ERR_OK;
}

/* Rejects requests that ban every token. Few requests can name as many tokens as the model has. */
static enum err check_bans(const struct engine *e, const struct engine_params *p, struct arena *arena,
                           const struct rules *r, struct err_info *info)
{
    size_t n_ends = p->min_tokens > 0 ? r->n_ends : 0, n_vocab = e->info.n_vocab, n_banned = 0;
    if (p->max_tokens == 0 || r->n_bias + n_ends < n_vocab) {
        return ERR_OK;
    }
    unsigned char *is_banned = arena_zalloc(arena, n_vocab);
    TRY_MEM_FOR(is_banned != NULL, info, "out of memory for the request");
    for (size_t i = 0; i < r->n_bias + n_ends; i++) {
        bool is_bias = i < r->n_bias, is_ban = !is_bias || r->bias[i].bias <= SAMPLER_BAN;
        int32_t id = is_bias ? r->bias[i].id : r->ends[i - r->n_bias];
        n_banned += is_ban && is_banned[id] == 0;
        is_banned[id] |= is_ban;
    }
    return n_banned < n_vocab
               ? ERR_OK
               : err_set(info, ERR_INVALID_VALUE, "logit_bias",
                         "logit_bias: expected at least one of the model's %zu tokens not to be banned, found all "
                         "banned%s",
                         n_vocab,
                         p->ignore_eos       ? " (the end tokens by ignore_eos)"
                         : p->min_tokens > 0 ? " (the end tokens by min_tokens)"
                                             : "");
}

enum err engine_check_submit(const struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_params *p,
                             struct err_info *info)
{
    TRY(engine_check_generates(e, info));
    return engine_check_prompt(e, ids, n_ids, e->info.n_ctx - (p->max_tokens == 0 ? 0 : 1), info);
}

/* Makes the scheduler's request for a sequence; the caller owns the rules. */
static struct sched_request make_request(const struct engine *e, const struct engine_params *p,
                                         const struct engine_sequence *q, const struct rules *rules)
{
    struct sched_request r = {
        .tokens = q->ids,
        .n_tokens = (int32_t)q->n_ids,
        .max_tokens = p->max_tokens,
        .min_tokens = p->min_tokens,
        .prompt_logprobs = q->prompt_logprobs,
        .grammar = p->grammar,
        .vocab = p->grammar != NULL ? e->vocab : NULL, /* made with the grammar */
        .sampling = p->sampling,
        .salt = p->cache_salt,
        .keeps_no_snapshots = p->keeps_no_snapshots,
        .deadline_ns = p->deadline_ns,
    };
    r.sampling.choice = q->choice;
    r.sampling.n_top = q->prompt_logprobs ? MAX_OF(p->sampling.n_top, 0) : p->sampling.n_top;
    r.sampling.bias = rules->bias;
    r.sampling.n_bias = rules->n_bias;
    r.sampling.ends = rules->ends;
    r.sampling.n_ends = rules->n_ends;
    return r;
}

static enum err new_stream(struct engine *e, const struct engine_params *p, struct engine_stream **out)
{
    size_t stop_bytes = 0, longest = 0;
    for (size_t i = 0; i < p->n_stop; i++) {
        stop_bytes += p->stop_len[i] + 1;
        longest = MAX_OF(longest, p->stop_len[i]);
    }
    /* an entry includes alternatives; room for all possible entries would take 48 KiB */
    size_t n = longest + FEW_PENDING;
    struct engine_stream *s = *out = mem_zalloc(sizeof *s + n * sizeof s->pending[0] + stop_bytes, MEM_REQUEST);
    TRY_MEM(s != NULL);
    s->max_pending = (int)n;
    s->stop_text = (char *)&s->pending[n];
    s->engine = e;
    s->show_special = p->show_special;
    s->detok.started = true; /* keep a completion's leading space */
    buf_init(&s->text, MAX_TEXT_BYTES, MEM_REQUEST);
    buf_init(&s->decoded, MAX_TEXT_BYTES, MEM_REQUEST);
    buf_init(&s->stop.held, MAX_TEXT_BYTES, MEM_REQUEST);
    copy_stops(s, p);
    return ERR_OK;
}

static int32_t next_of_budget(const void *budget) { return chat_budget_next(budget); }
static void take_of_budget(void *budget, int32_t id) { chat_budget_take(budget, id); }
static void fini_budget(void *budget) { chat_budget_fini(budget); }

/* Makes the guide that ends the thinking of each sequence, in the arena; NULL if none is needed. */
static enum err make_guide(const struct engine *e, const struct engine_params *p, struct arena *arena,
                           struct sched_guide **out)
{
    *out = NULL;
    if (p->n_think_end == 0) {
        return ERR_OK;
    }
    size_t n = chat_budget_bytes(p->n_think_end);
    struct chat_budget *budget = arena_alloc(arena, n);
    *out = arena_zalloc(arena, sizeof **out);
    TRY(arena_ok(arena));
    const struct chat_budget_config config = {.format = e->tool_format,
                                              .tokenizer = e->tokenizer,
                                              .n_tokens = p->think_tokens,
                                              .has_begun = p->is_thinking,
                                              .reads_calls = p->reads_calls,
                                              .end = p->think_end,
                                              .n_end = p->n_think_end};
    chat_budget_init(budget, &config);
    **out = (struct sched_guide){
        .next = next_of_budget, .take = take_of_budget, .fini = fini_budget, .state = budget, .n_bytes = n};
    return ERR_OK;
}

/* Resources of submitting several sequences, besides their streams, from make_all to the end of submit_all. */
struct submission {
    struct sched_request *requests; /* [n] */
    struct sched_seq **seqs;        /* [n] */
    struct rules rules;
    struct arena arena; /* holds all of these */
};

static enum err make_all(struct engine *e, const struct engine_params *p, const struct engine_sequence *seqs, size_t n,
                         struct submission *sub, struct engine_stream **out)
{
    sub->requests = arena_zalloc_array(&sub->arena, n, sizeof *sub->requests);
    sub->seqs = arena_zalloc_array(&sub->arena, n, sizeof *sub->seqs);
    struct sched_guide *guide;
    TRY(make_rules(e, p, &sub->arena, &sub->rules));
    TRY(make_guide(e, p, &sub->arena, &guide));
    for (size_t i = 0; i < n; i++) {
        TRY(new_stream(e, p, &out[i]));
        sub->requests[i] = make_request(e, p, &seqs[i], &sub->rules);
        sub->requests[i].guide = guide;
    }
    return ERR_OK;
}

enum err engine_submit_all(struct engine *e, struct sched_group *group, const struct engine_params *p,
                           const struct engine_sequence *seqs, size_t n, struct engine_stream **out,
                           struct err_info *info)
{
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        TRY(engine_check_submit(e, seqs[i].ids, seqs[i].n_ids, p, info));
    }
    TRY(engine_check_file(e, info));
    struct submission sub = {0};
    arena_init(&sub.arena, SUBMISSION_BYTES, 0, MEM_REQUEST);
    enum err err = make_all(e, p, seqs, n, &sub, out);
    if (err != ERR_OK) {
        err_set(info, err, NULL, "out of memory for the request");
    } else {
        err = check_bans(e, p, &sub.arena, &sub.rules, info);
    }
    if (err == ERR_OK) {
        err = sched_submit_all(e->sched, group, sub.requests, (int32_t)n, sub.seqs, info);
    }
    for (size_t i = 0; i < n; i++) {
        if (err == ERR_OK) {
            out[i]->seq = sub.seqs[i];
        } else {
            engine_stream_close(&out[i]);
        }
    }
    arena_fini(&sub.arena);
    return err;
}

enum err engine_submit(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_params *p,
                       struct engine_stream **out, struct err_info *info)
{
    const struct engine_sequence one = {
        .ids = ids, .n_ids = n_ids, .choice = p->sampling.choice, .prompt_logprobs = p->prompt_logprobs};
    return engine_submit_all(e, NULL, p, &one, 1, out, info);
}

enum err engine_group_open(struct engine *e, const struct sched_share *whose, size_t n, struct sched_group **out)
{
    return sched_group_new(e->sched, whose, (int32_t)MIN_OF(n, (size_t)INT32_MAX), out);
}

bool engine_is_full(struct engine *e, const struct sched_share *whose) { return sched_is_full(e->sched, whose->key); }
size_t engine_group_room(struct sched_group *g) { return (size_t)sched_group_room(g); }
void engine_group_close(struct sched_group **group) { sched_group_release(group); }

/* Makes s->text the event's. */
static void show_text(struct engine_stream *s, struct engine_event *out)
{
    s->lacks_text = s->lacks_text || buf_ok(&s->text) != ERR_OK;
    out->text = s->text.data != NULL ? s->text.data : "";
    out->text_len = s->text.len;
}

/* Moves n bytes of held text into the event. */
static void release_text(struct engine_stream *s, size_t n, struct engine_event *out)
{
    buf_reset(&s->text);
    buf_append(&s->text, s->stop.held.data, n);
    stop_release(&s->stop, n);
    s->n_released += n;
    show_text(s, out);
}

/* Returns the oldest pending token if all its text can be shown; `releasable` bytes of the held text can. */
static bool give_pending(struct engine_stream *s, size_t releasable, struct engine_event *out)
{
    if (s->n_pending == 0 || s->pending[0].text_end > s->n_released + releasable) {
        return false;
    }
    *out = (struct engine_event){.kind = SCHED_TOKEN, .token = s->pending[0].token};
    release_text(s, s->pending[0].text_end - s->n_released, out);
    memmove(&s->pending[0], &s->pending[1], (size_t)(s->n_pending - 1) * sizeof s->pending[0]);
    s->n_pending--;
    return true;
}

static void freeze_usage(struct engine_stream *s)
{
    sched_seq_usage(s->seq, &s->usage);
    if (s->end.stop_match != NULL) { /* the scheduler can be some tokens ahead; those do not count */
        s->usage.completion_tokens = s->n_taken - s->n_cut;
    }
}

/* Makes the end event, with the held text that can be shown. */
static void give_end(struct engine_stream *s, size_t releasable, struct engine_event *out)
{
    *out = s->end;
    out->kind = SCHED_END;
    release_text(s, releasable, out);
    s->has_ended = true;
    freeze_usage(s);
}

/* Passes text to the search for stop strings; returns whether one begins after *releasable bytes. */
static bool look_for_stop(struct engine_stream *s, size_t *releasable)
{
    size_t which = 0;
    bool found = stop_push(&s->stop, s->decoded.data, s->decoded.len, releasable, &which);
    s->n_decoded += s->decoded.len;
    s->lacks_text = s->lacks_text || buf_ok(&s->decoded) != ERR_OK || buf_ok(&s->stop.held) != ERR_OK;
    if (found) {
        s->is_stopped = true;
        s->end =
            (struct engine_event){.finish = SCHED_FINISH_STOP, .stop_match = s->stop.strings[which], .i_stop = which};
        sched_cancel(s->seq);
    }
    return found;
}

/* Returns how much of the held text can be shown now: all once the stream is over, or up to a stop string. */
static size_t releasable_now(struct engine_stream *s)
{
    size_t releasable = 0, which;
    buf_reset(&s->decoded);
    (void)stop_push(&s->stop, "", 0, &releasable, &which);
    return releasable;
}

static void take_token(struct engine_stream *s, const struct sampler_result *r)
{
    buf_reset(&s->decoded);
    detokenizer_push(&s->detok, s->engine->tokenizer, r->id, s->show_special, &s->decoded);
    size_t releasable;
    look_for_stop(s, &releasable);
    s->n_taken++;
    s->pending[s->n_pending++] = (struct pending){.token = *r, .text_end = s->n_decoded};
}

static void take_end(struct engine_stream *s, const struct sched_event *ev)
{
    buf_reset(&s->decoded);
    detokenizer_finish(&s->detok, &s->decoded);
    size_t releasable;
    bool found = look_for_stop(s, &releasable);
    if (!found) {
        s->is_stopped = true;
        s->end = (struct engine_event){.finish = ev->finish, .err = ev->err, .why = ev->why};
    }
    if (s->n_pending > 0) { /* the rest of an incomplete character belongs to the last token */
        s->pending[s->n_pending - 1].text_end = s->n_decoded;
    }
}

/* Returns events that need nothing new from the scheduler; true: *out is filled. */
static bool give_ready(struct engine_stream *s, struct engine_event *out)
{
    if (s->n_pending == 0 && !s->is_stopped) {
        return false;
    }
    bool is_cut = s->is_stopped && s->end.stop_match != NULL;
    size_t releasable = s->is_stopped && !is_cut ? s->stop.held.len : releasable_now(s);
    if (give_pending(s, releasable, out)) {
        return true;
    }
    if (!s->is_stopped) {
        return s->n_pending == s->max_pending && give_pending(s, s->stop.held.len, out);
    }
    s->n_cut = is_cut ? s->n_pending : 0; /* tokens wholly or partly in the text that the stop string cuts */
    s->n_cut -= is_cut && s->n_pending > 0 && releasable > 0 ? 1 : 0;
    give_end(s, releasable, out);
    return true;
}

enum err engine_next(struct engine_stream *s, int timeout_ms, struct engine_event *out)
{
    if (s->has_ended) {
        return ERR_NONE;
    }
    bool is_given = give_ready(s, out);
    while (!is_given && !s->lacks_text) {
        struct sched_event ev;
        TRY(sched_next(s->seq, timeout_ms, &ev));
        if (ev.kind == SCHED_PROMPT_TOKEN) {
            *out = (struct engine_event){.kind = SCHED_PROMPT_TOKEN, .token = ev.token};
            buf_reset(&s->text);
            tokenizer_piece(s->engine->tokenizer, ev.token.id, true, &s->text);
            show_text(s, out);
        } else if (ev.kind == SCHED_TOKEN) {
            take_token(s, &ev.token);
        } else {
            take_end(s, &ev);
        }
        is_given = ev.kind == SCHED_PROMPT_TOKEN || give_ready(s, out);
    }
    if (s->lacks_text) { /* memory ran out */
        *out = (struct engine_event){.kind = SCHED_END, .text = "", .err = ERR_NOMEM};
        s->has_ended = true;
        sched_cancel(s->seq);
        freeze_usage(s);
    }
    return ERR_OK;
}

void engine_cancel(struct engine_stream *s) { sched_cancel(s->seq); }

void engine_stream_usage(const struct engine_stream *s, struct sched_usage *out)
{
    *out = s->usage;
    if (!s->has_ended) {
        sched_seq_usage(s->seq, out);
    }
}

void engine_stream_look(const struct engine_stream *s, struct sched_usage *out) { sched_seq_usage(s->seq, out); }

void engine_stream_close(struct engine_stream **stream)
{
    struct engine_stream *s = *stream;
    if (s == NULL) {
        return;
    }
    sched_release(&s->seq);
    buf_fini(&s->text);
    buf_fini(&s->decoded);
    buf_fini(&s->stop.held);
    mem_free(s);
    *stream = NULL;
}
