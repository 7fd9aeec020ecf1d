/* Attention on all threads. The rows of a batch are divided into blocks of one sequence. A task is a block and a KV
 * head with all query heads of its group, so keys and values are read once for the group. Large groups, which share
 * latents, are divided into several tasks. A block that is long compared with all others is divided further into the
 * segments of kern.h: a single stream with a long context has only one task per KV head. The thread that finishes the
 * last segment joins them. The tasks depend on the batch and the threads; the bits of a row do not. */
#include "engine/backend/cpu/cpu_internal.h"

enum {
    ATTENTION_ROWS = 32,  /* rows of a block */
    SPLIT_ROWS = 8,       /* rows of a split block, whose records are in memory */
    TASKS_PER_THREAD = 8, /* largest task: this fraction of a thread's share */
    RECORD_ROWS = 4,      /* rows whose records fit, each as long as the whole KV pool */
    LATENT_HEADS = 16,    /* heads per task that share latents: their products take longer than reading the page */
};

/* Tasks in order, first for one thread or for all. On its own cache line, because it changes often. */
struct cpu_queue {
    _Alignas(64) _Atomic uint64_t taken; /* tasks taken; the upper half is the step's number plus 1 */
};

/* Rows of one sequence, and how they are divided. */
struct cpu_block {
    int32_t row, n_rows;
    int32_t n_segments; /* 0: not split */
    int n_pieces;       /* pieces that the segments of a share form */
    size_t records;     /* floats before its records; shares are contiguous */
};

/* A block (n 0), or some segments of it. */
struct cpu_piece {
    int32_t block, segment, n;
};

struct cpu_attention {
    const int32_t *pos;       /* [n_rows] last position visible to each row of this batch */
    int32_t *ends;            /* [max_rows] memory of pos for a bidirectional plan */
    struct cpu_block *blocks; /* [max_rows] of this batch */
    struct cpu_piece *pieces; /* [max_pieces] approximately longest first */
    int32_t n_blocks, n_pieces, max_pieces;
    struct cpu_queue *queues; /* [n_threads] */
    int n_queues;             /* of this batch: n_threads, or 1 */
    uint32_t max_shares;      /* of the layer with the most */
    atomic_int *open;         /* [max_rows][max_shares] unfinished pieces of a block */
    float *records;
    size_t max_record_floats;
};

/* Returns kern_part_floats of the widest layer. */
static size_t part_floats(const struct backend_model *m) { return kern_part_floats((int)plan_value_dim(m->plan)); }

uint32_t cpu_attention_heads(const struct plan_kv *kv)
{
    uint32_t n = kv->n_heads / kv->n_kv_heads;
    return kv->latent_dim != 0 && n % LATENT_HEADS == 0 ? (uint32_t)LATENT_HEADS : n;
}

static uint32_t most_shares(const struct plan *p)
{
    uint32_t most = 1;
    for (int32_t i = 0; i < (int32_t)p->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(p, i);
        most = kv.layer != PLAN_NONE ? MAX_OF(most, kv.n_heads / cpu_attention_heads(&kv)) : most;
    }
    return most;
}

void cpu_attention_lay_out(struct backend_model *m, size_t *at)
{
    /* segments of the longest sequence that the pool can hold */
    int32_t longest = (int32_t)((int64_t)m->cfg.n_pages * KV_PAGE_TOKENS / KERN_SEGMENT_TOKENS) + 1;
    size_t max_rows = (size_t)m->cfg.max_rows, n_records = (size_t)(RECORD_ROWS * longest);
    struct cpu_attention t = {.max_shares = most_shares(m->plan),
                              .max_pieces = (int32_t)(max_rows + n_records),
                              .max_record_floats = n_records * m->plan->n_heads * part_floats(m)};
    t.ends = cpu_take(m, at, max_rows * sizeof *t.ends);
    t.blocks = cpu_take(m, at, max_rows * sizeof *t.blocks);
    t.pieces = cpu_take(m, at, (size_t)t.max_pieces * sizeof *t.pieces);
    t.queues = cpu_take(m, at, (size_t)m->cfg.n_threads * sizeof *t.queues);
    t.open = cpu_take(m, at, max_rows * t.max_shares * sizeof *t.open);
    t.records = cpu_take(m, at, t.max_record_floats * sizeof *t.records);
    m->attention = cpu_take(m, at, sizeof t);
    if (m->attention != NULL) {
        *m->attention = t;
    }
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

/* Lists the last visible position of rows: their own, or the last of their sequence. */
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

/* Divides the rows into blocks of one sequence each, with at most `rows` rows. */
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

/* Splits block b into segments if it is longer than `limit` and its records fit. Ignores windows: segments that no row
 * sees cost almost nothing. */
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
    for (int32_t b = t->n_blocks - 1; b >= 0; b--) { /* the last rows of a prompt are the longest */
        split_block(m, b, all / wanted, &records);
    }
    bool is_long = batch->n_rows > t->n_blocks * SPLIT_ROWS; /* its tasks differ in length */
    t->n_queues = is_long || t->n_pieces < m->cfg.n_threads ? 1 : m->cfg.n_threads;
    for (int i = 0; i < t->n_queues; i++) {
        atomic_store_explicit(&t->queues[i].taken, 0, memory_order_relaxed);
    }
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* Finds the positions visible to rows of a block in a step with a window to both sides, with chunks, or that skips
 * positions. */
static void find_visible(const struct plan_step *s, const int32_t *own, struct kern_attention_args *a,
                         int32_t first[ATTENTION_ROWS], int32_t last[ATTENTION_ROWS])
{
    for (int32_t i = 0; i < a->n_rows; i++) {
        bool has_window = s->attention.window > 0;
        first[i] = MAX_OF(plan_first_seen(s, own[i]), MIN_OF(s->attention.skips, own[i]));
        last[i] = has_window ? MIN_OF(own[i] + s->attention.ahead, a->pos[i]) : a->pos[i];
    }
    a->first = first;
    a->pos = last;
}

/* Returns the keys and values that a task reads, and the positions visible to its rows. */
static struct kern_attention_args args_of(const struct cpu_run *r, int task, int n_shares)
{
    const struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    const struct cpu_attention *t = m->attention;
    const struct cpu_block *b = &t->blocks[t->pieces[task / n_shares].block];
    const struct cpu_kv *kv = &m->kvs[s->layer];
    uint32_t n_heads = cpu_attention_heads(&kv->heads), head = (uint32_t)(task % n_shares) * n_heads;
    uint32_t kv_head = head / (kv->heads.n_heads / kv->heads.n_kv_heads), reach = s->attention.reach;
    const float *by_head = s->w[1] != PLAN_NONE ? m->weights[s->w[1]].vector + head * (2 * (size_t)reach + 1) : NULL;
    return (struct kern_attention_args){
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
        .page_bytes = m->kv_pools[kv->is_local].page_bytes,
        .pages = backend_table(r->batch, kv->is_local, r->batch->seq[b->row]),
        .window = s->attention.window,
        .scale = s->scale,
        .softcap = s->attention.softcap,
        .sinks = s->w[0] == PLAN_NONE ? NULL : m->weights[s->w[0]].vector + head,
        .slopes = reach == 0 ? by_head : NULL,
        .biases = reach != 0 ? by_head : NULL,
        .reach = (int)reach,
        .own = r->batch->pos + b->row,
    };
}

/* Sets the pages that *a prefetches at its end: the first pages of a task. */
static void fetch_ahead(const struct cpu_run *r, int task, int n_shares, struct kern_attention_args *a)
{
    const struct cpu_piece *piece = &r->m->attention->pieces[task / n_shares];
    struct kern_attention_args next = args_of(r, task, n_shares);
    int32_t from = MAX_OF(kern_visible_from(&next, 0), piece->segment * KERN_SEGMENT_TOKENS);
    size_t page = (size_t)next.pages[from / KV_PAGE_TOKENS];
    a->next_keys = next.keys + page * next.page_bytes;
    a->next_values = next.values + page * next.page_bytes;
}

/* Runs a task. next: this thread's likely next task; n_tasks: none. */
static void run_task(const struct cpu_run *r, int task, int next, int n_tasks, int n_shares)
{
    int32_t first[ATTENTION_ROWS], last[ATTENTION_ROWS];
    const struct backend_model *m = r->m;
    const struct plan_step *s = &r->step->step;
    struct cpu_attention *t = m->attention;
    const struct cpu_piece *piece = &t->pieces[task / n_shares];
    const struct cpu_block *b = &t->blocks[piece->block];
    size_t share = (size_t)(task % n_shares);
    struct kern_attention_args a = args_of(r, task, n_shares);
    if (next < n_tasks) {
        fetch_ahead(r, next, n_shares, &a);
    }
    if ((m->plan->is_bidirectional && s->attention.window > 0) || s->attention.skips > 0 || s->attention.in_chunks) {
        find_visible(s, r->batch->pos + b->row, &a, first, last);
    }
    if (piece->n == 0) {
        m->kern.attention(&a);
        return;
    }
    size_t stride = (size_t)(b->n_rows * a.n_group) * part_floats(m);
    float *records = t->records + b->records + stride * (size_t)b->n_segments * share;
    m->kern.attention_part(&a, piece->segment, piece->n, records + stride * (size_t)piece->segment, stride);
    atomic_int *open = &t->open[(uint32_t)piece->block * t->max_shares + share];
    if (atomic_fetch_sub_explicit(open, 1, memory_order_acq_rel) == 1) { /* pairs with the others' */
        m->kern.attention_join(&a, records, stride, b->n_segments);
        atomic_store_explicit(open, b->n_pieces, memory_order_relaxed); /* for the next layer, after a barrier */
    }
}

/* Returns the next task of a queue, or -1. Relaxed: the barriers around the step order the data. */
static int take(const struct cpu_run *r, int queue, int n_shares)
{
    struct cpu_attention *t = r->m->attention;
    _Atomic uint64_t *taken = &t->queues[queue].taken;
    uint64_t step = (uint64_t)(r->step - r->m->steps + 1) << 32,
             old = atomic_load_explicit(taken, memory_order_relaxed), at;
    int from, to;
    pool_share(t->n_pieces, queue, t->n_queues, &from, &to);
    do {
        at = old >> 32 << 32 == step ? old : step;
        if ((int)(uint32_t)at >= (to - from) * n_shares) {
            return -1;
        }
    } while (!atomic_compare_exchange_weak_explicit(taken, &old, at + 1, memory_order_relaxed, memory_order_relaxed));
    return from * n_shares + (int)(uint32_t)at;
}

/* If sequences have few rows each, a thread runs its own tasks before it helps others. By rows, it has just written the
 * keys and values of these tasks. It also knows its next tasks and can prefetch their pages; short sequences would
 * otherwise spend much of the time waiting for memory. Pieces are in order from the last row to the first, so the first
 * thread has the last queue. */
void cpu_attention_run(const struct cpu_run *r)
{
    const struct cpu_attention *t = r->m->attention;
    const struct plan_kv *heads = &r->m->kvs[r->step->step.layer].heads;
    if (r->step->step.attention.chosen != PLAN_NONE) {
        cpu_index_attend(r);
        return;
    }
    int n_shares = (int)(heads->n_heads / cpu_attention_heads(heads));
    int n_tasks = t->n_pieces * n_shares, apart = t->n_queues > 1 ? 1 : r->n_threads;
    for (int i = 0; i < t->n_queues; i++) {
        int queue = (2 * t->n_queues - 1 - r->thread + i) % t->n_queues;
        for (int task; (task = take(r, queue, n_shares)) >= 0;) {
            run_task(r, task, MIN_OF(task + apart, n_tasks), n_tasks, n_shares);
        }
    }
}
