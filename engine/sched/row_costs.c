#include "engine/sched/row_costs.h"

#include "engine/base/compiler.h"

#include <math.h>

static const double KEPT = 0.93; /* decay of older steps' weight per step: half after 10 steps */
/* least variance of positions, relative to the largest possible, that allows separating their part */
static const double APART = 0.001;

/* Fits the two parts: ns per row, and per position. */
static void fit(const struct row_costs *c, double *row, double *pos)
{
    double det = c->rr * c->pp - c->rp * c->rp;
    *pos = det > APART * c->rr * c->pp ? (c->rr * c->pt - c->rp * c->rt) / det : 0;
    *pos = MAX_OF(*pos, 0);
    *row = (c->rt - *pos * c->rp) / c->rr;
    if (*row < 0) { /* then positions explain all of it; not all are 0 */
        *row = 0;
        *pos = c->pt / c->pp;
    }
}

void row_costs_note(struct row_costs *c, int32_t n_rows, double sum_pos, double ns)
{
    double n = n_rows;
    if (c->rr > 0) {
        c->off_ns += 0.1 * (fabs(ns - n * row_costs_ns(c, sum_pos / n)) - c->off_ns);
    }
    c->rr = KEPT * c->rr + n * n;
    c->rp = KEPT * c->rp + n * sum_pos;
    c->pp = KEPT * c->pp + sum_pos * sum_pos;
    c->rt = KEPT * c->rt + n * ns;
    c->pt = KEPT * c->pt + sum_pos * ns;
}

double row_costs_ns(const struct row_costs *c, double pos)
{
    double each_row, each_pos;
    if (c->rr <= 0) {
        return 0;
    }
    fit(c, &each_row, &each_pos);
    return MAX_OF(each_row + each_pos * pos, 1.0);
}
