/* What runs a plan. A back end keeps the weights in its own form, owns the memory of the KV cache, and computes one
 * batch of token rows at a time; pages are named by the scheduler, a back end only reads and writes them.
 *
 * Promise: what a row computes depends on its token, its position and the rows before it in its own sequence (all of
 * its sequence when the plan is bidirectional), and on nothing else: not on its neighbours, the size of the batch, or
 * the number of threads.
 * A back end may have a memory of its own: what it is given for a batch is copied when the batch begins, and what it
 * gives lies with the caller when the batch is waited for; in between neither reads what the other holds.
 * Threads: begin, wait and what moves pages are called by one thread at a time (the scheduler's). */
#ifndef INFCGI_BACKEND_BACKEND_H
#define INFCGI_BACKEND_BACKEND_H

#include "engine/base/candidate.h"
#include "engine/base/err.h"
#include "engine/base/names.h"
#include "engine/kv/kv_type.h"
#include "engine/plan/plan.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tells one model file from another, besides what the plan says of its weights. */
struct backend_source {
    const void *head; /* all that stands before the weights: metadata and tensor directory; borrowed */
    size_t head_bytes;
    uint64_t bytes; /* the whole file */
    int64_t mtime_ns;
    uint64_t part; /* 0: the plan has all layers; else which of them, in a number */
};

struct backend_parts;

enum { BACKEND_ALL_LOGITS = -1 };

enum backend_pack_state {
    BACKEND_PACK_OFF,     /* no pack_cache, or a back end that has none */
    BACKEND_PACK_MAPPED,  /* weights come from the file */
    BACKEND_PACK_WRITTEN, /* packed, and written for the next start */
    BACKEND_PACK_FAILED,  /* packed, and could not be written */
};

struct backend_config {
    /* OPTIONAL: where a back end has several devices, which of them: its number or address; NULL or "auto" = the best. A
     * list of several, with commas, probe takes; for measure and open each is a part's (backend_layers_place). */
    const char *device;
    const char *cpu;                   /* ISA for the CPU kernels; NULL = best there is */
    int n_threads;                     /* >= 1; of each part that computes by them */
    const struct backend_parts *parts; /* of backend_composite alone (backend_parts.h); borrowed for the call of open */
    /* Activations in 16 bits everywhere instead of where they matter most: nearer to float32, slower in prefill. */
    bool high_precision;
    bool pin;        /* each thread stays on a CPU of its own (pool_pin); the thread that calls begin too */
    int32_t n_pages; /* KV pages; page ids are 0 .. n_pages-1 */
    /* Window pages, with ids 0 .. n_windows-1: then layers whose keys and values are seen in a window alone (plan_layer_window), local
     * ones, have these in place of the others, and each batch has window_tables. 0 = all layers have the same pages. */
    int32_t n_windows;
    int32_t n_states;            /* recurrent states, with ids 0 .. n_states-1; 0 where the plan has none */
    int32_t max_rows;            /* T of the largest batch */
    int32_t max_logits;          /* S of the largest batch */
    const char *k_type, *v_type; /* OPTIONAL: of the KV cache, as kv_type_name has them; NULL = its first */
    /* OPTIONAL: folder for what the next start needs not prepare again, files of packed weights or of programs for a device;
     * borrowed for the call of open. */
    const char *pack_cache;
    struct backend_source source; /* the file the plan was built from; read only with pack_cache */
    /* OPTIONAL: called while weights are prepared, with 0..1, from the opening thread; false: open ends with
     * ERR_CANCELLED. */
    bool (*progress)(void *arg, float fraction);
    void *progress_arg;
    /* OPTIONAL: called from the opening thread with what an operator should know of what open does: a sentence. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
    /* OPTIONAL [L] of the whole model, all false before: open sets those of layers for which it found that the device
     * computes wrongly, and then fails with ERR_UNSUPPORTED_DEVICE. */
    bool *unfit;
    /* OPTIONAL: called when n bytes at `data`, of a weight, are no longer needed; from any thread. */
    void (*weight_done)(void *arg, const void *data, uint64_t n);
    void *weight_done_arg;
    /* How ranks meet that compute a model together, each with a plan of plan_shard.h: puts in the place of n_rows rows of
     * `width` floats, `stride` floats apart, their sums over all ranks, added in the order of the ranks: the same bits
     * for all. Called by one thread at a time, for one step after the other, while the batch waits: all ranks begin the
     * same batches in the same order. What it returns other than ERR_OK ends the batch: ERR_LOST when a rank is gone.
     * Other plans do not need it. */
    enum err (*reduce)(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride);
    void *reduce_arg;
};

enum { BACKEND_TEXT_BYTES = 384, BACKEND_ID_BYTES = 24 };

enum { BACKEND_MAX_PARTS = 16 }; /* back ends that have layers of one model (backend_parts.h) */

/* Where bytes lie: in the process, or in a memory of a device's own. A back end has one device; of several back ends for
 * one model each device has a memory, from BACKEND_DEVICE on (backend_parts_memory). */
enum backend_memory { BACKEND_HOST, BACKEND_DEVICE, BACKEND_MEMORIES = BACKEND_DEVICE + BACKEND_MAX_PARTS };

/* What a back end computes on. */
struct backend_device {
    char name[128]; /* as it calls itself: "AMD EPYC 9654"; "" where it does not */
    /* Of a back end that has several: the text that names it alone in backend_config.device, "0000:03:00.0"; else "". */
    char id[BACKEND_ID_BYTES];
    /* .. and which it is and why, "device 0 (..): a discrete RDNA3 GPU"; else "". */
    char choice[BACKEND_TEXT_BYTES];
    char
        note[BACKEND_TEXT_BYTES]; /* what an operator should know of it, as that it is slower than it could be; or "" */
    /* What models may take of each memory: of the host what its control group may have, whoever holds it now, as much
     * of that is a cache or goes; of a device's own what is free. 0: it has no such memory. */
    size_t bytes[BACKEND_MEMORIES];
    bool is_shared[BACKEND_MEMORIES]; /* a device's: what it holds lies in the host's memory, and counts there too */
};

/* What open takes of a memory, in bytes, but for tables that are small beside it. */
struct backend_bytes {
    size_t weights;     /* packed, or mapped as they lie in the file */
    size_t page;        /* a KV page, all layers that have it */
    size_t window;      /* a window page, all local layers */
    size_t state;       /* a recurrent state */
    size_t activations; /* and all else that a batch needs */
};

/* What page_read gives and page_write takes. */
enum backend_form {
    /* As many bytes as measure says of all memories, of a page and a window page together and layer by layer, which are those of this back
     * end, plan and types of keys and values. It takes them again as any page: what goes on from there has the same bits. */
    BACKEND_OWN,
    /* backend_page_floats(plan) f32, for other back ends: layer by layer, of those that store, [KV_PAGE_TOKENS][keys
     * [K][d], then values [K][d]], of latents keys alone, [KV_PAGE_TOKENS][d]. Read, they are what is stored; written,
     * they are rounded to the types as new keys and values are. So f16, bf16, q8_0 and q4_0 come through with the
     * same bits, i16 to a unit of its scale. */
    BACKEND_FLOATS,
};

/* What page_read and page_write move: the part of the layers that have pages, and that of local ones. Bytes of a part that is
 * BACKEND_NO_PAGE are left alone on both sides. Without window pages `window` is not looked at. */
enum { BACKEND_NO_PAGE = -1 };
struct backend_page {
    int32_t page, window;
};

enum { BACKEND_NAME_BYTES = 64 };

/* What a plan becomes on a back end. */
struct backend_measure {
    char kernels[BACKEND_NAME_BYTES]; /* "avx512"; of several back ends "ref+avx512", and so the types */
    /* Of the KV cache: "i16"; "none" where keys are the values. */
    char k_type[BACKEND_NAME_BYTES], v_type[BACKEND_NAME_BYTES];
    struct backend_bytes bytes[BACKEND_MEMORIES];
};

/* What is known of a row of logits without a second pass. */
struct backend_row_stats {
    int32_t argmax; /* lowest index among equals */
    float max;
    float logsumexp; /* NaN when the row holds NaN or +inf */
};

/* One unit of work. Rows of one sequence stand together, at consecutive positions. A position may come again in a later
 * batch with another token: its keys and values are written over, and those behind it are not read before they are
 * written again. Arrays that are read are borrowed for the call of begin; those that are written (out) belong to the back
 * end until the batch is waited for, and hold anything before. */
struct backend_batch {
    int32_t n_rows;
    const int32_t *tokens; /* [n_rows] ids, in range */
    const int32_t *pos;    /* [n_rows] position in the sequence; with learned positions below n_ctx_train */
    const int32_t *seq;    /* [n_rows] index into page_tables, ascending */
    int32_t n_seqs;
    const int32_t *const *page_tables; /* [n_seqs] page of position p = table[p / KV_PAGE_TOKENS] */
    /* [n_seqs] the same of window pages: those of positions that a row sees in a window; in front of it any ids. Unread with no
     * window pages. */
    const int32_t *const *window_tables;
    /* [n_seqs] recurrent state of each, no two the same; NULL = sequence i has state i. Unread when the plan
     * has none. A sequence whose rows begin at position 0 begins anew, whatever its state holds; else that must be
     * the state behind the row before, as its last batch left it: with recurrent state, no position comes twice. */
    const int32_t *states;
    /* OPTIONAL [n_seqs] state that the sequence goes on from: its own, or one that this batch leaves as
     * it is, so that several may go on from it. NULL = its own. */
    const int32_t *begin_states;
    int32_t n_copies;           /* recurrent states to leave a copy of, may be 0; 0 when the plan has none */
    const int32_t *copy_rows;   /* [n_copies] ascending row indexes: the state behind that row ... */
    const int32_t *copy_states; /* [n_copies] ... goes here too; a state that this batch uses for nothing else */
    int32_t n_logits;           /* S, may be 0; 0 when the plan has no logits */
    const int32_t *logit_rows;  /* [n_logits] ascending row indexes */
    /* OPTIONAL [n_logits] what is wanted of each of these rows beside its statistics: BACKEND_ALL_LOGITS, or so many of
     * its best tokens, 0 to max_best (backend_info). NULL = all logits of all rows. */
    const int32_t *wants;
    float *logits;                   /* out [n_logits][V]; of rows that want fewer it holds anything */
    struct backend_row_stats *stats; /* out [n_logits] */
    struct candidate *best;          /* out [n_logits][max_best]: the best first; unused with max_best 0 */
    int32_t n_hidden;                /* E, may be 0; 0 when the plan makes none */
    const int32_t *hidden_rows;      /* [n_hidden] ascending row indexes */
    float *hidden;                   /* out [n_hidden][D] */
    /* Of a plan that was cut (plan_cut.h): what it goes on from, and what the next part does. */
    const float *input; /* [n_rows][plan.input_width] */
    float *output;      /* out [n_rows][plan.output_width] */
    /* OPTIONAL, used with backend_info.overtaking_rows: once *asks is true `between` is called, behind one of the next steps of
     * the plan, on the thread that called begin; it sets *asks to false. In it other batches may be begun and waited for, one
     * after the other, of at most so many rows, of sequences that this one has not, with logits in a memory of their own and no
     * `between`: they overtake this one, whose arrays stay borrowed. */
    const atomic_bool *asks;
    void (*between)(void *arg);
    void *between_arg;
};

struct backend_model; /* a plan made ready by one back end */

/* What the batch that was begun last makes the device do; zeros where a back end does not count. */
struct backend_counts {
    uint64_t launches;     /* of kernels */
    uint64_t weight_bytes; /* of matrices that its products read, each as often as a launch does */
    uint64_t cache_bytes;  /* of keys and values that its attention reads, each as often as a launch does */
};

/* What is known of a model only when it is open. */
struct backend_info {
    float *logits; /* OPTIONAL [max_logits][V]: a place for backend_batch.logits that costs no memory of its own, as
                      what a batch writes there before is dead by then; holds until the next begin. Only with
                      max_begun 1 */
    /* Batches that may be begun and not be waited for yet. 1: begin computes, so that nothing is won by doing other
     * work in front of wait; 2: it returns at once. */
    int32_t max_begun;
    int32_t max_best;        /* of backend_batch.wants; 0: whoever wants a row's best tokens takes its logits */
    int32_t overtaking_rows; /* of a batch that begins in backend_batch.between; 0: that is never called */
    int32_t even_rows; /* a batch of a multiple of so many rows makes the most of the time it takes; 0 or 1: any does */
    enum backend_pack_state pack_state;
    const char *pack_note; /* why the file was not used or not written; "" when there is nothing to say */
    struct backend_counts counts;
};

/* What a device does by itself. */
struct backend_rates {
    double launch_s, queued_launch_s; /* a kernel that does nothing: waited for by itself; of many in a row */
    double copy_bytes_s;              /* of its memory, read and written */
};

struct backend {
    const char *name;
    const char *description;
    names_fn kv_type_name; /* types of keys and values that it has */
    names_fn option_name;  /* OPTIONAL: of the program's options those that it has and not every back end does */

    /* The i-th device that cfg, of which nothing that stands for a model counts, lets it run on; ERR_NONE beyond the
     * last. Other errors: it is named, and cannot be used, as *info says. */
    enum err (*probe)(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info);
    /* What open makes of a plan and takes for it, to the byte, without reading a weight. Fails as open does. */
    enum err (*measure)(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                        struct err_info *info);
    /* Prepares the plan (borrowed until close). ERR_NOMEM, ERR_UNSUPPORTED_TYPE, ERR_UNSUPPORTED_CPU. */
    enum err (*open)(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                     struct err_info *info);
    /* Begins a batch, behind those begun before, of which fewer than max_begun are not waited for. On failure there is
     * nothing to wait for, and the errors are those of wait. */
    enum err (*begin)(struct backend_model *m, const struct backend_batch *batch, struct err_info *info);
    /* Ends the oldest batch that was begun: all of it is computed or, on failure, nothing anyone may use, and *info
     * says why. ERR_LOST: nothing can be computed any more, as the device or what it held is gone; nothing is begun
     * again, and what was begun is waited for, which returns soon. After any other failure the next batch may do well.
     */
    enum err (*wait)(struct backend_model *m, struct err_info *info);
    /* A KV page or a recurrent state to the caller's memory and from it, while no batch is begun; a state is as many
     * bytes as measure says of all memories, and every back end's has the same form. ERR_LOST. */
    enum err (*page_read)(struct backend_model *m, struct backend_page page, enum backend_form form, void *out,
                          struct err_info *info);
    enum err (*page_write)(struct backend_model *m, struct backend_page page, enum backend_form form, const void *bytes,
                           struct err_info *info);
    enum err (*state_read)(struct backend_model *m, int32_t state, void *out, struct err_info *info);
    enum err (*state_write)(struct backend_model *m, int32_t state, const void *bytes, struct err_info *info);
    void (*info)(const struct backend_model *m, struct backend_info *out);
    /* OPTIONAL. Measures the device, in a second at most, while no batch is begun. ERR_LOST, ERR_NOMEM. */
    enum err (*rate)(struct backend_model *m, struct backend_rates *out, struct err_info *info);
    /* Returns soon also when the back end is lost. */
    void (*close)(struct backend_model **m);
};

extern const struct backend backend_ref;    /* scalar, double accumulators, f32 KV: the truth */
extern const struct backend backend_cpu;    /* packed weights, SIMD, worker pool, KV of any kv_type */
extern const struct backend backend_opencl; /* weights, KV and kernels on an OpenCL device; in opencl/ */

/* Floats of a page in BACKEND_FLOATS. */
size_t backend_page_floats(const struct plan *plan);

/* Can all weights be taken apart (quant.h)? ERR_UNSUPPORTED_TYPE names one that cannot. */
MUST_CHECK enum err backend_check_types(const struct plan *plan, struct err_info *info);

/* The first device that can be used; else why none can. */
MUST_CHECK enum err backend_device_of(const struct backend *b, const struct backend_config *cfg,
                                      struct backend_device *out, struct err_info *info);

/* The host, of which there is one: a probe of back ends that compute on it. */
enum err backend_probe_host(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info);

/* What lies in the host's memory, with memories that devices share with it. */
struct backend_bytes backend_host_bytes(const struct backend_device *d, const struct backend_measure *m);

/* Pages that all memories hold beside all else that was measured and cfg's states, with a window page for each, but no more of these
 * than cfg has; at most INT32_MAX. */
int32_t backend_pages_that_fit(const struct backend_device *d, const struct backend_measure *m,
                               const struct backend_config *cfg);

/* Bytes of cfg's pages, window pages and states. ERR_NOMEM when no size_t holds them. */
MUST_CHECK enum err backend_pool_bytes(const struct backend_bytes *b, const struct backend_config *cfg, size_t *out,
                                       struct err_info *info);

/* Has the layer, which stores keys and values, window pages? */
static inline bool backend_is_local(const struct plan *plan, const struct backend_config *cfg, int32_t layer)
{
    return cfg->n_windows != 0 && plan_layer_window(plan, layer) != 0;
}

/* Of layers that are local, or are not: how many pages they have, those of a sequence of the batch, which one page_read moves, and what
 * they take of a page. */
static inline int32_t backend_n_pages(const struct backend_config *cfg, bool is_local)
{
    return is_local ? cfg->n_windows : cfg->n_pages;
}
static inline const int32_t *backend_table(const struct backend_batch *b, bool is_local, int32_t seq)
{
    return (is_local ? b->window_tables : b->page_tables)[seq];
}
static inline int32_t backend_page_id(struct backend_page page, bool is_local)
{
    return is_local ? page.window : page.page;
}
static inline size_t *backend_page_bytes(struct backend_bytes *b, bool is_local)
{
    return is_local ? &b->window : &b->page;
}

void backend_bytes_add(struct backend_bytes *to, const struct backend_bytes *more);

/* The sum over all memories. */
struct backend_bytes backend_bytes_all(const struct backend_measure *m);

/* Appends a name of a part to that of all, behind a '+', unless it ends so; what does not fit is cut off. */
void backend_join_name(char all[BACKEND_NAME_BYTES], const char *part);

/* What open asks first. ERR_INTERNAL: the plan is that of a rank, and cfg has no way to meet the others. */
MUST_CHECK enum err backend_check_ranks(const struct plan *plan, const struct backend_config *cfg,
                                        struct err_info *info);

/* What begin fails with where backend_config.reduce gave `err`; fills *info. */
enum err backend_reduce_failed(enum err err, struct err_info *info);

/* Begins a batch and waits for it, with none begun before. Errors: wait's. */
MUST_CHECK enum err backend_compute(const struct backend *b, struct backend_model *m, const struct backend_batch *batch,
                                    struct err_info *info);

/* --- the table (backends.c) -------------------------------------------------------------------------------------- */

/* Does it have the option? Yes if no back end of the table has one of that name: then it is not theirs. */
bool backend_has_option(const struct backend *b, const char *option);

/* The i-th type of keys and values that any of them has; NULL beyond the last. */
const char *backend_kv_type_name(int i);

/* By name, or NULL; i-th of the table, or NULL beyond the last. */
const struct backend *backend_find(const char *name);
const struct backend *backend_at(int i);
const char *backend_name(int i);

#endif
