/* A back end without a model, for tests of the scheduler. Its "KV cache" holds, for each position of each page, the
 * token and a hash of everything before it; the logits of a row are a hash of all tokens of its sequence, read back
 * through the page table and checked on the way. So a page that is mixed up, freed too early, never computed or shared
 * under another prefix shows as a fault and as a wrong token; fake_backend_logits says what the right ones are.
 *
 * Threads: begin on the scheduler's thread; the counters and knobs may be used from any other. */
#ifndef INFCGI_TEST_FAKE_BACKEND_H
#define INFCGI_TEST_FAKE_BACKEND_H

#include "engine/backend/backend.h"

#include <stdatomic.h>

enum { FAKE_VOCAB = 64, FAKE_EMBD = 8, FAKE_MAX_STATES = 128 };

struct fake_slot {
    int32_t token;
    uint64_t hash; /* of the sequence up to here; 0 = never written */
};

/* Of a page, and behind it as many of a window page where there are some. */
enum { FAKE_PAGE_BYTES = KV_PAGE_TOKENS * sizeof(struct fake_slot), FAKE_STATE_BYTES = sizeof(uint64_t) };

/* FAKE_TO_HOLD: the next batch that begins behind n_to_go others, but for what overtakes, stands still until it is FAKE_GOES, and
 * makes it FAKE_HELD. */
enum fake_hold { FAKE_GOES, FAKE_TO_HOLD, FAKE_HELD };

struct backend_model {
    struct fake_slot *slots;   /* [n_pages][KV_PAGE_TOKENS] */
    struct fake_slot *windows; /* [n_windows][KV_PAGE_TOKENS] of local layers; NULL without */
    int32_t n_windows,
        local_window; /* rows read so many positions back through window pages, themselves counted, 2 or more */
    int32_t n_pages, max_rows, max_logits;
    int32_t
        window; /* knob: rows read so many positions back through their pages, themselves counted, 2 or more; 0 = all */
    int32_t n_states; /* knob: that many recurrent states, FAKE_MAX_STATES at most; 0 = the plan has none */
    uint64_t recurrent[FAKE_MAX_STATES]; /* hash of the sequence up to the last row computed in the state */
    atomic_long n_rows, n_steps,
        n_faults;                     /* rows and batches run; rules of struct backend_batch broken, or pages wrong */
    atomic_long n_copies;             /* recurrent states copied */
    atomic_int n_wide;                /* most sequences seen in one batch */
    atomic_int n_last;                /* rows of the batch that runs, or ran last */
    atomic_int n_alone;               /* batches that begin and end one sequence, several rows, with nobody beside it */
    int32_t overtaking_rows;          /* knob: of batches that overtake others; 0 = none may */
    const struct backend_batch *left; /* the batch that such a one overtakes; NULL = none */
    atomic_int n_overtook;            /* batches that did */
    int32_t even_rows;                /* knob: how many rows a batch is to be a multiple of */
    atomic_int n_beside;              /* batches in which some generate beside a part of a prompt */
    atomic_int n_uneven;              /* of these, those that are no multiple of even_rows */
    atomic_int n_mixed;               /* batches with rows without logits and a sequence with several that want them */
    atomic_int delay_us;              /* knob: how long a batch takes at least, and takes by fake_backend_now_ns */
    atomic_int row_us;                /* knob: and how much longer for each of its rows */
    atomic_int read_us;               /* knob: how long page_read takes at least */
    atomic_int fail_token;            /* knob: a batch with this token fails; -1 = none */
    atomic_int fail_code;             /* knob: with this enum err, at first ERR_INTERNAL */
    atomic_int nan_token;             /* knob: the logits of rows of this token are NaN; -1 = none */
    atomic_bool in_pieces;            /* a sequence began behind position 0: what a bidirectional plan cannot have */
    atomic_int hold;                  /* knob: enum fake_hold */
    atomic_int n_to_go;               /* knob, while none is held */
    atomic_bool is_inside;            /* begin runs now */
};

extern const struct backend fake_backend;

/* A model with room for the limits given / its end. NULL, of windows false, when out of memory. */
struct backend_model *fake_backend_new(int32_t n_pages, int32_t max_rows, int32_t max_logits);
bool fake_backend_add_windows(struct backend_model *m, int32_t n_windows, int32_t local_window);
void fake_backend_free(struct backend_model **m);

/* The state behind tokens[0..n), as a batch gives it. */
void fake_backend_state(const int32_t *tokens, int32_t n, float state[FAKE_EMBD]);

/* Time that goes on while batches are computed, as far as their knobs say, and a little for each batch and row, however
 * busy the machine is. */
uint64_t fake_backend_now_ns(void);

/* From now on logits come from the last n tokens, and only in their last bits from all, so that texts repeat
 * themselves; 0, as at first: from all alike. */
void fake_backend_remember(int32_t n);

/* Logits of the row behind tokens[0..n), as a batch computes them. */
void fake_backend_logits(const int32_t *tokens, int32_t n, float *logits);

#endif
