/* Shared by the files of the OpenCL back end, and by nobody else. Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_INTERNAL_H
#define INFCGI_OPENCL_INTERNAL_H

#include "engine/backend/backend.h"
#include "engine/quant/panel.h"
#include "opencl/device.h"
#include "opencl/kernels/shared.h"
#include "opencl/program.h"
#include "opencl/vram.h"

enum {
    OPENCL_LANES = 32,          /* rows of a panel, as LANES of the kernels */
    OPENCL_ROWS = 32,           /* rows that buffers are padded to: the largest tile of token rows */
    OPENCL_ALIGN = 64,          /* components that a row is padded to */
    OPENCL_NONE = -1,           /* no place in the device's memory */
    OPENCL_MAX_BEGUN = 2,       /* batches */
    OPENCL_MAX_JOINED = 1 << 30 /* bytes of weights that lie one behind the other */
};

/* A weight as it lies on the device (kernels/weights.clh). */
struct opencl_weight {
    bool is_vector; /* f32 [n_in], as it is */
    bool as_floats; /* made F16 where it is quantised */
    int32_t n_uses; /* operands of steps that are it */
    enum panel_kind kind;
    uint32_t n_groups; /* parts of as many rows, each of which begins with a panel: heads, experts */
    uint32_t group_rows, group_panels;
    uint32_t n_parts; /* of a panel, as add_parts of matmul.cl counts */
    size_t panel_bytes;
    cl_uint4 table;
    plan_weight_id next; /* OPTIONAL: lies behind it, and is multiplied in the same product; it is_behind */
    bool is_behind;
    int32_t place;
    size_t at; /* bytes, where it begins there: not 0 only of a next one */
};

/* The keys and values that a layer reads (kernels/heads.cl). */
struct opencl_kv {
    struct plan_kv heads;
    bool k_is_bytes, v_is_bytes;   /* q8_0, else halves */
    size_t key_bytes, value_bytes; /* of a page; no values of latents */
    int32_t keys, values;          /* places */
    bool is_local;                 /* they are in window pages */
};

struct opencl_buf {
    uint32_t stride;       /* floats between rows */
    int32_t floats, codes; /* places; OPENCL_NONE: nobody reads it so */
};

/* What a launch is repeated for. */
enum opencl_by {
    OPENCL_BY_ROWS,
    OPENCL_BY_SEQS,
    OPENCL_BY_PICKS,   /* rows times their experts */
    OPENCL_BY_TILES,   /* of picks (kernels/experts.cl): as many as there can be */
    OPENCL_BY_SINGLES, /* rows that no block has */
    OPENCL_BY_BLOCKS,  /* of rows: `tile` rows of one */
    OPENCL_ONCE
};
enum { OPENCL_PICKED_ROWS = 4 /* picks of a tile, where a batch has more than a row */ };

/* Whether attention is computed in parts, each by a work-group, as a batch of few rows would leave most of a device idle;
 * OPENCL_MAX_PARTS: parts that there is room for. */
enum opencl_when { OPENCL_ALWAYS, OPENCL_IF_PARTS, OPENCL_IF_WHOLE, OPENCL_IF_BEST /* of a row are wanted */ };
enum { OPENCL_PARTS_ROWS = 16, OPENCL_MAX_PARTS = 2048 };

/* A kernel with its arguments, and its sizes. */
struct opencl_launch {
    cl_kernel kernel; /* NULL: where ranks meet */
    const struct plan_step *step;
    size_t local, groups; /* work-items of a group; groups in the first dimension */
    bool by_splits;       /* groups in the second: parts of the attention, else 1 */
    enum opencl_when when;
    enum opencl_by by;          /* groups in the third .. */
    enum plan_rows rows;        /* .. rows of this kind .. */
    uint32_t tile;              /* .. so many a group */
    int32_t min_rows, max_rows; /* it is for so many of them */
    uint64_t weight_bytes;      /* that it reads; of experts each tile of picks */
    uint64_t slot_bytes;        /* of keys and values of a position that it reads, as often as for each row or block */
};

/* A batch that was begun. */
struct opencl_slot {
    struct backend_batch batch; /* of which the arrays that are read are not there any more */
    int32_t *words;             /* what was written to the device: as shared.h says */
    size_t cap_words;
    float *stats; /* results, as shared.h says */
    float *input; /* [max_rows][input_width] */
    cl_event done;
};

struct backend_model {
    const struct plan *plan;
    struct backend_config cfg;
    struct device device;
    struct program_set *programs;
    const struct backend_model *of; /* OPTIONAL: whose device and programs it has */
    struct vram *vram;
    struct opencl_weight *weights; /* [n_weights] */
    struct opencl_kv *kvs;         /* [L] */
    struct opencl_buf bufs[PLAN_MAX_BUFS];
    struct opencl_launch *launches;
    size_t n_launches, cap_launches;
    bool is_dry;       /* steps are gone through for the places that they take */
    uint32_t n_pieces; /* of a row of logits */
    int32_t partial;   /* parts of attention */
    size_t partial_bytes;
    int32_t qkv; /* [rows][stride of the widest] */
    uint32_t qkv_stride;
    int32_t up; /* the second product of a GLU of two kinds */
    uint32_t up_stride;
    int32_t picks, tiles;                     /* of experts: lists that kernels/experts.cl makes */
    int32_t made_floats, made_codes, up_made; /* [picks][made_stride]: inside of experts, and what they make */
    bool has_up_made;                         /* experts whose two first weights are of two kinds */
    uint32_t made_stride;
    int32_t results; /* [picks][stride of the widest result] */
    uint32_t results_stride;
    int32_t logits, lists, logit_results, hidden, input, output, states;
    cl_mem batch;
    size_t cap_batch_words;
    struct backend_bytes bytes; /* of a page, a window page, a state */
    size_t layer_bytes;         /* of a page, of the layer with most */
    struct opencl_slot slots[OPENCL_MAX_BEGUN];
    int n_begun, next; /* slots in use; the one that is begun next */
    bool is_lost;
    struct backend_counts counts;
};

/* --- opencl_rate.c ------------------------------------------------------------------------------------------------ */

/* backend.rate */
enum err opencl_rate(struct backend_model *m, struct backend_rates *out, struct err_info *info);

/* --- backend_opencl.c --------------------------------------------------------------------------------------------- */

/* Opens a plan as backend.open does, with the device and the programs of `of`, which stays open longer; NULL: with its own. */
MUST_CHECK enum err opencl_open_beside(const struct backend_model *of, const struct plan *plan,
                                       const struct backend_config *cfg, struct backend_model **out,
                                       struct err_info *info);

/* --- opencl_kv.c -------------------------------------------------------------------------------------------------- */

/* The i-th type of keys and values; NULL beyond the last. */
const char *opencl_kv_type_name(int i);

/* Of what type they are: cfg's, but latents have halves and no values; strings that stay. ERR_CONFIG. */
MUST_CHECK enum err opencl_kv_types(const struct backend_model *m, const char **k_type, const char **v_type,
                                    struct err_info *info);

/* Gives each layer that stores keys and values its part of the cache. */
MUST_CHECK enum err opencl_kv_lay_out(struct backend_model *m, struct err_info *info);

/* A layer's keys and values of a page, in `room` as they lie there, from floats at `at` (BACKEND_FLOATS) with is_write,
 * else to them; returns what is behind. */
float *opencl_kv_convert(const struct opencl_kv *kv, unsigned char *room, float *at, bool is_write);

/* --- opencl_weights.c --------------------------------------------------------------------------------------------- */

/* Finds how each weight will lie, and places it. */
MUST_CHECK enum err opencl_weights_lay_out(struct backend_model *m, struct err_info *info);

/* Bytes of the host's memory that opencl_weights_load goes through, and gives back. */
size_t opencl_weights_staged(const struct backend_model *m);

/* Packs all of them with cfg.n_threads threads and brings them to the device, which is called by this one alone; progress
 * and weight_done as backend_config says. When it returns nothing is on its way. ERR_CANCELLED. */
MUST_CHECK enum err opencl_weights_load(struct backend_model *m, struct err_info *info);

/* --- opencl_steps.c ----------------------------------------------------------------------------------------------- */

/* Makes the launches of all steps; with is_dry only places what they need. */
MUST_CHECK enum err opencl_steps_compile(struct backend_model *m, struct err_info *info);
void opencl_steps_free(struct backend_model *m);

static inline uint32_t opencl_round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

/* Rows that buffers hold. */
static inline uint32_t opencl_rows(const struct backend_model *m)
{
    return opencl_round_up((uint32_t)m->cfg.max_rows, OPENCL_ROWS);
}

#endif
