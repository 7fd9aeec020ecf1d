/* Plans what an engine is opened with: limits of the scheduler, pages and states; checks that the memory suffices. */
#include "engine/engine_internal.h"

#include "engine/backend/backend_layers.h"
#include "engine/base/ck.h"
#include "engine/base/names.h"
#include "engine/base/pool.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"
#include "engine/sched/draft.h"

#include <inttypes.h>

enum {
    DEFAULT_KV_TOKENS = 32768,
    MOST_FREE_TOKENS = 1 << 20, /* without keys and values: the scheduler's notes on 2^20 tokens are 8 MB */
    DEFAULT_MAX_SEQS = 16,
    DEFAULT_ENCODER_SEQS = 64, /* texts are short */
    DEFAULT_BATCH_ROWS = 512,
    DEFAULT_QUEUE = 256,
    DEFAULT_DRAFT = 15,
    DEFAULT_STATE_DRAFT = 7, /* with recurrent states, each of which has memory for its drafts */
    /* Recurrent states for cached prefixes, beyond one per sequence: one per PAGES_PER_KEPT_STATE pages, up to
     * KEPT_STATE_BYTES in all, but at least one. A turn of a chat keeps two. */
    PAGES_PER_KEPT_STATE = 4,
    KEPT_STATE_BYTES = 256 << 20,
    /* Rows of logits for a prompt's log-probabilities, beyond one per sequence: EXTRA_LOGITS, while all rows stay below
     * LOGITS_BYTES. Drafts need no more than DRAFT_MAX + 1. */
    EXTRA_LOGITS = 48,
    LOGITS_BYTES = 16 << 20,
    EAGER_BYTES = 256 << 20, /* packed weights that are packed before the first batch, within a few 100 ms */
    HOST_PART = 4, /* a default leaves this part of the host's memory to requests (fcgi/wire/memory.c) and to others */
};

static enum err plan_drafts(const struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                            struct backend_config *bc, struct err_info *info)
{
    if (cfg->draft_max < 0 || cfg->draft_max > DRAFT_MAX) {
        return err_set(info, ERR_CONFIG, "draft-max", "draft-max: expected 0 to %d, found %d", DRAFT_MAX,
                       cfg->draft_max);
    }
    bool has_states = e->plan->recurrent_floats != 0;
    sc->guess_p_min = cfg->guess_p_min;
    int usual = has_states ? DEFAULT_STATE_DRAFT : DEFAULT_DRAFT;
    sc->draft_max = e->sources == 0 ? 0 : cfg->draft_max == 0 ? usual : cfg->draft_max;
    sc->experts = (struct draft_experts){
        .part = plan_expert_part(e->plan), .n_used = e->plan->moe.n_used, .n_all = e->plan->moe.n_experts};
    sc->no_lookup = (e->sources & ENGINE_LOOKUP) == 0;
    bc->max_drafts = has_states ? sc->draft_max : 0;
    return ERR_OK;
}

/* Returns the default size of the KV cache. An encoder keeps nothing, so it only needs room for waiting and running
 * sequences; other models get more, for later prompts to reuse. Without keys and values pages have no bytes, and no
 * sequence waits for one. */
static uint64_t default_kv_tokens(const struct plan *plan, uint64_t least, const struct sched_config *sc)
{
    uint64_t encoder = 2 * (uint64_t)sc->max_rows + (uint64_t)sc->max_seqs * KV_PAGE_TOKENS;
    uint64_t longest = (uint64_t)sc->max_seqs * (uint64_t)sc->n_ctx, usual = DEFAULT_KV_TOKENS;
    usual = backend_page_floats(plan) == 0 ? MIN_OF(MAX_OF(longest, usual), (uint64_t)MOST_FREE_TOKENS) : usual;
    return MAX_OF(least, sc->is_bidirectional ? encoder : usual);
}

/* Returns the number of recurrent states of this size: for running sequences, and for cached prefixes. */
static int32_t count_states(const struct sched_config *sc, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    size_t kept = MIN_OF(KEPT_STATE_BYTES / bytes, (size_t)sc->n_pages / PAGES_PER_KEPT_STATE);
    return sc->max_seqs + (int32_t)MAX_OF(kept, 1u);
}

/* Returns the window pages for n_pages pages, if only some layers have a window. */
static int32_t count_windows(const struct sched_config *sc, int32_t n_pages)
{
    return sc->local_window != 0 ? MIN_OF(n_pages, sched_useful_windows(sc)) : 0;
}

/* Derives the limits of scheduler and back end, except states, from configuration and model. */
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
    sc->n_express = sc->max_seqs > 1 && sc->max_rows > sc->max_seqs; /* one more slot, for short requests */
    sc->max_seqs += sc->n_express;
    if (is_encoder && sc->max_rows < (int)n_ctx) {
        return err_set(info, ERR_CONFIG, "batch-size",
                       "batch-size: expected ctx-size %u or more, as this model computes a text in one piece; found %d",
                       n_ctx, sc->max_rows);
    }
    sc->n_ctx = (int32_t)n_ctx;
    sc->is_bidirectional = is_encoder;
    sc->window = plan_window(e->plan);
    sc->local_window = plan_local_window(e->plan);
    uint64_t least = MIN_OF((uint64_t)n_ctx, (uint64_t)sched_least_pages(sc) * KV_PAGE_TOKENS);
    uint64_t kv_tokens = cfg->kv_tokens != 0 ? cfg->kv_tokens : default_kv_tokens(e->plan, least, sc);
    if (kv_tokens < least || kv_tokens > (uint64_t)INT32_MAX - KV_PAGE_TOKENS) {
        return err_set(info, ERR_CONFIG, "kv-tokens",
                       least < n_ctx ? "kv-tokens: expected the %" PRIu64
                                       " of a window and batch-size or more, found %" PRIu64
                                     : "kv-tokens: expected ctx-size %" PRIu64 " or more, found %" PRIu64,
                       least, kv_tokens);
    }
    e->info.n_ctx = n_ctx;
    sc->n_vocab = (int32_t)e->plan->n_vocab;
    sc->n_pages = (int32_t)((kv_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    sc->n_windows = count_windows(sc, sc->n_pages);
    sc->n_embd = e->plan->has_hidden ? (int32_t)e->plan->n_embd : 0;
    int32_t affordable = (int32_t)(LOGITS_BYTES / (sizeof(float) * e->plan->n_vocab));
    sc->max_logits = MIN_OF(sc->max_seqs + EXTRA_LOGITS, MAX_OF(affordable, DRAFT_MAX + 1));
    sc->max_logits = MAX_OF(sc->max_logits, sc->max_seqs);
    sc->queue_max = cfg->queue_max_requests != 0 ? cfg->queue_max_requests : DEFAULT_QUEUE;
    return ERR_OK;
}

/* Returns fewer pages than the default if the device lacks room for them next to everything else measured, but always
 * enough for the longest sequence. */
static int32_t default_pages(const struct sched_config *sc, const struct engine_backend *b)
{
    struct backend_device left = b->device;
    left.bytes[BACKEND_HOST] -= left.bytes[BACKEND_HOST] / HOST_PART;
    for (int i = BACKEND_DEVICE; i < BACKEND_MEMORIES; i++) {
        left.bytes[i] -= left.bytes[i] / BACKEND_DEVICE_PART;
    }
    int32_t fit = backend_pages_that_fit(&left, &b->measure, &b->cfg);
    return MAX_OF(MIN_OF(sc->n_pages, fit), sched_least_pages(sc));
}

/* Returns the type of keys or values if the CPU has it; else NULL, its first. */
static const char *own_type(const char *type)
{
    return type != NULL && names_find(backend_cpu.kv_type_name, type) >= 0 ? type : NULL;
}

/* Assigns layers to back ends if the operator gave their number. If memory is short, the cache shrinks and the layers
 * stay. */
static enum err place_layers(struct engine *e, const struct engine_config *cfg, const struct sched_config *sc,
                             struct backend_config *bc, struct err_info *info)
{
    struct backend_config least = *bc;
    least.n_pages = cfg->kv_tokens != 0 ? sc->n_pages : sched_least_pages(sc);
    least.n_windows = count_windows(sc, least.n_pages);
    TRY(backend_layers_place(cfg->gpu_layers, e->plan, &least, &e->parts, info));
    if (e->unfit != NULL) {
        backend_layers_move(e->unfit, &e->parts);
    }
    e->backend = backend_of_parts(&e->parts);
    if (e->unfit != NULL && e->backend == &backend_cpu) { /* the types were the device's */
        bc->k_type = own_type(bc->k_type);
        bc->v_type = own_type(bc->v_type);
    }
    return ERR_OK;
}

/* The prediction head needs all layers on one back end. Its rows of sampled tokens come on top of a batch's. */
static enum err plan_prediction(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                                struct backend_config *bc, struct err_info *info)
{
    if (plan_predicts(e->plan) && e->parts.n > 1) {
        if (cfg->tell != NULL) {
            cfg->tell(cfg->tell_arg,
                      e->draft_file != NULL
                          ? "the draft model is not used, because it needs all layers on one device"
                          : "the prediction head is not used, because it needs all layers on one device");
        }
        TRY(plan_drop_prediction(e->plan, info));
    }
    sc->predicts = plan_predicts(e->plan);
    sc->output_width = sc->predicts ? (int32_t)e->plan->output_width : 0;
    sc->guesses_in_place = e->plan->guesses_in_place;
    sc->guess_ids = e->plan->guess_ids;
    sc->n_guess_ids = (int32_t)e->plan->n_guess_ids;
    bc->max_rows = sc->max_rows + (sc->predicts ? sc->max_seqs : 0);
    bc->source.part = sc->predicts ? 1 + (e->draft_file != NULL ? gguf_file_bytes(e->draft_file) : 0) : 0;
    return ERR_OK;
}

/* A page's output for the prediction head is kept with the page, if later rows of the head read it. */
static enum err measure(const struct engine *e, const struct sched_config *sc, struct engine_backend *b,
                        struct err_info *info)
{
    TRY(e->backend->measure(e->plan, &b->cfg, &b->measure, info));
    b->measure.bytes[BACKEND_HOST].page += (size_t)sched_kept_floats(sc) * sizeof(float);
    return ERR_OK;
}

/* Returns whether the model's files still have the bytes that they had when they were opened. */
static bool has_files(void *engine)
{
    struct err_info ignored;
    return engine_check_file(engine, &ignored) == ERR_OK;
}

enum err engine_plan(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                     struct engine_backend *out, struct err_info *info)
{
    const char *name = cfg->backend != NULL ? cfg->backend : "cpu";
    struct backend_config *bc = &out->cfg;
    TRY(backend_parts_parse(name, "backend", plan_main_layers(e->plan), &e->parts, info));
    TRY(plan_limits(e, cfg, sc, info));
    sc->n_states = count_states(sc, (size_t)e->plan->recurrent_floats * sizeof(float));
    *bc = (struct backend_config){.device = cfg->device,
                                  .cpu = cfg->cpu,
                                  .parts = &e->parts,
                                  .high_precision = cfg->high_precision,
                                  .pin = cfg->pin,
                                  .n_threads = cfg->n_threads != 0 ? cfg->n_threads : pool_cpu_count(),
                                  .n_pages = sc->n_pages,
                                  .n_windows = sc->n_windows,
                                  .n_states = sc->n_states,
                                  .max_rows = sc->max_rows,
                                  .max_logits = sc->max_logits,
                                  .k_type = cfg->cache_type_k,
                                  .v_type = cfg->cache_type_v,
                                  .pack_cache = cfg->pack_cache,
                                  .eager_bytes = EAGER_BYTES,
                                  .source = {.head = gguf_map(e->gguf)->data,
                                             .head_bytes = (size_t)gguf_data_offset(e->gguf),
                                             .bytes = gguf_file_bytes(e->gguf),
                                             .mtime_ns = gguf_mtime_ns(e->gguf)},
                                  .progress = cfg->progress,
                                  .progress_arg = cfg->progress_arg,
                                  .tell = cfg->tell,
                                  .tell_arg = cfg->tell_arg,
                                  .has_file = has_files,
                                  .has_file_arg = e,
                                  .weight_done = engine_drop_pages,
                                  .weight_done_arg = e};
    TRY(plan_drafts(e, cfg, sc, bc, info));
    TRY(place_layers(e, cfg, sc, bc, info));
    TRY(plan_prediction(e, cfg, sc, bc, info));
    TRY(backend_device_of(e->backend, bc, &out->device, info));
    TRY(measure(e, sc, out, info));
    if (cfg->kv_tokens == 0) {
        bc->n_pages = sc->n_pages = default_pages(sc, out);
        bc->n_windows = sc->n_windows = count_windows(sc, sc->n_pages);
        TRY(measure(e, sc, out, info)); /* fewer pages also need less other memory */
    }
    out->takes = backend_bytes_all(&out->measure);
    TRY(backend_pool_bytes(&out->takes, bc, &out->pool_bytes, info));
    return ERR_OK;
}

/* Counts the layers in this memory. */
static int32_t count_layers(const struct backend_parts *parts, int memory)
{
    int32_t n = 0;
    for (int i = 0; i < parts->n; i++) {
        n += backend_parts_memory(parts, i) == memory ? parts->at[i].last - parts->at[i].first + 1 : 0;
    }
    return n;
}

/* Reports that a part's device lacks room: what it must hold, and how many layers fit. */
static enum err refuse_device(const struct engine *e, const struct engine_backend *b, int part, struct err_info *info)
{
    int own = backend_parts_memory(&e->parts, part);
    const struct backend_bytes *need = &b->measure.bytes[own];
    struct backend_device d;
    int32_t n_fit;
    size_t pages, states;
    TRY(backend_part_device(&e->parts.at[part], &b->cfg, &d, info));
    const struct backend_config only_pages = {.n_pages = b->cfg.n_pages, .n_windows = b->cfg.n_windows},
                                only_states = {.n_states = b->cfg.n_states};
    TRY(backend_pool_bytes(need, &only_pages, &pages, info));
    TRY(backend_pool_bytes(need, &only_states, &states, info));
    TRY(backend_layers_that_fit(e->parts.at[part].backend, e->plan, &b->cfg, &n_fit, info));
    char way[64], id[BACKEND_ID_BYTES + 16] = "";
    if (d.id[0] != '\0') {
        snprintf(id, sizeof id, " (device %s)", d.id);
    }
    snprintf(way, sizeof way,
             n_fit > 0 ? "there is room for --gpu-layers %" PRId32 : "none has room: --gpu-layers %" PRId32, n_fit);
    return err_set(info, ERR_MEMORY_LIMIT, "gpu-layers",
                   "gpu-layers: %s%s has %zu MiB free, and %" PRId32 " of %u layers need more: weights %zu MiB, a "
                   "KV cache of %" PRId64 " tokens %zu, recurrent states %zu and activations %zu; %s",
                   d.name, id, b->device.bytes[own] >> 20, count_layers(&e->parts, own), plan_main_layers(e->plan),
                   need->weights >> 20, (int64_t)b->cfg.n_pages * KV_PAGE_TOKENS, pages >> 20, states >> 20,
                   need->activations >> 20, way);
}

/* Checks the room in devices' own memories. */
static enum err check_devices(const struct engine *e, const struct engine_backend *b, struct err_info *info)
{
    for (int i = 0; i < e->parts.n; i++) {
        int own = backend_parts_memory(&e->parts, i);
        const struct backend_device d = {.bytes = {0, b->device.bytes[own]}};
        const struct backend_measure m = {.bytes = {{0}, b->measure.bytes[own]}};
        if (b->device.bytes[own] != 0 && backend_pages_that_fit(&d, &m, &b->cfg) < b->cfg.n_pages) {
            return refuse_device(e, b, i, info);
        }
    }
    return ERR_OK;
}

/* Checks the room in the host's memory. */
static enum err check_host(const struct engine_config *cfg, const struct engine_backend *b, struct err_info *info)
{
    const struct backend_bytes need = backend_host_bytes(&b->device, &b->measure);
    const struct backend_device d = {.bytes = {b->device.bytes[BACKEND_HOST]}};
    const struct backend_measure m = {.bytes = {need}};
    int32_t most = backend_pages_that_fit(&d, &m, &b->cfg);
    const char *option = cfg->kv_tokens != 0 ? "kv-tokens" : "ctx-size";
    return b->cfg.n_pages <= most
               ? ERR_OK
               : err_set(info, ERR_MEMORY_LIMIT, option,
                         "%s: expected at most %" PRId64 " tokens in the KV cache, found %" PRId64 ": %s has %zu MiB, "
                         "of which weights take %zu and activations %zu",
                         option, (int64_t)most * KV_PAGE_TOKENS, (int64_t)b->cfg.n_pages * KV_PAGE_TOKENS,
                         b->device.name, d.bytes[BACKEND_HOST] >> 20, need.weights >> 20, need.activations >> 20);
}

enum err engine_check_memory(const struct engine *e, const struct engine_config *cfg, const struct engine_backend *b,
                             struct err_info *info)
{
    uint64_t need = UINT64_MAX;
    bool is_counted = ck_add(b->takes.weights, b->pool_bytes, &need) && ck_add(need, b->takes.activations, &need);
    if (cfg->memory_limit_bytes != 0 && (!is_counted || need > cfg->memory_limit_bytes)) {
        return err_set(info, ERR_MEMORY_LIMIT, "memory-limit",
                       "weights, KV cache and activations need %" PRIu64 " MiB, the limit is %" PRIu64 " MiB",
                       need >> 20, cfg->memory_limit_bytes >> 20);
    }
    /* check the host first: moving layers off a device that shares its memory frees nothing */
    TRY(check_host(cfg, b, info));
    return check_devices(e, b, info);
}
