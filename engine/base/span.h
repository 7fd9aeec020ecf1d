/* A range of bytes of a text. */
#ifndef INFCGI_BASE_SPAN_H
#define INFCGI_BASE_SPAN_H

#include <stddef.h>

/* [from, to) */
struct span {
    size_t from, to;
};

#endif
