/* Loads weights into the device: unpacks them with quant.h and packs them as kernels/weights.clh says. All threads pack
 * into memory that the device reads directly, while it copies the previous round. */
#include "opencl/opencl_internal.h"

#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"

#include <stdatomic.h>
#include <string.h>

_Static_assert(PANEL_U4 == 3 && PANEL_U2_MIN_K == 8 && PANEL_U6_K == 12 && PANEL_T4_BF16 == 15,
               "kernels/weights.clh has the same numbers");

/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Offsets in words of a lane in a group of a quantized kind: codes, high bits, scales, minimums, units; GROUP_WORDS of
 * weights.clh. */
struct group_layout {
    uint32_t n_blocks, high, scales, mins, units, words;
};

static struct group_layout layout_of(enum panel_kind kind)
{
    const struct panel_info *k = panel_info(kind);
    struct group_layout g = {.n_blocks = k->has_unit ? 8 : 2};
    bool is_nibbles = kind == PANEL_U2_MIN_K; /* scale and minimum in one byte */
    uint32_t scale_words = k->has_unit ? (k->block == 16 ? 4 : 2) : k->block == 16 ? 2 : 1;
    g.high = g.n_blocks * (k->bits == 8 ? 8 : k->bits < 4 ? 2 : 4);
    g.scales = g.high + g.n_blocks * (k->bits == 6 ? 2 : k->bits == 5 || k->bits == 3 ? 1 : 0);
    g.mins = g.scales + scale_words;
    g.units = g.mins + (!k->has_min || is_nibbles ? 0 : k->has_unit ? 2 : 1);
    g.words = g.units + (k->has_unit ? 1 : 0);
    return g;
}

/* Block b of a lane in a group, which is packed into zeros. */
struct packer {
    enum panel_kind kind;
    struct group_layout g;
    uint32_t *group;
    uint32_t b, lane;
};

/* Returns word i of the lane, in a part that begins `before` words into the group and is read `step` words at a time. */
static uint32_t *lane_word(const struct packer *to, uint32_t before, uint32_t step, uint32_t i)
{
    return to->group + (size_t)(before + i / step * step) * OPENCL_LANES + (size_t)to->lane * step + i % step;
}

static void put_byte(uint32_t *word, uint32_t byte, uint32_t value) { *word |= (value & 255U) << 8 * byte; }

/* --- packing ------------------------------------------------------------------------------------------------------ */

static void pack_codes(const struct packer *to, const struct quant_block *q)
{
    uint32_t bits = panel_info(to->kind)->bits, b = to->b;
    for (uint32_t in = 0; in < PANEL_BLOCK; in++) {
        uint32_t code = q->codes[in], word = in / 4, byte = in % 4;
        if (bits == 8) {
            put_byte(lane_word(to, 0, 4, 8 * b + word), byte, code - 128);
        } else if (bits < 4) {
            put_byte(lane_word(to, 0, 4, 2 * b + word / 4), byte, (code & 3U) << 2 * (word % 4));
        } else {
            put_byte(lane_word(to, 0, 4, 4 * b + word % 4), byte, (code & 15U) << (word < 4 ? 0 : 4));
        }
        if (bits == 6) {
            put_byte(lane_word(to, to->g.high, 4, 2 * b + word / 4), byte, (code >> 4) << 2 * (word % 4));
        } else if (bits == 5 || bits == 3) {
            put_byte(lane_word(to, to->g.high, to->g.n_blocks == 2 ? 2 : 4, b), byte, (code >> (bits - 1)) << word);
        }
    }
}

static void put_half(const struct packer *to, uint32_t before, uint32_t step, uint32_t i, uint32_t value)
{
    *lane_word(to, before, step, i / 2) |= value << 16 * (i % 2);
}

static void pack_scales(const struct packer *to, const struct quant_block *q)
{
    const struct panel_info *k = panel_info(to->kind);
    const struct group_layout *g = &to->g;
    uint32_t parts = PANEL_BLOCK / k->block;
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t i = to->b * parts + p;
        if (!k->has_unit) {
            put_half(to, g->scales, parts, i,
                     k->has_bf16_scale ? dtype_f32_to_bf16(q->scale[p]) : dtype_f32_to_f16(q->scale[p]));
            if (k->has_min) {
                put_half(to, g->mins, 1, i, dtype_f32_to_f16(q->min[p]));
            }
            continue;
        }
        uint32_t step = (uint8_t)q->step[p], min_step = (uint8_t)q->min_step[p];
        if (to->kind == PANEL_U2_MIN_K) {
            step |= min_step << 4;
        } else if (k->has_min) {
            put_byte(lane_word(to, g->mins, 2, i / 4), i % 4, min_step);
        }
        put_byte(lane_word(to, g->scales, parts == 2 ? 4 : 2, i / 4), i % 4, step);
    }
    if (k->has_unit) {
        *lane_word(to, g->units, 1, 0) = q->unit | (k->has_min ? (uint32_t)q->min_unit << 16 : 0);
    }
}

/* Packs n_rows <= 32 rows of codes into a panel of zeros. */
static void pack_codes_panel(const struct plan_weight *w, enum panel_kind kind, const unsigned char *rows,
                             uint64_t stride, uint32_t n_rows, uint32_t *panel)
{
    const struct quant_ops *ops = quant_ops(w->type);
    struct packer to = {.kind = kind, .g = layout_of(kind)};
    for (; to.lane < n_rows; to.lane++) {
        for (uint32_t b = 0; b < w->n_in / PANEL_BLOCK; b++) {
            struct quant_block q = {.step = {0}};
            to.group = panel + (size_t)(b / to.g.n_blocks) * to.g.words * OPENCL_LANES;
            to.b = b % to.g.n_blocks;
            ops->unpack(rows + to.lane * stride, b, &q);
            pack_codes(&to, &q);
            pack_scales(&to, &q);
        }
    }
}

/* Packs a row of floats, [n_in], into a panel of zeros. */
static void pack_float_row(const float *x, enum panel_kind kind, uint32_t n_in, uint32_t lane, uint32_t *panel)
{
    for (uint32_t k = 0; k < n_in; k++) {
        if (kind == PANEL_F32) {
            memcpy(&panel[((size_t)(k / 4) * OPENCL_LANES + lane) * 4 + k % 4], &x[k], sizeof x[k]);
        } else {
            uint16_t bits = kind == PANEL_F16 ? dtype_f32_to_f16(x[k]) : dtype_f32_to_bf16(x[k]);
            memcpy((uint16_t *)(void *)panel + ((size_t)(k / 8) * OPENCL_LANES + lane) * 8 + k % 8, &bits, sizeof bits);
        }
    }
}

/* --- placing ------------------------------------------------------------------------------------------------------ */

/* Records how a step uses its weights. */
static void find_use(struct backend_model *m, const struct plan_step *s)
{
    const struct plan_operand *o;
    int32_t id;
    for (int i = 0; (o = plan_next_operand(s, &i, &id)) != NULL;) {
        if (plan_is_buf(o)) {
            continue;
        }
        struct opencl_weight *w = &m->weights[id];
        w->n_uses++;
        w->is_vector |= (o->flags & PLAN_VECTOR) != 0;
        w->as_floats |= s->op == PLAN_HEAD_MATMUL;
        if (s->op == PLAN_HEAD_MATMUL || s->op == PLAN_EXPERTS) {
            w->group_rows = (o->flags & PLAN_VECTOR) != 0 ? 0 : plan_group_rows(m->plan, s, o);
        }
    }
}

/* Decides the form of a weight, but not its place. */
static void lay_out(struct opencl_weight *w, const struct plan_weight *of)
{
    const struct quant_ops *ops = quant_ops(of->type);
    w->next = PLAN_NONE;
    if (w->n_uses == 0) {
        return;
    }
    if (w->is_vector) { /* a panel */
        w->n_groups = w->group_rows = w->group_panels = 1;
        w->panel_bytes = of->n_in * sizeof(float);
        return;
    }
    w->kind = w->as_floats && !panel_info(ops->panel)->is_float ? PANEL_F16 : ops->panel;
    w->group_rows = w->group_rows != 0 ? w->group_rows : of->n_out;
    w->n_groups = of->n_out / w->group_rows;
    w->group_panels = (w->group_rows + OPENCL_LANES - 1) / OPENCL_LANES;
    if (ops->table != NULL) {
        unsigned char codes[16];
        for (int i = 0; i < 16; i++) {
            codes[i] = (unsigned char)(ops->table[i] - 128);
        }
        memcpy(&w->table, codes, sizeof codes);
    }
    uint32_t blocks = (of->n_in + PANEL_BLOCK - 1) / PANEL_BLOCK;
    if (panel_info(w->kind)->is_float) {
        w->n_parts = blocks;
        w->panel_bytes = (size_t)blocks * PANEL_BLOCK * OPENCL_LANES * panel_info(w->kind)->bits / 8;
    } else {
        struct group_layout g = layout_of(w->kind);
        w->n_parts = (blocks + g.n_blocks - 1) / g.n_blocks;
        w->panel_bytes = (size_t)w->n_parts * g.words * OPENCL_LANES * sizeof(uint32_t);
    }
}

static uint64_t bytes_of(const struct opencl_weight *w)
{
    return (uint64_t)w->panel_bytes * w->group_panels * w->n_groups; /* fits, as in the file */
}

/* Returns whether the weights a and a + 1 can be adjacent and form one product. Their panels and biases must be
 * contiguous. */
static bool can_join(const struct backend_model *m, const struct plan_step *s, int a)
{
    const struct opencl_weight *w = &m->weights[s->w[a]], *x = &m->weights[s->w[a + 1]];
    plan_weight_id bias = s->bias[a], next_bias = s->bias[a + 1];
    bool have_biases = bias != PLAN_NONE && next_bias != PLAN_NONE && m->weights[bias].n_uses == 1 &&
                       m->weights[next_bias].n_uses == 1;
    return w->n_uses == 1 && x->n_uses == 1 && w->kind == x->kind && w->n_parts == x->n_parts && w->n_groups == 1 &&
           x->n_groups == 1 && w->group_rows % OPENCL_LANES == 0 &&
           memcmp(&w->table, &x->table, sizeof w->table) == 0 &&
           (have_biases || (bias == PLAN_NONE && next_bias == PLAN_NONE)) &&
           bytes_of(w) + bytes_of(x) < OPENCL_MAX_JOINED;
}

static void set_next(struct backend_model *m, plan_weight_id id, plan_weight_id next)
{
    if (id != PLAN_NONE) {
        m->weights[id].next = next;
        m->weights[next].follows_other = true;
    }
}

/* Joins the products for queries, keys and values if possible. */
static void join(struct backend_model *m, const struct plan_step *s)
{
    for (int i = 0; s->op == PLAN_QKV && i < 2 && s->w[i + 1] != PLAN_NONE; i++) {
        if (can_join(m, s, i)) {
            set_next(m, s->w[i], s->w[i + 1]);
            set_next(m, s->bias[i], s->bias[i + 1]);
        }
    }
}

/* Places a weight and those joined to it. */
static enum err place(struct backend_model *m, plan_weight_id first, struct err_info *info)
{
    enum { VECTOR_BYTES = OPENCL_ALIGN * sizeof(float) }; /* padding of vectors */
    uint64_t bytes = 0;
    int32_t at;
    for (plan_weight_id id = first; id != PLAN_NONE; id = m->weights[id].next) {
        m->weights[id].at = (size_t)bytes;
        bytes += bytes_of(&m->weights[id]);
    }
    bytes = m->weights[first].is_vector ? (bytes + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES : bytes;
    TRY(vram_place(m->vram, VRAM_WEIGHTS, bytes, m->plan->weights[first].name, &at, info));
    for (plan_weight_id id = first; id != PLAN_NONE; id = m->weights[id].next) {
        m->weights[id].place = at;
    }
    return ERR_OK;
}

enum err opencl_weights_lay_out(struct backend_model *m, struct err_info *info)
{
    m->weights = mem_zalloc_array((size_t)m->plan->n_weights + 1, sizeof *m->weights, MEM_MODEL);
    TRY_MEM_FOR(m->weights != NULL, info, "out of memory for the table of weights");
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        find_use(m, &m->plan->steps[i]);
    }
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        lay_out(&m->weights[i], &m->plan->weights[i]);
    }
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        join(m, &m->plan->steps[i]);
    }
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        if (m->weights[i].n_uses != 0 && !m->weights[i].follows_other) {
            TRY(place(m, i, info));
        }
    }
    return ERR_OK;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* A buffer that the host writes and the device reads. */
struct stage {
    cl_mem mem;
    unsigned char *at; /* address for the host */
    cl_event sent;     /* OPTIONAL: completes when the device has read the last round */
};

/* Panels [first, first + n) of a weight, or a vector, in a stage. */
struct piece {
    int32_t id;
    uint32_t first, n;
    unsigned char *at;
};

enum {
    N_STAGES = 2,          /* one is packed while the other is copied */
    STAGE_BYTES = 8 << 20, /* enough panels for threads to finish a round at about the same time */
    MAX_PIECES = 64        /* per round */
};

struct loader {
    struct backend_model *m;
    struct stage stages[N_STAGES];
    size_t stage_bytes;
    int32_t id; /* the next panel of a weight */
    uint32_t panel;
    struct piece pieces[MAX_PIECES]; /* of a round; all threads pack them .. */
    uint32_t n_pieces, n_panels;
    atomic_uint next;    /* .. panel by panel: the next free one */
    float *floats;       /* [n_threads][widest] */
    unsigned char *rows; /* [n_threads][rows_bytes]: rows of a panel, for sources that must compute them */
    size_t widest, rows_bytes;
    uint64_t done_bytes, all_bytes;
};

/* Returns the first row of a panel; n_out for the panel after the last. */
static uint32_t row_of_panel(const struct opencl_weight *w, uint32_t panel)
{
    return panel / w->group_panels * w->group_rows + panel % w->group_panels * OPENCL_LANES;
}

static size_t stage_bytes(const struct backend_model *m, uint64_t *all_bytes)
{
    size_t largest = 0;
    *all_bytes = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        largest = MAX_OF(largest, m->weights[i].panel_bytes);
        *all_bytes += bytes_of(&m->weights[i]);
    }
    return MAX_OF(largest, (size_t)MIN_OF((uint64_t)STAGE_BYTES, *all_bytes / (2 * N_STAGES))); /* small models */
}

size_t opencl_weights_staged(const struct backend_model *m)
{
    uint64_t all_bytes;
    return N_STAGES * stage_bytes(m, &all_bytes);
}

static void pack_panel(const struct loader *l, const struct piece *p, uint32_t i, int thread)
{
    const struct plan_weight *of = &l->m->plan->weights[p->id];
    const struct opencl_weight *w = &l->m->weights[p->id];
    const struct row_source_ops *ops = of->source->ops;
    unsigned char *at = p->at + i * w->panel_bytes;
    uint32_t *panel = (uint32_t *)(void *)at;
    if (w->is_vector) {
        ops->read(of->source, 0, 0, of->n_in, (float *)(void *)at);
        return;
    }
    uint32_t row = row_of_panel(w, p->first + i);
    uint32_t n_rows = MIN_OF((uint32_t)OPENCL_LANES, w->group_rows - row % w->group_rows);
    memset(panel, 0, w->panel_bytes);
    if (panel_info(w->kind)->is_float) {
        float *x = l->floats + (size_t)thread * l->widest;
        for (uint32_t lane = 0; lane < n_rows; lane++) {
            ops->read(of->source, row + lane, 0, of->n_in, x);
            pack_float_row(x, w->kind, of->n_in, lane, panel);
        }
    } else {
        uint64_t stride;
        unsigned char *room = l->rows + (size_t)thread * l->rows_bytes;
        const unsigned char *rows = row_source_rows(of->source, row, n_rows, room, &stride);
        pack_codes_panel(of, w->kind, rows, stride, n_rows, panel);
    }
}

static void pack_share(void *arg, int thread, int n_threads)
{
    struct loader *l = arg;
    uint32_t taken;
    (void)n_threads;
    while ((taken = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->n_panels) {
        const struct piece *p = l->pieces;
        for (; taken >= p->n; p++) {
            taken -= p->n;
        }
        pack_panel(l, p, taken, thread);
    }
}

/* Selects the next panels, up to the size of a stage. */
static void choose_round(struct loader *l, unsigned char *at)
{
    size_t left = l->stage_bytes;
    l->n_pieces = l->n_panels = 0;
    for (; l->id < l->m->plan->n_weights; l->id++, l->panel = 0) {
        const struct opencl_weight *w = &l->m->weights[l->id];
        uint32_t rest = w->n_groups * w->group_panels - l->panel;
        if (rest == 0) {
            continue;
        }
        size_t bytes = w->panel_bytes;
        uint32_t n = (uint32_t)MIN_OF((size_t)rest, left / bytes);
        if (n == 0 || l->n_pieces == MAX_PIECES) {
            return;
        }
        l->pieces[l->n_pieces++] = (struct piece){l->id, l->panel, n, at};
        l->panel += n;
        l->n_panels += n;
        at += n * bytes;
        left -= n * bytes;
        if (n < rest) {
            return;
        }
    }
}

/* Enqueues the copies of a round. */
static enum err send(const struct loader *l, struct stage *s, struct err_info *info)
{
    cl_command_queue queue = l->m->device.queue;
    for (uint32_t i = 0; i < l->n_pieces; i++) {
        const struct piece *p = &l->pieces[i];
        const struct opencl_weight *w = &l->m->weights[p->id];
        size_t bytes = w->panel_bytes;
        TRY(ocl_check(clEnqueueWriteBuffer(queue, vram_at(l->m->vram, w->place), CL_FALSE, w->at + p->first * bytes,
                                           p->n * bytes, p->at, 0, NULL, i + 1 == l->n_pieces ? &s->sent : NULL),
                      "clEnqueueWriteBuffer", info));
    }
    return ocl_check(clFlush(queue), "clFlush", info);
}

/* Waits until a stage can be packed again. */
static enum err wait_for(struct stage *s, struct err_info *info)
{
    if (s->sent == NULL) {
        return ERR_OK;
    }
    cl_int code = clWaitForEvents(1, &s->sent);
    clReleaseEvent(s->sent);
    s->sent = NULL;
    return ocl_check(code, "waiting for weights", info);
}

/* Reports that rows [row, end) of the file are read. */
static void done_with(const struct backend_model *m, const struct plan_weight *w, uint32_t row, uint32_t end)
{
    if (m->cfg.weight_done != NULL) {
        w->source->ops->done(w->source, row, end - row, m->cfg.weight_done, m->cfg.weight_done_arg);
    }
}

/* Reports a packed round. */
static enum err end_round(struct loader *l, struct err_info *info)
{
    struct backend_model *m = l->m;
    for (uint32_t i = 0; i < l->n_pieces; i++) {
        const struct piece *p = &l->pieces[i];
        const struct opencl_weight *w = &m->weights[p->id];
        done_with(m, &m->plan->weights[p->id], row_of_panel(w, p->first), row_of_panel(w, p->first + p->n));
        l->done_bytes += p->n * w->panel_bytes;
    }
    float before = program_set_progress(m->programs), part = (float)((double)l->done_bytes / (double)l->all_bytes);
    bool goes_on = m->cfg.progress == NULL || m->cfg.progress(m->cfg.progress_arg, before + (1 - before) * part);
    return goes_on ? ERR_OK : err_set(info, ERR_CANCELLED, NULL, "loading was cancelled");
}

static enum err load_all(struct loader *l, struct pool *pool, struct err_info *info)
{
    struct backend_model *m = l->m;
    for (uint32_t round = 0; l->done_bytes < l->all_bytes; round++) {
        struct stage *s = &l->stages[round % N_STAGES];
        TRY(wait_for(s, info));
        choose_round(l, s->at);
        atomic_store_explicit(&l->next, 0, memory_order_relaxed);
        pool_run(pool, pack_share, l);
        TRY(send(l, s, info));
        TRY(end_round(l, info));
    }
    for (int i = 0; i < N_STAGES; i++) {
        TRY(wait_for(&l->stages[i], info));
    }
    /* pages that reading of adjacent weights brought back, and shared ones */
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        done_with(m, &m->plan->weights[i], 0, m->plan->weights[i].n_out);
    }
    return ERR_OK;
}

static enum err make_stage(const struct loader *l, struct stage *s, struct err_info *info)
{
    const struct device *d = &l->m->device;
    cl_int code;
    s->mem = clCreateBuffer(d->context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_READ_ONLY, l->stage_bytes, NULL, &code);
    TRY(ocl_check(code, "clCreateBuffer", info));
    s->at = clEnqueueMapBuffer(d->queue, s->mem, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, l->stage_bytes, 0, NULL,
                               NULL, &code);
    return ocl_check(code, "clEnqueueMapBuffer", info);
}

/* Waits for pending copies and frees the stages. */
static enum err free_stages(struct loader *l, enum err err, struct err_info *info)
{
    cl_command_queue queue = l->m->device.queue;
    for (int i = 0; i < N_STAGES; i++) {
        if (l->stages[i].at != NULL) {
            (void)clEnqueueUnmapMemObject(queue, l->stages[i].mem, l->stages[i].at, 0, NULL, NULL);
        }
    }
    cl_int code = clFinish(queue);
    for (int i = 0; i < N_STAGES; i++) {
        if (l->stages[i].sent != NULL) {
            clReleaseEvent(l->stages[i].sent);
        }
        if (l->stages[i].mem != NULL) {
            clReleaseMemObject(l->stages[i].mem);
        }
    }
    return err != ERR_OK ? err : ocl_check(code, "clFinish", info);
}

/* Allocates memory for each thread, for the weights that must be packed. */
static enum err make_room(struct loader *l, int n_threads, struct err_info *info)
{
    for (int32_t i = 0; i < l->m->plan->n_weights; i++) {
        const struct plan_weight *of = &l->m->plan->weights[i];
        const struct opencl_weight *w = &l->m->weights[i];
        if (w->n_uses == 0 || w->is_vector) {
            continue;
        }
        if (panel_info(w->kind)->is_float) {
            l->widest = MAX_OF(l->widest, (size_t)of->n_in);
        } else {
            l->rows_bytes = MAX_OF(l->rows_bytes, (size_t)of->row_bytes * OPENCL_LANES);
        }
    }
    l->floats = mem_zalloc_array((size_t)n_threads, l->widest * sizeof *l->floats, MEM_SCRATCH);
    l->rows = mem_zalloc_array((size_t)n_threads, l->rows_bytes, MEM_SCRATCH);
    TRY_MEM_FOR(l->floats != NULL && l->rows != NULL, info, "out of memory for packing weights");
    return ERR_OK;
}

enum err opencl_weights_load(struct backend_model *m, struct err_info *info)
{
    struct loader l = {.m = m};
    struct pool *pool = NULL;
    l.stage_bytes = stage_bytes(m, &l.all_bytes);
    if (l.all_bytes == 0) {
        return ERR_OK;
    }
    enum err err = pool_new(m->cfg.n_threads, &pool, info);
    err = err == ERR_OK ? make_room(&l, m->cfg.n_threads, info) : err;
    for (int i = 0; i < N_STAGES && err == ERR_OK; i++) {
        err = make_stage(&l, &l.stages[i], info);
    }
    err = err == ERR_OK ? load_all(&l, pool, info) : err;
    err = free_stages(&l, err, info);
    pool_free(&pool);
    mem_free(l.floats);
    mem_free(l.rows);
    return err;
}
