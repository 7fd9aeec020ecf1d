/* The back end of same_draft.c's engines: the real one, with a clock that makes the same drafts pay on every machine, a
 * gate, and a prediction head that can be told what follows. Linked with --wrap of sched_new. One engine at a time.
 * Threads: the test's thread calls these functions. */
#ifndef INFCGI_TESTS_SAME_DRAFT_BACKEND_H
#define INFCGI_TESTS_SAME_DRAFT_BACKEND_H

#include <stdint.h>

/* A sequence's prompt and the tokens that follow it. */
struct same_draft_text {
    const int32_t *tokens; /* [n] borrowed until the next call of same_draft_backend_tell */
    int n;
};

/* Tells the head what follows in n texts; this share of its guesses is then true. Call it while a batch is held. */
void same_draft_backend_tell(const struct same_draft_text *texts, int n, double share, uint64_t seed);

/* Sets how long a row takes by the scheduler's clock, beyond the time of a step. */
void same_draft_backend_row_ns(uint64_t ns);

/* Adds a fault from now on: recurrent states advance by all drafts, also the rejected ones. */
void same_draft_backend_break(void);

/* hold stops the next batch before it begins, wait_held waits for that, go lets it run. So requests that were submitted
 * in between start together. */
void same_draft_backend_hold(void);
void same_draft_backend_wait_held(void);
void same_draft_backend_go(void);

#endif
