/* Runs plans. A back end keeps weights in its own form, owns the memory of the KV cache and computes one batch of token
 * rows at a time. The scheduler names pages; a back end only reads and writes them.
 *
 * Promise: the result of a row depends only on its token, its position and the rows before it in its sequence (all rows
 * of its sequence if the plan is bidirectional). It does not depend on neighbors, batch size or number of threads.
 * A back end can have its own memory: begin copies the input of a batch, and wait delivers its results to the caller.
 * In between, neither side reads the other's memory.
 * Threads: one thread at a time (the scheduler's) calls begin, wait and the functions that move pages. */
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

/* Identifies a model file, in addition to what the plan says about its weights. */
struct backend_source {
    const void *head; /* everything before the weights: metadata and tensor directory; borrowed */
    size_t head_bytes;
    uint64_t bytes; /* the whole file */
    int64_t mtime_ns;
    /* 0: the plan has all layers; else a number that identifies its layers, a prediction head or a draft model */
    uint64_t part;
};

struct backend_parts;

enum { BACKEND_ALL_LOGITS = -1 };

enum backend_pack_state {
    BACKEND_PACK_OFF,     /* no pack_cache, or a back end without one */
    BACKEND_PACK_MAPPED,  /* weights come from the file */
    BACKEND_PACK_WRITTEN, /* packed, and written for the next start */
    BACKEND_PACK_FAILED,  /* packed, and could not be written */
};

struct backend_config {
    /* OPTIONAL: selects one of several devices by number or address; NULL or "auto" = the best. probe also accepts a
     * list with commas; for measure and open each part has one (backend_layers_place). */
    const char *device;
    const char *cpu;                   /* ISA for the CPU kernels; NULL = the best of the CPU */
    int n_threads;                     /* >= 1; for each part that uses threads */
    const struct backend_parts *parts; /* only for backend_composite (backend_parts.h); borrowed for the call of open */
    /* Activations have 16 bits everywhere instead of only in blocks with outliers: closer to float32, slower prefill. */
    bool high_precision;
    bool pin;        /* bind each thread to its own CPU (pool_pin), including the thread that calls begin */
    int32_t n_pages; /* KV pages; page ids are 0 .. n_pages-1 */
    /* Window pages, with ids 0 .. n_windows-1. Local layers, whose keys and values are visible only in a window
     * (plan_layer_window), use them instead of the others, and each batch has window_tables. 0 = all layers use the
     * same pages. */
    int32_t n_windows;
    int32_t n_states;            /* recurrent states, with ids 0 .. n_states-1; 0 if the plan has none */
    int32_t max_drafts;          /* most drafts of a sequence (backend_batch.n_drafts); used with states */
    int32_t max_rows;            /* T of the largest batch */
    int32_t max_logits;          /* S of the largest batch */
    const char *k_type, *v_type; /* OPTIONAL: types of the KV cache, from kv_type_name; NULL = its first */
    /* OPTIONAL: folder for files that later starts reuse: packed weights, or programs for a device. Borrowed for the
     * call of open. */
    const char *pack_cache;
    struct backend_source source; /* the file the plan was built from; read only with pack_cache */
    /* More weights than this are prepared after open, between batches and in backend.idle, if the file is in memory;
     * until then batches are slower. weight_done is then also called during begin and idle. 0 = open prepares all
     * weights. Only the CPU back end uses it, and not if open must write pack_cache. */
    size_t eager_bytes;
    /* OPTIONAL: called by the opening thread while weights are prepared, with 0..1. If it returns false, open returns
     * ERR_CANCELLED. */
    bool (*progress)(void *arg, float fraction);
    void *progress_arg;
    /* OPTIONAL: called by the opening thread with a sentence for the operator. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
    /* OPTIONAL [L], layers of the whole model, all false initially. open sets the layers that the device computes
     * wrongly, and then fails with ERR_UNSUPPORTED_DEVICE. */
    bool *unfit;
    /* OPTIONAL: called by any thread when n bytes of a weight at `data` are no longer needed. */
    void (*weight_done)(void *arg, const void *data, uint64_t n);
    void *weight_done_arg;
    /* OPTIONAL: called before weights are prepared after open (eager_bytes). Returns whether the file still has them;
     * if not, no more are prepared, and batches that need the rest fail with ERR_IO. */
    bool (*has_file)(void *arg);
    void *has_file_arg;
    /* Sums over the ranks of a sharded model (plan_shard.h). Replaces n_rows rows of `width` floats, `stride` floats
     * apart, by their sums over all ranks, added in the order of the ranks: all ranks get the same bits. Called by one
     * thread at a time, step after step, while the batch waits. All ranks begin the same batches in the same order. An
     * error other than ERR_OK ends the batch; ERR_LOST = a rank is gone. Other plans do not need it. */
    enum err (*reduce)(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride);
    void *reduce_arg;
};

enum { BACKEND_TEXT_BYTES = 384, BACKEND_ID_BYTES = 24 };

enum { BACKEND_MAX_PARTS = 16 }; /* back ends that have layers of one model (backend_parts.h) */

/* Memories: the host's and a device's. A back end has one device. If several back ends compute a model, each device has
 * a memory, from BACKEND_DEVICE on (backend_parts_memory). */
enum backend_memory { BACKEND_HOST, BACKEND_DEVICE, BACKEND_MEMORIES = BACKEND_DEVICE + BACKEND_MAX_PARTS };

/* The device that a back end computes on. */
struct backend_device {
    char name[128]; /* its own name: "AMD EPYC 9654"; "" if unknown */
    /* If the back end has several devices: the text that selects this one in backend_config.device, "0000:03:00.0";
     * else "". */
    char id[BACKEND_ID_BYTES];
    /* .. and which device it is and why, "device 0 (..): a discrete RDNA3 GPU"; else "". */
    char choice[BACKEND_TEXT_BYTES];
    char note[BACKEND_TEXT_BYTES]; /* a note for the operator, such as a cause of lower speed; or "" */
    /* Bytes of each memory that models can use. Host: the control group's limit or the installed memory, not the free
     * memory. Device: its free memory. 0 = no such memory. */
    size_t bytes[BACKEND_MEMORIES];
    bool is_shared[BACKEND_MEMORIES]; /* the device's memory is part of the host's, and counts there too */
};

/* Bytes that open allocates in a memory, without small tables. */
struct backend_bytes {
    size_t weights;     /* packed, or mapped in the file's form */
    size_t page;        /* a KV page, all layers that use it */
    size_t window;      /* a window page, all local layers */
    size_t state;       /* a recurrent state */
    size_t drafts;      /* the rows that a recurrent state may have to be advanced by, next to each state */
    size_t activations; /* and everything else that a batch needs */
};

/* Forms of a page that page_copy reads and writes. */
enum backend_form {
    /* The bytes of this back end, plan and cache types: a page and a window page together, layer by layer, as many
     * bytes as measure reports for all memories. Written back into any page, they continue with the same bits. */
    BACKEND_OWN,
    /* For other back ends: backend_page_floats(plan) f32. Per layer that stores: [KV_PAGE_TOKENS][keys [K][d], then
     * values [K][d]]; latents have only keys, [KV_PAGE_TOKENS][d]. Writing rounds to the cache types as for new keys
     * and values. So f16, bf16, q8_0 and q4_0 keep their bits, i16 to a unit of its scale. */
    BACKEND_FLOATS,
};

/* Pages that page_copy copies: of ordinary and of local layers. Bytes of a part that is BACKEND_NO_PAGE
 * are not touched on either side. Without window pages `window` is ignored. */
enum { BACKEND_NO_PAGE = -1 };
struct backend_page {
    int32_t page, window;
};

enum { BACKEND_NAME_BYTES = 64 };

/* Measured form and size of a plan on a back end. */
struct backend_measure {
    char kernels[BACKEND_NAME_BYTES]; /* "avx512"; for several back ends "ref+avx512", likewise the types */
    /* Types of the KV cache: "i16"; "none" if keys are the values. */
    char k_type[BACKEND_NAME_BYTES], v_type[BACKEND_NAME_BYTES];
    struct backend_bytes bytes[BACKEND_MEMORIES];
};

/* Statistics of a row of logits. */
struct backend_row_stats {
    int32_t argmax; /* lowest index among equals */
    float max;
    float logsumexp; /* NaN when the row holds NaN or +inf */
};

/* One unit of work. The rows of a sequence are adjacent, at consecutive positions. A later batch can repeat a position
 * with another token: it overwrites keys and values, and those at later positions are not read before they are written
 * again. A batch that returns nothing (backend_has_results) ends with the last step that stores keys, values or a state
 * (plan_end_step). Input arrays are borrowed for the call of begin. Output arrays (out) belong to the back end until wait
 * returns; their initial content is ignored. */
struct backend_batch {
    int32_t n_rows;
    const int32_t *tokens; /* [n_rows] ids, in range */
    const int32_t *pos;    /* [n_rows] position in the sequence; with learned positions below n_ctx_train */
    const int32_t *seq;    /* [n_rows] index into page_tables, ascending */
    int32_t n_seqs;
    const int32_t *const *page_tables; /* [n_seqs] page of position p = table[p / KV_PAGE_TOKENS] */
    /* [n_seqs] like page_tables, for window pages: ids for positions that a row sees in a window; before the window any
     * ids. Not read without window pages. */
    const int32_t *const *window_tables;
    /* [n_seqs] recurrent state of each sequence, all different; NULL = sequence i has state i. Ignored if the plan has
     * none. A sequence whose rows begin at position 0 starts empty, whatever its state holds. Otherwise the state must
     * be the one after the previous row, as the sequence's last batch left it: with recurrent states only drafts can be
     * repeated. */
    const int32_t *states;
    /* OPTIONAL [n_seqs], with recurrent states: the last n_drafts[i] rows of sequence i are drafts, fewer than it has
     * rows, at most max_drafts. Its state stays the one before them, and keeps what advances it. NULL = none. */
    const int32_t *n_drafts;
    /* OPTIONAL [n_seqs]: how many drafts of the sequence's last batch came true, from the first on; its rows continue
     * after these. A sequence that begins, or continues from another's state, has none. NULL = none. */
    const int32_t *n_true;
    /* OPTIONAL [n_seqs]: state from which the sequence continues: its own, or one that this batch does not change,
     * which several sequences can share. NULL = its own. */
    const int32_t *begin_states;
    int32_t n_copies;           /* copies of recurrent states to make; can be 0; 0 if the plan has none */
    const int32_t *copy_rows;   /* [n_copies] ascending row indexes, not of drafts: the state after that row ... */
    const int32_t *copy_states; /* [n_copies] ... is also stored here, a state that this batch does not use otherwise */
    int32_t n_logits;           /* S, can be 0; 0 if the plan has no logits */
    const int32_t *logit_rows;  /* [n_logits] ascending row indexes */
    /* OPTIONAL [n_logits]: the results of each row in addition to its statistics: BACKEND_ALL_LOGITS, or a number of
     * best tokens, 0 to max_best (backend_info). NULL = all logits of all rows. */
    const int32_t *wants;
    float *logits;                   /* out [n_logits][V]; undefined for rows that want fewer */
    struct backend_row_stats *stats; /* out [n_logits] */
    struct candidate *best;          /* out [n_logits][max_best]: the best first; unused with max_best 0 */
    int32_t n_hidden;                /* E, can be 0; 0 if the plan has none */
    const int32_t *hidden_rows;      /* [n_hidden] ascending row indexes */
    float *hidden;                   /* out [n_hidden][D] */
    /* The plan's prediction head computes the rows, instead of the model. A row is a token and, as its input, the output
     * of the row before it in its sequence: the model's, or the head's own for a token that the head guessed; zeros at
     * position 0. Its logits are for the token after it; with plan.guess_ids a row has n_guess_ids of them, followed by
     * undefined ones, and argmax is the number of one. It uses the pages of the model. A later batch can repeat
     * positions, as for the model. With plan.guesses_in_place a row's position is that of the row before it. */
    bool predicts;
    /* For a part of a cut plan (plan_cut.h): rows from the previous part, and for the next part. Likewise for the head
     * and the model that it predicts for. */
    const float *input; /* [n_rows][plan.input_width]; not read if the plan has a head and does not predict */
    /* out [n_rows][plan.output_width], with plan.guesses_in_place [n_logits][plan.output_width]; OPTIONAL if the plan has
     * a head */
    float *output;
    /* OPTIONAL, used with backend_info.overtaking_rows. When *asks is true, `between` is called after one of the next
     * steps of the plan, on the thread that called begin; it sets *asks to false. It can begin and wait for other
     * batches, in sequence: of up to overtaking_rows rows, of sequences that are not in this batch, with their own
     * memory for logits and without `between`. They overtake this batch, whose arrays stay borrowed. */
    const atomic_bool *asks;
    void (*between)(void *arg);
    void *between_arg;
};

struct backend_model; /* a plan made ready by one back end */

/* Work of the batch begun last; zeros if the back end does not count. */
struct backend_counts {
    uint64_t launches;     /* of kernels */
    uint64_t weight_bytes; /* of matrices that its products read, counted per launch */
    uint64_t cache_bytes;  /* of keys and values that its attention reads, counted per launch */
};

/* Properties of an open model. */
struct backend_info {
    /* OPTIONAL [max_logits][V]: memory for backend_batch.logits, shared with data that a batch no longer needs by
     * then. Valid until the next begin. Only with max_begun 1 */
    float *logits;
    /* Batches that can be begun and not yet waited for. 1: begin computes, so other work before wait saves nothing; 2:
     * begin returns immediately. */
    int32_t max_begun;
    int32_t max_best;        /* of backend_batch.wants; 0: callers that need best tokens must use the logits */
    int32_t overtaking_rows; /* of a batch that begins in backend_batch.between; 0: `between` is never called */
    int32_t even_rows; /* batches of a multiple of this number of rows are the most efficient; 0 or 1: no preference */
    /* Estimated time for the weights that open put off (eager_bytes), which a batch can take longer; 0: none is left.
     * Until then a batch of at most behind_rows rows prepares a weight no more than once. */
    uint64_t behind_ns;
    int32_t behind_rows;
    enum backend_pack_state pack_state;
    const char *pack_note; /* why the file was not used or not written; "" if it was */
    struct backend_counts counts;
};

/* Measured speeds of a device. */
struct backend_rates {
    double launch_s, queued_launch_s; /* of an empty kernel: waited for singly; in a queue of many */
    double copy_bytes_s;              /* of its memory, read and written */
};

struct backend {
    const char *name;
    const char *description;
    names_fn kv_type_name; /* its types of keys and values */
    names_fn option_name;  /* OPTIONAL: the program's options that it supports and not every back end does */

    /* Returns the i-th device that cfg allows; fields of cfg that describe a model are ignored. ERR_NONE = beyond the
     * last. Other errors: *out names the device, and *info says why it cannot be used. */
    enum err (*probe)(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info);
    /* Returns what open will build and the exact bytes it will take, without reading a weight. Fails as open does. */
    enum err (*measure)(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                        struct err_info *info);
    /* Prepares the plan (borrowed until close). ERR_NOMEM, ERR_UNSUPPORTED_TYPE, ERR_UNSUPPORTED_CPU. */
    enum err (*open)(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                     struct err_info *info);
    /* Begins a batch after those begun before; fewer than max_begun of them can be unfinished. After a failure there is
     * no batch to wait for. Errors: as wait. */
    enum err (*begin)(struct backend_model *m, const struct backend_batch *batch, struct err_info *info);
    /* Waits for the oldest batch and delivers its results. On failure no result is usable, and *info says why.
     * ERR_LOST: the device or its memory is gone; no batch can begin, and the caller must still wait for unfinished
     * batches, which returns soon. After any other failure the next batch can succeed. */
    enum err (*wait)(struct backend_model *m, struct err_info *info);
    /* Copy a KV page or a recurrent state to the caller's memory or, with `writes`, from there, which is then only
     * read. No batch is begun. A state has as many bytes as measure reports for all memories, in the same form for
     * every back end. ERR_LOST. */
    enum err (*page_copy)(struct backend_model *m, struct backend_page page, enum backend_form form, void *bytes,
                          bool writes, struct err_info *info);
    enum err (*state_copy)(struct backend_model *m, int32_t state, void *bytes, bool writes, struct err_info *info);
    void (*info)(const struct backend_model *m, struct backend_info *out);
    /* OPTIONAL: does some milliseconds of the work that open put off (eager_bytes), while no batch is begun. Returns
     * whether more is left. Called by the thread that calls begin. */
    bool (*idle)(struct backend_model *m);
    /* OPTIONAL: measures the device within a second while no batch is begun. ERR_LOST, ERR_NOMEM. */
    enum err (*rate)(struct backend_model *m, struct backend_rates *out, struct err_info *info);
    /* Closes the model. Returns soon even if the back end is lost. */
    void (*close)(struct backend_model **m);
};

extern const struct backend backend_ref;    /* scalar, double accumulators, f32 KV: the truth */
extern const struct backend backend_cpu;    /* packed weights, SIMD, worker pool, KV of any kv_type */
extern const struct backend backend_opencl; /* weights, KV and kernels on an OpenCL device; in opencl/ */

/* Sets the bytes of a state, and of the drafts next to it. A state's memory begins with the plan's floats. Then it has
 * for each step max_drafts rows, from the float max_drafts * plan_step.drafted on: [items][max_drafts][floats of
 * plan_drafted_floats], and of PLAN_SHORT_CONV [max_drafts][channels]. */
void backend_set_state_bytes(const struct plan *plan, const struct backend_config *cfg, struct backend_bytes *out);

/* Returns the floats of the largest state of a head, which a thread needs to compute drafts; 0 without drafts. */
size_t backend_drafting_floats(const struct plan *plan, const struct backend_config *cfg);

/* Returns whether the batch returns anything; otherwise it only stores keys, values and states. */
static inline bool backend_has_results(const struct plan *p, const struct backend_batch *b)
{
    bool has_output = b->output != NULL && p->output_width != 0 && !p->guesses_in_place; /* else of rows with logits */
    return b->n_logits != 0 || b->n_hidden != 0 || has_output;
}

/* Returns the drafts among the batch's rows of sequence i. */
static inline int32_t backend_n_drafts(const struct backend_batch *b, int32_t i)
{
    return b->n_drafts != NULL ? b->n_drafts[i] : 0;
}

/* Returns how many drafts of its last batch came true. */
static inline int32_t backend_n_true(const struct backend_batch *b, int32_t i)
{
    return b->n_true != NULL ? b->n_true[i] : 0;
}

/* Rows [first, end) of a sequence of a batch, those from `certain` on drafts. */
struct backend_seq_rows {
    int32_t seq, first, certain, end;
};

/* Returns the rows of the sequence whose first row is `first`. */
static inline struct backend_seq_rows backend_seq_rows_at(const struct backend_batch *b, int32_t first)
{
    struct backend_seq_rows s = {.seq = b->seq[first], .first = first, .end = first + 1};
    while (s.end < b->n_rows && b->seq[s.end] == s.seq) {
        s.end++;
    }
    s.certain = s.end - backend_n_drafts(b, s.seq);
    return s;
}

/* Returns the floats of a page in BACKEND_FLOATS. */
size_t backend_page_floats(const struct plan *plan);

/* Checks that all weight types can be unpacked (quant.h). ERR_UNSUPPORTED_TYPE names one that cannot. */
MUST_CHECK enum err backend_check_types(const struct plan *plan, struct err_info *info);

/* Returns the first usable device, else the reason why none is. */
MUST_CHECK enum err backend_device_of(const struct backend *b, const struct backend_config *cfg,
                                      struct backend_device *out, struct err_info *info);

/* The probe function of back ends whose only device is the host. */
enum err backend_probe_host(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info);

/* The wait function of back ends whose begin finishes the batch. */
enum err backend_wait_done(struct backend_model *m, struct err_info *info);

/* Returns the bytes in the host's memory, including memories that devices share with it. */
struct backend_bytes backend_host_bytes(const struct backend_device *d, const struct backend_measure *m);

/* Returns the number of pages that fit in all memories next to everything else measured and cfg's states. Each comes
 * with a window page, up to the number that cfg has. At most INT32_MAX. */
int32_t backend_pages_that_fit(const struct backend_device *d, const struct backend_measure *m,
                               const struct backend_config *cfg);

/* Returns the bytes of cfg's pages, window pages and states. ERR_NOMEM if they exceed size_t. */
MUST_CHECK enum err backend_pool_bytes(const struct backend_bytes *b, const struct backend_config *cfg, size_t *out,
                                       struct err_info *info);

/* Returns whether the layer, which stores keys and values, uses window pages. */
static inline bool backend_is_local(const struct plan *plan, const struct backend_config *cfg, int32_t layer)
{
    return cfg->n_windows != 0 && plan_layer_window(plan, layer) != 0;
}

/* Return, for local or other layers, the number of pages, the page table of a sequence, the page of a page_copy, and
 * the bytes per page. */
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

/* Returns the sum over all memories. */
struct backend_bytes backend_bytes_all(const struct backend_measure *m);

/* Appends a part's name to `all` after a '+', unless `all` ends with it. Truncates what does not fit. */
void backend_join_name(char all[BACKEND_NAME_BYTES], const char *part);

/* Checks the plan at the start of open. ERR_INTERNAL: the plan is one rank's and cfg has no reduce. */
MUST_CHECK enum err backend_check_ranks(const struct plan *plan, const struct backend_config *cfg,
                                        struct err_info *info);

/* Checks the batch's sizes at the start of begin. ERR_INTERNAL: it is larger than open's cfg allows. */
MUST_CHECK enum err backend_check_batch(const struct plan *plan, const struct backend_config *cfg,
                                        const struct backend_batch *batch, struct err_info *info);

/* Returns the error of begin after backend_config.reduce returned `err`; fills *info. */
enum err backend_reduce_failed(enum err err, struct err_info *info);

/* Begins a batch and waits for it; no other batch is unfinished. Errors: as wait. */
MUST_CHECK enum err backend_compute(const struct backend *b, struct backend_model *m, const struct backend_batch *batch,
                                    struct err_info *info);

/* --- the table (backends.c) -------------------------------------------------------------------------------------- */

/* Returns whether the back end supports the option. True for options that belong to no back end. */
bool backend_has_option(const struct backend *b, const char *option);

/* Returns the i-th type of keys and values over all back ends; NULL beyond the last. */
const char *backend_kv_type_name(int i);

/* Return the back end of a name, or NULL; the i-th of the table, or NULL beyond the last. */
const struct backend *backend_find(const char *name);
const struct backend *backend_at(int i);
const char *backend_name(int i);

#endif
