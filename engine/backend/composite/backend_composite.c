/* The composite back end: runs the layers of a model on several back ends, each of which computes a part of the plan
 * (plan_cut.h). Buffers here carry the rows of a batch from part to part. */
#include "engine/backend/backend_parts.h"
#include "engine/base/mem.h"
#include "engine/plan/plan_cut.h"

#include <stdio.h>
#include <string.h>

struct part {
    struct backend_part layers;
    struct plan *plan;
    struct backend_config cfg;
    struct backend_measure measure;
    struct backend_bytes takes; /* in all memories */
    struct backend_model *m;
    const struct backend_config *whole; /* for progress, during open */
    float before, share;                /* share of progress: of the previous parts, and of this one */
};

struct backend_model {
    int n;
    struct part parts[BACKEND_MAX_PARTS];
    float *edges[2];   /* [max_rows][widest]; part i reads buffer i % 2 and writes the other */
    size_t edge_bytes; /* bytes of one buffer */
    struct backend_info info;
    char pack_note[ERR_TEXT_BYTES];
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool report_progress(void *arg, float fraction)
{
    const struct part *p = arg;
    return p->whole->progress(p->whole->progress_arg, p->before + p->share * fraction);
}

static bool has_type(const struct backend *b, const char *type)
{
    return type == NULL || names_find(b->kv_type_name, type) >= 0;
}

/* Returns the configured type of keys or values for back ends that have it; the others use their first. If no part has
 * it, the first part rejects it. */
static const char *type_of(const struct backend_parts *all, const struct backend *b, const char *type)
{
    bool is_had = false;
    for (int i = 0; i < all->n; i++) {
        is_had |= has_type(all->at[i].backend, type);
    }
    return !is_had || has_type(b, type) ? type : NULL;
}

static enum err lay_out_part(struct backend_model *m, int i, const struct plan *plan, const struct backend_config *cfg,
                             struct err_info *info)
{
    struct part *p = &m->parts[i];
    p->layers = cfg->parts->at[i];
    p->whole = cfg;
    p->cfg = backend_part_config(&p->layers, cfg);
    p->cfg.k_type = type_of(cfg->parts, p->layers.backend, cfg->k_type);
    p->cfg.v_type = type_of(cfg->parts, p->layers.backend, cfg->v_type);
    p->cfg.eager_bytes = 0; /* a part that is behind would slow all others */
    p->cfg.max_logits = i + 1 < m->n ? 0 : cfg->max_logits;
    p->cfg.source.part = ((uint64_t)p->layers.first << 32) + (uint64_t)p->layers.last + 1;
    p->cfg.progress = cfg->progress != NULL ? report_progress : NULL;
    p->cfg.progress_arg = p;
    TRY(plan_cut(plan, p->layers.first, p->layers.last, &p->plan, info));
    TRY(p->layers.backend->measure(p->plan, &p->cfg, &p->measure, info));
    p->takes = backend_bytes_all(&p->measure);
    return ERR_OK;
}

/* Computes everything that needs no weight. */
static enum err lay_out(struct backend_model *m, const struct plan *plan, const struct backend_config *cfg,
                        struct err_info *info)
{
    uint32_t widest = 0;
    size_t weights = 0, before = 0;
    m->n = cfg->parts->n;
    for (int i = 0; i < m->n; i++) {
        TRY(lay_out_part(m, i, plan, cfg, info));
        widest = MAX_OF(widest, m->parts[i].plan->output_width);
        weights += m->parts[i].takes.weights;
    }
    for (int i = 0; i < m->n; i++) {
        m->parts[i].before = (float)before / (float)weights;
        m->parts[i].share = (float)m->parts[i].takes.weights / (float)weights;
        before += m->parts[i].takes.weights;
    }
    m->edge_bytes = (size_t)widest * (size_t)cfg->max_rows * sizeof(float);
    return ERR_OK;
}

static void composite_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    if (m == NULL) {
        return;
    }
    for (int i = 0; i < m->n; i++) {
        struct part *p = &m->parts[i];
        if (p->m != NULL) {
            p->layers.backend->close(&p->m);
        }
        plan_free(&p->plan);
    }
    for (int i = 0; i < 2; i++) {
        mem_unmap(m->edges[i], m->edge_bytes, MEM_SCRATCH);
    }
    mem_free(m);
    *model = NULL;
}

/* Creates a model without weights and memory. */
static enum err make_model(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                           struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for the composite back end");
    enum err err = lay_out(*out, plan, cfg, info);
    if (err != ERR_OK) {
        composite_close(out);
    }
    return err;
}

static enum err composite_measure(const struct plan *plan, const struct backend_config *cfg,
                                  struct backend_measure *out, struct err_info *info)
{
    struct backend_model *m;
    TRY(make_model(plan, cfg, &m, info));
    *out = (struct backend_measure){.bytes[BACKEND_HOST].activations = 2 * m->edge_bytes};
    for (int i = 0; i < m->n; i++) {
        const struct backend_measure *part = &m->parts[i].measure;
        backend_join_name(out->kernels, part->kernels);
        backend_join_name(out->k_type, part->k_type);
        backend_join_name(out->v_type, part->v_type);
        backend_bytes_add(&out->bytes[BACKEND_HOST], &part->bytes[BACKEND_HOST]);
        backend_bytes_add(&out->bytes[backend_parts_memory(cfg->parts, i)], &part->bytes[BACKEND_DEVICE]);
    }
    composite_close(&m);
    return ERR_OK;
}

/* Appends a device's name, unless the last is the same. */
static void join_name(char *all, size_t bytes, const char *name)
{
    size_t n = strlen(all), n_name = strlen(name);
    if (n < n_name || strcmp(all + n - n_name, name) != 0) {
        snprintf(all + n, bytes - n, "%s%s", n != 0 ? " and " : "", name);
    }
}

/* Combines all devices: one host, and each device's own memory at the index that its parts use in measure. The parts
 * report which devices these are. */
static enum err composite_probe(const struct backend_config *cfg, int i, struct backend_device *out,
                                struct err_info *info)
{
    *out = (struct backend_device){.name = ""};
    for (int k = 0; i == 0 && k < cfg->parts->n; k++) {
        struct backend_device d;
        int own = backend_parts_memory(cfg->parts, k);
        TRY(backend_part_device(&cfg->parts->at[k], cfg, &d, info));
        join_name(out->name, sizeof out->name, d.name);
        out->bytes[BACKEND_HOST] = MAX_OF(out->bytes[BACKEND_HOST], d.bytes[BACKEND_HOST]);
        out->bytes[own] = d.bytes[BACKEND_DEVICE];
        out->is_shared[own] = d.is_shared[BACKEND_DEVICE];
    }
    return i == 0 ? ERR_OK : ERR_NONE;
}

/* Combines the properties of the parts. */
static void sum_up(struct backend_model *m)
{
    size_t n = 0;
    for (int i = 0; i < m->n; i++) {
        struct backend_info part;
        m->parts[i].layers.backend->info(m->parts[i].m, &part);
        /* The highest value is the worst state. */
        enum backend_pack_state worst = MAX_OF(m->info.pack_state, part.pack_state);
        if (part.pack_note[0] != '\0' && n < sizeof m->pack_note) {
            n += (size_t)snprintf(m->pack_note + n, sizeof m->pack_note - n, "%s%s", n > 0 ? "; " : "", part.pack_note);
        }
        m->info = part; /* the last part's remains */
        m->info.pack_state = worst;
        m->info.pack_note = m->pack_note;
    }
}

static enum err composite_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                               struct err_info *info)
{
    enum err err = make_model(plan, cfg, out, info);
    struct backend_model *m = *out;
    for (int i = 0; err == ERR_OK && i < 2 && m->edge_bytes != 0; i++) {
        m->edges[i] = mem_map(m->edge_bytes, MEM_SCRATCH);
        err = m->edges[i] != NULL ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for rows between back ends");
    }
    for (int i = 0; err == ERR_OK && i < m->n; i++) {
        struct part *p = &m->parts[i];
        err = p->layers.backend->open(p->plan, &p->cfg, &p->m, info);
    }
    if (err != ERR_OK) {
        composite_close(out);
        return err;
    }
    sum_up(m);
    return ERR_OK;
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

/* Computes the parts in sequence; the last one can continue asynchronously. */
static enum err composite_begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    for (int i = 0; i < m->n; i++) {
        const struct part *p = &m->parts[i];
        bool is_last = i + 1 == m->n;
        struct backend_batch b = *batch;
        b.asks = NULL; /* a batch would have to overtake in all parts */
        b.input = m->edges[i % 2];
        b.output = m->edges[(i + 1) % 2];
        b.n_logits = is_last ? batch->n_logits : 0;
        b.n_hidden = is_last ? batch->n_hidden : 0;
        b.n_copies = p->plan->recurrent_floats != 0 ? batch->n_copies : 0;
        TRY(p->layers.backend->begin(p->m, &b, info));
        TRY(is_last ? ERR_OK : p->layers.backend->wait(p->m, info));
    }
    return ERR_OK;
}

static enum err composite_wait(struct backend_model *m, struct err_info *info)
{
    const struct part *last = &m->parts[m->n - 1];
    return last->layers.backend->wait(last->m, info);
}

/* --- pages and states --------------------------------------------------------------------------------------------- */

static enum err composite_page_copy(struct backend_model *m, struct backend_page page, enum backend_form form,
                                    void *bytes, bool writes, struct err_info *info)
{
    unsigned char *at = bytes;
    for (const struct part *p = m->parts; p < m->parts + m->n; p++) {
        TRY(p->layers.backend->page_copy(p->m, page, form, at, writes, info));
        at += form == BACKEND_OWN ? p->takes.page + p->takes.window : backend_page_floats(p->plan) * sizeof(float);
    }
    return ERR_OK;
}

static enum err composite_state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes,
                                     struct err_info *info)
{
    unsigned char *at = bytes;
    for (const struct part *p = m->parts; p < m->parts + m->n; at += p->takes.state, p++) {
        TRY(p->takes.state != 0 ? p->layers.backend->state_copy(p->m, state, at, writes, info) : ERR_OK);
    }
    return ERR_OK;
}

static void composite_info(const struct backend_model *m, struct backend_info *out)
{
    *out = m->info;
    out->overtaking_rows = 0;
    out->even_rows = 0; /* parts differ */
    out->counts = (struct backend_counts){0};
    for (const struct part *p = m->parts; p < m->parts + m->n; p++) {
        struct backend_info part;
        p->layers.backend->info(p->m, &part);
        out->counts.launches += part.counts.launches;
        out->counts.weight_bytes += part.counts.weight_bytes;
        out->counts.cache_bytes += part.counts.cache_bytes;
    }
}

const struct backend backend_composite = {
    .name = "composite",
    .description = "layers of a model on several back ends",
    .kv_type_name = backend_kv_type_name, /* a part can lack some of them */
    .probe = composite_probe,
    .measure = composite_measure,
    .open = composite_open,
    .begin = composite_begin,
    .wait = composite_wait,
    .page_copy = composite_page_copy,
    .state_copy = composite_state_copy,
    .info = composite_info,
    .close = composite_close,
};

const struct backend *backend_of_parts(const struct backend_parts *p)
{
    return p->n == 1 && p->at[0].device[0] == '\0' ? p->at[0].backend : &backend_composite;
}
