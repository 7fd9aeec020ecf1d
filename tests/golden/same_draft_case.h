/* Random cases for same_draft.c: all that a run does follows from its seed, the models and the CPU's instruction sets.
 * Threads: one at a time. */
#ifndef INFCGI_TESTS_SAME_DRAFT_CASE_H
#define INFCGI_TESTS_SAME_DRAFT_CASE_H

#include "engine/engine.h"

enum {
    N_TURNS = 2,
    MAX_WISHES = 5,  /* requests of a turn */
    MAX_CHOICES = 3, /* sequences of a request */
    MAX_SEQS = MAX_WISHES * MAX_CHOICES,
    MAX_DRAWN = 110, /* tokens that are drawn for a prompt */
    MAX_NEW = 64,    /* tokens that a sequence generates */
    MAX_TOP = 3,
    N_CTX = 320,        /* both turns of a conversation fit */
    MAX_EVENTS = N_CTX, /* of a sequence */
    MAX_FEW = 6,
    MAX_MODELS = 64,
};

/* FIXED leaves no choice at all. */
enum same_draft_grammar { NO_GRAMMAR, FIXED, RECORDS, PATTERN, SCHEMA, N_GRAMMARS };

struct same_draft_model {
    const char *name; /* of golden_models.h */
    char path[128];
    char head[128]; /* path of its head; "": it is in the model's file, or there is none */
    bool has_head, has_states, has_latents;
};

/* A request. Its params point into it, except for the grammar, which belongs to an engine. */
struct same_draft_wish {
    struct engine_params params;
    int n_choices;
    uint64_t key; /* of its owner */
    enum same_draft_grammar grammar;
    int32_t tokens[MAX_DRAWN]; /* its prompt; in the second turn, the part after the conversation */
    int n_tokens;
    int n_read;   /* events after which its streams are closed, unless they have ended */
    int i_answer; /* second turn: continues this choice's answer */
    struct sampler_bias bias[MAX_FEW];
    int32_t ends[2], think_end[3];
    char stops[2][3];
};

struct same_draft_case {
    uint64_t seed;
    const struct same_draft_model *model;
    /* These decide on bits. */
    const char *backend, *cpu, *cache_type, *quantize;
    bool high_precision;
    /* These do not. */
    int n_threads, max_seqs, max_batch_rows;
    uint64_t kv_tokens;
    const char *draft;      /* path of a draft model; NULL: the model cannot have one */
    int draft_max[N_TURNS]; /* the second only counts after a restart; -1: none then */
    bool restarts;          /* between the turns, with snapshots */
    double truth;           /* share of the head's guesses that are replaced by the tokens that do follow */
    uint64_t row_ns;        /* time of a row, beyond that of a step */
    int n_turns, n_wishes;
    struct same_draft_wish wishes[N_TURNS][MAX_WISHES];
};

/* Lists the models in GGUF form that have recurrent states, a prediction head or windows (by their names), at most
 * out[MAX_MODELS]. Returns their number; prints each file that cannot be read or listed and adds it to *n_failed. */
int same_draft_case_models(struct same_draft_model *out, int *n_failed);

/* Draws the case of a seed. backend: OPTIONAL: instead of ref or cpu. */
void same_draft_case_draw(uint64_t seed, const struct same_draft_model *models, int n_models, const char *backend,
                          struct same_draft_case *out);

/* Prints the case in a few lines. */
void same_draft_case_print(const struct same_draft_case *c);

#endif
