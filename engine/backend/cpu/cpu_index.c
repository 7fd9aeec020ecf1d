/* The index of latent attention [DeepSeek-AI 2025, "DeepSeek-V3.2"], which chooses the positions that attention reads. A
 * page's index keys are two panels (index_keys.h), so the product of all index heads with them is one of matrices. Attention
 * reads chosen latents from a copy, in pages of the same layout, so it needs no kernels of its own. The tasks depend on the
 * batch and the threads; the bits of a row do not. */
#include "engine/backend/choose_positions.h"
#include "engine/backend/cpu/cpu_internal.h"

#include <string.h>

enum { RUN_ROWS = 8 }; /* rows of a task of attention, if there are enough for all threads */

/* Per-thread memory. */
struct cpu_index {
    float *queries;         /* [Hi][stride] of a row, aligned */
    float *dots;            /* [Hi][KV_PAGE_TOKENS] of a row and a page */
    float *scores;          /* [positions that the pages can hold] of a row */
    unsigned char *latents; /* [pages] of those chosen by a row */
    int32_t *pages;         /* 0, 1 ..: the page table of latents */
};

static size_t query_stride(size_t d) { return cpu_align_up(d * sizeof(float)) / sizeof(float); }

/* Returns the bytes of a page of copied latents. */
static size_t latent_bytes(const struct backend_model *m)
{
    return kv_layout_of_latents(m->k_type, (int)m->plan->head_dim, (int)m->plan->latent_dim).bytes;
}

void cpu_index_lay_out(struct backend_model *m, size_t *at)
{
    const struct plan *p = m->plan;
    size_t heads = 0, most = 0, positions = (size_t)m->cfg.n_pages * KV_PAGE_TOKENS;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_CHOOSE) {
            heads = MAX_OF(heads, (size_t)p->bufs[s->choose.weights].width);
            most = MAX_OF(most, (size_t)p->bufs[s->dst].width);
        }
    }
    m->index = most != 0 ? cpu_take(m, at, (size_t)m->cfg.n_threads * sizeof *m->index) : NULL;
    size_t pages = MIN_OF((most + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, (size_t)m->cfg.n_pages);
    for (int t = 0; most != 0 && t < m->cfg.n_threads; t++) {
        struct cpu_index own = {
            .queries = cpu_take(m, at, heads * query_stride(p->index_dim) * sizeof(float)),
            .dots = cpu_take(m, at, heads * KV_PAGE_TOKENS * sizeof(float)),
            .scores = cpu_take(m, at, positions * sizeof(float)),
            .latents = cpu_take(m, at, pages * latent_bytes(m)),
            .pages = cpu_take(m, at, pages * sizeof(int32_t)),
        };
        for (size_t i = 0; own.pages != NULL && i < pages; i++) {
            own.pages[i] = (int32_t)i;
        }
        if (m->index != NULL) {
            m->index[t] = own;
        }
    }
}

static const struct cpu_kv *kv_of(const struct cpu_run *r) { return &r->m->kvs[r->step->step.layer]; }

static const int32_t *table_of(const struct cpu_run *r, int32_t row)
{
    return backend_table(r->batch, kv_of(r)->is_local, r->batch->seq[row]);
}

void cpu_index_row(const struct cpu_run *r, int32_t row)
{
    const struct plan_step *s = &r->step->step;
    const struct plan_rope *rope = &r->m->plan->ropes[s->heads.rope];
    size_t d = kv_of(r)->heads.index_dim, half = rope->n_rot / 2, width = cpu_width(r, s->src);
    const float *cos = r->m->rope_cos[s->heads.rope] + (size_t)row * half;
    const float *sin = r->m->rope_sin[s->heads.rope] + (size_t)row * half;
    float *q = cpu_row(r, s->dst, row), *key = r->scratch->tile[0];
    int32_t pos = r->batch->pos[row];
    memcpy(key, cpu_row(r, s->heads.keys, row), d * sizeof *key);
    for (size_t at = 0; rope->n_rot != 0 && at < width; at += d) {
        r->m->kern.rope(q + at + rope->first, (int)rope->n_rot, rope->is_neox, cos, sin);
    }
    if (rope->n_rot != 0) {
        r->m->kern.rope(key + rope->first, (int)rope->n_rot, rope->is_neox, cos, sin);
    }
    index_keys_store(&kv_of(r)->index, key, pos % KV_PAGE_TOKENS,
                     cpu_index_keys(r->m, s->layer, table_of(r, row)[pos / KV_PAGE_TOKENS]));
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

/* Computes scores[KV_PAGE_TOKENS] of the page's slots; those after the last position are meaningless. The order of the sum
 * is that of the heads. */
static void score_page(const struct cpu_run *r, int32_t row, int32_t page, float *scores)
{
    const struct plan_step *s = &r->step->step;
    const struct index_keys *x = &kv_of(r)->index;
    const struct cpu_index *own = &r->m->index[r->thread];
    const float *weights = cpu_row(r, s->choose.weights, row);
    size_t n_heads = cpu_width(r, s->choose.weights), d = (size_t)x->d;
    const struct kern_matmul_args a = {.panels = cpu_index_keys(r->m, s->layer, page),
                                       .n_panels = KV_PAGE_TOKENS / PANEL_ROWS,
                                       .k = d,
                                       .rows = own->queries,
                                       .row_bytes = query_stride(d) * sizeof(float),
                                       .n_rows = (int)n_heads,
                                       .out = own->dots,
                                       .out_stride = KV_PAGE_TOKENS};
    r->m->kern.matmul[x->type == KV_TYPE_F16 ? PANEL_F16 : PANEL_BF16](&a);
    memset(scores, 0, KV_PAGE_TOKENS * sizeof *scores);
    for (size_t h = 0; h < n_heads; h++) {
        const float *dots = own->dots + h * KV_PAGE_TOKENS;
        for (int i = 0; i < KV_PAGE_TOKENS; i++) {
            scores[i] += weights[h] * (dots[i] < 0 ? 0 : dots[i]); /* a NaN stays */
        }
    }
}

/* Computes a part of the scores of a row: those of the pages in share `part` of n_parts. */
static void score(const struct cpu_run *r, int32_t row, int part, int n_parts, float *scores)
{
    const struct plan_step *s = &r->step->step;
    int32_t n = r->batch->pos[row] + 1;
    size_t d = kv_of(r)->heads.index_dim, n_heads = cpu_width(r, s->choose.weights);
    int from, to;
    if (n <= (int32_t)cpu_width(r, s->dst)) {
        return; /* all positions are chosen */
    }
    for (size_t h = 0; h < n_heads; h++) {
        memcpy(r->m->index[r->thread].queries + h * query_stride(d), cpu_row(r, s->src, row) + h * d,
               d * sizeof(float));
    }
    pool_share((n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, part, n_parts, &from, &to);
    for (int i = from; i < to; i++) {
        score_page(r, row, table_of(r, row)[i], scores + (size_t)i * KV_PAGE_TOKENS);
    }
}

static void choose(const struct cpu_run *r, int32_t row, const float *scores)
{
    plan_buf_id dst = r->step->step.dst;
    choose_positions(scores, r->batch->pos[row] + 1, (int32_t)cpu_width(r, dst), cpu_row(r, dst, row));
}

/* Returns the thread's next task of the step. Relaxed: the barriers around the step order the data. */
static int take(const struct cpu_run *r)
{
    return atomic_fetch_add_explicit(&r->m->tasks[r->step - r->m->steps], 1, memory_order_relaxed);
}

/* A row is a thread's; the threads share each of fewer rows, whose scores are in the memory of as many threads. */
void cpu_index_choose(const struct cpu_run *r)
{
    if (r->n_rows >= r->n_threads) {
        float *scores = r->m->index[r->thread].scores;
        for (int row; (row = take(r)) < r->n_rows;) {
            score(r, row, 0, 1, scores);
            choose(r, row, scores);
        }
        return;
    }
    for (int32_t row = 0; row < r->n_rows; row++) {
        score(r, row, r->thread, r->n_threads, r->m->index[row].scores);
    }
    pool_barrier(r->m->pool);
    if (r->thread < r->n_rows) {
        choose(r, r->thread, r->m->index[r->thread].scores);
    }
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* Copies the n chosen latents of a row to the thread's pages. */
static void copy_latents(const struct cpu_run *r, int32_t row, int32_t n)
{
    const struct plan_step *s = &r->step->step;
    const struct kv_layout *l = &kv_of(r)->layout;
    const float *chosen = cpu_row(r, s->attention.chosen, row);
    for (int32_t i = 0; i < n; i++) {
        int32_t pos = (int32_t)chosen[i], page = table_of(r, row)[pos / KV_PAGE_TOKENS];
        const uint16_t *from = (const uint16_t *)(const void *)cpu_keys(r->m, s->layer, 0, page);
        unsigned char *to_page = r->m->index[r->thread].latents + (size_t)(i / KV_PAGE_TOKENS) * l->k.bytes;
        uint16_t *to = (uint16_t *)(void *)to_page;
        for (int j = 0; j < l->d; j += 32) { /* a block is contiguous */
            memcpy(to + kv_value_element(l->d, i % KV_PAGE_TOKENS, j),
                   from + kv_value_element(l->d, pos % KV_PAGE_TOKENS, j), (size_t)MIN_OF(32, l->d - j) * sizeof *to);
        }
    }
}

/* Computes shares [share, share_to) of the heads of rows [row, row + n_rows): one that sees chosen positions, or some of a
 * sequence that see all. */
static void attend(const struct cpu_run *r, int32_t row, int32_t n_rows, int share, int share_to)
{
    const struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    const struct cpu_kv *kv = &m->kvs[s->layer];
    int32_t n_chosen = (int32_t)cpu_width(r, s->attention.chosen), last = n_chosen - 1;
    bool is_chosen = r->batch->pos[row] >= n_chosen;
    size_t n_group = cpu_attention_heads(&kv->heads), d = kv->heads.head_dim, d_value = kv->heads.latent_dim;
    const unsigned char *latents = is_chosen ? m->index[r->thread].latents : cpu_keys(m, s->layer, 0, 0);
    if (is_chosen) {
        copy_latents(r, row, n_chosen);
    }
    struct kern_attention_args a = {
        .q_stride = m->strides[s->src],
        .out_stride = m->strides[s->dst],
        .pos = is_chosen ? &last : r->batch->pos + row,
        .n_rows = n_rows,
        .n_group = (int)n_group,
        .kv = kv->layout,
        .keys = latents,
        .values = latents,
        .page_bytes = is_chosen ? kv->layout.k.bytes : m->kv_pools[kv->is_local].page_bytes,
        .pages = is_chosen ? m->index[r->thread].pages : table_of(r, row),
        .scale = s->scale,
        .softcap = s->attention.softcap,
    };
    for (; share < share_to; share++) {
        size_t head = (size_t)share * n_group;
        a.q = cpu_row(r, s->src, row) + head * d;
        a.out = cpu_row(r, s->dst, row) + head * d_value;
        a.sinks = s->w[0] == PLAN_NONE ? NULL : m->weights[s->w[0]].vector + head;
        m->kern.attention(&a);
    }
}

/* Divides rows [row, end) into calls of attend(). */
static void attend_run(const struct cpu_run *r, int32_t row, int32_t end, int share, int share_to)
{
    const int32_t *pos = r->batch->pos, *seq = r->batch->seq;
    int32_t n_chosen = (int32_t)cpu_width(r, r->step->step.attention.chosen);
    for (int32_t n; row < end; row += n) {
        for (n = 1; row + n < end && seq[row + n] == seq[row] && pos[row + n] < n_chosen; n++) {
        }
        attend(r, row, n, share, share_to);
    }
}

/* A task is all heads of some rows, or with few rows a share of the heads of one. */
void cpu_index_attend(const struct cpu_run *r)
{
    const struct plan_kv *heads = &kv_of(r)->heads;
    int n_shares = (int)(heads->n_heads / cpu_attention_heads(heads));
    int n_rows = r->n_rows >= RUN_ROWS * r->n_threads ? RUN_ROWS : 1;
    int n_parts = r->n_rows < r->n_threads ? n_shares : 1;
    int n_tasks = (r->n_rows + n_rows - 1) / n_rows * n_parts;
    for (int task; (task = take(r)) < n_tasks;) {
        int32_t row = task / n_parts * n_rows;
        int share = task % n_parts;
        attend_run(r, row, MIN_OF(row + n_rows, r->n_rows), share, n_parts > 1 ? share + 1 : n_shares);
    }
}
