#include "fcgi/api/vectors.h"

#include "engine/base/clock.h"
#include "engine/base/task.h"
#include "fcgi/api/generation.h"
#include "fcgi/ground/log.h"
#include "fcgi/watch/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WINDOW = 64 /* maximum texts of one request in the engine */, WAIT_MS = 1000 };

/* State while texts are run. */
struct job {
    struct call *call;
    struct vectors *vectors;
    const struct prompts *prompts;
    struct engine_embed_params params;
    size_t n_submitted, n_done;            /* n_done changes under the lock */
    struct sched_waits waits;              /* the longest waits of any text */
    pthread_mutex_t lock;                  /* guards `open` and is_gone against the poller */
    struct engine_embedding *open[WINDOW]; /* text i at i % WINDOW */
    bool is_gone;
};

enum err vectors_params(struct call *c, const char *own_salt, char text[APIKEY_SALT_BYTES],
                        struct engine_embed_params *out)
{
    if (own_salt != NULL) { /* the JSON is freed before the texts are submitted */
        own_salt = arena_dup(&c->arena, own_salt, strlen(own_salt));
    }
    out->cache_salt = generation_salt(c, own_salt, text);
    out->deadline_ns = c->deadline_ns;
    return arena_ok(&c->arena);
}

enum err vectors_check_pools(const struct call *c, struct err_info *info)
{
    TRY(engine_check_embeds(c->engine, info));
    return engine_model(c->engine)->embeds_tokens
               ? err_set(
                     info, ERR_UNSUPPORTED_ENDPOINT, "model",
                     "the server was started with --pooling none, which gives a vector for each token: expected /embeddings or "
                     "another --pooling")
               : ERR_OK;
}

enum err vectors_check_length(struct call *c, const struct prompts *p, size_t i, const char *field,
                              struct err_info *info)
{
    size_t n_ids = p->n_ids[i];
    uint32_t n_ctx = engine_model(c->engine)->n_ctx;
    reply_note_context(&c->reply, n_ids, n_ctx);
    return n_ids <= n_ctx
               ? ERR_OK
               : err_set(
                     info, ERR_CONTEXT_LENGTH, field,
                     "This model's maximum context length is %u tokens; text %zu of the %s is too large: it has %zu tokens",
                     n_ctx, i, field, n_ids);
}

void vectors_truncate(const struct call *c, struct prompts *p, int64_t limit)
{
    uint32_t n_ctx = engine_model(c->engine)->n_ctx;
    size_t most = limit < 1 || limit > n_ctx ? n_ctx : (size_t)limit;
    for (size_t i = 0; i < p->n; i++) {
        if (p->n_ids[i] > most && most > 1 && p->has_end != NULL && p->has_end[i]) {
            p->ids[i][most - 1] = p->ids[i][p->n_ids[i] - 1];
        }
        p->n_ids[i] = MIN_OF(p->n_ids[i], most);
    }
}

/* Computes in steps that do not overflow for any power. */
static double norm_of(const float *x, size_t n, int norm)
{
    double largest = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)x[i]));
    }
    for (size_t i = 0; i < n && largest > 0; i++) {
        sum += norm == VECTORS_EUCLID ? (double)x[i] * x[i] : pow(fabs((double)x[i]) / largest, norm);
    }
    if (norm == VECTORS_EUCLID) {
        return sqrt(sum);
    }
    return norm == 0 ? largest / 32760 : largest * pow(sum, 1.0 / norm);
}

void vectors_scale(const float *vector, size_t width, int norm, float *out)
{
    double length = norm == VECTORS_AS_IS ? 1 : norm_of(vector, width, norm), scale = length > 0 ? 1 / length : 0;
    for (size_t i = 0; i < width; i++) {
        out[i] = (float)(vector[i] * scale);
    }
}

/* Called by the poller: the client has left. */
static void on_gone(void *arg)
{
    struct job *j = arg;
    pthread_mutex_lock(&j->lock);
    j->is_gone = true;
    for (size_t i = 0; i < WINDOW; i++) {
        if (j->open[i] != NULL) {
            engine_embedding_cancel(j->open[i]);
        }
    }
    pthread_mutex_unlock(&j->lock);
}

/* Called by threads that observe the request. */
static void look(const void *arg, struct live_look *out)
{
    struct job *j = (struct job *)arg;
    pthread_mutex_lock(&j->lock);
    out->state = j->n_done > 0 ? LIVE_PREFILL : LIVE_QUEUED;
    out->prompt_tokens = (int64_t)j->vectors->n_tokens;
    for (size_t i = 0; i < j->n_done; i++) {
        out->processed_tokens += (int64_t)j->prompts->n_ids[i];
    }
    for (size_t i = 0; i < WINDOW; i++) {
        struct sched_usage u = {0};
        if (j->open[i] != NULL) {
            engine_embedding_usage(j->open[i], &u);
        }
        out->processed_tokens += u.processed_tokens;
        out->state = u.processed_tokens > 0 || u.queue_ns > 0 ? LIVE_PREFILL : out->state;
    }
    pthread_mutex_unlock(&j->lock);
}

/* Submits as many texts as can run. After the first one was accepted, one text is always accepted, so the request
 * completes. */
static enum err submit(struct job *j, struct err_info *info)
{
    while (j->n_submitted < j->prompts->n && j->n_submitted - j->n_done < WINDOW &&
           (j->n_submitted == j->n_done || engine_group_room(j->params.group) > 0)) {
        size_t i = j->n_submitted;
        struct engine_embedding *w;
        enum err err =
            j->vectors->start(j->call->engine, j->prompts->ids[i], j->prompts->n_ids[i], &j->params, &w, info);
        if (err == ERR_AGAIN && i > j->n_done) {
            return ERR_OK;
        }
        TRY(err);
        pthread_mutex_lock(&j->lock);
        j->open[i % WINDOW] = w;
        j->n_submitted++;
        if (j->is_gone) {
            engine_embedding_cancel(w);
        }
        pthread_mutex_unlock(&j->lock);
    }
    return ERR_OK;
}

static void close_one(struct job *j, size_t slot, bool is_done)
{
    pthread_mutex_lock(&j->lock);
    struct engine_embedding *w = j->open[slot];
    j->open[slot] = NULL;
    j->n_done += is_done;
    pthread_mutex_unlock(&j->lock);
    engine_embedding_close(&w);
}

static void note_usage(struct call_usage *u, bool is_first, const struct sched_usage *usage)
{
    u->tokens.prompt += usage->prompt_tokens;
    u->tokens.cached += usage->cached_tokens;
    u->tokens.computed += MAX_OF(usage->processed_tokens - usage->cached_tokens, 0);
    u->queue_ns = is_first ? usage->queue_ns : u->queue_ns;
    u->prefill_ns += usage->prefill_ns;
}

/* Waits for the first unfinished text and reports it. */
static enum err take(struct job *j, struct err_info *info)
{
    size_t slot = j->n_done % WINDOW;
    const float *vector;
    enum err err;
    do {
        task_note("answer");
        err = engine_embedding_wait(j->open[slot], WAIT_MS, &vector, info);
    } while (err == ERR_AGAIN);
    err = err != ERR_OK ? err : j->vectors->each(j->vectors->arg, j->n_done, vector);
    struct sched_usage usage;
    engine_embedding_usage(j->open[slot], &usage);
    sched_waits_raise(&j->waits, &usage.waits);
    note_usage(&j->call->usage, j->n_done == 0, &usage);
    close_one(j, slot, err == ERR_OK);
    return err;
}

static enum err run_all(struct job *j, struct err_info *info)
{
    struct sched_share share = call_share(j->call);
    TRY(engine_group_open(j->call->engine, &share, j->prompts->n, &j->params.group));
    while (j->n_done < j->prompts->n) {
        TRY(submit(j, info));
        gate_leave(&j->call->reply.gate); /* the rest only waits for the engine */
        TRY(take(j, info));
    }
    return ERR_OK;
}

static void log_end(const struct job *j, const char *name)
{
    uint64_t took_ns = clock_now_ns() - j->call->reply.arrived_ns;
    metrics_observe(METRIC_E2E, (double)took_ns / 1e9);
    char waits[SCHED_WAITS_BYTES];
    log_line("info", "%s id=%s tenant=%s inputs=%zu prompt_tokens=%zu total_ms=%" PRIu64 " waited_ms=%s", name,
             j->call->reply.id, call_tenant(j->call), j->prompts->n, j->vectors->n_tokens, took_ns / 1000000u,
             sched_waits_text(&j->waits, waits));
}

enum err vectors_run(struct vectors *v, struct call *c, struct engine_embed_params *params, const char *name,
                     struct err_info *info)
{
    struct job j = {.call = c, .vectors = v, .prompts = v->prompts, .params = *params};
    pthread_mutex_init(&j.lock, NULL);
    v->n_tokens = 0;
    for (size_t i = 0; i < v->prompts->n; i++) {
        v->n_tokens += v->prompts->n_ids[i];
    }
    fastcgi_watch(c->reply.request, on_gone, &j);
    live_watch(&c->live, look, &j);
    enum err err = call_reserve(c, (int64_t)v->n_tokens, info);
    err = err != ERR_OK ? err : run_all(&j, info);
    live_watch(&c->live, NULL, NULL);
    fastcgi_watch(c->reply.request, NULL, NULL);
    if (j.n_submitted > 0) {
        c->usage.finish = err == ERR_OK ? "stop" : "error";
    }
    if (err == ERR_OK) {
        log_end(&j, name);
    } else if (err == ERR_OVERLOADED) {
        call_set_retry_after(c);
    }
    for (size_t i = 0; i < WINDOW; i++) {
        close_one(&j, i, false);
    }
    engine_group_close(&j.params.group);
    pthread_mutex_destroy(&j.lock);
    return err;
}
