/* Estimates what prompt rows cost next to decoding ones. Part of a row's time is constant; the rest grows with the
 * row's position, because attention reads everything before it. A least-squares fit to recent steps, with decaying
 * weights, gives both [Plackett 1950, "Some Theorems in Least Squares"]. Threads: one at a time per struct. */
#ifndef INFCGI_SCHED_ROW_COSTS_H
#define INFCGI_SCHED_ROW_COSTS_H

#include <stdint.h>

/* Zeroed: no step seen. */
struct row_costs {
    double rr, rp, pp; /* sums over steps: rows x rows, rows x positions, positions x positions */
    double rt, pt;     /* rows x ns, positions x ns */
    double off_ns;     /* moving average of the steps' deviation from their estimate */
};

/* Records that a step took ns for n_rows (1 or more) prompt rows, whose positions sum to sum_pos. */
void row_costs_note(struct row_costs *c, int32_t n_rows, double sum_pos, double ns);

/* Returns the nanoseconds of a row at position pos; 0 if no step was seen, else above 0. */
double row_costs_ns(const struct row_costs *c, double pos);

#endif
