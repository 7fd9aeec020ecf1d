/* Shared by the files of the CPU back end only.
 *
 * A step runs in one of two ways, with the same bits either way:
 *   by columns (few rows, and the head): each thread computes its share of the output panels for all rows, and a
 * barrier follows;
 *   by rows (many rows): each thread computes all output panels for its share of the rows. Only steps that read other
 * threads' rows (attention) need barriers. */
#ifndef INFCGI_BACKEND_CPU_CPU_INTERNAL_H
#define INFCGI_BACKEND_CPU_CPU_INTERNAL_H

#include "engine/backend/backend.h"
#include "engine/base/io.h"
#include "engine/base/pool.h"
#include "engine/kernels/kern.h"
#include "engine/kv/index_keys.h"
#include "engine/plan/plan_ops.h"

#include <stdatomic.h>

enum {
    CPU_TILE_ROWS = 64,         /* token rows quantized and multiplied together: 64 rows of 576 inputs fit L1 and L2 */
    CPU_TILE_BYTES = 256 << 10, /* weights of one tile: a quarter of a 1 MiB L2 */
    CPU_TILE_COLUMNS = PLAN_MAX_HEAD, /* widest tile in outputs: the widest head */
    CPU_TILE_PANELS = 8,              /* panels of other tiles: 64 rows x 128 outputs are 32 KiB */
    /* From this number of rows per thread on, steps run by rows [measured: docs/internals/cpu.md]. */
    CPU_ROWS_PER_THREAD = 8,
    CPU_LOGITS_CHUNK = 1024, /* columns of the head per chunk: computed, then scanned for statistics */
    CPU_CHUNK_PANELS = CPU_LOGITS_CHUNK / PANEL_ROWS,
    /* Maximum rows of a batch that overtakes another; as many rows of the overtaken batch are saved. */
    CPU_OVERTAKING_ROWS = CPU_TILE_ROWS,
};

/* A packed matrix, or an f32 vector (norms, biases). */
struct cpu_weight {
    const unsigned char *panels; /* [n_panels] panels, panel_bytes apart; NULL for vectors */
    size_t panel_bytes;
    enum panel_kind kind;
    uint32_t n_out, n_in;
    uint32_t group_rows;   /* output rows that share panels only with each other: head_dim for Q, K and V, else n_out */
    uint32_t group_panels; /* panels of such a group */
    uint32_t n_panels;
    bool is_multiplied;   /* by a step that reads panels, even if it has one row */
    atomic_uint n_packed; /* panels, while they are being packed */
    const float *vector;  /* [n_in], 64-byte aligned */
};

/* Weights that are packed after open (cpu_weights.c). */
struct cpu_later {
    size_t n_packed;       /* slices that are packed */
    unsigned char *memory; /* [n_threads] rows of a panel, then [n_threads] tiles of panels; NULL: all are packed */
    size_t memory_bytes, rows_bytes, tile_bytes;
    uint64_t batch_ns; /* duration of the last batch */
};

/* A buffer of the plan, or, from PLAN_MAX_BUFS on, the second buffer that alternates with it. A step that updates rows
 * while other threads still read them writes to the second one. */
typedef int32_t cpu_buf_id;
enum { CPU_MAX_BUFS = 2 * PLAN_MAX_BUFS };

/* A plan step as the CPU back end runs it. */
struct cpu_step {
    struct plan_step step; /* its buffers are cpu_buf_ids; src is the input of the fused norms */
    /* An adding norm fused before the norm: renewed = src + rmsnorm(added) * post, which the norm then reads. */
    bool has_post;
    plan_weight_id post;
    float post_eps;
    cpu_buf_id added, renewed;
    plan_weight_id norm; /* RMSNorm fused before a matmul */
    float norm_eps;
    bool has_norm;
    int32_t at;      /* index of the step in the plan */
    bool alternates; /* by rows, the next step processes each tile of rows before this one continues with another */
    float fine;      /* threshold for a second term in blocks of quantized rows (kern.h) */
};

/* Returns whether the step is the matmul that computes logits. */
static inline bool cpu_is_head(const struct cpu_step *c)
{
    return c->step.rows == PLAN_LOGIT_ROWS && c->step.dst == PLAN_NONE;
}

/* A row and one of its experts. */
struct cpu_pick {
    int32_t row;
    float weight;
};

/* Per-thread memory. */
struct cpu_scratch {
    float *normed;          /* [CPU_TILE_ROWS][widest norm] f32 operand rows */
    unsigned char *rows;    /* [n][qrow bytes of the widest input] quantized operand rows */
    float *tile[2];         /* [CPU_TILE_ROWS][CPU_TILE_COLUMNS] outputs of a tile */
    int32_t *expert_begin;  /* [E + 1] */
    struct cpu_pick *picks; /* [max_rows * k] sorted by expert */
    float *drafting;        /* a head's state while drafts are computed */
};

/* The operand of a tile: rows [row, row + n) in the forms that its weights require. */
struct cpu_operand {
    int32_t row, n;
    const float *f32; /* rows f32_bytes apart */
    size_t f32_bytes;
    const unsigned char *q; /* rows q_bytes apart; NULL if no weight of the step is quantized */
    size_t q_bytes;
};

/* Memory of mixture-of-experts layers; all NULL if there are none. */
struct cpu_experts {
    float *hidden; /* [max_rows * k][hidden_stride] of an expert's feed-forward block, sorted by expert */
    size_t hidden_stride;
    unsigned char *hidden_q; /* the same, quantized */
};

/* The batch of the rows whose logits are requested (cpu_tail.c): [max_logits] each. */
struct cpu_tail {
    int32_t *tokens, *pos, *seq, *rows;
};

/* Contiguous pages, or window pages. */
struct cpu_kv_pool {
    size_t at, page_bytes; /* offset of the first page in the whole cache; bytes of a page */
    int32_t n_pages;
    int32_t highest;          /* highest page used; -1 = none */
    unsigned char *requested; /* memory was requested up to here (cpu_kv_ahead.c) */
};

/* Keys and values that a layer reads: in each page of its pool, for each KV head in sequence, keys and then values
 * (kv_type.h). Latents have no values, but can have index keys. */
struct cpu_kv {
    struct plan_kv heads;
    struct kv_layout layout;
    struct index_keys index; /* after latents */
    size_t at;               /* offset of the first head in a page */
    bool is_local;           /* they are in window pages */
};

struct backend_model {
    const struct plan *plan;
    struct backend_config cfg;
    enum kv_type k_type, v_type;
    struct backend_bytes bytes;
    struct kern_table kern;
    struct pool *pool;
    struct cpu_weight *weights; /* [plan->n_weights] */
    unsigned char *packed;      /* all panels and vectors; NULL if they are in pack_map */
    size_t slice_bytes;         /* of packed weights, packed by one thread at a time */
    struct cpu_later later;
    struct io_map pack_map; /* cpu_pack_cache.c; zero bytes: none */
    enum backend_pack_state pack_state;
    char pack_note[ERR_TEXT_BYTES]; /* why the cache was not used or not written; "" if it was */
    struct cpu_step *steps;
    int n_steps, n_main;              /* n_main: without those of the prediction head */
    int n_storing, n_storing_predict; /* as in the plan */
    struct cpu_kv *kvs;               /* [L]; equal for layers that share keys and values */
    unsigned char *kv;
    struct cpu_kv_pool kv_pools[2];  /* [is_local] */
    size_t pool_bytes, recurrent_at; /* of kv: bytes of all pages; offset of the recurrent states after them */
    float *recurrent;                /* [state] of bytes.state and bytes.drafts (backend_set_state_bytes) */
    float *bufs[CPU_MAX_BUFS];       /* [rows][stride] */
    int32_t buf_rows[CPU_MAX_BUFS];  /* max_rows, or fewer (cpu_buf_use) */
    size_t strides[CPU_MAX_BUFS];    /* floats, multiples of 16 */
    /* A buffer used only between a step that alternates and the next one. It has CPU_TILE_ROWS rows per thread.
     * PLAN_NONE: no such buffer, or batches are so small that all rows need no more. */
    plan_buf_id tile_buf;
    float *logits;    /* [max_logits][V], in the memory of buffers that are unused by then */
    enum err reduced; /* result of backend_config.reduce in this batch */
    float *rope_cos[PLAN_MAX_ROPES], *rope_sin[PLAN_MAX_ROPES]; /* [max_rows][n_rot/2] of this batch */
    struct cpu_scratch *scratch;                                /* [n_threads] */
    unsigned char *scratch_memory;
    atomic_int *tasks; /* [n_steps] next task of an attention or experts step; zeroed before each batch */
    struct cpu_experts experts;
    struct cpu_attention *attention;
    struct cpu_index *index; /* [n_threads] (cpu_index.c) */
    struct cpu_tail tail;
    uint32_t n_chunks;                     /* of a row of logits */
    struct backend_row_stats *chunk_stats; /* [max_logits][n_chunks] of this batch */
    const struct backend_batch *batch;     /* the batch being computed; NULL = none */
    atomic_int stop_after; /* step after which all threads leave the batch for one that overtakes it; -1 = none */
    float *aside;          /* saved rows that the overtaking batch overwrites (cpu_overtake.c) */
};

/* One thread's view of one batch. */
struct cpu_run {
    struct backend_model *m;
    const struct backend_batch *batch;
    struct cpu_scratch *scratch;
    const struct cpu_step *step, *end; /* the current step, and the one after the last */
    int thread, n_threads;
    int32_t n_rows;  /* rows of the current step */
    int32_t tile;    /* first row that this thread has in the tile buffer, by rows */
    bool is_by_rows; /* whether the current step runs by rows */
};

/* Functions and properties of an op (cpu_exec.c). */
struct cpu_op {
    void (*row)(const struct cpu_run *r, int32_t row); /* row by row, or .. */
    void (*run)(const struct cpu_run *r);              /* .. the thread's share; plan_ops.c determines the barriers */
    bool is_shared;                                    /* threads never share its work by rows */
    bool is_norm;                                      /* can be fused into the next step, if that .. */
    bool takes_norm;                                   /* .. normalizes the rows before it multiplies them */
    bool by_tiles; /* a matmul that, by rows, can alternate with the next one tile by tile */
};
extern const struct cpu_op cpu_ops[PLAN_OP_COUNT];

/* Returns a recurrent state. */
static inline float *cpu_state(const struct backend_model *m, int32_t id)
{
    return m->recurrent + (size_t)id * ((m->bytes.state + m->bytes.drafts) / sizeof(float));
}

/* Rounds a number of bytes up to a whole number of cache lines. */
static inline size_t cpu_align_up(size_t n) { return (n + 63) / 64 * 64; }

/* Takes `bytes` of the activations' memory at *at, advances *at, and returns the address. Before that memory is
 * allocated, it only advances and returns NULL. */
static inline void *cpu_take(const struct backend_model *m, size_t *at, size_t bytes)
{
    void *p = m->scratch_memory != NULL ? m->scratch_memory + *at : NULL;
    *at += cpu_align_up(bytes);
    return p;
}

/* Determine the layout of the plan's packed weights, then pack them into m->weights, or prepare to do so later
 * (cpu_weights.c). ERR_NOMEM, ERR_UNSUPPORTED_TYPE, ERR_CANCELLED. */
MUST_CHECK enum err cpu_weights_lay_out(struct backend_model *m, struct err_info *info);
MUST_CHECK enum err cpu_weights_pack(struct backend_model *m, struct err_info *info);

/* Returns whether some weights are not packed yet. Changes only between batches. */
static inline bool cpu_packs_later(const struct backend_model *m) { return m->later.memory != NULL; }

/* backend.idle: packs for some milliseconds. */
bool cpu_weights_idle(struct backend_model *m);

/* Packs before a batch of n_rows: everything if the batch has enough rows to pack a panel repeatedly, else for as long
 * as the last batch took. ERR_IO: the file was truncated. */
MUST_CHECK enum err cpu_weights_advance(struct backend_model *m, int32_t n_rows, struct err_info *info);

/* Returns the estimated time for packing what is left; 0: nothing. */
uint64_t cpu_weights_behind_ns(const struct backend_model *m);

/* Returns panels [panel, panel + n_panels) of w: in place, or, if they are not packed yet, packed into memory of the
 * thread, valid until its next call. n_panels: at most those of a head and cpu_tile_panels(w). */
const unsigned char *cpu_panels(const struct backend_model *m, const struct cpu_weight *w, uint32_t panel,
                                uint32_t n_panels, int thread);

/* Reports progress. Returns false if the caller of open no longer needs the weights. Only for the opening thread. */
bool cpu_report_progress(const struct backend_model *m, float fraction);
/* Returns ERR_CANCELLED and fills *info. */
enum err cpu_cancelled(struct err_info *info);
void cpu_weights_free(struct backend_model *m);

/* Keep the packed weights in a file in cfg.pack_cache (cpu_pack_cache.c). open maps and checks the model's file, if
 * there is a cache, and sets pack_state to BACKEND_PACK_MAPPED, or to BACKEND_PACK_WRITTEN if the file must be written.
 * write writes it in that case. Problems with the file are stored in pack_note and are no failure. ERR_NOMEM. */
MUST_CHECK enum err cpu_pack_cache_open(struct backend_model *m, struct err_info *info);
MUST_CHECK enum err cpu_pack_cache_write(struct backend_model *m, struct err_info *info);
const unsigned char *cpu_pack_cache_payload(const struct backend_model *m); /* bytes.weights bytes */
void cpu_pack_cache_close(struct backend_model *m);

/* Lists the steps, with norms fused into the following matmuls (cpu_steps.c). ERR_NOMEM. */
MUST_CHECK enum err cpu_steps_compile(struct backend_model *m, struct err_info *info);

/* How the steps use a buffer. */
struct cpu_buf_use {
    bool is_used;
    bool is_normed;    /* a norm reads it */
    bool by_tiles;     /* used only between a step that alternates and the next */
    bool after_gather; /* holds S rows at most */
    bool by_head;      /* the head reads it */
};
struct cpu_buf_use cpu_buf_use(const struct backend_model *m, cpu_buf_id buf);

/* Return the keys, and the values, of one KV head of one layer in a page. */
static inline unsigned char *cpu_keys(const struct backend_model *m, int32_t layer, uint32_t kv_head, int32_t page)
{
    const struct cpu_kv *kv = &m->kvs[layer];
    const struct cpu_kv_pool *pool = &m->kv_pools[kv->is_local];
    return m->kv + pool->at + (size_t)page * pool->page_bytes + kv->at + kv_head * (size_t)kv->layout.bytes;
}
static inline unsigned char *cpu_values(const struct backend_model *m, int32_t layer, uint32_t kv_head, int32_t page)
{
    const struct kv_layout *l = &m->kvs[layer].layout;
    return cpu_keys(m, layer, kv_head, page) + (l->is_latent ? 0 : l->k.bytes);
}

/* Returns the bytes of a layer in a page; its index keys in a page. */
static inline size_t cpu_layer_bytes(const struct cpu_kv *kv)
{
    return kv->heads.n_kv_heads * (size_t)kv->layout.bytes + kv->index.bytes;
}
static inline unsigned char *cpu_index_keys(const struct backend_model *m, int32_t layer, int32_t page)
{
    return cpu_keys(m, layer, 0, page) + m->kvs[layer].layout.bytes;
}

/* Requests memory of the KV cache from the kernel ahead of its use, in small portions (cpu_kv_ahead.c). One thread
 * calls it before each batch. */
void cpu_kv_ahead(struct backend_model *m, const struct backend_batch *batch);

/* Allocates the memory of attention (cpu_attention.c). */
void cpu_attention_lay_out(struct backend_model *m, size_t *at);

/* Returns the query heads of a task, which have one KV head (cpu_attention.c). */
uint32_t cpu_attention_heads(const struct plan_kv *kv);

/* Allocates the memory of the index of latents (cpu_index.c). */
void cpu_index_lay_out(struct backend_model *m, size_t *at);

/* Splits a batch into tasks, once for all layers. One thread calls it. */
void cpu_attention_begin(struct backend_model *m, const struct backend_batch *batch);

/* For batches that overtake (cpu_overtake.c): return the maximum of their rows; allocate the memory for saved rows;
 * save rows [0, n) of all buffers, or restore them. */
static inline int32_t cpu_overtaking_rows(const struct backend_model *m)
{
    return m->cfg.reduce == NULL ? MIN_OF((int32_t)CPU_OVERTAKING_ROWS, m->cfg.max_rows)
                                 : 0; /* ranks must run the same batches */
}
void cpu_overtake_lay_out(struct backend_model *m, size_t *at);
void cpu_overtake_set_aside(struct backend_model *m, int32_t n);
void cpu_overtake_put_back(struct backend_model *m, int32_t n);

/* The tail of a batch (cpu_tail.c): allocate its memory; return whether steps after the last that stores something need
 * fewer rows, and make the batch of these; move these rows to the front of all buffers. */
void cpu_tail_lay_out(struct backend_model *m, size_t *at);
bool cpu_tail_begin(const struct backend_model *m, const struct backend_batch *b, struct backend_batch *tail);
void cpu_tail_gather(struct backend_model *m, const struct backend_batch *b);

/* Returns the panels of a tile, whose weights stay in the cache for all its rows. */
static inline uint32_t cpu_tile_panels(const struct cpu_weight *w)
{
    size_t n = CPU_TILE_BYTES / w->panel_bytes;
    return (uint32_t)MAX_OF((size_t)1, MIN_OF(n, (size_t)CPU_TILE_PANELS));
}

/* Computes tile[n][n_panels*16] = operand rows times panels [panel, panel + n_panels) of w (cpu_exec.c). */
void cpu_multiply(const struct cpu_run *r, const struct cpu_weight *w, uint32_t panel, uint32_t n_panels,
                  const struct cpu_operand *o, float *tile);

/* Applies the limits of a step to gate[n] and up[n]. */
void cpu_limit(const struct plan_step *s, float *gate, float *up, size_t n);

/* Ops in separate files. m->tasks of a step is 0 initially; cpu_experts_run and cpu_index_choose have barriers inside. */
void cpu_attention_run(const struct cpu_run *r);
void cpu_index_row(const struct cpu_run *r, int32_t row);
void cpu_index_choose(const struct cpu_run *r);
void cpu_index_attend(const struct cpu_run *r); /* the attention to chosen positions */
void cpu_experts_run(const struct cpu_run *r);
void cpu_recurrent_conv(const struct cpu_run *r);
void cpu_recurrent_delta(const struct cpu_run *r);
void cpu_recurrent_ssm(const struct cpu_run *r);
void cpu_recurrent_scan(const struct cpu_run *r);
void cpu_streams_multiply(const struct cpu_run *r, int32_t row);
void cpu_streams_xielu(const struct cpu_run *r, int32_t row);
float cpu_softplus(float x);
void cpu_streams_sum(const struct cpu_run *r, int32_t row);
void cpu_streams_reduce(const struct cpu_run *r); /* has a barrier inside */
void cpu_streams_predict(const struct cpu_run *r, int32_t row);
void cpu_streams_correct(const struct cpu_run *r, int32_t row);

/* Return row `row` of a buffer, and the floats of a row. */
static inline float *cpu_row(const struct cpu_run *r, cpu_buf_id id, int32_t row)
{
    if (r->is_by_rows && id == r->m->tile_buf) {
        row += r->thread * (int32_t)CPU_TILE_ROWS - r->tile;
    }
    return r->m->bufs[id] + (size_t)row * r->m->strides[id];
}
static inline size_t cpu_width(const struct cpu_run *r, cpu_buf_id id)
{
    return r->m->plan->bufs[id % PLAN_MAX_BUFS].width;
}

/* Returns an f32 vector; NULL for PLAN_NONE. */
static inline const float *cpu_vector(const struct cpu_run *r, plan_weight_id id)
{
    return id == PLAN_NONE ? NULL : r->m->weights[id].vector;
}

/* Runs a batch on all threads (cpu_exec.c). Within `between` of another batch it runs before the rest of that batch.
 * Cannot fail. */
void cpu_exec_run(struct backend_model *m, const struct backend_batch *batch);

#endif
