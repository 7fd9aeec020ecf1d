/* What prompt rows cost beside decoding ones: of a row's time a part is the same for all, and another grows with the row's
 * position, as attention looks at all in front of it. Both are fitted to the last steps by least squares, older steps
 * counting less [Plackett 1950, "Some Theorems in Least Squares"]. Not for several threads at once. */
#ifndef INFCGI_SCHED_ROW_COSTS_H
#define INFCGI_SCHED_ROW_COSTS_H

#include <stdint.h>

/* Zeros: no step was seen. */
struct row_costs {
    double rr, rp, pp; /* sums over steps: rows x rows, rows x positions, positions x positions */
    double rt, pt;     /* rows x ns, positions x ns */
    double off_ns;     /* moving average of how far steps were off what was expected of them */
};

/* A step took ns for n_rows (1 or more) prompt rows, which stood at sum_pos together. */
void row_costs_note(struct row_costs *c, int32_t n_rows, double sum_pos, double ns);

/* Nanoseconds of a row at position pos; 0 when no step was seen, else above 0. */
double row_costs_ns(const struct row_costs *c, double pos);

#endif
