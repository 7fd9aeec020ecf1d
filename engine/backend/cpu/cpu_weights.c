/* Packs weights into panels at load, in parallel, slice by slice. It reports file bytes that will not be read again, so
 * no weight is in memory twice, except one slice per thread. All packed weights share one mapping, so that huge pages
 * can cover them; cpu_pack_cache.c can map them from a file instead. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/ck.h"
#include "engine/base/mem.h"
#include "engine/quant/panel_pack.h"
#include "engine/quant/quant.h"

#include <string.h>

enum {
    ALIGN = 64,
    /* A slice is packed by one thread, which also clears the huge page that it fills: a millisecond of work. */
    SLICE_BYTES = 2 << 20,
};

/* Marks rows that must not share a panel with others, so that the outputs of a head or expert are whole panels. */
static void mark_groups(struct backend_model *m)
{
    const struct plan *p = m->plan;
    for (int32_t i = 0; i < p->n_weights; i++) {
        m->weights[i].group_rows = p->weights[i].n_out;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_operand *o;
        plan_weight_id id;
        for (int k = 0; (o = plan_next_operand(&p->steps[i], &k, &id)) != NULL;) {
            if ((o->flags & PLAN_MULTIPLIES) != 0) {
                m->weights[id].group_rows = MIN_OF(m->weights[id].group_rows, plan_group_rows(p, &p->steps[i], o));
                m->weights[id].is_multiplied = true;
            }
        }
    }
}

/* Returns whether the weight is read as a plain f32 vector (a norm or a bias). */
static bool is_vector(const struct plan_weight *w, const struct cpu_weight *c)
{
    return w->n_out == 1 && w->type == DTYPE_F32 && !c->is_multiplied;
}

static size_t packed_bytes(const struct plan_weight *w, const struct cpu_weight *c)
{
    size_t bytes = is_vector(w, c) ? w->n_in * sizeof(float) : c->panel_bytes * c->n_panels;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static enum err find_sizes(struct backend_model *m, struct err_info *info)
{
    uint64_t total = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        struct cpu_weight *c = &m->weights[i];
        c->n_out = w->n_out;
        c->n_in = w->n_in;
        c->kind = quant_ops(w->type)->panel;
        c->group_panels = (c->group_rows + PANEL_ROWS - 1) / PANEL_ROWS;
        c->n_panels = c->group_panels * (w->n_out / c->group_rows);
        c->panel_bytes = panel_bytes(c->kind, w->n_in);
        uint64_t bytes = is_vector(w, c) ? (uint64_t)w->n_in * sizeof(float) : (uint64_t)c->panel_bytes * c->n_panels;
        bool ok = ck_align(bytes, ALIGN, &bytes) && ck_add(total, bytes, &total);
        if (!ok) {
            return err_set(info, ERR_NOMEM, w->name, "the packed weights exceed the address space");
        }
    }
    m->bytes.weights = (size_t)total;
    return ERR_OK;
}

/* Points every weight to its part of `base`. */
static void lay_out(struct backend_model *m, const unsigned char *base)
{
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        struct cpu_weight *c = &m->weights[i];
        if (is_vector(w, c)) {
            c->vector = (const float *)(const void *)base;
        } else {
            c->panels = base;
        }
        base += packed_bytes(w, c);
    }
}

/* Returns the first output row of a panel; n_out for the panel after the last. */
static uint32_t row_of_panel(const struct cpu_weight *c, uint32_t panel)
{
    return panel / c->group_panels * c->group_rows + panel % c->group_panels * PANEL_ROWS;
}

/* Reports that the file bytes of rows [row, end) are no longer needed. */
static void done_with(const struct backend_model *m, const struct plan_weight *w, uint32_t row, uint32_t end)
{
    if (m->cfg.weight_done != NULL && row < end) {
        w->source->ops->done(w->source, row, end - row, m->cfg.weight_done, m->cfg.weight_done_arg);
    }
}

bool cpu_report_progress(const struct backend_model *m, float fraction)
{
    return m->cfg.progress == NULL || m->cfg.progress(m->cfg.progress_arg, fraction);
}

enum err cpu_cancelled(struct err_info *info) { return err_set(info, ERR_CANCELLED, NULL, "loading was cancelled"); }

struct pack_job {
    struct backend_model *m;
    atomic_size_t next;  /* next free slice */
    atomic_bool is_over; /* cancelled */
    unsigned char *rows; /* [n_threads][rows_bytes] rows of a panel, for sources that must encode them */
    size_t rows_bytes;
};

/* Packs panels [first, end) of a weight whose packed form begins at `to`. rows: memory for the rows of a panel, if its
 * source must encode them. */
static void pack_panels(const struct backend_model *m, const struct plan_weight *w, struct cpu_weight *c,
                        uint32_t first, uint32_t end, unsigned char *rows, unsigned char *to)
{
    for (uint32_t i = first; i < end; i++) {
        uint32_t row = row_of_panel(c, i), left = c->group_rows - i % c->group_panels * PANEL_ROWS;
        uint32_t n = MIN_OF(left, (uint32_t)PANEL_ROWS);
        uint64_t stride;
        const void *from = row_source_rows(w->source, row, n, rows, &stride);
        panel_pack(w->type, from, (size_t)stride, (int)n, w->n_in, to + (size_t)i * c->panel_bytes);
    }
    done_with(m, w, row_of_panel(c, first), row_of_panel(c, end));
    uint32_t before = atomic_fetch_add_explicit(&c->n_packed, end - first, memory_order_relaxed);
    if (before + (end - first) == c->n_panels) { /* including bytes that all rows share */
        done_with(m, w, 0, w->n_out);
    }
}

/* Packs the panels that begin in bytes [from, from + SLICE_BYTES) of the packed weights. */
static void pack_slice(const struct backend_model *m, size_t from, unsigned char *rows)
{
    size_t at = 0, end = from + SLICE_BYTES, next;
    for (int32_t i = 0; i < m->plan->n_weights && at < end; i++, at = next) {
        const struct plan_weight *w = &m->plan->weights[i];
        struct cpu_weight *c = &m->weights[i];
        next = at + packed_bytes(w, c);
        if (next <= from) {
            continue;
        }
        if (!is_vector(w, c)) {
            size_t first = at >= from ? 0 : (from - at + c->panel_bytes - 1) / c->panel_bytes;
            size_t past = MIN_OF((end - at + c->panel_bytes - 1) / c->panel_bytes, (size_t)c->n_panels);
            if (first < past) {
                pack_panels(m, w, c, (uint32_t)first, (uint32_t)past, rows, m->packed + at);
            }
        } else if (at >= from) {
            row_source_encode(w->source, 0, 1, m->packed + at);
            done_with(m, w, 0, 1);
        }
    }
}

static void pack_share(void *arg, int thread, int n_threads)
{
    struct pack_job *j = arg;
    struct backend_model *m = j->m;
    size_t n = (m->bytes.weights + SLICE_BYTES - 1) / SLICE_BYTES, i;
    (void)n_threads;
    while (!atomic_load_explicit(&j->is_over, memory_order_relaxed) &&
           (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < n) {
        pack_slice(m, i * SLICE_BYTES, j->rows + (size_t)thread * j->rows_bytes);
        if (thread == 0 && !cpu_report_progress(m, (float)(i + 1) / (float)n)) {
            atomic_store_explicit(&j->is_over, true, memory_order_relaxed);
        }
    }
}

static enum err pack_all(struct backend_model *m, struct err_info *info)
{
    struct pack_job job = {.m = m};
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        job.rows_bytes = MAX_OF(job.rows_bytes, (size_t)m->plan->weights[i].row_bytes * PANEL_ROWS);
    }
    size_t bytes = job.rows_bytes * (size_t)m->cfg.n_threads;
    job.rows = bytes != 0 ? mem_map(bytes, MEM_GENERAL) : NULL;
    TRY_MEM_FOR(bytes == 0 || job.rows != NULL, info, "out of memory for %zu bytes", bytes);
    pool_run(m->pool, pack_share, &job);
    mem_unmap(job.rows, bytes, MEM_GENERAL);
    if (atomic_load(&job.is_over)) {
        return cpu_cancelled(info);
    }
    for (int32_t i = 0; i < m->plan->n_weights; i++) { /* drop pages that reading a neighbor brought back */
        done_with(m, &m->plan->weights[i], 0, m->plan->weights[i].n_out);
    }
    return ERR_OK;
}

enum err cpu_weights_lay_out(struct backend_model *m, struct err_info *info)
{
    m->weights = mem_zalloc_array((size_t)m->plan->n_weights, sizeof *m->weights, MEM_MODEL);
    TRY_MEM_FOR(m->weights != NULL, info, "out of memory for the weight table");
    mark_groups(m);
    return find_sizes(m, info);
}

enum err cpu_weights_pack(struct backend_model *m, struct err_info *info)
{
    TRY(cpu_pack_cache_open(m, info));
    if (m->pack_state == BACKEND_PACK_MAPPED) {
        lay_out(m, cpu_pack_cache_payload(m));
        return ERR_OK;
    }
    m->packed = mem_map(m->bytes.weights, MEM_WEIGHTS);
    TRY_MEM_FOR(m->packed != NULL, info, "out of memory for %zu bytes of packed weights", m->bytes.weights);
    lay_out(m, m->packed);
    TRY(pack_all(m, info));
    return cpu_pack_cache_write(m, info);
}

void cpu_weights_free(struct backend_model *m)
{
    cpu_pack_cache_close(m);
    mem_unmap(m->packed, m->bytes.weights, MEM_WEIGHTS);
    mem_free(m->weights);
}
