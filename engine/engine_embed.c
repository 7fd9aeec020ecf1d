/* Embeddings: a prompt passes through the scheduler like any other and returns as a vector. */
#include "engine/engine_internal.h"

#include <math.h>

/* An embedding being computed. */
struct engine_embedding {
    const struct engine *engine;
    struct sched_seq *seq;
    const float *result; /* set once it is computed */
    bool has_ended;
    bool keeps_length;
    struct err_info why; /* valid once it has ended: code ERR_OK: computed */
    float number;        /* of a pair */
    float *vector;       /* [n_embd_out], of a text if layers follow the pooling ... */
    double room[];       /* ... and the scratch of these layers, before the vector */
};

/* Allocates an embedding with the room that its result needs. */
static struct engine_embedding *new_embedding(const struct engine *e)
{
    size_t room = engine_head_room(e->head), n = e->head != NULL && !e->info.ranks ? e->info.n_embd_out : 0;
    struct engine_embedding *w = mem_zalloc(sizeof *w + room * sizeof *w->room + n * sizeof *w->vector, MEM_REQUEST);
    if (w != NULL) {
        w->engine = e;
        w->vector = (float *)(void *)(w->room + room);
    }
    return w;
}

enum err engine_check_embeds(const struct engine *e, struct err_info *info)
{
    if (e->info.ranks) {
        return err_set(info, ERR_UNSUPPORTED_ENDPOINT, "model",
                       "the model ranks pairs of texts: expected /v1/rerank or /v1/score, or the option "
                       "--pooling mean, cls or last");
    }
    return e->info.pooling != NULL
               ? ERR_OK
               : err_set(info, ERR_UNSUPPORTED_ENDPOINT, "model",
                         "the model file does not say how states become an embedding: expected the option "
                         "--pooling mean, cls or last");
}

static enum err submit(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                       struct engine_embedding **out, struct err_info *info)
{
    TRY(engine_check_file(e, info));
    TRY(engine_check_prompt(e, ids, n_ids, e->info.n_ctx, info));
    struct engine_embedding *w = new_embedding(e);
    TRY_MEM_FOR(w != NULL, info, "out of memory for the request");
    w->keeps_length = p->keeps_length;
    const struct sched_request r = {.pooling = e->info.ranks ? e->plan->ranker.states : e->plan->pooling,
                                    .keeps_length = e->head != NULL || p->keeps_length,
                                    .tokens = ids,
                                    .n_tokens = (int32_t)n_ids,
                                    .salt = p->cache_salt,
                                    .deadline_ns = p->deadline_ns};
    enum err err = sched_submit_all(e->sched, p->group, &r, 1, &w->seq, info);
    if (err != ERR_OK) {
        mem_free(w);
        return err;
    }
    *out = w;
    return ERR_OK;
}

enum err engine_embed(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                      struct engine_embedding **out, struct err_info *info)
{
    *out = NULL;
    TRY(engine_check_embeds(e, info));
    return submit(e, ids, n_ids, p, out, info);
}

enum err engine_rank(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                     struct engine_embedding **out, struct err_info *info)
{
    *out = NULL;
    TRY(engine_check_ranks(e, info));
    return submit(e, ids, n_ids, p, out, info);
}

/* Computes the layers after the pooling, and normalises to length 1 unless keeps_length is set. ERR_NUMERICAL. */
static enum err find_vector(struct engine_embedding *w)
{
    const double *x = engine_head_run(w->engine->head, sched_embedding(w->seq), w->room);
    size_t n = w->engine->info.n_embd_out;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    double length = w->keeps_length ? 1 : sqrt(sum);
    for (size_t i = 0; i < n; i++) {
        w->vector[i] = sum > 0 ? (float)(x[i] / length) : 0;
    }
    w->result = w->vector;
    return isfinite(sum) ? ERR_OK : ERR_NUMERICAL;
}

static enum err find_number(struct engine_embedding *w)
{
    w->number = engine_rank_number(w->engine, sched_embedding(w->seq), w->room);
    w->result = &w->number;
    return isfinite(w->number) ? ERR_OK : ERR_NUMERICAL;
}

/* Called for a sequence that ended without an error. */
static void find_result(struct engine_embedding *w)
{
    w->result = sched_embedding(w->seq);
    enum err err = sched_check_states(w->seq);
    if (err == ERR_OK && (w->engine->info.ranks || w->engine->head != NULL)) {
        err = w->engine->info.ranks ? find_number(w) : find_vector(w);
    }
    if (err != ERR_OK) {
        err_set(&w->why, err, NULL, "%s", err_text(err));
    }
}

enum err engine_embedding_wait(struct engine_embedding *w, int timeout_ms, const float **out, struct err_info *info)
{
    *out = NULL;
    if (!w->has_ended) {
        struct sched_event ev;
        TRY(sched_next(w->seq, timeout_ms, &ev));
        w->has_ended = true; /* an embedding has one event */
        if (ev.err != ERR_OK) {
            err_set(&w->why, ev.err, NULL, "%s", ev.why != NULL ? ev.why->text : err_text(ev.err));
        } else {
            find_result(w);
        }
    }
    *out = w->why.code == ERR_OK ? w->result : NULL;
    return w->why.code == ERR_OK ? ERR_OK : err_set(info, w->why.code, NULL, "%s", w->why.text);
}

void engine_embedding_usage(const struct engine_embedding *w, struct sched_usage *out) { sched_seq_usage(w->seq, out); }

void engine_embedding_cancel(struct engine_embedding *w) { sched_cancel(w->seq); }

void engine_embedding_close(struct engine_embedding **embedding)
{
    struct engine_embedding *w = *embedding;
    if (w != NULL) {
        sched_release(&w->seq);
        mem_free(w);
        *embedding = NULL;
    }
}
