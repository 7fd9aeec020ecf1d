/* What the scheduler reports about a sequence and about itself. engine.h uses these types, so programs that use the
 * engine include this header too. Threads: plain types. */
#ifndef INFCGI_SCHED_SCHED_REPORT_H
#define INFCGI_SCHED_SCHED_REPORT_H

#include "engine/kv/disk/kv_disk_stats.h"
#include "engine/sample/sampler.h"
#include "engine/sched/draft_counts.h"
#include "engine/sched/sched_wait.h"

enum sched_event_kind {
    SCHED_PROMPT_TOKEN, /* a prompt token with its log-probability, in order, before all other events */
    SCHED_TOKEN,        /* a generated token */
    SCHED_END,          /* the last event of a sequence */
};

/* The owner of a request and its share of the engine's time. NULL or all zero: no owner, weight 1. */
struct sched_share {
    uint64_t key;     /* 0: no owner */
    bool is_guest;    /* separate by key, but counted under key 0 (sched_get_share) */
    int32_t weight;   /* 1 .. SCHED_MAX_WEIGHT; 0: 1 */
    int32_t priority; /* higher classes go first (sched_share.c) */
};
enum { SCHED_MAX_WEIGHT = 1000 };

enum sched_finish { SCHED_FINISH_NONE, SCHED_FINISH_STOP, SCHED_FINISH_LENGTH };

/* What the scheduler's thread can be doing; sched_place_name returns the names. */
enum sched_place {
    SCHED_AT_REST,
    SCHED_AT_ADMISSION,
    SCHED_AT_CHOICE,
    SCHED_AT_BEGIN,
    SCHED_AT_BACKEND,
    SCHED_AT_SAMPLING
};
const char *sched_place_name(enum sched_place at);

/* Counts so far; exact once the sequence has ended. */
struct sched_usage {
    int32_t prompt_tokens;
    int32_t cached_tokens;     /* of the prompt, found in the KV cache */
    int32_t processed_tokens;  /* of the prompt, computed or found so far */
    int32_t completion_tokens; /* sampled, including the end token; of a stream, without cut text */
    int32_t drafted_tokens;    /* guessed ahead and computed */
    int32_t accepted_tokens;   /* of these, the tokens that came true, including cut text */
    /* Both by source. */
    struct draft_count drafts[DRAFT_SOURCES];
    uint64_t queue_ns, prefill_ns, decode_ns;
    struct sched_waits waits; /* set once it has ended */
};

struct sched_stats {
    uint64_t n_running, n_waiting;                           /* sequences now */
    uint64_t n_waiting_for[SCHED_WAIT_COUNT];                /* in the queue, and running but left out of a step */
    struct sched_waits waits;                                /* totals of all sequences */
    uint64_t pages_held, pages_kept, pages_total;            /* KV pages: held by sequences; kept for reuse only; all */
    uint64_t windows_held, windows_kept, windows_total;      /* the same for window pages of local layers */
    uint64_t states_held, states_kept;                       /* recurrent states: held by sequences; kept by pages */
    uint64_t prompt_tokens, cached_tokens, generated_tokens; /* totals */
    uint64_t drafted_tokens, accepted_tokens;                /* guessed ahead; accepted of these */
    struct draft_counts draft_counts;                        /* both by source and position */
    struct draft_recent draft_recent;                        /* of these, mostly recent ones */
    uint64_t drafts;                                         /* times that tokens were guessed */
    uint64_t masks, masks_beside; /* grammar masks: used for sampling; made while a batch was computed */
    uint64_t steps, step_rows;    /* batches run, and rows in them */
    uint64_t step_ns;             /* time in the back end */
    uint64_t overtaking;          /* batches computed within another */
    uint64_t cancelled_queue, cancelled_prefill, cancelled_decode, preempted;
    uint64_t most_preempted;    /* most times that a sequence lost its pages to others that grew */
    uint64_t estimated_wait_ms; /* until running and waiting work is done: tokens over the measured speeds */
    struct kv_disk_stats disk;  /* snapshots */
    uint64_t last_step_age_ms;  /* since the scheduler last made progress; 0 if idle */
    uint64_t usual_step_ms;     /* expected time of the current step: the mean, or more for many rows */
    enum sched_place at;        /* what its thread does now */
};

#endif
