/* Packing weights into panels at load: in parallel, slice by slice, telling the owner of the file which bytes will not
 * be read again, so that no weight is ever there twice but for a slice a thread. All packed weights share one mapping,
 * so that huge pages can cover them; cpu_pack_cache.c may map them from a file instead. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/ck.h"
#include "engine/base/mem.h"
#include "engine/quant/quant.h"

#include <string.h>

enum {
    ALIGN = 64,
    MAX_BLOCK = 256,       /* elements of the largest block of a weight type */
    SLICE_BYTES = 2 << 20, /* packed by one thread, which so clears the huge page it fills: a millisecond of work */
};

static bool takes_panels(enum plan_op op) { return op == PLAN_MATMUL || op == PLAN_EXPERTS || op == PLAN_HEAD_MATMUL; }

/* Rows that must not share a panel with others, so that the outputs of a head, or of an expert, are whole
 * panels. */
static void mark_groups(struct backend_model *m)
{
    const struct plan *p = m->plan;
    for (int32_t i = 0; i < p->n_weights; i++) {
        m->weights[i].group_rows = p->weights[i].n_out;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        for (int k = 0; k < 3 && s->op == PLAN_MATMUL && s->epilogue == PLAN_QKV && s->w[k] != PLAN_NONE; k++) {
            m->weights[s->w[k]].group_rows = plan_kv_of(p, s->layer).head_dim;
        }
        for (int k = 0; k < 3 && s->op == PLAN_EXPERTS; k++) {
            m->weights[s->w[k]].group_rows = p->weights[s->w[k]].n_out / p->moe.n_experts;
        }
        for (int k = 0; k < 3 && takes_panels(s->op); k++) {
            if (s->w[k] != PLAN_NONE) {
                m->weights[s->w[k]].is_multiplied = true;
            }
        }
        if (s->op == PLAN_HEAD_MATMUL) {
            m->weights[s->w[0]].group_rows = p->weights[s->w[0]].n_out / p->n_heads;
        }
    }
}

/* True when the weight is read as a plain f32 vector (a norm or a bias). */
static bool is_vector(const struct plan_weight *w, const struct cpu_weight *c)
{
    return w->n_out == 1 && w->type == DTYPE_F32 && !c->is_multiplied;
}

/* The type that is packed: transposed, the blocks of a quantised row lie across. */
static enum dtype packed_type(const struct plan_weight *w)
{
    bool is_float = w->type == DTYPE_F32 || w->type == DTYPE_F16 || w->type == DTYPE_BF16;
    return w->is_transposed && !is_float ? DTYPE_F16 : w->type;
}

static size_t packed_bytes(const struct plan_weight *w, const struct cpu_weight *c)
{
    size_t bytes = is_vector(w, c) ? w->n_in * sizeof(float) : c->panel_bytes * c->n_panels;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static enum err plan_sizes(struct backend_model *m, struct err_info *info)
{
    uint64_t total = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        struct cpu_weight *c = &m->weights[i];
        const struct quant_ops *ops = quant_ops(w->type);
        if (ops == NULL) {
            return err_set(info, ERR_UNSUPPORTED_TYPE, w->name, "%s: weights of type %s cannot be executed", w->name,
                           dtype_info(w->type)->name);
        }
        c->n_out = w->n_out;
        c->n_in = w->n_in;
        c->kind = quant_ops(packed_type(w))->panel;
        c->group_panels = (c->group_rows + PANEL_ROWS - 1) / PANEL_ROWS;
        c->n_panels = c->group_panels * (w->n_out / c->group_rows);
        c->panel_bytes = panel_bytes(c->kind, w->n_in);
        uint64_t bytes = is_vector(w, c) ? (uint64_t)w->n_in * sizeof(float) : (uint64_t)c->panel_bytes * c->n_panels;
        bool ok = ck_align(bytes, ALIGN, &bytes) && ck_add(total, bytes, &total);
        if (!ok) {
            return err_set(info, ERR_NOMEM, w->name, "the packed weights do not fit in memory");
        }
    }
    m->packed_bytes = (size_t)total;
    return ERR_OK;
}

/* Points every weight at its place in `base`. */
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

/* The first output row of a panel; n_out for the panel behind the last. */
static uint32_t row_of_panel(const struct cpu_weight *c, uint32_t panel)
{
    return panel / c->group_panels * c->group_rows + panel % c->group_panels * PANEL_ROWS;
}

/* Tells that the file bytes of rows [row, end) are read. */
static void done_with(const struct backend_model *m, const struct plan_weight *w, uint32_t row, uint32_t end)
{
    if (w->source != NULL && m->cfg.weight_done != NULL && row < end) {
        w->source->ops->done(w->source, w->source_row + row, end - row, m->cfg.weight_done, m->cfg.weight_done_arg);
        return;
    }
    while (m->cfg.weight_done != NULL && row < end && !w->is_transposed) {
        uint32_t next = w->pieces != NULL ? MIN_OF(end, (row / w->piece_rows + 1) * w->piece_rows) : end;
        m->cfg.weight_done(m->cfg.weight_done_arg, plan_weight_row(w, row), (next - row) * w->row_bytes);
        row = next;
    }
}

/* Columns [column, column + n) of a transposed piece as rows of `type`, row_bytes apart: whole blocks are dequantised,
 * so that those of 256 elements are 16 times, which only old files of latent attention take. */
static void turn(const struct plan_weight *w, const unsigned char *piece, uint32_t column, uint32_t n, enum dtype type,
                 size_t row_bytes, unsigned char *out)
{
    const struct dtype_info *info = dtype_info(w->type);
    uint32_t block = info->block_elems, first = column / block, last = (column + n - 1) / block;
    float values[PANEL_ROWS + 2 * MAX_BLOCK];
    for (uint32_t k = 0; k < w->n_in; k++) {
        const unsigned char *from = piece + k * w->row_bytes + (size_t)first * info->block_bytes;
        quant_ops(w->type)->dequantize(from, (size_t)(last - first + 1) * block, values);
        const float *v = values + column - first * block;
        for (uint32_t i = 0; i < n; i++) {
            unsigned char *to = out + i * row_bytes + k * (size_t)dtype_info(type)->block_bytes;
            uint16_t half = type == DTYPE_F16 ? dtype_f32_to_f16(v[i]) : dtype_f32_to_bf16(v[i]);
            memcpy(to, type == DTYPE_F32 ? (const void *)&v[i] : &half, dtype_info(type)->block_bytes);
        }
    }
}

static void pack_transposed(const struct plan_weight *w, const struct cpu_weight *c, uint32_t panel, uint32_t n,
                            unsigned char *to)
{
    _Alignas(ALIGN) unsigned char rows[PANEL_ROWS * PLAN_MAX_HEAD * sizeof(float)];
    enum dtype type = packed_type(w);
    size_t row_bytes = w->n_in * (size_t)dtype_info(type)->block_bytes;
    turn(w, plan_weight_row(w, row_of_panel(c, panel)), panel % c->group_panels * PANEL_ROWS, n, type, row_bytes, rows);
    panel_pack(type, rows, row_bytes, (int)n, w->n_in, to);
}

bool cpu_goes_on(const struct backend_model *m, float fraction)
{
    return m->cfg.progress == NULL || m->cfg.progress(m->cfg.progress_arg, fraction);
}

enum err cpu_given_up(struct err_info *info) { return err_set(info, ERR_CANCELLED, NULL, "loading was given up"); }

struct pack_job {
    struct backend_model *m;
    atomic_size_t next;  /* slice that nobody has taken */
    atomic_bool is_over; /* given up */
    unsigned char *rows; /* [n_threads][rows_bytes] for the rows of a panel that a source makes, or that lie apart */
    size_t rows_bytes;
};

/* Do rows [row, row + n) lie one behind the other? */
static bool is_together(const struct plan_weight *w, uint32_t row, uint32_t n)
{
    return w->source == NULL && (w->pieces == NULL || row / w->piece_rows == (row + n - 1) / w->piece_rows);
}

static void gather_rows(const struct plan_weight *w, uint32_t row, uint32_t n, unsigned char *out)
{
    if (w->source != NULL) {
        w->source->ops->encode(w->source, w->source_row + row, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(out + i * w->row_bytes, plan_weight_row(w, row + i), (size_t)w->row_bytes);
    }
}

/* Packs panels [first, end) of a weight whose packed form begins at `to`. rows: for those of a panel, where a
 * source makes them or they lie apart. */
static void pack_panels(const struct backend_model *m, const struct plan_weight *w, struct cpu_weight *c,
                        uint32_t first, uint32_t end, unsigned char *rows, unsigned char *to)
{
    for (uint32_t i = first; i < end; i++) {
        uint32_t row = row_of_panel(c, i), left = c->group_rows - i % c->group_panels * PANEL_ROWS;
        uint32_t n = MIN_OF(left, (uint32_t)PANEL_ROWS);
        if (w->is_transposed) {
            pack_transposed(w, c, i, n, to + (size_t)i * c->panel_bytes);
            continue;
        }
        bool is_ready = is_together(w, row, n);
        if (!is_ready) {
            gather_rows(w, row, n, rows);
        }
        panel_pack(w->type, is_ready ? plan_weight_row(w, row) : rows, w->row_bytes, (int)n, w->n_in,
                   to + (size_t)i * c->panel_bytes);
    }
    done_with(m, w, row_of_panel(c, first), row_of_panel(c, end));
    uint32_t before = atomic_fetch_add_explicit(&c->n_packed, end - first, memory_order_relaxed);
    if (w->source != NULL && before + (end - first) == c->n_panels) { /* also what all rows share */
        done_with(m, w, 0, w->n_out);
    }
}

/* Packs whatever begins in bytes [from, from + SLICE_BYTES) of the packed weights. */
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
            size_t behind = MIN_OF((end - at + c->panel_bytes - 1) / c->panel_bytes, (size_t)c->n_panels);
            if (first < behind) {
                pack_panels(m, w, c, (uint32_t)first, (uint32_t)behind, rows, m->packed + at);
            }
        } else if (at >= from) {
            memcpy(m->packed + at, w->data, w->n_in * sizeof(float));
            done_with(m, w, 0, 1);
        }
    }
}

static void pack_share(void *arg, int thread, int n_threads)
{
    struct pack_job *j = arg;
    struct backend_model *m = j->m;
    size_t n = (m->packed_bytes + SLICE_BYTES - 1) / SLICE_BYTES, i;
    (void)n_threads;
    while (!atomic_load_explicit(&j->is_over, memory_order_relaxed) &&
           (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < n) {
        pack_slice(m, i * SLICE_BYTES, j->rows + (size_t)thread * j->rows_bytes);
        if (thread == 0 && !cpu_goes_on(m, (float)(i + 1) / (float)n)) {
            atomic_store_explicit(&j->is_over, true, memory_order_relaxed);
        }
    }
}

static enum err pack_all(struct backend_model *m, struct err_info *info)
{
    struct pack_job job = {.m = m};
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        bool needs_room = w->source != NULL || w->pieces != NULL;
        job.rows_bytes = needs_room ? MAX_OF(job.rows_bytes, w->row_bytes * PANEL_ROWS) : job.rows_bytes;
    }
    size_t bytes = job.rows_bytes * (size_t)m->cfg.n_threads;
    job.rows = bytes != 0 ? mem_map(bytes, MEM_GENERAL) : NULL;
    if (bytes != 0 && job.rows == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for %zu bytes", bytes);
    }
    pool_run(m->pool, pack_share, &job);
    mem_unmap(job.rows, bytes, MEM_GENERAL);
    if (atomic_load(&job.is_over)) {
        return cpu_given_up(info);
    }
    for (int32_t i = 0; i < m->plan->n_weights; i++) { /* pages that a neighbour's reading brought back */
        done_with(m, &m->plan->weights[i], 0, m->plan->weights[i].n_out);
    }
    return ERR_OK;
}

enum err cpu_weights_pack(struct backend_model *m, struct err_info *info)
{
    m->weights = mem_zalloc_array((size_t)m->plan->n_weights, sizeof *m->weights, MEM_MODEL);
    if (m->weights == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the weight table");
    }
    mark_groups(m);
    TRY(plan_sizes(m, info));
    if (m->cfg.measures) {
        return ERR_OK;
    }
    TRY(cpu_pack_cache_open(m, info));
    if (m->pack_state == BACKEND_PACK_MAPPED) {
        lay_out(m, cpu_pack_cache_payload(m));
        return ERR_OK;
    }
    m->packed = mem_map(m->packed_bytes, MEM_WEIGHTS);
    if (m->packed == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for %zu bytes of packed weights", m->packed_bytes);
    }
    lay_out(m, m->packed);
    TRY(pack_all(m, info));
    return cpu_pack_cache_write(m, info);
}

void cpu_weights_free(struct backend_model *m)
{
    cpu_pack_cache_close(m);
    mem_unmap(m->packed, m->packed_bytes, MEM_WEIGHTS);
    mem_free(m->weights);
}
