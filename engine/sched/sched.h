/* The scheduler: continuous batching at iteration level [Yu 2022, "Orca"] with chunked prefill [Agrawal 2024,
 * "Sarathi"].
 *
 * One thread owns the batch, the KV pages and sampling. Each step takes a row of every decoding sequence first and
 * fills the rest of the batch with chunks of prompts, as many as fit the step's time budget. Requests come in through a
 * bounded queue; tokens go out through a bounded ring per sequence, so that a slow reader pauses its own sequence and
 * nobody else's. What a sequence gives does not depend on any of this: the back end computes a row the same in every
 * batch.
 *
 * Places in the batch are shared by the rows that the keys of requests had computed and by their weights (sched_share.c),
 * then go round over the requests of a key; what one has beyond its fair part waits behind the others, and hands its
 * places over when they come (sched_turn.c).
 *
 * Threads: groups, sched_submit, sched_cancel, sched_get_stats, sched_drain from anywhere; sched_next and sched_release
 * of a sequence from one thread at a time. */
#ifndef INFCGI_SCHED_SCHED_H
#define INFCGI_SCHED_SCHED_H

#include "engine/backend/backend.h"
#include "engine/base/err.h"
#include "engine/grammar/grammar.h"
#include "engine/kv/kv_disk.h"
#include "engine/sched/sched_report.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;
struct sched_seq;
struct sched_group;

struct sched_config {
    const struct backend *backend;
    struct backend_model *model; /* borrowed; opened with the three limits below */
    int32_t n_vocab;
    int32_t n_ctx;     /* longest sequence in tokens */
    int32_t n_pages;   /* KV pages; at least sched_least_pages, so any sequence fits */
    int32_t window;    /* no layer looks further back than this, the row itself counted: what lies in front is let
                                   * go. 0 = some see everything, or the plan is bidirectional or keeps states */
    int32_t n_windows; /* window pages of local layers (backend.h), at least sched_least_windows; 0 = there are none */
    int32_t local_window;         /* the longest of local layers' windows, with n_windows */
    int32_t max_rows, max_logits; /* of a batch; max_logits >= max_seqs */
    int32_t n_embd;               /* components of an embedding; 0 = the plan gives no states */
    bool is_bidirectional;        /* the plan is: prompts are computed in one piece; then max_rows >= n_ctx */
    int32_t n_states;             /* recurrent states, of which max_seqs are for sequences that run and one or more to
                                   * go on from prefixes; then draft_max is 0. 0 = the plan keeps none */
    float *logits;                /* OPTIONAL, borrowed [max_logits][n_vocab]: backend_info.logits */
    int32_t max_begun, max_best;  /* backend_info's; of max_begun 0 = 1 and at most 2 are made use of */
    int32_t overtaking_rows;      /* backend_info's; 0 = nothing overtakes a batch that is begun */
    int32_t even_rows;            /* backend_info's */
    bool has_spare_cpu;           /* beside those that begin takes where it computes: for masks of grammars */
    int32_t max_seqs;             /* sequences running at once */
    int32_t
        n_express; /* of these so many places are for prompts alone that go alone when the others are taken; < max_seqs */
    int32_t queue_max;         /* sequences waiting: of one request half of it at most while others wait; a quarter more
                                   * wait if their client has one request, or no more than its part */
    uint64_t queue_max_tokens; /* and their tokens; 0 = no limit */
    uint64_t step_budget_ns;   /* what hardly a step is to take longer than while others decode; 0 = 80 ms */
    uint64_t stall_ns;         /* a reader that takes (next to) nothing for so long loses its sequence; 0 = 30 s */
    int32_t
        draft_max; /* tokens of a sequence guessed ahead in a step (draft.h), 0 = none .. DRAFT_MAX; it has draft_max + 1
                                   * rows, or twice as many as sequences, but no more than DRAFT_MAX + 1 */
    /* OPTIONAL: told why a batch failed, before its sequences end, on the scheduler's thread; ERR_LOST comes once and
     * last. */
    void (*failed)(void *arg, const struct err_info *why);
    void *failed_arg;
    struct kv_disk *disk;     /* OPTIONAL, borrowed: where pages and states are kept, of the back end's form */
    uint64_t disk_wait_ns;    /* how long a prompt waits for its next file there; 0 = 2 s */
    uint64_t (*now_ns)(void); /* OPTIONAL: what batches are timed by, in place of clock_now_ns */
};

/* What decides on tokens before the sampler does. next and take are called from the scheduler's thread, in the order of the tokens, and
 * what they say depends on these alone. Each sequence has a copy of the state's bytes; fini is called once for each copy, last. */
struct sched_guide {
    int32_t (*next)(const void *state);    /* the token that must come now, in range; -1 = what is sampled */
    void (*take)(void *state, int32_t id); /* it came, or another where a grammar refuses it */
    void (*fini)(void *state);             /* OPTIONAL; any thread */
    const void *state;                     /* [n_bytes] */
    size_t n_bytes;
};

/* One sequence to generate, or, with a pooling, to embed; then max_tokens is 0 and of sampling, which is all zero,
 * nothing is used. Everything is copied. */
struct sched_request {
    enum plan_pooling pooling; /* PLAN_POOL_NONE = generate; never PLAN_POOL_RANK */
    bool keeps_length;         /* with a pooling: what it gives, as it is */
    const int32_t *tokens;     /* [n_tokens] the prompt, ids in range, 1 .. n_ctx of them */
    int32_t n_tokens;
    int32_t max_tokens; /* 0 = prefill only, -1 = until n_ctx */
    int32_t min_tokens;
    bool prompt_logprobs;
    struct sampler_params sampling; /* bias and ends are copied too; ends = all ids that end this sequence */
    /* OPTIONAL: what the sequence follows, which takes a reference, and the vocabulary, which outlives it. It ends where nothing
     * may follow, and with ERR_GRAMMAR_DEAD_END where no token can, or ERR_GRAMMAR_LIMIT. */
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    const struct sched_guide *guide; /* OPTIONAL */
    const char *salt;                /* OPTIONAL */
    bool keeps_no_snapshots;         /* its pages go to no disk, as nobody can ask for them again */
    uint64_t deadline_ns;            /* clock_now_ns, 0 = none */
};

struct sched_event {
    enum sched_event_kind kind;
    enum sched_finish finish;    /* END */
    enum err err;                /* END: why it broke off, or ERR_OK */
    const struct err_info *why;  /* END: what is known beyond err, or NULL; borrowed until sched_release */
    struct sampler_result token; /* TOKEN, PROMPT_TOKEN; the end token itself is not given out */
};

/* Pages that the longest sequence needs: of cfg its n_ctx, window and max_rows. */
int32_t sched_least_pages(const struct sched_config *cfg);

/* Window pages that the longest sequence needs, by its n_ctx, local_window and max_rows; and those that are of use: for all that run, and
 * about as many as these have for what is to be gone on from. */
int32_t sched_least_windows(const struct sched_config *cfg);
int32_t sched_useful_windows(const struct sched_config *cfg);

/* Starts the scheduler's thread. ERR_NOMEM, ERR_CONFIG, ERR_INTERNAL. */
MUST_CHECK enum err sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info);

/* Ends all sequences with ERR_CANCELLED, stops the thread, frees. All sequences must have been released before. */
void sched_free(struct sched **s);

/* Refuses new sequences from now on (ERR_DRAINING). */
void sched_drain(struct sched *s);

/* Is the back end lost? Then *why (OPTIONAL) says how; all sequences have ended with it, or will in a moment. */
bool sched_is_lost(struct sched *s, struct err_info *why);

/* A request of n_seqs sequences in all, which are submitted at once or one after the other. whose: OPTIONAL; its weight and
 * priority hold from now on for all requests of the key. ERR_NOMEM. */
MUST_CHECK enum err sched_group_new(struct sched *s, const struct sched_share *whose, int32_t n_seqs,
                                    struct sched_group **out);

/* Lets go, and sets *g to NULL; what was submitted goes on. */
void sched_group_release(struct sched_group **g);

/* Would a new request of this key be refused now, however small it is? To be asked before its prompt is made; not to be relied on. */
bool sched_is_full(struct sched *s, uint64_t key);

/* How many of its sequences would be taken now. Once one was taken, so many as that were taken at first may always be
 * there. */
int32_t sched_group_room(struct sched_group *g);

/* Queues n >= 1 sequences of a request, all or none; out[i] are the caller's until sched_release, NULL on failure.
 * g OPTIONAL: without it they are a request of their own. ERR_OVERLOADED; ERR_AGAIN instead while earlier ones of the
 * group go on: later; ERR_DRAINING, not for a group that has begun; ERR_LOST; ERR_NOMEM; ERR_INVALID_VALUE (no tokens,
 * or more than may ever wait), ERR_CONTEXT_LENGTH (more than n_ctx). */
MUST_CHECK enum err sched_submit_all(struct sched *s, struct sched_group *g, const struct sched_request *r, int32_t n,
                                     struct sched_seq **out, struct err_info *info);

/* One sequence, a request of its own. */
MUST_CHECK enum err sched_submit(struct sched *s, const struct sched_request *r, struct sched_seq **out,
                                 struct err_info *info);

/* Waits up to timeout_ms for an event. ERR_AGAIN: none yet. ERR_NONE: SCHED_END was given out. */
MUST_CHECK enum err sched_next(struct sched_seq *q, int timeout_ms, struct sched_event *out);

/* The embedding, [n_embd], of length 1 unless its own was to be kept; with PLAN_POOL_EACH the states as they are, [tokens of
 * the prompt][n_embd]. Of a sequence that was submitted with a pooling and gave SCHED_END with ERR_OK.
 * Its bits depend on the tokens alone. Borrowed until sched_release. */
const float *sched_embedding(const struct sched_seq *q);

/* With PLAN_POOL_EACH: are all numbers of sched_embedding finite? ERR_NUMERICAL: one is not; the scheduler's thread, which computes for
 * all, does not look at each. With another pooling SCHED_END has that error, and this is ERR_OK. */
MUST_CHECK enum err sched_check_states(const struct sched_seq *q);

/* The sequence is dropped within one step. */
void sched_cancel(struct sched_seq *q);

void sched_seq_usage(struct sched_seq *q, struct sched_usage *out);

/* Cancels if need be, and lets go; sets *q to NULL. */
void sched_release(struct sched_seq **q);

void sched_get_stats(struct sched *s, struct sched_stats *out);

/* Sequences of a key now; key 0: of nobody's, guests among them. */
void sched_get_share(struct sched *s, uint64_t key, uint64_t *n_running, uint64_t *n_waiting);

/* Totals begin anew, and so does what is known of how long answers get; measured speeds stay. */
void sched_clear_stats(struct sched *s);

#endif
