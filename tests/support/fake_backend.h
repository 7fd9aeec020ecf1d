/* A back end without a model, for tests of the scheduler. Its "KV cache" holds, for each position of each page, the
 * token and a hash of everything before it. The logits of a row are a hash of all tokens of its sequence, which it
 * reads back and checks through the page table. So a page that is mixed up, freed too early, never computed or shared
 * under another prefix shows as a fault and as a wrong token. fake_backend_logits returns the right logits.
 * The output for a row is its hash, and the prediction head computes the hash of the next row from it: it guesses right
 * but for a part of the tokens.
 *
 * Threads: begin on the scheduler's thread; any thread can use the counters and knobs. */
#ifndef INFCGI_TEST_FAKE_BACKEND_H
#define INFCGI_TEST_FAKE_BACKEND_H

#include "engine/backend/backend.h"
#include "engine/sched/draft.h"

#include <stdatomic.h>

enum { FAKE_VOCAB = 64, FAKE_EMBD = 8, FAKE_MAX_STATES = 128, FAKE_OUTPUT = sizeof(uint64_t) / sizeof(float) };

struct fake_slot {
    int32_t token;
    uint64_t hash; /* of the sequence up to here; 0 = never written */
    /* The head's: the token, and the hash of its own rows up to here. */
    int32_t head_token;
    uint64_t head;
};

/* Bytes of a page; a page with a window page has twice as many. */
enum { FAKE_PAGE_BYTES = KV_PAGE_TOKENS * sizeof(struct fake_slot), FAKE_STATE_BYTES = sizeof(uint64_t) };

/* FAKE_TO_HOLD: after n_to_go others, the next batch that does not overtake blocks until the value is FAKE_GOES, and
 * sets it to FAKE_HELD. */
enum fake_hold { FAKE_GOES, FAKE_TO_HOLD, FAKE_HELD };

/* Rows of the last batch that a state can be advanced by, from position pos on. */
struct fake_drafts {
    int32_t n, pos, tokens[DRAFT_MAX];
};

/* The hash up to a position, which a guess in place ended with. */
struct fake_guess {
    uint64_t hash;
    int32_t pos;
};
enum { FAKE_GUESSES = 256 };

struct backend_model {
    struct fake_slot *slots;   /* [n_pages][KV_PAGE_TOKENS] */
    struct fake_slot *windows; /* [n_windows][KV_PAGE_TOKENS] of local layers; NULL: none */
    int32_t n_windows,
        local_window; /* positions, including its own, that a row reads through window pages, 2 or more */
    int32_t n_pages, max_rows, max_logits;
    int32_t window;   /* knob: positions, including its own, that a row reads through its pages, 2 or more; 0: all */
    int32_t n_states; /* knob: number of recurrent states, at most FAKE_MAX_STATES; 0: the plan has none */
    uint64_t recurrent[FAKE_MAX_STATES]; /* hash of the sequence up to the last row computed in the state */
    struct fake_drafts drafts[FAKE_MAX_STATES];
    atomic_long n_advanced; /* rows that states were advanced by because drafts came true */
    atomic_long n_rows, n_steps,
        n_faults;                     /* rows and batches run; violations of struct backend_batch, or wrong pages */
    atomic_long n_copies;             /* recurrent states copied */
    atomic_int n_wide;                /* most sequences seen in one batch */
    atomic_int n_last;                /* rows of the current or last batch */
    atomic_int n_alone;               /* batches of several rows that begin and end one sequence, with no others */
    int32_t overtaking_rows;          /* knob: rows of batches that overtake others; 0: no batch can */
    const struct backend_batch *left; /* the batch that such a batch overtakes; NULL: none */
    atomic_int n_overtook;            /* batches that did */
    int32_t even_rows;                /* knob: the number that the rows of a batch should be a multiple of */
    atomic_int n_beside;              /* batches in which some sequences generate next to a part of a prompt */
    atomic_int n_uneven;              /* the part of these whose rows are no multiple of even_rows */
    atomic_int n_mixed;               /* batches with rows without logits and a sequence that requests several */
    atomic_int delay_us;              /* knob: minimum duration of a batch, also by fake_backend_now_ns */
    atomic_int row_us;                /* knob: additional duration per row */
    atomic_int read_us;               /* knob: minimum duration of page_copy */
    atomic_int fail_token;            /* knob: a batch with this token fails; -1: none */
    atomic_int fail_code;             /* knob: its enum err, initially ERR_INTERNAL */
    atomic_int nan_token;             /* knob: the logits of rows of this token are NaN; -1: none */
    bool has_head;                    /* knob: rows have outputs, and there is a prediction head */
    bool is_draft;                    /* knob: ... or a draft model, and no rows have outputs */
    bool in_place;                    /* knob: ... or a head that guesses in place (plan.h) */
    struct fake_guess guesses[FAKE_GUESSES]; /* in place, the last ones */
    int n_guesses;
    atomic_int head_us;     /* knob: minimum duration of its batches */
    atomic_bool head_fails; /* knob: its batches fail */
    atomic_long n_head;     /* its batches */
    atomic_long n_holes;    /* rows that it computed with others missing before them */
    atomic_bool in_pieces;  /* a sequence began after position 0, which a bidirectional plan does not allow */
    atomic_int hold;        /* knob: enum fake_hold */
    atomic_int n_to_go;     /* knob; change it only while no batch is held */
    atomic_bool is_inside;  /* begin is running */
};

extern const struct backend fake_backend;

/* Returns a model with room for these limits; frees it. NULL, or for windows false, if out of memory. */
struct backend_model *fake_backend_new(int32_t n_pages, int32_t max_rows, int32_t max_logits);
bool fake_backend_add_windows(struct backend_model *m, int32_t n_windows, int32_t local_window);
void fake_backend_free(struct backend_model **m);

/* Writes the state after tokens[0..n), as a batch computes it. */
void fake_backend_state(const int32_t *tokens, int32_t n, float state[FAKE_EMBD]);

/* Returns a clock that advances while batches are computed, by the durations of the knobs, and a little for each batch
 * and row, independent of the machine's load. */
uint64_t fake_backend_now_ns(void);

/* From now on logits depend on the last n tokens, and only their last bits on all, so that texts repeat themselves; 0
 * (initially): on all alike. */
void fake_backend_remember(int32_t n);

/* Writes the logits of the row after tokens[0..n), as a batch computes them. */
void fake_backend_logits(const int32_t *tokens, int32_t n, float *logits);

#endif
