/* Shared by the files of the scheduler. */
#ifndef INFCGI_SCHED_SCHED_INTERNAL_H
#define INFCGI_SCHED_SCHED_INTERNAL_H

#include "engine/sched/sched.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include "engine/kv/disk/kv_disk.h"
#include "engine/kv/pool/kv_cache.h"
#include "engine/sched/draft.h"
#include "engine/sched/row_costs.h"

#include <stdatomic.h>

enum {
    SCHED_RING = 256,         /* events that a reader can be behind; a power of two */
    SCHED_RING_RESERVE = 1,   /* kept free for SCHED_END */
    SCHED_MOST_PREEMPTED = 2, /* preemptions after which a sequence is only readmitted if its end fits, too */
    SCHED_MIN_CHUNK = 16,     /* least prompt rows per step, so that prompts always advance */
    SCHED_QUANTUM = 32,       /* tokens that a preempted sequence advances before it can be preempted again */
    SCHED_MAX_BEGUN = 2,      /* batches begun and not waited for */
    SCHED_FAIR_EVERY = 32,    /* steps after which one without extras is measured again */
    SCHED_EXPRESS_PART = 5,   /* express steps get at most one part in this many of the time */
    SCHED_OVERTAKERS = 4,     /* sequences of a batch that overtakes another */
    SCHED_OFF_TIMES = 4,      /* steps hardly ever deviate this many times the mean deviation */
    SCHED_LOW_PART = 8,       /* of this many rows the lower classes get one, while they wait */
    SCHED_LOW_OWED = 256,     /* rows owed to them before they take a slot from the highest class */
    SCHED_LOW_MOST = 4096,    /* most rows owed, either way */
    SCHED_BORDERS = 2,        /* windows that there is room for, per slot of the batch */
    SCHED_GUESS_TOKENS = 64,  /* of an answer, before any has ended */
    SCHED_KEPT_TENANTS = 64,  /* tenants without a request that are remembered, with their usage */
};
#define SCHED_DEFAULT_BUDGET_NS 80000000ull
#define SCHED_DEFAULT_STALL_NS  30000000000ull

/* The owner of requests: all of one key. */
struct sched_tenant {
    uint64_t key;
    bool is_guest;               /* counted under key 0 (struct sched_share) */
    struct sched_tenant *next;   /* (sched.lock) */
    int32_t n_groups;            /* (sched.lock) */
    atomic_int weight, priority; /* from its last request */
    /* running sequences; running or waiting ones; written by the thread, read by others */
    atomic_int n_running, n_work;
    /* Only the thread uses the following fields. */
    struct sched_tenant *next_active; /* list of tenants with work */
    double vtime;     /* rows computed for it, over its weight; after idleness, what others had (sched_share.c) */
    int64_t n_ahead;  /* rows that its running sequences are expected to need */
    int32_t n_ranked; /* scratch of the ranking */
    uint64_t turn;    /* tenants.n_turns when it last got a slot, or arrived */
};

/* The sequences of a request. */
struct sched_group {
    struct sched *sched;
    struct sched_tenant *tenant;
    atomic_int refs;  /* the caller's and its sequences' */
    int32_t n_seqs;   /* that it will submit in all */
    bool has_begun;   /* (sched.lock) the queue accepted some */
    int32_t n_places; /* (sched.lock) number accepted at first */
    int32_t n_open;   /* (sched.lock) submitted and not ended */
    int32_t n_running, n_ranked;
    uint64_t turn; /* as the tenant's */
};

/* --- parts of a sequence, each with the file that it is for --------------------------------------------------------- */

/* sched_submit.c: what the request says; constant once it is queued. */
struct sched_terms {
    struct sampler_params sampling;
    struct sched_guide guide; /* next NULL: none */
    void *guide_state;        /* in the arena */
    int32_t min_tokens;
    bool prompt_logprobs, is_private; /* is_private: uses no pages of other sequences */
    bool leaves_pages;                /* others can use its pages */
    uint64_t salt, deadline_ns;
};

/* sched_embed.c: its embedding. */
struct sched_embed {
    enum plan_pooling pooling;
    bool keeps_length;
    double *sums;   /* [n_embd] of the states so far; NULL without pooling, and with PLAN_POOL_EACH */
    float *vectors; /* [n_embd], or with PLAN_POOL_EACH [n_prompt][n_embd]; set before SCHED_END is returned */
};

/* sched_admit.c, sched_window.c: its page table. */
struct sched_pages {
    int32_t *table;
    int32_t n;
    int32_t n_gone;     /* leading pages before the window that it does not hold: any ids */
    int32_t n_unknown;  /* running: tokens that no sequence had computed when it began to run */
    bool are_preferred; /* at least half of its prompt was known, so its extension will be needed, too */
};

/* sched_local.c: its window pages [n_gone, n). */
struct sched_windows {
    int32_t *table; /* any ids if none is held; NULL: none */
    int32_t n_gone, n;
    bool are_incomplete; /* it must be readmitted */
};

/* sched_state.c: its recurrent states. */
struct sched_states {
    int32_t own;       /* from its first batch on; KV_NO_STATE: none */
    int32_t begin;     /* state that its first batch continues from, or KV_NO_STATE */
    int32_t n_begin;   /* number of positions that this state covers */
    int32_t n_matched; /* pages of its prompt that were known when it began */
    int32_t n_kept;    /* positions of the newest state it kept while generating; 0: none */
    int32_t i_copies;  /* first of the states that the current batch copies for it */
    int32_t n_copies;  /* number of these states */
    int32_t n_true;    /* drafts of its last batch that came true: its state must be advanced by them */
};

/* sched_disk.c: names of its pages on disk. */
struct sched_files {
    struct kv_name *names; /* [n_named + 1] before its pages, and of its first pages; NULL: it uses no disk */
    int32_t n_named;
    int32_t n_found;  /* pages of its prompt that had files when it was submitted */
    bool writes_none; /* no request can ask for its prefix again */
};

/* sched_disk.c: the files that it waits for. */
struct sched_restore {
    uint64_t ticket;        /* 0: none */
    int32_t from, end;      /* pages [from, end); for a model with states the state after the last one */
    int32_t next;           /* page to request next, if any part of it is missing */
    int32_t n_asked, n_got; /* files */
    int32_t state;          /* the state read; KV_NO_STATE: not yet */
    uint64_t last_ns;       /* when the last file arrived */
};

/* sched_turn.c, sched_share.c: its slot. */
struct sched_turn {
    bool was_admitted;
    int32_t n_done;               /* tokens that were computed when it was preempted; 0: never preempted */
    bool is_running;              /* the following fields, except n_preempted, are for running sequences */
    bool is_express;              /* it has one of cfg.n_express slots */
    bool is_extra;                /* beyond the fair share of its request or key */
    uint64_t of_group, of_tenant; /* their turns before it got its slot */
    int32_t level;                /* sequences of its request before it */
    int32_t place;                /* sequences of its key before it */
    int64_t n_ahead;              /* its part of the key's n_ahead */
    int32_t n_safe;               /* preempted before: not again until this many tokens are computed */
    uint64_t n_preempted;         /* times that it lost its pages to one that grew */
};

/* sched_step.c, sched_draft.c, sched_mask.c: its rows in the current batch. */
struct sched_rows {
    int32_t n;
    int32_t i_first;    /* the first one in the batch */
    int32_t n_draft;    /* the last ones, for guessed tokens */
    int32_t i_logits;   /* its first row of logits */
    int32_t i_sample;   /* first of these that a token is sampled from, or -1 */
    int32_t n_masks;    /* rows from there on that have masks in the batch */
    int32_t i_hidden;   /* its first hidden row */
    int32_t n_hidden;   /* hidden rows */
    int32_t n_prefill;  /* prompt rows it could compute in this step */
    int32_t n_reserved; /* of these, the rows reserved for it */
    bool are_begun;     /* the batch is not waited for yet: it keeps its tokens, pages and states */
    /* [n_draft] where each guessed token comes from: enum draft_source */
    uint8_t sources[DRAFT_MAX];
};

/* sched_predict.c: what the prediction head has of it. */
struct sched_predicted {
    int32_t n;     /* it computes rows from this position on: it has the ones before, or never will; 0: not known */
    int32_t limit; /* guesses to make in the current run */
};

/* Ring entry: an event, with room for its alternatives only if they were requested. */
struct sched_entry {
    enum sched_event_kind kind;
    enum sched_finish finish;
    enum err err;
    int32_t id, n_top;
    float logprob;
};

/* sched.c: what its reader gets. */
struct sched_reader {
    uint64_t stalled_since;  /* 0: the reader keeps up */
    int32_t n_prompt_tokens; /* returned with their log-probabilities */
    bool must_wake;          /* there are new events, and the reader has not been woken */
    struct err_info why;     /* why it failed, set before SCHED_END is returned; code ERR_OK: no details */
    pthread_mutex_t lock;    /* guards the following fields */
    pthread_cond_t ready;
    struct sched_entry ring[SCHED_RING];
    struct sampler_top *tops; /* [SCHED_RING][n_top] */
    uint32_t n_put, n_got;
    bool has_ended;
    struct sched_usage usage;
};

/* A sequence. Fields are the scheduler thread's, except atomics and those under reader.lock. */
struct sched_seq {
    struct arena arena; /* holds all its memory, including itself */
    struct sched *sched;
    struct sched_group *group;
    struct sched_seq *next; /* in the queue of submitted or waiting sequences, or in the list of running ones */
    uint64_t number;        /* submit order, from 1: its age, and the owner of KV pages */
    atomic_int refs;        /* held by reader and scheduler */
    atomic_bool cancelled;  /* set by any thread, read by the scheduler each step */
    int32_t *tokens;        /* [max_total + 1] prompt and generated tokens, then rows.n_draft guessed ones */
    int32_t n_prompt, n_tokens, max_total;
    int32_t n_computed;              /* positions whose keys and values are in the cache */
    struct grammar_matcher *matcher; /* state after the last token; NULL: no grammar */
    struct draft draft;              /* without an index: no guesses */
    enum sched_wait wait;            /* running: why it is not in the current batch */
    struct sched_waits waits;        /* so far */
    uint64_t submit_ns, admit_ns, first_ns;

    struct sched_terms terms;
    struct sched_embed embed;
    struct sched_pages pages;
    struct sched_windows windows;
    struct sched_states states;
    struct sched_files files;
    struct sched_restore restore;
    struct sched_turn turn;
    struct sched_rows rows;
    struct sched_predicted predicted;
    struct sched_reader reader;
};

/* A page, or its state, to copy for the disk. */
struct sched_pending {
    int32_t page, depth;
    uint64_t serial; /* kv_cache_serial when the page was filled */
    enum kv_snapshot_kind kind;
    struct kv_name name;
};

struct sched_disk {
    struct sched_pending *pending; /* [n_room] a ring */
    int32_t n_room, first, n_pending;
    int32_t n_restoring; /* sequences that wait for files */
    uint64_t n_tickets;
    double credit_ns; /* time left for copying */
    uint64_t counted_ns;
};

/* A batch, from its assembly until its rows are sampled. */
struct sched_batch {
    int32_t max_rows, max_seqs, max_logits; /* capacity */
    int32_t n_rows, n_seqs, n_logits, n_hidden;
    int32_t n_decoding; /* of the rows, including drafts */
    int32_t n_drafts;   /* sequences with drafts */
    int32_t n_drafted;
    bool leaves_extras, is_express;
    double sum_pos; /* sum of the positions of prompt rows */
    uint64_t begin_ns;
    struct sched_seq **seqs; /* [max_seqs] */
    int32_t n_copies;        /* recurrent states that it leaves a copy of: */
    int32_t *copy_at;        /* [2 max_seqs] after this many tokens of the sequence */
    /* Read by the back end: */
    int32_t *tokens, *pos, *seq, *hidden_rows; /* [max_rows] */
    int32_t *states, *begin_states;            /* [max_seqs] */
    int32_t *seq_drafts, *seq_true;            /* [max_seqs] */
    const int32_t **tables, **window_tables;   /* [max_seqs] */
    int32_t *logit_rows, *wants;               /* [max_logits] */
    int32_t *copy_rows, *copy_states;          /* [2 max_seqs] */
    /* Written by the back end: */
    float *logits;                   /* [max_logits][n_vocab] */
    float *hidden;                   /* [max_rows][n_embd]; NULL: no embeddings */
    float *output;                   /* [max_rows][output_width], as backend_batch's; NULL: no prediction head */
    struct backend_row_stats *stats; /* [max_logits] */
    struct candidate *best;          /* [max_logits][max_best]; NULL: none */
    uint64_t *masks;                 /* [max_logits][(n_vocab + 63) / 64]; NULL: no masks are made during the batch */
};

/* The thread that makes masks next to a back end that computes in begin. */
struct sched_masker {
    pthread_t thread;
    bool is_started;
    /* guards the following; until it is stopped, the thread also owns the matchers of batch->seqs */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    const struct sched_batch *batch; /* NULL: nothing to do */
    int32_t i_next;                  /* of its sequences */
    struct sched_seq *making;        /* the sequence whose masks it makes now, or NULL */
    bool is_stopping;
};

/* --- parts of the scheduler ----------------------------------------------------------------------------------------- */

/* sched_submit.c: sequences that the thread has not taken yet (sched.lock). */
struct sched_queue {
    struct sched_seq *first, **end;
    int32_t n;         /* with those that wait for a slot */
    uint64_t n_tokens; /* of these; slightly high between a step's admissions and its end */
    bool is_draining;
    uint64_t next_number;
    atomic_bool asks; /* one can run alone: the computing batch lets it overtake */
};

/* sched_submit.c: the owners of requests (sched.lock). */
struct sched_tenants {
    struct sched_tenant *first;
    int32_t n_idle;   /* without a request */
    uint64_t n_turns; /* slots given plus requests arrived */
};

/* sched_share.c: the time that tenants had. */
struct sched_shares {
    struct sched_tenant *active; /* tenants with work */
    double most_vtime;           /* highest ever, of all */
    int32_t top;                 /* highest priority of those with work */
    bool has_lower;              /* others with work have a lower one */
    double owed;                 /* rows owed to those; below 0: they had more than their share */
    double mean_tokens; /* (sched.lock) moving average of tokens that ended sequences generated; < 0: none ended */
};

/* sched_turn.c: the order of running sequences, and steps without extras. */
struct sched_turns {
    struct sched_seq **ranked; /* [max_seqs] scratch, to sort them */
    bool are_ranked;           /* sched.running is in order */
    bool has_extras;           /* some running sequences are beyond the fair share of their request or key */
    bool leaves_extras;        /* out of the current step */
    double debt_ns;            /* time that steps without extras must make up for */
    double fair_ns;            /* moving average of decoding steps without extras; 0: none yet */
    int32_t n_full;            /* steps with extras since the last one without */
};

/* sched_turn.c, sched_step.c: steps for short prompts of keys with one request. */
struct sched_express {
    int32_t n;             /* running sequences with an express slot */
    bool is_now;           /* the current step is one */
    bool is_overtaking;    /* a batch is paused for them and continues afterwards */
    uint64_t overtaken_ns; /* duration of that pause */
    double left_ns;        /* time left for express steps; below 0: they took more */
    double last_ns;        /* time of the preceding express step, which the others waited; 0: it was none */
};

/* sched_step.c: measured times. */
struct sched_speeds {
    double ns_per_row;          /* moving average of prefill steps */
    double ns_per_early_row;    /* of the first steps, before ns_per_row is known */
    double ns_per_token;        /* of decoding steps */
    struct row_costs row_costs; /* of prompt rows next to decoding ones, beyond the time of these */
    struct draft_costs costs;   /* of decoding steps by rows */
};

/* For watchers of the thread. */
struct sched_progress {
    atomic_ullong step_ns;     /* when the last step began; 0: idle */
    atomic_ullong expected_ns; /* of the batches begun */
    atomic_int at;             /* enum sched_place */
    uint64_t behind_ns;        /* what backend_info says of weights that open put off; 0: all are prepared */
    int32_t behind_rows;
};

/* sched_step.c: the batches. */
struct sched_batches {
    struct sched_batch all[SCHED_MAX_BEGUN];    /* cfg.max_begun exist */
    struct sched_batch *begun[SCHED_MAX_BEGUN]; /* oldest first, then those not begun */
    int32_t n_begun;
    struct sched_batch overtaker; /* empty without overtaking_rows */
    uint64_t waited_ns;           /* end of the last wait */
};

/* sched_step.c: picking tokens. */
struct sched_sampling {
    struct sampler_scratch scratch;
    uint64_t *allowed;                /* [(n_vocab + 63) / 64] scratch: the allowed tokens */
    uint64_t n_masks, n_masks_beside; /* since the last step was counted */
};

/* sched_predict.c: the prediction head. */
struct sched_predict {
    float *outputs;  /* [n_pages][sched_kept_floats] the model's output for the page's last position computed */
    float *input;    /* [batch.max_rows][output_width] */
    uint8_t *filled; /* [n_pages] rows of the page, from its first on, that a draft model has computed */
    int32_t n_extra; /* rows of earlier steps in the batch */
    int32_t *tables, *window_tables; /* [max_seqs][pages of n_ctx] of the batch's sequences, which can end before it */
    struct sched_batch batch;        /* its seqs: NULL if it has ended */
    struct draft_costs costs;        /* of runs with one row per sequence */
    bool is_idle;                    /* rows of generating sequences are left out, because guesses do not pay */
    int32_t n_idle_steps, n_idle_seqs; /* steps since then; sequences that ran at that time */
    bool relearns;                     /* guesses are tried again after many steps */
    bool has_failed;
};

/* Only the thread uses the fields without a remark. */
struct sched {
    struct sched_config cfg;
    struct kv_cache *kv;
    struct arena arena; /* of the arrays of batches, turns and offers */
    pthread_t thread;
    bool is_started;

    pthread_mutex_t lock; /* guards the fields down to lost */
    pthread_cond_t wake;
    struct sched_queue queue;
    struct sched_tenants tenants;
    struct sched_stats stats;
    bool is_stopping;
    struct err_info lost; /* code ERR_LOST once the back end is lost */
    atomic_bool has_news; /* a sequence was submitted or cancelled */

    struct sched_seq *waiting; /* in order of number */
    struct sched_seq *running; /* in order of place, then of number (sched_turn.c) */
    int32_t n_running;
    enum sched_wait queue_wait; /* why the queued sequences do not run */
    uint64_t counted_ns;        /* last call of sched_count_waits */
    struct sched_shares shares;
    struct sched_turns turns;
    struct sched_express express;
    struct sched_speeds speeds;
    struct sched_progress progress;
    struct sched_batches batches;
    struct sched_sampling sampling;
    struct draft_offer *offers; /* [max_seqs] scratch of sched_draft_all */
    struct sched_masker masker;
    struct sched_disk disk;
    struct sched_predict predict;
};

/* Removes q from the list that it is in. */
static inline void sched_unlink(struct sched_seq **list, const struct sched_seq *q)
{
    while (*list != q) {
        list = &(*list)->next;
    }
    *list = q->next;
}

/* Returns the slots for all sequences; the rest is for prompts that run alone. */
static inline int32_t sched_plain_places(const struct sched *s) { return s->cfg.max_seqs - s->cfg.n_express; }

/* sched_step.c */
bool sched_step(struct sched *s);         /* begins a batch, waits for one, or both; false: nothing to compute now */
void sched_finish_begun(struct sched *s); /* waits for all begun batches */
/* computes what can run alone while a batch is paused (backend_batch.between) */
void sched_step_express(struct sched *s);

bool sched_is_end(const struct sched_seq *q, int32_t id); /* returns whether the token ends the sequence */

/* sched_submit.c */
void sched_seq_unref(struct sched_seq *q);

/* sched_share.c: the time each tenant had, and the order that follows */
void sched_share_enter(struct sched *s, struct sched_seq *q);                  /* q is queued for the first time */
void sched_share_leave(struct sched *s, struct sched_seq *q);                  /* q neither runs nor waits any longer */
void sched_share_expect(struct sched *s, struct sched_seq *q, int64_t n_rows); /* q begins to run */
void sched_share_stop(struct sched_seq *q);                                    /* q no longer runs */
void sched_share_count(struct sched *s, struct sched_seq *q, int32_t n_rows);  /* n_rows are being computed */
void sched_share_look(struct sched *s); /* finds the classes with work, before slots are given */
/* Returns whether t comes before u (> 0) or after it (< 0) when a slot is free; 0: neither. */
int sched_share_compare(const struct sched *s, const struct sched_tenant *t, const struct sched_tenant *u);
/* Returns whether a sequence of t, the place-th of its tenant, can make room for one of u. */
bool sched_share_may_take(const struct sched *s, const struct sched_tenant *t, int32_t place,
                          const struct sched_tenant *u);
/* Returns < 0, 0 or > 0: whether t's place has less or more of the batch, by its weight, than u's. */
int sched_share_compare_places(const struct sched_tenant *t, int32_t place, const struct sched_tenant *u,
                               int32_t other);

/* sched_turn.c */
struct sched_seq **sched_next_turn(struct sched *s);        /* link to the waiting sequence whose turn it is, or NULL */
void sched_take_turn(struct sched *s, struct sched_seq *q); /* q runs from now on */
void sched_leave_turn(struct sched *s, struct sched_seq *q);     /* q no longer runs, if it did */
void sched_give_turn_back(struct sched *s, struct sched_seq *q); /* q has not ended: restores its turn */
/* Returns the running sequence that must make room for q, which waits; NULL: none. */
struct sched_seq *sched_whose_place(struct sched *s, const struct sched_seq *q);
/* Returns whether q, which waits or runs, is a prompt that is computed without those of others. n_unknown: tokens of it
 * that no sequence had computed when it began to run, or would begin. */
bool sched_may_go_alone(const struct sched *s, const struct sched_seq *q, int32_t n_unknown);
bool sched_is_left_out(const struct sched *s, const struct sched_seq *q); /* of the current step */
void sched_begin_step(struct sched *s); /* decides turns.leaves_extras and express.is_now */
void sched_count_turn(struct sched *s, uint64_t ns, bool only_decodes); /* a step has ended */
double sched_estimate_ns(struct sched *s); /* for all waiting and running sequences; under lock */

/* sched_pages.c */
int32_t sched_whole_pages(const struct sched_seq *q);       /* number of whole pages before its last token */
int32_t sched_parent(const struct sched_seq *q, int32_t i); /* the page before its i-th, or KV_NO_PAGE */
/* Returns the known page after parent with the tokens of q's i-th page, or KV_NO_PAGE. */
int32_t sched_find_page(const struct sched *s, const struct sched_seq *q, int32_t i, int32_t parent);
/* Enters the known leading pages of q, up to `most`, into its empty table; returns their number. */
int32_t sched_find_pages(const struct sched *s, struct sched_seq *q, int32_t most);
/* Returns the first of q's pages [i, n) that is not filled, or n. */
int32_t sched_filled_end(const struct sched *s, const struct sched_seq *q, int32_t i, int32_t n);
/* Names q's i-th page. Returns false if another page has the name. */
bool sched_name_page(struct sched *s, const struct sched_seq *q, int32_t i);
/* With a prediction head: returns the model's output for the page's last position computed. */
float *sched_page_output(const struct sched *s, int32_t page);
/* Copies the page's output, if there is a head and page is not BACKEND_NO_PAGE, to or from `bytes`; returns the end of its
 * bytes. */
void *sched_copy_output(const struct sched *s, int32_t page, void *bytes, bool writes);
/* Holds `page` as q's i-th instead of the one it has. */
void sched_replace_page(struct sched *s, struct sched_seq *q, int32_t i, int32_t page);

/* sched_window.c: without a window a sequence can hold any number of pages, and releases none */
int32_t sched_window_first(const struct sched *s, int32_t position); /* first page that rows from there on need */
int32_t sched_window_pages(const struct sched *s); /* most pages that a sequence holds while its prompt is computed */
void sched_window_slide(struct sched *s, struct sched_seq *q); /* q, not begun, releases pages before its window */

/* sched_local.c: without window pages shareable, take, adopt, begin_restore and missing are not called, and the others
 * do nothing */
/* leading pages that q shares; fills its table with the known ones */
int32_t sched_local_shareable(const struct sched *s, struct sched_seq *q);
/* q has its pages: holds the window pages it continues from */
void sched_local_begin(struct sched *s, struct sched_seq *q);
/* q continues after its i-th page, which is filled */
void sched_local_pass(struct sched *s, struct sched_seq *q, int32_t i);
bool sched_local_is_ready(struct sched *s, struct sched_seq *q); /* returns whether its window is complete */
bool sched_local_take(struct sched *s, struct sched_seq *q);     /* takes the next window page; false: none is left */
/* its i-th page has a name, and was computed or read */
void sched_local_filled(struct sched *s, struct sched_seq *q, int32_t i);
/* if the named page is filled, holds it as q's i-th */
bool sched_local_adopt(struct sched *s, struct sched_seq *q, int32_t i);
/* q, not begun, releases window pages before its window */
void sched_local_slide(struct sched *s, struct sched_seq *q);
void sched_local_drop(struct sched *s, struct sched_seq *q); /* and all others */
/* Holds window pages for what q needs after its first `end` pages, which can come from the disk. Returns false if
 * nothing is missing, or it cannot come. */
bool sched_local_begin_restore(struct sched *s, struct sched_seq *q, int32_t end);
/* Returns the parts of its i-th page that must come from the disk; BACKEND_NO_PAGE: not that part. */
struct backend_page sched_local_missing(const struct sched *s, const struct sched_seq *q, int32_t i);

/* sched_admit.c */
/* admits prompts that run alone while slots and pages last; returns how many */
int32_t sched_admit_express(struct sched *s);
int32_t sched_admit_all(struct sched *s); /* admits waiting sequences while slots and pages last; returns how many */
/* gets pages for n_positions; can preempt */
bool sched_grow(struct sched *s, struct sched_seq *q, int32_t n_positions);
/* gets window pages for n_positions; can preempt; returns the positions covered */
int32_t sched_grow_windows(struct sched *s, struct sched_seq *q, int32_t n_positions);
int32_t sched_ready_rows(struct sched *s, struct sched_seq *q); /* rows q could compute now, after using shared pages */
/* publishes pages completed since n_computed was `from` */
void sched_named_pages_filled(struct sched *s, struct sched_seq *q, int32_t from);
void sched_drop_pages(struct sched *s, struct sched_seq *q);
void sched_forget_pages(struct sched *s, struct sched_seq *q); /* makes all that q has computed unfindable */

/* sched_state.c: without recurrent state pages_with_state, begin_state and adopt_page are not called, and the others do
 * nothing */
/* known pages of q, up to the last with a state */
int32_t sched_pages_with_state(const struct sched *s, const struct sched_seq *q);
void sched_begin_state(struct sched *s, struct sched_seq *q); /* q, not begun, holds those pages and that state */
/* for a state that an older sequence is about to leave */
bool sched_waits_for_state(struct sched *s, struct sched_seq *q);
bool sched_claim_state(struct sched *s, struct sched_seq *q);  /* gives q its own state; false: none in this step */
void sched_add_copies(struct sched *s, struct sched_batch *b); /* chooses states that the batch leaves with pages */
/* q's rows and pages were computed */
void sched_keep_copies(struct sched *s, const struct sched_batch *b, struct sched_seq *q);
void sched_drop_copies(struct sched *s, struct sched_batch *b); /* they were not */
void sched_drop_states(struct sched *s, struct sched_seq *q);   /* of a sequence that leaves */
/* uses the named page as q's i-th, if it exists */
void sched_adopt_page(struct sched *s, struct sched_seq *q, int32_t i);

/* sched_disk.c: does nothing without snapshots */
MUST_CHECK enum err sched_disk_init(struct sched *s); /* ERR_NOMEM */
void sched_disk_fini(struct sched *s);
/* names its pages; in the reader's thread */
void sched_disk_submit(struct sched *s, struct sched_seq *q, const char *salt);
/* q, which has its pages, can get some of them from the disk */
void sched_disk_begin(struct sched *s, struct sched_seq *q);
bool sched_disk_waits(struct sched *s, struct sched_seq *q); /* returns whether q waits for them */
void sched_disk_drop(struct sched *s, struct sched_seq *q);  /* q no longer waits */
/* its i-th page, which has a name, was computed */
void sched_disk_filled(struct sched *s, struct sched_seq *q, int32_t i);
void sched_disk_kept(struct sched *s, struct sched_seq *q, int32_t i); /* it keeps a state that will be needed */
void sched_disk_turn(struct sched *s);   /* between steps: installs what was read, copies out what must be written */
void sched_disk_finish(struct sched *s); /* at the end: copies out what is pending */

/* sched_wait.c */
/* sequences waiting from `fresh` on were submitted since the last count */
void sched_count_waits(struct sched *s, struct sched_seq *fresh);
void sched_note_waiting(struct sched *s);

/* sched_predict.c: without a prediction head note and run do nothing */
MUST_CHECK enum err sched_predict_init(struct sched *s); /* before batches exist; ERR_NOMEM */
void sched_predict_fini(struct sched *s);
/* q's rows of b from position `first` on were computed; goes_on: it has not ended */
void sched_predict_note(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t first, bool goes_on);
/* Computes the noted rows, and guesses. logits: [max_logits][n_vocab] of a batch that is done. */
void sched_predict_run(struct sched *s, float *logits);

/* sched_draft.c */
int32_t sched_draft_room(struct sched *s, struct sched_seq *q); /* returns how many tokens q could draft */
void sched_draft_look(struct sched_seq *q);                     /* looks for forced tokens, and for repeated ones */
void sched_draft_all(struct sched *s, struct sched_seq **seqs, int32_t n); /* drafts for seqs[n], which all decode */

/* sched_mask.c */
MUST_CHECK enum err sched_masks_init(struct sched *s); /* after batches exist; ERR_NOMEM; ERR_INTERNAL: no thread */
void sched_masks_fini(struct sched *s);
void sched_masks_begin(struct sched *s, const struct sched_batch *b); /* the batch is about to begin */
void sched_masks_make(struct sched *s, const struct sched_batch *b);  /* it has begun, and the device computes */
/* stops making masks, except those of the returned sequence, or NULL */
struct sched_seq *sched_masks_stop(struct sched *s);
void sched_masks_wait(struct sched *s); /* waits for these */
/* Returns the mask of row i of logits, which q samples from; NULL: it was not made. */
const uint64_t *sched_mask(const struct sched *s, const struct sched_batch *b, const struct sched_seq *q, int32_t i);

/* sched_embed.c */
/* returns whether q needs the state of the token at position `at` */
bool sched_wants_state(const struct sched_seq *q, int32_t at);
void sched_pool_states(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t first);
enum err sched_finish_embedding(struct sched *s, struct sched_seq *q); /* ERR_NUMERICAL */

/* sched.c */
void sched_overtake(void *sched); /* backend_batch.between */
uint32_t sched_ring_room(struct sched_seq *q);
void sched_note_processed(struct sched_seq *q); /* updates the computed part of the prompt, for sched_seq_usage */
void sched_put_token(struct sched_seq *q, enum sched_event_kind kind, const struct sampler_result *r);
/* wakes readers with new tokens, if that was postponed until a batch has begun */
void sched_tell_readers(struct sched *s);
/* q leaves the scheduler; why OPTIONAL */
void sched_end(struct sched *s, struct sched_seq *q, enum sched_finish finish, enum err err,
               const struct err_info *why);

#endif
