/* Attention on all threads. A batch's rows are cut into blocks of one sequence; a task is a block by a KV head with all
 * query heads of its group, so that keys and values are read once for the group; of a group of very many, which share
 * latents, some are a task. Where a block is long against all the
 * others (one stream behind a long context has as many tasks as KV heads), it is cut further into the segments of
 * kern.h, and who finishes the last one joins them. Which tasks there are depends on the batch and the threads; the
 * bits of a row do not. */
#include "engine/backend/cpu/cpu_internal.h"

enum {
    ATTENTION_ROWS = 32,  /* rows of a block */
    SPLIT_ROWS = 8,       /* rows of a block that is split: its records wait in memory */
    TASKS_PER_THREAD = 8, /* no task should be more than this part of a thread's share */
    RECORD_ROWS = 4,      /* rows as long as the whole KV pool whose records fit */
    LATENT_HEADS = 16,    /* heads of a task that share latents: their products take longer than reading the page */
};

/* Rows of one sequence, and how they are cut. */
struct cpu_block {
    int32_t row, n_rows;
    int32_t n_segments; /* 0: in one piece */
    int n_pieces;       /* that a share's segments are dealt in */
    size_t records;     /* floats before its records; the shares follow each other */
};

/* A block (n 0), or some segments of it. */
struct cpu_piece {
    int32_t block, segment, n;
};

struct cpu_attention {
    const int32_t *pos;       /* [n_rows] last position that each row of this batch sees */
    int32_t *ends;            /* [max_rows] those of a bidirectional plan */
    struct cpu_block *blocks; /* [max_rows] of this batch */
    struct cpu_piece *pieces; /* [max_pieces] longest first, more or less */
    int32_t n_blocks, n_pieces, max_pieces;
    uint32_t max_shares; /* of the layer that has most */
    atomic_int *open;    /* [max_rows][max_shares] pieces of a block that are not finished */
    float *records;
    size_t max_record_floats;
};

/* Segments of the longest sequence that the pool can hold. */
static int32_t longest(const struct backend_model *m)
{
    return (int32_t)((int64_t)m->cfg.n_pages * KV_PAGE_TOKENS / KERN_SEGMENT_TOKENS) + 1;
}

/* Of the widest layer. */
static size_t part_floats(const struct backend_model *m) { return kern_part_floats((int)plan_value_dim(m->plan)); }

/* Query heads are dealt in shares of so many, that have one KV head. */
static uint32_t share_heads(const struct plan *p, const struct plan_kv *kv)
{
    uint32_t n = p->n_heads / kv->n_kv_heads;
    return kv->latent_dim != 0 && n % LATENT_HEADS == 0 ? (uint32_t)LATENT_HEADS : n;
}

static uint32_t most_shares(const struct plan *p)
{
    uint32_t most = 1;
    for (int32_t i = 0; i < (int32_t)p->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(p, i);
        most = kv.layer != PLAN_NONE ? MAX_OF(most, p->n_heads / share_heads(p, &kv)) : most;
    }
    return most;
}

void cpu_attention_lay_out(struct backend_model *m, size_t *at)
{
    size_t max_rows = (size_t)m->cfg.max_rows, n_records = (size_t)(RECORD_ROWS * longest(m));
    struct cpu_attention t = {.max_shares = most_shares(m->plan),
                              .max_pieces = (int32_t)(max_rows + n_records),
                              .max_record_floats = n_records * m->plan->n_heads * part_floats(m)};
    t.ends = cpu_take(m, at, max_rows * sizeof *t.ends);
    t.blocks = cpu_take(m, at, max_rows * sizeof *t.blocks);
    t.pieces = cpu_take(m, at, (size_t)t.max_pieces * sizeof *t.pieces);
    t.open = cpu_take(m, at, max_rows * t.max_shares * sizeof *t.open);
    t.records = cpu_take(m, at, t.max_record_floats * sizeof *t.records);
    m->attention = cpu_take(m, at, sizeof t);
    if (m->attention != NULL) {
        *m->attention = t;
    }
}

/* --- cutting ---------------------------------------------------------------------------------------------------- */

/* What rows see: up to themselves, or all of their sequence. */
static void list_visible(struct backend_model *m, const struct backend_batch *batch)
{
    struct cpu_attention *t = m->attention;
    t->pos = batch->pos;
    if (m->plan->is_bidirectional) {
        t->pos = t->ends;
        for (int32_t i = batch->n_rows - 1; i >= 0; i--) {
            bool is_last = i == batch->n_rows - 1 || batch->seq[i + 1] != batch->seq[i];
            t->ends[i] = is_last ? batch->pos[i] : t->ends[i + 1];
        }
    }
}

static int64_t cost_of(const struct cpu_attention *t, const struct cpu_block *b)
{
    return (int64_t)b->n_rows * (t->pos[b->row + b->n_rows - 1] + 1);
}

/* Cuts the rows into blocks of one sequence each, of `rows` at most. */
static void list_blocks(struct cpu_attention *t, const struct backend_batch *batch, int32_t rows)
{
    t->n_blocks = 0;
    for (int32_t i = 0; i < batch->n_rows; i++) {
        struct cpu_block *last = t->n_blocks > 0 ? &t->blocks[t->n_blocks - 1] : NULL;
        if (last == NULL || batch->seq[i] != batch->seq[i - 1] || last->n_rows == rows) {
            t->blocks[t->n_blocks++] = (struct cpu_block){.row = i, .n_rows = 1};
        } else {
            last->n_rows++;
        }
    }
}

/* Gives block b segments when it is longer than `limit` and its records fit. Windows are left out of account: segments
 * that no row sees cost next to nothing. */
static void split_block(struct backend_model *m, int32_t b, int64_t limit, size_t *records)
{
    struct cpu_attention *t = m->attention;
    struct cpu_block *block = &t->blocks[b];
    int32_t n = kern_last_segment(t->pos[block->row + block->n_rows - 1]) + 1;
    size_t floats = (size_t)(n * block->n_rows) * m->plan->n_heads * part_floats(m);
    if (n == 1 || block->n_rows > SPLIT_ROWS || cost_of(t, block) <= limit ||
        floats > t->max_record_floats - *records || n > t->max_pieces - t->n_pieces - (t->n_blocks - b)) {
        t->pieces[t->n_pieces++] = (struct cpu_piece){.block = b};
        return;
    }
    block->n_segments = n;
    block->records = *records;
    *records += floats;
    int64_t wanted = MIN_OF((cost_of(t, block) + limit / 2) / MAX_OF(limit, 1), n);
    int32_t run = (int32_t)((n + wanted - 1) / wanted);
    block->n_pieces = (n + run - 1) / run;
    for (int32_t s = 0; s < n; s += run) {
        t->pieces[t->n_pieces++] = (struct cpu_piece){.block = b, .segment = s, .n = MIN_OF(run, n - s)};
    }
    for (uint32_t i = 0; i < t->max_shares; i++) {
        atomic_store_explicit(&t->open[(uint32_t)b * t->max_shares + i], block->n_pieces, memory_order_relaxed);
    }
}

void cpu_attention_begin(struct backend_model *m, const struct backend_batch *batch)
{
    struct cpu_attention *t = m->attention;
    int32_t n_shares = (int32_t)t->max_shares, wanted = TASKS_PER_THREAD * m->cfg.n_threads;
    list_visible(m, batch);
    list_blocks(t, batch, ATTENTION_ROWS);
    if (t->n_blocks * n_shares < wanted) {
        list_blocks(t, batch, SPLIT_ROWS);
    }
    int64_t all = 0;
    for (int32_t b = 0; b < t->n_blocks; b++) {
        all += cost_of(t, &t->blocks[b]) * n_shares;
    }
    t->n_pieces = 0;
    size_t records = 0;
    for (int32_t b = t->n_blocks - 1; b >= 0; b--) { /* the late rows of a prompt are the long ones */
        split_block(m, b, all / wanted, &records);
    }
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* What rows of a block see in a step with a window to both sides. */
static void look_ahead(const struct plan_step *s, const int32_t *own, int32_t n_rows, struct kern_attention_args *a,
                       int32_t first[ATTENTION_ROWS], int32_t last[ATTENTION_ROWS])
{
    for (int32_t i = 0; i < n_rows; i++) {
        first[i] = MAX_OF(own[i] - s->attention.window + 1, 0);
        last[i] = MIN_OF(own[i] + s->attention.ahead, a->pos[i]);
    }
    a->first = first;
    a->pos = last;
}

static void run_task(const struct backend_model *m, const struct backend_batch *batch, const struct plan_step *s,
                     const struct cpu_piece *piece, uint32_t share)
{
    int32_t first[ATTENTION_ROWS], last[ATTENTION_ROWS];
    const struct plan *p = m->plan;
    struct cpu_attention *t = m->attention;
    const struct cpu_block *b = &t->blocks[piece->block];
    const struct cpu_kv *kv = &m->kvs[s->layer];
    uint32_t n_heads = share_heads(p, &kv->heads), head = share * n_heads;
    uint32_t kv_head = head / (p->n_heads / kv->heads.n_kv_heads);
    struct kern_attention_args a = {
        .q = m->bufs[s->src] + (size_t)b->row * m->strides[s->src] + (size_t)head * kv->heads.head_dim,
        .q_stride = m->strides[s->src],
        .out = m->bufs[s->dst] + (size_t)b->row * m->strides[s->dst] + (size_t)head * plan_kv_value_dim(&kv->heads),
        .out_stride = m->strides[s->dst],
        .pos = t->pos + b->row,
        .n_rows = b->n_rows,
        .n_group = (int)n_heads,
        .kv = kv->layout,
        .keys = cpu_keys(m, s->layer, kv_head, 0),
        .values = cpu_values(m, s->layer, kv_head, 0),
        .pages = backend_table(batch, kv->is_local, batch->seq[b->row]),
        .window = s->attention.window,
        .scale = s->scale,
        .softcap = s->attention.softcap,
        .sinks = s->w[0] == PLAN_NONE ? NULL : m->weights[s->w[0]].vector + head,
    };
    if (m->plan->is_bidirectional && s->attention.window > 0) {
        look_ahead(s, batch->pos + b->row, b->n_rows, &a, first, last);
    }
    if (piece->n == 0) {
        m->kern.attention(&a);
        return;
    }
    size_t stride = (size_t)b->n_rows * n_heads * part_floats(m);
    float *records = t->records + b->records + stride * (size_t)b->n_segments * share;
    m->kern.attention_part(&a, piece->segment, piece->n, records + stride * (size_t)piece->segment, stride);
    atomic_int *open = &t->open[(uint32_t)piece->block * t->max_shares + share];
    if (atomic_fetch_sub_explicit(open, 1, memory_order_acq_rel) == 1) { /* pairs with the others' */
        m->kern.attention_join(&a, records, stride, b->n_segments);
        atomic_store_explicit(open, b->n_pieces, memory_order_relaxed); /* for the next layer, behind a barrier */
    }
}

void cpu_attention_run(const struct cpu_run *r)
{
    struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    int n_shares = (int)(m->plan->n_heads / share_heads(m->plan, &m->kvs[s->layer].heads));
    int n_tasks = m->attention->n_pieces * n_shares;
    atomic_int *next = &m->tasks[r->step - m->steps]; /* relaxed: the barriers around the step order the data */
    for (int i; (i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < n_tasks;) {
        run_task(m, r->batch, s, &m->attention->pieces[i / n_shares], (uint32_t)(i % n_shares));
    }
}
