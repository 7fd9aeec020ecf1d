/* A scheduler over the fake back end, and the expected output of a sequence from a plain loop without a scheduler. */
#ifndef INFCGI_TEST_SCHED_RIG_H
#define INFCGI_TEST_SCHED_RIG_H

#include "engine/sched/sched.h"
#include "tests/support/fake_backend.h"

enum { RIG_MAX_OUT = 1024 };

struct rig {
    struct backend_model *model;  /* of the fake back end */
    struct backend_model *remote; /* around the fake one; NULL: none */
    struct sched *sched;
    struct rig_failures *failures;
    int32_t n_ctx;
};

/* Batches reported to sched_config.failed. */
struct rig_failures {
    atomic_int n, n_lost;
};

/* Limits of a rig; zero means: 64 pages, 320 tokens per sequence, 64 rows, max_logits = max_seqs + 4, 16 sequences, 64
 * waiting. */
struct rig_limits {
    int32_t n_pages, n_ctx, max_rows, max_logits, max_seqs, queue_max;
    int32_t draft_max, n_remembered; /* 0: no drafts; fake_backend_remember */
    bool has_head;                   /* a prediction head, which needs n_remembered 0 or 1 */
    bool has_draft;                  /* a draft model instead */
    bool in_place;                   /* the head guesses in place (plan.h) */
    float guess_p_min;
    uint64_t queue_max_tokens, stall_ns;
    int32_t window;                  /* 0: none */
    int32_t n_windows, local_window; /* window pages, whose files are twice as long; 0: none */
    bool is_bidirectional;
    bool is_recurrent;     /* at most FAKE_MAX_STATES states */
    int32_t n_kept_states; /* in addition to max_seqs; 0: 16 */
    bool has_spare_cpu;
    int32_t overtaking_rows, n_express; /* the remote back end does not support the first */
    int32_t even_rows;
    struct kv_disk *disk; /* of FAKE_PAGE_BYTES, with a head 8 more, and FAKE_STATE_BYTES */
    uint64_t disk_wait_ns;
};

/* From now on rigs put the fake back end in the remote one (remote_backend.h). For use as a fixture of test cases. */
void rig_go_remote(void);

/* Returns b, or the remote back end around it; writes the number of batches that its models accept to cfg. */
const struct backend *rig_backend(const struct backend *b, struct sched_config *cfg);

/* Opens a rig; fails the running test if the scheduler does not start. */
struct rig rig_open(struct rig_limits limits);

/* Checks that nothing is left (no page or state held, no rule of the back end violated), then frees everything. */
void rig_close(struct rig *r);

/* Waits until no sequence runs and no page is held; fails the test after some seconds. */
void rig_wait_idle(struct rig *r);

struct sched_stats rig_stats(struct rig *r);

/* Hold: blocks the next batch that does not overtake. Wait: waits until a batch blocks; fails the test after some
 * seconds. Go on: unblocks it. */
void rig_hold(struct rig *r);
void rig_wait_held(struct rig *r);
void rig_go_on(struct rig *r);
/* After rig_hold: lets n batches run, the first of which is the blocked one, and waits until the next one blocks. */
void rig_pass(struct rig *r, int n);
/* Likewise, one batch after another, until seq has generated n tokens; fails the test after more than `most`
 * batches. */
void rig_pass_until(struct rig *r, struct sched_seq *seq, int32_t n, int most);

/* Returns a request for greedy tokens with all options off. */
struct sched_request rig_request(const int32_t *tokens, int32_t n_tokens, int32_t max_tokens);

/* Fills tokens[0..n) with a prompt that depends only on `which`. */
void rig_prompt(int32_t *tokens, int32_t n, uint64_t which);

struct sched_seq *rig_submit(struct rig *r, const struct sched_request *q);

/* The output of a sequence. */
struct rig_output {
    int32_t n;
    int32_t ids[RIG_MAX_OUT];
    float logprobs[RIG_MAX_OUT]; /* NaN: not requested */
    int32_t n_prompt_events;
    enum sched_finish finish;
    enum err err;
    char why[64]; /* the event's text, truncated; "": none */
    struct sched_usage usage;
};

/* Reads a sequence to its end and releases it. */
void rig_collect(struct sched_seq **q, struct rig_output *out);

/* Computes the output of a request without interference. */
void rig_expect(const struct sched_request *q, int32_t n_ctx, struct rig_output *out);

/* Fails the test if the two differ in tokens, bits of log-probabilities, finish or error. */
void rig_compare(const struct rig_output *got, const struct rig_output *expected, const char *what);

/* Runs a greedy request to its end, without other requests, and fails the test unless its output is as expected.
 * Returns the number of its prompt tokens that were not computed. */
int32_t rig_run(struct rig *r, const int32_t *tokens, int32_t n_tokens, int32_t max_tokens, struct rig_output *got);

#endif
