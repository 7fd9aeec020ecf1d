/* The table of subcommands. Threads: constant. */
#ifndef INFCGI_FCGI_COMMANDS_H
#define INFCGI_FCGI_COMMANDS_H

#include "fcgi/cmd/cmd.h"

extern const struct cmd commands_table[];
extern const int commands_n;

/* Writes the names of the commands whose bits are set, "serve, generate", to to[0..cap), and returns to. */
const char *commands_names(unsigned bits, char *to, size_t cap);

#endif
