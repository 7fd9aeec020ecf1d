/* A progress bar on stderr if stderr is a terminal, else nothing. It has its own line with the cursor at the start, so
 * other output overwrites it. Threads: one at a time. */
#ifndef INFCGI_CMD_BAR_H
#define INFCGI_CMD_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct bar {
    bool is_shown;    /* stderr is a terminal */
    bool is_drawn;    /* something is on the line */
    uint64_t last_ns; /* time of the last drawing, or of the begin: short tasks show no bar */
};

void bar_begin(struct bar *b);
void bar_set(struct bar *b, double fraction); /* 0 .. 1 */
void bar_end(struct bar *b);

#endif
