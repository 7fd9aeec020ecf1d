/* Warms the engine up before it is ready. The system allocates KV cache, scratch and stacks on first touch, loads code
 * when it first runs, and the scheduler's estimates begin with the first step; otherwise the first request would pay
 * for all of it. A few short sequences take the usual path. */
#include "engine/engine_internal.h"

#include "engine/base/clock.h"

#include <time.h>

enum {
    WARM_SEQS = 4,
    /* Less than a page including the generated tokens, so that nothing is kept for later prompts. Few enough that the
     * scheduler takes no estimate from the slow step of a single sequence. */
    WARM_TOKENS = 15,
    WARM_STEPS = 4,
    IDLE_POLL_NS = 200000,
};
_Static_assert(WARM_TOKENS + WARM_STEPS < KV_PAGE_TOKENS, "no page is filled");

#define WARM_LIMIT_NS 2000000000u /* a begun step still ends */

static void make_prompt(const struct engine *e, int which, int32_t *ids)
{
    for (int32_t i = 0; i < WARM_TOKENS; i++) {
        ids[i] = (int32_t)((uint64_t)(which * WARM_TOKENS + i + 1) * e->info.n_vocab / (WARM_SEQS * WARM_TOKENS + 1));
    }
}

/* Keeps the first error, except a time limit, a queue for fewer sequences, or a model without text and embeddings. */
static enum err keep(enum err first, enum err err, const struct err_info *why, struct err_info *info)
{
    if (first != ERR_OK || err == ERR_OK || err == ERR_DEADLINE || err == ERR_UNSUPPORTED_ENDPOINT ||
        err == ERR_OVERLOADED) {
        return first;
    }
    return why != NULL && why->code == err ? (*info = *why).code : err_set(info, err, NULL, "%s", err_text(err));
}

/* Runs n sequences simultaneously, each generating one token less than the one before. */
static enum err generate(struct engine *e, int n, uint64_t deadline_ns, struct err_info *info)
{
    struct engine_stream *streams[WARM_SEQS] = {NULL};
    struct engine_params p;
    struct engine_event ev;
    struct err_info why = {0};
    int32_t ids[WARM_TOKENS];
    enum err first = ERR_OK;
    engine_params_init(e, &p);
    p.ignore_eos = true;
    p.deadline_ns = deadline_ns;
    for (int i = 0; i < n; i++) {
        make_prompt(e, i, ids);
        p.max_tokens = WARM_STEPS - i;
        enum err err = engine_submit(e, ids, MIN_OF((size_t)WARM_TOKENS, e->info.n_ctx - 1), &p, &streams[i], &why);
        first = keep(first, err, &why, info);
        if (err != ERR_OK) {
            break;
        }
    }
    for (int i = 0; i < n && streams[i] != NULL; i++) {
        enum err err = ERR_OK;
        while (err == ERR_OK || err == ERR_AGAIN) {
            err = engine_next(streams[i], 1000, &ev);
            first = err == ERR_OK && ev.kind == SCHED_END ? keep(first, ev.err, ev.why, info) : first;
        }
        engine_stream_close(&streams[i]);
    }
    return first;
}

static enum err embed(struct engine *e, int n, uint64_t deadline_ns, struct err_info *info)
{
    struct engine_embedding *texts[WARM_SEQS] = {NULL};
    const struct engine_embed_params p = {.deadline_ns = deadline_ns};
    struct err_info why = {0};
    int32_t ids[WARM_TOKENS];
    const float *vector;
    enum err first = ERR_OK;
    for (int i = 0; i < n; i++) {
        make_prompt(e, i, ids);
        size_t n_ids = MIN_OF((size_t)WARM_TOKENS, e->info.n_ctx);
        enum err err = (e->info.ranks ? engine_rank : engine_embed)(e, ids, n_ids, &p, &texts[i], &why);
        first = keep(first, err, &why, info);
        if (err != ERR_OK) {
            break;
        }
    }
    for (int i = 0; i < n && texts[i] != NULL; i++) {
        enum err err;
        do {
            err = engine_embedding_wait(texts[i], 1000, &vector, &why);
        } while (err == ERR_AGAIN);
        first = keep(first, err, &why, info);
        engine_embedding_close(&texts[i]);
    }
    return first;
}

/* Waits until the scheduler has released everything, in the step after the last. */
static void wait_idle(const struct engine *e)
{
    const struct timespec pause = {.tv_nsec = IDLE_POLL_NS};
    uint64_t until = clock_now_ns() + WARM_LIMIT_NS;
    struct sched_stats now;
    for (;;) {
        sched_get_stats(e->sched, &now);
        if (now.n_running + now.n_waiting + now.pages_held == 0 || clock_now_ns() > until) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* Tokenizes a conversation and discards the ids. */
static void tokenize(const struct engine *e)
{
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "What is 1 + 1, I'd ask?");
    json_t *context = messages != NULL ? engine_chat_context(e, messages, true) : NULL;
    struct err_info info;
    struct arena arena;
    int32_t *ids;
    size_t n;
    arena_init(&arena, 0, 0, MEM_REQUEST);
    if (context != NULL) {
        (void)!engine_chat(e, context, &arena, &ids, &n, &info);
    }
    arena_fini(&arena);
    json_decref(context);
    json_decref(messages);
}

enum err engine_warm(struct engine *e, struct err_info *info)
{
    enum err first = ERR_OK;
    tokenize(e);
    if (e->opens_behind) {
        return ERR_OK; /* the first request would wait longer, and estimates would begin with slow steps */
    }
    uint64_t deadline_ns = clock_now_ns() + WARM_LIMIT_NS;
    static const int rounds[] = {1, WARM_SEQS};
    for (size_t i = 0; i < ARRAY_LEN(rounds); i++) {
        enum err err = (e->info.generates ? generate : embed)(e, rounds[i], deadline_ns, info);
        first = first != ERR_OK ? first : err;
    }
    wait_idle(e);
    sched_clear_stats(e->sched); /* no request asked for this work */
    return first;
}
