/* The scheduler: continuous batching at iteration level [Yu 2022, "Orca"] with chunked prefill [Agrawal 2024,
 * "Sarathi"].
 *
 * One thread owns the batch, the KV pages and sampling. Each step takes a row of every decoding sequence first and
 * fills the rest of the batch with chunks of prompts, within the step's time budget. Requests arrive through a bounded
 * queue. Tokens leave through a bounded ring per sequence, so a slow reader pauses only its own sequence. None of this
 * changes what a sequence generates: the back end computes a row the same in every batch.
 *
 * Slots in the batch are shared between the keys of requests by the rows computed for them and their weights
 * (sched_share.c), then round robin between a key's requests. Sequences beyond a request's fair share wait after the
 * others and hand over their slots when others arrive (sched_turn.c).
 *
 * Threads: groups, sched_submit_all, sched_cancel, sched_get_stats, sched_drain from any; sched_next and sched_release
 * of a sequence from one thread at a time. */
#ifndef INFCGI_SCHED_SCHED_H
#define INFCGI_SCHED_SCHED_H

#include "engine/backend/backend.h"
#include "engine/base/err.h"
#include "engine/grammar/grammar.h"
#include "engine/kv/disk/kv_disk.h"
#include "engine/sched/draft.h"
#include "engine/sched/sched_report.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;
struct sched_seq;
struct sched_group;

struct sched_config {
    const struct backend *backend;
    /* borrowed; opened with n_pages, n_windows, n_states and the limits of a batch below */
    struct backend_model *model;
    int32_t n_vocab;
    int32_t n_ctx;   /* longest sequence in tokens */
    int32_t n_pages; /* KV pages; sched_least_pages or more, so any sequence fits */
    /* No layer looks further back than this, the row itself included, and pages before it are released. 0: some layer
     * sees everything, or the plan is bidirectional or keeps states. */
    int32_t window;
    int32_t n_windows;            /* window pages of local layers (backend.h), sched_least_windows or more; 0: none */
    int32_t local_window;         /* longest window of the local layers, with n_windows */
    int32_t max_rows, max_logits; /* of a batch; max_logits >= max_seqs */
    int32_t n_embd;               /* components of an embedding; 0: the plan returns no states */
    /* The plan has a prediction head or a joined draft model (plan_join.h), and it is used: then the back end is opened
     * for max_rows + max_seqs rows. */
    bool predicts;
    int32_t output_width;     /* floats of an output row, which the head reads; 0: a draft model, which reads none */
    bool guesses_in_place;    /* the plan's */
    const int32_t *guess_ids; /* borrowed [n_guess_ids]: the tokens of the head's logits (plan.h) */
    int32_t n_guess_ids;      /* 0: all tokens */
    bool is_bidirectional;    /* the plan's; prompts are then computed in one piece, and max_rows >= n_ctx */
    /* Recurrent states: max_seqs for running sequences, and one or more to continue from cached prefixes. 0: the plan
     * keeps none. */
    int32_t n_states;
    float *logits;               /* OPTIONAL, borrowed [max_logits][n_vocab]: backend_info.logits */
    int32_t max_begun, max_best; /* backend_info's; max_begun 0: 1; at most 2 are used */
    int32_t overtaking_rows;     /* backend_info's; 0: nothing overtakes a begun batch */
    int32_t even_rows;           /* backend_info's */
    bool has_spare_cpu;          /* a CPU to spare, not used by begin, for grammar masks */
    int32_t max_seqs;            /* running sequences */
    int32_t n_express; /* slots of max_seqs reserved for prompts that run alone if the others are taken; < max_seqs */
    /* Queued sequences. One request can fill half while others wait. A quarter more can queue if their client has one
     * request, or no more than its share. */
    int32_t queue_max;
    uint64_t queue_max_tokens; /* limit on their tokens; 0: none */
    uint64_t step_budget_ns;   /* upper target for a step's time while sequences decode; 0: 80 ms */
    uint64_t stall_ns;         /* a reader that takes (almost) nothing for this long loses its sequence; 0: 30 s */
    /* Tokens guessed ahead per sequence and step (draft.h), 0: none .. DRAFT_MAX. A sequence gets draft_max + 1 rows,
     * or twice as many as there are sequences, but no more than DRAFT_MAX + 1. With states it is the back end's
     * max_drafts, and forced tokens are no more, either. */
    int32_t draft_max;
    struct draft_experts experts; /* the model's, without a head's */
    bool no_lookup;               /* repeated text is not looked up */
    float guess_p_min;            /* a guess of the head less probable than this ends its guesses; 0: none does */
    /* OPTIONAL: receives the reason when a batch fails, before its sequences end, on the scheduler's thread. ERR_LOST
     * comes once, as the last call. */
    void (*failed)(void *arg, const struct err_info *why);
    void *failed_arg;
    struct kv_disk *disk;     /* OPTIONAL, borrowed: stores pages and states, in the back end's form */
    uint64_t disk_wait_ns;    /* time a prompt waits for its next file there; 0: 2 s */
    uint64_t (*now_ns)(void); /* OPTIONAL: the clock that times batches, instead of clock_now_ns */
};

/* Decides on tokens before the sampler. The scheduler's thread calls next and take in the order of the tokens; their
 * results depend only on that order. Each sequence has a copy of the state's bytes; fini is called once per copy,
 * last. */
struct sched_guide {
    int32_t (*next)(const void *state); /* the token that must come now, in range; -1: sample one */
    /* records the token, which is another one if a grammar rejects that of next */
    void (*take)(void *state, int32_t id);
    void (*fini)(void *state); /* OPTIONAL; any thread */
    const void *state;         /* [n_bytes] */
    size_t n_bytes;
};

/* One sequence to generate, or, with a pooling, to embed. To embed, max_tokens is 0 and the sampling, all zero, is not
 * used. Everything is copied. */
struct sched_request {
    enum plan_pooling pooling; /* PLAN_POOL_NONE: generate; never PLAN_POOL_RANK */
    bool keeps_length;         /* with a pooling: keep the embedding's length */
    const int32_t *tokens;     /* [n_tokens] the prompt, ids in range, 1 .. n_ctx of them */
    int32_t n_tokens;
    int32_t max_tokens; /* 0: prefill only, -1: until n_ctx */
    int32_t min_tokens;
    bool prompt_logprobs;
    struct sampler_params sampling; /* bias and ends are copied too; ends: all ids that end this sequence */
    /* OPTIONAL: the grammar that the sequence follows (it takes a reference) and the vocabulary, which outlives it. The
     * sequence ends if nothing can follow, with ERR_GRAMMAR_DEAD_END if no token can, or with ERR_GRAMMAR_LIMIT. */
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    const struct sched_guide *guide; /* OPTIONAL */
    const char *salt;                /* OPTIONAL */
    bool keeps_no_snapshots;         /* write none of its pages to disk, because no request can ask for them again */
    uint64_t deadline_ns;            /* on clock_now_ns; 0: none */
};

struct sched_event {
    enum sched_event_kind kind;
    enum sched_finish finish;    /* END */
    enum err err;                /* END: why it failed, or ERR_OK */
    const struct err_info *why;  /* END: details beyond err, or NULL; borrowed until sched_release */
    struct sampler_result token; /* TOKEN, PROMPT_TOKEN; the end token itself is not returned */
};

/* Returns the floats of an output that are kept with each page, for later rows of the head. */
int32_t sched_kept_floats(const struct sched_config *cfg);

/* Returns the pages that the longest sequence needs, from cfg's n_ctx, window and max_rows. */
int32_t sched_least_pages(const struct sched_config *cfg);

/* sched_least_windows returns the window pages that the longest sequence needs, from n_ctx, local_window and max_rows.
 * sched_useful_windows returns how many are useful: enough for all running sequences, and about the same number for
 * cached prefixes. */
int32_t sched_least_windows(const struct sched_config *cfg);
int32_t sched_useful_windows(const struct sched_config *cfg);

/* Starts the scheduler's thread. ERR_NOMEM, ERR_CONFIG, ERR_INTERNAL. */
MUST_CHECK enum err sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info);

/* Ends all sequences with ERR_CANCELLED, stops the thread and frees the scheduler. The caller must have released all
 * sequences. */
void sched_free(struct sched **s);

/* Rejects new sequences from now on (ERR_DRAINING). */
void sched_drain(struct sched *s);

/* Returns whether the back end is lost; *why (OPTIONAL) then holds the reason. All sequences have ended with it or are
 * about to. */
bool sched_is_lost(struct sched *s, struct err_info *why);

/* Makes a request of n_seqs sequences in all, submitted together or in sequence. whose: OPTIONAL; its weight and
 * priority apply from now on to all requests of the key. ERR_NOMEM. */
MUST_CHECK enum err sched_group_new(struct sched *s, const struct sched_share *whose, int32_t n_seqs,
                                    struct sched_group **out);

/* Releases the group and sets *g to NULL; submitted sequences continue. */
void sched_group_release(struct sched_group **g);

/* Returns whether a new request of this key would be rejected now, however small. A hint, to ask before making the
 * prompt. */
bool sched_is_full(struct sched *s, uint64_t key);

/* Returns how many of its sequences would be accepted now. Once the queue accepted some, the group can always have as
 * many in it as at first. */
int32_t sched_group_room(struct sched_group *g);

/* Queues n >= 1 sequences of a request, all or none. out[i] are the caller's until sched_release, NULL on failure. g
 * OPTIONAL: without it they are a separate request. ERR_OVERLOADED; ERR_AGAIN instead while earlier sequences of
 * the group run: retry later; ERR_DRAINING, except for a group that has begun; ERR_LOST; ERR_NOMEM; ERR_INVALID_VALUE
 * (no tokens, or more than can ever wait), ERR_CONTEXT_LENGTH (more than n_ctx). */
MUST_CHECK enum err sched_submit_all(struct sched *s, struct sched_group *g, const struct sched_request *r, int32_t n,
                                     struct sched_seq **out, struct err_info *info);

/* Waits up to timeout_ms for an event. ERR_AGAIN: none yet. ERR_NONE: SCHED_END was already returned. */
MUST_CHECK enum err sched_next(struct sched_seq *q, int timeout_ms, struct sched_event *out);

/* Returns the embedding: [n_embd], of length 1 unless keeps_length is set; with PLAN_POOL_EACH the unchanged states,
 * [tokens of the prompt][n_embd]. The sequence must have a pooling and have returned SCHED_END with ERR_OK. The bits
 * depend only on the tokens. Borrowed until sched_release. */
const float *sched_embedding(const struct sched_seq *q);

/* With PLAN_POOL_EACH returns ERR_NUMERICAL if a number of sched_embedding is not finite: the scheduler's thread,
 * shared by all, does not check each one. With another pooling SCHED_END reports that error, and this returns
 * ERR_OK. */
MUST_CHECK enum err sched_check_states(const struct sched_seq *q);

/* Drops the sequence within one step. */
void sched_cancel(struct sched_seq *q);

void sched_seq_usage(struct sched_seq *q, struct sched_usage *out);

/* Cancels the sequence if it still runs, releases it and sets *q to NULL. */
void sched_release(struct sched_seq **q);

void sched_get_stats(struct sched *s, struct sched_stats *out);

/* Returns the sequences of a key now; key 0: of requests without a key, including guests. */
void sched_get_share(struct sched *s, uint64_t key, uint64_t *n_running, uint64_t *n_waiting);

/* Resets the totals and the known lengths of answers; measured speeds stay. */
void sched_clear_stats(struct sched *s);

#endif
