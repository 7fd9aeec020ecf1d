/* Private to the files of the OpenCL back end. Memory ids are those of vram.h, 0 for none. Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_INTERNAL_H
#define INFCGI_OPENCL_INTERNAL_H

#include "engine/backend/backend.h"
#include "engine/quant/panel.h"
#include "opencl/device.h"
#include "opencl/kernels/shared.h"
#include "opencl/program.h"
#include "opencl/vram.h"

enum {
    OPENCL_LANES = 32,          /* rows of a panel; LANES of the kernels */
    OPENCL_ROWS = 32,           /* rows that buffers are padded to: the largest tile of token rows */
    OPENCL_ALIGN = 64,          /* components that a row is padded to */
    OPENCL_MAX_BEGUN = 2,       /* batches */
    OPENCL_MAX_JOINED = 1 << 30 /* bytes of weights that are joined into one product */
};

/* A weight in the device's memory (kernels/weights.clh). */
struct opencl_weight {
    bool is_vector; /* f32 [n_in], not packed: a panel */
    bool as_floats; /* converted to F16 if it is quantized */
    int32_t n_uses; /* operands of steps that refer to it */
    enum panel_kind kind;
    uint32_t n_groups; /* parts with equal numbers of rows, each starting at a panel: heads, experts */
    uint32_t group_rows, group_panels;
    uint32_t n_parts; /* per panel, in the units of add_parts of matmul.cl */
    size_t panel_bytes;
    cl_uint4 table;
    plan_weight_id next; /* OPTIONAL: follows it in memory and in the same product; has follows_other */
    bool follows_other;
    int32_t place;
    size_t at; /* offset there in bytes; not 0 only if follows_other */
};

/* The keys and values that a layer reads (kernels/heads.cl). */
struct opencl_kv {
    struct plan_kv heads;
    bool k_is_bytes, v_is_bytes;   /* q8_0; false: halves */
    size_t key_bytes, value_bytes; /* per page; latents have no values */
    int32_t keys, values;          /* memory ids */
    bool is_local;                 /* stored in window pages */
};

struct opencl_buf {
    uint32_t stride;       /* floats between rows */
    int32_t floats, codes; /* memory ids */
};

/* Unit of which a launch computes one per group. */
enum opencl_by {
    OPENCL_BY_ROWS,
    OPENCL_BY_SEQS,
    OPENCL_BY_PICKS,   /* rows times their experts */
    OPENCL_BY_TILES,   /* of picks (kernels/experts.cl): the maximum number */
    OPENCL_BY_SINGLES, /* rows outside of blocks */
    OPENCL_BY_BLOCKS,  /* of rows: `tile` rows of a block */
    OPENCL_ONCE
};
enum { OPENCL_PICKED_ROWS = 4 /* picks per tile, if a batch has more than one row */ };

/* Condition of a launch: whether attention is computed in parts, one per work-group, because a batch of few rows would
 * leave most of a device idle. OPENCL_MAX_PARTS: parts that fit in the buffer. */
enum opencl_when {
    OPENCL_ALWAYS,
    OPENCL_IF_PARTS,
    OPENCL_IF_WHOLE,
    OPENCL_IF_BEST,  /* best tokens requested */
    OPENCL_IF_DRAFTS /* rows are drafts */
};
enum { OPENCL_PARTS_ROWS = 16, OPENCL_MAX_PARTS = 2048 };

/* A kernel with its arguments and sizes. */
struct opencl_launch {
    cl_kernel kernel; /* NULL: ranks exchange their sums */
    const struct plan_step *step;
    size_t local, groups; /* work-items per group; groups in the first dimension */
    bool by_splits;       /* groups in the second dimension are parts of the attention, else 1 */
    enum opencl_when when;
    enum opencl_by by;          /* groups in the third dimension .. */
    enum plan_rows rows;        /* .. for rows of this kind .. */
    uint32_t tile;              /* .. with this many per group */
    int32_t min_rows, max_rows; /* runs for batches with this many of them */
    uint64_t weight_bytes;      /* that it reads; for experts per tile of picks */
    uint64_t slot_bytes;        /* of keys and values that it reads per position, and per row or block */
};

/* A batch that was begun. */
struct opencl_slot {
    struct backend_batch batch; /* its input arrays are no longer valid */
    int32_t *words;             /* the words written to the device, in the format of shared.h */
    size_t cap_words;
    float *stats; /* results, in the format of shared.h */
    float *input; /* [max_rows][input_width] */
    cl_event done;
};

struct backend_model {
    const struct plan *plan;
    struct backend_config cfg;
    struct device device;
    struct program_set *programs;
    const struct backend_model *of; /* OPTIONAL: the model whose device and programs it shares */
    struct vram *vram;
    struct opencl_weight *weights; /* [n_weights] */
    struct opencl_kv *kvs;         /* [L] */
    struct opencl_buf bufs[PLAN_MAX_BUFS];
    struct opencl_launch *launches;
    size_t n_launches, cap_launches, n_main; /* n_main: without those of the prediction head */
    size_t n_storing, n_storing_predict;     /* as in the plan */
    bool is_dry;                             /* steps run only to place their memory */
    uint32_t n_pieces;                       /* per row of logits */
    int32_t partial;                         /* parts of attention */
    size_t partial_bytes;
    int32_t scores; /* of positions that an index chooses from */
    size_t score_bytes;
    int32_t qkv; /* [rows][stride of the widest] */
    uint32_t qkv_stride;
    int32_t up; /* the second product of a GLU with weights of two kinds */
    uint32_t up_stride;
    int32_t picks, tiles;                     /* of experts: lists that kernels/experts.cl makes */
    int32_t made_floats, made_codes, up_made; /* [picks][made_stride]: rows between the products of experts */
    bool has_up_made;                         /* experts whose first two weights are of two kinds */
    uint32_t made_stride;
    int32_t results; /* [picks][stride of the widest result] */
    uint32_t results_stride;
    int32_t logits, lists, logit_results, hidden, input, output, states;
    cl_mem batch;
    size_t cap_batch_words;
    struct backend_bytes bytes; /* of a page, a window page, a state */
    size_t layer_bytes;         /* of a page, in the largest layer */
    struct opencl_slot slots[OPENCL_MAX_BEGUN];
    int n_begun, next; /* slots in use; the slot of the next batch */
    bool is_lost;
    struct backend_counts counts;
};

/* --- opencl_rate.c ------------------------------------------------------------------------------------------------ */

/* Implements backend.rate. */
enum err opencl_rate(struct backend_model *m, struct backend_rates *out, struct err_info *info);

/* --- backend_opencl.c --------------------------------------------------------------------------------------------- */

/* Opens a plan as backend.open does, with the device and the programs of `of`, which must stay open longer; NULL: with
 * its own. */
MUST_CHECK enum err opencl_open_beside(const struct backend_model *of, const struct plan *plan,
                                       const struct backend_config *cfg, struct backend_model **out,
                                       struct err_info *info);

/* --- opencl_kv.c -------------------------------------------------------------------------------------------------- */

/* Returns the i-th type of keys and values; NULL after the last. */
const char *opencl_kv_type_name(int i);

/* Writes the types of keys and values, as constant strings: those of cfg; latents have halves and no values.
 * ERR_CONFIG. */
MUST_CHECK enum err opencl_kv_types(const struct backend_model *m, const char **k_type, const char **v_type,
                                    struct err_info *info);

/* Places the keys and values of each layer that stores some. */
MUST_CHECK enum err opencl_kv_lay_out(struct backend_model *m, struct err_info *info);

/* Converts a layer's keys and values of a page: from floats at `at` (BACKEND_FLOATS) to the device's form in `room` if
 * is_write, else back. */
void opencl_kv_convert(const struct opencl_kv *kv, unsigned char *room, float *at, bool is_write);

/* --- opencl_weights.c --------------------------------------------------------------------------------------------- */

/* Decides the format of each weight and places it. */
MUST_CHECK enum err opencl_weights_lay_out(struct backend_model *m, struct err_info *info);

/* Returns the bytes of host memory that opencl_weights_load allocates and frees. */
size_t opencl_weights_staged(const struct backend_model *m);

/* Packs all weights with cfg.n_threads threads and copies them to the device, which only the calling thread uses; calls
 * progress and weight_done as backend_config says. Waits for all copies before it returns. ERR_CANCELLED. */
MUST_CHECK enum err opencl_weights_load(struct backend_model *m, struct err_info *info);

/* --- opencl_steps.c ----------------------------------------------------------------------------------------------- */

/* Makes the launches of all steps; with is_dry only places their memory. */
MUST_CHECK enum err opencl_steps_compile(struct backend_model *m, struct err_info *info);
void opencl_steps_free(struct backend_model *m);

static inline uint32_t opencl_round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

/* Returns the pieces that statistics divide n logits of a row into. */
static inline uint32_t opencl_n_pieces(uint32_t n)
{
    enum { PIECE = 4096 };
    return (n + PIECE - 1) / PIECE;
}

/* Returns the rows that buffers hold. */
static inline uint32_t opencl_rows(const struct backend_model *m)
{
    return opencl_round_up((uint32_t)m->cfg.max_rows, OPENCL_ROWS);
}

#endif
