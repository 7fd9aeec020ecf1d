/* A bar of 30 cells and a percentage, drawn at most ten times per second. */
#include "fcgi/cmd/bar.h"

#include "engine/base/clock.h"
#include "engine/base/compiler.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    BAR_CELLS = 30,
    BAR_NS = 100000000, /* between two drawings */
};

void bar_begin(struct bar *b) { *b = (struct bar){.is_shown = isatty(STDERR_FILENO) != 0, .last_ns = clock_now_ns()}; }

void bar_set(struct bar *b, double fraction)
{
    uint64_t now = b->is_shown ? clock_now_ns() : 0;
    if (!b->is_shown || now - b->last_ns < BAR_NS) {
        return;
    }
    char cells[BAR_CELLS + 1];
    int n = (int)(fraction * BAR_CELLS);
    memset(cells, ' ', BAR_CELLS);
    memset(cells, '=', (size_t)MIN_OF(MAX_OF(n, 0), BAR_CELLS));
    cells[BAR_CELLS] = '\0';
    fprintf(stderr, "\r[%s] %3d %%\r", cells, (int)(fraction * 100));
    b->is_drawn = true;
    b->last_ns = now;
}

void bar_end(struct bar *b)
{
    if (b->is_drawn) {
        fprintf(stderr, "\r%*s\r", BAR_CELLS + 10, "");
    }
    b->is_drawn = false;
}
