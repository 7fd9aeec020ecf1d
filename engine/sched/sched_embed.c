/* Embeddings: sums the states of rows in the order of the rows, in double, so that the bits do not depend on how a
 * prompt is split into batches; then normalises to length 1. */
#include "engine/sched/sched_internal.h"

#include <math.h>
#include <string.h>

bool sched_wants_state(const struct sched_seq *q, int32_t at)
{
    return q->embed.pooling == PLAN_POOL_MEAN || q->embed.pooling == PLAN_POOL_EACH ||
           (q->embed.pooling == PLAN_POOL_CLS && at == 0) ||
           (q->embed.pooling == PLAN_POOL_LAST && at == q->n_prompt - 1);
}

/* first: the position of the batch's first row of q. Position 0 can repeat, after a preemption. */
void sched_pool_states(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t first)
{
    size_t n = (size_t)s->cfg.n_embd;
    if (q->embed.pooling == PLAN_POOL_EACH) {
        memcpy(q->embed.vectors + (size_t)first * n, b->hidden + (size_t)q->rows.i_hidden * n,
               (size_t)q->rows.n_hidden * n * sizeof *q->embed.vectors);
        return;
    }
    if (q->embed.pooling != PLAN_POOL_NONE && first == 0) {
        memset(q->embed.sums, 0, n * sizeof *q->embed.sums);
    }
    for (int32_t i = q->rows.i_hidden; i < q->rows.i_hidden + q->rows.n_hidden; i++) {
        const float *hidden = b->hidden + (size_t)i * n;
        for (size_t k = 0; k < n; k++) {
            q->embed.sums[k] += hidden[k];
        }
    }
}

enum err sched_finish_embedding(struct sched *s, struct sched_seq *q)
{
    size_t n = (size_t)s->cfg.n_embd;
    double sum = 0;
    if (q->embed.pooling == PLAN_POOL_EACH) {
        return ERR_OK; /* the states were copied unchanged; sched_check_states checks them */
    }
    for (size_t k = 0; k < n; k++) {
        sum += q->embed.sums[k] * q->embed.sums[k];
    }
    if (!isfinite(sum)) {
        return ERR_NUMERICAL;
    }
    double n_rows = q->embed.pooling == PLAN_POOL_MEAN ? q->n_prompt : 1; /* a mean and a sum have the same direction */
    for (size_t k = 0; k < n; k++) {
        q->embed.vectors[k] = sum > 0 ? (float)(q->embed.sums[k] / (q->embed.keeps_length ? n_rows : sqrt(sum))) : 0;
    }
    return ERR_OK;
}

const float *sched_embedding(const struct sched_seq *q) { return q->embed.vectors; }

enum err sched_check_states(const struct sched_seq *q)
{
    size_t n = q->embed.pooling == PLAN_POOL_EACH ? (size_t)q->n_prompt * (size_t)q->sched->cfg.n_embd : 0;
    for (size_t i = 0; i < n; i++) {
        TRY(isfinite(q->embed.vectors[i]) ? ERR_OK : ERR_NUMERICAL);
    }
    return ERR_OK;
}
