/* The option tables. To add an option: add a field to struct conf, a row to options.c and the code that uses it; then
 * run `make docs`. Threads: constant. */
#ifndef INFCGI_FCGI_OPTIONS_H
#define INFCGI_FCGI_OPTIONS_H

#include "fcgi/conf/option.h"

extern const struct option_table options_table;

/* Options of llama-server (options_llama.c): options with another name in infcgi, options without effect, and rejected
 * options. The last row has no names. */
extern const struct option_other options_llama[];

#endif
