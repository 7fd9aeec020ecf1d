/* The engine's door: opening a model, and streams that turn sampled tokens into text. Stop strings and detokenising happen
 * here, in the reader's thread, so that the scheduler deals in ids alone. */
#include "engine/engine.h"

#include "engine/backend/backend.h"
#include "engine/base/ck.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/base/rng.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/sample/stop.h"
#include "engine/sched/sched.h"
#include "engine/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    DEFAULT_MAX_CTX = 32768,
    DEFAULT_KV_TOKENS = 32768,
    DEFAULT_MAX_SEQS = 16,
    DEFAULT_BATCH_ROWS = 512,
    DEFAULT_QUEUE = 256,
    EXTRA_LOGITS = 48, /* rows of logits beyond one per sequence: what a prompt's log-probabilities take at a time */
    MAX_TEXT_BYTES = 1 << 30,
};

struct engine {
    struct gguf *gguf;
    struct plan *plan;
    struct tokenizer *tokenizer;
    const struct backend *backend;
    struct backend_model *model;
    struct sched *sched;
    struct engine_model_info info;
    struct arena arena;   /* strings of info */
    int32_t *ends;        /* [n_ends] ids that end a generation */
    size_t n_ends;
    uint32_t max_seqs;
};

/* --- opening ------------------------------------------------------------------------------------------------------- */

static enum err no_memory(struct err_info *info) { return err_set(info, ERR_NOMEM, NULL, "out of memory for the model"); }

/* A NUL-terminated copy that lives as long as the engine. */
static const char *keep(struct engine *e, const char *s, size_t n)
{
    const char *copy = arena_dup(&e->arena, s == NULL ? "" : s, s == NULL ? 0 : n);
    return copy != NULL ? copy : "";
}

static const char *keep_token(struct engine *e, int32_t id)
{
    struct gguf_str text = {0};
    if (id >= 0) {
        text = tokenizer_token_text(e->tokenizer, id);
    }
    return keep(e, text.data, text.len);
}

static void describe_name(struct engine *e, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    size_t n = strlen(base);
    n -= n > 5 && strcmp(base + n - 5, ".gguf") == 0 ? 5 : 0;
    e->info.id = keep(e, base, n);
    struct gguf_str name;
    struct err_info ignored;
    bool has_name = gguf_get_str_or_null(e->gguf, "general.name", &name, &ignored) == ERR_OK && name.len > 0 &&
                    name.len < 256;
    e->info.name = has_name ? keep(e, name.data, name.len) : e->info.id;
}

/* Parameter count, the type most of them have, and a fingerprint of names, types and shapes. */
static void describe_tensors(struct engine *e)
{
    uint64_t by_type[DTYPE_COUNT] = {0}, h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < gguf_n_tensors(e->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, i);
        uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        e->info.n_params += n;
        by_type[t->type] += n;
        for (size_t k = 0; k < t->name.len; k++) {
            h = (h ^ (unsigned char)t->name.data[k]) * 0x100000001B3u;
        }
        h = (h ^ t->offset ^ t->bytes << 20 ^ (uint64_t)t->type << 56) * 0x100000001B3u;
    }
    int most = 0;
    for (int i = 1; i < DTYPE_COUNT; i++) {
        most = by_type[i] > by_type[most] ? i : most;
    }
    e->info.quantization = dtype_info((uint32_t)most)->name;
    e->info.fingerprint = h ^ e->info.file_bytes;
}

static enum err describe_sampling(struct engine *e, const struct engine_sampling *wanted, struct err_info *info)
{
    struct engine_sampling *s = &e->info.sampling;
    double top_k = 0;
    const struct {
        const char *key;
        double *to, fallback, min, max;
    } rows[] = {{"general.sampling.temp", &s->temperature, 1, 0, 2},
                {"general.sampling.top_p", &s->top_p, 1, 0, 1},
                {"general.sampling.min_p", &s->min_p, 0, 0, 1},
                {"general.sampling.top_k", &top_k, 0, -1, INT32_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct gguf_kv *kv = gguf_find(e->gguf, rows[i].key);
        *rows[i].to = rows[i].fallback;
        if (kv != NULL && kv->type != GGUF_ARRAY && kv->type != GGUF_STRING) {
            *rows[i].to = kv->type == GGUF_F32 || kv->type == GGUF_F64 ? gguf_elem_f64(kv, 0) : (double)gguf_elem_i64(kv, 0);
        }
        if (!(*rows[i].to >= rows[i].min && *rows[i].to <= rows[i].max)) {
            return err_set(info, ERR_BAD_HPARAM, rows[i].key, "%s: expected %g to %g, found %g", rows[i].key, rows[i].min,
                           rows[i].max, *rows[i].to);
        }
    }
    s->top_k = (int32_t)MAX_OF(top_k, 0.0);
    if (wanted != NULL) {
        s->temperature = wanted->temperature >= 0 ? wanted->temperature : s->temperature;
        s->top_p = wanted->top_p >= 0 ? wanted->top_p : s->top_p;
        s->min_p = wanted->min_p >= 0 ? wanted->min_p : s->min_p;
        s->top_k = wanted->top_k >= 0 ? wanted->top_k : s->top_k;
    }
    return ERR_OK;
}

static enum err describe(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct gguf_str arch, chat;
    TRY(gguf_get_str(e->gguf, "general.architecture", &arch, info));
    TRY(gguf_get_str_or_null(e->gguf, "tokenizer.chat_template", &chat, info));
    e->info.file = keep(e, cfg->model_path, strlen(cfg->model_path));
    e->info.architecture = keep(e, arch.data, arch.len);
    e->info.file_bytes = gguf_file_bytes(e->gguf);
    describe_name(e, cfg->model_path);
    describe_tensors(e);
    TRY(describe_sampling(e, cfg->sampling, info));
    e->info.n_vocab = e->plan->n_vocab;
    e->info.n_embd = e->plan->n_embd;
    e->info.n_layers = e->plan->n_layers;
    e->info.n_ctx_train = e->plan->n_ctx_train;
    e->info.bos = tokenizer_bos(e->tokenizer);
    e->info.eos = tokenizer_eos(e->tokenizer);
    e->info.bos_text = keep_token(e, e->info.bos);
    e->info.eos_text = keep_token(e, e->info.eos);
    if (chat.data != NULL) {
        e->info.chat_template = keep(e, chat.data, chat.len);
        e->info.chat_template_len = chat.len;
    }
    return ERR_OK;
}

static enum err list_ends(struct engine *e, struct err_info *info)
{
    for (int32_t id = 0; id < tokenizer_n_vocab(e->tokenizer); id++) {
        e->n_ends += tokenizer_is_eog(e->tokenizer, id);
    }
    e->ends = mem_zalloc_array(e->n_ends + 1, sizeof *e->ends, MEM_MODEL);
    if (e->ends == NULL) {
        return no_memory(info);
    }
    size_t n = 0;
    for (int32_t id = 0; id < tokenizer_n_vocab(e->tokenizer); id++) {
        if (tokenizer_is_eog(e->tokenizer, id)) {
            e->ends[n++] = id;
        }
    }
    return ERR_OK;
}

static void drop_file_pages(void *arg, uint64_t offset, uint64_t n)
{
    io_map_drop(gguf_map(((struct engine *)arg)->gguf), (size_t)offset, (size_t)n);
}

/* Limits of the scheduler and the back end, from what the operator asked for and the model has. */
static enum err plan_limits(struct engine *e, const struct engine_config *cfg, struct sched_config *sc, struct err_info *info)
{
    uint32_t n_ctx = cfg->n_ctx != 0 ? cfg->n_ctx : MIN_OF(e->plan->n_ctx_train, (uint32_t)DEFAULT_MAX_CTX);
    if (n_ctx < 2 || n_ctx > e->plan->n_ctx_train) {
        return err_set(info, ERR_CONFIG, "ctx-size", "ctx-size: expected 2 to the model's %u tokens, found %u",
                       e->plan->n_ctx_train, n_ctx);
    }
    uint64_t kv_tokens = cfg->kv_tokens != 0 ? cfg->kv_tokens : MAX_OF((uint64_t)n_ctx, (uint64_t)DEFAULT_KV_TOKENS);
    if (kv_tokens < n_ctx || kv_tokens > (uint64_t)INT32_MAX - BACKEND_PAGE_TOKENS) {
        return err_set(info, ERR_CONFIG, "kv-tokens", "kv-tokens: expected ctx-size %u or more, found %" PRIu64, n_ctx, kv_tokens);
    }
    e->info.n_ctx = n_ctx;
    sc->n_ctx = (int32_t)n_ctx;
    sc->n_vocab = (int32_t)e->plan->n_vocab;
    sc->n_pages = (int32_t)((kv_tokens + BACKEND_PAGE_TOKENS - 1) / BACKEND_PAGE_TOKENS);
    sc->max_seqs = cfg->max_seqs != 0 ? cfg->max_seqs : DEFAULT_MAX_SEQS;
    sc->max_rows = MAX_OF(cfg->max_batch_rows != 0 ? cfg->max_batch_rows : DEFAULT_BATCH_ROWS, sc->max_seqs);
    sc->max_logits = sc->max_seqs + EXTRA_LOGITS;
    sc->queue_max = cfg->queue_max_requests != 0 ? cfg->queue_max_requests : DEFAULT_QUEUE;
    return ERR_OK;
}

/* Refuses before anything large is taken when weights, KV and activations exceed the operator's limit. */
static enum err check_memory_limit(const struct engine *e, const struct engine_config *cfg, const struct sched_config *sc,
                                   struct err_info *info)
{
    uint64_t kv = 2ull * 2 * e->plan->n_kv_heads * e->plan->head_dim * e->plan->n_layers * BACKEND_PAGE_TOKENS;
    uint64_t logits = (uint64_t)sc->max_logits * e->plan->n_vocab * sizeof(float), need = e->info.file_bytes;
    bool fits = ck_mul(kv, (uint64_t)sc->n_pages, &kv) && ck_add(need, kv, &need) && ck_add(need, logits, &need);
    if (cfg->memory_limit_bytes == 0 || (fits && need <= cfg->memory_limit_bytes)) {
        return ERR_OK;
    }
    return err_set(info, ERR_MEMORY_LIMIT, "memory-limit",
                   "weights, KV cache and logits need %" PRIu64 " MiB, the limit is %" PRIu64 " MiB", need >> 20,
                   cfg->memory_limit_bytes >> 20);
}

static enum err open_backend(struct engine *e, const struct engine_config *cfg, struct sched_config *sc, struct err_info *info)
{
    const char *name = cfg->backend != NULL ? cfg->backend : "cpu";
    e->backend = backend_find(name);
    if (e->backend == NULL) {
        return err_set(info, ERR_CONFIG, "backend", "backend: expected cpu or ref, found '%s'", name);
    }
    struct backend_config bc = {.cpu = cfg->cpu,
                                .n_threads = cfg->n_threads != 0 ? cfg->n_threads : pool_cpu_count(),
                                .n_pages = sc->n_pages,
                                .max_rows = sc->max_rows,
                                .max_logits = sc->max_logits,
                                .progress = cfg->progress,
                                .progress_arg = cfg->progress_arg,
                                .weight_done = drop_file_pages,
                                .weight_done_arg = e};
    TRY(e->backend->open(e->plan, &bc, &e->model, info));
    struct backend_info bi;
    e->backend->info(e->model, &bi);
    e->info.backend = e->backend->name;
    e->info.kernels = bi.kernels;
    e->info.weight_bytes = bi.weight_bytes;
    e->info.kv_bytes = bi.kv_bytes;
    e->info.n_threads = bc.n_threads;
    sc->backend = e->backend;
    sc->model = e->model;
    return ERR_OK;
}

static enum err read_file(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(gguf_open(cfg->model_path, &e->gguf, info));
    TRY(model_build(e->gguf, &e->plan, info));
    TRY(tokenizer_new(e->gguf, &e->tokenizer, info));
    if ((uint32_t)tokenizer_n_vocab(e->tokenizer) != e->plan->n_vocab) {
        return err_set(info, ERR_BAD_VOCAB, "tokenizer.ggml.tokens",
                       "tokenizer.ggml.tokens: expected %u tokens, as token_embd.weight has rows; found %d", e->plan->n_vocab,
                       tokenizer_n_vocab(e->tokenizer));
    }
    return describe(e, cfg, info);
}

static enum err open_all(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct sched_config sc = {0};
    TRY(read_file(e, cfg, info));
    TRY(list_ends(e, info));
    TRY(plan_limits(e, cfg, &sc, info));
    TRY(check_memory_limit(e, cfg, &sc, info));
    TRY(open_backend(e, cfg, &sc, info));
    return sched_new(&sc, &e->sched, info);
}

enum err engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info)
{
    *out = NULL;
    struct engine *e = mem_zalloc(sizeof *e, MEM_MODEL);
    if (e == NULL) {
        return no_memory(info);
    }
    arena_init(&e->arena, 4096, 0, MEM_MODEL);
    enum err err = open_all(e, cfg, info);
    if (err != ERR_OK) {
        engine_close(&e);
        return err;
    }
    *out = e;
    return ERR_OK;
}

enum err engine_check(const char *path, struct err_info *info)
{
    struct engine_config cfg = {.model_path = path};
    struct engine *e = mem_zalloc(sizeof *e, MEM_MODEL);
    if (e == NULL) {
        return no_memory(info);
    }
    arena_init(&e->arena, 4096, 0, MEM_MODEL);
    enum err err = read_file(e, &cfg, info);
    engine_close(&e);
    return err;
}

void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    if (e == NULL) {
        return;
    }
    sched_free(&e->sched);
    if (e->model != NULL) {
        e->backend->close(&e->model);
    }
    tokenizer_free(&e->tokenizer);
    plan_free(&e->plan);
    gguf_close(&e->gguf);
    mem_free(e->ends);
    arena_fini(&e->arena);
    mem_free(e);
    *engine = NULL;
}

const struct engine_model_info *engine_model(const struct engine *e) { return &e->info; }
void engine_drain(struct engine *e) { sched_drain(e->sched); }

/* --- text and tokens ----------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(struct engine_span) == sizeof(struct tokenizer_span), "spans pass through");

enum err engine_tokenize(const struct engine *e, const char *text, size_t n, bool add_special, bool parse_special,
                         const struct engine_span *plain, size_t n_plain, size_t max_tokens, int32_t **ids, size_t *n_ids)
{
    struct token_list list = {0};
    unsigned flags = (add_special ? TOKENIZE_ADD_SPECIAL : 0u) | (parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    *ids = NULL;
    *n_ids = 0;
    enum err err = tokenizer_encode(e->tokenizer, text, n, flags, (const struct tokenizer_span *)(const void *)plain, n_plain,
                                    max_tokens, &list);
    if (err != ERR_OK) {
        token_list_fini(&list);
        return err;
    }
    *ids = list.ids;
    *n_ids = list.n;
    return ERR_OK;
}

enum err engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, struct buf *out)
{
    struct detokenizer d = {.started = true};
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->info.n_vocab) {
            return ERR_INVALID_VALUE;
        }
        detokenizer_push(&d, e->tokenizer, ids[i], true, out);
    }
    detokenizer_finish(&d, out);
    return buf_ok(out);
}

void engine_token_bytes(const struct engine *e, int32_t id, struct buf *out)
{
    tokenizer_piece(e->tokenizer, id, true, out);
}

/* --- streams ------------------------------------------------------------------------------------------------------- */

/* A token whose text is not all released yet. */
struct pending {
    struct sampler_result token;
    size_t text_end; /* offset behind its text, counted from the start of the stream's text */
};

enum { MAX_PENDING = ENGINE_MAX_STOP_BYTES + 8 }; /* each held-back token but the last few holds a byte at least */

struct engine_stream {
    struct engine *engine;
    struct sched_seq *seq;
    struct detokenizer detok;
    struct stop stop;
    char *stop_text;       /* the stop strings, owned */
    bool show_special, has_ended, is_stopped;
    size_t n_decoded;      /* bytes of text so far, released or held */
    size_t n_released;     /* bytes given out */
    struct pending pending[MAX_PENDING];
    int n_pending;
    struct buf text;       /* of the event last given out */
    struct buf decoded;    /* scratch */
    struct engine_logprob top[SAMPLER_MAX_TOP];
    struct engine_event end; /* what ENGINE_END will say, once is_stopped */
    int32_t n_cut;         /* tokens sampled but cut off by a stop string */
    struct sched_usage usage; /* frozen at the end */
};

void engine_params_init(const struct engine *e, struct engine_params *p)
{
    const struct engine_sampling *s = &e->info.sampling;
    *p = (struct engine_params){.temperature = (float)s->temperature,
                                .top_k = s->top_k,
                                .top_p = (float)s->top_p,
                                .min_p = (float)s->min_p,
                                .typical_p = 1,
                                .repeat_penalty = 1,
                                .repeat_last_n = 64,
                                .seed = rng_fresh_seed(),
                                .max_tokens = -1,
                                .n_logprobs = -1};
}

static enum err check_prompt(const struct engine *e, const int32_t *ids, size_t n, const struct engine_params *p,
                             struct err_info *info)
{
    if (n == 0) {
        return err_set(info, ERR_INVALID_VALUE, "prompt", "prompt: expected at least one token, found none");
    }
    size_t room = e->info.n_ctx - (p->max_tokens == 0 ? 0 : 1);
    if (n > room) {
        return err_set(info, ERR_CONTEXT_LENGTH, "prompt",
                       "This model's maximum context length is %u tokens; the prompt of %zu tokens exceeds the available "
                       "context size",
                       e->info.n_ctx, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->info.n_vocab) {
            return err_set(info, ERR_INVALID_VALUE, "prompt", "prompt[%zu]: expected a token id of 0 to %u, found %d", i,
                           e->info.n_vocab - 1, ids[i]);
        }
    }
    return ERR_OK;
}

static enum err copy_stops(struct engine_stream *s, const struct engine_params *p)
{
    size_t bytes = 0;
    for (size_t i = 0; i < p->n_stop; i++) {
        bytes += p->stop_len[i] + 1;
    }
    s->stop_text = mem_zalloc(bytes + 1, MEM_REQUEST);
    if (s->stop_text == NULL) {
        return ERR_NOMEM;
    }
    size_t at = 0;
    for (size_t i = 0; i < p->n_stop; i++) {
        memcpy(s->stop_text + at, p->stop[i], p->stop_len[i]);
        s->stop.strings[i] = s->stop_text + at;
        s->stop.lens[i] = p->stop_len[i];
        at += p->stop_len[i] + 1; /* a NUL stays behind each */
    }
    s->stop.n = p->n_stop;
    return ERR_OK;
}

/* All ids that end this sequence: the model's and the request's. */
static enum err list_request_ends(const struct engine *e, const struct engine_params *p, int32_t **out, size_t *n)
{
    *n = e->n_ends + p->n_stop_ids;
    *out = mem_alloc((*n + 1) * sizeof **out, MEM_REQUEST);
    if (*out == NULL) {
        return ERR_NOMEM;
    }
    memcpy(*out, e->ends, e->n_ends * sizeof **out);
    if (p->n_stop_ids != 0) {
        memcpy(*out + e->n_ends, p->stop_ids, p->n_stop_ids * sizeof **out);
    }
    return ERR_OK;
}

_Static_assert(sizeof(struct engine_bias) == sizeof(struct sampler_bias), "biases pass through");

static enum err submit(struct engine *e, struct engine_stream *s, const int32_t *ids, size_t n, const struct engine_params *p,
                       struct err_info *info)
{
    int32_t *ends;
    size_t n_ends;
    if (copy_stops(s, p) != ERR_OK || list_request_ends(e, p, &ends, &n_ends) != ERR_OK) {
        return no_memory(info);
    }
    struct sched_request r = {
        .tokens = ids,
        .n_tokens = (int32_t)n,
        .max_tokens = p->max_tokens,
        .min_tokens = p->min_tokens,
        .ignore_ends = p->ignore_eos,
        .prompt_logprobs = p->prompt_logprobs,
        .sampling = {.temperature = p->temperature,
                     .top_k = p->top_k,
                     .top_p = p->top_p,
                     .min_p = p->min_p,
                     .typical_p = p->typical_p,
                     .repeat_penalty = p->repeat_penalty,
                     .repeat_last_n = p->repeat_last_n,
                     .presence_penalty = p->presence_penalty,
                     .frequency_penalty = p->frequency_penalty,
                     .seed = p->seed,
                     .choice = p->choice,
                     .n_top = p->prompt_logprobs && p->n_logprobs < 0 ? 0 : p->n_logprobs,
                     .bias = (const struct sampler_bias *)(const void *)p->bias,
                     .n_bias = p->n_bias,
                     .ends = ends,
                     .n_ends = n_ends},
        .salt = p->cache_salt,
        .deadline_ns = p->deadline_ns,
    };
    enum err err = sched_submit(e->sched, &r, &s->seq, info);
    mem_free(ends);
    return err;
}

enum err engine_submit(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_params *p,
                       struct engine_stream **out, struct err_info *info)
{
    *out = NULL;
    TRY(check_prompt(e, ids, n_ids, p, info));
    struct engine_stream *s = mem_zalloc(sizeof *s, MEM_REQUEST);
    if (s == NULL) {
        return no_memory(info);
    }
    s->engine = e;
    s->show_special = p->show_special;
    s->detok.started = true; /* a completion's leading space is its own */
    buf_init(&s->text, MAX_TEXT_BYTES, MEM_REQUEST);
    buf_init(&s->decoded, MAX_TEXT_BYTES, MEM_REQUEST);
    buf_init(&s->stop.held, MAX_TEXT_BYTES, MEM_REQUEST);
    enum err err = submit(e, s, ids, n_ids, p, info);
    if (err != ERR_OK) {
        engine_stream_close(&s);
    }
    *out = s;
    return err;
}

static void fill_token(struct engine_stream *s, const struct sampler_result *r, struct engine_event *out)
{
    out->id = r->id;
    out->logprob = r->logprob;
    out->n_top = r->n_top;
    out->top = s->top;
    for (int32_t i = 0; i < r->n_top; i++) {
        s->top[i] = (struct engine_logprob){r->top[i].id, r->top[i].logprob};
    }
}

/* Moves n bytes of held text into the event. */
static void release_text(struct engine_stream *s, size_t n, struct engine_event *out)
{
    buf_reset(&s->text);
    buf_append(&s->text, s->stop.held.data, n);
    stop_release(&s->stop, n);
    s->n_released += n;
    out->text = s->text.data != NULL ? s->text.data : "";
    out->text_len = s->text.len;
}

/* Gives out the oldest pending token if all its text may be shown; `releasable` bytes of the held text may. */
static bool give_pending(struct engine_stream *s, size_t releasable, struct engine_event *out)
{
    if (s->n_pending == 0 || s->pending[0].text_end > s->n_released + releasable) {
        return false;
    }
    *out = (struct engine_event){.kind = ENGINE_TOKEN};
    fill_token(s, &s->pending[0].token, out);
    release_text(s, s->pending[0].text_end - s->n_released, out);
    memmove(&s->pending[0], &s->pending[1], (size_t)(s->n_pending - 1) * sizeof s->pending[0]);
    s->n_pending--;
    return true;
}

static void freeze_usage(struct engine_stream *s)
{
    sched_seq_usage(s->seq, &s->usage);
    s->usage.completion_tokens -= s->n_cut;
}

/* The end: whatever text is held and may be shown goes with it. */
static void give_end(struct engine_stream *s, size_t releasable, struct engine_event *out)
{
    *out = s->end;
    out->kind = ENGINE_END;
    release_text(s, releasable, out);
    s->has_ended = true;
    freeze_usage(s);
}

/* Adds text to what stop strings are looked for in; true when one begins behind *releasable bytes. */
static bool look_for_stop(struct engine_stream *s, size_t *releasable)
{
    size_t which = 0;
    bool found = stop_push(&s->stop, s->decoded.data, s->decoded.len, releasable, &which);
    s->n_decoded += s->decoded.len;
    if (found) {
        s->is_stopped = true;
        s->end = (struct engine_event){.finish = ENGINE_FINISH_STOP, .stop_match = s->stop.strings[which]};
        sched_cancel(s->seq);
    }
    return found;
}

/* How much of the held text may be shown now: all of it once the stream is over, up to a stop string once one was found. */
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
        s->end = (struct engine_event){.finish = (enum engine_finish)ev->finish, .err = ev->err};
    }
    if (s->n_pending > 0) {
        s->pending[s->n_pending - 1].text_end = s->n_decoded; /* what was held of a character goes with the last token */
    }
}

_Static_assert((int)ENGINE_FINISH_LENGTH == (int)SCHED_FINISH_LENGTH, "finish reasons pass through");

/* Events that need nothing new from the scheduler; true when *out was filled. */
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
        return s->n_pending == MAX_PENDING && give_pending(s, s->stop.held.len, out);
    }
    s->n_cut = is_cut ? s->n_pending : 0; /* tokens that lie wholly or partly in the stop string's cut */
    s->n_cut -= is_cut && s->n_pending > 0 && releasable > 0 ? 1 : 0;
    give_end(s, releasable, out);
    return true;
}

enum err engine_next(struct engine_stream *s, int timeout_ms, struct engine_event *out)
{
    if (s->has_ended) {
        return ERR_NONE;
    }
    while (!give_ready(s, out)) {
        struct sched_event ev;
        TRY(sched_next(s->seq, timeout_ms, &ev));
        if (ev.kind == SCHED_PROMPT_TOKEN) {
            *out = (struct engine_event){.kind = ENGINE_PROMPT_TOKEN, .text = ""};
            fill_token(s, &ev.token, out);
            buf_reset(&s->text);
            tokenizer_piece(s->engine->tokenizer, ev.token.id, true, &s->text);
            out->text = s->text.data != NULL ? s->text.data : "";
            out->text_len = s->text.len;
            return ERR_OK;
        }
        if (ev.kind == SCHED_TOKEN) {
            take_token(s, &ev.token);
        } else {
            take_end(s, &ev);
        }
    }
    return ERR_OK;
}

void engine_cancel(struct engine_stream *s) { sched_cancel(s->seq); }

void engine_stream_usage(const struct engine_stream *s, struct engine_usage *out)
{
    struct sched_usage u = s->usage;
    if (!s->has_ended) {
        sched_seq_usage(s->seq, &u);
    }
    *out = (struct engine_usage){.prompt_tokens = u.prompt_tokens,
                                 .cached_tokens = u.cached_tokens,
                                 .completion_tokens = u.completion_tokens,
                                 .queue_ns = u.queue_ns,
                                 .prefill_ns = u.prefill_ns,
                                 .decode_ns = u.decode_ns};
}

void engine_stream_close(struct engine_stream **stream)
{
    struct engine_stream *s = *stream;
    if (s == NULL) {
        return;
    }
    sched_release(&s->seq);
    mem_free(s->stop_text);
    buf_fini(&s->text);
    buf_fini(&s->decoded);
    buf_fini(&s->stop.held);
    mem_free(s);
    *stream = NULL;
}

void engine_get_stats(const struct engine *e, struct engine_stats *out)
{
    struct sched_stats s;
    sched_get_stats(e->sched, &s);
    *out = (struct engine_stats){
        .n_running = s.n_running,
        .n_waiting = s.n_waiting,
        .kv_pages_used = s.pages_held,
        .kv_pages_cached = s.pages_kept,
        .kv_pages_total = s.pages_total,
        .prompt_tokens = s.prompt_tokens,
        .cached_tokens = s.cached_tokens,
        .generated_tokens = s.generated_tokens,
        .steps = s.steps,
        .step_rows = s.step_rows,
        .step_ns = s.step_ns,
        .cancelled_queue = s.cancelled_queue,
        .cancelled_prefill = s.cancelled_prefill,
        .cancelled_decode = s.cancelled_decode,
        .preempted = s.preempted,
        .estimated_wait_ms = s.estimated_wait_ms,
        .last_step_age_ms = s.last_step_age_ms,
    };
}
