/* The scheduler's interface: rings and the thread's loop. sched_submit.c queues sequences, sched_turn.c decides whose
 * turn it is, sched_admit.c allocates pages, and sched_step.c runs a step. */
#include "engine/sched/sched_internal.h"

#include <errno.h>
#include <string.h>

enum { ARENA_CHUNK_BYTES = 16384 }; /* enough for a step with default settings */

/* --- sequences ---------------------------------------------------------------------------------------------------- */

static void wake_up(void *sched)
{
    struct sched *s = sched;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->has_news, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void sched_cancel(struct sched_seq *q)
{
    if (!atomic_exchange(&q->cancelled, true)) {
        wake_up(q->sched);
    }
}

void sched_release(struct sched_seq **seq)
{
    struct sched_seq *q = *seq;
    if (q == NULL) {
        return;
    }
    pthread_mutex_lock(&q->reader.lock);
    bool ended = q->reader.has_ended;
    pthread_mutex_unlock(&q->reader.lock);
    if (!ended) {
        sched_cancel(q);
    }
    sched_seq_unref(q);
    *seq = NULL;
}

/* --- rings -------------------------------------------------------------------------------------------------------- */

uint32_t sched_ring_room(struct sched_seq *q)
{
    pthread_mutex_lock(&q->reader.lock);
    uint32_t room = SCHED_RING - SCHED_RING_RESERVE - (q->reader.n_put - q->reader.n_got);
    pthread_mutex_unlock(&q->reader.lock);
    return room;
}

void sched_put_token(struct sched_seq *q, enum sched_event_kind kind, const struct sampler_result *r)
{
    pthread_mutex_lock(&q->reader.lock);
    uint32_t at = q->reader.n_put++ % SCHED_RING;
    q->reader.ring[at] = (struct sched_entry){.kind = kind, .id = r->id, .logprob = r->logprob, .n_top = r->n_top};
    if (r->n_top > 0) {
        memcpy(q->reader.tops + (size_t)at * (size_t)q->terms.sampling.n_top, r->top,
               (size_t)r->n_top * sizeof *r->top);
    }
    q->reader.must_wake = q->sched->cfg.max_begun > 1;
    if (!q->reader.must_wake) {
        pthread_cond_signal(&q->reader.ready);
    }
    pthread_mutex_unlock(&q->reader.lock);
}

void sched_tell_readers(struct sched *s)
{
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        if (q->reader.must_wake) {
            q->reader.must_wake = false;
            pthread_mutex_lock(&q->reader.lock);
            pthread_cond_signal(&q->reader.ready);
            pthread_mutex_unlock(&q->reader.lock);
        }
    }
}

static void put_end(struct sched_seq *q, enum sched_finish finish, enum err err, const struct err_info *why)
{
    if (why != NULL) {
        q->reader.why = *why;
    }
    pthread_mutex_lock(&q->reader.lock);
    q->reader.usage.waits = q->waits;
    q->reader.ring[q->reader.n_put++ % SCHED_RING] =
        (struct sched_entry){.kind = SCHED_END, .finish = finish, .err = err};
    q->reader.has_ended = true;
    uint64_t now = clock_now_ns();
    if (q->first_ns != 0) {
        q->reader.usage.decode_ns = now - q->first_ns;
    }
    pthread_cond_signal(&q->reader.ready);
    pthread_mutex_unlock(&q->reader.lock);
}

enum err sched_next(struct sched_seq *q, int timeout_ms, struct sched_event *out)
{
    struct timespec at = thread_until(clock_now_ns() + (uint64_t)MAX_OF(timeout_ms, 0) * 1000000u);
    enum err err = ERR_OK;
    pthread_mutex_lock(&q->reader.lock);
    while (q->reader.n_got == q->reader.n_put && err == ERR_OK) {
        if (q->reader.has_ended) {
            err = ERR_NONE;
        } else if (timeout_ms <= 0 || pthread_cond_timedwait(&q->reader.ready, &q->reader.lock, &at) == ETIMEDOUT) {
            err = q->reader.n_got == q->reader.n_put ? ERR_AGAIN : ERR_OK;
        }
    }
    if (err == ERR_OK) {
        uint32_t i = q->reader.n_got++ % SCHED_RING;
        const struct sched_entry *e = &q->reader.ring[i];
        *out = (struct sched_event){.kind = e->kind, .finish = e->finish, .err = e->err};
        out->why = e->kind == SCHED_END && q->reader.why.code != ERR_OK ? &q->reader.why : NULL;
        out->token.id = e->id;
        out->token.logprob = e->logprob;
        out->token.n_top = e->n_top;
        if (e->n_top > 0) {
            memcpy(out->token.top, q->reader.tops + (size_t)i * (size_t)q->terms.sampling.n_top,
                   (size_t)e->n_top * sizeof *out->token.top);
        }
    }
    /* wake the scheduler when the ring is half empty again */
    bool was_full = err == ERR_OK && q->reader.n_put - q->reader.n_got == SCHED_RING / 2;
    pthread_mutex_unlock(&q->reader.lock);
    if (was_full) {
        wake_up(q->sched);
    }
    return err;
}

void sched_note_processed(struct sched_seq *q)
{
    pthread_mutex_lock(&q->reader.lock);
    q->reader.usage.processed_tokens = MAX_OF(q->reader.usage.processed_tokens, MIN_OF(q->n_computed, q->n_prompt));
    pthread_mutex_unlock(&q->reader.lock);
}

void sched_seq_usage(struct sched_seq *q, struct sched_usage *out)
{
    pthread_mutex_lock(&q->reader.lock);
    *out = q->reader.usage;
    pthread_mutex_unlock(&q->reader.lock);
}

/* Runs on the thread, under sched.lock. */
static void note_cache(struct sched *s)
{
    s->stats.pages_held = (uint64_t)kv_cache_n_held(s->kv);
    s->stats.pages_kept = (uint64_t)kv_cache_n_kept(s->kv);
    s->stats.windows_held = (uint64_t)kv_cache_n_windows_held(s->kv);
    s->stats.windows_kept = (uint64_t)kv_cache_n_windows_kept(s->kv);
    s->stats.states_held = (uint64_t)kv_cache_n_states_held(s->kv);
    s->stats.states_kept = (uint64_t)kv_cache_n_states_kept(s->kv);
}

void sched_end(struct sched *s, struct sched_seq *q, enum sched_finish finish, enum err err, const struct err_info *why)
{
    bool in_queue = !q->turn.was_admitted, in_prefill = q->n_tokens == q->n_prompt;
    sched_leave_turn(s, q);
    sched_share_leave(s, q);
    if (q->states.n_kept != 0) {
        sched_disk_kept(s, q, q->states.n_kept / KV_PAGE_TOKENS - 1);
    }
    if (err == ERR_NUMERICAL) {
        sched_forget_pages(s, q); /* the error's cause can be in these pages */
    }
    sched_drop_pages(s, q);
    pthread_mutex_lock(&s->lock);
    q->group->n_open--;
    if (err == ERR_OK && q->max_total > q->n_prompt) {
        double made = q->n_tokens - q->n_prompt;
        s->shares.mean_tokens = s->shares.mean_tokens < 0 ? made : 0.9 * s->shares.mean_tokens + 0.1 * made;
    }
    if (err == ERR_CANCELLED || err == ERR_SLOW_READER) {
        *(in_queue     ? &s->stats.cancelled_queue
          : in_prefill ? &s->stats.cancelled_prefill
                       : &s->stats.cancelled_decode) += 1;
    }
    note_cache(s);
    pthread_mutex_unlock(&s->lock);
    put_end(q, finish, err, why);
    sched_seq_unref(q);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static struct sched_seq *take_submitted(struct sched *s)
{
    struct sched_seq **end = &s->waiting;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->has_news, false);
    atomic_store(&s->queue.asks, false);
    *end = s->queue.first;
    s->queue.first = NULL;
    s->queue.end = &s->queue.first;
    pthread_mutex_unlock(&s->lock);
    for (struct sched_seq *q = *end; q != NULL; q = q->next) {
        sched_share_enter(s, q);
    }
    return *end;
}

/* Returns why a sequence must end now, or ERR_OK. */
static enum err must_go(const struct sched *s, const struct sched_seq *q, uint64_t now, bool stopping)
{
    if (stopping || atomic_load_explicit(&q->cancelled, memory_order_acquire)) {
        return ERR_CANCELLED;
    }
    if (q->terms.deadline_ns != 0 && now > q->terms.deadline_ns) {
        return ERR_DEADLINE;
    }
    if (s->lost.code != ERR_OK) {
        return ERR_LOST;
    }
    return q->reader.stalled_since != 0 && now - q->reader.stalled_since > s->cfg.stall_ns ? ERR_SLOW_READER : ERR_OK;
}

/* Ends the sequences that must end and are not being computed; returns how many. */
static int32_t sweep(struct sched *s, struct sched_seq **list, bool stopping)
{
    uint64_t now = clock_now_ns();
    int32_t n = 0;
    while (*list != NULL) {
        struct sched_seq *q = *list;
        enum err err = must_go(s, q, now, stopping);
        if (err == ERR_OK || q->rows.are_begun) {
            list = &q->next;
            continue;
        }
        *list = q->next;
        n++;
        sched_end(s, q, SCHED_FINISH_NONE, err, err == ERR_LOST ? &s->lost : NULL);
    }
    return n;
}

static void update_stats(struct sched *s, int32_t n_swept_waiting)
{
    uint64_t n_tokens = 0;
    for (const struct sched_seq *q = s->waiting; q != NULL; q = q->next) {
        n_tokens += (uint64_t)q->n_tokens;
    }
    pthread_mutex_lock(&s->lock);
    s->queue.n -= n_swept_waiting;
    for (const struct sched_seq *q = s->queue.first; q != NULL; q = q->next) {
        n_tokens += (uint64_t)q->n_tokens;
    }
    s->queue.n_tokens = n_tokens;
    s->stats.n_running = (uint64_t)s->n_running;
    note_cache(s);
    sched_note_waiting(s);
    s->stats.disk.pending = (uint64_t)s->disk.n_pending;
    s->stats.estimated_wait_ms = (uint64_t)(sched_estimate_ns(s) / 1e6);
    pthread_mutex_unlock(&s->lock);
}

void sched_overtake(void *sched)
{
    struct sched *s = sched;
    atomic_store(&s->progress.at, SCHED_AT_ADMISSION);
    s->express.is_overtaking = true;
    sched_count_waits(s, take_submitted(s));
    sched_share_look(s);
    update_stats(s, sched_admit_express(s));
    sched_step_express(s);
    s->express.is_overtaking = false;
    atomic_store(&s->progress.at, SCHED_AT_BEGIN);
}

/* Sleeps until there is news; at most 10 ms if slow readers pause sequences or a sequence waits for a deadline. */
static void wait_for_news(struct sched *s, bool has_work)
{
    struct timespec at = thread_until(clock_now_ns() + 10000000);
    atomic_store(&s->progress.step_ns, 0);
    atomic_store(&s->progress.at, SCHED_AT_REST);
    pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->has_news) && !s->is_stopping) {
        if (!has_work) {
            pthread_cond_wait(&s->wake, &s->lock);
        } else if (pthread_cond_timedwait(&s->wake, &s->lock, &at) == ETIMEDOUT) {
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* Returns whether the back end used the pause for work that open put off, and has more of it. */
static bool prepares_weights(const struct sched *s)
{
    bool (*idle)(struct backend_model * m) = s->cfg.backend->idle;
    return idle != NULL && s->batches.n_begun == 0 && idle(s->cfg.model);
}

static void *thread_main(void *arg)
{
    struct sched *s = arg;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        bool stopping = s->is_stopping;
        pthread_mutex_unlock(&s->lock);
        if (stopping) {
            sched_finish_begun(s);
        }
        atomic_store(&s->progress.at, SCHED_AT_ADMISSION);
        sched_count_waits(s, take_submitted(s));
        int32_t n_gone = sweep(s, &s->waiting, stopping);
        (void)sweep(s, &s->running, stopping);
        if (stopping) {
            sched_disk_finish(s);
            return NULL;
        }
        sched_share_look(s);
        n_gone += sched_admit_all(s);
        sched_disk_turn(s);
        update_stats(s, n_gone);
        atomic_store(&s->progress.step_ns, clock_now_ns());
        if (!sched_step(s) && !prepares_weights(s)) {
            wait_for_news(s, s->waiting != NULL || s->running != NULL);
        }
    }
}

/* --- start and stop ----------------------------------------------------------------------------------------------- */

/* Hidden rows and logits take memory only when they are written. */
static size_t hidden_bytes(const struct sched_config *c, const struct sched_batch *b)
{
    return (size_t)b->max_rows * (size_t)c->n_embd * sizeof(float);
}
static size_t output_bytes(const struct sched_config *c, const struct sched_batch *b)
{
    return (size_t)b->max_rows * (size_t)c->output_width * sizeof(float);
}
static size_t logits_bytes(const struct sched_config *c, const struct sched_batch *b)
{
    return (size_t)b->max_logits * (size_t)c->n_vocab * sizeof(float);
}

/* Allocates in the arena, which the caller checks. own: OPTIONAL, the buffer for its logits. */
static enum err allocate_batch(const struct sched_config *c, struct arena *a, struct sched_batch *b, float *own)
{
    size_t rows = (size_t)b->max_rows, seqs = (size_t)b->max_seqs, logits = (size_t)b->max_logits;
    size_t best = logits * (size_t)c->max_best;
    b->seqs = arena_zalloc_array(a, seqs, sizeof *b->seqs);
    b->copy_at = arena_zalloc_array(a, 2 * seqs, sizeof *b->copy_at);
    b->tokens = arena_zalloc_array(a, rows, sizeof *b->tokens);
    b->pos = arena_zalloc_array(a, rows, sizeof *b->pos);
    b->seq = arena_zalloc_array(a, rows, sizeof *b->seq);
    b->hidden_rows = arena_zalloc_array(a, rows, sizeof *b->hidden_rows);
    b->states = arena_zalloc_array(a, seqs, sizeof *b->states);
    b->begin_states = arena_zalloc_array(a, seqs, sizeof *b->begin_states);
    b->seq_drafts = arena_zalloc_array(a, seqs, sizeof *b->seq_drafts);
    b->seq_true = arena_zalloc_array(a, seqs, sizeof *b->seq_true);
    b->tables = arena_zalloc_array(a, seqs, sizeof *b->tables);
    b->window_tables = arena_zalloc_array(a, seqs, sizeof *b->window_tables);
    b->logit_rows = arena_zalloc_array(a, logits, sizeof *b->logit_rows);
    b->wants = arena_zalloc_array(a, logits, sizeof *b->wants);
    b->copy_rows = arena_zalloc_array(a, 2 * seqs, sizeof *b->copy_rows);
    b->copy_states = arena_zalloc_array(a, 2 * seqs, sizeof *b->copy_states);
    b->stats = arena_zalloc_array(a, logits, sizeof *b->stats);
    b->best = best != 0 ? arena_zalloc_array(a, best, sizeof *b->best) : NULL;
    b->hidden = hidden_bytes(c, b) != 0 ? mem_map(hidden_bytes(c, b), MEM_SCRATCH) : NULL;
    b->logits = own != NULL ? own : mem_map(logits_bytes(c, b), MEM_SCRATCH);
    b->output = output_bytes(c, b) != 0 ? mem_map(output_bytes(c, b), MEM_SCRATCH) : NULL;
    bool has_all = b->logits != NULL && (hidden_bytes(c, b) == 0 || b->hidden != NULL) &&
                   (output_bytes(c, b) == 0 || b->output != NULL);
    return has_all ? ERR_OK : ERR_NOMEM;
}

static void free_batch(const struct sched_config *c, struct sched_batch *b)
{
    mem_unmap(b->hidden, hidden_bytes(c, b), MEM_SCRATCH);
    mem_unmap(b->output, output_bytes(c, b), MEM_SCRATCH);
    mem_unmap(b->logits != c->logits ? b->logits : NULL, logits_bytes(c, b), MEM_SCRATCH);
}

/* Allocates everything that steps need, once. */
static enum err allocate(struct sched *s)
{
    const struct sched_config *c = &s->cfg;
    struct arena *a = &s->arena;
    size_t seqs = (size_t)c->max_seqs;
    for (int32_t i = 0; i < c->max_begun; i++) {
        s->batches.all[i].max_rows = c->max_rows;
        s->batches.all[i].max_seqs = c->max_seqs;
        s->batches.all[i].max_logits = c->max_logits;
        s->batches.begun[i] = &s->batches.all[i];
        TRY(allocate_batch(c, a, &s->batches.all[i], c->logits));
    }
    if (c->overtaking_rows != 0) {
        s->batches.overtaker.max_rows = c->overtaking_rows;
        s->batches.overtaker.max_seqs = s->batches.overtaker.max_logits =
            MIN_OF(c->max_seqs, (int32_t)SCHED_OVERTAKERS);
        TRY(allocate_batch(c, a, &s->batches.overtaker, NULL));
    }
    if (c->predicts) {
        s->predict.batch.max_rows = c->max_rows + c->max_seqs;
        s->predict.batch.max_seqs = s->predict.batch.max_logits = c->max_seqs;
        TRY(allocate_batch(c, a, &s->predict.batch, s->batches.all[0].logits));
        TRY(sched_predict_init(s));
    }
    s->turns.ranked = arena_zalloc_array(a, seqs, sizeof *s->turns.ranked);
    s->offers = arena_zalloc_array(a, seqs, sizeof *s->offers);
    TRY(arena_ok(a));
    TRY(sampler_scratch_init(&s->sampling.scratch, c->n_vocab));
    s->sampling.allowed = mem_zalloc_array(((size_t)c->n_vocab + 63) / 64, sizeof *s->sampling.allowed, MEM_SCRATCH);
    TRY_MEM(s->sampling.allowed != NULL);
    TRY(sched_masks_init(s));
    TRY(sched_disk_init(s));
    return kv_cache_new(c->n_pages, c->n_windows, c->n_states, &s->kv);
}

enum err sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info)
{
    *out = NULL;
    if (cfg->max_logits < cfg->max_seqs || cfg->max_rows < cfg->max_seqs || cfg->n_express >= cfg->max_seqs ||
        (cfg->is_bidirectional && cfg->max_rows < cfg->n_ctx) || cfg->n_pages < sched_least_pages(cfg)) {
        return err_set(info, ERR_CONFIG, NULL,
                       "expected room for %d sequences in a batch of %d rows, and for %d tokens in %d KV pages",
                       cfg->max_seqs, cfg->max_rows, cfg->n_ctx, cfg->n_pages);
    }
    if (cfg->n_windows != 0 && (cfg->n_windows < sched_least_windows(cfg) || cfg->n_states != 0 || cfg->window != 0)) {
        return err_set(info, ERR_CONFIG, NULL,
                       "expected %d window pages or more, and neither states nor a window of all layers, found %d",
                       sched_least_windows(cfg), cfg->n_windows);
    }
    if (cfg->n_states != 0 && cfg->n_states <= cfg->max_seqs) {
        return err_set(info, ERR_CONFIG, NULL, "expected recurrent states for more than %d sequences, found %d",
                       cfg->max_seqs, cfg->n_states);
    }
    if (cfg->draft_max < 0 || cfg->draft_max > DRAFT_MAX) {
        return err_set(info, ERR_CONFIG, NULL, "expected drafts of 0 to %d tokens, found %d", DRAFT_MAX,
                       cfg->draft_max);
    }
    struct sched *s = mem_zalloc(sizeof *s, MEM_GENERAL);
    TRY_MEM_FOR(s != NULL, info, "out of memory for the scheduler");
    s->cfg = *cfg;
    s->cfg.step_budget_ns = cfg->step_budget_ns != 0 ? cfg->step_budget_ns : SCHED_DEFAULT_BUDGET_NS;
    s->cfg.max_begun = MIN_OF(MAX_OF(cfg->max_begun, 1), (int32_t)SCHED_MAX_BEGUN);
    if (cfg->predicts) { /* the head computes between batches, with rows for sampled tokens, too */
        s->cfg.max_begun = 1;
        s->cfg.overtaking_rows = MAX_OF(cfg->overtaking_rows - SCHED_OVERTAKERS, 0);
    }
    s->progress.behind_ns = cfg->backend->idle != NULL; /* the first batch asks */
    s->speeds.costs.experts = cfg->experts;
    s->cfg.stall_ns = cfg->stall_ns != 0 ? cfg->stall_ns : SCHED_DEFAULT_STALL_NS;
    s->cfg.now_ns = cfg->now_ns != NULL ? cfg->now_ns : clock_now_ns;
    s->queue.end = &s->queue.first;
    s->shares.mean_tokens = -1;
    s->stats.pages_total = (uint64_t)cfg->n_pages;
    s->stats.windows_total = (uint64_t)cfg->n_windows;
    pthread_mutex_init(&s->lock, NULL);
    thread_cond_init(&s->wake);
    arena_init(&s->arena, ARENA_CHUNK_BYTES, 0, MEM_SCRATCH);
    enum err err = allocate(s);
    if (err != ERR_OK) {
        sched_free(&s);
        return err_set(info, err, NULL,
                       err == ERR_NOMEM ? "out of memory for the scheduler"
                                        : "cannot start a thread for the scheduler");
    }
    int rc = thread_start(&s->thread, "scheduler", thread_main, s);
    if (rc != 0) {
        sched_free(&s);
        return err_set(info, ERR_INTERNAL, NULL, "cannot start the scheduler's thread: %s", strerror(rc));
    }
    s->is_started = true;
    if (cfg->disk != NULL) {
        kv_disk_listen(cfg->disk, wake_up, s);
    }
    *out = s;
    return ERR_OK;
}

void sched_free(struct sched **sched)
{
    struct sched *s = *sched;
    if (s == NULL) {
        return;
    }
    if (s->is_started) {
        pthread_mutex_lock(&s->lock);
        s->is_stopping = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    if (s->cfg.disk != NULL) {
        kv_disk_listen(s->cfg.disk, NULL, NULL);
    }
    sched_disk_fini(s);
    sched_masks_fini(s);
    for (int32_t i = 0; i < s->cfg.max_begun; i++) {
        free_batch(&s->cfg, &s->batches.all[i]);
    }
    free_batch(&s->cfg, &s->batches.overtaker);
    s->predict.batch.logits = NULL; /* of another batch */
    free_batch(&s->cfg, &s->predict.batch);
    sched_predict_fini(s);
    arena_fini(&s->arena);
    sampler_scratch_fini(&s->sampling.scratch);
    mem_free(s->sampling.allowed);
    kv_cache_free(&s->kv);
    for (struct sched_tenant *t = s->tenants.first, *next; t != NULL; t = next) {
        next = t->next;
        mem_free(t);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    mem_free(s);
    *sched = NULL;
}

void sched_drain(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->queue.is_draining = true;
    pthread_mutex_unlock(&s->lock);
}

bool sched_is_lost(struct sched *s, struct err_info *why)
{
    pthread_mutex_lock(&s->lock);
    bool is_lost = s->lost.code != ERR_OK;
    if (is_lost && why != NULL) {
        *why = s->lost;
    }
    pthread_mutex_unlock(&s->lock);
    return is_lost;
}

void sched_clear_stats(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    struct sched_stats now = s->stats;
    s->stats = (struct sched_stats){.n_running = now.n_running,
                                    .pages_held = now.pages_held,
                                    .pages_kept = now.pages_kept,
                                    .pages_total = now.pages_total,
                                    .windows_held = now.windows_held,
                                    .windows_kept = now.windows_kept,
                                    .windows_total = now.windows_total,
                                    .states_held = now.states_held,
                                    .states_kept = now.states_kept};
    s->shares.mean_tokens = -1;
    pthread_mutex_unlock(&s->lock);
}

const char *sched_place_name(enum sched_place at)
{
    static const char *const names[] = {"rest", "admission", "choice", "begin", "backend", "sampling"};
    return (size_t)at < ARRAY_LEN(names) ? names[at] : "?";
}

void sched_get_stats(struct sched *s, struct sched_stats *out)
{
    uint64_t last = atomic_load(&s->progress.step_ns), now = clock_now_ns();
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->n_waiting = (uint64_t)s->queue.n;
    pthread_mutex_unlock(&s->lock);
    if (s->cfg.disk != NULL) {
        uint64_t pending = out->disk.pending;
        kv_disk_get_stats(s->cfg.disk, &out->disk);
        out->disk.pending += pending;
    }
    out->last_step_age_ms = last == 0 || now < last ? 0 : (now - last) / 1000000u;
    uint64_t mean = out->steps > 0 ? out->step_ns / out->steps : 0, expected = atomic_load(&s->progress.expected_ns);
    out->usual_step_ms = MAX_OF(mean, expected) / 1000000u;
    out->at = (enum sched_place)atomic_load(&s->progress.at);
}

void sched_get_share(struct sched *s, uint64_t key, uint64_t *n_running, uint64_t *n_waiting)
{
    *n_running = *n_waiting = 0;
    pthread_mutex_lock(&s->lock);
    for (struct sched_tenant *t = s->tenants.first; t != NULL; t = t->next) {
        if ((t->is_guest ? 0 : t->key) == key) {
            int running = atomic_load(&t->n_running), work = atomic_load(&t->n_work);
            *n_running += (uint64_t)running;
            *n_waiting += (uint64_t)MAX_OF(work - running, 0);
        }
    }
    pthread_mutex_unlock(&s->lock);
}
