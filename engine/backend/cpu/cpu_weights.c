/* Packing weights into panels at load: in parallel, weight by weight, telling the owner of the file which bytes will
 * not be read again. All packed weights share one mapping, so that huge pages can cover them. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/ck.h"
#include "engine/base/mem.h"
#include "engine/kernels/quant.h"

#include <string.h>

enum { ALIGN = 64 };

/* Rows that must not share a panel with others, so that a head's outputs are whole panels. */
static void mark_groups(struct backend_model *m)
{
    const struct plan *p = m->plan;
    for (int32_t i = 0; i < p->n_weights; i++) {
        m->weights[i].group_rows = p->weights[i].n_out;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        for (int k = 0; k < 3 && s->op == PLAN_MATMUL && s->epilogue == PLAN_QKV; k++) {
            m->weights[s->w[k]].group_rows = p->head_dim;
        }
    }
}

/* True when the weight is read as a plain f32 vector (a norm or a bias). */
static bool is_vector(const struct plan_weight *w) { return w->n_out == 1 && w->type == DTYPE_F32; }

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
        c->kind = ops->panel;
        c->group_panels = (c->group_rows + PANEL_ROWS - 1) / PANEL_ROWS;
        c->n_panels = c->group_panels * (w->n_out / c->group_rows);
        c->panel_bytes = panel_bytes(ops->panel, w->n_in);
        uint64_t bytes = is_vector(w) ? (uint64_t)w->n_in * sizeof(float) : (uint64_t)c->panel_bytes * c->n_panels;
        bool ok = ck_align(bytes, ALIGN, &bytes) && ck_add(total, bytes, &total);
        if (!ok) {
            return err_set(info, ERR_NOMEM, w->name, "the packed weights do not fit in memory");
        }
    }
    m->packed_bytes = (size_t)total;
    return ERR_OK;
}

struct pack_job {
    const struct plan_weight *from;
    struct cpu_weight *to;
    unsigned char *panels;
};

static void pack_share(void *arg, int thread, int n_threads)
{
    const struct pack_job *j = arg;
    int from, to;
    pool_share((int)j->to->n_panels, thread, n_threads, &from, &to);
    for (int i = from; i < to; i++) {
        uint32_t group = (uint32_t)i / j->to->group_panels, part = (uint32_t)i % j->to->group_panels;
        uint32_t row = group * j->to->group_rows + part * PANEL_ROWS;
        uint32_t left = j->to->group_rows - part * PANEL_ROWS;
        const char *src = (const char *)j->from->data + (size_t)row * j->from->row_bytes;
        panel_pack(j->from->type, src, j->from->row_bytes, (int)MIN_OF(left, (uint32_t)PANEL_ROWS), j->from->n_in,
                   j->panels + (size_t)i * j->to->panel_bytes);
    }
}

static void pack_all(struct backend_model *m)
{
    size_t at = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        struct cpu_weight *c = &m->weights[i];
        size_t bytes;
        if (is_vector(w)) {
            c->vector = (float *)(m->packed + at);
            bytes = w->n_in * sizeof(float);
            memcpy(c->vector, w->data, bytes);
        } else {
            struct pack_job job = {.from = w, .to = c, .panels = m->packed + at};
            pool_run(m->pool, pack_share, &job);
            c->panels = job.panels;
            bytes = c->panel_bytes * c->n_panels;
        }
        at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (m->cfg.weight_done != NULL) {
            m->cfg.weight_done(m->cfg.weight_done_arg, w->file_offset, w->row_bytes * w->n_out);
        }
        if (m->cfg.progress != NULL) {
            m->cfg.progress(m->cfg.progress_arg, (float)at / (float)m->packed_bytes);
        }
    }
}

enum err cpu_weights_pack(struct backend_model *m, struct err_info *info)
{
    m->weights = mem_zalloc_array((size_t)m->plan->n_weights, sizeof *m->weights, MEM_MODEL);
    if (m->weights == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the weight table");
    }
    mark_groups(m);
    TRY(plan_sizes(m, info));
    m->packed = mem_map(m->packed_bytes, MEM_WEIGHTS);
    if (m->packed == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for %zu bytes of packed weights", m->packed_bytes);
    }
    pack_all(m);
    return ERR_OK;
}

void cpu_weights_free(struct backend_model *m)
{
    mem_unmap(m->packed, m->packed_bytes, MEM_WEIGHTS);
    mem_free(m->weights);
}
