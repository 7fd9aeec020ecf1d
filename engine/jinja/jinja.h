/* The interpreter's limits, its only public part. Threads: constants. */
#ifndef INFCGI_JINJA_JINJA_H
#define INFCGI_JINJA_JINJA_H

/* Limits of one render; tested at the limit and one beyond. */
enum {
    JINJA_MAX_SOURCE_BYTES = 256 << 10,
    JINJA_MAX_DEPTH = 64,      /* nesting of blocks, expressions and macro calls */
    JINJA_MAX_STEPS = 1000000, /* evaluated nodes */
    JINJA_MAX_OUTPUT_BYTES = 4 << 20,
    JINJA_MAX_ARENA_BYTES = 16 << 20,
};

#endif
