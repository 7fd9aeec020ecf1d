/* POST /v1/embeddings, in OpenAI's shape: each text becomes a vector of length 1. Texts of one request run beside each
 * other, so many at a time that others find room in the queue; answers are written in their order as they come. */
#include "fcgi/api/generation.h"
#include "fcgi/api/prompts.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/log.h"
#include "fcgi/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_INPUTS = 2048, /* as OpenAI's */
    WINDOW = 64,       /* texts of one request in the engine at a time */
    WAIT_MS = 1000,
    MAX_SALT_BYTES = 256,
};

struct embeddings_fields {
    const char *model, *encoding_format, *cache_salt;
    int64_t dimensions; /* 0 = all */
};

static const struct field fields[] = {
    {"model", FIELD_STRING, offsetof(struct embeddings_fields, model), 0, 4096},
    {"input", FIELD_CUSTOM, 0, 0, 0},
    {"encoding_format", FIELD_STRING, offsetof(struct embeddings_fields, encoding_format), 0, 64},
    {"dimensions", FIELD_INT, offsetof(struct embeddings_fields, dimensions), 1, 1 << 20},
    {"cache_salt", FIELD_STRING, offsetof(struct embeddings_fields, cache_salt), 0, MAX_SALT_BYTES},
    {"user", FIELD_IGNORED, 0, 0, 0},
};

/* A request being answered. */
struct job {
    struct call *call;
    struct prompts prompts;
    size_t width;     /* components of an answer */
    float *short_one; /* [width] where that is less than all of them; else NULL */
    bool as_base64;
    struct engine_embed_params params;
    char salt[APIKEY_SALT_BYTES]; /* params.cache_salt may point here */
    size_t n_submitted, n_done;
    struct sched_waits waits; /* the longest of a text */
    struct buf out;
    pthread_mutex_t lock;                  /* guards `open` and is_gone against the poller */
    struct engine_embedding *open[WINDOW]; /* text i at i % WINDOW */
    bool is_gone;
};

/* --- vectors ------------------------------------------------------------------------------------------------------ */

/* The first `width` of the vector's components, again of length 1: models trained for it keep most of the meaning in
 * the first ones [Kusupati 2022, "Matryoshka Representation Learning"]. */
static void shorten(const float *vector, size_t width, float *out)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        sum += (double)vector[i] * vector[i];
    }
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (size_t i = 0; i < width; i++) {
        out[i] = (float)(vector[i] * scale);
    }
}

static void write_numbers(const float *x, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        json_write_float(out, x[i]);
    }
    buf_putc(out, ']');
}

/* Byte `at` of little-endian 32-bit floats. */
static uint32_t byte_of(const float *x, size_t at)
{
    uint32_t bits;
    memcpy(&bits, &x[at / 4], sizeof bits);
    return bits >> at % 4 * 8 & 255;
}

/* [RFC 4648, 4] */
static void write_base64(const float *x, size_t n, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = 4 * n;
    buf_putc(out, '"');
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        uint32_t v = byte_of(x, i) << 16 | (left > 1 ? byte_of(x, i + 1) << 8 : 0) | (left > 2 ? byte_of(x, i + 2) : 0);
        const char four[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                              left > 2 ? digits[v & 63] : '='};
        buf_append(out, four, sizeof four);
    }
    buf_putc(out, '"');
}

static enum err write_vector(struct job *j, const float *vector)
{
    if (j->short_one != NULL) {
        shorten(vector, j->width, j->short_one);
        vector = j->short_one;
    }
    buf_printf(&j->out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", j->n_done == 0 ? "" : ",",
               j->n_done);
    (j->as_base64 ? write_base64 : write_numbers)(vector, j->width, &j->out);
    buf_putc(&j->out, '}');
    return buf_ok(&j->out);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* From the poller: the client has left. */
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

/* Hands on as many texts as may run. Once one was taken, one always may be there, so what was begun is finished. */
static enum err submit(struct job *j, struct err_info *info)
{
    while (j->n_submitted < j->prompts.n && j->n_submitted - j->n_done < WINDOW &&
           (j->n_submitted == j->n_done || engine_group_room(j->params.group) > 0)) {
        size_t i = j->n_submitted;
        struct engine_embedding *w;
        enum err err = engine_embed(j->call->engine, j->prompts.ids[i], j->prompts.n_ids[i], &j->params, &w, info);
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

static void close_one(struct job *j, size_t slot)
{
    pthread_mutex_lock(&j->lock);
    struct engine_embedding *w = j->open[slot];
    j->open[slot] = NULL;
    pthread_mutex_unlock(&j->lock);
    engine_embedding_close(&w);
}

/* Waits for the first that is not done, and writes it. */
static enum err take(struct job *j, struct err_info *info)
{
    size_t slot = j->n_done % WINDOW;
    const float *vector;
    enum err err;
    do {
        err = engine_embedding_wait(j->open[slot], WAIT_MS, &vector, info);
    } while (err == ERR_AGAIN);
    err = err != ERR_OK ? err : write_vector(j, vector);
    struct sched_usage usage;
    engine_embedding_usage(j->open[slot], &usage);
    sched_waits_raise(&j->waits, &usage.waits);
    close_one(j, slot);
    j->n_done += err == ERR_OK;
    return err;
}

static enum err run_all(struct job *j, struct err_info *info)
{
    TRY(engine_group_open(j->call->engine, apikey_number(&j->call->caller), j->prompts.n, &j->params.group));
    buf_puts(&j->out, "{\"object\":\"list\",\"data\":[");
    while (j->n_done < j->prompts.n) {
        TRY(submit(j, info));
        TRY(take(j, info));
    }
    size_t n_tokens = 0;
    for (size_t i = 0; i < j->prompts.n; i++) {
        n_tokens += j->prompts.n_ids[i];
    }
    buf_puts(&j->out, "],\"model\":");
    json_write_cstr(&j->out, j->call->server->model_id);
    buf_printf(&j->out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", n_tokens, n_tokens);
    uint64_t took_ns = clock_now_ns() - j->call->reply.arrived_ns;
    metrics_observe(METRIC_E2E, (double)took_ns / 1e9);
    char waits[SCHED_WAITS_BYTES];
    log_line("info", "embeddings id=%s inputs=%zu prompt_tokens=%zu total_ms=%" PRIu64 " waited_ms=%s",
             j->call->reply.id, j->prompts.n, n_tokens, took_ns / 1000000u, sched_waits_text(&j->waits, waits));
    return buf_ok(&j->out);
}

static void answer(struct job *j)
{
    struct err_info info = {0};
    struct call *c = j->call;
    fastcgi_watch(c->reply.request, on_gone, j);
    enum err err = run_all(j, &info);
    fastcgi_watch(c->reply.request, NULL, NULL);
    if (err == ERR_OK) {
        reply_send(&c->reply, 200, "application/json", &j->out);
        return;
    }
    if (err == ERR_OVERLOADED) {
        generation_set_retry_after(c);
    }
    reply_error(&c->reply, err, info.code == err ? &info : NULL);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

static enum err check_lengths(const struct job *j, struct err_info *info)
{
    uint32_t n_ctx = engine_model(j->call->engine)->n_ctx;
    for (size_t i = 0; i < j->prompts.n; i++) {
        if (j->prompts.n_ids[i] > n_ctx) {
            return err_set(info, ERR_CONTEXT_LENGTH, "input",
                           "This model's maximum context length is %u tokens; text %zu of the input has %zu tokens",
                           n_ctx, i, j->prompts.n_ids[i]);
        }
    }
    return ERR_OK;
}

static enum err read_fields(struct job *j, const json_t *root, struct err_info *info)
{
    static const struct prompts_rule rule = {.field = "input", .max = MAX_INPUTS, .refuses_empty = true};
    const struct server *server = j->call->server;
    const struct engine_model_info *m = engine_model(j->call->engine);
    struct embeddings_fields f = {0};
    TRY(json_in_fields(root, fields, ARRAY_LEN(fields), server->conf->strict_api, &f, info));
    TRY(generation_check_model(server, f.model, info));
    TRY(engine_check_embeds(j->call->engine, info));
    j->as_base64 = f.encoding_format != NULL && strcmp(f.encoding_format, "base64") == 0;
    if (f.encoding_format != NULL && !j->as_base64 && strcmp(f.encoding_format, "float") != 0) {
        return err_set(info, ERR_INVALID_VALUE, "encoding_format",
                       "encoding_format: expected float or base64, found '%.64s'", f.encoding_format);
    }
    if (f.dimensions > (int64_t)m->n_embd) {
        return err_set(info, ERR_INVALID_VALUE, "dimensions", "dimensions: expected 1 to %u, found %" PRId64, m->n_embd,
                       f.dimensions);
    }
    j->width = f.dimensions != 0 ? (size_t)f.dimensions : m->n_embd;
    if (j->width < m->n_embd) {
        j->short_one = arena_alloc(&j->call->arena, j->width * sizeof *j->short_one);
    }
    int64_t timeout_s = server->conf->timeout_s;
    if (f.cache_salt != NULL) { /* the JSON is gone when the texts are handed on */
        f.cache_salt = arena_dup(&j->call->arena, f.cache_salt, strlen(f.cache_salt));
    }
    j->params.cache_salt = generation_salt(j->call, f.cache_salt, j->salt);
    j->params.deadline_ns = timeout_s != 0 ? j->call->reply.arrived_ns + (uint64_t)timeout_s * 1000000000u : 0;
    TRY(prompts_read(&j->prompts, j->call, root, &rule, info));
    TRY(arena_ok(&j->call->arena));
    return check_lengths(j, info);
}

void api_embeddings(struct call *c)
{
    struct err_info info = {0};
    struct job j = {.call = c};
    buf_init(&j.out, 0, MEM_REQUEST);
    pthread_mutex_init(&j.lock, NULL);
    enum err err = route_read_json(c, &info);
    err = err != ERR_OK ? err : read_fields(&j, c->json, &info);
    route_drop_json(c);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        answer(&j);
    }
    for (size_t i = 0; i < WINDOW; i++) {
        close_one(&j, i);
    }
    engine_group_close(&j.params.group);
    buf_fini(&j.out);
    pthread_mutex_destroy(&j.lock);
}
