/* Opening a model and telling about it; text to ids and back. Streams are in engine_stream.c. */
#include "engine/engine_internal.h"

#include "engine/backend/backend.h"
#include "engine/base/ck.h"
#include "engine/base/io.h"
#include "engine/base/names.h"
#include "engine/base/pool.h"
#include "engine/chat/chat_choose.h"
#include "engine/format/gguf.h"
#include "engine/kernels/kern.h"
#include "engine/quant/quant.h"
#include "engine/model/model.h"
#include "engine/plan/plan_quantize.h"
#include "engine/sched/draft.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_KV_TOKENS = 32768,
    DEFAULT_MAX_SEQS = 16,
    DEFAULT_ENCODER_SEQS = 64, /* texts are short */
    DEFAULT_BATCH_ROWS = 512,
    DEFAULT_QUEUE = 256,
    DEFAULT_DRAFT = 15,
    /* Recurrent states beyond one per sequence, which cached prefixes keep: one for so many pages, while all together
     * stay below so many bytes, but one at least. A turn of a chat keeps two. */
    PAGES_PER_KEPT_STATE = 4,
    KEPT_STATE_BYTES = 256 << 20,
    /* Rows of logits beyond one per sequence, which a prompt's log-probabilities take: so many, while all rows together
     * stay below so many bytes. Drafts need no more than DRAFT_MAX + 1. */
    EXTRA_LOGITS = 48,
    LOGITS_BYTES = 16 << 20,
};

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum err no_memory(struct err_info *info)
{
    return err_set(info, ERR_NOMEM, NULL, "out of memory for the model");
}

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
    size_t n;
    const char *base = io_base_name(path, &n);
    n -= n > 5 && memcmp(base + n - 5, ".gguf", 5) == 0 ? 5 : 0;
    e->info.id = keep(e, base, n);
    struct gguf_str name;
    struct err_info ignored;
    bool has_name =
        gguf_get_str_or_null(e->gguf, "general.name", &name, &ignored) == ERR_OK && name.len > 0 && name.len < 256;
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
            *rows[i].to =
                kv->type == GGUF_F32 || kv->type == GGUF_F64 ? gguf_elem_f64(kv, 0) : (double)gguf_elem_i64(kv, 0);
        }
        if (!(*rows[i].to >= rows[i].min && *rows[i].to <= rows[i].max)) {
            return err_set(info, ERR_BAD_HPARAM, rows[i].key, "%s: expected %g to %g, found %g", rows[i].key,
                           rows[i].min, rows[i].max, *rows[i].to);
        }
    }
    s->top_k = (int64_t)MAX_OF(top_k, 0.0);
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
    struct gguf_str arch;
    TRY(gguf_get_str(e->gguf, "general.architecture", &arch, info));
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
    e->info.generates = e->plan->has_logits;
    e->info.bos = tokenizer_bos(e->tokenizer);
    e->info.eos = tokenizer_eos(e->tokenizer);
    e->info.bos_text = keep_token(e, e->info.bos);
    e->info.eos_text = keep_token(e, e->info.eos);
    return ERR_OK;
}

/* Behind `describe`. A file without a template, or with one that cannot be used, still serves completions. */
static enum err choose_chat(struct engine *e, struct err_info *info)
{
    struct gguf_str chat;
    TRY(gguf_get_str_or_null(e->gguf, "tokenizer.chat_template", &chat, info));
    if (e->chat == NULL) {
        enum err err =
            chat_choose_own(chat.data, chat.len, e->info.architecture, &e->chat, &e->info.chat_format, &e->chat_failed);
        if (err == ERR_NOMEM) {
            return no_memory(info);
        }
        e->info.chat_failed = err != ERR_OK ? &e->chat_failed : NULL;
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

static void drop_file_pages(void *gguf, const void *data, uint64_t n) { gguf_drop(gguf, data, n); }

static enum err plan_drafts(const struct engine_config *cfg, struct sched_config *sc, struct err_info *info)
{
    if (cfg->draft_max < -1 || cfg->draft_max > DRAFT_MAX) {
        return err_set(info, ERR_CONFIG, "draft-max", "draft-max: expected 0 to %d, found %d", DRAFT_MAX,
                       cfg->draft_max);
    }
    sc->draft_max = cfg->draft_max < 0 || sc->n_states != 0 ? 0 : cfg->draft_max != 0 ? cfg->draft_max : DEFAULT_DRAFT;
    return ERR_OK;
}

/* Room in the KV cache: what waits for its turn and what runs, of an encoder, which keeps nothing; else much, which
 * later prompts find again. */
static uint64_t default_kv_tokens(const struct engine *e, uint32_t n_ctx, const struct sched_config *sc)
{
    uint64_t encoder = 2 * (uint64_t)sc->max_rows + (uint64_t)sc->max_seqs * KV_PAGE_TOKENS;
    return MAX_OF((uint64_t)n_ctx, e->plan->is_bidirectional ? encoder : (uint64_t)DEFAULT_KV_TOKENS);
}

/* Recurrent states of so many bytes: of all that run, and of prefixes. */
static int32_t count_states(const struct sched_config *sc, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    size_t kept = MIN_OF(KEPT_STATE_BYTES / bytes, (size_t)sc->n_pages / PAGES_PER_KEPT_STATE);
    return sc->max_seqs + (int32_t)MAX_OF(kept, 1u);
}

/* Limits of the scheduler and the back end but for states, from what the operator asked for and the model has. */
static enum err plan_limits(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                            struct err_info *info)
{
    uint32_t n_ctx = cfg->n_ctx != 0 ? cfg->n_ctx : MIN_OF(e->plan->n_ctx_train, (uint32_t)MODEL_DEFAULT_CTX);
    if (n_ctx < 2 || n_ctx > e->plan->n_ctx_max) {
        return err_set(info, ERR_CONFIG, "ctx-size", "ctx-size: expected 2 to the model's %u tokens, found %u",
                       e->plan->n_ctx_max, n_ctx);
    }
    bool is_encoder = e->plan->is_bidirectional;
    int default_seqs = is_encoder ? DEFAULT_ENCODER_SEQS : DEFAULT_MAX_SEQS;
    int default_rows = is_encoder ? MAX_OF((int)n_ctx, DEFAULT_BATCH_ROWS) : DEFAULT_BATCH_ROWS;
    sc->max_seqs = cfg->max_seqs != 0 ? cfg->max_seqs : default_seqs;
    sc->max_rows = MAX_OF(cfg->max_batch_rows != 0 ? cfg->max_batch_rows : default_rows, sc->max_seqs);
    if (is_encoder && sc->max_rows < (int)n_ctx) {
        return err_set(info, ERR_CONFIG, "batch-size",
                       "batch-size: expected ctx-size %u or more, as this model computes a text in one piece; found %d",
                       n_ctx, sc->max_rows);
    }
    uint64_t kv_tokens = cfg->kv_tokens != 0 ? cfg->kv_tokens : default_kv_tokens(e, n_ctx, sc);
    if (kv_tokens < n_ctx || kv_tokens > (uint64_t)INT32_MAX - KV_PAGE_TOKENS) {
        return err_set(info, ERR_CONFIG, "kv-tokens", "kv-tokens: expected ctx-size %u or more, found %" PRIu64, n_ctx,
                       kv_tokens);
    }
    e->info.n_ctx = n_ctx;
    sc->n_ctx = (int32_t)n_ctx;
    sc->n_vocab = (int32_t)e->plan->n_vocab;
    sc->n_pages = (int32_t)((kv_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    sc->n_embd = e->plan->has_hidden ? (int32_t)e->plan->n_embd : 0;
    sc->is_bidirectional = is_encoder;
    int32_t affordable = (int32_t)(LOGITS_BYTES / (sizeof(float) * e->plan->n_vocab));
    sc->max_logits = MIN_OF(sc->max_seqs + EXTRA_LOGITS, MAX_OF(affordable, DRAFT_MAX + 1));
    sc->max_logits = MAX_OF(sc->max_logits, sc->max_seqs);
    sc->queue_max = cfg->queue_max_requests != 0 ? cfg->queue_max_requests : DEFAULT_QUEUE;
    return ERR_OK;
}

/* The type of one side of the KV cache. */
static enum err find_cache_type(const char *option, const char *name, enum kv_type *out, struct err_info *info)
{
    *out = name != NULL ? kv_type_find(name) : KV_TYPE_DEFAULT;
    if (*out == KV_TYPE_COUNT) {
        return names_refuse(kv_type_name, option, name, info);
    }
    return ERR_OK;
}

/* Refuses before anything large is taken when weights, KV and activations exceed the operator's limit. */
static enum err check_memory_limit(struct engine *e, const struct engine_config *cfg, const struct backend_bytes *b,
                                   const struct sched_config *sc, struct err_info *info)
{
    size_t pool;
    uint64_t need = UINT64_MAX;
    TRY(backend_pool_bytes(b, sc->n_pages, sc->n_states, &pool, info));
    bool fits = ck_add(b->weights, pool, &need) && ck_add(need, b->activations, &need);
    e->info.weight_bytes = b->weights;
    e->info.kv_bytes = pool;
    if (cfg->memory_limit_bytes == 0 || (fits && need <= cfg->memory_limit_bytes)) {
        return ERR_OK;
    }
    return err_set(info, ERR_MEMORY_LIMIT, "memory-limit",
                   "weights, KV cache and activations need %" PRIu64 " MiB, the limit is %" PRIu64 " MiB", need >> 20,
                   cfg->memory_limit_bytes >> 20);
}

static const char *const pack_state_names[] = {[BACKEND_PACK_OFF] = "off",
                                               [BACKEND_PACK_MAPPED] = "mapped",
                                               [BACKEND_PACK_WRITTEN] = "written",
                                               [BACKEND_PACK_FAILED] = "failed"};

static const char *explain_kernels(struct engine *e, const char *wanted)
{
    char flags[KERN_CPU_FLAGS_BYTES], text[KERN_CPU_FLAGS_BYTES + 64];
    kern_cpu_flags(flags);
    bool is_best = wanted == NULL || strcmp(wanted, "auto") == 0;
    snprintf(text, sizeof text, "%s; the CPU has %s",
             e->backend != &backend_cpu ? "the back end has no others"
             : is_best                  ? "the best this CPU can run"
                                        : "as asked for",
             flags[0] != '\0' ? flags : "none of the flags that matter");
    return keep(e, text, strlen(text));
}

/* What the back end is opened with, and what it then takes, from the plan and what the operator asked for. */
static enum err plan_backend(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                             struct backend_config *bc, struct backend_bytes *takes, struct err_info *info)
{
    const char *name = cfg->backend != NULL ? cfg->backend : "cpu";
    struct backend_measure measure;
    e->backend = backend_find(name);
    if (e->backend == NULL) {
        return names_refuse(backend_name, "backend", name, info);
    }
    TRY(plan_limits(e, cfg, sc, info));
    *bc = (struct backend_config){.cpu = cfg->cpu,
                                  .high_precision = cfg->high_precision,
                                  .pin = cfg->pin,
                                  .n_threads = cfg->n_threads != 0 ? cfg->n_threads : pool_cpu_count(),
                                  .n_pages = sc->n_pages,
                                  .max_rows = sc->max_rows,
                                  .max_logits = sc->max_logits,
                                  .pack_cache = cfg->pack_cache,
                                  .source = {.head = gguf_map(e->gguf)->data,
                                             .head_bytes = (size_t)gguf_data_offset(e->gguf),
                                             .bytes = gguf_file_bytes(e->gguf),
                                             .mtime_ns = gguf_mtime_ns(e->gguf)},
                                  .progress = cfg->progress,
                                  .progress_arg = cfg->progress_arg,
                                  .weight_done = drop_file_pages,
                                  .weight_done_arg = e->gguf};
    TRY(find_cache_type("cache-type-k", cfg->cache_type_k, &bc->k_type, info));
    TRY(find_cache_type("cache-type-v", cfg->cache_type_v, &bc->v_type, info));
    TRY(e->backend->measure(e->plan, bc, &measure, info));
    *takes = backend_bytes_all(&measure);
    bc->n_states = sc->n_states = count_states(sc, takes->state);
    e->info.backend = e->backend->name;
    e->info.kernels = measure.kernels;
    e->info.cache_type_k = measure.k_type;
    e->info.cache_type_v = measure.v_type;
    e->info.n_threads = bc->n_threads;
    TRY(check_memory_limit(e, cfg, takes, sc, info));
    return plan_drafts(cfg, sc, info);
}

static enum err open_backend(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                             struct err_info *info)
{
    struct backend_config bc;
    struct backend_bytes takes;
    struct backend_info bi;
    TRY(plan_backend(e, cfg, sc, &bc, &takes, info));
    TRY(e->backend->open(e->plan, &bc, &e->model, info));
    e->backend->info(e->model, &bi);
    e->info.kernels_why = explain_kernels(e, cfg->cpu);
    e->info.pack_cache = pack_state_names[bi.pack_state];
    e->info.pack_note = bi.pack_note;
    sc->backend = e->backend;
    sc->model = e->model;
    sc->logits = bi.logits;
    sc->max_begun = bi.max_begun;
    sc->max_best = bi.max_best;
    return ERR_OK;
}

/* Is the model still wanted? Between steps that take long with some files. */
static enum err go_on(const struct engine_config *cfg, struct err_info *info)
{
    return cfg->progress == NULL || cfg->progress(cfg->progress_arg, 0)
               ? ERR_OK
               : err_set(info, ERR_CANCELLED, NULL, "loading was given up");
}

static enum err open_tokenizer(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(tokenizer_new(e->gguf, &e->tokenizer, info));
    if (cfg->chat_template == NULL) {
        return ERR_OK;
    }
    size_t n;
    TRY(chat_choose_named(cfg->chat_template, &e->chat, info));
    const char *source = chat_template_source(e->chat, &n);
    return tokenizer_add_marks(e->tokenizer, source, n) == ERR_OK ? ERR_OK : no_memory(info);
}

static enum err read_file(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(model_open(cfg->model_path, &e->gguf, info));
    TRY(go_on(cfg, info));
    TRY(model_build(e->gguf, cfg->n_ctx, &e->plan, info));
    if (cfg->quantize != NULL) {
        TRY(plan_quantize(e->plan, cfg->quantize, info));
    }
    TRY(go_on(cfg, info));
    TRY(open_tokenizer(e, cfg, info));
    TRY(go_on(cfg, info));
    if ((uint32_t)tokenizer_n_vocab(e->tokenizer) != e->plan->n_vocab) {
        return err_set(info, ERR_BAD_VOCAB, "tokenizer.ggml.tokens",
                       "tokenizer.ggml.tokens: expected %u tokens, as token_embd.weight has rows; found %d",
                       e->plan->n_vocab, tokenizer_n_vocab(e->tokenizer));
    }
    TRY(describe(e, cfg, info));
    return choose_chat(e, info);
}

/* The operator's word goes before the file's; what can only embed needs one of them. */
static enum err choose_pooling(struct engine *e, const char *wanted, struct err_info *info)
{
    int pooling = wanted != NULL ? 1 + names_find(plan_pooling_name, wanted) : (int)e->plan->pooling;
    if (pooling == PLAN_POOL_NONE && (wanted != NULL || !e->info.generates)) {
        return names_refuse(plan_pooling_name, "pooling", wanted != NULL ? wanted : "", info);
    }
    e->plan->pooling = (enum plan_pooling)pooling;
    e->info.pooling = plan_pooling_name(pooling - 1);
    return ERR_OK;
}

static enum err open_all(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct sched_config sc = {.failed = cfg->failed, .failed_arg = cfg->failed_arg};
    TRY(read_file(e, cfg, info));
    TRY(choose_pooling(e, cfg->pooling, info));
    TRY(list_ends(e, info));
    TRY(open_backend(e, cfg, &sc, info));
    /* The tokenizer was built from the metadata: megabytes, now hardly read. */
    gguf_drop(e->gguf, gguf_map(e->gguf)->data, gguf_data_offset(e->gguf));
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

enum err engine_check_file(const struct engine *e, struct err_info *info)
{
    return !gguf_shrunk(e->gguf) ? ERR_OK
                                 : err_set(info, ERR_IO, NULL,
                                           "the model's file: expected %" PRIu64
                                           " bytes as when it was opened, found fewer; the server must be restarted",
                                           gguf_file_bytes(e->gguf));
}

enum err engine_check(const char *path, bool reads_weights, struct err_info *info)
{
    struct engine_config cfg = {.model_path = path};
    struct engine *e = mem_zalloc(sizeof *e, MEM_MODEL);
    if (e == NULL) {
        return no_memory(info);
    }
    arena_init(&e->arena, 4096, 0, MEM_MODEL);
    enum err err = read_file(e, &cfg, info);
    if (err == ERR_OK) {
        err = backend_check_types(e->plan, info);
    }
    for (int32_t i = 0; err == ERR_OK && reads_weights && i < e->plan->n_weights; i++) {
        err = engine_verify_weight(&e->plan->weights[i], info);
    }
    engine_close(&e);
    return err;
}

static enum err measure(struct engine *e, const struct engine_config *cfg, struct engine_memory *out,
                        struct err_info *info)
{
    struct sched_config sc = {0};
    struct backend_config bc;
    struct backend_bytes takes;
    TRY(model_open(cfg->model_path, &e->gguf, info));
    TRY(model_build(e->gguf, cfg->n_ctx, &e->plan, info));
    TRY(plan_backend(e, cfg, &sc, &bc, &takes, info));
    *out = (struct engine_memory){.kernels = e->info.kernels,
                                  .weight_bytes = takes.weights,
                                  .kv_bytes = e->info.kv_bytes,
                                  .kv_tokens = (uint64_t)sc.n_pages * KV_PAGE_TOKENS,
                                  .activation_bytes = takes.activations,
                                  .n_ctx = e->info.n_ctx,
                                  .n_threads = e->info.n_threads};
    return ERR_OK;
}

enum err engine_measure(const struct engine_config *cfg, struct engine_memory *out, struct err_info *info)
{
    struct engine *e = mem_zalloc(sizeof *e, MEM_MODEL);
    *out = (struct engine_memory){0};
    if (e == NULL) {
        return no_memory(info);
    }
    arena_init(&e->arena, 4096, 0, MEM_MODEL);
    enum err err = measure(e, cfg, out, info);
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
    chat_template_free(&e->chat);
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
bool engine_is_lost(const struct engine *e, struct err_info *why) { return sched_is_lost(e->sched, why); }

/* --- text and tokens -------------------------------------------------------------------------------------------- */

enum err engine_tokenize(const struct engine *e, const char *text, size_t n, bool add_special, bool parse_special,
                         const struct span *plain, size_t n_plain, const atomic_bool *stop, struct arena *arena,
                         int32_t **ids, size_t *n_ids, struct err_info *info)
{
    struct token_list list = {0};
    unsigned flags = (add_special ? TOKENIZE_ADD_SPECIAL : 0u) | (parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    *ids = NULL;
    *n_ids = 0;
    enum err err = tokenizer_encode_watched(e->tokenizer, text, n, flags, plain, n_plain, SIZE_MAX, stop, &list, info);
    if (err == ERR_OK) {
        *ids = arena_alloc(arena, (list.n + 1) * sizeof **ids);
        err = *ids != NULL ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the tokens");
    }
    if (err == ERR_OK && list.n > 0) {
        memcpy(*ids, list.ids, list.n * sizeof **ids);
        *n_ids = list.n;
    }
    token_list_fini(&list);
    return err;
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

void engine_get_stats(const struct engine *e, struct sched_stats *out) { sched_get_stats(e->sched, out); }
