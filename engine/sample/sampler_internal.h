/* Shared by the files of the sampler: the row as the stages see it, and how the best of it are found. */
#ifndef INFCGI_SAMPLE_SAMPLER_INTERNAL_H
#define INFCGI_SAMPLE_SAMPLER_INTERNAL_H

#include "engine/kernels/kern.h"
#include "engine/sample/sampler.h"

enum { SAMPLER_MAX_VOCAB = 1 << 22 };
enum { SAMPLER_BLOCKS = 1024 }; /* at most; a block has a multiple of 16 logits */

/* A row of logits, some of them changed by bias or penalties. A block in which something changed is copied first, so
 * that the others are read where the model left them. */
struct sampler_view {
    const struct kern_table *kern;
    const float *logits; /* [n] the model's */
    float *changed;      /* [n] holds the touched blocks and nothing else */
    int32_t n, block, n_blocks;
    bool has_max;                          /* max[] is filled */
    float max[SAMPLER_BLOCKS];             /* largest of each block */
    unsigned char touched[SAMPLER_BLOCKS]; /* 1: read the block from `changed` */
};

/* Nothing is read yet. */
void sampler_view_init(struct sampler_view *v, const struct sampler_row *row, struct sampler_scratch *s);

/* Fills v->max where that has not been done; called before the first change. */
void sampler_view_find_max(struct sampler_view *v);

/* The place of one logit, to be changed; its block is copied at the first call. v->max is stale until _settle. */
float *sampler_view_change(struct sampler_view *v, int32_t id);
void sampler_view_settle(struct sampler_view *v);

/* Changes the logits of all tokens whose bit is not set to -inf, in a row that nothing was changed in so far. */
void sampler_view_keep(struct sampler_view *v, const uint64_t *allowed);

/* Logits of block b; *len gets how many. */
const float *sampler_view_block(const struct sampler_view *v, int32_t b, int32_t *len);

/* Index of the largest logit, the lowest among equals. Needs max. */
int32_t sampler_view_argmax(const struct sampler_view *v);

/* A number, as large as may be, that at least k logits reach when as many are not -inf; 1 <= k <= n_blocks. Needs max.
 */
float sampler_view_floor(const struct sampler_view *v, int32_t k);

/* All candidates from `floor` (a number) to `most`, ascending by id, into c; returns how many. Needs max. */
int32_t sampler_view_collect(const struct sampler_view *v, float floor, float most, struct candidate *c);

/* Sorts c[n], ascending by id, best first: higher logit, then lower id. No NaNs. spare[n] is scratch. */
void sampler_sort(struct candidate *c, int32_t n, struct candidate *spare);

/* The k best of the row, best first, into c; returns how many there are: banned ones (-inf) are left out. Needs max. */
int32_t sampler_view_best(const struct sampler_view *v, int32_t k, struct candidate *c, struct candidate *spare);

enum { SAMPLER_BINS_LEAST = 8192 }; /* rows shorter than this are quicker sorted */

/* The token that typical-p, top-p, min-p and the draw for u find in the whole row, whose largest logit is `max`, by
 * sampler_bins.c. False when it cannot tell; s->cands and s->spare are lost either way. Needs v->max. */
bool sampler_bins_pick(const struct sampler_params *p, const struct sampler_view *v, float max,
                       struct sampler_scratch *s, double u, int32_t *id);

/* A number, as large as may be, that at least k logits reach when as many are not -inf. */
float sampler_bins_floor(const struct sampler_view *v, float max, int32_t k);

#endif
