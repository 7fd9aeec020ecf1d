/* The CPU back end: opening and closing. cpu_weights.c packs weights, cpu_steps.c fuses steps and cpu_exec.c runs them.
 * This file allocates all memory, once. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <string.h>

/* Allocates a buffer with the maximum number of rows that it holds at a time. */
static void take_buf(struct backend_model *m, cpu_buf_id id, const struct cpu_buf_use *use, size_t *at)
{
    size_t rows = (size_t)m->cfg.max_rows, tiles = (size_t)CPU_TILE_ROWS * (size_t)m->cfg.n_threads;
    if (use->after_gather) {
        rows = MIN_OF(rows, (size_t)m->cfg.max_logits);
    } else if (use->by_tiles && m->tile_buf == PLAN_NONE && tiles < rows) {
        m->tile_buf = id;
        rows = tiles;
    }
    m->buf_rows[id] = use->is_used ? (int32_t)rows : 0;
    m->bufs[id] = use->is_used ? cpu_take(m, at, rows * m->strides[id] * sizeof(float)) : NULL;
}

/* Allocates the buffers: first the buffers that the head reads, then the others, in the memory of the logits. */
static void lay_out_bufs(struct backend_model *m, size_t *at)
{
    struct cpu_buf_use uses[CPU_MAX_BUFS];
    m->tile_buf = PLAN_NONE;
    for (int32_t i = 0; i < CPU_MAX_BUFS; i++) {
        uses[i] = cpu_buf_use(m, i);
        if (uses[i].by_head) {
            take_buf(m, i, &uses[i], at);
        }
    }
    size_t end = *at;
    m->logits = cpu_take(m, &end, (size_t)m->cfg.max_logits * m->plan->n_vocab * sizeof(float));
    for (int32_t i = 0; i < CPU_MAX_BUFS; i++) {
        if (!uses[i].by_head) {
            take_buf(m, i, &uses[i], at);
        }
    }
    *at = MAX_OF(*at, end);
}

/* Returns the widest inner row of steps with this split; 0 if there are none. */
static uint32_t widest_inner(const struct plan *p, enum plan_split split)
{
    uint32_t widest = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        uint32_t inner = plan_ops[p->steps[i].op].split == split ? plan_inner_floats(p, &p->steps[i]) : 0;
        widest = MAX_OF(widest, inner);
    }
    return widest;
}

/* Allocates all activations and per-thread scratch. Called twice, first to count. Returns the bytes needed. */
static size_t lay_out_scratch(struct backend_model *m)
{
    const struct plan *p = m->plan;
    size_t at = 0, rows = (size_t)m->cfg.max_rows;
    uint32_t widest = 0, widest_norm = MAX_OF(p->n_embd, widest_inner(p, PLAN_BY_HEADS));
    for (int32_t i = 0; i < p->n_bufs; i++) {
        m->strides[i] = cpu_align_up(p->bufs[i].width * sizeof(float)) / sizeof(float);
        m->strides[i + PLAN_MAX_BUFS] = m->strides[i];
        widest = MAX_OF(widest, p->bufs[i].width);
        bool is_normed = cpu_buf_use(m, i).is_normed || cpu_buf_use(m, i + PLAN_MAX_BUFS).is_normed;
        widest_norm = is_normed ? MAX_OF(widest_norm, p->bufs[i].width) : widest_norm;
    }
    lay_out_bufs(m, &at);
    for (int32_t i = 0; i < p->n_ropes; i++) {
        m->rope_cos[i] = cpu_take(m, &at, rows * p->ropes[i].n_rot / 2 * sizeof(float));
        m->rope_sin[i] = cpu_take(m, &at, rows * p->ropes[i].n_rot / 2 * sizeof(float));
    }
    m->chunk_stats = cpu_take(m, &at, (size_t)m->cfg.max_logits * m->n_chunks * sizeof *m->chunk_stats);
    cpu_attention_lay_out(m, &at);
    cpu_index_lay_out(m, &at);
    cpu_overtake_lay_out(m, &at);
    cpu_tail_lay_out(m, &at);
    size_t picks = rows * p->moe.n_used, ff = widest_inner(p, PLAN_BY_EXPERTS);
    m->experts.hidden_stride = cpu_align_up(ff * sizeof(float)) / sizeof(float);
    m->experts.hidden = cpu_take(m, &at, picks * m->experts.hidden_stride * sizeof(float));
    m->experts.hidden_q = cpu_take(m, &at, picks * kern_qrow_bytes(ff));
    widest = MAX_OF(widest, (uint32_t)ff);
    for (int t = 0; t < m->cfg.n_threads; t++) {
        struct cpu_scratch s = {
            .normed = cpu_take(m, &at, CPU_TILE_ROWS * cpu_align_up(widest_norm * sizeof(float))),
            .rows = cpu_take(m, &at, CPU_TILE_ROWS * kern_qrow_bytes(widest)),
            .tile = {cpu_take(m, &at, CPU_TILE_ROWS * CPU_TILE_COLUMNS * sizeof(float)),
                     cpu_take(m, &at, CPU_TILE_ROWS * CPU_TILE_COLUMNS * sizeof(float))},
            .expert_begin = cpu_take(m, &at, (p->moe.n_experts + 1) * sizeof *s.expert_begin),
            .picks = cpu_take(m, &at, picks * sizeof *s.picks),
            .drafting = cpu_take(m, &at, backend_drafting_floats(p, &m->cfg) * sizeof *s.drafting),
        };
        m->scratch[t] = s;
    }
    return at;
}

/* Assigns the memory: pages, then window pages, then recurrent states. */
static void lay_out_pools(struct backend_model *m)
{
    for (int is_local = false; is_local <= true; is_local++) {
        struct cpu_kv_pool *pool = &m->kv_pools[is_local];
        *pool = (struct cpu_kv_pool){.at = m->recurrent_at, /* Cannot overflow if pool_bytes does not. */
                                     .page_bytes = *backend_page_bytes(&m->bytes, is_local),
                                     .n_pages = backend_n_pages(&m->cfg, is_local),
                                     .highest = -1};
        m->recurrent_at += pool->page_bytes * (size_t)pool->n_pages;
    }
}

/* Assigns each layer that stores keys and values its offset in the pages. */
static enum err lay_out_kv(struct backend_model *m, struct err_info *info)
{
    m->kvs = mem_zalloc_array(m->plan->n_layers, sizeof *m->kvs, MEM_MODEL);
    TRY_MEM_FOR(m->kvs != NULL, info, "out of memory for the table of layers");
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        struct plan_kv heads = plan_kv_of(m->plan, i);
        struct cpu_kv *kv = &m->kvs[i];
        if (heads.layer != i) {
            *kv = heads.layer != PLAN_NONE ? m->kvs[heads.layer] : (struct cpu_kv){.at = 0};
            kv->heads = heads;
            continue;
        }
        kv->heads = heads;
        kv->layout = kv_layout_for(m->k_type, m->v_type, (int)heads.head_dim, (int)plan_kv_value_dim(&heads),
                                   heads.latent_dim != 0);
        kv->index = index_keys_of(&kv->layout, (int)heads.index_dim);
        kv->is_local = backend_is_local(m->plan, &m->cfg, i);
        kv->at = *backend_page_bytes(&m->bytes, kv->is_local);
        *backend_page_bytes(&m->bytes, kv->is_local) += cpu_layer_bytes(kv);
    }
    lay_out_pools(m);
    backend_set_state_bytes(m->plan, &m->cfg, &m->bytes);
    return backend_pool_bytes(&m->bytes, &m->cfg, &m->pool_bytes, info);
}

static enum err allocate(struct backend_model *m, struct err_info *info)
{
    m->scratch_memory = mem_map(m->bytes.activations, MEM_SCRATCH);
    m->kv = mem_map(m->pool_bytes, MEM_KV);
    TRY_MEM_FOR(m->scratch_memory != NULL && (m->kv != NULL || m->pool_bytes == 0), info,
                "out of memory for %zu bytes of activations and %zu bytes of KV cache", m->bytes.activations,
                m->pool_bytes);
    m->recurrent = (float *)(void *)(m->kv + m->recurrent_at);
    lay_out_scratch(m);
    return ERR_OK;
}

static void cpu_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    if (m == NULL) {
        return;
    }
    pool_free(&m->pool);
    cpu_weights_free(m);
    mem_unmap(m->kv, m->pool_bytes, MEM_KV);
    mem_unmap(m->scratch_memory, m->bytes.activations, MEM_SCRATCH);
    mem_free(m->scratch);
    mem_free(m->kvs);
    mem_free(m->steps);
    mem_free(m->tasks);
    mem_free(m);
    *model = NULL;
}

static enum err choose_kv_types(struct backend_model *m, struct err_info *info)
{
    int k, v;
    TRY(names_choose(kv_type_name, "cache-type-k", m->cfg.k_type, &k, info));
    TRY(names_choose(kv_type_name, "cache-type-v", m->cfg.v_type, &v, info));
    m->k_type = (enum kv_type)k;
    m->v_type = (enum kv_type)v;
    /* Latents are both keys and values, so their rounding counts twice. */
    bool is_narrow = m->k_type == KV_TYPE_Q8_0 || m->k_type == KV_TYPE_Q4_0;
    return m->plan->latent_dim == 0 || !is_narrow
               ? ERR_OK
               : err_set(info, ERR_CONFIG, "cache-type-k",
                         "cache-type-k: expected f16 or bf16 (or i16, which is f16 then), as the model has latent "
                         "attention; found '%s'",
                         m->cfg.k_type);
}

/* Computes everything that needs neither a weight nor memory for one. */
static enum err lay_out(struct backend_model *m, struct err_info *info)
{
    TRY(choose_kv_types(m, info));
    TRY(backend_check_types(m->plan, info));
    TRY(kern_select(m->cfg.cpu, &m->kern, info));
    TRY(cpu_steps_compile(m, info));
    m->scratch = mem_zalloc_array((size_t)m->cfg.n_threads, sizeof *m->scratch, MEM_MODEL);
    TRY_MEM_FOR(m->scratch != NULL, info, "out of memory for the scratch table");
    m->n_chunks = (m->plan->n_vocab + CPU_LOGITS_CHUNK - 1) / CPU_LOGITS_CHUNK;
    m->bytes.activations = lay_out_scratch(m);
    TRY(lay_out_kv(m, info));
    return cpu_weights_lay_out(m, info);
}

/* Creates a model without weights and memory. */
static enum err make_model(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                           struct err_info *info)
{
    *out = NULL;
    struct backend_model *m = mem_zalloc(sizeof *m, MEM_MODEL);
    TRY_MEM_FOR(m != NULL, info, "out of memory for the CPU back end");
    m->plan = plan;
    m->cfg = *cfg;
    m->pack_map.fd = -1;
    enum err err = lay_out(m, info);
    if (err != ERR_OK) {
        cpu_close(&m);
    }
    *out = m;
    return err;
}

static enum err cpu_measure(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                            struct err_info *info)
{
    struct backend_model *m;
    struct kv_layout kv; /* the types are the same in all layers */
    TRY(make_model(plan, cfg, &m, info));
    kv = kv_layout_for(m->k_type, m->v_type, (int)plan->head_dim, (int)plan_value_dim(plan), plan->latent_dim != 0);
    *out = (struct backend_measure){.bytes[BACKEND_HOST] = m->bytes};
    backend_join_name(out->kernels, m->kern.isa);
    backend_join_name(out->k_type, kv_type_name((int)kv.k.type));
    backend_join_name(out->v_type, kv.is_latent ? "none" : kv_type_name((int)kv.v.type));
    cpu_close(&m);
    return ERR_OK;
}

static enum err cpu_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                         struct err_info *info)
{
    struct backend_model *m;
    *out = NULL;
    TRY(backend_check_ranks(plan, cfg, info));
    TRY(make_model(plan, cfg, &m, info));
    enum err err = pool_new(cfg->n_threads, &m->pool, info);
    if (err == ERR_OK && cfg->pin) {
        pool_pin(m->pool);
    }
    if (err == ERR_OK) {
        err = allocate(m, info);
    }
    if (err == ERR_OK) {
        err = cpu_weights_pack(m, info);
    }
    if (err != ERR_OK) {
        cpu_close(&m);
    }
    *out = m;
    return err;
}

static enum err cpu_begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    TRY(backend_check_batch(m->plan, &m->cfg, batch, info));
    if (m->batch != NULL && batch->n_rows > cpu_overtaking_rows(m)) {
        return err_set(info, ERR_INTERNAL, NULL, "a batch of %d rows cannot overtake another", batch->n_rows);
    }
    pool_pin_owner(m->pool);
    m->reduced = ERR_OK;
    cpu_kv_ahead(m, batch);
    if (m->batch == NULL) {
        TRY(cpu_weights_advance(m, batch->n_rows, info));
    }
    uint64_t begun_ns = cpu_packs_later(m) ? clock_now_ns() : 0;
    cpu_exec_run(m, batch);
    m->later.batch_ns = cpu_packs_later(m) ? clock_now_ns() - begun_ns : 0;
    return m->reduced == ERR_OK ? ERR_OK : backend_reduce_failed(m->reduced, info);
}

/* Copies layer i's part of a page to `at`, or from there. Returns the address after it. */
static unsigned char *move_layer(struct backend_model *m, int32_t i, int32_t page, unsigned char *at, bool writes)
{
    const struct cpu_kv *kv = &m->kvs[i];
    size_t n = kv->heads.layer == i ? cpu_layer_bytes(kv) : 0;
    if (n != 0) {
        unsigned char *layer = cpu_keys(m, i, 0, page);
        memcpy(writes ? layer : at, writes ? at : layer, n);
    }
    return at + n;
}

static void move_index(const struct cpu_kv *kv, unsigned char *keys, int slot, float *at, bool writes)
{
    if (writes) {
        index_keys_store(&kv->index, at, slot, keys);
    }
    for (int j = 0; j < kv->index.d && !writes; j++) {
        at[j] = index_keys_at(&kv->index, keys, slot, j);
    }
}

/* Like move_layer(), but in floats. */
static float *move_floats(struct backend_model *m, int32_t i, int32_t page, float *at, bool writes)
{
    const struct cpu_kv *kv = &m->kvs[i];
    const struct kv_layout *l = &kv->layout;
    uint32_t n = kv->heads.layer == i ? kv->heads.n_kv_heads : 0;
    size_t d = (size_t)l->d, n_keys = n * d, slot_floats = n != 0 ? plan_kv_floats(&kv->heads) : 0;
    for (int slot = 0; slot < KV_PAGE_TOKENS; slot++, at += slot_floats) {
        for (uint32_t h = 0; h < n; h++) {
            unsigned char *keys = cpu_keys(m, i, h, page), *values = cpu_values(m, i, h, page);
            float *k = at + h * d, *v = l->is_latent ? k : at + n_keys + h * (size_t)l->d_value;
            if (writes) {
                m->kern.kv_store(l, k, v, slot, keys, values);
            }
            for (int j = 0; j < l->d && !writes; j++) {
                k[j] = kv_key_at(l, keys, slot, j);
            }
            for (int j = 0; j < l->d_value && !writes && !l->is_latent; j++) {
                v[j] = kv_value_at(l, values, slot, j);
            }
        }
        if (n != 0 && kv->index.d != 0) {
            move_index(kv, cpu_index_keys(m, i, page), slot, at + d, writes);
        }
    }
    return at;
}

/* Returns the address after a layer's part of a page. */
static void *skip_layer(const struct backend_model *m, int32_t i, enum backend_form form, unsigned char *at)
{
    const struct cpu_kv *kv = &m->kvs[i];
    if (kv->heads.layer != i) {
        return at;
    }
    return at +
           (form == BACKEND_OWN ? cpu_layer_bytes(kv) : KV_PAGE_TOKENS * plan_kv_floats(&kv->heads) * sizeof(float));
}

static enum err cpu_page_copy(struct backend_model *m, struct backend_page page, enum backend_form form, void *at,
                              bool writes, struct err_info *info)
{
    (void)info;
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        int32_t id = backend_page_id(page, m->kvs[i].is_local);
        if (id == BACKEND_NO_PAGE) {
            at = skip_layer(m, i, form, at);
        } else if (form == BACKEND_OWN) {
            at = move_layer(m, i, id, at, writes);
        } else {
            at = move_floats(m, i, id, at, writes);
        }
    }
    return ERR_OK;
}

static enum err cpu_state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes, struct err_info *info)
{
    (void)info;
    float *own = cpu_state(m, state);
    memcpy(writes ? own : bytes, writes ? bytes : own, m->bytes.state);
    return ERR_OK;
}

static void cpu_info(const struct backend_model *m, struct backend_info *out)
{
    *out = (struct backend_info){.logits = m->logits,
                                 .max_begun = 1,
                                 .overtaking_rows = cpu_overtaking_rows(m),
                                 .even_rows = m->kern.tile_rows * m->cfg.n_threads,
                                 .behind_rows = CPU_TILE_ROWS,
                                 .behind_ns = cpu_weights_behind_ns(m),
                                 .pack_state = m->pack_state,
                                 .pack_note = m->pack_note};
}

static const char *cpu_option_name(int i)
{
    static const char *const names[] = {"cpu", "high-precision", "pin", "pack-cache"};
    return i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .description = "packed weights, SIMD kernels, worker pool",
    .kv_type_name = kv_type_name,
    .option_name = cpu_option_name,
    .probe = backend_probe_host,
    .measure = cpu_measure,
    .open = cpu_open,
    .begin = cpu_begin,
    .wait = backend_wait_done,
    .page_copy = cpu_page_copy,
    .state_copy = cpu_state_copy,
    .info = cpu_info,
    .idle = cpu_weights_idle,
    .close = cpu_close,
};
