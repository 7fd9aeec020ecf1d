/* Packs weights into panels, in parallel, slice by slice. It reports file bytes that will not be read again, so no
 * weight is in memory twice, except one slice per thread. All packed weights share one mapping, so that huge pages can
 * cover them; cpu_pack_cache.c can map them from a file instead. Large models are packed after open, between batches;
 * until then a batch packs the panels that it reads, tile by tile, into memory that stays in the cache. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/ck.h"
#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "engine/base/mem.h"
#include "engine/quant/panel_pack.h"
#include "engine/quant/quant.h"

#include <string.h>

enum {
    ALIGN = 64,
    /* A slice is packed by one thread, which also clears the huge page that it fills: a millisecond of work. Small
     * models have smaller slices, so that threads have equal shares. */
    SLICE_BYTES = 2 << 20,
    MIN_SLICES = 64,
    /* Slices whose file pages are read ahead: 64 MiB keep a fast disk busy while threads pack. */
    SLICES_AHEAD = 32,
    MISSING_PART = 16,     /* up to this part of a file that is in memory can have been evicted */
    SLICES_PER_THREAD = 2, /* of a call that packs between batches; a request waits for it */
};

#define NS_PER_BYTE 1 /* of packing on a slow machine */

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
    m->slice_bytes = MIN_OF((size_t)SLICE_BYTES, cpu_align_up((size_t)total / MIN_SLICES + 1));
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
    size_t end;          /* slice after the last one to pack */
    bool reports;        /* progress */
    bool reads_ahead;    /* the file can be on disk */
    atomic_bool is_over; /* cancelled */
    unsigned char *rows; /* [n_threads][rows_bytes] rows of a panel */
    size_t rows_bytes;
};

/* Packs panel i of a weight into `to`. rows: memory for a copy of its rows. Packing reads 16 rows alternately, which is
 * slower from memory than reading them in sequence first. */
static void pack_panel(const struct plan_weight *w, const struct cpu_weight *c, uint32_t i, unsigned char *rows,
                       unsigned char *to)
{
    uint32_t row = row_of_panel(c, i), left = c->group_rows - i % c->group_panels * PANEL_ROWS;
    uint32_t n = MIN_OF(left, (uint32_t)PANEL_ROWS);
    row_source_encode(w->source, row, n, rows);
    panel_pack(w->type, rows, (size_t)w->row_bytes, (int)n, w->n_in, to);
}

/* Packs panels [first, end) of a weight whose packed form begins at `to`. rows: as in pack_panel(). */
static void pack_panels(const struct backend_model *m, const struct plan_weight *w, struct cpu_weight *c,
                        uint32_t first, uint32_t end, unsigned char *rows, unsigned char *to)
{
    for (uint32_t i = first; i < end; i++) {
        pack_panel(w, c, i, rows, to + (size_t)i * c->panel_bytes);
    }
    done_with(m, w, row_of_panel(c, first), row_of_panel(c, end));
    uint32_t before = atomic_fetch_add_explicit(&c->n_packed, end - first, memory_order_relaxed);
    if (before + (end - first) == c->n_panels) { /* including bytes that all rows share */
        done_with(m, w, 0, w->n_out);
    }
}

/* Panels [first, past) of a weight whose packed form begins at `at`; of a vector none, or one that begins there. */
struct part {
    int32_t weight;
    size_t at, next; /* next: where the packed form of the next weight begins */
    uint32_t first, past;
};

/* Finds the next weight with panels that begin in the slice at `from`. *p begins with weight -1 and zeros. */
static bool next_part(const struct backend_model *m, size_t from, struct part *p)
{
    size_t end = from + m->slice_bytes;
    while (++p->weight < m->plan->n_weights && p->next < end) {
        const struct plan_weight *w = &m->plan->weights[p->weight];
        const struct cpu_weight *c = &m->weights[p->weight];
        p->at = p->next;
        p->next += packed_bytes(w, c);
        size_t bytes = is_vector(w, c) ? p->next - p->at : c->panel_bytes, n = is_vector(w, c) ? 1 : c->n_panels;
        size_t first = p->at >= from ? 0 : (from - p->at + bytes - 1) / bytes;
        p->first = (uint32_t)MIN_OF(first, n);
        p->past = (uint32_t)MIN_OF((end - p->at + bytes - 1) / bytes, n);
        if (p->first < p->past) {
            return true;
        }
    }
    return false;
}

/* Packs the panels that begin in bytes [from, from + slice_bytes) of the packed weights. */
static void pack_slice(const struct backend_model *m, size_t from, unsigned char *rows)
{
    for (struct part p = {.weight = -1}; next_part(m, from, &p);) {
        const struct plan_weight *w = &m->plan->weights[p.weight];
        struct cpu_weight *c = &m->weights[p.weight];
        if (!is_vector(w, c)) {
            pack_panels(m, w, c, p.first, p.past, rows, m->packed + p.at);
        } else {
            row_source_encode(w->source, 0, 1, m->packed + p.at);
            done_with(m, w, 0, 1);
        }
    }
}

static void want(void *arg, const void *data, uint64_t n)
{
    (void)arg;
    io_want(data, (size_t)n);
}

/* Makes the system read the rows of a slice. */
static void want_slice(const struct backend_model *m, size_t from)
{
    for (struct part p = {.weight = -1}; next_part(m, from, &p);) {
        const struct plan_weight *w = &m->plan->weights[p.weight];
        const struct cpu_weight *c = &m->weights[p.weight];
        uint32_t row = is_vector(w, c) ? 0 : row_of_panel(c, p.first);
        uint32_t end = is_vector(w, c) ? 1 : row_of_panel(c, p.past);
        w->source->ops->done(w->source, row, end - row, want, NULL);
    }
}

static void pack_share(void *arg, int thread, int n_threads)
{
    struct pack_job *j = arg;
    struct backend_model *m = j->m;
    size_t i;
    (void)n_threads;
    while (!atomic_load_explicit(&j->is_over, memory_order_relaxed) &&
           (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->end) {
        if (j->reads_ahead && i + SLICES_AHEAD < j->end) {
            want_slice(m, (i + SLICES_AHEAD) * m->slice_bytes);
        }
        pack_slice(m, i * m->slice_bytes, j->rows + (size_t)thread * j->rows_bytes);
        if (thread == 0 && j->reports && !cpu_report_progress(m, (float)(i + 1) / (float)j->end)) {
            atomic_store_explicit(&j->is_over, true, memory_order_relaxed);
        }
    }
}

static size_t n_slices(const struct backend_model *m)
{
    return (m->bytes.weights + m->slice_bytes - 1) / m->slice_bytes;
}

/* Returns the bytes of the widest rows of a panel. */
static size_t widest_rows(const struct plan *p)
{
    size_t widest = 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        widest = MAX_OF(widest, (size_t)p->weights[i].row_bytes * PANEL_ROWS);
    }
    return widest;
}

/* Drops file pages that reading a neighbor brought back. */
static void drop_all(const struct backend_model *m)
{
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        done_with(m, &m->plan->weights[i], 0, m->plan->weights[i].n_out);
    }
}

static enum err pack_all(struct backend_model *m, struct err_info *info)
{
    struct pack_job job = {
        .m = m, .end = n_slices(m), .reports = true, .reads_ahead = true, .rows_bytes = widest_rows(m->plan)};
    size_t bytes = job.rows_bytes * (size_t)m->cfg.n_threads;
    job.rows = bytes != 0 ? mem_map(bytes, MEM_GENERAL) : NULL;
    TRY_MEM_FOR(bytes == 0 || job.rows != NULL, info, "out of memory for %zu bytes", bytes);
    pool_run(m->pool, pack_share, &job);
    mem_unmap(job.rows, bytes, MEM_GENERAL);
    if (atomic_load(&job.is_over)) {
        return cpu_cancelled(info);
    }
    drop_all(m);
    return ERR_OK;
}

/* --- packing between batches ------------------------------------------------------------------------------------ */

/* Returns the address of a row if the file stores it as it is, so that packing it repeatedly is cheap; else NULL. */
static const volatile unsigned char *row_in_place(const struct plan_weight *w, uint32_t row)
{
    uint64_t stride;
    const struct row_part part = {row, 1, 0, w->n_in};
    return w->source->ops->at != NULL ? w->source->ops->at(w->source, &part, &stride) : NULL;
}

/* Returns whether all matrices are stored as they are, and in memory. Otherwise the first batches would take long: open
 * reads a file from disk faster, and reports its progress. Touches the middle row of each matrix. */
static bool is_at_hand(const struct backend_model *m)
{
    uint64_t read_bytes = machine_disk_bytes();
    int n_missing = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        const volatile unsigned char *row = is_vector(w, &m->weights[i]) ? NULL : row_in_place(w, w->n_out / 2);
        if (row != NULL) {
            (void)*row;
        } else if (!is_vector(w, &m->weights[i])) {
            return false;
        }
        uint64_t now = machine_disk_bytes();
        n_missing += now != read_bytes;
        if (n_missing > m->plan->n_weights / MISSING_PART) {
            return false;
        }
        read_bytes = now;
    }
    return true;
}

/* Returns whether to pack after open. A cache file is written by open, which has all packed weights then. */
static bool is_for_later(const struct backend_model *m)
{
    return m->cfg.eager_bytes != 0 && m->bytes.weights > m->cfg.eager_bytes && m->pack_state == BACKEND_PACK_OFF &&
           is_at_hand(m);
}

/* Returns the bytes of the largest tile of panels: as many as cpu_tile_panels, or those of a head. */
static size_t largest_tile(const struct backend_model *m)
{
    size_t largest = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct cpu_weight *c = &m->weights[i];
        uint32_t n = MIN_OF(c->group_panels, (uint32_t)(CPU_TILE_COLUMNS / PANEL_ROWS));
        largest = MAX_OF(largest, c->panel_bytes * MAX_OF(n, cpu_tile_panels(c)));
    }
    return cpu_align_up(largest);
}

/* Packs only the vectors, which kernels read from many places. */
static enum err begin_later(struct backend_model *m, struct err_info *info)
{
    m->later.tile_bytes = largest_tile(m);
    m->later.rows_bytes = cpu_align_up(widest_rows(m->plan));
    m->later.memory_bytes = (m->later.tile_bytes + m->later.rows_bytes) * (size_t)m->cfg.n_threads;
    m->later.memory = mem_map(m->later.memory_bytes, MEM_GENERAL);
    TRY_MEM_FOR(m->later.memory != NULL, info, "out of memory for %zu bytes", m->later.memory_bytes);
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        if (is_vector(w, &m->weights[i])) {
            row_source_encode(w->source, 0, 1, m->packed + ((const unsigned char *)m->weights[i].vector - m->packed));
        }
    }
    return cpu_report_progress(m, 1.0f) ? ERR_OK : cpu_cancelled(info);
}

static void end_later(struct backend_model *m)
{
    mem_unmap(m->later.memory, m->later.memory_bytes, MEM_GENERAL);
    m->later.memory = NULL;
}

/* Packs a few slices per thread, which takes some milliseconds. */
static void pack_some(struct backend_model *m)
{
    size_t end = MIN_OF(n_slices(m), m->later.n_packed + SLICES_PER_THREAD * (size_t)m->cfg.n_threads);
    struct pack_job job = {
        .m = m, .next = m->later.n_packed, .end = end, .rows = m->later.memory, .rows_bytes = m->later.rows_bytes};
    pool_run(m->pool, pack_share, &job);
    m->later.n_packed = end;
    if (end == n_slices(m)) {
        drop_all(m);
        end_later(m);
    }
}

/* Returns whether packing can read the file. Reading a truncated one would kill the process (SIGBUS). */
static bool has_file(const struct backend_model *m)
{
    return m->cfg.has_file == NULL || m->cfg.has_file(m->cfg.has_file_arg);
}

bool cpu_weights_idle(struct backend_model *m)
{
    bool can_pack = cpu_packs_later(m) && has_file(m);
    if (can_pack) {
        pool_pin_owner(m->pool);
        pack_some(m);
    }
    return can_pack && cpu_packs_later(m);
}

enum err cpu_weights_advance(struct backend_model *m, int32_t n_rows, struct err_info *info)
{
    if (cpu_packs_later(m) && !has_file(m)) {
        return err_set(info, ERR_IO, NULL, "the model's file has become shorter before all weights were read from it");
    }
    bool packs_all = n_rows > (int32_t)CPU_TILE_ROWS; /* else it would pack each panel several times */
    uint64_t until = clock_now_ns() + m->later.batch_ns;
    while (cpu_packs_later(m) && (packs_all || clock_now_ns() < until)) {
        pack_some(m);
    }
    return ERR_OK;
}

uint64_t cpu_weights_behind_ns(const struct backend_model *m)
{
    return cpu_packs_later(m) ? (n_slices(m) - m->later.n_packed) * m->slice_bytes * NS_PER_BYTE : 0;
}

const unsigned char *cpu_panels(const struct backend_model *m, const struct cpu_weight *w, uint32_t panel,
                                uint32_t n_panels, int thread)
{
    const unsigned char *at = w->panels + (size_t)panel * w->panel_bytes;
    if (!cpu_packs_later(m)) {
        return at;
    }
    size_t last = (size_t)(at - m->packed) + (n_panels - 1) * w->panel_bytes; /* a slice has panels that begin in it */
    if (last < m->later.n_packed * m->slice_bytes) {
        return at;
    }
    unsigned char *rows = m->later.memory + (size_t)thread * m->later.rows_bytes;
    unsigned char *tile =
        m->later.memory + (size_t)m->cfg.n_threads * m->later.rows_bytes + (size_t)thread * m->later.tile_bytes;
    for (uint32_t i = 0; i < n_panels; i++) {
        pack_panel(&m->plan->weights[w - m->weights], w, panel + i, rows, tile + i * w->panel_bytes);
    }
    return tile;
}

/* --- all weights ------------------------------------------------------------------------------------------------ */

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
    if (is_for_later(m)) {
        return begin_later(m, info);
    }
    TRY(pack_all(m, info));
    return cpu_pack_cache_write(m, info);
}

void cpu_weights_free(struct backend_model *m)
{
    cpu_pack_cache_close(m);
    end_later(m);
    mem_unmap(m->packed, m->bytes.weights, MEM_WEIGHTS);
    mem_free(m->weights);
}
