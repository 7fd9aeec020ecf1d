/* The admin command bench: measures the speed of one thread that copies memory, and of a short prompt and answer in the
 * serving engine, next to other requests. For a reliable figure nothing else should run; `infcgi bench` measures in its
 * own process. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "fcgi/watch/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COPY_BYTES = 32 << 20, COPIES = 4, PROMPT_TOKENS = 128, ANSWER_TOKENS = 32, SALT_BYTES = 32 };

struct bench {
    struct engine_stream *stream;
    double copy_gib_s; /* read and written */
    uint64_t n_beside; /* sequences running at the start */
};

/* Returns 0 if out of memory. The first copy, which faults the pages in, is not counted. */
static double measure_copy(void)
{
    char *from = mem_map(2 * COPY_BYTES, MEM_GENERAL);
    uint64_t start = 0;
    if (from == NULL) {
        return 0;
    }
    for (int i = 0; i <= COPIES; i++) {
        start = i == 1 ? clock_now_ns() : start;
        from[0] = (char)i;
        memcpy(from + COPY_BYTES, from, COPY_BYTES);
    }
    double gib_s = 2.0 * COPIES * COPY_BYTES / (1 << 30) / ((double)(clock_now_ns() - start) / 1e9);
    mem_unmap(from, 2 * COPY_BYTES, MEM_GENERAL);
    return gib_s;
}

static void end(struct admin_call *c)
{
    struct bench *b = c->state;
    engine_stream_close(&b->stream);
    mem_free(b);
    c->state = NULL;
}

static json_t *report(const struct bench *b)
{
    struct sched_usage u;
    engine_stream_usage(b->stream, &u);
    double prefill_s = (double)u.prefill_ns / 1e9, decode_s = (double)u.decode_ns / 1e9;
    return json_pack("{s:f, s:i, s:f, s:i, s:f, s:f, s:I}", "copy_gib_s", b->copy_gib_s, "prompt_tokens",
                     u.prompt_tokens, "prompt_tokens_s", prefill_s > 0 ? u.prompt_tokens / prefill_s : 0.0,
                     "answer_tokens", u.completion_tokens, "answer_tokens_s",
                     decode_s > 0 ? (u.completion_tokens - 1) / decode_s : 0.0, "queue_ms", (double)u.queue_ns / 1e6,
                     "sequences_beside", (json_int_t)b->n_beside);
}

static bool go_on(struct admin_call *c, json_t **last)
{
    struct bench *b = c->state;
    struct engine_event ev;
    enum err err;
    while ((err = engine_next(b->stream, 0, &ev)) == ERR_OK) {
        if (ev.kind == SCHED_END && ev.err != ERR_OK) {
            (void)admin_refuse(c, ADMIN_REFUSED, "bench: %s", ev.why != NULL ? ev.why->text : err_text(ev.err));
            return false;
        }
    }
    if (err == ERR_NONE) {
        *last = report(b);
    }
    return err == ERR_AGAIN;
}

json_t *admin_bench(struct admin_call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    if (!m->generates || m->n_ctx < 2 * (PROMPT_TOKENS + ANSWER_TOKENS)) {
        return admin_refuse(c, ADMIN_REFUSED, "bench: expected a model that generates, with a context of %d tokens",
                            2 * (PROMPT_TOKENS + ANSWER_TOKENS));
    }
    struct bench *b = mem_zalloc(sizeof *b, MEM_GENERAL);
    if (b == NULL) {
        return admin_refuse(c, ADMIN_REFUSED, "bench: out of memory");
    }
    struct engine_params p;
    struct err_info info = {0};
    struct sched_stats s;
    int32_t ids[PROMPT_TOKENS];
    char salt[SALT_BYTES]; /* keeps earlier runs' prefixes from matching in the cache */
    engine_params_init(c->engine, &p);
    snprintf(salt, sizeof salt, "bench-%016" PRIx64, rng_fresh_seed());
    for (int i = 0; i < PROMPT_TOKENS; i++) {
        ids[i] = (int32_t)((uint32_t)(i + 1) * 7919u % m->n_vocab);
    }
    p.max_tokens = ANSWER_TOKENS;
    p.ignore_eos = true;
    p.sampling.temperature = 0;
    p.cache_salt = salt;
    p.keeps_no_snapshots = true;
    engine_get_stats(c->engine, &s);
    b->n_beside = s.n_running;
    b->copy_gib_s = measure_copy();
    enum err err = engine_submit(c->engine, ids, PROMPT_TOKENS, &p, &b->stream, &info);
    if (err != ERR_OK) {
        mem_free(b);
        return admin_refuse(c, ADMIN_REFUSED, "bench: %s", info.text[0] != '\0' ? info.text : err_text(err));
    }
    c->state = b;
    c->go_on = go_on;
    c->end = end;
    return NULL;
}
