/* The tables of options. To add an option: a field in struct conf, a row in options.c, the line that uses it; then `make docs`.
 * Threads: constant. */
#ifndef INFCGI_FCGI_OPTIONS_H
#define INFCGI_FCGI_OPTIONS_H

#include "fcgi/conf/option.h"

extern const struct option_table options_table;

/* Options of llama-server (options_llama.c): those with another name here, those without effect, and those that are rejected. The
 * last row has no name. */
extern const struct option_other options_llama[];

#endif
