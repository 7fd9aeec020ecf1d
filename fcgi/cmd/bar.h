/* A progress bar on stderr, where that is a terminal; elsewhere it shows nothing. It stands alone in its line with the
 * cursor in front, so that whatever else is printed covers it. Threads: one at a time. */
#ifndef INFCGI_CMD_BAR_H
#define INFCGI_CMD_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct bar {
    bool is_shown;    /* stderr is a terminal */
    bool is_drawn;    /* there is something to clear */
    uint64_t last_ns; /* when it was drawn, or begun: what ends soon shows none */
};

void bar_begin(struct bar *b);
void bar_set(struct bar *b, double fraction); /* 0 .. 1 */
void bar_end(struct bar *b);

#endif
