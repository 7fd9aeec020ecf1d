/* Mixture-of-experts layers. The rows of a batch are sorted by expert, so an expert's weights are read once for all its
 * rows. A task is an expert and some of its panels; threads take tasks in order. The down projections follow a barrier:
 * each thread computes its columns of every expert and adds experts in ascending order. So a row's sum does not depend
 * on the other rows of the batch. */
#include "engine/backend/cpu/cpu_internal.h"

#include <string.h>

/* One thread's view of one layer. */
struct view {
    const struct cpu_run *r;
    const struct plan_step *s;
    const struct cpu_weight *gate, *up, *down; /* up NULL: only act(gate) */
    int32_t n_picks;                           /* pairs of a row and one of its experts */
};

static float *hidden_of(const struct view *v, int32_t pick)
{
    return v->r->m->experts.hidden + (size_t)pick * v->r->m->experts.hidden_stride;
}

/* Counting sort of the pairs by expert: scratch->picks[begin[e] .. begin[e + 1]) belong to expert e, rows ascending. */
static void sort_picks(const struct view *v)
{
    const struct plan_moe *moe = &v->r->m->plan->moe;
    int32_t *begin = v->r->scratch->expert_begin, k = (int32_t)moe->n_used;
    memset(begin, 0, (moe->n_experts + 1) * sizeof *begin);
    for (int32_t i = 0; i < v->r->n_rows; i++) {
        const float *ids = cpu_row(v->r, v->s->experts.route, i) + k;
        for (int32_t j = 0; j < k; j++) {
            begin[(int32_t)ids[j] + 1]++;
        }
    }
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        begin[e + 1] += begin[e];
    }
    for (int32_t i = 0; i < v->r->n_rows; i++) {
        const float *route = cpu_row(v->r, v->s->experts.route, i);
        for (int32_t j = 0; j < k; j++) {
            v->r->scratch->picks[begin[(int32_t)route[k + j]]++] = (struct cpu_pick){.row = i, .weight = route[j]};
        }
    }
    for (uint32_t e = moe->n_experts; e > 0; e--) { /* each begin was moved to its end */
        begin[e] = begin[e - 1];
    }
    begin[0] = 0;
}

static bool is_float(const struct cpu_weight *w) { return panel_info(w->kind)->is_float; }

static void add_bias(const struct view *v, plan_weight_id id, size_t at, float *y, uint32_t n)
{
    const float *bias = id == PLAN_NONE ? NULL : v->r->m->weights[id].vector + at; /* unaligned */
    for (uint32_t j = 0; bias != NULL && j < n; j++) {
        y[j] += bias[j];
    }
}

/* Multiplies the gate and up rows of a pick by its weight, if weights are factors of the input. */
static void weigh(const struct view *v, int32_t pick, float *gate, float *up, uint32_t n)
{
    float weight = v->r->scratch->picks[pick].weight;
    if (!v->s->experts.weighs_input) {
        return;
    }
    for (uint32_t j = 0; j < n; j++) {
        gate[j] *= weight;
        up[j] *= weight;
    }
}

/* Gathers the source rows of picks [from, from + n), n <= CPU_TILE_ROWS. */
static struct cpu_operand gather(const struct view *v, int32_t from, int32_t n)
{
    size_t width = v->gate->n_in, stride = v->r->m->strides[v->s->src];
    struct cpu_operand o = {.row = from,
                            .n = n,
                            .f32 = v->r->scratch->normed,
                            .f32_bytes = stride * sizeof(float),
                            .q = v->r->scratch->rows,
                            .q_bytes = kern_qrow_bytes(width)};
    const struct cpu_weight *up = v->up != NULL ? v->up : v->gate;
    bool any_float = is_float(v->gate) || is_float(up), any_quantised = !is_float(v->gate) || !is_float(up);
    for (int32_t i = 0; i < n; i++) {
        const float *x = cpu_row(v->r, v->s->src, v->r->scratch->picks[from + i].row);
        if (any_float) {
            memcpy(v->r->scratch->normed + (size_t)i * stride, x, width * sizeof *x);
        }
        if (any_quantised) {
            v->r->m->kern.quantize_row(x, width, v->r->step->fine,
                                       (void *)(v->r->scratch->rows + (size_t)i * o.q_bytes));
        }
    }
    return o;
}

/* Computes hidden = act(gate) * up, or times 1, for panels [panel, end) of expert e and all its rows. */
static void run_gate_up(const struct view *v, uint32_t e, uint32_t panel, uint32_t end)
{
    const struct plan_step *s = v->s;
    uint32_t ff = v->gate->group_rows, first = e * v->gate->group_panels;
    float *gate = v->r->scratch->tile[0], *up = v->r->scratch->tile[1];
    const int32_t *begin = v->r->scratch->expert_begin;
    for (int32_t row = begin[e]; row < begin[e + 1]; row += (int32_t)CPU_TILE_ROWS) {
        struct cpu_operand o = gather(v, row, MIN_OF(begin[e + 1] - row, (int32_t)CPU_TILE_ROWS));
        uint32_t n;
        for (uint32_t p = panel; p < end; p += n) {
            n = MIN_OF(cpu_tile_panels(v->gate), end - p);
            uint32_t column = p * PANEL_ROWS, columns = MIN_OF(n * PANEL_ROWS, ff - column);
            cpu_multiply(v->r, v->gate, first + p, n, &o, gate);
            if (v->up != NULL) {
                cpu_multiply(v->r, v->up, first + p, n, &o, up);
            }
            for (int32_t i = 0; i < o.n; i++) {
                size_t at = (size_t)i * n * PANEL_ROWS;
                weigh(v, row + i, gate + at, up + at, columns);
                add_bias(v, s->bias[0], (size_t)e * ff + column, gate + at, columns);
                for (uint32_t j = 0; v->up == NULL && j < columns; j++) {
                    up[at + j] = 1.0f;
                }
                add_bias(v, s->bias[1], (size_t)e * ff + column, up + at, columns);
                cpu_limit(s, gate + at, up + at, columns);
                v->r->m->kern.glu((enum kern_act)s->act, gate + at, up + at, columns, hidden_of(v, row + i) + column);
            }
        }
    }
}

/* Runs tasks until none is left. With few rows an expert is several tasks; with many, one task, which prepares its rows
 * once. */
static void run_tasks(const struct view *v)
{
    uint32_t n_experts = v->r->m->plan->moe.n_experts, panels = v->gate->group_panels, group = cpu_tile_panels(v->gate);
    uint32_t cuts = v->n_picks > (int32_t)CPU_TILE_ROWS * v->r->n_threads ? 1 : (panels + group - 1) / group;
    atomic_int *next = &v->r->m->tasks[v->r->step - v->r->m->steps];
    for (;;) {
        uint32_t task = (uint32_t)atomic_fetch_add_explicit(next, 1, memory_order_relaxed), e = task / cuts;
        if (e >= n_experts) {
            return;
        }
        int from, to;
        pool_share((int)panels, (int)(task % cuts), (int)cuts, &from, &to);
        run_gate_up(v, e, (uint32_t)from, (uint32_t)to);
    }
}

/* Quantizes hidden rows [from, to) to `q`, beginning with row `from`. */
static void quantise_hidden(const struct view *v, int32_t from, int32_t to, unsigned char *q)
{
    size_t bytes = kern_qrow_bytes(v->down->n_in);
    for (int32_t i = from; i < to; i++, q += bytes) {
        v->r->m->kern.quantize_row(hidden_of(v, i), v->down->n_in, v->r->step->fine, (void *)q);
    }
}

/* Adds panels [panel, end) of every expert's output to its rows. q: all hidden rows, quantized. */
static void run_down(const struct view *v, uint32_t panel, uint32_t end, const unsigned char *q)
{
    uint32_t width = v->down->group_rows;
    const int32_t *begin = v->r->scratch->expert_begin;
    size_t q_bytes = kern_qrow_bytes(v->down->n_in);
    float *tile = v->r->scratch->tile[0];
    uint32_t first = panel * PANEL_ROWS, wide = MIN_OF((end - panel) * PANEL_ROWS, width - MIN_OF(first, width));
    for (int32_t row = 0; !v->s->adds && row < v->r->n_rows; row++) {
        memset(cpu_row(v->r, v->s->dst, row) + first, 0, wide * sizeof(float));
    }
    for (uint32_t e = 0; e < v->r->m->plan->moe.n_experts; e++) {
        for (int32_t row = begin[e]; row < begin[e + 1]; row += (int32_t)CPU_TILE_ROWS) {
            struct cpu_operand o = {.row = row,
                                    .n = MIN_OF(begin[e + 1] - row, (int32_t)CPU_TILE_ROWS),
                                    .f32 = hidden_of(v, row),
                                    .f32_bytes = v->r->m->experts.hidden_stride * sizeof(float),
                                    .q = q + (size_t)row * q_bytes,
                                    .q_bytes = q_bytes};
            uint32_t n;
            for (uint32_t p = panel; p < end; p += n) {
                n = MIN_OF(cpu_tile_panels(v->down), end - p);
                uint32_t column = p * PANEL_ROWS, columns = MIN_OF(n * PANEL_ROWS, width - column);
                cpu_multiply(v->r, v->down, e * v->down->group_panels + p, n, &o, tile);
                for (int32_t i = 0; i < o.n; i++) {
                    const struct cpu_pick *pick = &v->r->scratch->picks[row + i];
                    float *y = tile + (size_t)i * n * PANEL_ROWS, *out = cpu_row(v->r, v->s->dst, pick->row) + column;
                    float weight = v->s->scale * (v->s->experts.weighs_input ? 1.0f : pick->weight);
                    add_bias(v, v->s->bias[2], (size_t)e * width + column, y, columns);
                    for (uint32_t j = 0; j < columns; j++) {
                        out[j] += weight * y[j];
                    }
                }
            }
        }
    }
}

void cpu_experts_run(const struct cpu_run *r)
{
    struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    struct view v = {.r = r,
                     .s = s,
                     .gate = &m->weights[s->w[0]],
                     .up = s->w[1] != PLAN_NONE ? &m->weights[s->w[1]] : NULL,
                     .down = &m->weights[s->w[2]],
                     .n_picks = r->n_rows * (int32_t)m->plan->moe.n_used};
    int from, to;
    sort_picks(&v);
    run_tasks(&v);
    pool_barrier(m->pool);
    unsigned char *q = NULL;
    /* Each thread quantizes all rows, which saves a barrier. */
    if (!is_float(v.down) && v.n_picks <= (int32_t)CPU_TILE_ROWS) {
        q = r->scratch->rows;
        quantise_hidden(&v, 0, v.n_picks, q);
    } else if (!is_float(v.down)) {
        q = m->experts.hidden_q;
        pool_share(v.n_picks, r->thread, r->n_threads, &from, &to);
        quantise_hidden(&v, from, to, q + (size_t)from * kern_qrow_bytes(v.down->n_in));
        pool_barrier(m->pool);
    }
    pool_share((int)v.down->group_panels, r->thread, r->n_threads, &from, &to);
    run_down(&v, (uint32_t)from, (uint32_t)to, q);
}
