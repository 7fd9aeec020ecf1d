/* Shared by the files of the scheduler. */
#ifndef INFCGI_SCHED_SCHED_INTERNAL_H
#define INFCGI_SCHED_SCHED_INTERNAL_H

#include "engine/sched/sched.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/kv/kv_cache.h"
#include "engine/sched/draft.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SCHED_RING = 256,       /* events a reader may be behind; a power of two */
    SCHED_RING_RESERVE = 1, /* kept free for SCHED_END */
    SCHED_MIN_CHUNK = 16,   /* prompt rows a step takes at least, so that prompts always move */
};
#define SCHED_DEFAULT_BUDGET_NS 100000000ull
#define SCHED_DEFAULT_STALL_NS  30000000000ull

/* Ring entry: an event with room for its alternatives only where they were asked for. */
struct sched_slot {
    enum sched_event_kind kind;
    enum sched_finish finish;
    enum err err;
    int32_t id, n_top;
    float logprob;
};

/* A sequence. Fields are the scheduler thread's, but for those marked (lock) and atomics. */
struct sched_seq {
    struct sched *sched;
    struct sched_seq *next; /* in the queue of submitted or waiting ones, or in the list of running ones */
    uint64_t number;        /* submit order, from 1: age, and who owns KV pages */
    atomic_int refs;        /* reader and scheduler */
    atomic_bool cancelled;  /* set by anyone, read by the scheduler each step */

    struct sampler_params sampling;
    int32_t *tokens; /* [max_total + 1] prompt and what was generated; behind it n_draft guessed ones */
    int32_t n_prompt, n_tokens, max_total, min_tokens;
    bool prompt_logprobs, is_private; /* private: shares no pages */
    enum plan_pooling pooling;
    double *pooled;   /* [n_embd] sum of the states so far; NULL without pooling */
    float *embedding; /* [n_embd], before SCHED_END is given out */
    uint64_t salt, deadline_ns;

    int32_t *pages; /* page table */
    int32_t n_pages;
    int32_t slot;           /* of recurrent state, from its first batch on; KV_NO_STATE = none */
    int32_t begin_slot;     /* with the state it goes on from in its first batch, or KV_NO_STATE */
    int32_t n_begin;        /* positions in front of which that state stands */
    int32_t n_matched;      /* pages of its prompt that were known when it began */
    int32_t n_kept;         /* positions behind the newest state it kept while generating; 0 = none */
    int32_t i_copies;       /* first of the states that the current batch copies for it */
    int32_t n_copies;       /* of them */
    int32_t n_computed;     /* positions whose keys and values are in the cache */
    int32_t n_chunk;        /* rows in the current batch */
    int32_t n_draft;        /* of these the last, of tokens that are guessed */
    int32_t i_logits;       /* first of its rows of logits in the current batch */
    int32_t i_states;       /* the same of states */
    int32_t n_states;       /* of them in the current batch */
    int32_t n_prompt_given; /* prompt tokens given out with their log-probabilities */
    uint64_t stalled_since; /* 0: the reader keeps up */
    struct draft draft;     /* without an index: no guesses */
    bool was_admitted, was_preempted, has_ended;

    pthread_mutex_t lock;
    pthread_cond_t ready;
    struct sched_slot *ring;  /* [SCHED_RING] (lock) */
    struct sampler_top *tops; /* [SCHED_RING][n_top] (lock) */
    uint32_t n_put, n_got;    /* (lock) */
    struct sched_usage usage; /* (lock) */
    uint64_t submit_ns, admit_ns, first_ns;
};

struct sched {
    struct sched_config cfg;
    struct kv_cache *kv;
    struct sampler_scratch scratch;
    pthread_t thread;
    bool is_started;

    pthread_mutex_t lock; /* guards the fields down to next_number */
    pthread_cond_t wake;
    struct sched_seq *submitted, **submitted_end;
    int32_t n_queued;         /* submitted and waiting */
    uint64_t n_queued_tokens; /* theirs; a little high between a step's admissions and its end */
    bool is_draining, is_stopping;
    struct sched_stats stats;
    uint64_t next_number;
    atomic_bool has_news; /* something was submitted or cancelled */

    /* The thread's own. */
    struct sched_seq *waiting; /* in order of number */
    struct sched_seq *running; /* in order of number */
    int32_t n_running;
    double ns_per_row; /* moving average of prefill steps */
    struct draft_costs costs;
    atomic_ullong last_step_ns;

    /* The batch; arrays of max_rows, max_seqs or max_logits. */
    int32_t *tokens, *pos, *seq, *logit_rows, *state_rows, *slots, *begin_slots;
    int32_t *copy_rows, *copy_slots; /* [2 max_seqs] */
    int32_t n_copies;
    const int32_t **tables;
    struct sched_seq **batch_seqs;
    struct draft_offer *offers;
    float *logits;
    float *states; /* [max_rows][n_embd]; NULL without embeddings */
    struct backend_row_stats *row_stats;
};

/* sched_step.c */
bool sched_step(struct sched *s); /* one step; false when there is nothing to compute now */

bool sched_is_end(const struct sched_seq *q, int32_t id); /* does the token end the sequence? */

/* sched_admit.c */
void sched_admit_all(struct sched *s); /* from waiting to running while pages and places last */
bool sched_grow(struct sched *s, struct sched_seq *q,
                int32_t n_positions);                           /* pages for so many positions; may preempt */
int32_t sched_ready_rows(struct sched *s, struct sched_seq *q); /* rows q could compute now, after using shared pages */
void sched_named_pages_filled(struct sched *s, struct sched_seq *q,
                              int32_t from); /* publish pages complete since n_computed was `from` */
void sched_drop_pages(struct sched *s, struct sched_seq *q);
void sched_forget_pages(struct sched *s, struct sched_seq *q); /* nobody shall find what q has computed */

/* sched_state.c: without recurrent state pages_with_state, begin_state and adopt_page are not called, and the others do
 * nothing */
int32_t sched_pages_with_state(const struct sched *s,
                               const struct sched_seq *q);        /* known pages of q, up to the last with a state */
void sched_begin_state(struct sched *s, struct sched_seq *q);     /* q, not begun, holds those pages and that state */
bool sched_waits_for_state(struct sched *s, struct sched_seq *q); /* that an older sequence is about to leave */
bool sched_claim_slot(struct sched *s, struct sched_seq *q);      /* of its own; false: there is none in this step */
void sched_add_copies(struct sched *s, int32_t n_seqs);           /* states that the batch shall leave with pages */
void sched_keep_copies(struct sched *s, struct sched_seq *q);     /* q's rows and pages are computed */
void sched_drop_copies(struct sched *s);                          /* they are not */
void sched_drop_slots(struct sched *s, struct sched_seq *q);      /* of a sequence that leaves */
void sched_adopt_page(struct sched *s, struct sched_seq *q, int32_t i); /* the named page with q's i-th, if any */

/* sched_draft.c */
void sched_draft_all(struct sched *s, int32_t n_seqs); /* drafts for batch_seqs[0..n_seqs), which all decode */

/* sched_embed.c */
bool sched_wants_state(const struct sched_seq *q, int32_t at);               /* of the token at position `at`? */
void sched_pool_states(struct sched *s, struct sched_seq *q, bool is_first); /* of the current batch */
enum err sched_finish_embedding(struct sched *s, struct sched_seq *q);       /* ERR_NUMERICAL */

/* sched.c */
uint32_t sched_ring_room(struct sched_seq *q);
void sched_put_token(struct sched_seq *q, enum sched_event_kind kind, const struct sampler_result *r);
void sched_end(struct sched *s, struct sched_seq *q, enum sched_finish finish,
               enum err err); /* q leaves the scheduler */

#endif
