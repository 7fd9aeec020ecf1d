/* Opens a model and describes it; converts text to ids and back. engine_stream.c has streams. */
#include "engine/engine_internal.h"

#include "engine/base/pool.h"
#include "engine/base/io.h"
#include "engine/base/names.h"
#include "engine/base/task.h"
#include "engine/chat/chat_choose.h"
#include "engine/format/gguf.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/kernels/kern.h"
#include "engine/model/model.h"
#include "engine/plan/plan_quantize.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum err no_memory(struct err_info *info)
{
    return err_set(info, ERR_NOMEM, NULL, "out of memory for the model");
}

/* Returns a NUL-terminated copy that lives as long as the engine. */
static const char *keep(struct engine *e, const char *s, size_t n)
{
    const char *copy = arena_dup(&e->arena, s == NULL ? "" : s, s == NULL ? 0 : n);
    return copy != NULL ? copy : "";
}

static const char *keep_text(struct engine *e, const char *s) { return keep(e, s, strlen(s)); }

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

/* Sets the parameter count, the most common type, and a fingerprint of names, types and shapes. */
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
    double top_k = 0, repeat_last_n = 0;
    const struct { /* fallbacks: llama-server's */
        const char *key;
        double *to, fallback, min, max;
    } rows[] = {{"general.sampling.temp", &s->temperature, 0.8, 0, 2},
                {"general.sampling.top_p", &s->top_p, 0.95, 0, 1},
                {"general.sampling.min_p", &s->min_p, 0.05, 0, 1},
                {"general.sampling.top_k", &top_k, 40, -1, INT32_MAX},
                {"general.sampling.penalty_repeat", &s->repeat_penalty, 1, 0.01, 10},
                {"general.sampling.penalty_last_n", &repeat_last_n, 64, -1, INT32_MAX}};
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
    s->repeat_last_n = (int64_t)repeat_last_n;
    s->typical_p = 1;
    if (wanted != NULL) {
        s->temperature = wanted->temperature >= 0 ? wanted->temperature : s->temperature;
        s->top_p = wanted->top_p >= 0 ? wanted->top_p : s->top_p;
        s->min_p = wanted->min_p >= 0 ? wanted->min_p : s->min_p;
        s->top_k = wanted->top_k >= 0 ? wanted->top_k : s->top_k;
        s->seed = wanted->seed;
        s->typical_p = wanted->typical_p;
        s->repeat_penalty = wanted->repeat_penalty >= 0.01 ? wanted->repeat_penalty : s->repeat_penalty;
        s->repeat_last_n = wanted->repeat_last_n >= -1 ? wanted->repeat_last_n : s->repeat_last_n;
        s->presence_penalty = wanted->presence_penalty;
        s->frequency_penalty = wanted->frequency_penalty;
    }
    return ERR_OK;
}

static enum err describe(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct gguf_str arch;
    TRY(gguf_get_str(e->gguf, "general.architecture", &arch, info));
    e->info.file = keep_text(e, cfg->model_path);
    e->info.architecture = keep(e, arch.data, arch.len);
    e->info.file_bytes = gguf_file_bytes(e->gguf);
    describe_name(e, cfg->model_path);
    describe_tensors(e);
    TRY(describe_sampling(e, cfg->sampling, info));
    e->info.n_vocab = e->plan->n_vocab / MAX_OF(e->plan->ranker.n_segments, 1u);
    e->info.n_embd = e->plan->n_embd;
    e->info.n_layers = plan_main_layers(e->plan);
    e->info.n_ctx_train = e->plan->n_ctx_train;
    e->info.generates = e->plan->has_logits;
    e->info.bos = tokenizer_bos(e->tokenizer);
    e->info.eos = tokenizer_eos(e->tokenizer);
    e->info.adds_bos = tokenizer_adds_bos(e->tokenizer);
    e->info.adds_eos = tokenizer_adds_eos(e->tokenizer);
    e->info.bos_text = keep_token(e, e->info.bos);
    e->info.eos_text = keep_token(e, e->info.eos);
    return ERR_OK;
}

/* Runs after `describe`. A file without a usable template still serves completions. */
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
    size_t n = 0;
    const char *source = e->chat != NULL ? chat_template_source(e->chat, &n) : NULL;
    e->tool_format = chat_format_of(source, n);
    return ERR_OK;
}

static enum err list_ends(struct engine *e, struct err_info *info)
{
    for (int32_t id = 0; id < tokenizer_n_vocab(e->tokenizer); id++) {
        e->n_ends += tokenizer_is_eog(e->tokenizer, id);
    }
    e->ends = mem_zalloc_array(e->n_ends + 1, sizeof *e->ends, MEM_MODEL);
    TRY(e->ends != NULL ? ERR_OK : no_memory(info));
    size_t n = 0;
    for (int32_t id = 0; id < tokenizer_n_vocab(e->tokenizer); id++) {
        if (tokenizer_is_eog(e->tokenizer, id)) {
            e->ends[n++] = id;
        }
    }
    return ERR_OK;
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
             e->backend == &backend_ref ? "the back end has no others"
             : is_best                  ? "the best this CPU can run"
                                        : "as asked for",
             flags[0] != '\0' ? flags : "none of the flags that matter");
    return keep_text(e, text);
}

/* "cpu", "ref:0-3,cpu:4-29". */
static const char *name_parts(struct engine *e)
{
    struct buf name;
    buf_init(&name, 0, MEM_GENERAL);
    backend_parts_name(&e->parts, &name);
    const char *kept = buf_ok(&name) == ERR_OK ? keep(e, name.data, name.len) : e->backend->name;
    buf_fini(&name);
    return kept;
}

/* Describes the device of a part. The plan has checked that no number is too large (backend_pool_bytes). */
static struct engine_device device_of(struct engine *e, const struct backend_device *d, const struct backend_bytes *has,
                                      const struct backend_config *cfg)
{
    return (struct engine_device){.id = keep_text(e, d->id),
                                  .name = keep_text(e, d->name),
                                  .choice = keep_text(e, d->choice),
                                  .note = keep_text(e, d->note),
                                  .weights = has->weights,
                                  .kv = has->page * (uint64_t)cfg->n_pages + has->window * (uint64_t)cfg->n_windows,
                                  .states = (has->state + has->drafts) * (uint64_t)cfg->n_states,
                                  .activations = has->activations};
}

static enum err tell_devices(struct engine *e, const struct engine_backend *b, struct err_info *info)
{
    struct engine_device *devices = arena_zalloc_array(&e->arena, (size_t)e->parts.n, sizeof *devices);
    TRY(devices != NULL ? ERR_OK : no_memory(info));
    e->info.n_devices = 0;
    for (int i = 0; i < e->parts.n; i++) {
        int own = backend_parts_memory(&e->parts, i);
        struct backend_device d;
        TRY(backend_part_device(&e->parts.at[i], &b->cfg, &d, info));
        if (d.bytes[BACKEND_DEVICE] != 0 && own == BACKEND_DEVICE + i) { /* the first part on this device */
            devices[e->info.n_devices++] = device_of(e, &d, &b->measure.bytes[own], &b->cfg);
        }
    }
    e->info.devices = devices;
    return ERR_OK;
}

/* Appends the layers as "0-3,7"; returns whether there are any. */
static bool name_layers(const bool *layers, uint32_t n, struct buf *out)
{
    bool any = false;
    for (uint32_t i = 0, last; i < n; i++) {
        for (last = i; layers[i] && last + 1 < n && layers[last + 1];) {
            last++;
        }
        if (layers[i]) {
            buf_printf(out, last > i ? "%s%u-%u" : "%s%u", any ? "," : "", i, last);
            any = true;
            i = last;
        }
    }
    return any;
}

/* A device computes something incorrectly: moves the layers that open reported to the CPU. Fails with `why` if there
 * are none. */
static enum err move_layers(struct engine *e, const struct engine_config *cfg, const bool *found,
                            const struct err_info *why, struct err_info *info)
{
    struct buf text;
    uint32_t n = e->plan->n_layers;
    buf_init(&text, 0, MEM_GENERAL);
    buf_printf(&text, "%s: the CPU computes layers ", why->text);
    bool any = name_layers(found, n, &text);
    if (any && e->unfit == NULL) {
        e->unfit = arena_zalloc_array(&e->arena, n, sizeof *e->unfit);
    }
    for (uint32_t i = 0; any && e->unfit != NULL && i < n; i++) {
        e->unfit[MIN_OF(i, plan_main_layers(e->plan) - 1)] |=
            found[i]; /* the head is computed where the last layer is */
    }
    if (any && cfg->tell != NULL && buf_ok(&text) == ERR_OK) {
        cfg->tell(cfg->tell_arg, text.data);
    }
    buf_fini(&text);
    if (!any) {
        *info = *why;
        return why->code;
    }
    return e->unfit != NULL ? ERR_OK : no_memory(info);
}

/* Opens the model with the current distribution of layers. ERR_AGAIN: layers moved to the CPU. */
static enum err try_open(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                         struct engine_backend *b, struct err_info *info)
{
    struct err_info why = {0};
    enum err err = engine_plan(e, cfg, sc, b, info);
    if (err == ERR_CONFIG && e->unfit != NULL) { /* the plan cannot be cut there */
        memset(e->unfit, true, e->plan->n_layers * sizeof *e->unfit);
        err = engine_plan(e, cfg, sc, b, info);
    }
    TRY(err);
    TRY(engine_check_memory(e, cfg, b, info));
    TRY(tell_devices(e, b, info));
    b->cfg.unfit = mem_zalloc_array(e->plan->n_layers, sizeof *b->cfg.unfit, MEM_GENERAL);
    TRY(b->cfg.unfit != NULL ? ERR_OK : no_memory(info));
    err = e->backend->open(e->plan, &b->cfg, &e->model, &why);
    if (err == ERR_UNSUPPORTED_DEVICE) {
        err = move_layers(e, cfg, b->cfg.unfit, &why, info);
        err = err == ERR_OK ? ERR_AGAIN : err;
    } else if (err != ERR_OK) {
        *info = why;
    }
    mem_free(b->cfg.unfit);
    b->cfg.unfit = NULL;
    return err;
}

static enum err open_backend(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                             struct err_info *info)
{
    struct engine_backend b;
    struct backend_info bi;
    enum err err;
    while ((err = try_open(e, cfg, sc, &b, info)) == ERR_AGAIN) { /* with fewer layers on the device each time */
    }
    TRY(err);
    e->backend->info(e->model, &bi);
    e->info.backend = name_parts(e);
    e->info.kernels = keep_text(e, b.measure.kernels);
    e->info.kernels_why = explain_kernels(e, cfg->cpu);
    e->info.cache_type_k = keep_text(e, b.measure.k_type);
    e->info.cache_type_v = keep_text(e, b.measure.v_type);
    e->info.weight_bytes = b.takes.weights;
    e->info.kv_bytes = b.pool_bytes;
    e->info.n_threads = b.cfg.n_threads;
    e->info.predictor = !plan_predicts(e->plan) ? NULL : e->draft_file == NULL ? "head" : keep_text(e, cfg->draft_path);
    e->info.pack_cache = pack_state_names[bi.pack_state];
    e->info.pack_note = bi.pack_note;
    e->opens_behind = bi.behind_ns != 0;
    sc->backend = e->backend;
    sc->model = e->model;
    sc->logits = bi.logits;
    sc->max_begun = bi.max_begun;
    sc->max_best = bi.max_best;
    sc->overtaking_rows = bi.overtaking_rows;
    sc->even_rows = bi.even_rows;
    e->info.max_seqs = sc->max_seqs - sc->n_express;
    e->info.max_waiting = sc->queue_max;
    sc->has_spare_cpu = b.cfg.n_threads < pool_cpu_count();
    TRY(engine_open_snapshots(e, cfg, &b, info));
    sc->disk = e->disk;
    return ERR_OK;
}

/* Checks whether the load was cancelled, between steps that can be slow. */
static enum err go_on(const struct engine_config *cfg, struct err_info *info)
{
    return cfg->progress == NULL || cfg->progress(cfg->progress_arg, 0)
               ? ERR_OK
               : err_set(info, ERR_CANCELLED, NULL, "loading was cancelled");
}

static enum err open_tokenizer(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(tokenizer_new(e->gguf, &e->tokenizer, info));
    e->closes_objects = cfg->closes_objects;
    e->tool_format = cfg->tool_format != NULL ? chat_format_named(cfg->tool_format) : NULL;
    if (cfg->tool_format != NULL && e->tool_format == NULL) {
        return err_set(info, ERR_INVALID_VALUE, "tool-format", "tool format: no format has the name '%.64s'",
                       cfg->tool_format);
    }
    if (cfg->chat_template == NULL) {
        return ERR_OK;
    }
    size_t n;
    TRY(chat_choose_named(cfg->chat_template, &e->chat, info));
    const char *source = chat_template_source(e->chat, &n);
    return tokenizer_add_marks(e->tokenizer, source, n) == ERR_OK ? ERR_OK : no_memory(info);
}

static enum err build_plan(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(engine_draft_parse(cfg->speculate != NULL ? cfg->speculate : "auto", "speculate", &e->sources, info));
    if (cfg->draft_path == NULL && e->sources == ENGINE_DRAFT) {
        return err_set(info, ERR_CONFIG, "draft-model",
                       "draft-model: expected a file, as speculate names no other source, found none");
    }
    if (cfg->draft_path != NULL && (e->sources & (ENGINE_HEAD | ENGINE_DRAFT)) != 0) {
        TRY(engine_draft_open(e, cfg, info));
    }
    bool predicts = (e->sources & ENGINE_HEAD) != 0;
    return e->plan != NULL ? ERR_OK
                           : (predicts ? model_build_predicting : model_build)(e->gguf, cfg->n_ctx, &e->plan, info);
}

static enum err read_file(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(model_open(cfg->model_path, &e->gguf, info));
    TRY(go_on(cfg, info));
    TRY(build_plan(e, cfg, info));
    if (cfg->quantize != NULL) {
        TRY(plan_quantize(e->plan, cfg->quantize, info));
    }
    TRY(go_on(cfg, info));
    TRY(open_tokenizer(e, cfg, info));
    TRY(engine_draft_check(e, cfg->draft_path, info));
    TRY(go_on(cfg, info));
    uint32_t n_rows = e->plan->n_vocab / MAX_OF(e->plan->ranker.n_segments, 1u);
    if ((uint32_t)tokenizer_n_vocab(e->tokenizer) != n_rows) {
        return err_set(info, ERR_BAD_VOCAB, "tokenizer.ggml.tokens",
                       "tokenizer.ggml.tokens: expected %u tokens, as token_embd.weight has rows; found %d", n_rows,
                       tokenizer_n_vocab(e->tokenizer));
    }
    TRY(describe(e, cfg, info));
    return choose_chat(e, info);
}

static const struct plan_head *head_of(const struct engine *e)
{
    return e->info.ranks ? &e->plan->ranker.head : &e->plan->dense;
}

/* The operator's choice overrides the file's. A model that can only embed needs one of them. */
static enum err choose_pooling(struct engine *e, const char *wanted, struct err_info *info)
{
    int pooling = wanted != NULL ? 1 + names_find(plan_pooling_name, wanted) : (int)e->plan->pooling;
    if (pooling == PLAN_POOL_NONE && (wanted != NULL || !e->info.generates)) {
        return names_refuse(plan_pooling_name, "pooling", wanted != NULL ? wanted : "", info);
    }
    bool ranks = pooling == PLAN_POOL_RANK, is_each = pooling == PLAN_POOL_EACH;
    if (ranks && e->plan->ranker.head.n == 0) {
        return err_set(info, ERR_CONFIG, "pooling",
                       "pooling: expected mean, cls or last, as the model has no cls.output.weight; found 'rank'");
    }
    e->plan->pooling = (enum plan_pooling)pooling;
    e->info.pooling = plan_pooling_name(pooling - 1);
    e->info.ranks = ranks;
    e->info.embeds_tokens = is_each;
    e->info.generates = e->info.generates && !ranks;
    e->info.n_embd_out = is_each ? e->plan->n_embd : plan_head_width(head_of(e), e->plan->n_embd);
    return ERR_OK;
}

static enum err open_all(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct sched_config sc = {.failed = cfg->failed, .failed_arg = cfg->failed_arg};
    TRY(read_file(e, cfg, info));
    TRY(choose_pooling(e, cfg->pooling, info));
    const struct plan_head *head = head_of(e);
    bool has_head = head->n != 0 && !e->info.embeds_tokens; /* embeddings of single tokens need no layers after them */
    TRY(has_head ? engine_head_load(&e->arena, head, &e->head, info) : ERR_OK);
    TRY(list_ends(e, info));
    TRY(open_backend(e, cfg, &sc, info));
    /* The tokenizer was built from the metadata: megabytes that are hardly read from now on. */
    engine_drop_pages(e, gguf_map(e->gguf)->data, gguf_data_offset(e->gguf));
    if (e->draft_file != NULL) {
        engine_drop_pages(e, gguf_map(e->draft_file)->data, gguf_data_offset(e->draft_file));
    }
    return sched_new(&sc, &e->sched, info);
}

/* Makes an empty engine, which engine_close can free. */
static enum err begin(struct engine **out, struct err_info *info)
{
    struct engine *e = *out = mem_zalloc(sizeof *e, MEM_MODEL);
    TRY(e != NULL ? ERR_OK : no_memory(info));
    arena_init(&e->arena, 4096, 0, MEM_MODEL);
    pthread_mutex_init(&e->grammar_lock, NULL);
    return ERR_OK;
}

enum err engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info)
{
    struct engine *e;
    *out = NULL;
    TRY(begin(&e, info));
    enum err err = grammar_cache_new(GRAMMAR_CACHE_ENTRIES, GRAMMAR_CACHE_BYTES, &e->grammars);
    err = err == ERR_OK ? open_all(e, cfg, info) : no_memory(info);
    if (err != ERR_OK) {
        engine_close(&e);
        return err;
    }
    *out = e;
    return ERR_OK;
}

enum err engine_check_file(const struct engine *e, struct err_info *info)
{
    bool is_draft = e->draft_file != NULL && gguf_shrunk(e->draft_file);
    if (!is_draft && !gguf_shrunk(e->gguf)) {
        return ERR_OK;
    }
    return err_set(info, ERR_IO, NULL,
                   "the %s file: expected %" PRIu64
                   " bytes as when it was opened, found fewer; the server must be restarted",
                   is_draft ? "draft model's" : "model's", gguf_file_bytes(is_draft ? e->draft_file : e->gguf));
}

enum err engine_check(const char *path, bool reads_weights, struct err_info *info)
{
    struct engine_config cfg = {.model_path = path};
    struct engine *e;
    TRY(begin(&e, info));
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

static enum err check_plan(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    struct sched_config sc = {0};
    struct engine_backend b;
    TRY(read_file(e, cfg, info));
    TRY(choose_pooling(e, cfg->pooling, info));
    TRY(list_ends(e, info));
    TRY(backend_check_types(e->plan, info));
    if (cfg->backend != NULL && strcmp(cfg->backend, "cpu") != 0) {
        return ERR_OK; /* planning would ask the device */
    }
    TRY(engine_plan(e, cfg, &sc, &b, info));
    return engine_check_memory(e, cfg, &b, info);
}

enum err engine_check_config(const struct engine_config *cfg, struct err_info *info)
{
    struct engine *e;
    TRY(begin(&e, info));
    enum err err = check_plan(e, cfg, info);
    engine_close(&e);
    return err;
}

static enum err measure(struct engine *e, const struct engine_config *cfg, struct engine_memory *out,
                        struct err_info *info)
{
    struct sched_config sc = {0};
    struct engine_backend b;
    TRY(model_open(cfg->model_path, &e->gguf, info));
    TRY(build_plan(e, cfg, info));
    TRY(engine_plan(e, cfg, &sc, &b, info));
    *out = (struct engine_memory){.weight_bytes = b.takes.weights,
                                  .kv_bytes = b.pool_bytes,
                                  .kv_tokens = (uint64_t)sc.n_pages * KV_PAGE_TOKENS,
                                  .seq_tokens = (uint64_t)sched_least_pages(&sc) * KV_PAGE_TOKENS,
                                  .window_tokens = (uint64_t)sc.n_windows * KV_PAGE_TOKENS,
                                  .activation_bytes = b.takes.activations,
                                  .n_ctx = e->info.n_ctx,
                                  .n_threads = b.cfg.n_threads};
    snprintf(out->kernels, sizeof out->kernels, "%s", b.measure.kernels);
    return ERR_OK;
}

enum err engine_measure(const struct engine_config *cfg, struct engine_memory *out, struct err_info *info)
{
    struct engine *e;
    *out = (struct engine_memory){0};
    TRY(begin(&e, info));
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
    kv_disk_close(&e->disk);
    if (e->model != NULL) {
        e->backend->close(&e->model);
    }
    chat_template_free(&e->chat);
    grammar_cache_free(&e->grammars);
    grammar_vocab_free(&e->vocab);
    tokenizer_free(&e->tokenizer);
    plan_free(&e->plan);
    engine_draft_close(e);
    gguf_close(&e->gguf);
    mem_free(e->ends);
    pthread_mutex_destroy(&e->grammar_lock);
    arena_fini(&e->arena);
    mem_free(e);
    *engine = NULL;
}

const struct engine_model_info *engine_model(const struct engine *e) { return &e->info; }
void engine_drain(struct engine *e) { sched_drain(e->sched); }
bool engine_is_lost(const struct engine *e, struct err_info *why) { return sched_is_lost(e->sched, why); }

/* --- text and tokens -------------------------------------------------------------------------------------------- */

enum err engine_tokenize(const struct engine *e, const char *text, size_t n, bool add_special, bool parse_special,
                         const struct span *plain, size_t n_plain, struct arena *arena, int32_t **ids, size_t *n_ids,
                         struct err_info *info)
{
    struct token_list list = {0};
    unsigned flags = (add_special ? TOKENIZE_ADD_SPECIAL : 0u) | (parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    *ids = NULL;
    *n_ids = 0;
    task_note("tokens");
    enum err err = tokenizer_encode(
        e->tokenizer, &(struct tokenizer_text){.s = text, .n = n, .flags = flags, .plain = plain, .n_plain = n_plain},
        &list, info);
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

void engine_get_share(const struct engine *e, uint64_t key, uint64_t *n_running, uint64_t *n_waiting)
{
    sched_get_share(e->sched, key, n_running, n_waiting);
}
