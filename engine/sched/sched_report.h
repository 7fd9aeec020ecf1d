/* What is told of a sequence and of the scheduler, to whoever is behind the engine's door too: engine.h has no types of
 * its own for it. Threads: plain types. */
#ifndef INFCGI_SCHED_SCHED_REPORT_H
#define INFCGI_SCHED_SCHED_REPORT_H

#include "engine/kv/kv_disk_stats.h"
#include "engine/sample/sampler.h"
#include "engine/sched/sched_wait.h"

enum sched_event_kind {
    SCHED_PROMPT_TOKEN, /* a prompt token with its log-probability, in order, before anything else */
    SCHED_TOKEN,        /* a generated token */
    SCHED_END,          /* the last event of a sequence */
};

/* Whose request it is, and what part of the engine's time that one gets; NULL, or all zero: nobody's, of weight 1. */
struct sched_share {
    uint64_t key;     /* 0 = nobody's */
    bool is_guest;    /* told from others by its key, but counted as nobody's (sched_get_share of key 0) */
    int32_t weight;   /* 1 .. SCHED_MAX_WEIGHT; 0 = 1 */
    int32_t priority; /* higher classes go first (sched_share.c) */
};
enum { SCHED_MAX_WEIGHT = 1000 };

enum sched_finish { SCHED_FINISH_NONE, SCHED_FINISH_STOP, SCHED_FINISH_LENGTH };

/* What the scheduler's thread may be doing; sched_place_name has their names. */
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
    int32_t completion_tokens; /* sampled, end token included; of a stream, cut text excluded */
    int32_t drafted_tokens;    /* guessed ahead and computed */
    int32_t accepted_tokens;   /* of these came true, cut text included */
    uint64_t queue_ns, prefill_ns, decode_ns;
    struct sched_waits waits; /* once it has ended */
};

struct sched_stats {
    uint64_t n_running, n_waiting;            /* sequences now */
    uint64_t n_waiting_for[SCHED_WAIT_COUNT]; /* those in the queue, and those that run and were left out of a step */
    struct sched_waits waits;                 /* of all sequences, totals */
    uint64_t pages_held, pages_kept, pages_total;            /* of KV: by sequences; for reuse only; all */
    uint64_t windows_held, windows_kept, windows_total;      /* window pages of local layers, the same */
    uint64_t states_held, states_kept;                       /* recurrent ones: by sequences; by pages */
    uint64_t prompt_tokens, cached_tokens, generated_tokens; /* totals */
    uint64_t drafted_tokens, accepted_tokens;                /* guessed ahead, and of these came true */
    uint64_t drafts;                                         /* times that some were guessed */
    uint64_t masks, masks_beside; /* of grammars, sampled with; made while a batch was computed */
    uint64_t steps, step_rows;    /* batches run, and rows in them */
    uint64_t step_ns;             /* time in the back end */
    uint64_t overtaking;          /* of the batches, those that were computed within another */
    uint64_t cancelled_queue, cancelled_prefill, cancelled_decode, preempted;
    uint64_t most_preempted;    /* times that one sequence lost its pages to others that grew */
    uint64_t estimated_wait_ms; /* until what waits and runs would be done: tokens over the measured speeds */
    struct kv_disk_stats disk;  /* snapshots */
    uint64_t last_step_age_ms;  /* since the scheduler last made progress; 0 when idle */
    uint64_t usual_step_ms;     /* what the step underway may be expected to take: the mean, or more of many rows */
    enum sched_place at;        /* what its thread does now */
};

#endif
