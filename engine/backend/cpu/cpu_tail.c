/* The tail of a batch: after the last step that stores keys, values or a state, only rows whose logits are requested go
 * on. They move to the front of every buffer and become a batch of their own. A row's bits do not depend on its
 * neighbors, so they stay the same. */
#include "engine/backend/cpu/cpu_internal.h"

#include <string.h>

enum { LEAST_SHARE = 2 }; /* the tail has at most this part of the rows, else there is nothing to save */

void cpu_tail_lay_out(struct backend_model *m, size_t *at)
{
    size_t n = (size_t)m->cfg.max_logits;
    m->tail.tokens = cpu_take(m, at, n * sizeof *m->tail.tokens);
    m->tail.pos = cpu_take(m, at, n * sizeof *m->tail.pos);
    m->tail.seq = cpu_take(m, at, n * sizeof *m->tail.seq);
    m->tail.rows = cpu_take(m, at, n * sizeof *m->tail.rows);
}

/* Are the rows of each sequence at consecutive positions, as in any batch? */
static bool are_consecutive(const struct backend_batch *b)
{
    for (int32_t i = 1; i < b->n_rows; i++) {
        if (b->seq[i] == b->seq[i - 1] && b->pos[i] != b->pos[i - 1] + 1) {
            return false;
        }
    }
    return true;
}

bool cpu_tail_begin(const struct backend_model *m, const struct backend_batch *b, struct backend_batch *tail)
{
    const struct cpu_tail *t = &m->tail;
    bool has_output = b->output != NULL && m->plan->output_width != 0 && !m->plan->guesses_in_place;
    if (b->n_logits == 0 || b->n_logits > b->n_rows / LEAST_SHARE || b->n_hidden != 0 || has_output) {
        return false;
    }
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t row = b->logit_rows[i];
        t->tokens[i] = b->tokens[row];
        t->pos[i] = b->pos[row];
        t->seq[i] = b->seq[row];
        t->rows[i] = i;
    }
    *tail = *b;
    tail->n_rows = b->n_logits;
    tail->tokens = t->tokens;
    tail->pos = t->pos;
    tail->seq = t->seq;
    tail->logit_rows = t->rows;
    return are_consecutive(tail);
}

void cpu_tail_gather(struct backend_model *m, const struct backend_batch *b)
{
    for (int32_t buf = 0; buf < CPU_MAX_BUFS; buf++) {
        if (m->bufs[buf] == NULL || m->buf_rows[buf] < b->n_rows) { /* it has no rows of this batch */
            continue;
        }
        size_t stride = m->strides[buf];
        for (int32_t i = 0; i < b->n_logits; i++) { /* ascending: no row is overwritten before it has moved */
            memmove(m->bufs[buf] + (size_t)i * stride, m->bufs[buf] + (size_t)b->logit_rows[i] * stride,
                    stride * sizeof(float));
        }
    }
}
