/* Shared by the files of the CPU back end, and by nobody else.
 *
 * A step runs in one of two ways, with the same bits either way:
 *   by columns (few rows, and the head): each thread computes its share of the output panels for all rows, and a
 * barrier follows;
 *   by rows (many rows): each thread takes its share of the rows through all output panels, and only steps that read
 * other threads' rows (attention) need barriers. */
#ifndef INFCGI_BACKEND_CPU_CPU_INTERNAL_H
#define INFCGI_BACKEND_CPU_CPU_INTERNAL_H

#include "engine/backend/backend.h"
#include "engine/base/io.h"
#include "engine/base/pool.h"
#include "engine/kernels/kern.h"
#include "engine/plan/plan_ops.h"

#include <stdatomic.h>

enum {
    CPU_TILE_ROWS = 64,         /* token rows quantised and multiplied at a time: 64 rows of 576 inputs fit L1 and L2 */
    CPU_TILE_BYTES = 256 << 10, /* weights of one tile: a quarter of a 1 MiB L2 */
    CPU_TILE_COLUMNS = PLAN_MAX_HEAD, /* widest tile in outputs: the widest head */
    CPU_TILE_PANELS = 8,              /* panels of a tile elsewhere: 64 rows x 128 outputs are 32 KiB */
    CPU_ROWS_PER_THREAD = 8, /* from this many rows a thread, steps run by rows [measured: docs/internals/cpu.md] */
    CPU_LOGITS_CHUNK = 1024, /* columns of the head that are computed and looked at together */
    CPU_CHUNK_PANELS = CPU_LOGITS_CHUNK / PANEL_ROWS,
    CPU_OVERTAKING_ROWS =
        CPU_TILE_ROWS, /* of a batch that overtakes another: so much of that one's rows is set aside */
};

/* A packed matrix, or an f32 vector (norms, biases). */
struct cpu_weight {
    const unsigned char *panels; /* [n_panels] panels, panel_bytes apart; NULL for vectors */
    size_t panel_bytes;
    enum panel_kind kind;
    uint32_t n_out, n_in;
    uint32_t group_rows;   /* output rows that share no panel with others: head_dim for Q, K and V, else n_out */
    uint32_t group_panels; /* panels of such a group */
    uint32_t n_panels;
    bool is_multiplied;   /* by a step that takes panels, however few its rows are */
    atomic_uint n_packed; /* panels, while they are being packed */
    const float *vector;  /* [n_in], 64-byte aligned */
};

/* A buffer of the plan, or, from PLAN_MAX_BUFS on, the second one that takes turns with it: a step that renews rows
 * which other threads are still reading writes them there. */
typedef int32_t cpu_buf_id;
enum { CPU_MAX_BUFS = 2 * PLAN_MAX_BUFS };

/* A plan step with what the CPU back end found out about it. */
struct cpu_step {
    struct plan_step step; /* its buffers are cpu_buf_ids; src is what the norms in front of it read */
    /* An adding norm fused in front of the norm: renewed = src + rmsnorm(added) * post, and that is what is normed. */
    bool has_post;
    plan_weight_id post;
    float post_eps;
    cpu_buf_id added, renewed;
    plan_weight_id norm; /* RMSNorm fused in front of a matmul */
    float norm_eps;
    bool has_norm;
    int32_t at;   /* of the step, in the plan */
    bool goes_on; /* by rows, the next step takes each tile of rows before this one takes another */
    float fine;   /* which blocks of a quantised operand row get a second term (kern.h) */
};

/* The matmul that gives logits. */
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
    unsigned char *rows;    /* [n][qrow bytes of the widest input] quantised operand rows */
    float *tile[2];         /* [CPU_TILE_ROWS][CPU_TILE_COLUMNS] outputs of a tile */
    int32_t *expert_begin;  /* [E + 1] */
    struct cpu_pick *picks; /* [max_rows * k] in order of experts */
};

/* What a tile is multiplied with: rows [row, row + n) in the forms its weights want. */
struct cpu_operand {
    int32_t row, n;
    const float *f32; /* rows f32_bytes apart */
    size_t f32_bytes;
    const unsigned char *q; /* rows q_bytes apart; NULL when no weight of the step is quantised */
    size_t q_bytes;
};

/* Memory of mixture-of-experts layers; all NULL when there are none. */
struct cpu_experts {
    float *hidden; /* [max_rows * k][hidden_stride] of an expert's feed-forward block, in order of experts */
    size_t hidden_stride;
    unsigned char *hidden_q; /* the same, quantised */
};

/* Pages, or window pages, behind each other. */
struct cpu_kv_pool {
    size_t at, page_bytes; /* of the first one, in the whole cache; of one */
    int32_t n_pages;
    int32_t highest;      /* that was used; -1 = none */
    unsigned char *asked; /* memory was asked for up to here (cpu_kv_ahead.c) */
};

/* What a layer reads: in each page of its pool, for one KV head after the other, keys and then values (kv_type.h); of latents
 * no values. */
struct cpu_kv {
    struct plan_kv heads;
    struct kv_layout layout;
    size_t at;     /* of the first head, in a page */
    bool is_local; /* they are window pages */
};

struct backend_model {
    const struct plan *plan;
    struct backend_config cfg;
    enum kv_type k_type, v_type;
    struct backend_bytes bytes;
    struct kern_table kern;
    struct pool *pool;
    struct cpu_weight *weights; /* [plan->n_weights] */
    unsigned char *packed;      /* all panels and vectors; NULL when they lie in pack_map */
    struct io_map pack_map;     /* cpu_pack_cache.c; zero bytes when there is none */
    enum backend_pack_state pack_state;
    char pack_note[ERR_TEXT_BYTES]; /* why the cache was not used or not written, "" when there is nothing to say */
    struct cpu_step *steps;
    int n_steps;
    struct cpu_kv *kvs; /* [L]; layers that share one have the same */
    unsigned char *kv;
    struct cpu_kv_pool kv_pools[2];  /* [is_local] */
    size_t pool_bytes, recurrent_at; /* of kv: all pages, and recurrent states behind them from there on */
    float *recurrent;                /* [state][plan->recurrent_floats] */
    float *bufs[CPU_MAX_BUFS];       /* [rows][stride] */
    int32_t buf_rows[CPU_MAX_BUFS];  /* max_rows, or fewer (cpu_buf_use) */
    size_t strides[CPU_MAX_BUFS];    /* floats, multiples of 16 */
    /* A buffer that only lives between steps of which the first goes on, and has CPU_TILE_ROWS rows a thread;
     * PLAN_NONE: there is none, or batches are so small that all rows take no more. */
    plan_buf_id tile_buf;
    float *logits;    /* [max_logits][V], where the buffers lie that are dead by then */
    enum err reduced; /* what backend_config.reduce gave in this batch */
    float *rope_cos[PLAN_MAX_ROPES], *rope_sin[PLAN_MAX_ROPES]; /* [max_rows][n_rot/2] of this batch */
    struct cpu_scratch *scratch;                                /* [n_threads] */
    unsigned char *scratch_memory;
    atomic_int *tasks; /* [n_steps] next task of an attention or experts step, zeroed before each batch */
    struct cpu_experts experts;
    struct cpu_attention *attention;
    uint32_t n_chunks;                     /* of a row of logits */
    struct backend_row_stats *chunk_stats; /* [max_logits][n_chunks] of this batch */
    const struct backend_batch *batch;     /* that is being computed; NULL = none is */
    atomic_int stop_behind; /* the step behind which all threads leave it, as another is to overtake it; -1 = none */
    float *aside;           /* what that one would write over (cpu_overtake.c) */
};

/* One thread's view of one batch. */
struct cpu_run {
    struct backend_model *m;
    const struct backend_batch *batch;
    struct cpu_scratch *scratch;
    const struct cpu_step *step;
    int thread, n_threads;
    int32_t n_rows;  /* rows of the current step */
    int32_t tile;    /* first row of those that the tile buffer holds for this thread, by rows */
    bool is_by_rows; /* how the current step is split */
};

/* How an op is run (cpu_exec.c). */
struct cpu_op {
    void (*row)(const struct cpu_run *r, int32_t row); /* row by row, or .. */
    void (*run)(const struct cpu_run *r);              /* .. the thread's share; barriers stand as plan_ops.c wants */
    bool is_shared;  /* threads share it otherwise than by rows, however many there are */
    bool is_norm;    /* can be fused into the step behind it, if that .. */
    bool takes_norm; /* .. normalises the rows it is about to multiply */
    bool by_tiles;   /* a matmul that by rows can be run tile by tile, in turns with the next */
};
extern const struct cpu_op cpu_ops[PLAN_OP_COUNT];

/* Rounds a number of bytes up to a whole number of cache lines. */
static inline size_t cpu_align_up(size_t n) { return (n + 63) / 64 * 64; }

/* Takes `bytes` of the memory of activations from *at on, which it advances, and returns the address. Returns NULL and
 * only advances while that memory is not allocated. */
static inline void *cpu_take(const struct backend_model *m, size_t *at, size_t bytes)
{
    void *p = m->scratch_memory != NULL ? m->scratch_memory + *at : NULL;
    *at += cpu_align_up(bytes);
    return p;
}

/* Finds how weights will be packed, then packs all of the plan's into m->weights (cpu_weights.c). ERR_NOMEM,
 * ERR_UNSUPPORTED_TYPE, ERR_CANCELLED. */
MUST_CHECK enum err cpu_weights_lay_out(struct backend_model *m, struct err_info *info);
MUST_CHECK enum err cpu_weights_pack(struct backend_model *m, struct err_info *info);

/* Tells progress how far it is; false: the weights are not wanted any more. From the opening thread alone. */
bool cpu_goes_on(const struct backend_model *m, float fraction);
/* Fills *info for that; ERR_CANCELLED. */
enum err cpu_given_up(struct err_info *info);
void cpu_weights_free(struct backend_model *m);

/* The packed weights as a file in cfg.pack_cache (cpu_pack_cache.c). open: maps and checks the file of this model, when
 * there is a cache; pack_state then says BACKEND_PACK_MAPPED, or BACKEND_PACK_WRITTEN for "to be written". write:
 * writes it, in that case. What goes wrong with the file goes to pack_note and is no failure. ERR_NOMEM. */
MUST_CHECK enum err cpu_pack_cache_open(struct backend_model *m, struct err_info *info);
MUST_CHECK enum err cpu_pack_cache_write(struct backend_model *m, struct err_info *info);
const unsigned char *cpu_pack_cache_payload(const struct backend_model *m); /* bytes.weights bytes */
void cpu_pack_cache_close(struct backend_model *m);

/* Lists the steps with norms fused in front of matmuls (cpu_steps.c). ERR_NOMEM. */
MUST_CHECK enum err cpu_steps_compile(struct backend_model *m, struct err_info *info);

/* What the steps do with a buffer. */
struct cpu_buf_use {
    bool is_used;
    bool is_normed;    /* a norm reads it */
    bool by_tiles;     /* lives only between a step that goes on and the next */
    bool after_gather; /* holds S rows at most */
    bool by_head;      /* the head reads it */
};
struct cpu_buf_use cpu_buf_use(const struct backend_model *m, cpu_buf_id buf);

/* The keys, and the values, that a page holds of one KV head of one layer. */
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

/* Asks the kernel for memory of the KV cache before it is used, a little each time (cpu_kv_ahead.c): before a batch is computed,
 * from one thread. */
void cpu_kv_ahead(struct backend_model *m, const struct backend_batch *batch);

/* Takes the memory of attention (cpu_attention.c). */
void cpu_attention_lay_out(struct backend_model *m, size_t *at);

/* Cuts a batch into tasks, once for all layers; from one thread. */
void cpu_attention_begin(struct backend_model *m, const struct backend_batch *batch);

/* Batches that overtake (cpu_overtake.c): takes the memory for what is set aside; puts rows [0, n) of all buffers there, or back. */
static inline int32_t cpu_overtaking_rows(const struct backend_model *m)
{
    return m->cfg.reduce == NULL ? MIN_OF((int32_t)CPU_OVERTAKING_ROWS, m->cfg.max_rows)
                                 : 0; /* else ranks go in step */
}
void cpu_overtake_lay_out(struct backend_model *m, size_t *at);
void cpu_overtake_set_aside(struct backend_model *m, int32_t n);
void cpu_overtake_put_back(struct backend_model *m, int32_t n);

/* Panels of a tile: their weights stay in the cache while the rows pass. */
static inline uint32_t cpu_tile_panels(const struct cpu_weight *w)
{
    size_t n = CPU_TILE_BYTES / w->panel_bytes;
    return (uint32_t)MAX_OF((size_t)1, MIN_OF(n, (size_t)CPU_TILE_PANELS));
}

/* tile[n][n_panels*16] = operand rows times panels [panel, panel + n_panels) of w (cpu_exec.c). */
void cpu_multiply(const struct backend_model *m, const struct cpu_weight *w, uint32_t panel, uint32_t n_panels,
                  const struct cpu_operand *o, float *tile);

/* Ops in files of their own. m->tasks of a step is 0 at first; experts have barriers inside. */
void cpu_attention_run(const struct cpu_run *r);
void cpu_experts_run(const struct cpu_run *r);
void cpu_recurrent_conv(const struct cpu_run *r);
void cpu_recurrent_delta(const struct cpu_run *r);
void cpu_recurrent_ssm(const struct cpu_run *r);
void cpu_streams_multiply(const struct cpu_run *r, int32_t row);
void cpu_streams_sum(const struct cpu_run *r, int32_t row);
void cpu_streams_reduce(const struct cpu_run *r); /* has a barrier inside */
void cpu_streams_predict(const struct cpu_run *r, int32_t row);
void cpu_streams_correct(const struct cpu_run *r, int32_t row);

/* Row `row` of a buffer, and its floats. */
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

/* An f32 vector; NULL for PLAN_NONE. */
static inline const float *cpu_vector(const struct cpu_run *r, plan_weight_id id)
{
    return id == PLAN_NONE ? NULL : r->m->weights[id].vector;
}

/* Runs a batch on all threads (cpu_exec.c); within `between` of another one in front of what is left of that. Cannot fail. */
void cpu_exec_run(struct backend_model *m, const struct backend_batch *batch);

#endif
