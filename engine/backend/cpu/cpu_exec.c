/* Runs a batch: every thread runs all steps, with barriers only if a thread reads data that another wrote. A tile (some
 * token rows x some output panels) is computed in the thread's own memory. The step's epilogue finishes it there, so
 * bias, RoPE, KV store, residual and activation need no separate pass over memory. Over 600 lines, because all kinds of
 * steps share one view of a batch. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/backend/moe_route.h"
#include "engine/backend/rope_angles.h"

#include <math.h>
#include <string.h>

_Static_assert((int)PLAN_CLAMPED == (int)KERN_ACT_CLAMPED, "plan and kernels must agree on the activations");

/* --- operands and tiles ----------------------------------------------------------------------------------------- */

static bool wants_quantised(const struct cpu_run *e)
{
    for (int i = 0; i < 3; i++) {
        plan_weight_id id = e->step->step.w[i];
        if (id != PLAN_NONE && !panel_info(e->m->weights[id].kind)->is_float) {
            return true;
        }
    }
    return false;
}

/* Computes the row of the residual stream plus the normed block output, in own[]. By columns all threads compute it,
 * because each needs it. The last one, which always has columns, stores it for later steps. */
static const float *renew(const struct cpu_run *e, int32_t row, float *own)
{
    const struct cpu_step *s = e->step;
    size_t width = cpu_width(e, s->step.src);
    e->m->kern.rmsnorm(cpu_row(e, s->added, row), cpu_vector(e, s->post), s->post_eps, width, own);
    e->m->kern.add(own, cpu_row(e, s->step.src, row), width);
    if (e->is_by_rows || e->thread == e->n_threads - 1) {
        memcpy(cpu_row(e, s->renewed, row), own, width * sizeof *own);
    }
    return own;
}

/* Normalizes and quantizes rows [row, row + n), n <= CPU_TILE_ROWS, as the step requires. */
static struct cpu_operand prepare(const struct cpu_run *e, int32_t row, int32_t n)
{
    const struct cpu_step *s = e->step;
    size_t width = cpu_width(e, s->step.src), stride = e->m->strides[s->step.src];
    struct cpu_operand o = {
        .row = row, .n = n, .f32 = cpu_row(e, s->step.src, row), .f32_bytes = stride * sizeof(float)};
    for (int32_t i = 0; s->has_norm && i < n; i++) {
        float *own = e->scratch->normed + (size_t)i * stride;
        const float *x = s->has_post ? renew(e, row + i, own) : cpu_row(e, s->step.src, row + i);
        e->m->kern.rmsnorm(x, cpu_vector(e, s->norm), s->norm_eps, width, own);
    }
    o.f32 = s->has_norm ? e->scratch->normed : o.f32;
    if (wants_quantised(e)) {
        o.q = e->scratch->rows;
        o.q_bytes = kern_qrow_bytes(width);
        for (int32_t i = 0; i < n; i++) {
            e->m->kern.quantize_row(o.f32 + (size_t)i * stride, width, s->fine,
                                    (void *)(e->scratch->rows + (size_t)i * o.q_bytes));
        }
    }
    return o;
}

void cpu_multiply(const struct cpu_run *r, const struct cpu_weight *w, uint32_t panel, uint32_t n_panels,
                  const struct cpu_operand *o, float *tile)
{
    bool is_float = panel_info(w->kind)->is_float;
    const struct kern_matmul_args a = {
        .panels = cpu_panels(r->m, w, panel, n_panels, r->thread),
        .n_panels = (int)n_panels,
        .k = w->n_in,
        .rows = is_float ? (const void *)o->f32 : o->q,
        .row_bytes = is_float ? o->f32_bytes : o->q_bytes,
        .n_rows = o->n,
        .out = tile,
        .out_stride = (size_t)n_panels * PANEL_ROWS,
    };
    r->m->kern.matmul[w->kind](&a);
}

/* A computed tile: rows [row, row + n), each `stride` floats after the one before, of columns [column, column +
 * columns). */
struct tile {
    int32_t row, n;
    size_t stride;
    uint32_t column, columns;
};

/* Returns the tile of the operand's rows and panels [panel, panel + n_panels). */
static struct tile tile_of(const struct cpu_operand *o, const struct cpu_weight *w, uint32_t panel, uint32_t n_panels)
{
    uint32_t column = panel * PANEL_ROWS, wide = n_panels * PANEL_ROWS;
    return (struct tile){o->row, o->n, wide, column, MIN_OF(wide, w->n_out - column)};
}

/* Adds a bias, if there is one, to each row of a tile. */
static void add_bias(const struct cpu_run *e, const struct tile *t, plan_weight_id id, float *y)
{
    const float *bias = cpu_vector(e, id);
    for (int32_t i = 0; i < t->n && bias != NULL; i++) {
        e->m->kern.add(y + (size_t)i * t->stride, bias + t->column, t->columns);
    }
}

/* --- epilogues -------------------------------------------------------------------------------------------------- */

static void scale_row(float *x, uint32_t n, float scale)
{
    for (uint32_t j = 0; j < n && scale != 1.0f; j++) {
        x[j] *= scale;
    }
}

/* Stores a computed tile of a matmul. */
static void finish_matmul(const struct cpu_run *e, const struct tile *t)
{
    const struct plan_step *s = &e->step->step;
    float *y = e->scratch->tile[0];
    add_bias(e, t, s->bias[0], y);
    for (int32_t i = 0; i < t->n; i++, y += t->stride) {
        float *out = cpu_row(e, s->dst, t->row + i) + t->column;
        if (s->adds) {
            scale_row(y, t->columns, s->scale);
            e->m->kern.add(out, y, t->columns);
        } else {
            memcpy(out, y, t->columns * sizeof *out);
        }
    }
}

/* A NaN stays. */
void cpu_limit(const struct plan_step *s, float *gate, float *up, size_t n)
{
    const float most = s->gate_limit, size = s->up_limit;
    for (size_t j = 0; most != 0 && j < n; j++) {
        gate[j] = gate[j] > most ? most : gate[j];
    }
    for (size_t j = 0; size != 0 && j < n; j++) {
        up[j] = up[j] > size ? size : up[j] < -size ? -size : up[j];
    }
}

/* Like finish_matmul() for both tiles of a GLU, or only its gate. */
static void finish_glu(const struct cpu_run *e, const struct tile *t)
{
    const struct plan_step *s = &e->step->step;
    float *gate = e->scratch->tile[0], *up = e->scratch->tile[1];
    bool is_gated = s->w[1] != PLAN_NONE;
    add_bias(e, t, s->bias[0], gate);
    if (is_gated) {
        add_bias(e, t, s->bias[1], up);
    } else {
        for (uint32_t j = 0; j < t->columns; j++) { /* act(y) * 1 */
            up[j] = 1.0f;
        }
    }
    for (int32_t i = 0; i < t->n; i++, gate += t->stride, up += is_gated ? t->stride : 0) {
        cpu_limit(s, gate, up, t->columns);
        e->m->kern.glu((enum kern_act)s->act, gate, up, t->columns, cpu_row(e, s->dst, t->row + i) + t->column);
    }
}

static void finish_logits(const struct cpu_run *e, const struct tile *t)
{
    const struct plan_step *s = &e->step->step;
    float cap = s->logits.softcap;
    add_bias(e, t, s->bias[0], e->scratch->tile[0]);
    for (int32_t i = 0; i < t->n; i++) {
        const float *y = e->scratch->tile[0] + (size_t)i * t->stride;
        float *out = e->batch->logits + (size_t)(t->row + i) * e->m->plan->n_vocab + t->column;
        if (s->scale == 1.0f && cap == 0) {
            memcpy(out, y, t->columns * sizeof *out);
            continue;
        }
        for (uint32_t j = 0; j < t->columns; j++) {
            float v = y[j] * s->scale;
            out[j] = cap != 0 ? cap * tanhf(v / cap) : v;
        }
    }
}

/* Applies norm and RoPE to one row's head vector. */
static void finish_head(const struct cpu_run *e, float *head, plan_weight_id norm, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    const struct plan_rope *rope = &e->m->plan->ropes[s->heads.rope];
    if (norm != PLAN_NONE) {
        e->m->kern.rmsnorm(head, cpu_vector(e, norm), s->eps, e->m->weights[norm].n_in, head);
    }
    if (rope->n_rot != 0) {
        size_t half = rope->n_rot / 2;
        e->m->kern.rope(head + rope->first, (int)rope->n_rot, rope->is_neox,
                        e->m->rope_cos[s->heads.rope] + (size_t)row * half,
                        e->m->rope_sin[s->heads.rope] + (size_t)row * half);
    }
}

/* Returns the heads of the current step's layer. */
static const struct plan_kv *heads_of(const struct cpu_run *e) { return &e->m->kvs[e->step->step.layer].heads; }

static void finish_value(const struct cpu_run *e, float *value)
{
    if (e->step->step.heads.norms_values) {
        e->m->kern.rmsnorm(value, NULL, e->step->step.eps, plan_kv_value_dim(heads_of(e)), value);
    }
}

static void finish_query(const struct cpu_run *e, float *head, int32_t row)
{
    finish_head(e, head, e->step->step.heads.q_norm, row);
    scale_row(head, heads_of(e)->head_dim,
              rope_query_scale(&e->m->plan->ropes[e->step->step.heads.rope], e->batch->pos[row]));
}

/* Stores keys and values of one row and KV head in its page. */
static void store_kv(const struct cpu_run *e, int32_t row, uint32_t kv_head, const float *k, const float *v)
{
    int32_t layer = e->step->step.layer, pos = e->batch->pos[row];
    int32_t page = backend_table(e->batch, e->m->kvs[layer].is_local, e->batch->seq[row])[pos / KV_PAGE_TOKENS];
    e->m->kern.kv_store(&e->m->kvs[layer].layout, k, v, pos % KV_PAGE_TOKENS, cpu_keys(e->m, layer, kv_head, page),
                        cpu_values(e->m, layer, kv_head, page));
}

/* Computes the tile of a head of Q (part 0), K (1) or V (2), with its bias, and returns the floats between its rows. */
static size_t head_part(const struct cpu_run *e, const struct cpu_operand *o, int part, uint32_t head)
{
    const struct plan_step *s = &e->step->step;
    const struct cpu_weight *w = &e->m->weights[s->w[part]];
    const float *bias = cpu_vector(e, s->bias[part]);
    uint32_t d = part == 2 ? plan_kv_value_dim(heads_of(e)) : heads_of(e)->head_dim;
    size_t stride = (size_t)w->group_panels * PANEL_ROWS;
    float *y = e->scratch->tile[part == 2];
    cpu_multiply(e, w, head * w->group_panels, w->group_panels, o, y);
    for (int32_t i = 0; i < o->n && bias != NULL; i++, y += stride) {
        for (uint32_t j = 0; j < d; j++) { /* the bias is unaligned for odd head widths */
            y[j] += bias[head * d + j];
        }
    }
    return stride;
}

static void query_tile(const struct cpu_run *e, const struct cpu_operand *o, uint32_t head)
{
    uint32_t d = heads_of(e)->head_dim;
    float *q = e->scratch->tile[0];
    size_t stride = head_part(e, o, 0, head);
    for (int32_t i = 0; i < o->n; i++, q += stride) {
        finish_query(e, q, o->row + i);
        memcpy(cpu_row(e, e->step->step.dst, o->row + i) + head * d, q, d * sizeof *q);
    }
}

static void key_value_tile(const struct cpu_run *e, const struct cpu_operand *o, uint32_t kv_head)
{
    float *k = e->scratch->tile[0], *v = e->scratch->tile[1];
    size_t k_stride = head_part(e, o, 1, kv_head), v_stride = head_part(e, o, 2, kv_head);
    for (int32_t i = 0; i < o->n; i++, k += k_stride, v += v_stride) {
        finish_head(e, k, e->step->step.heads.k_norm, o->row + i);
        finish_value(e, v);
        store_kv(e, o->row + i, kv_head, k, v);
    }
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

/* A thread's rows and columns (panels, or heads for QKV) of a step. */
struct share {
    int row, row_to, from, to;
};

static struct share share_of(const struct cpu_run *e, int n_columns)
{
    struct share s = {0, e->n_rows, 0, n_columns};
    if (e->is_by_rows) {
        pool_share(e->n_rows, e->thread, e->n_threads, &s.row, &s.row_to);
    } else {
        pool_share(n_columns, e->thread, e->n_threads, &s.from, &s.to);
    }
    return s;
}

/* Counts columns of QKV in head tiles: a query head is one, a KV head (keys and values) two. A KV head belongs to the
 * thread in whose share it begins. */
static void run_qkv(const struct cpu_run *e)
{
    int n_heads = (int)heads_of(e)->n_heads;
    int n_kv_heads = e->step->step.w[1] != PLAN_NONE ? (int)heads_of(e)->n_kv_heads : 0;
    struct share s = share_of(e, n_heads + 2 * n_kv_heads);
    for (int row = s.row; row < s.row_to && s.from < s.to; row += CPU_TILE_ROWS) {
        struct cpu_operand o = prepare(e, row, MIN_OF(s.row_to - row, (int)CPU_TILE_ROWS));
        for (int c = s.from; c < s.to; c++) {
            if (c < n_heads) {
                query_tile(e, &o, (uint32_t)c);
            } else if ((c - n_heads) % 2 == 0) {
                key_value_tile(e, &o, (uint32_t)(c - n_heads) / 2);
            }
        }
    }
}

/* Copies rows [row, row + n) of head h's components to the thread's memory, because kernels need aligned rows. */
static struct cpu_operand head_operand(const struct cpu_run *e, uint32_t h, int32_t row, int32_t n)
{
    const struct cpu_weight *w = &e->m->weights[e->step->step.w[0]];
    size_t in = cpu_width(e, e->step->step.src) / plan_heads_of(e->m->plan, &e->step->step),
           stride = (w->n_in + 15) / 16 * 16;
    struct cpu_operand o = {.row = row, .n = n, .f32 = e->scratch->normed, .f32_bytes = stride * sizeof(float)};
    o.q = panel_info(w->kind)->is_float ? NULL : e->scratch->rows;
    o.q_bytes = kern_qrow_bytes(w->n_in);
    for (int32_t i = 0; i < n; i++) {
        float *x = e->scratch->normed + (size_t)i * stride;
        memcpy(x, cpu_row(e, e->step->step.src, row + i) + h * in, w->n_in * sizeof *x);
        if (o.q != NULL) {
            e->m->kern.quantize_row(x, w->n_in, e->step->fine, (void *)(e->scratch->rows + (size_t)i * o.q_bytes));
        }
    }
    return o;
}

/* Computes head h of rows [row, row + n), n <= CPU_TILE_ROWS. */
static void head_tile(const struct cpu_run *e, uint32_t h, int32_t row, int32_t n)
{
    const struct cpu_weight *w = &e->m->weights[e->step->step.w[0]];
    uint32_t n_heads = plan_heads_of(e->m->plan, &e->step->step), n_panels;
    size_t in = cpu_width(e, e->step->step.src) / n_heads, out = cpu_width(e, e->step->step.dst) / n_heads;
    const float *tile = e->scratch->tile[0];
    struct cpu_operand o = head_operand(e, h, row, n);
    for (uint32_t p = 0; p < w->group_panels; p += n_panels) {
        n_panels = MIN_OF(cpu_tile_panels(w), w->group_panels - p);
        uint32_t column = p * PANEL_ROWS, columns = MIN_OF(n_panels * PANEL_ROWS, w->group_rows - column);
        cpu_multiply(e, w, h * w->group_panels + p, n_panels, &o, e->scratch->tile[0]);
        for (int32_t i = 0; i < n; i++) {
            memcpy(cpu_row(e, e->step->step.dst, row + i) + h * out + column, tile + (size_t)i * n_panels * PANEL_ROWS,
                   columns * sizeof *tile);
        }
    }
    for (int32_t i = 0; i < n && in > w->n_in; i++) { /* components after the matrix stay unchanged */
        memcpy(cpu_row(e, e->step->step.dst, row + i) + h * out + w->group_rows,
               cpu_row(e, e->step->step.src, row + i) + h * in + w->n_in, (in - w->n_in) * sizeof(float));
    }
}

static void run_head_matmul(const struct cpu_run *e)
{
    struct share s = share_of(e, (int)plan_heads_of(e->m->plan, &e->step->step));
    for (int row = s.row; row < s.row_to; row += CPU_TILE_ROWS) {
        for (int h = s.from; h < s.to; h++) {
            head_tile(e, (uint32_t)h, row, MIN_OF(s.row_to - row, (int)CPU_TILE_ROWS));
        }
    }
}

/* Returns the chunks of a row's logits. */
static uint32_t n_chunks(const struct cpu_run *e)
{
    return (plan_n_logits(e->m->plan, e->batch->predicts) + CPU_LOGITS_CHUNK - 1) / CPU_LOGITS_CHUNK;
}

/* Computes the statistics of a chunk of a row's logits while it is in the cache. */
static void chunk_stats(const struct cpu_run *e, int32_t row, uint32_t chunk)
{
    const struct backend_model *m = e->m;
    uint32_t column = chunk * CPU_LOGITS_CHUNK, n_logits = plan_n_logits(m->plan, e->batch->predicts);
    const float *x = e->batch->logits + (size_t)row * m->plan->n_vocab + column;
    int32_t n = (int32_t)MIN_OF((uint32_t)CPU_LOGITS_CHUNK, n_logits - column);
    struct backend_row_stats *s = &m->chunk_stats[(size_t)row * m->n_chunks + chunk];
    s->argmax = (int32_t)column + m->kern.argmax(x, n);
    s->logsumexp = m->kern.logsumexp(x, n, &s->max);
}

/* Computes the head in chunks of columns. Their size does not depend on the number of threads, because the sum of
 * exponentials depends on the chunks. */
static void run_logits(const struct cpu_run *e)
{
    const struct cpu_weight *w = &e->m->weights[e->step->step.w[0]];
    struct share s = share_of(e, (int)n_chunks(e));
    for (int row = s.row; row < s.row_to && s.from < s.to; row += CPU_TILE_ROWS) {
        struct cpu_operand o = prepare(e, row, MIN_OF(s.row_to - row, (int)CPU_TILE_ROWS));
        for (uint32_t chunk = (uint32_t)s.from; chunk < (uint32_t)s.to; chunk++) {
            uint32_t end = MIN_OF(w->n_panels, (chunk + 1) * CPU_CHUNK_PANELS);
            for (uint32_t panel = chunk * CPU_CHUNK_PANELS; panel < end; panel += cpu_tile_panels(w)) {
                struct tile t = tile_of(&o, w, panel, MIN_OF(cpu_tile_panels(w), end - panel));
                cpu_multiply(e, w, panel, (uint32_t)t.stride / PANEL_ROWS, &o, e->scratch->tile[0]);
                finish_logits(e, &t);
            }
            for (int32_t i = 0; i < o.n; i++) {
                chunk_stats(e, row + i, chunk);
            }
        }
    }
}

/* Computes panels [from, to) of a matmul or GLU for rows [row, row + n), n <= CPU_TILE_ROWS. */
static void run_row_tile(const struct cpu_run *e, int32_t row, int32_t n, uint32_t from, uint32_t to)
{
    const struct plan_step *s = &e->step->step;
    const struct cpu_weight *w = &e->m->weights[s->w[0]];
    struct cpu_operand o = prepare(e, row, n);
    for (uint32_t panel = from, n_panels; panel < to; panel += n_panels) {
        n_panels = MIN_OF(cpu_tile_panels(w), to - panel);
        struct tile t = tile_of(&o, w, panel, n_panels);
        cpu_multiply(e, w, panel, n_panels, &o, e->scratch->tile[0]);
        if (s->w[1] != PLAN_NONE) {
            cpu_multiply(e, &e->m->weights[s->w[1]], panel, n_panels, &o, e->scratch->tile[1]);
        }
        (s->op == PLAN_GLU ? finish_glu : finish_matmul)(e, &t);
    }
}

static void run_matmul(const struct cpu_run *e)
{
    struct share s = share_of(e, (int)e->m->weights[e->step->step.w[0]].n_panels);
    for (int row = s.row; row < s.row_to && s.from < s.to; row += CPU_TILE_ROWS) {
        run_row_tile(e, row, MIN_OF(s.row_to - row, (int)CPU_TILE_ROWS), (uint32_t)s.from, (uint32_t)s.to);
    }
}

/* Runs a step that alternates with the next one by rows, alternating tile by tile. */
static void run_pair(struct cpu_run *e)
{
    int row_to;
    pool_share(e->n_rows, e->thread, e->n_threads, &e->tile, &row_to);
    for (; e->tile < row_to; e->tile += (int32_t)CPU_TILE_ROWS) {
        for (int i = 0; i < 2; i++, e->step++) {
            run_row_tile(e, e->tile, MIN_OF(row_to - e->tile, (int32_t)CPU_TILE_ROWS), 0,
                         e->m->weights[e->step->step.w[0]].n_panels);
        }
        e->step -= 2;
    }
    e->step++; /* the last step done */
}

/* Unpacks row `row` of a matrix. */
static void unpack_row(const struct cpu_run *e, const struct cpu_weight *w, uint32_t row, float *out)
{
    if (w->vector != NULL) { /* of one row */
        memcpy(out, w->vector, w->n_in * sizeof *out);
        return;
    }
    const unsigned char *panel = cpu_panels(e->m, w, row / PANEL_ROWS, 1, e->thread);
    panel_unpack_row(w->kind, panel, w->n_in, (int)(row % PANEL_ROWS), out);
}

static void embed_row(const struct cpu_run *e, int32_t i)
{
    const struct plan_step *s = &e->step->step;
    const struct cpu_weight *w = &e->m->weights[s->w[0]];
    float *out = cpu_row(e, e->step->step.dst, i), *more = e->scratch->normed;
    unpack_row(e, w, (uint32_t)e->batch->tokens[i], out);
    for (uint32_t k = 0; k < w->n_in && s->scale != 1.0f; k++) {
        out[k] *= s->scale;
    }
    const uint32_t rows[3] = {0, (uint32_t)e->batch->pos[i], 0};
    for (int k = 1; k < 3; k++) {
        if (s->w[k] != PLAN_NONE) {
            unpack_row(e, &e->m->weights[s->w[k]], rows[k], more);
            e->m->kern.add(out, more, w->n_in);
        }
    }
}

/* Finishes the heads of a row whose queries, keys and values are complete, in the thread's memory, because kernels need
 * aligned heads. */
static void finish_heads(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    size_t d = heads_of(e)->head_dim, d_value = plan_kv_value_dim(heads_of(e)), bytes = d * sizeof(float);
    float *head = e->scratch->tile[0], *value = e->scratch->tile[1], *q = cpu_row(e, e->step->step.src, row);
    for (uint32_t h = 0; h < heads_of(e)->n_heads; h++) {
        memcpy(head, q + h * d, bytes);
        finish_query(e, head, row);
        memcpy(q + h * d, head, bytes);
    }
    for (uint32_t h = 0; h < heads_of(e)->n_kv_heads && s->heads.keys != PLAN_NONE; h++) {
        memcpy(head, cpu_row(e, s->heads.keys, row) + h * d, bytes);
        if (s->heads.values != PLAN_NONE) {
            memcpy(value, cpu_row(e, s->heads.values, row) + h * d_value, d_value * sizeof *value);
            finish_value(e, value);
        }
        finish_head(e, head, s->heads.k_norm, row);
        store_kv(e, row, h, head, value);
    }
}

/* Returns the sum of a row, times w if it is not NULL. The order does not depend on the vector width. */
static double sum_of(const float *x, const float *w, size_t n)
{
    double sum[4] = {0};
    for (size_t i = 0; i < n; i++) {
        sum[i % 4] += x[i] * (w != NULL ? (double)w[i] : 1.0);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Computes dst *= sigmoid(src . w[0]). */
static void gate_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    double dot = sum_of(cpu_row(e, s->src, row), cpu_vector(e, s->w[0]), cpu_width(e, s->src));
    scale_row(cpu_row(e, s->dst, row), (uint32_t)cpu_width(e, s->dst), (float)(1.0 / (1.0 + exp(-dot))));
}

/* Writes the norm of x to out, which can be x. LayerNorm is RMSNorm of x minus its mean. */
static void norm(const struct cpu_run *e, const float *x, float *out)
{
    const struct plan_step *s = &e->step->step;
    size_t width = cpu_width(e, e->step->step.src), group = e->m->weights[s->w[0]].n_in;
    for (size_t at = 0; s->norm.centers && at < width; at += group) {
        float mean = (float)(sum_of(x + at, NULL, group) / (double)group);
        for (size_t i = at; i < at + group; i++) {
            e->scratch->normed[i] = x[i] - mean;
        }
    }
    x = s->norm.centers ? e->scratch->normed : x;
    float *own = e->scratch->normed + e->m->strides[e->step->step.src]; /* aligned, because groups need not be */
    for (size_t at = 0; group < width && at < width; at += group) {
        memcpy(own, x + at, group * sizeof *own);
        e->m->kern.rmsnorm(own, cpu_vector(e, s->w[0]), s->eps, group, own);
        memcpy(out + at, own, group * sizeof *own);
    }
    if (group == width) {
        e->m->kern.rmsnorm(x, cpu_vector(e, s->w[0]), s->eps, width, out);
    }
    if (s->norm.centers && s->bias[0] != PLAN_NONE) {
        e->m->kern.add(out, cpu_vector(e, s->bias[0]), width);
    }
}

static void norm_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    float *dst = cpu_row(e, s->dst, row), *normed = s->adds ? e->scratch->normed : dst;
    norm(e, cpu_row(e, s->src, row), normed);
    if (s->adds) {
        e->m->kern.add(dst, normed, cpu_width(e, s->src));
    }
}

static void route_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    moe_route(&e->m->plan->moe, cpu_row(e, s->src, row), cpu_vector(e, s->w[0]), cpu_vector(e, s->w[1]),
              cpu_row(e, s->dst, row));
}

static void gather_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    memcpy(cpu_row(e, s->dst, row), cpu_row(e, s->src, e->batch->logit_rows[row]),
           cpu_width(e, s->src) * sizeof(float));
}

static void hidden_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    size_t width = cpu_width(e, s->src);
    const float *x = cpu_row(e, s->src, e->batch->hidden_rows[row]);
    if (s->w[0] != PLAN_NONE) {
        norm(e, x, e->scratch->normed); /* the caller's rows can be unaligned */
        x = e->scratch->normed;
    }
    memcpy(e->batch->hidden + (size_t)row * width, x, width * sizeof *x);
}

static void input_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    const float *x = e->batch->input + (size_t)row * e->m->plan->input_width + s->edge.first;
    memcpy(cpu_row(e, s->dst, row), x, cpu_width(e, s->dst) * sizeof *x);
}

static void output_row(const struct cpu_run *e, int32_t row)
{
    const struct plan_step *s = &e->step->step;
    float *out = e->batch->output;
    if (out != NULL) {
        memcpy(out + (size_t)row * e->m->plan->output_width + s->edge.first, cpu_row(e, s->src, row),
               cpu_width(e, s->src) * sizeof *out);
    }
}

/* --- the table -------------------------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops[PLAN_OP_COUNT] = {
    [PLAN_EMBED] = {.row = embed_row},
    [PLAN_NORM] = {.row = norm_row, .is_norm = true},
    [PLAN_MATMUL] = {.run = run_matmul, .takes_norm = true, .by_tiles = true},
    [PLAN_GLU] = {.run = run_matmul, .takes_norm = true, .by_tiles = true},
    [PLAN_QKV] = {.run = run_qkv, .takes_norm = true},
    [PLAN_HEADS] = {.row = finish_heads},
    [PLAN_INDEX] = {.row = cpu_index_row},
    [PLAN_CHOOSE] = {.run = cpu_index_choose},
    [PLAN_HEAD_MATMUL] = {.run = run_head_matmul},
    [PLAN_ATTENTION] = {.run = cpu_attention_run},
    [PLAN_ROUTE] = {.row = route_row},
    [PLAN_EXPERTS] = {.run = cpu_experts_run, .is_shared = true},
    [PLAN_GATE] = {.row = gate_row},
    [PLAN_MULTIPLY] = {.row = cpu_streams_multiply},
    [PLAN_XIELU] = {.row = cpu_streams_xielu},
    [PLAN_SHORT_CONV] = {.run = cpu_recurrent_conv},
    [PLAN_DELTA] = {.run = cpu_recurrent_delta},
    [PLAN_SSM] = {.run = cpu_recurrent_ssm},
    [PLAN_SCAN] = {.run = cpu_recurrent_scan},
    [PLAN_SUM] = {.row = cpu_streams_sum},
    [PLAN_PREDICT] = {.row = cpu_streams_predict},
    [PLAN_CORRECT] = {.row = cpu_streams_correct},
    [PLAN_REDUCE] = {.run = cpu_streams_reduce, .is_shared = true},
    [PLAN_HIDDEN] = {.row = hidden_row},
    [PLAN_GATHER] = {.row = gather_row},
    /* The head is long enough that all threads share it by columns, so its weights pass the caches once, not once per
     * thread. It writes logits over buffers of the previous steps. */
    [PLAN_LOGITS] = {.run = run_logits, .takes_norm = true, .is_shared = true},
    [PLAN_INPUT] = {.row = input_row},
    [PLAN_OUTPUT] = {.row = output_row},
};

/* --- all steps -------------------------------------------------------------------------------------------------- */

/* Returns whether a step reads data that other threads wrote in the previous step, or writes data that they read. */
static bool is_crossing(const struct cpu_step *c)
{
    return plan_ops[c->step.op].crosses_rows || cpu_ops[c->step.op].is_shared;
}

/* Return the batch's first step, the one after the last that stores something, and the end of its steps. */
static const struct cpu_step *first_step(const struct backend_model *m, const struct backend_batch *batch)
{
    return m->steps + (batch->predicts ? m->n_main : 0);
}
static const struct cpu_step *tail_of_steps(const struct backend_model *m, const struct backend_batch *batch)
{
    return m->steps + (batch->predicts ? m->n_storing_predict : m->n_storing);
}
static const struct cpu_step *end_of_steps(const struct backend_model *m, const struct backend_batch *batch)
{
    return !backend_has_results(m->plan, batch) ? tail_of_steps(m, batch)
                                                : m->steps + (batch->predicts ? m->n_steps : m->n_main);
}

/* Returns whether all threads must finish the current step before any continues. */
static bool needs_barrier(const struct cpu_run *e)
{
    bool is_last = e->step + 1 == e->end;
    return !e->is_by_rows || is_last || is_crossing(e->step) || is_crossing(e->step + 1);
}

/* Merges the chunks of a row. NaNs lose the arg-max and make the sum NaN. */
static void row_stats(const struct cpu_run *e)
{
    const struct backend_model *m = e->m;
    int from, to;
    pool_share(e->batch->n_logits, e->thread, e->n_threads, &from, &to);
    for (int i = from; i < to; i++) {
        const struct backend_row_stats *chunks = &m->chunk_stats[(size_t)i * m->n_chunks], *best = chunks;
        for (uint32_t c = 1; c < n_chunks(e); c++) {
            best = chunks[c].max > best->max || isnan(best->max) ? &chunks[c] : best;
        }
        double sum = 0;
        for (uint32_t c = 0; c < n_chunks(e); c++) {
            sum += exp((double)chunks[c].logsumexp - (double)best->max);
        }
        e->batch->stats[i] = (struct backend_row_stats){
            .argmax = best->argmax, .max = best->max, .logsumexp = (float)((double)best->max + log(sum))};
    }
}

/* Computes RoPE's angles of the thread's rows before the first step, which needs none. After that step all threads can
 * use them. */
static void find_angles(const struct cpu_run *e)
{
    int from, to;
    pool_share(e->batch->n_rows, e->thread, e->n_threads, &from, &to);
    for (int32_t r = 0; r < e->m->plan->n_ropes; r++) {
        const struct plan_rope *rope = &e->m->plan->ropes[r];
        for (int i = from; i < to; i++) {
            size_t at = (size_t)i * rope->n_rot / 2;
            rope_angles(rope, e->batch->pos[i], e->m->rope_cos[r] + at, e->m->rope_sin[r] + at);
        }
    }
}

/* Computes the thread's share of the current step. */
static void run_step(struct cpu_run *e)
{
    const struct cpu_op *op = &cpu_ops[e->step->step.op];
    int from, to;
    if (e->is_by_rows && e->step->alternates) {
        run_pair(e);
    } else if (op->run != NULL) {
        op->run(e);
    } else {
        pool_share(e->n_rows, e->thread, e->n_threads, &from, &to);
        for (int i = from; i < to; i++) {
            op->row(e, i);
        }
    }
}

/* Decides, on the first thread before a barrier, whether to leave the batch after it. Never after the last step. */
static void look_for_others(const struct cpu_run *e)
{
    const atomic_bool *asks = cpu_overtaking_rows(e->m) != 0 ? e->batch->asks : NULL;
    int at = (int)(e->step - e->m->steps);
    bool is_last = e->step + 1 == e->end;
    if (e->thread == 0 && asks != NULL && !is_last && atomic_load_explicit(asks, memory_order_relaxed)) {
        atomic_store_explicit(&e->m->stop_after, at, memory_order_relaxed);
    }
}

/* Runs the steps from that of *arg on. */
static void run_thread(void *arg, int thread, int n_threads)
{
    struct cpu_run e = *(struct cpu_run *)arg;
    struct backend_model *m = e.m;
    const int32_t n_rows[] = {[PLAN_ALL_ROWS] = e.batch->n_rows,
                              [PLAN_LOGIT_ROWS] = e.batch->n_logits,
                              [PLAN_HIDDEN_ROWS] = e.batch->n_hidden};
    e.scratch = &m->scratch[thread];
    e.thread = thread;
    e.n_threads = n_threads;
    find_angles(&e);
    if (e.step != first_step(m, e.batch)) {
        pool_barrier(m->pool);
    }
    for (; e.step < e.end; e.step++) {
        e.n_rows = n_rows[e.step->step.rows];
        if (e.n_rows == 0 && e.step->step.rows == PLAN_HIDDEN_ROWS) {
            continue; /* the gather, which then reads other threads' rows, has a barrier before it */
        }
        /* By columns, threads share the packing of panels that are not packed yet. */
        e.is_by_rows = e.n_rows >= CPU_ROWS_PER_THREAD * n_threads && !cpu_is_head(e.step) && !cpu_packs_later(m);
        run_step(&e);
        if (needs_barrier(&e)) {
            look_for_others(&e);
            pool_barrier(m->pool);
            /* The first thread can already have noted a later step. */
            if (atomic_load_explicit(&m->stop_after, memory_order_relaxed) == (int)(e.step - m->steps)) {
                return;
            }
        }
    }
    if (e.end == end_of_steps(m, e.batch)) {
        row_stats(&e);
    }
}

/* Runs from *e on until another batch overtakes. Returns false at the end of the batch. */
static bool run_on(struct cpu_run *e)
{
    struct backend_model *m = e->m;
    cpu_attention_begin(m, e->batch);
    for (int i = 0; i < m->n_steps; i++) {
        atomic_store_explicit(&m->tasks[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&m->stop_after, -1, memory_order_relaxed);
    pool_run(m->pool, run_thread, e);
    int at = atomic_load_explicit(&m->stop_after, memory_order_relaxed);
    e->step = m->steps + at + 1;
    return at >= 0;
}

/* Runs steps [from, end) of a batch, with the batches that overtake it. */
static void run_steps(struct backend_model *m, const struct backend_batch *batch, const struct cpu_step *from,
                      const struct cpu_step *end)
{
    struct cpu_run e = {.m = m, .batch = batch, .step = from, .end = end};
    m->batch = batch;
    while (run_on(&e)) {
        batch->between(batch->between_arg);
    }
}

void cpu_exec_run(struct backend_model *m, const struct backend_batch *batch)
{
    const struct backend_batch *overtaken = m->batch;
    const struct cpu_step *from = first_step(m, batch), *end = end_of_steps(m, batch),
                          *tail_from = tail_of_steps(m, batch);
    int32_t n_aside = overtaken != NULL ? MIN_OF(overtaken->n_rows, batch->n_rows) : 0;
    struct backend_batch tail;
    cpu_overtake_set_aside(m, n_aside);
    if (overtaken == NULL && tail_from < end && cpu_tail_begin(m, batch, &tail)) { /* one tail at a time */
        run_steps(m, batch, from, tail_from);
        cpu_tail_gather(m, batch);
        run_steps(m, &tail, tail_from, end);
    } else {
        run_steps(m, batch, from, end);
    }
    m->batch = overtaken;
    cpu_overtake_put_back(m, n_aside);
}
