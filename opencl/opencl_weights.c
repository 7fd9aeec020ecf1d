/* Weights on their way to the device: taken apart by quant.h and put together as kernels/weights.clh says. */
#include "opencl/opencl_internal.h"

#include "engine/base/mem.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"

#include <string.h>

_Static_assert(PANEL_U4 == 3 && PANEL_U2_MIN_K == 8 && PANEL_U6_K == 12 && PANEL_T4_BF16 == 15,
               "kernels/weights.clh has the same numbers");

/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Words of a lane in a group of a quantised kind: codes, high bits, scales, minimums, units; GROUP_WORDS of weights.clh.
 */
struct group_layout {
    uint32_t n_blocks, high, scales, mins, units, words;
};

static struct group_layout layout_of(enum panel_kind kind)
{
    const struct panel_info *k = panel_info(kind);
    struct group_layout g = {.n_blocks = k->has_unit ? 8 : 2};
    bool is_nibbles = kind == PANEL_U2_MIN_K; /* scale and minimum in a byte */
    uint32_t scale_words = k->has_unit ? (k->block == 16 ? 4 : 2) : k->block == 16 ? 2 : 1;
    g.high = g.n_blocks * (k->bits == 8 ? 8 : k->bits < 4 ? 2 : 4);
    g.scales = g.high + g.n_blocks * (k->bits == 6 ? 2 : k->bits == 5 || k->bits == 3 ? 1 : 0);
    g.mins = g.scales + scale_words;
    g.units = g.mins + (!k->has_min || is_nibbles ? 0 : k->has_unit ? 2 : 1);
    g.words = g.units + (k->has_unit ? 1 : 0);
    return g;
}

/* Where word i of a lane is, of a part that begins `before` words into a group and is read `step` words at a time. */
static uint32_t *lane_word(uint32_t *group, uint32_t before, uint32_t step, uint32_t i, uint32_t lane)
{
    return group + (size_t)(before + i / step * step) * OPENCL_LANES + (size_t)lane * step + i % step;
}

static void put_byte(uint32_t *word, uint32_t byte, uint32_t value) { *word |= (value & 255U) << 8 * byte; }

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* Codes of block b of a lane; what is there is zeros. */
static void pack_codes(enum panel_kind kind, const struct group_layout *g, const struct quant_block *q, uint32_t b,
                       uint32_t lane, uint32_t *group)
{
    uint32_t bits = panel_info(kind)->bits;
    for (uint32_t in = 0; in < PANEL_BLOCK; in++) {
        uint32_t code = q->codes[in], word = in / 4, byte = in % 4;
        if (bits == 8) {
            put_byte(lane_word(group, 0, 4, 8 * b + word, lane), byte, code - 128);
        } else if (bits < 4) {
            put_byte(lane_word(group, 0, 4, 2 * b + word / 4, lane), byte, (code & 3U) << 2 * (word % 4));
        } else {
            put_byte(lane_word(group, 0, 4, 4 * b + word % 4, lane), byte, (code & 15U) << (word < 4 ? 0 : 4));
        }
        if (bits == 6) {
            put_byte(lane_word(group, g->high, 4, 2 * b + word / 4, lane), byte, (code >> 4) << 2 * (word % 4));
        } else if (bits == 5 || bits == 3) {
            put_byte(lane_word(group, g->high, g->n_blocks == 2 ? 2 : 4, b, lane), byte, (code >> (bits - 1)) << word);
        }
    }
}

static void put_half(uint32_t *group, uint32_t before, uint32_t step, uint32_t i, uint32_t lane, uint32_t value)
{
    *lane_word(group, before, step, i / 2, lane) |= value << 16 * (i % 2);
}

static void pack_scales(enum panel_kind kind, const struct group_layout *g, const struct quant_block *q, uint32_t b,
                        uint32_t lane, uint32_t *group)
{
    const struct panel_info *k = panel_info(kind);
    uint32_t parts = PANEL_BLOCK / k->block;
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t i = b * parts + p;
        if (!k->has_unit) {
            uint16_t scale = k->has_bf16_scale ? dtype_f32_to_bf16(q->scale[p]) : dtype_f32_to_f16(q->scale[p]);
            put_half(group, g->scales, parts, i, lane, scale);
            if (k->has_min) {
                put_half(group, g->mins, 1, i, lane, dtype_f32_to_f16(q->min[p]));
            }
            continue;
        }
        uint32_t step = (uint8_t)q->step[p], min_step = (uint8_t)q->min_step[p];
        if (kind == PANEL_U2_MIN_K) {
            step |= min_step << 4;
        } else if (k->has_min) {
            put_byte(lane_word(group, g->mins, 2, i / 4, lane), i % 4, min_step);
        }
        put_byte(lane_word(group, g->scales, parts == 2 ? 4 : 2, i / 4, lane), i % 4, step);
    }
    if (k->has_unit) {
        *lane_word(group, g->units, 1, 0, lane) = q->unit | (k->has_min ? (uint32_t)q->min_unit << 16 : 0);
    }
}

/* n_rows <= 32 rows of codes to a panel of zeros. */
static void pack_codes_panel(const struct plan_weight *w, enum panel_kind kind, const unsigned char *rows,
                             uint64_t stride, uint32_t n_rows, uint32_t *panel)
{
    const struct quant_ops *ops = quant_ops(w->type);
    struct group_layout g = layout_of(kind);
    for (uint32_t lane = 0; lane < n_rows; lane++) {
        for (uint32_t b = 0; b < w->n_in / PANEL_BLOCK; b++) {
            struct quant_block q = {.step = {0}};
            uint32_t *group = panel + (size_t)(b / g.n_blocks) * g.words * OPENCL_LANES;
            ops->unpack(rows + lane * stride, b, &q);
            pack_codes(kind, &g, &q, b % g.n_blocks, lane, group);
            pack_scales(kind, &g, &q, b % g.n_blocks, lane, group);
        }
    }
}

/* n_rows <= 32 rows of floats, [n_rows][n_in], to a panel of zeros. */
static void pack_float_panel(const float *x, enum panel_kind kind, uint32_t n_in, uint32_t n_rows, uint32_t *panel)
{
    for (uint32_t lane = 0; lane < n_rows; lane++) {
        for (uint32_t k = 0; k < n_in; k++) {
            float v = x[(size_t)lane * n_in + k];
            if (kind == PANEL_F32) {
                memcpy(&panel[((size_t)(k / 4) * OPENCL_LANES + lane) * 4 + k % 4], &v, sizeof v);
            } else {
                uint16_t bits = kind == PANEL_F16 ? dtype_f32_to_f16(v) : dtype_f32_to_bf16(v);
                memcpy((uint16_t *)(void *)panel + ((size_t)(k / 8) * OPENCL_LANES + lane) * 8 + k % 8, &bits,
                       sizeof bits);
            }
        }
    }
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* How the steps use a weight. */
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

/* How a weight lies, but for the place. */
static void lay_out(struct opencl_weight *w, const struct plan_weight *of)
{
    const struct quant_ops *ops = quant_ops(of->type);
    w->place = OPENCL_NONE;
    w->next = PLAN_NONE;
    if (w->n_uses == 0 || w->is_vector) {
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

static uint64_t bytes_of(const struct backend_model *m, plan_weight_id id)
{
    const struct opencl_weight *w = &m->weights[id];
    return w->is_vector ? m->plan->weights[id].n_in * sizeof(float)
                        : (uint64_t)w->panel_bytes * w->group_panels * w->n_groups; /* holds: in the file as much */
}

/* Can b lie behind a, and both be one product? Their panels and biases must follow each other without a gap. */
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
           bytes_of(m, s->w[a]) + bytes_of(m, s->w[a + 1]) < OPENCL_MAX_JOINED;
}

static void set_next(struct backend_model *m, plan_weight_id id, plan_weight_id next)
{
    if (id != PLAN_NONE) {
        m->weights[id].next = next;
        m->weights[next].is_behind = true;
    }
}

/* What queries, keys and values are made with is one product where it can be. */
static void join(struct backend_model *m, const struct plan_step *s)
{
    for (int i = 0; s->op == PLAN_QKV && i < 2 && s->w[i + 1] != PLAN_NONE; i++) {
        if (can_join(m, s, i)) {
            set_next(m, s->w[i], s->w[i + 1]);
            set_next(m, s->bias[i], s->bias[i + 1]);
        }
    }
}

/* Places a weight and those behind it. */
static enum err place(struct backend_model *m, plan_weight_id first, struct err_info *info)
{
    enum { VECTOR_BYTES = OPENCL_ALIGN * sizeof(float) }; /* what vectors are padded to */
    uint64_t bytes = 0;
    int32_t at;
    for (plan_weight_id id = first; id != PLAN_NONE; id = m->weights[id].next) {
        m->weights[id].at = (size_t)bytes;
        bytes += bytes_of(m, id);
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
        if (m->weights[i].n_uses != 0 && !m->weights[i].is_behind) {
            TRY(place(m, i, info));
        }
    }
    return ERR_OK;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

struct loader {
    struct backend_model *m;
    float *floats;       /* [32][widest] */
    unsigned char *rows; /* 32 encoded rows */
    uint64_t done, all;  /* panels */
};

static enum err write_panel(const struct loader *l, cl_mem to, size_t at, const void *data, size_t bytes,
                            struct err_info *info)
{
    return ocl_check(clEnqueueWriteBuffer(l->m->device.queue, to, CL_TRUE, at, bytes, data, 0, NULL, NULL),
                     "clEnqueueWriteBuffer", info);
}

/* Panel `panel` of group `group`. */
static enum err load_panel(struct loader *l, int32_t id, uint32_t group, uint32_t panel, uint32_t *room,
                           struct err_info *info)
{
    const struct plan_weight *of = &l->m->plan->weights[id];
    const struct opencl_weight *w = &l->m->weights[id];
    uint32_t row = group * w->group_rows + panel * OPENCL_LANES;
    uint32_t n_rows = MIN_OF((uint32_t)OPENCL_LANES, w->group_rows - panel * OPENCL_LANES);
    memset(room, 0, w->panel_bytes);
    if (panel_info(w->kind)->is_float) {
        for (uint32_t i = 0; i < n_rows; i++) {
            of->source->ops->read(of->source, row + i, 0, of->n_in, l->floats + (size_t)i * of->n_in);
        }
        pack_float_panel(l->floats, w->kind, of->n_in, n_rows, room);
    } else {
        uint64_t stride;
        const unsigned char *rows = row_source_rows(of->source, row, n_rows, l->rows, &stride);
        pack_codes_panel(of, w->kind, rows, stride, n_rows, room);
    }
    size_t at = w->at + ((size_t)group * w->group_panels + panel) * w->panel_bytes;
    TRY(write_panel(l, vram_at(l->m->vram, w->place), at, room, w->panel_bytes, info));
    if (l->m->cfg.weight_done != NULL) {
        of->source->ops->done(of->source, row, n_rows, l->m->cfg.weight_done, l->m->cfg.weight_done_arg);
    }
    l->done++;
    float before = program_set_progress(l->m->programs), part = (float)((double)l->done / (double)l->all);
    bool goes_on =
        l->m->cfg.progress == NULL || l->m->cfg.progress(l->m->cfg.progress_arg, before + (1 - before) * part);
    return goes_on ? ERR_OK : err_set(info, ERR_CANCELLED, NULL, "loading was cancelled");
}

static enum err load_weight(struct loader *l, int32_t id, uint32_t *room, struct err_info *info)
{
    const struct plan_weight *of = &l->m->plan->weights[id];
    const struct opencl_weight *w = &l->m->weights[id];
    if (w->place == OPENCL_NONE) {
        return ERR_OK;
    }
    if (w->is_vector) {
        of->source->ops->read(of->source, 0, 0, of->n_in, l->floats);
        return write_panel(l, vram_at(l->m->vram, w->place), w->at, l->floats, of->n_in * sizeof(float), info);
    }
    for (uint32_t g = 0; g < w->n_groups; g++) {
        for (uint32_t p = 0; p < w->group_panels; p++) {
            TRY(load_panel(l, id, g, p, room, info));
        }
    }
    return ERR_OK;
}

enum err opencl_weights_load(struct backend_model *m, struct err_info *info)
{
    struct loader l = {.m = m};
    size_t widest = 0, row_bytes = 0, panel_bytes = 0;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *of = &m->plan->weights[i];
        const struct opencl_weight *w = &m->weights[i];
        bool is_matrix = w->place != OPENCL_NONE && !w->is_vector;
        widest = MAX_OF(widest, (size_t)of->n_in * (is_matrix ? OPENCL_LANES : 1));
        row_bytes = is_matrix ? MAX_OF(row_bytes, (size_t)of->row_bytes) : row_bytes;
        panel_bytes = is_matrix ? MAX_OF(panel_bytes, w->panel_bytes) : panel_bytes;
        l.all += is_matrix ? (uint64_t)w->n_groups * w->group_panels : 0;
    }
    l.floats = mem_zalloc_array(widest, sizeof *l.floats, MEM_SCRATCH);
    l.rows = mem_zalloc_array(OPENCL_LANES, row_bytes, MEM_SCRATCH);
    uint32_t *room = mem_zalloc(panel_bytes, MEM_SCRATCH);
    enum err err = l.floats != NULL && l.rows != NULL && room != NULL
                       ? ERR_OK
                       : err_set(info, ERR_NOMEM, NULL, "out of memory for packing weights");
    for (int32_t i = 0; i < m->plan->n_weights && err == ERR_OK; i++) {
        err = load_weight(&l, i, room, info);
    }
    mem_free(l.floats);
    mem_free(l.rows);
    mem_free(room);
    return err;
}
