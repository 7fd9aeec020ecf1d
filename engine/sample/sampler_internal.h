/* Shared by the sampler's files: the stages' view of a row, and the search for its best logits. */
#ifndef INFCGI_SAMPLE_SAMPLER_INTERNAL_H
#define INFCGI_SAMPLE_SAMPLER_INTERNAL_H

#include "engine/kernels/kern.h"
#include "engine/sample/sampler.h"

enum { SAMPLER_MAX_VOCAB = 1 << 22 };
enum { SAMPLER_BLOCKS = 1024 }; /* maximum; a block has a multiple of 16 logits */

/* A row of logits, some of them changed by bias or penalties. A block is copied before its first change; the others are
 * read from the model's buffer. */
struct sampler_view {
    const struct kern_table *kern;
    const float *logits; /* [n] the model's */
    float *changed;      /* [n] holds only the touched blocks */
    int32_t n, block, n_blocks;
    bool has_max;                          /* max[] is filled */
    float max[SAMPLER_BLOCKS];             /* largest of each block */
    unsigned char touched[SAMPLER_BLOCKS]; /* 1: read the block from `changed` */
};

/* One row in the truncating stages and the draw. */
struct sampler_chain {
    const struct sampler_params *p;
    const struct sampler_row *row;
    const struct sampler_view *view;
    struct sampler_scratch *s;
    float max;         /* largest logit */
    float logsumexp;   /* of the row; NaN: logits were changed */
    int32_t n_weights; /* s->weights[0..n_weights) holds the masses of the best candidates */
};

/* Initialises the view; reads nothing yet. */
void sampler_view_init(struct sampler_view *v, const struct sampler_row *row, struct sampler_scratch *s);

/* Fills v->max unless it is filled. Call it before the first change. */
void sampler_view_find_max(struct sampler_view *v);

/* Returns the address of one logit to change; the first call copies its block. v->max is stale until
 * sampler_view_settle. */
float *sampler_view_change(struct sampler_view *v, int32_t id);
void sampler_view_settle(struct sampler_view *v);

/* Sets the logits of all tokens whose bit is not set to -inf, in an unchanged row. */
void sampler_view_keep(struct sampler_view *v, const uint64_t *allowed);

/* Returns the logits of block b and their number in *len. */
const float *sampler_view_block(const struct sampler_view *v, int32_t b, int32_t *len);

/* Returns the index of the largest logit, the lowest index among equals. Needs max. */
int32_t sampler_view_argmax(const struct sampler_view *v);

/* Returns a lower bound, as large as possible, of the k largest logits, if at least k are not -inf; 1 <= k <= n_blocks.
 * Needs max. */
float sampler_view_floor(const struct sampler_view *v, int32_t k);

/* Writes all candidates from `floor` (a number) to `most`, ascending by id, into c; returns how many. Needs max. */
int32_t sampler_view_collect(const struct sampler_view *v, float floor, float most, struct candidate *c);

/* Sorts c[n], ascending by id, best first: higher logit, then lower id. No NaNs. spare[n] is scratch. */
void sampler_sort(struct candidate *c, int32_t n, struct candidate *spare);

/* Writes the k best of the row, best first, into c; returns how many exist: banned ones (-inf) are left out. Needs
 * max. */
int32_t sampler_view_best(const struct sampler_view *v, int32_t k, struct candidate *c, struct candidate *spare);

enum { SAMPLER_BINS_LEAST = 8192 }; /* shorter rows are sorted faster */

/* Finds the token that typical-p, top-p, min-p and the draw for u pick from the whole row (sampler_bins.c). Returns
 * false if it cannot decide. Overwrites s->cands and s->spare. Needs view->max. */
bool sampler_bins_pick(const struct sampler_chain *c, double u, int32_t *id);

/* Returns a lower bound, as large as possible, of the k largest logits, if at least k are not -inf. */
float sampler_bins_floor(const struct sampler_view *v, float max, int32_t k);

#endif
