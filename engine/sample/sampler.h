/* Picks a token from a row of logits: penalties, bias, truncation, temperature, a draw.
 *
 * Stages run in llama.cpp's order: bias and bans, repetition, presence and frequency penalties, top-k, typical-p,
 * top-p, min-p, temperature. The draw is rng_uniform(seed, choice, position), so it depends only on the request. Sums
 * run in a fixed order in double. Nothing here allocates. Threads: pure functions on the caller's scratch. */
#ifndef INFCGI_SAMPLE_SAMPLER_H
#define INFCGI_SAMPLE_SAMPLER_H

#include "engine/base/candidate.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLER_MAX_TOP = 20 };

struct sampler_bias {
    int32_t id;
    float bias; /* SAMPLER_BAN or less bans */
};
#define SAMPLER_BAN (-100.0f) /* OpenAI: "values like -100 should result in a ban" */

/* Neutral values in brackets. */
struct sampler_params {
    float temperature;       /* [1]; 0: greedy */
    int32_t top_k;           /* [0 = off] */
    float top_p;             /* [1 = off] */
    float min_p;             /* [0 = off] share of the best token's probability */
    float typical_p;         /* [1 = off] [Meister 2023, "Locally typical sampling"] */
    float repeat_penalty;    /* [1 = off] over the last repeat_last_n tokens, prompt included [Keskar 2019, CTRL] */
    int32_t repeat_last_n;   /* [64], -1: all */
    float presence_penalty;  /* [0 = off] once per generated token [OpenAI API] */
    float frequency_penalty; /* [0 = off] for each time a token was generated */
    uint64_t seed;
    uint32_t choice; /* index among the request's choices: selects the random stream */
    /* [-1 = no log-probabilities]; 0: the chosen token's; 1..SAMPLER_MAX_TOP: that many best ones too */
    int32_t n_top;
    const struct sampler_bias *bias; /* [n_bias], ids in range */
    size_t n_bias;
    const int32_t *ends; /* [n_ends] ids that end a sequence, in range */
    size_t n_ends;
    /* With n_top >= 0: report the probabilities after all sampling stages instead of log-probabilities; the best ones
     * only if they can be drawn. */
    bool tells_drawn;
    bool is_guided; /* rows come with sampler_history.allowed */
};

/* A row of logits and the back end's statistics of it. */
struct sampler_row {
    const float *logits; /* [n_vocab]; NULL: only what sampler_wants asked for is known */
    int32_t n_vocab;
    const struct candidate *best; /* without logits: [n_best], best first */
    int32_t n_best;
    int32_t argmax;
    float max, logsumexp;
};

/* The sequence so far: prompt and generated tokens in one array. */
struct sampler_history {
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_prompt, n_tokens;
    bool ban_ends;           /* allow no end token now (min_tokens) */
    const uint64_t *allowed; /* OPTIONAL [(n_vocab + 63) / 64] bits of the allowed tokens (grammar.h) */
};

struct sampler_top {
    int32_t id;
    float logprob;
};

struct sampler_result {
    int32_t id;
    float logprob; /* of id in the model's distribution; NaN if not requested; see tells_drawn */
    int32_t n_top;
    struct sampler_top top[SAMPLER_MAX_TOP]; /* best first, ties by lower id */
};

struct kern_table;

/* Scratch for one thread; the vocabulary determines the sizes. */
struct sampler_scratch {
    struct kern_table *kern; /* of the best ISA; the sampler only uses exact functions of it */
    float *logits;           /* [n_vocab] */
    struct candidate *cands; /* [n_vocab] */
    struct candidate *spare; /* [n_vocab] */
    double *weights;         /* [n_vocab] */
    unsigned char *seen;     /* [n_vocab] zero between calls */
};
MUST_CHECK enum err sampler_scratch_init(struct sampler_scratch *s, int32_t n_vocab); /* ERR_NOMEM, ERR_INVALID_VALUE */
void sampler_scratch_fini(struct sampler_scratch *s);

enum { SAMPLER_ALL_LOGITS = -1 };

/* Returns what sampler_pick needs of a row, besides its statistics, to give the same bits as with all logits: a number
 * of best candidates, or SAMPLER_ALL_LOGITS. ban_ends: as sampler_history's, for this row or an earlier one. */
int32_t sampler_wants(const struct sampler_params *p, int32_t n_vocab, bool ban_ends);

/* Picks the token after the history. ERR_NUMERICAL: the row contains NaN or +inf, or a penalty made a logit +inf;
 * ERR_INVALID_VALUE: every token is banned. */
MUST_CHECK enum err sampler_pick(const struct sampler_params *p, const struct sampler_row *row,
                                 const struct sampler_history *h, struct sampler_scratch *scratch,
                                 struct sampler_result *out);

/* Returns the log-probability of `id` and the n_top best of a row, as for a prompt token. */
void sampler_logprobs(const struct sampler_row *row, int32_t id, int32_t n_top, struct sampler_scratch *scratch,
                      struct sampler_result *out);

#endif
