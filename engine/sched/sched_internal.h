/* Shared by the files of the scheduler. */
#ifndef INFCGI_SCHED_SCHED_INTERNAL_H
#define INFCGI_SCHED_SCHED_INTERNAL_H

#include "engine/sched/sched.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/sched/draft.h"
#include "engine/sched/row_costs.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SCHED_RING = 256,       /* events a reader may be behind; a power of two */
    SCHED_RING_RESERVE = 1, /* kept free for SCHED_END */
    SCHED_MOST_PREEMPTED =
        2,                /* times that a sequence lost its pages, and is let in anew without its end being looked at */
    SCHED_MIN_CHUNK = 16, /* prompt rows a step takes at least, so that prompts always move */
    SCHED_QUANTUM = 32,   /* tokens a sequence that was sent back gets out before it may be sent back again */
    SCHED_MAX_BEGUN = 2,  /* batches begun and not waited for */
    SCHED_FAIR_EVERY = 32,   /* steps after which one without extras is measured anew */
    SCHED_EXPRESS_PART = 5,  /* of the time at most one part of so many is of express steps */
    SCHED_OVERTAKERS = 4,    /* sequences of a batch that overtakes another */
    SCHED_OFF_TIMES = 4,     /* so many times as far off their time as on average steps hardly ever are */
    SCHED_LOW_PART = 8,      /* of so many rows one is the lower classes', while they wait */
    SCHED_LOW_OWED = 256,    /* rows owed to them for which a place is taken from the highest */
    SCHED_LOW_MOST = 4096,   /* rows owed, either way */
    SCHED_BORDERS = 2,       /* windows of each place in the batch that there is room for */
    SCHED_GUESS_TOKENS = 64, /* of an answer, before any has ended */
    SCHED_KEPT_TENANTS = 64, /* that have no request now, so that what they had is not forgotten at once */
};
#define SCHED_DEFAULT_BUDGET_NS 80000000ull
#define SCHED_DEFAULT_STALL_NS  30000000000ull

/* Ring entry: an event with room for its alternatives only where they were asked for. */
struct sched_entry {
    enum sched_event_kind kind;
    enum sched_finish finish;
    enum err err;
    int32_t id, n_top;
    float logprob;
};

/* Whose requests: all of one key. */
struct sched_tenant {
    uint64_t key;
    bool is_guest;                /* counted as nobody's (struct sched_share) */
    struct sched_tenant *next;    /* (sched.lock) */
    int32_t n_groups;             /* (sched.lock) */
    atomic_int weight, priority;  /* as its last request said */
    atomic_int n_running, n_work; /* sequences that run; that run or wait; the thread's, others read them */
    /* The thread's own. */
    struct sched_tenant *next_active; /* of those with work */
    double vtime;     /* rows it had computed, by its weight; where it was idle, what others had (sched_share.c) */
    int64_t n_ahead;  /* rows that its running sequences are expected to want yet */
    int32_t n_ranked; /* scratch of sched_rank */
    uint64_t turn;    /* sched.n_turns when it last got a place, or came */
};

/* The sequences of a request. */
struct sched_group {
    struct sched *sched;
    struct sched_tenant *tenant;
    atomic_int refs;  /* the caller's and its sequences' */
    int32_t n_seqs;   /* it will submit in all */
    bool has_begun;   /* (sched.lock) some were taken */
    int32_t n_places; /* (sched.lock) so many at first */
    int32_t n_open;   /* (sched.lock) submitted and not ended */
    int32_t n_running, n_ranked;
    uint64_t turn; /* as the tenant's */
};

/* What a sequence waits for from the disk. */
struct sched_restore {
    uint64_t ticket;        /* 0: nothing */
    int32_t from, end;      /* pages, and of a model with states that behind the last of them */
    int32_t next;           /* to ask for, if something of it is missing */
    int32_t n_asked, n_got; /* files */
    int32_t state;          /* that came; KV_NO_STATE: not yet */
    uint64_t last_ns;       /* when the last one came */
};

/* A page, or its state, that is to be copied for the disk. */
struct sched_pending {
    int32_t page, depth;
    uint64_t serial; /* kv_cache_serial, when it was filled */
    enum kv_snapshot_kind kind;
    struct kv_name name;
};

struct sched_disk {
    struct sched_pending *pending; /* [n_room] a ring */
    int32_t n_room, first, n_pending;
    int32_t n_restoring; /* sequences that wait for files */
    uint64_t n_tickets;
    double credit_ns; /* time that copying may take */
    uint64_t counted_ns;
};

/* A sequence. Fields are the scheduler thread's, but for those marked (lock) and atomics. */
struct sched_seq {
    struct arena arena; /* of all that it has, itself included */
    struct sched *sched;
    struct sched_group *group;
    struct sched_seq *next; /* in the queue of submitted or waiting ones, or in the list of running ones */
    uint64_t number;        /* submit order, from 1: age, and who owns KV pages */
    atomic_int refs;        /* reader and scheduler */
    atomic_bool cancelled;  /* set by anyone, read by the scheduler each step */

    struct sampler_params sampling;
    struct grammar_matcher *matcher; /* behind the last token; NULL = it may say anything */
    struct sched_guide guide;        /* next NULL = none */
    void *guide_state;               /* of the arena */
    int32_t *tokens;                 /* [max_total + 1] prompt and what was generated; behind it n_draft guessed ones */
    int32_t n_prompt, n_tokens, max_total, min_tokens;
    bool prompt_logprobs, is_private; /* private: uses no others' pages */
    bool leaves_pages;                /* others may use its own */
    enum plan_pooling pooling;
    bool keeps_length;
    double *pooled;   /* [n_embd] sum of the states so far; NULL without pooling, and with PLAN_POOL_EACH */
    float *embedding; /* [n_embd], or with PLAN_POOL_EACH [n_prompt][n_embd], before SCHED_END is given out */
    uint64_t salt, deadline_ns;

    struct kv_name *
        names; /* [n_named + 1] in front of its pages, and of each of the first; NULL: nothing of it goes to the disk */
    int32_t n_named;
    int32_t n_on_disk;       /* pages of its prompt that had files when it was submitted */
    bool goes_on;            /* at least half of its prompt was known: what it adds will be wanted, too */
    bool keeps_no_snapshots; /* nobody can ask for its prefix again */
    struct sched_restore restore;

    int32_t *pages; /* page table */
    int32_t n_pages;
    int32_t n_gone;   /* of them, in front of the window, are not held: any numbers of the pool (sched_window.c) */
    int32_t *windows; /* table of window pages, any ids where none is held (sched_local.c); NULL: there are none */
    int32_t n_windows_gone, n_windows; /* those from the one to in front of the other are held */
    bool is_stranded;                  /* its window is not complete: it is to be admitted anew */
    int32_t state;                     /* its recurrent state, from its first batch on; KV_NO_STATE = none */
    int32_t begin_state;               /* that it goes on from in its first batch, or KV_NO_STATE */
    int32_t n_begin;                   /* positions in front of which that state stands */
    int32_t n_matched;                 /* pages of its prompt that were known when it began */
    int32_t n_kept;                    /* positions behind the newest state it kept while generating; 0 = none */
    int32_t i_copies;                  /* first of the states that the current batch copies for it */
    int32_t n_copies;                  /* of them */
    int32_t n_computed;                /* positions whose keys and values are in the cache */
    int32_t n_unknown;                 /* running: tokens that nobody had computed when it began to */
    int32_t n_chunk;                   /* rows in the current batch */
    int32_t n_draft;                   /* of these the last, of tokens that are guessed */
    int32_t i_logits;                  /* first of its rows of logits in the current batch */
    int32_t i_sample;                  /* first of them that a token is sampled from, or -1 */
    int32_t n_masks;                   /* so many of these from there on have masks in the batch */
    int32_t i_hidden;                  /* the same of hidden rows */
    int32_t n_hidden;                  /* of them in the current batch */
    int32_t n_prompt_given;            /* prompt tokens given out with their log-probabilities */
    uint64_t stalled_since;            /* 0: the reader keeps up */
    struct draft draft;                /* without an index: no guesses */
    bool was_admitted, was_preempted, has_ended;
    uint64_t n_preempted; /* times that it lost its pages to one that grew */
    bool is_running;
    bool has_express_place; /* running: it has one of n_express */
    bool
        is_begun; /* it stands in a batch that is begun and not waited for: it stays, and its tokens, pages and states */
    bool is_untold;                   /* events of it were put and its reader has not been woken */
    enum sched_wait wait;             /* running: why it is not in the current batch */
    struct sched_waits waits;         /* so far */
    uint64_t group_turn, tenant_turn; /* running: what they were before it got its place */
    int32_t level;                    /* running: how many of its request come before it */
    int32_t place;                    /* running: how many of its key do */
    bool is_extra;                    /* running: beyond the fair part of its request or key */
    int64_t n_ahead;                  /* running: of its key's, this one's */
    int32_t n_safe;                   /* sent back before: not again before it has so many tokens */
    int32_t n_prefill;                /* prompt rows it could compute in this step */
    int32_t n_reserved;               /* of them are kept for it */

    pthread_mutex_t lock;
    pthread_cond_t ready;
    struct sched_entry ring[SCHED_RING]; /* (lock) */
    struct sampler_top *tops;            /* [SCHED_RING][n_top] (lock) */
    uint32_t n_put, n_got;               /* (lock) */
    struct sched_usage usage;            /* (lock) */
    struct err_info why; /* why it broke off, set before SCHED_END is given out; code ERR_OK = no more is known */
    uint64_t submit_ns, admit_ns, first_ns;
};

/* A batch, from when it is put together until its rows are sampled. */
struct sched_batch {
    int32_t max_rows, max_seqs, max_logits; /* there is room for */
    int32_t n_rows, n_seqs, n_logits, n_hidden;
    int32_t n_decoding; /* of the rows; drafts among them */
    int32_t n_drafts;   /* sequences with guessed tokens */
    int32_t n_drafted;
    bool leaves_extras, is_express;
    double sum_pos; /* positions of rows of prompts together */
    uint64_t begin_ns;
    struct sched_seq **seqs; /* [max_seqs] */
    int32_t n_copies;        /* recurrent states it leaves a copy of: */
    int32_t *copy_at;        /* [2 max_seqs] behind how many tokens of the sequence */
    /* What the back end reads. */
    int32_t *tokens, *pos, *seq, *hidden_rows; /* [max_rows] */
    int32_t *states, *begin_states;            /* [max_seqs] */
    const int32_t **tables, **window_tables;   /* [max_seqs] */
    int32_t *logit_rows, *wants;               /* [max_logits] */
    int32_t *copy_rows, *copy_states;          /* [2 max_seqs] */
    /* .. and what it writes. */
    float *logits;                   /* [max_logits][n_vocab] */
    float *hidden;                   /* [max_rows][n_embd]; NULL without embeddings */
    struct backend_row_stats *stats; /* [max_logits] */
    struct candidate *best;          /* [max_logits][max_best]; NULL without */
    uint64_t *masks;                 /* [max_logits][(n_vocab + 63) / 64]; NULL: none are made beside it */
};

/* The thread that makes masks beside a back end that computes in begin. */
struct sched_masker {
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock; /* guards what follows, and whose turn batch->seqs are: the thread's, until it is stopped */
    pthread_cond_t wake, done;
    const struct sched_batch *batch; /* NULL = nothing to do */
    int32_t i_next;                  /* of its sequences */
    struct sched_seq *making;        /* whose masks it makes now, or NULL */
    bool is_stopping;
};

struct sched {
    struct sched_config cfg;
    struct kv_cache *kv;
    struct sampler_scratch scratch;
    uint64_t *allowed; /* [(n_vocab + 63) / 64] scratch: what may come next */
    pthread_t thread;
    bool is_started;

    pthread_mutex_t lock; /* guards the fields down to n_turns */
    pthread_cond_t wake;
    struct sched_seq *submitted, **submitted_end;
    int32_t n_queued;         /* submitted and waiting */
    uint64_t n_queued_tokens; /* theirs; a little high between a step's admissions and its end */
    bool is_draining, is_stopping;
    struct sched_stats stats;
    uint64_t next_number;
    struct sched_tenant *tenants;
    int32_t n_idle;       /* of them, without a request */
    uint64_t n_turns;     /* places given and requests come */
    struct err_info lost; /* code ERR_LOST once the back end is */
    atomic_bool has_news; /* something was submitted or cancelled */
    atomic_bool asks;     /* .. that may go alone: the batch that is being computed lets it overtake */

    /* The thread's own. */
    struct sched_seq *waiting; /* in order of number */
    struct sched_seq *running; /* those that come first in front: in order of place, then of number (sched_turn.c) */
    int32_t n_running;
    int32_t n_express;          /* of them have one of the places of that name */
    enum sched_wait queue_wait; /* why those wait that do not run */
    uint64_t counted_ns;        /* when sched_count_waits was called last */
    bool is_ranked;             /* they are in that order */
    bool has_extras;            /* some that run are beyond the fair part of their request or key */
    bool leaves_extras;         /* out of the current step */
    double debt_ns;             /* time that steps without extras have to make up for */
    double fair_ns;             /* moving average of decoding steps without extras; 0 = none yet */
    int32_t n_full;             /* steps with extras since the last without */
    bool is_express;            /* the current step has short prompts of keys with one request, and nothing else */
    bool is_overtaking;         /* a batch is left for them, and goes on behind them */
    uint64_t overtaken_ns;      /* it was left so long */
    double express_ns;          /* time that express steps may take; below 0: they took more */
    double
        after_express_ns; /* what the express step before this one took: the others had waited so long; 0 = it was none */
    double ns_per_row;    /* moving average of prefill steps */
    struct row_costs row_costs;  /* of prompts beside decoding ones, beyond the time of these */
    double ns_per_token;         /* of decoding steps */
    struct sched_tenant *active; /* those with work */
    double most_vtime;           /* of all, ever */
    int32_t top;                 /* highest priority of those with work */
    bool has_lower;              /* others have a lower one */
    double owed;                 /* rows to those; below 0: they had more than their part */
    double mean_tokens;          /* moving average of what sequences gave that have ended; < 0: none has (lock) */
    struct draft_costs costs;
    double ns_per_early_row; /* of the first steps, before ns_per_row is known */
    atomic_ullong last_step_ns;
    atomic_ullong expected_ns; /* of the batches that are begun */
    atomic_int at;             /* enum sched_place */

    /* Those begun, the oldest first, and those that are not; cfg.max_begun of them are there. */
    struct sched_batch batches[SCHED_MAX_BEGUN], *begun[SCHED_MAX_BEGUN];
    int32_t n_begun;
    struct sched_batch overtaker; /* nothing of it is there without overtaking_rows */
    uint64_t waited_ns;           /* when the last one was done */

    struct arena arena;               /* of the arrays of batches, and of: */
    struct sched_seq **ranked;        /* [max_seqs] scratch of sched_rank */
    struct draft_offer *offers;       /* [max_seqs] */
    uint64_t n_masks, n_masks_beside; /* since the last step was counted */
    struct sched_masker masker;
    struct sched_disk disk;
};

/* Places for all; the rest is for prompts that go alone. */
static inline int32_t sched_plain_places(const struct sched *s) { return s->cfg.max_seqs - s->cfg.n_express; }

/* sched_step.c */
bool sched_step(
    struct sched *s); /* begins a batch, waits for one, or both; false when there is nothing to compute now */
void sched_finish_begun(struct sched *s); /* waits for all that are begun */
void sched_step_express(struct sched *s); /* computes what may go alone while a batch is left (backend_batch.between) */

bool sched_is_end(const struct sched_seq *q, int32_t id); /* does the token end the sequence? */

/* sched_submit.c */
void sched_seq_unref(struct sched_seq *q);

/* sched_share.c: who had how much, and who comes first by that */
void sched_share_enter(struct sched *s, struct sched_seq *q);                  /* q waits, and has not before */
void sched_share_leave(struct sched *s, struct sched_seq *q);                  /* nor runs nor waits any more */
void sched_share_expect(struct sched *s, struct sched_seq *q, int64_t n_rows); /* q begins to run */
void sched_share_stop(struct sched_seq *q);                                    /* nor runs any more */
void sched_share_count(struct sched *s, struct sched_seq *q, int32_t n_rows);  /* are being computed */
void sched_share_look(struct sched *s); /* which classes have work, before places are given */
/* Does the tenant t come before u when a place is free? 0: neither. */
int sched_share_compare(const struct sched *s, const struct sched_tenant *t, const struct sched_tenant *u);
/* May a sequence of t, of whose tenant it is the place-th, make room for one of u? */
bool sched_share_may_take(const struct sched *s, const struct sched_tenant *t, int32_t place,
                          const struct sched_tenant *u);
/* Has t's place more of the batch by its weight than u's? < 0, 0, > 0. */
int sched_share_compare_places(const struct sched_tenant *t, int32_t place, const struct sched_tenant *u,
                               int32_t other);

/* sched_turn.c */
struct sched_seq **sched_next_turn(struct sched *s);             /* link to the waiting one whose turn it is, or NULL */
void sched_take_turn(struct sched *s, struct sched_seq *q);      /* q runs from now on */
void sched_leave_turn(struct sched *s, struct sched_seq *q);     /* q does not run any more, if it did */
void sched_give_turn_back(struct sched *s, struct sched_seq *q); /* nor has it ended: its turn is as it was */
void sched_rank(struct sched *s);                                /* puts the running ones in order */
/* The sequence that runs and is to make room for q, which waits; NULL: none. */
struct sched_seq *sched_whose_place(struct sched *s, const struct sched_seq *q);
/* Is q, which waits or runs, a prompt that is computed without those of others? n_unknown: tokens of it that nobody had computed
 * when it began to run, or would begin. */
bool sched_may_go_alone(const struct sched *s, const struct sched_seq *q, int32_t n_unknown);
bool sched_is_left_out(const struct sched *s, const struct sched_seq *q); /* of the current step */
void sched_begin_step(struct sched *s);                                   /* decides on leaves_extras and is_express */
void sched_count_turn(struct sched *s, uint64_t ns, bool only_decodes);   /* a step is done */
double sched_estimate_ns(struct sched *s);                                /* of all that waits and runs; under lock */

/* sched_window.c: without a window a sequence may have as many pages as it wants, and lets none go */
int32_t sched_window_first(const struct sched *s, int32_t position); /* first page that rows from there on want */
int32_t sched_window_pages(const struct sched *s); /* that a sequence holds at most while its prompt is computed */
void sched_window_slide(struct sched *s,
                        struct sched_seq *q); /* q, not begun, lets go what lies in front of its window */

/* sched_local.c: without window pages shareable, take, adopt, begin_restore and missing are not called, and the others do nothing */
int32_t sched_local_shareable(const struct sched *s,
                              struct sched_seq *q); /* pages in front that q shares; its table gets those known */
void sched_local_begin(struct sched *s, struct sched_seq *q); /* q has its pages: holds what it goes on from */
void sched_local_pass(struct sched *s, struct sched_seq *q,
                      int32_t i);                                /* q goes on behind its i-th page, which is filled */
bool sched_local_is_ready(struct sched *s, struct sched_seq *q); /* is its window complete? */
bool sched_local_take(struct sched *s, struct sched_seq *q);     /* the next window page; false: there is none */
void sched_local_filled(struct sched *s, struct sched_seq *q,
                        int32_t i); /* its i-th page has a name, and was computed or read */
bool sched_local_adopt(struct sched *s, struct sched_seq *q,
                       int32_t i); /* holds the named page with q's i-th, if it is filled */
void sched_local_slide(struct sched *s,
                       struct sched_seq *q); /* q, not begun, lets go what lies in front of its window */
void sched_local_drop(struct sched *s, struct sched_seq *q); /* and all others */
/* Holds window pages for what q needs behind its first `end` pages, which may come from the disk. False: nothing is missing,
 * or cannot come. */
bool sched_local_begin_restore(struct sched *s, struct sched_seq *q, int32_t end);
/* Which parts of its i-th page are to come from the disk: BACKEND_NO_PAGE = that one is not. */
struct backend_page sched_local_missing(const struct sched *s, const struct sched_seq *q, int32_t i);

/* sched_admit.c */
int32_t sched_admit_express(struct sched *s); /* prompts that go alone, while places and pages last; how many */
int32_t sched_admit_all(struct sched *s);     /* from waiting to running while pages and places last; how many */
bool sched_grow(struct sched *s, struct sched_seq *q,
                int32_t n_positions); /* pages for so many positions; may preempt */
int32_t
sched_grow_windows(struct sched *s, struct sched_seq *q,
                   int32_t n_positions); /* window pages for so many; may preempt; positions that it has some for */
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
bool sched_claim_state(struct sched *s, struct sched_seq *q);     /* of its own; false: there is none in this step */
void sched_add_copies(struct sched *s, struct sched_batch *b);    /* states that the batch shall leave with pages */
void sched_keep_copies(struct sched *s, const struct sched_batch *b,
                       struct sched_seq *q);                            /* q's rows and pages are computed */
void sched_drop_copies(struct sched *s, struct sched_batch *b);         /* they are not */
void sched_drop_states(struct sched *s, struct sched_seq *q);           /* of a sequence that leaves */
void sched_adopt_page(struct sched *s, struct sched_seq *q, int32_t i); /* the named page with q's i-th, if any */

/* sched_disk.c: without snapshots nothing happens */
MUST_CHECK enum err sched_disk_init(struct sched *s); /* ERR_NOMEM */
void sched_disk_fini(struct sched *s);
void sched_disk_submit(struct sched *s, struct sched_seq *q,
                       const char *salt); /* names its pages; in the reader's thread */
void sched_disk_begin(struct sched *s,
                      struct sched_seq *q); /* q, which has its pages, may get some of them from the disk */
bool sched_disk_waits(struct sched *s, struct sched_seq *q); /* does it wait for them? */
void sched_disk_drop(struct sched *s, struct sched_seq *q);  /* not any more */
void sched_disk_filled(struct sched *s, struct sched_seq *q,
                       int32_t i); /* its i-th page, which has a name, was computed */
void sched_disk_kept(struct sched *s, struct sched_seq *q, int32_t i); /* .. keeps a state that will be wanted */
void sched_disk_turn(struct sched *s);   /* between steps: what was read goes in, what is to be written out */
void sched_disk_finish(struct sched *s); /* the end: what is pending goes out */

/* sched_wait.c */
void sched_count_waits(struct sched *s,
                       struct sched_seq *fresh); /* from there on, those waiting were submitted since */
void sched_note_waiting(struct sched *s);

/* sched_draft.c */
void sched_draft_all(struct sched *s, struct sched_seq **seqs, int32_t n); /* drafts for seqs[n], which all decode */

/* sched_mask.c */
MUST_CHECK enum err sched_masks_init(struct sched *s); /* once batches are there; ERR_NOMEM; ERR_INTERNAL: no thread */
void sched_masks_fini(struct sched *s);
void sched_masks_begin(struct sched *s, const struct sched_batch *b); /* the batch is about to begin */
void sched_masks_make(struct sched *s, const struct sched_batch *b);  /* it has begun, and the device computes */
struct sched_seq *sched_masks_stop(struct sched *s); /* no more are made but those of the one returned, or NULL */
void sched_masks_wait(struct sched *s);              /* nor those */
/* The mask of row i of logits, which q samples from; NULL: it was not made. */
const uint64_t *sched_mask(const struct sched *s, const struct sched_batch *b, const struct sched_seq *q, int32_t i);

/* sched_embed.c */
bool sched_wants_state(const struct sched_seq *q, int32_t at); /* of the token at position `at`? */
void sched_pool_states(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t first);
enum err sched_finish_embedding(struct sched *s, struct sched_seq *q); /* ERR_NUMERICAL */

/* sched.c */
void sched_overtake(void *sched); /* backend_batch.between */
uint32_t sched_ring_room(struct sched_seq *q);
void sched_note_processed(struct sched_seq *q); /* how much of the prompt is done, for sched_seq_usage */
void sched_put_token(struct sched_seq *q, enum sched_event_kind kind, const struct sampler_result *r);
void sched_tell_readers(struct sched *s); /* of tokens put since, where that is left for when a batch has begun */
void sched_end(struct sched *s, struct sched_seq *q, enum sched_finish finish, enum err err,
               const struct err_info *why); /* q leaves the scheduler; why OPTIONAL */

#endif
